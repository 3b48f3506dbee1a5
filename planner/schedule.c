/* Owns: schedule.h. */
#include "planner/schedule.h"

#include <stdlib.h>

#define EACH_REF(program, op, ref)                                                                            \
  (const FlowRef *ref = (program)->flow.refs + (program)->flow.first[op];                                    \
   ref < (program)->flow.refs + (program)->flow.first[(op) + 1]; ref++)

/* --- steps -------------------------------------------------------------------------------------------------------------- */

typedef struct Lister {
  Schedule *schedule;
  const Program *program;
  bool *available; /* by value: kept from forward, or already computed again */
} Lister;

static void push_step(Schedule *schedule, int32_t op, Phase phase) {
  Step step = {op, phase};
  vec_push(schedule->arena, &schedule->steps, step);
}

static void mark_outputs(Lister *l, int32_t op) {
  for EACH_REF(l->program, op, ref) if (ref->writes && ref->kind != VALUE_PARAM_GRADIENT) l->available[ref->index] = true;
}

/* Runs the forward ops again whose results `op` reads and that were not kept, each after those it needs in turn. */
static void materialise_inputs(Lister *l, int32_t op) {
  for EACH_REF(l->program, op, ref) {
    if (ref->kind != VALUE_ACTIVATION || !ref->reads || l->available[ref->index]) continue;
    int32_t producer = l->program->values.data[ref->index].producer;
    materialise_inputs(l, producer);
    push_step(l->schedule, producer, PHASE_RECOMPUTE);
    mark_outputs(l, producer);
  }
}

