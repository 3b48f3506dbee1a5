/* Owns: schedule.h. */
#include "planner/schedule.h"

#include <stdlib.h>

/* --- steps -------------------------------------------------------------------------------------------------------------- */

typedef struct Lister {
  Schedule *schedule;
  const Program *program;
  bool *available; /* by value: kept from forward, or already computed again */
} Lister;

static void materialise(Lister *l, int32_t op);

static bool reads(OperandMode mode) { return mode == MODE_READ || mode == MODE_UPDATE; }

static void materialise_operands(Lister *l, int32_t index) {
  const ProgramOp *op = &l->program->ops.data[index];
  for (int32_t k = 0; k < op->ref_count; k++) {
    int32_t value = op->refs[k].value;
    if (value < 0 || !reads(l->program->specs[op->op].operands[k].mode)) continue;
    if (l->program->values.data[value].kind == VALUE_ACTIVATION && !l->available[value])
      materialise(l, l->program->values.data[value].producer);
  }
}

static void mark_outputs(Lister *l, int32_t index) {
  const ProgramOp *op = &l->program->ops.data[index];
  for (int32_t k = 0; k < op->ref_count; k++)
    if (op->refs[k].value >= 0 && l->program->specs[op->op].operands[k].mode == MODE_WRITE)
      l->available[op->refs[k].value] = true;
}

/* Runs a forward op again, after the ops whose results it needs and that were not kept either. */
static void materialise(Lister *l, int32_t op) {
  materialise_operands(l, op);
  Step step = {op, PHASE_RECOMPUTE};
  vec_push(l->schedule->arena, &l->schedule->steps, step);
  mark_outputs(l, op);
}

static void list_steps(Schedule *schedule, const Program *program, const bool *recompute) {
  Lister l = {schedule, program, ARENA_ARRAY(schedule->arena, bool, program->values.count)};
  for (int32_t i = 0; i < program->turn; i++) {
    Step step = {i, PHASE_FORWARD};
    vec_push(schedule->arena, &schedule->steps, step);
    if (!recompute[i]) mark_outputs(&l, i);
  }
  for (int32_t i = program->turn; i < (int32_t)program->ops.count; i++) {
    materialise_operands(&l, i);
    Step step = {i, PHASE_BACKWARD};
    vec_push(schedule->arena, &schedule->steps, step);
  }
}

/* --- live bytes, gathers aside ------------------------------------------------------------------------------------------------ */

static void add_range(int64_t *delta, int32_t first, int32_t last, uint64_t bytes) {
  delta[first] += (int64_t)bytes;
  delta[last + 1] -= (int64_t)bytes;
}

static bool is_transient(ValueKind kind) {
  return kind == VALUE_ACTIVATION || kind == VALUE_GRADIENT || kind == VALUE_WORKSPACE || kind == VALUE_INPUT;
}

static void add_values(Schedule *schedule, const Program *program, int64_t *delta) {
  uint32_t count = program->values.count;
  int32_t *first = ARENA_ARRAY(schedule->arena, int32_t, count), *last = ARENA_ARRAY(schedule->arena, int32_t, count);
  for (uint32_t v = 0; v < count; v++) first[v] = PLAN_NONE;
  for (int32_t s = 0; s < (int32_t)schedule->steps.count; s++) {
    const ProgramOp *op = &program->ops.data[schedule->steps.data[s].op];
    bool again = schedule->steps.data[s].phase == PHASE_RECOMPUTE;
    for (int32_t k = 0; k < op->ref_count; k++) {
      int32_t v = op->refs[k].value;
      if (v < 0 || !is_transient(program->values.data[v].kind)) continue;
      const Value *value = &program->values.data[v];
      bool fresh = again && program->specs[op->op].operands[k].mode == MODE_WRITE;
      if (fresh && first[v] >= 0) {
        add_range(delta, first[v], last[v], value->numel * dtype_bytes(value->dtype));
        first[v] = PLAN_NONE;
      }
      if (first[v] < 0) first[v] = value->kind == VALUE_INPUT ? 0 : s;
      last[v] = s;
    }
  }
  for (uint32_t v = 0; v < count; v++)
    if (first[v] >= 0) add_range(delta, first[v], last[v], program->values.data[v].numel * dtype_bytes(program->values.data[v].dtype));
}

static int compare_reductions(const void *a, const void *b) {
  const Reduction *x = a, *y = b;
  if (x->after != y->after) return x->after < y->after ? -1 : 1;
  return (x->unit > y->unit) - (x->unit < y->unit);
}

