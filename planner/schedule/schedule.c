/* Owns: schedule.h. The search builds thousands of these: everything that does not depend on what is decided comes from
 * the program's flow and the skeleton, and passes run over packed arrays. */
#include "planner/schedule/schedule_build.h"

#include "base/sort.h"

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

/* The update has images of three units that follow each other: one is stored, one computed, one fetched (emit_update.c). */
static uint64_t find_update_bytes(const UnitSet *units, const UnitFigures *figures) {
  uint64_t most = 0, before = 0, now = 0;
  for (uint32_t u = 0; u < units->units.count; u++) {
    if (units->units.data[u].frozen) continue;
    if (before + now + figures[u].brought_bytes > most) most = before + now + figures[u].brought_bytes;
    before = now;
    now = figures[u].state_bytes;
  }
  return before + now > most ? before + now : most;
}

static uint32_t *sorted_ids(Arena *arena, Keyed *order, Keyed *spare, uint32_t count) {
  uint32_t *ids = ARENA_ARRAY(arena, uint32_t, count);
  sort_by_key(order, spare, count);
  for (uint32_t i = 0; i < count; i++) ids[i] = (uint32_t)order[i].id;
  return ids;
}

static void order_reductions(Arena *arena, Skeleton *skeleton, bool alone) {
  Arena *scratch = arena_new();
  const UnitOps *ops = skeleton->ops;
  uint32_t units = skeleton->units->units.count, count = 0;
  Keyed *order = ARENA_ARRAY(scratch, Keyed, units), *spare = ARENA_ARRAY(scratch, Keyed, units);
  for (uint32_t u = 0; u < units; u++)
    if (ops[u].last_gradient >= 0) order[count++] = (Keyed){(uint64_t)ops[u].last_gradient, (int32_t)u};
  skeleton->reduced = sorted_ids(arena, order, spare, count);
  for (uint32_t r = 0; r < count; r++) order[r] = (Keyed){alone ? (uint64_t)ops[skeleton->reduced[r]].first_gradient : r, (int32_t)r};
  skeleton->brought = sorted_ids(arena, order, spare, count);
  skeleton->reduced_count = count;
  arena_free(scratch);
}

/* What takes all of compute from it lets nothing end beside it. */
static const uint64_t *slow_down(Arena *arena, const uint64_t *op_ns, uint32_t count, double contention) {
  if (contention <= 0) return op_ns;
  uint64_t *slowed = ARENA_ARRAY(arena, uint64_t, count);
  for (uint32_t i = 0; i < count; i++) slowed[i] = contention < 1 ? (uint64_t)((double)op_ns[i] / (1 - contention)) : UINT64_MAX / 2;
  return slowed;
}

/* Sums over the shards of one node and over replicas that have but one rank in each use different links; else both use the same, and share it. */
static bool share_link(const Decisions *d) { return d->shard > 1 && d->replicas > 1 && d->shard != d->ranks_per_node; }

const Skeleton *schedule_prepare(Arena *arena, const Program *program, const UnitSet *units, const UnitFigures *figures,
                                 StepFigures step, const Decisions *outer, const Device *device) {
  const Flow *flow = &program->flow;
  Skeleton *skeleton = ARENA_NEW(arena, Skeleton);
  *skeleton = (Skeleton){.program = program,
                         .units = units,
                         .figures = figures,
                         .step = step,
                         .op_ns = decisions_zeroes(outer) ? flow->adding_ns : flow->op_ns,
                         .shared_queue = device->kind == DEVICE_CPU || device->shared_queue,
                         .shared_sums = device->kind == DEVICE_CPU || device->shared_queue || share_link(outer),
                         .copies_beside = device->kind != DEVICE_CPU,
                         .host_contention = device->kind != DEVICE_CPU ? device->host_contention : 0,
                         .update_bytes = find_update_bytes(units, figures),
                         .ops = ARENA_ARRAY(arena, UnitOps, units->units.count),
                         .first = ARENA_ARRAY(arena, uint32_t, program->ops.count + 1),
                         .touched = ARENA_ARRAY(arena, int32_t, flow->param_count)};
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
  skeleton->slowed_ns = slow_down(arena, skeleton->op_ns, program->ops.count, outer->overlap.contention);
  order_reductions(arena, skeleton, outer->ranks == 1);
  skeleton->ends_ns = schedule_ends(arena, skeleton);
  return skeleton;
}