static void list_steps(Schedule *schedule, const Program *program, const bool *recompute) {
  Lister l = {schedule, program, ARENA_ARRAY(schedule->arena, bool, program->values.count)};
  for (int32_t i = 0; i < program->turn; i++) {
    push_step(schedule, i, PHASE_FORWARD);
    if (!recompute[i]) mark_outputs(&l, i);
  }
  for (int32_t i = program->turn; i < (int32_t)program->ops.count; i++) {
    materialise_inputs(&l, i);
    push_step(schedule, i, PHASE_BACKWARD);
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
    bool again = schedule->steps.data[s].phase == PHASE_RECOMPUTE;
    for EACH_REF(program, schedule->steps.data[s].op, ref) {
      if (!is_transient(ref->kind)) continue;
      int32_t v = ref->index;
      if (again && ref->writes && first[v] >= 0) {
        add_range(delta, first[v], last[v], program->flow.value_bytes[v]);
        first[v] = PLAN_NONE;
      }
      if (first[v] < 0) first[v] = ref->kind == VALUE_INPUT ? 0 : s;
      last[v] = s;
    }
  }
  for (uint32_t v = 0; v < count; v++)
    if (first[v] >= 0) add_range(delta, first[v], last[v], program->flow.value_bytes[v]);
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
    for EACH_REF(program, schedule->steps.data[s].op, ref) {
      if (ref->kind != VALUE_PARAM_GRADIENT) continue;
      Reduction *r = &of_unit[decisions->units->unit_of[ref->index]];
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
    int pass = schedule->steps.data[s].phase != PHASE_FORWARD;
    for EACH_REF(program, schedule->steps.data[s].op, ref) {
      if (ref->kind != VALUE_PARAM) continue;
      Passes *p = &passes[decisions->units->unit_of[ref->index]];
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

static void find_live(Schedule *schedule, const Program *program, const Decisions *decisions, const UnitFigures *figures) {
  int64_t *delta = ARENA_ARRAY(schedule->arena, int64_t, schedule->steps.count + 1);
  add_values(schedule, program, delta);
  for (uint32_t r = 0; r < schedule->reductions.count && decisions->ranks > 1; r++) {
    const Reduction *reduction = &schedule->reductions.data[r];
    add_range(delta, reduction->first, reduction->release, figures[reduction->unit].gradient_bytes);
  }
  for (uint32_t i = 0; i < schedule->uses.count && decisions->shard > 1; i++)
    add_range(delta, schedule->uses.data[i].issue, schedule->uses.data[i].last, figures[schedule->uses.data[i].unit].full_bytes);
  int64_t sum = 0;
  for (uint32_t s = 0; s < schedule->steps.count; s++) schedule->live[s] = sum += delta[s];
}

/* --- time ------------------------------------------------------------------------------------------------------------------------------ */

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Time that work takes from `now` on when communication runs beside it until `busy`. */
static uint64_t beside(uint64_t work, uint64_t now, uint64_t busy, double contention) {
  if (busy <= now || contention <= 0) return work;
  double overlap = (double)(busy - now), done = overlap * (1 - contention);
  if ((double)work <= done) return (uint64_t)((double)work / (1 - contention));
  return (uint64_t)(overlap + ((double)work - done));
}

/* start[s]: when step s starts to compute. done[r]: the step before which reduction r has finished although nothing waited for it; steps.count if none. */
static void simulate(Schedule *schedule, const Program *program, const Decisions *decisions, const UnitFigures *figures,
                     bool shared_queue, int32_t *done, uint64_t *start) {
  uint32_t next_use = 0, next_reduction = 0, next_release = 0, next_done = 0;
  uint64_t compute = 0, gather = 0, reduce = 0;
  uint64_t *ready = ARENA_ARRAY(schedule->arena, uint64_t, decisions->units->units.count); /* by unit: gathered */
  uint64_t *reduced = ARENA_ARRAY(schedule->arena, uint64_t, schedule->reductions.count + 1);
  bool sharded = decisions->shard > 1, parallel = decisions->ranks > 1;
  const Use *uses = schedule->uses.data;
  const Reduction *reductions = schedule->reductions.data;
  for (int32_t s = 0; s < (int32_t)schedule->steps.count; s++) {
    int32_t op = schedule->steps.data[s].op;
    for (; sharded && next_use < schedule->uses.count && uses[next_use].issue <= s; next_use++) {
      uint64_t *queue = shared_queue ? &reduce : &gather;
      *queue = later(*queue, compute) + figures[uses[next_use].unit].gather_ns;
      ready[uses[next_use].unit] = *queue;
    }
    while (parallel && next_release < next_reduction && reductions[next_release].release < s)
      compute = later(compute, reduced[next_release++]);
    for EACH_REF(program, op, ref) if (sharded && ref->kind == VALUE_PARAM)
      compute = later(compute, ready[decisions->units->unit_of[ref->index]]);
    start[s] = compute;
    while (next_done < next_reduction && reduced[next_done] <= compute) done[next_done++] = s;
    compute += beside(program->ops.data[op].ns, compute, later(gather, reduce), decisions->contention);
    for (; parallel && next_reduction < schedule->reductions.count && reductions[next_reduction].after == s; next_reduction++)
      reduced[next_reduction] = reduce = later(reduce, compute) + figures[reductions[next_reduction].unit].reduce_ns;
  }
  while (next_done < schedule->reductions.count) done[next_done++] = (int32_t)schedule->steps.count;
  schedule->micro_ns = later(later(compute, gather), reduce);
  schedule->update_ns = decisions->fixed_update_ns;
  for (uint32_t u = 0; u < decisions->units->units.count; u++) schedule->update_ns += figures[u].update_ns;
  schedule->step_ns = schedule->micro_ns * decisions->accumulation + schedule->update_ns;
}

/* Delays each gather to the last step whose start still lets everything start on time: less memory, the same time. */
static void issue_late(Schedule *schedule, const UnitFigures *figures, const uint64_t *start) {
  uint64_t latest = UINT64_MAX;
  for (uint32_t i = schedule->uses.count; i-- > 0;) {
    Use *use = &schedule->uses.data[i];
    uint64_t need = start[use->first], ns = figures[use->unit].gather_ns;
    if (need < latest) latest = need;
    latest = latest > ns ? latest - ns : 0;
    int64_t bytes = (int64_t)figures[use->unit].full_bytes;
    int32_t cap = use->first;
    if (i + 1 < schedule->uses.count && schedule->uses.data[i + 1].issue < cap) cap = schedule->uses.data[i + 1].issue;
    while (use->issue < cap && start[use->issue + 1] <= latest) schedule->live[use->issue++] -= bytes;
  }
}

/* --- the whole --------------------------------------------------------------------------------------------------------------------------- */

static void issue_gathers(Schedule *schedule, const Passes *passes, const Decisions *decisions, const UnitFigures *figures,
                          int32_t *last) {
  bool fixed = decisions->prefetch != PREFETCH_EARLY;
  if (!fixed && decisions->shard > 1) issue_early(schedule, figures, last, decisions->units->units.count, decisions->room);
  if (!fixed) return;
  issue_by_depth(schedule, decisions->prefetch);
  while (keep_overlapping(schedule, decisions, last)) {
    list_uses(schedule, passes, decisions);
    issue_by_depth(schedule, decisions->prefetch);
  }
}

void schedule_build(Schedule *schedule, Arena *arena, const Program *program, const Decisions *decisions,
                    const UnitFigures *figures, bool shared_queue) {
  *schedule = (Schedule){.arena = arena};
  list_steps(schedule, program, decisions->recompute);
  list_reductions(schedule, program, decisions);
  bool fixed = decisions->prefetch != PREFETCH_EARLY;
  int32_t *last = ARENA_ARRAY(arena, int32_t, decisions->units->units.count);
  int32_t *done = ARENA_ARRAY(arena, int32_t, schedule->reductions.count + 1);
  uint64_t *start = ARENA_ARRAY(arena, uint64_t, schedule->steps.count);
  const Passes *passes = find_passes(schedule, program, decisions);
  schedule->live = ARENA_ARRAY(arena, int64_t, schedule->steps.count);
  /* Twice: once with gradients held until the next reduction, then only until their own has surely finished. */
  for (int pass = 0; pass < 2; pass++) {
    list_uses(schedule, passes, decisions);
    if (fixed) issue_gathers(schedule, passes, decisions, figures, last);
    find_live(schedule, program, decisions, figures);
    if (!fixed) issue_gathers(schedule, passes, decisions, figures, last);
    simulate(schedule, program, decisions, figures, shared_queue, done, start);
    if (pass == 1) break;
    bool tighter = false;
    for (uint32_t r = 0; r < schedule->reductions.count; r++) {
      Reduction *reduction = &schedule->reductions.data[r];
      if (done[r] >= reduction->release || done[r] < reduction->after) continue;
      reduction->release = done[r];
      tighter = true;
    }
    if (!tighter) break;
  }
  if (!fixed && decisions->shard > 1 && !shared_queue) {
    issue_late(schedule, figures, start);
    simulate(schedule, program, decisions, figures, shared_queue, done, start);
  }
  for (uint32_t s = 0; s < schedule->steps.count; s++)
    if (schedule->live[s] > schedule->max_live) schedule->max_live = schedule->live[s];
}