/* Compute runs on while a gradient is reduced: its buffer is free for reuse only when the next reduction is issued. */
static void list_reductions(Schedule *schedule, const Program *program, const Decisions *decisions) {
  uint32_t units = decisions->units->units.count;
  Reduction *of_unit = ARENA_ARRAY(schedule->arena, Reduction, units);
  for (uint32_t u = 0; u < units; u++) of_unit[u] = (Reduction){(int32_t)u, PLAN_NONE, PLAN_NONE, 0};
  for (int32_t s = 0; s < (int32_t)schedule->steps.count; s++) {
    const ProgramOp *op = &program->ops.data[schedule->steps.data[s].op];
    for (int32_t k = 0; k < op->ref_count; k++) {
      if (op->refs[k].value < 0) continue;
      const Value *value = &program->values.data[op->refs[k].value];
      if (value->kind != VALUE_PARAM_GRADIENT) continue;
      Reduction *r = &of_unit[decisions->units->unit_of[value->param]];
      if (r->first < 0) r->first = s;
      r->after = s;
    }
  }
  for (uint32_t u = 0; u < units; u++)
    if (of_unit[u].after >= 0) vec_push(schedule->arena, &schedule->reductions, of_unit[u]);
  if (!schedule->reductions.count) return;
  qsort(schedule->reductions.data, schedule->reductions.count, sizeof(Reduction), compare_reductions);
  for (uint32_t r = 0; r < schedule->reductions.count; r++) {
    bool more = r + 1 < schedule->reductions.count;
    schedule->reductions.data[r].release = more ? schedule->reductions.data[r + 1].after : (int32_t)schedule->steps.count - 1;
  }
}

/* --- gathers --------------------------------------------------------------------------------------------------------------------- */

typedef struct Passes {
  int32_t first[2], last[2]; /* forward, the rest; PLAN_NONE: unused there */
} Passes;

static Passes *find_passes(Schedule *schedule, const Program *program, const Decisions *decisions) {
  uint32_t count = decisions->units->units.count;
  Passes *passes = ARENA_ARRAY(schedule->arena, Passes, count);
  for (uint32_t u = 0; u < count; u++) passes[u] = (Passes){{PLAN_NONE, PLAN_NONE}, {PLAN_NONE, PLAN_NONE}};
  for (int32_t s = 0; s < (int32_t)schedule->steps.count; s++) {
    const ProgramOp *op = &program->ops.data[schedule->steps.data[s].op];
    int pass = schedule->steps.data[s].phase != PHASE_FORWARD;
    for (int32_t k = 0; k < op->ref_count; k++) {
      if (op->refs[k].value < 0 || program->values.data[op->refs[k].value].kind != VALUE_PARAM) continue;
      Passes *p = &passes[decisions->units->unit_of[program->values.data[op->refs[k].value].param]];
      if (p->first[pass] < 0) p->first[pass] = s;
      p->last[pass] = s;
    }
  }
  return passes;
}

static int compare_uses(const void *a, const void *b) {
  const Use *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x->unit > y->unit) - (x->unit < y->unit);
}

static void list_uses(Schedule *schedule, const Passes *passes, const Decisions *decisions) {
  schedule->uses.count = 0;
  for (int32_t u = 0; u < (int32_t)decisions->units->units.count; u++) {
    Passes p = passes[u];
    bool both = p.first[0] >= 0 && p.first[1] >= 0;
    for (int pass = 0; pass < 2; pass++) {
      if (p.first[pass] < 0 || (pass == 1 && both && decisions->keep[u])) continue;
      Use use = {u, p.first[pass], both && decisions->keep[u] ? p.last[1] : p.last[pass], p.first[pass]};
      vec_push(schedule->arena, &schedule->uses, use);
    }
  }
  qsort(schedule->uses.data, schedule->uses.count, sizeof(Use), compare_uses);
}

static void issue_by_depth(Schedule *schedule, uint32_t depth) {
  for (uint32_t i = 0; i < schedule->uses.count; i++)
    schedule->uses.data[i].issue = i < depth ? 0 : schedule->uses.data[i - depth].first;
}

/* A unit whose second gather would be issued before its first release is simply kept. */
static bool keep_overlapping(Schedule *schedule, const Decisions *decisions, int32_t *last) {
  bool changed = false;
  for (uint32_t u = 0; u < decisions->units->units.count; u++) last[u] = PLAN_NONE;
  for (uint32_t i = 0; i < schedule->uses.count; i++) {
    const Use *use = &schedule->uses.data[i];
    if (last[use->unit] >= 0 && use->issue <= last[use->unit]) decisions->keep[use->unit] = changed = true;
    last[use->unit] = use->last;
  }
  return changed;
}

/* Issues each gather as early as memory allows, in the order of use, not before the unit's own release, nor more than
 * PREFETCH_AHEAD uses ahead: further would only fill memory. */
enum { PREFETCH_AHEAD = 6 };