/* --- passes ------------------------------------------------------------------------------------------------------------------ */

uint32_t schedule_passes(const Decisions *d, MicroPass out[MICRO_PASSES]) {
  bool first = d->accumulation > 1 && d->gather_once, last = d->accumulation > 1 && d->reduce_once;
  uint64_t left = d->accumulation - first - last;
  uint32_t count = 0;
  if (first) out[count++] = (MicroPass){"first", 1, true, !last};
  if (left) out[count++] = (MicroPass){"micro", left, !first, !last};
  if (last) out[count++] = (MicroPass){"last", 1, !d->gather_once, true};
  return count;
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

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

/* Where values are computed again, and last read by what is run again. */
static void find_copies(Builder *b) {
  for (int32_t i = 0; i < b->again_count; i++) {
    int32_t s = b->again[i];
    for EACH_REF(b->flow, b->schedule->steps[s].op, ref) {
      if (!ref->transient) continue;
      if (ref->writes) b->copies[ref->value].first = s;
      b->copies[ref->value].last = s;
    }
  }
}

/* A value computed again lives twice: until its last use of forward, and from its recomputation on. trip: while it is away it does not. */
static void add_value(const Builder *b, int64_t *delta, uint32_t v, const Trip *trip) {
  const Flow *flow = b->flow;
  int32_t first = b->step_of[flow->first_op[v]], end = b->step_of[flow->last_op[v]];
  if (trip) {
    add_range(delta, first, later_step(trip->release, flow->last_forward[v]), flow->value_bytes[v]);
    first = trip->issue;
  }
  if (b->copies[v].first) {
    add_range(delta, first, flow->last_forward[v], flow->value_bytes[v]);
    first = b->copies[v].first;
  }
  add_range(delta, first, later_step(end, b->copies[v].last), flow->value_bytes[v]);
}

static void add_steady(Builder *b) {
  const Flow *flow = b->flow;
  for (uint32_t v = 0; v < b->program->values.count; v++)
    if (flow->first_op[v] >= 0 && flow->transient[v] && !(b->trip_of && b->trip_of[v])) add_value(b, b->steady, v, NULL);
}

static void list_reductions(Builder *b) {
  for (uint32_t r = 0; r < b->skeleton->reduced_count; r++) {
    int32_t u = (int32_t)b->skeleton->reduced[r];
    const UnitOps *ops = &b->skeleton->ops[u];
    int32_t after = b->step_of[ops->last_gradient];
    b->lands |= decisions_reduce(b->decisions) && schedule_reduced_bytes(b->decisions, &b->skeleton->figures[u]) > 0;
    const int32_t first = b->step_of[ops->first_gradient];
    b->schedule->reductions[b->schedule->reduction_count++] = (Reduction){u, first, first, after, after, after};
    Reduction *reduction = &b->schedule->reductions[r];
    reduction->issue = brings_needed_by(b, reduction);
  }
}

/* Compute runs on while a gradient is reduced: its buffer is free for reuse only when so many more reductions are issued. What they deliver
 * is smaller, and may queue up. */
static void hold_behind(Builder *b) {
  Reduction *reductions = b->schedule->reductions;
  uint32_t count = b->schedule->reduction_count, behind = b->issue.behind;
  int32_t last = b->schedule->step_count - 1;
  for (uint32_t r = 0; r < count; r++) {
    reductions[r].release = r + behind < count ? reductions[r + behind].after : last;
    reductions[r].landed = b->lands && behind ? last : reductions[r].release;
  }
}

/* --- gathers --------------------------------------------------------------------------------------------------------------------- */

static void order_passes(Builder *b) {
  Passes *passes = &b->passes;
  uint32_t units = b->skeleton->units->units.count;
  Keyed *spare = ARENA_ARRAY(b->schedule->arena, Keyed, 2 * (size_t)units);
  passes->order = ARENA_ARRAY(b->schedule->arena, Keyed, 2 * (size_t)units);
  for (uint32_t i = 0; i < 2 * units; i++) {
    int32_t first = passes->data[i / 2].first[i % 2];
    if (first >= 0) passes->order[passes->count++] = (Keyed){(uint64_t)first, (int32_t)i};
  }
  sort_by_key(passes->order, spare, passes->count);
}

static void find_passes(Builder *b) {
  uint32_t units = b->skeleton->units->units.count;
  b->passes = (Passes){.data = ARENA_ARRAY(b->schedule->arena, Pass, units)};
  for (uint32_t u = 0; u < units; u++) {
    const UnitOps *ops = &b->skeleton->ops[u];
    bool backward = ops->first_backward >= 0;
    b->passes.data[u] = (Pass){{ops->first_forward, backward ? b->step_of[ops->first_backward] : PLAN_NONE},
                               {ops->last_forward, backward ? b->step_of[ops->last_backward] : PLAN_NONE}};
  }
  for (int32_t i = 0; i < b->again_count; i++)
    for EACH_UNIT(b->skeleton, b->schedule->steps[b->again[i]].op, at) {
      Pass *p = &b->passes.data[b->skeleton->touched[at]];
      if (p->first[1] < 0 || b->again[i] < p->first[1]) p->first[1] = b->again[i];
      if (b->again[i] > p->last[1]) p->last[1] = b->again[i];
    }
  order_passes(b);
}

static void list_uses(Builder *b) {
  Schedule *schedule = b->schedule;
  const Passes *passes = &b->passes;
  schedule->use_count = 0;
  for (uint32_t i = 0; i < passes->count; i++) {
    int32_t pass = passes->order[i].id % 2, unit = passes->order[i].id / 2, first = (int32_t)passes->order[i].key;
    const Pass *p = &passes->data[unit];
    bool both = p->first[0] >= 0 && p->first[1] >= 0, stays = both && (b->decisions->keep[unit] || b->decisions->gather_once);
    if (stays && pass == 1) continue;
    int32_t arrived = b->arrived[schedule->use_count], held = arrived < first ? arrived : first;
    schedule->uses[schedule->use_count++] = (Use){unit, first, stays ? p->last[1] : p->last[pass], first, held};
  }
}

/* Issues each gather as early as memory allows, in the order of use, not before the unit's own release, nor more than the issue rule's
 * number of uses ahead: further would only fill memory. */
static void issue_early(Builder *b) {
  const Decisions *d = b->decisions;
  Schedule *schedule = b->schedule;
  int64_t *live = schedule->live, room = (int64_t)d->room;
  uint32_t ahead = decisions_ahead(d, &b->issue);
  for (uint32_t u = 0; u < b->skeleton->units->units.count; u++) b->last[u] = PLAN_NONE;
  for (uint32_t i = 0; i < schedule->use_count; i++) {
    Use *use = &schedule->uses[i];
    const UnitFigures *of = &b->skeleton->figures[use->unit];
    int64_t bytes = d->gather_once ? 0 : (int64_t)of->full_bytes, shard = (int64_t)of->shard_bytes;
    int32_t floor = i ? schedule->uses[i - 1].issue : 0;
    if (i >= ahead && schedule->uses[i - ahead].first > floor) floor = schedule->uses[i - ahead].first;
    if (b->last[use->unit] + 1 > floor) floor = b->last[use->unit] + 1;
    while (use->issue > floor && live[use->issue - 1] + bytes + shard <= room) {
      if (use->held < use->issue) live[use->issue] -= shard;
      live[--use->issue] += bytes + shard;
    }
    b->last[use->unit] = use->last;
  }
}

/* A full gradient that is reduced in place, or not at all, is its own image. */
uint64_t schedule_reduced_bytes(const Decisions *d, const UnitFigures *figures) {
  bool image = d->shard > 1 || (d->ranks > 1 && decisions_adds_up(d));
  return figures->part_bytes + (image ? figures->image_bytes : 0);
}

/* Of a gradient from when it is whole until it has been read. */
static int64_t gradient_bytes(const Builder *b, const Reduction *reduction) {
  const bool held = decisions_reduce(b->decisions) && !b->decisions->reduce_once;
  return held ? (int64_t)b->skeleton->figures[reduction->unit].gradient_bytes : 0;
}

static int64_t reduced_bytes(const Builder *b, const Reduction *reduction) {
  return decisions_reduce(b->decisions) ? (int64_t)schedule_reduced_bytes(b->decisions, &b->skeleton->figures[reduction->unit]) : 0;
}

static void find_live(Builder *b) {
  Schedule *schedule = b->schedule;
  const UnitFigures *figures = b->skeleton->figures;
  int64_t *delta = schedule->live, sum = 0; /* by step, what it has more than the one before */
  memcpy(delta, b->steady, ((size_t)schedule->step_count + 1) * sizeof *delta);
  for (uint32_t t = 0; t < schedule->trip_count; t++) add_value(b, delta, (uint32_t)schedule->trips[t].value, &schedule->trips[t]);
  for (uint32_t r = 0; r < schedule->reduction_count && decisions_reduce(b->decisions); r++) {
    const Reduction *reduction = &schedule->reductions[r];
    const int32_t needed = brings_needed_by(b, reduction);
    if (reduction->issue < needed) add_range(delta, reduction->issue, needed - 1, (uint64_t)brings_bytes(b, reduction));
    add_range(delta, reduction->first, reduction->release, (uint64_t)gradient_bytes(b, reduction));
    /* before times are known what it is reduced to seems to need no longer */
    add_range(delta, reduction->after, b->timed ? reduction->landed : reduction->release, (uint64_t)reduced_bytes(b, reduction));
  }
  for (uint32_t i = 0; i < schedule->use_count && decisions_gather(b->decisions); i++) {
    const Use *use = &schedule->uses[i];
    const UnitFigures *of = &figures[use->unit];
    if (!b->decisions->gather_once) add_range(delta, use->issue, use->last, of->full_bytes);
    add_range(delta, use->issue, later_step(use->held, use->issue), of->shard_bytes);
  }
  for (int32_t s = 0; s < schedule->step_count; s++) schedule->live[s] = sum += delta[s];
}

/* The pass that buffers are released by: parameters that are gathered once are there, gradients are reduced. */
static bool gathers_mostly(const Decisions *d) { return !d->gather_once || d->accumulation == 1; }

static uint64_t simulate_main(Builder *b) { return schedule_time(b, gathers_mostly(b->decisions), true); }

/* --- issuing late --------------------------------------------------------------------------------------------------------------------- */

/* Delays each gather to the last step whose start still lets everything start on time: less memory, the same time. */
static void issue_late(Schedule *schedule, const UnitFigures *figures, const uint64_t *start, double safe) {
  uint64_t gather = UINT64_MAX, fetch = UINT64_MAX; /* when each of them must begin */
  for (uint32_t i = schedule->use_count; i-- > 0;) {
    Use *use = &schedule->uses[i];
    const UnitFigures *of = &figures[use->unit];
    gather = before(start[use->first] < gather ? start[use->first] : gather, (uint64_t)(safe * (double)of->gather_ns));
    fetch = before(gather < fetch ? gather : fetch, of->fetch_ns);
    int64_t bytes = (int64_t)of->full_bytes, shard = (int64_t)of->shard_bytes;
    int32_t cap = use->first;
    if (i + 1 < schedule->use_count && schedule->uses[i + 1].issue < cap) cap = schedule->uses[i + 1].issue;
    for (int32_t s = later_step(use->held, use->issue) + 1; s <= use->first; s++) schedule->live[s] += shard;
    use->held = use->first; /* it is gathered at the last moment */
    while (use->issue < cap && start[use->issue + 1] <= fetch) schedule->live[use->issue++] -= bytes + shard;
  }
}

/* --- the whole --------------------------------------------------------------------------------------------------------------------------- */

/* Gradients are first held for as long as the issue rule allows; by simulated time their own reduction may have ended earlier.
 * From now on they are held no longer than needed at least, and than wanted at most. */
static void bound_holds(Builder *b) {
  for (uint32_t r = 0; r < b->schedule->reduction_count; r++) {
    Reduction *reduction = &b->schedule->reductions[r];
    b->taken[r] = sooner_step(b->taken[r], reduction->release);
    b->done[r] = b->lands ? sooner_step(b->done[r], reduction->landed) : b->taken[r];
    reduction->release = reduction->landed = reduction->after;
  }
}

static void add_live(int64_t *live, int32_t first, int32_t last, int64_t bytes) {
  for (int32_t s = first; s <= last; s++) live[s] += bytes;
}

/* Through steps after *end, no later than `last`, while there is room. */
static void hold_longer(Builder *b, int32_t *end, int32_t last, int64_t bytes) {
  while (*end < last && b->schedule->live[*end + 1] + bytes <= (int64_t)b->decisions->room) b->schedule->live[++*end] += bytes;
}

/* Both while the gradient is read, if there is room, then what it is reduced to. */
static void hold_gradient(Builder *b, uint32_t r) {
  Reduction *reduction = &b->schedule->reductions[r];
  const int64_t reduced = reduced_bytes(b, reduction);
  hold_longer(b, &reduction->release, b->taken[r], gradient_bytes(b, reduction) + reduced);
  reduction->landed = reduction->release;
  hold_longer(b, &reduction->landed, b->done[r], reduced);
}

/* Its end and, in live[], what is then free earlier. */
static void end_by(Builder *b, int32_t *end, int32_t least, int64_t bytes) {
  if (*end <= least) return;
  add_live(b->schedule->live, least + 1, *end, -bytes);
  *end = least;
}

/* Holds each gradient, and what it is reduced to, longer where there is room: elsewhere compute waits for its reduction. */
static void hold_gradients(Builder *b) {
  Reduction *reductions = b->schedule->reductions;
  for (uint32_t r = 0; r < b->schedule->reduction_count; r++) hold_gradient(b, r);
  for (uint32_t r = b->schedule->reduction_count; r-- > 1;) { /* what is waited for later is no use before */
    Reduction *before = &reductions[r - 1];
    end_by(b, &before->landed, later_step(before->after, reductions[r].landed), reduced_bytes(b, before));
    end_by(b, &before->release, sooner_step(before->landed, later_step(before->after, reductions[r].release)), gradient_bytes(b, before));
  }
}

/* Where parameters are gathered once a step, and fetched for it, each shard needs memory from then until it is gathered: the first
 * micro-batch fetches them as it goes. */
static bool staggers(const Decisions *d) {
  return !gathers_mostly(d) && (d->offload & OFFLOAD_PARAMETERS) && !d->slots;
}

static bool issues_early(const Decisions *d) { return decisions_gather(d) && !d->gather_once && !d->slots; }

/* Gathers as late as they may be, and what lives then. */
static void issue_last(Builder *b) {
  const Decisions *d = b->decisions;
  Use *uses = b->schedule->uses;
  list_uses(b);
  for (uint32_t i = 0; i < b->schedule->use_count && d->gather_once; i++) {
    if (staggers(d)) uses[i].held = uses[i].first; /* main passes do not know when it is gathered */
    else uses[i].issue = i < d->prefetch ? 0 : uses[i - d->prefetch].first;
  }
  for (uint32_t i = 0; i < b->schedule->use_count && d->slots; i++) uses[i].issue = d->slots[i];
  find_live(b);
}

static uint64_t issue_and_simulate(Builder *b) {
  const bool early = issues_early(b->decisions) || staggers(b->decisions), first = early && b->issue.first;
  issue_last(b);
  if (first && b->timed) hold_gradients(b);
  if (first) issue_early(b);
  if (b->timed) {
    brings_early(b);
    trips_hold(b);
  }
  if (!first && b->timed) hold_gradients(b);
  if (early && !first) issue_early(b);
  return simulate_main(b);
}

static void open_builder(Builder *b, Schedule *schedule, Arena *arena, const Skeleton *skeleton, const Decisions *decisions) {
  const Program *program = skeleton->program;
  uint32_t units = skeleton->units->units.count, ops = program->ops.count;
  uint32_t steps = ops + (uint32_t)program->turn; /* at most */
  *schedule = (Schedule){.arena = arena,
                         .steps = ARENA_ARRAY(arena, Step, steps),
                         .uses = ARENA_ARRAY(arena, Use, 2 * (size_t)units),
                         .reductions = ARENA_ARRAY(arena, Reduction, units),
                         .live = ARENA_ARRAY(arena, int64_t, (size_t)steps + 1)};
  *b = (Builder){.schedule = schedule,
                 .skeleton = skeleton,
                 .program = program,
                 .flow = &program->flow,
                 .decisions = decisions,
                 .ends = {.gathered = ARENA_ARRAY(arena, uint64_t, 2 * (size_t)units),
                          .taken = ARENA_ARRAY(arena, uint64_t, units),
                          .reduced = ARENA_ARRAY(arena, uint64_t, units),
                          .brought = ARENA_ARRAY(arena, uint64_t, units)},
                 .steady = ARENA_ARRAY(arena, int64_t, (size_t)steps + 1),
                 .available = ARENA_ARRAY(arena, bool, program->values.count),
                 .copies = ARENA_ARRAY(arena, Copy, program->values.count),
                 .step_of = ARENA_ARRAY(arena, int32_t, ops),
                 .again = ARENA_ARRAY(arena, int32_t, program->turn),
                 .last = ARENA_ARRAY(arena, int32_t, units),
                 .arrived = ARENA_ARRAY(arena, int32_t, 2 * (size_t)units),
                 .taken = ARENA_ARRAY(arena, int32_t, units),
                 .done = ARENA_ARRAY(arena, int32_t, units),
                 .start = ARENA_ARRAY(arena, uint64_t, steps)};
  schedule->brought = skeleton->brought;
  if (schedule_adds_from_host(decisions) && skeleton->copies_beside) b->due = ARENA_ARRAY(arena, int32_t, units);
}

/* main_ns: of the main pass. */
static void total_times(Builder *b, uint64_t main_ns) {
  Schedule *schedule = b->schedule;
  MicroPass passes[MICRO_PASSES];
  uint32_t count = schedule_passes(b->decisions, passes);
  schedule->step_ns = b->skeleton->ends_ns + b->skeleton->step.rest_ns;
  for (uint32_t p = 0; p < count; p++) {
    bool main = passes[p].gathers == gathers_mostly(b->decisions) && passes[p].reduces;
    schedule->step_ns += passes[p].count * (main ? main_ns : schedule_time(b, passes[p].gathers, passes[p].reduces));
  }
}

/* What no issue rule changes. */
static void list_work(Builder *b) {
  list_steps(b);
  find_copies(b);
  list_reductions(b);
  trips_list(b);
  add_steady(b);
  find_passes(b);
}

static int64_t most_live(const Builder *b) {
  int64_t most = (int64_t)b->skeleton->update_bytes;
  for (int32_t s = 0; s < b->schedule->step_count; s++)
    if (b->schedule->live[s] > most) most = b->schedule->live[s];
  return most;
}

/* Of compute alone. */
static uint64_t least_time(const Builder *b) {
  const uint64_t *copying = b->schedule->copying_ns;
  uint64_t ns = 0;
  for (int32_t s = 0; s < b->schedule->step_count; s++) ns += b->skeleton->op_ns[b->schedule->steps[s].op] + (copying ? copying[s] : 0);
  return b->skeleton->ends_ns + b->skeleton->step.rest_ns + b->decisions->accumulation * ns;
}

static void time_work(Builder *b) {
  Schedule *schedule = b->schedule;
  b->timed = false;
  memset(b->arrived, 0, 2 * (size_t)b->skeleton->units->units.count * sizeof *b->arrived);
  hold_behind(b);
  trips_hold_first(b);
  brings_first(b);
  uint64_t ns = issue_and_simulate(b);
  trips_time(b);
  brings_late(b);
  b->timed = true;
  bound_holds(b);
  if (schedule->reduction_count || schedule->trip_count) ns = issue_and_simulate(b);
  if (issues_early(b->decisions) && b->issue.late) {
    issue_late(schedule, b->skeleton->figures, b->start, safe_share(&b->decisions->overlap));
    ns = simulate_main(b);
  }
  total_times(b, ns);
  schedule->max_live = most_live(b);
}

void schedule_build(Schedule *schedule, Arena *arena, const Skeleton *skeleton, const Decisions *decisions) {
  Builder b;
  open_builder(&b, schedule, arena, skeleton, decisions);
  list_work(&b);
  b.issue = decisions->issue;
  time_work(&b);
}

Builder *schedule_open(Schedule *schedule, Arena *arena, const Skeleton *skeleton, const Decisions *decisions, uint64_t room, uint64_t host_room) {
  Builder *b = ARENA_NEW(arena, Builder);
  open_builder(b, schedule, arena, skeleton, decisions);
  list_work(b);
  if (schedule->host_bytes > host_room) return NULL;
  issue_last(b); /* nothing is held for longer than it must be yet */
  schedule->max_live = most_live(b);
  schedule->step_ns = least_time(b);
  b->room = room;
  return schedule->max_live > (int64_t)room ? NULL : b;
}

bool schedule_under(Builder *b, IssueRule rule) {
  b->issue = rule;
  time_work(b);
  return b->schedule->max_live <= (int64_t)b->room;
}
