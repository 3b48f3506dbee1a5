/* Owns: schedule.h. The search builds thousands of these: everything that does not depend on what is decided comes from
 * the program's flow and the skeleton, and passes run over packed arrays. */
#include "planner/schedule.h"

#include <stdlib.h>

/* --- what decisions do not change ---------------------------------------------------------------------------------------- */

static void widen(int32_t *first, int32_t *last, int32_t op) {
  if (*first < 0) *first = op;
  *last = op;
}

static void note_param(Skeleton *skeleton, const ParamRef *ref, int32_t unit) {
  UnitOps *ops = &skeleton->ops[unit];
  if (ref->gradient)
    widen(&ops->first_gradient, &ops->last_gradient, ref->op);
  else if (ref->op < skeleton->program->turn)
    widen(&ops->first_forward, &ops->last_forward, ref->op);
  else
    widen(&ops->first_backward, &ops->last_backward, ref->op);
}

const Skeleton *schedule_prepare(Arena *arena, const Program *program, const UnitSet *units, const UnitFigures *figures,
                                 bool shared_queue) {
  const Flow *flow = &program->flow;
  Skeleton *skeleton = ARENA_NEW(arena, Skeleton);
  *skeleton = (Skeleton){program, units, figures, shared_queue, ARENA_ARRAY(arena, UnitOps, units->units.count),
                         ARENA_ARRAY(arena, uint32_t, program->ops.count + 1), ARENA_ARRAY(arena, int32_t, flow->param_count)};
  for (uint32_t u = 0; u < units->units.count; u++)
    skeleton->ops[u] = (UnitOps){PLAN_NONE, PLAN_NONE, PLAN_NONE, PLAN_NONE, PLAN_NONE, PLAN_NONE};
  uint32_t count = 0, next = 0;
  for (int32_t i = 0; i < (int32_t)program->ops.count; i++) {
    skeleton->first[i] = count;
    for (; next < flow->param_count && flow->params[next].op == i; next++) {
      int32_t unit = units->unit_of[flow->params[next].param];
      note_param(skeleton, &flow->params[next], unit);
      bool known = flow->params[next].gradient;
      for (uint32_t k = skeleton->first[i]; k < count; k++) known |= skeleton->touched[k] == unit;
      if (!known) skeleton->touched[count++] = unit;
    }
  }
  skeleton->first[program->ops.count] = count;
  return skeleton;
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

typedef struct Builder {
  Schedule *schedule;
  const Skeleton *skeleton;
  const Program *program;
  const Flow *flow;
  const Decisions *decisions;
  bool *available;   /* by value: kept from forward, or already computed again */
  int32_t *step_of;  /* by op: its forward or backward step */
  int32_t *again;    /* recompute steps, in order */
  int32_t again_count;
  int32_t *last;     /* scratch by unit */
  int32_t *done;     /* by reduction: the step before which it has finished although nothing waited for it */
  uint64_t *start;   /* by step: when it starts to compute */
} Builder;

#define EACH_REF(flow, op, ref)                                                                               \
  (const FlowRef *ref = (flow)->refs + (flow)->first[op], *ref##_end = (flow)->refs + (flow)->first[(op) + 1]; \
   ref < ref##_end; ref++)

#define EACH_UNIT(skeleton, op, at) (uint32_t at = (skeleton)->first[op]; at < (skeleton)->first[(op) + 1]; at++)

static int32_t push_step(Builder *b, int32_t op, Phase phase) {
  b->schedule->steps[b->schedule->step_count] = (Step){op, phase};
  return b->schedule->step_count++;
}

static void mark_outputs(Builder *b, int32_t op) {
  for EACH_REF(b->flow, op, ref) if (ref->writes) b->available[ref->value] = true;
}

/* Runs the forward ops again whose results `op` reads and that were not kept, each after those it needs in turn. */
static void materialise_inputs(Builder *b, int32_t op) {
  for EACH_REF(b->flow, op, ref) {
    int32_t producer = b->flow->producer[ref->value];
    if (!ref->reads || producer < 0 || b->available[ref->value]) continue;
    materialise_inputs(b, producer);
    b->again[b->again_count++] = push_step(b, producer, PHASE_RECOMPUTE);
    mark_outputs(b, producer);
  }
}

static void list_steps(Builder *b) {
  for (int32_t i = 0; i < b->program->turn; i++) {
    b->step_of[i] = push_step(b, i, PHASE_FORWARD);
    if (!b->decisions->recompute[i]) mark_outputs(b, i);
  }
  for (int32_t i = b->program->turn; i < (int32_t)b->program->ops.count; i++) {
    materialise_inputs(b, i);
    b->step_of[i] = push_step(b, i, PHASE_BACKWARD);
  }
}

/* --- live bytes, gathers aside ------------------------------------------------------------------------------------------------ */

static void add_range(int64_t *delta, int32_t first, int32_t last, uint64_t bytes) {
  delta[first] += (int64_t)bytes;
  delta[last + 1] -= (int64_t)bytes;
}

/* A value computed again lives twice: until its last use of forward, and from its recomputation on. */
static void add_values(Builder *b, int64_t *delta) {
  const Flow *flow = b->flow;
  uint32_t count = b->program->values.count;
  int32_t *again = ARENA_ARRAY(b->schedule->arena, int32_t, count), *last = ARENA_ARRAY(b->schedule->arena, int32_t, count);
  for (int32_t i = 0; i < b->again_count; i++) {
    int32_t s = b->again[i];
    for EACH_REF(flow, b->schedule->steps[s].op, ref) {
      if (!ref->transient) continue;
      if (ref->writes) again[ref->value] = s;
      last[ref->value] = s;
    }
  }
  for (uint32_t v = 0; v < count; v++) {
    if (flow->first_op[v] < 0 || !flow->transient[v]) continue;
    int32_t first = b->step_of[flow->first_op[v]], end = b->step_of[flow->last_op[v]];
    if (again[v]) {
      add_range(delta, first, flow->last_forward[v], flow->value_bytes[v]);
      first = again[v];
    }
    add_range(delta, first, end > last[v] ? end : last[v], flow->value_bytes[v]);
  }
}

static int compare_reductions(const void *a, const void *b) {
  const Reduction *x = a, *y = b;
  if (x->after != y->after) return x->after < y->after ? -1 : 1;
  return (x->unit > y->unit) - (x->unit < y->unit);
}

/* Compute runs on while a gradient is reduced: its buffer is free for reuse only when the next reduction is issued. */
static void list_reductions(Builder *b) {
  Schedule *schedule = b->schedule;
  for (int32_t u = 0; u < (int32_t)b->skeleton->units->units.count; u++) {
    const UnitOps *ops = &b->skeleton->ops[u];
    if (ops->last_gradient < 0) continue;
    schedule->reductions[schedule->reduction_count++] =
        (Reduction){u, b->step_of[ops->first_gradient], b->step_of[ops->last_gradient], schedule->step_count - 1};
  }
  qsort(schedule->reductions, schedule->reduction_count, sizeof(Reduction), compare_reductions);
  for (uint32_t r = 0; r + 1 < schedule->reduction_count; r++) schedule->reductions[r].release = schedule->reductions[r + 1].after;
}

/* --- gathers --------------------------------------------------------------------------------------------------------------------- */

typedef struct Passes {
  int32_t first[2], last[2]; /* forward, the rest; PLAN_NONE: unused there */
} Passes;

static Passes *find_passes(Builder *b) {
  uint32_t count = b->skeleton->units->units.count;
  Passes *passes = ARENA_ARRAY(b->schedule->arena, Passes, count);
  for (uint32_t u = 0; u < count; u++) {
    const UnitOps *ops = &b->skeleton->ops[u];
    bool backward = ops->first_backward >= 0;
    passes[u] = (Passes){{ops->first_forward, backward ? b->step_of[ops->first_backward] : PLAN_NONE},
                         {ops->last_forward, backward ? b->step_of[ops->last_backward] : PLAN_NONE}};
  }
  for (int32_t i = 0; i < b->again_count; i++)
    for EACH_UNIT(b->skeleton, b->schedule->steps[b->again[i]].op, at) {
      Passes *p = &passes[b->skeleton->touched[at]];
      if (p->first[1] < 0 || b->again[i] < p->first[1]) p->first[1] = b->again[i];
      if (b->again[i] > p->last[1]) p->last[1] = b->again[i];
    }
  return passes;
}

static int compare_uses(const void *a, const void *b) {
  const Use *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x->unit > y->unit) - (x->unit < y->unit);
}

static void list_uses(Builder *b, const Passes *passes) {
  Schedule *schedule = b->schedule;
  const bool *keep = b->decisions->keep;
  schedule->use_count = 0;
  for (int32_t u = 0; u < (int32_t)b->skeleton->units->units.count; u++) {
    Passes p = passes[u];
    bool both = p.first[0] >= 0 && p.first[1] >= 0;
    for (int pass = 0; pass < 2; pass++) {
      if (p.first[pass] < 0 || (pass == 1 && both && keep[u])) continue;
      schedule->uses[schedule->use_count++] = (Use){u, p.first[pass], both && keep[u] ? p.last[1] : p.last[pass], p.first[pass]};
    }
  }
  qsort(schedule->uses, schedule->use_count, sizeof(Use), compare_uses);
}

static void issue_by_depth(Schedule *schedule, uint32_t depth) {
  for (uint32_t i = 0; i < schedule->use_count; i++)
    schedule->uses[i].issue = i < depth ? 0 : schedule->uses[i - depth].first;
}

/* A unit whose second gather would be issued before its first release is simply kept. */
static bool keep_overlapping(Schedule *schedule, const Decisions *decisions, int32_t *last) {
  bool changed = false;
  for (uint32_t u = 0; u < decisions->units->units.count; u++) last[u] = PLAN_NONE;
  for (uint32_t i = 0; i < schedule->use_count; i++) {
    const Use *use = &schedule->uses[i];
    if (last[use->unit] >= 0 && use->issue <= last[use->unit]) decisions->keep[use->unit] = changed = true;
    last[use->unit] = use->last;
  }
  return changed;
}

/* Issues each gather as early as memory allows, in the order of use, not before the unit's own release, nor more than
 * `ahead` uses ahead: further would only fill memory. */
static void issue_early(Schedule *schedule, const UnitFigures *figures, int32_t *last, uint32_t units, uint32_t ahead, uint64_t room) {
  int64_t *live = schedule->live;
  for (uint32_t u = 0; u < units; u++) last[u] = PLAN_NONE;
  for (uint32_t i = 0; i < schedule->use_count; i++) {
    Use *use = &schedule->uses[i];
    int64_t bytes = (int64_t)figures[use->unit].full_bytes;
    int32_t floor = i ? schedule->uses[i - 1].issue : 0;
    if (i >= ahead && schedule->uses[i - ahead].first > floor) floor = schedule->uses[i - ahead].first;
    if (last[use->unit] + 1 > floor) floor = last[use->unit] + 1;
    while (use->issue > floor && live[use->issue - 1] + bytes <= (int64_t)room) live[--use->issue] += bytes;
    last[use->unit] = use->last;
  }
}

static void find_live(Builder *b) {
  Schedule *schedule = b->schedule;
  const UnitFigures *figures = b->skeleton->figures;
  int64_t *delta = ARENA_ARRAY(schedule->arena, int64_t, (size_t)schedule->step_count + 1);
  add_values(b, delta);
  for (uint32_t r = 0; r < schedule->reduction_count && b->decisions->ranks > 1; r++) {
    const Reduction *reduction = &schedule->reductions[r];
    add_range(delta, reduction->first, reduction->release, figures[reduction->unit].gradient_bytes);
  }
  for (uint32_t i = 0; i < schedule->use_count && b->decisions->shard > 1; i++)
    add_range(delta, schedule->uses[i].issue, schedule->uses[i].last, figures[schedule->uses[i].unit].full_bytes);
  int64_t sum = 0;
  for (int32_t s = 0; s < schedule->step_count; s++) schedule->live[s] = sum += delta[s];
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

static void simulate(Builder *b) {
  Schedule *schedule = b->schedule;
  const UnitFigures *figures = b->skeleton->figures;
  const Decisions *decisions = b->decisions;
  const Use *uses = schedule->uses;
  const Reduction *reductions = schedule->reductions;
  uint32_t next_use = 0, next_reduction = 0, next_release = 0, next_done = 0;
  uint32_t use_count = decisions->shard > 1 ? schedule->use_count : 0, reduction_count = decisions->ranks > 1 ? schedule->reduction_count : 0;
  uint64_t compute = 0, gather = 0, reduce = 0;
  uint64_t *ready = ARENA_ARRAY(schedule->arena, uint64_t, b->skeleton->units->units.count); /* by unit: gathered */
  uint64_t *reduced = ARENA_ARRAY(schedule->arena, uint64_t, reduction_count);
  for (int32_t s = 0; s < schedule->step_count; s++) {
    int32_t op = schedule->steps[s].op;
    for (; next_use < use_count && uses[next_use].issue <= s; next_use++) {
      uint64_t *queue = b->skeleton->shared_queue ? &reduce : &gather;
      *queue = later(*queue, compute) + figures[uses[next_use].unit].gather_ns;
      ready[uses[next_use].unit] = *queue;
    }
    while (next_release < next_reduction && reductions[next_release].release < s) compute = later(compute, reduced[next_release++]);
    for EACH_UNIT(b->skeleton, op, at) compute = later(compute, ready[b->skeleton->touched[at]]);
    b->start[s] = compute;
    while (next_done < next_reduction && reduced[next_done] <= compute) b->done[next_done++] = s;
    compute += beside(b->flow->op_ns[op], compute, later(gather, reduce), decisions->contention);
    for (; next_reduction < reduction_count && reductions[next_reduction].after == s; next_reduction++)
      reduced[next_reduction] = reduce = later(reduce, compute) + figures[reductions[next_reduction].unit].reduce_ns;
  }
  while (next_done < schedule->reduction_count) b->done[next_done++] = schedule->step_count;
  schedule->micro_ns = later(later(compute, gather), reduce);
}

/* Delays each gather to the last step whose start still lets everything start on time: less memory, the same time. */
static void issue_late(Schedule *schedule, const UnitFigures *figures, const uint64_t *start) {
  uint64_t latest = UINT64_MAX;
  for (uint32_t i = schedule->use_count; i-- > 0;) {
    Use *use = &schedule->uses[i];
    uint64_t need = start[use->first], ns = figures[use->unit].gather_ns;
    if (need < latest) latest = need;
    latest = latest > ns ? latest - ns : 0;
    int64_t bytes = (int64_t)figures[use->unit].full_bytes;
    int32_t cap = use->first;
    if (i + 1 < schedule->use_count && schedule->uses[i + 1].issue < cap) cap = schedule->uses[i + 1].issue;
    while (use->issue < cap && start[use->issue + 1] <= latest) schedule->live[use->issue++] -= bytes;
  }
}

/* --- the whole --------------------------------------------------------------------------------------------------------------------------- */

static void issue_fixed(Builder *b, const Passes *passes) {
  issue_by_depth(b->schedule, b->decisions->prefetch);
  while (keep_overlapping(b->schedule, b->decisions, b->last)) {
    list_uses(b, passes);
    issue_by_depth(b->schedule, b->decisions->prefetch);
  }
}

/* Gradients are first held until the next reduction; by simulated time their own has finished earlier. */
static bool release_sooner(Builder *b) {
  bool sooner = false;
  for (uint32_t r = 0; r < b->schedule->reduction_count; r++) {
    Reduction *reduction = &b->schedule->reductions[r];
    if (b->done[r] >= reduction->release || b->done[r] < reduction->after) continue;
    reduction->release = b->done[r];
    sooner = true;
  }
  return sooner;
}

static void issue_and_simulate(Builder *b, const Passes *passes) {
  bool early = b->decisions->prefetch == PREFETCH_EARLY;
  list_uses(b, passes);
  if (!early) issue_fixed(b, passes);
  find_live(b);
  if (early && b->decisions->shard > 1)
    issue_early(b->schedule, b->skeleton->figures, b->last, b->skeleton->units->units.count, b->decisions->issue.ahead, b->decisions->room);
  simulate(b);
}

static void open_builder(Builder *b, Schedule *schedule, Arena *arena, const Skeleton *skeleton, const Decisions *decisions) {
  const Program *program = skeleton->program;
  uint32_t units = skeleton->units->units.count, ops = program->ops.count;
  uint32_t steps = ops + (uint32_t)program->turn; /* at most */
  *schedule = (Schedule){.arena = arena,
                         .steps = ARENA_ARRAY(arena, Step, steps),
                         .uses = ARENA_ARRAY(arena, Use, 2 * (size_t)units),
                         .reductions = ARENA_ARRAY(arena, Reduction, units),
                         .live = ARENA_ARRAY(arena, int64_t, steps)};
  *b = (Builder){.schedule = schedule,
                 .skeleton = skeleton,
                 .program = program,
                 .flow = &program->flow,
                 .decisions = decisions,
                 .available = ARENA_ARRAY(arena, bool, program->values.count),
                 .step_of = ARENA_ARRAY(arena, int32_t, ops),
                 .again = ARENA_ARRAY(arena, int32_t, program->turn),
                 .last = ARENA_ARRAY(arena, int32_t, units),
                 .done = ARENA_ARRAY(arena, int32_t, units),
                 .start = ARENA_ARRAY(arena, uint64_t, steps)};
}

static void total_times(Schedule *schedule, const Skeleton *skeleton, const Decisions *decisions) {
  schedule->update_ns = decisions->fixed_update_ns;
  for (uint32_t u = 0; u < skeleton->units->units.count; u++) schedule->update_ns += skeleton->figures[u].update_ns;
  schedule->step_ns = schedule->micro_ns * decisions->accumulation + schedule->update_ns;
}

void schedule_build(Schedule *schedule, Arena *arena, const Skeleton *skeleton, const Decisions *decisions) {
  Builder b;
  open_builder(&b, schedule, arena, skeleton, decisions);
  list_steps(&b);
  list_reductions(&b);
  const Passes *passes = find_passes(&b);
  issue_and_simulate(&b, passes);
  if (release_sooner(&b)) issue_and_simulate(&b, passes);
  if (decisions->prefetch == PREFETCH_EARLY && decisions->issue.late && decisions->shard > 1) {
    issue_late(schedule, skeleton->figures, b.start);
    simulate(&b);
  }
  total_times(schedule, skeleton, decisions);
  for (int32_t s = 0; s < schedule->step_count; s++)
    if (schedule->live[s] > schedule->max_live) schedule->max_live = schedule->live[s];
}