static void issue_early(Schedule *schedule, const UnitFigures *figures, int32_t *last, uint32_t units, uint64_t room) {
  int64_t *live = schedule->live;
  for (uint32_t u = 0; u < units; u++) last[u] = PLAN_NONE;
  for (uint32_t i = 0; i < schedule->uses.count; i++) {
    Use *use = &schedule->uses.data[i];
    int64_t bytes = (int64_t)figures[use->unit].full_bytes;
    int32_t floor = i ? schedule->uses.data[i - 1].issue : 0;
    if (i >= PREFETCH_AHEAD && schedule->uses.data[i - PREFETCH_AHEAD].first > floor)
      floor = schedule->uses.data[i - PREFETCH_AHEAD].first;
    if (last[use->unit] + 1 > floor) floor = last[use->unit] + 1;
    while (use->issue > floor && live[use->issue - 1] + bytes <= (int64_t)room) live[--use->issue] += bytes;
    last[use->unit] = use->last;
  }
}

static void accumulate(Schedule *schedule, const int64_t *delta) {
  int64_t sum = 0;
  for (uint32_t s = 0; s < schedule->steps.count; s++) schedule->live[s] = sum += delta[s];
}

void schedule_build(Schedule *schedule, Arena *arena, const Program *program, const Decisions *decisions,
                    const UnitFigures *figures, uint64_t room) {
  *schedule = (Schedule){.arena = arena};
  list_steps(schedule, program, decisions->recompute);
  list_reductions(schedule, program, decisions);
  uint32_t units = decisions->units->units.count;
  int32_t *last = ARENA_ARRAY(arena, int32_t, units);
  const Passes *passes = find_passes(schedule, program, decisions);
  bool fixed = decisions->prefetch != PREFETCH_EARLY;
  do {
    list_uses(schedule, passes, decisions);
    if (fixed) issue_by_depth(schedule, decisions->prefetch);
  } while (fixed && keep_overlapping(schedule, decisions, last));
  int64_t *delta = ARENA_ARRAY(arena, int64_t, schedule->steps.count + 1);
  schedule->live = ARENA_ARRAY(arena, int64_t, schedule->steps.count);
  add_values(schedule, program, delta);
  for (uint32_t r = 0; r < schedule->reductions.count && decisions->ranks > 1; r++) {
    const Reduction *reduction = &schedule->reductions.data[r];
    add_range(delta, reduction->first, reduction->release, figures[reduction->unit].gradient_bytes);
  }
  for (uint32_t i = 0; i < schedule->uses.count && decisions->shard > 1; i++)
    add_range(delta, schedule->uses.data[i].issue, schedule->uses.data[i].last, figures[schedule->uses.data[i].unit].full_bytes);
  accumulate(schedule, delta);
  if (!fixed && decisions->shard > 1) issue_early(schedule, figures, last, units, room);
  for (uint32_t s = 0; s < schedule->steps.count; s++)
    if (schedule->live[s] > schedule->max_live) schedule->max_live = schedule->live[s];
}

/* --- time ------------------------------------------------------------------------------------------------------------------------------ */

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

void schedule_evaluate(Schedule *schedule, const Program *program, const Decisions *decisions, const UnitFigures *figures,
                       bool shared_queue) {
  uint32_t units = decisions->units->units.count, next_use = 0, next_reduction = 0, next_release = 0;
  uint64_t compute = 0, gather = 0, reduce = 0;
  uint64_t *ready = ARENA_ARRAY(schedule->arena, uint64_t, units);                        /* by unit: gathered */
  uint64_t *reduced = ARENA_ARRAY(schedule->arena, uint64_t, schedule->reductions.count + 1);
  bool sharded = decisions->shard > 1, parallel = decisions->ranks > 1;
  const Use *uses = schedule->uses.data;
  const Reduction *reductions = schedule->reductions.data;
  for (int32_t s = 0; s < (int32_t)schedule->steps.count; s++) {
    for (; sharded && next_use < schedule->uses.count && uses[next_use].issue <= s; next_use++) {
      uint64_t *queue = shared_queue ? &reduce : &gather;
      *queue = later(*queue, compute) + figures[uses[next_use].unit].gather_ns;
      ready[uses[next_use].unit] = *queue;
    }
    while (parallel && next_release < next_reduction && reductions[next_release].release < s)
      compute = later(compute, reduced[next_release++]);
    const ProgramOp *op = &program->ops.data[schedule->steps.data[s].op];
    for (int32_t k = 0; sharded && k < op->ref_count; k++) {
      if (op->refs[k].value < 0 || program->values.data[op->refs[k].value].kind != VALUE_PARAM) continue;
      compute = later(compute, ready[decisions->units->unit_of[program->values.data[op->refs[k].value].param]]);
    }
    compute += op->ns;
    for (; parallel && next_reduction < schedule->reductions.count && reductions[next_reduction].after == s; next_reduction++)
      reduced[next_reduction] = reduce = later(reduce, compute) + figures[reductions[next_reduction].unit].reduce_ns;
  }
  schedule->micro_ns = later(later(compute, gather), reduce);
  schedule->update_ns = decisions->fixed_update_ns;
  for (uint32_t u = 0; u < units; u++) schedule->update_ns += figures[u].update_ns;
  schedule->step_ns = schedule->micro_ns * decisions->accumulation + schedule->update_ns;
}
