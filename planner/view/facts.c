/* Owns: the figures of facts.h. */
#include "planner/view/facts.h"

#include "planner/view/exposed.h"
#include "planner/view/owner.h"

#include <stdlib.h>

int instr_unit_index(const InstrSpec *spec) {
  for (int i = 0; i < spec->int_count; i++)
    if (!strcmp(spec->ints[i], "unit")) return i;
  return -1;
}

const char *share_name(Share share) {
  static const char *const names[] = {
#define X(id, name) name,
      SHARES(X)
#undef X
  };
  return names[share];
}

const char *pass_name(Pass pass) {
  static const char *const names[] = {"begin", "forward", "backward", "update"};
  return names[pass];
}

static Pass pass_of(Phase phase) {
  static const Pass passes[PHASE_COUNT] = {[PHASE_BEGIN] = PASS_BEGIN,
                                           [PHASE_FORWARD] = PASS_FORWARD,
                                           [PHASE_BACKWARD] = PASS_BACKWARD,
                                           [PHASE_RECOMPUTE] = PASS_BACKWARD,
                                           [PHASE_UPDATE] = PASS_UPDATE};
  return passes[phase];
}

static uint64_t span_ns(const Facts *f, int32_t i) {
  return f->sim->spans[i].end - f->sim->spans[i].start;
}

/* --- tables by instruction ----------------------------------------------------------------------------- */

static void find_segments(Facts *f) {
  const Plan *plan = f->plan;
  uint64_t begin = 0;
  f->segment_of = ARENA_ARRAY(f->arena, int32_t, plan->instrs.count);
  for (uint32_t s = 0; s < plan->segments.count && s < 8; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    f->segment_begin[s] = begin;
    begin += f->sim->segment_ns[s] * segment->count;
    for (int32_t i = segment->first; i < segment->end; i++) f->segment_of[i] = (int32_t)s;
  }
}

static void find_recorders(Facts *f) {
  f->recorder = ARENA_ARRAY(f->arena, int32_t, f->plan->event_count);
  for (uint32_t e = 0; e < f->plan->event_count; e++) f->recorder[e] = PLAN_NONE;
  for (uint32_t i = 0; i < f->plan->instrs.count; i++) {
    int32_t event = f->plan->instrs.data[i].record;
    if (event != PLAN_NONE) f->recorder[event] = (int32_t)i;
  }
}

static void find_live(Facts *f) {
  const Plan *plan = f->plan;
  int64_t *change = ARENA_ARRAY(f->arena, int64_t, (size_t)plan->instrs.count + 1), live = 0;
  f->live_bytes = ARENA_ARRAY(f->arena, uint64_t, plan->instrs.count);
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    const PlanBuf *buf = &plan->bufs.data[b];
    if (buf->host) continue;
    change[buf->first] += (int64_t)buf->bytes;
    change[buf->last + 1] -= (int64_t)buf->bytes;
  }
  for (uint32_t i = 0; i < plan->instrs.count; i++) f->live_bytes[i] = (uint64_t)(live += change[i]);
}

/* --- units in passes ----------------------------------------------------------------------------------- */

/* The row of (segment, pass, unit), made when `make` is set. index: rows + 1, 0 where there is none. */
static PassFact *pass_row(Facts *f, uint32_t *index, int32_t i) {
  uint32_t units = f->plan->units.count + 1;
  Pass pass = pass_of(f->plan->instrs.data[i].phase);
  int32_t segment = f->segment_of[i], unit = f->unit_of[i];
  uint32_t *slot = &index[((uint32_t)segment * PASS_COUNT + (uint32_t)pass) * units + (uint32_t)(unit + 1)];
  if (!*slot) {
    PassFact row = {.segment = segment, .pass = pass, .unit = unit, .first_use = INT32_MAX};
    vec_push(f->arena, &f->passes, row);
    *slot = f->passes.count;
  }
  return &f->passes.data[*slot - 1];
}

/* Bytes of the full tensor that a collective moves. */
static uint64_t collective_bytes(const Facts *f, const PlanInstr *instr) {
  int k = instr->op == INSTR_ALLGATHER ? 1 : 0;
  int32_t buf = plan_operand(f->plan, instr, k)->buf;
  return buf == PLAN_NONE ? 0 : f->plan->bufs.data[buf].bytes;
}

static void add_to_row(Facts *f, PassFact *row, int32_t i) {
  const PlanInstr *instr = &f->plan->instrs.data[i];
  uint64_t ns = span_ns(f, i);
  row->exposed_ns += f->exposed_ns[i];
  if (instr->stream == STREAM_COMPUTE) {
    *(instr->phase == PHASE_RECOMPUTE ? &row->recompute_ns : &row->compute_ns) += ns;
    if (row->first_use == INT32_MAX) row->first_use = i;
    if (f->live_bytes[i] > row->live_bytes) row->live_bytes = f->live_bytes[i];
  } else if (instr->stream == STREAM_GATHER) {
    row->gather_ns += ns;
    row->gather_bytes = collective_bytes(f, instr);
  } else if (instr->stream == STREAM_REDUCE || instr->stream == STREAM_REPLICATE) {
    row->reduce_ns += ns;
    if (instr->op == INSTR_REDUCE_SCATTER || instr->op == INSTR_ALLREDUCE)
      row->reduce_bytes = collective_bytes(f, instr);
  }
}

static int by_execution(const void *a, const void *b) {
  const PassFact *x = a, *y = b;
  if (x->segment != y->segment) return x->segment < y->segment ? -1 : 1;
  if (x->pass != y->pass) return x->pass < y->pass ? -1 : 1;
  if (x->first_use != y->first_use) return x->first_use < y->first_use ? -1 : 1;
  return (x->unit > y->unit) - (x->unit < y->unit);
}

static void find_passes(Facts *f) {
  size_t rows = (size_t)f->plan->segments.count * PASS_COUNT * (f->plan->units.count + 1);
  uint32_t *index = ARENA_ARRAY(f->arena, uint32_t, rows);
  for (uint32_t i = 0; i < f->plan->instrs.count; i++)
    add_to_row(f, pass_row(f, index, (int32_t)i), (int32_t)i);
  if (f->passes.count) qsort(f->passes.data, f->passes.count, sizeof *f->passes.data, by_execution);
}

/* --- units in the step --------------------------------------------------------------------------------- */

static void add_collective(const Facts *f, UnitFact *unit, int32_t i, uint64_t count) {
  const PlanInstr *instr = &f->plan->instrs.data[i];
  uint64_t ns = span_ns(f, i);
  unit->exposed_ns += f->exposed_ns[i] * count;
  if (instr->op == INSTR_ALLGATHER) {
    unit->gathers += count;
    unit->gather_bytes = collective_bytes(f, instr);
    unit->gather_ns += ns * count;
    if (instr->phase == PHASE_BACKWARD) {
      unit->gathers_again += count;
      unit->again_ns += ns * count;
    }
    unit->dtype = f->plan->bufs.data[plan_operand(f->plan, instr, 1)->buf].dtype;
  } else if (instr->op == INSTR_REDUCE_SCATTER) {
    unit->reduces += count;
    unit->reduce_bytes = collective_bytes(f, instr);
    unit->reduce_ns += ns * count;
  } else if (instr->op == INSTR_ALLREDUCE) {
    unit->replicates += count;
    unit->replicate_ns += ns * count;
  }
}

static void find_units(Facts *f) {
  const Plan *plan = f->plan;
  f->units = ARENA_ARRAY(f->arena, UnitFact, plan->units.count);
  for (uint32_t u = 0; u < plan->units.count; u++)
    f->units[u] = (UnitFact){.first_use = INT32_MAX, .dtype = plan->recipe.compute};
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    uint64_t count = plan->segments.data[f->segment_of[i]].count, ns = span_ns(f, (int32_t)i) * count;
    if (f->unit_of[i] == PLAN_NONE) continue;
    UnitFact *unit = &f->units[f->unit_of[i]];
    if (instr->stream != STREAM_COMPUTE) {
      add_collective(f, unit, (int32_t)i, count);
      continue;
    }
    *(instr->phase == PHASE_RECOMPUTE ? &unit->recompute_ns
      : instr->phase == PHASE_UPDATE  ? &unit->update_ns
                                      : &unit->compute_ns) += ns;
    if (unit->first_use == INT32_MAX && instr->phase != PHASE_BEGIN) unit->first_use = (int32_t)i;
  }
}

/* Of a computation's predicted time. */
static uint64_t launch_part(const Plan *plan, const PlanInstr *instr) {
  if (instr->stream != STREAM_COMPUTE) return 0;
  return instr->ns < plan->summary.launch_ns ? instr->ns : plan->summary.launch_ns;
}

static void find_shares(Facts *f) {
  static const Share of_phase[PHASE_COUNT] = {[PHASE_BEGIN] = SHARE_BEGIN,
                                              [PHASE_FORWARD] = SHARE_FORWARD,
                                              [PHASE_BACKWARD] = SHARE_BACKWARD,
                                              [PHASE_RECOMPUTE] = SHARE_RECOMPUTE,
                                              [PHASE_UPDATE] = SHARE_UPDATE};
  uint64_t known = 0;
  for (uint32_t i = 0; i < f->plan->instrs.count; i++) {
    const PlanInstr *instr = &f->plan->instrs.data[i];
    uint64_t count = f->plan->segments.data[f->segment_of[i]].count;
    if (instr->stream == STREAM_COMPUTE) {
      f->share_ns[of_phase[instr->phase]] += span_ns(f, (int32_t)i) * count;
      if (instr->flops || instr->bytes) f->launches += (uint32_t)count;
      f->launch_ns += launch_part(f->plan, instr) * count;
    }
    Share share = instr->stream == STREAM_GATHER      ? SHARE_GATHER
                  : instr->stream == STREAM_REPLICATE ? SHARE_REPLICATE
                                                      : SHARE_REDUCE;
    f->share_ns[share] += f->exposed_ns[i] * count;
  }
  for (int s = 0; s < SHARE_OTHER; s++) known += f->share_ns[s];
  f->share_ns[SHARE_OTHER] = f->sim->step_ns > known ? f->sim->step_ns - known : 0;
}

Facts *facts_of(Arena *arena, const Plan *plan, const SimResult *sim) {
  Facts *f = ARENA_NEW(arena, Facts);
  *f = (Facts){.arena = arena, .plan = plan, .sim = sim, .specs = instr_specs(arena)};
  find_segments(f);
  find_recorders(f);
  find_live(f);
  f->unit_of = owners_of(arena, plan, f->specs);
  f->exposed_ns = exposed_by_instr(f);
  find_passes(f);
  find_units(f);
  find_shares(f);
  return f;
}

/* --- likeness, order ----------------------------------------------------------------------------------- */

bool units_alike(const Plan *plan, int32_t a, int32_t b) {
  if (a == PLAN_NONE || b == PLAN_NONE) return a == b;
  const PlanUnit *x = &plan->units.data[a], *y = &plan->units.data[b];
  return x->numel == y->numel && x->param_count == y->param_count && x->shard == y->shard &&
         x->reshard == y->reshard && plan_unit_frozen(plan, x) == plan_unit_frozen(plan, y);
}

int unit_hue(const Plan *plan, int32_t unit) {
  int32_t kind = 0, first = 0;
  while (first < unit && !units_alike(plan, first, unit)) first++;
  for (int32_t u = 1; u <= first; u++) kind += !units_alike(plan, u - 1, u);
  return (int)(kind % UNIT_HUES);
}

typedef struct Use {
  int32_t unit, first_use;
} Use;

static int by_first_use(const void *a, const void *b) {
  const Use *x = a, *y = b;
  if (x->first_use != y->first_use) return x->first_use < y->first_use ? -1 : 1;
  return (x->unit > y->unit) - (x->unit < y->unit);
}

int32_t *units_by_use(const Facts *f) {
  uint32_t count = f->plan->units.count;
  Use *uses = ARENA_ARRAY(f->arena, Use, count);
  int32_t *order = ARENA_ARRAY(f->arena, int32_t, count);
  for (uint32_t u = 0; u < count; u++) uses[u] = (Use){(int32_t)u, f->units[u].first_use};
  qsort(uses, count, sizeof *uses, by_first_use);
  for (uint32_t u = 0; u < count; u++) order[u] = uses[u].unit;
  return order;
}

enum { PERIOD_MOST = 24 }; /* units of one operator each: a block has some ten */

Repeat find_repeat(uint32_t first, uint32_t end, bool (*alike)(const void *context, uint32_t a, uint32_t b), const void *context) {
  Repeat best = {1, 1};
  for (uint32_t period = 1; period <= PERIOD_MOST; period++) {
    uint32_t at = first + period;
    while (at < end && alike(context, at - period, at)) at++;
    uint32_t count = (at - first) / period;
    if (count > 1 && 10 * count * period > 11 * best.count * best.period) best = (Repeat){period, count};
  }
  return best;
}

static bool ordered_alike(const void *context, uint32_t a, uint32_t b) {
  const UnitOrder *order = context;
  return units_alike(order->plan, order->units[a], order->units[b]);
}

Repeat find_unit_repeat(const UnitOrder *order, uint32_t first) {
  return find_repeat(first, order->plan->units.count, ordered_alike, order);
}

const char *range_name(Arena *arena, const char *first, const char *last) {
  size_t common = 0;
  if (!strcmp(first, last)) return first;
  for (size_t i = 0; first[i] && first[i] == last[i]; i++)
    if (first[i] == '.') common = i + 1;
  bool inside = strchr(first + common, '.') != NULL; /* the number stands within: "h.*.attn" */
  const char *pattern = name_pattern(arena, first);
  if (inside && !strcmp(pattern, name_pattern(arena, last))) return pattern;
  const char *remark = strstr(first + common, " ("), *other = strstr(last + common, " (");
  if (remark && other && !strcmp(remark, other)) return arena_printf(arena, "%.*s .. %s", (int)(remark - first), first, last + common);
  return arena_printf(arena, "%s .. %s", first, last + common);
}

/* --- what if ------------------------------------------------------------------------------------------- */

static bool goes(const PlanInstr *instr, Without what) {
  switch (what) {
  case WITHOUT_GATHER: return instr->stream == STREAM_GATHER;
  case WITHOUT_REDUCE: return instr->stream == STREAM_REDUCE || instr->stream == STREAM_REPLICATE;
  case WITHOUT_RECOMPUTE: return instr->stream == STREAM_COMPUTE && instr->phase == PHASE_RECOMPUTE;
  case WITHOUT_UPDATE: return instr->stream == STREAM_COMPUTE && instr->phase == PHASE_UPDATE;
  case WITHOUT_COMPUTE: return instr->stream == STREAM_COMPUTE;
  case WITHOUT_LAUNCH: break;
  }
  return false;
}

const char *gathered_until(const Plan *plan) {
  const char *cadence = plan_cadence(plan, STREAM_GATHER);
  return cadence && !strcmp(cadence, "step") ? "over all micro-batches" : "until backward";
}

uint64_t tensor_numel(const PlanParam *param) {
  uint64_t numel = 1;
  for (int32_t d = 0; d < param->rank; d++) numel *= (uint64_t)param->dim[d];
  return numel;
}

uint64_t step_without(const Plan *plan, Without what) {
  Arena *scratch = arena_new();
  Plan without = *plan; /* shares everything but the instructions */
  SimResult sim;
  without.instrs.data = ARENA_ARRAY(scratch, PlanInstr, plan->instrs.count);
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    PlanInstr *instr = &without.instrs.data[i];
    *instr = plan->instrs.data[i];
    uint64_t launch = what == WITHOUT_LAUNCH ? launch_part(plan, instr) : 0;
    instr->ns = goes(instr, what) ? 0 : instr->ns - launch;
  }
  plan_simulate(scratch, &without, &sim);
  arena_free(scratch);
  return sim.step_ns;
}

const char *speed_up(Arena *arena, uint64_t step_ns, uint64_t ns) {
  if (step_ns == ns) return "1.00"; /* also where a step takes no time at all */
  return step_ns > 100 * ns ? "over 100" : arena_printf(arena, "%.2f", (double)step_ns / (double)ns);
}

/* --- what is live -------------------------------------------------------------------------------------- */

const char *name_pattern(Arena *arena, const char *name) {
  Text out = {.arena = arena};
  text_add(&out, "", 0);
  for (const char *part = name; *part;) {
    size_t length = strcspn(part, "."), digits = strspn(part, "0123456789");
    bool unit = part == name && *part == 'u' && strspn(part + 1, "0123456789") == length - 1 && length > 1;
    if (digits == length && length) text_add(&out, "*", 1);
    else if (unit) text_add(&out, "u*", 2);
    else text_add(&out, part, length);
    part += length;
    if (*part == '.') text_add(&out, part++, 1);
  }
  return out.data ? out.data : "";
}

static int by_bytes(const void *a, const void *b) {
  const LiveGroup *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
  const LiveGroup *x = a, *y = b;
  int names = strcmp(x->name, y->name);
  return names ? names : (int)x->class - (int)y->class;
}

LiveGroups live_groups(Arena *arena, const Plan *plan, int32_t at) {
  LiveGroups all = {0}, groups = {0};
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    const PlanBuf *buf = &plan->bufs.data[b];
    if (buf->host || buf->first > at || buf->last < at) continue;
    LiveGroup one = {name_pattern(arena, plan_str(plan, buf->name)), buf->class, 1, buf->bytes, buf->bytes, buf->bytes};
    vec_push(arena, &all, one);
  }
  if (all.count) qsort(all.data, all.count, sizeof *all.data, by_name);
  for (uint32_t i = 0; i < all.count; i++) {
    LiveGroup *last = groups.count ? &groups.data[groups.count - 1] : NULL;
    if (last && last->class == all.data[i].class && !strcmp(last->name, all.data[i].name)) {
      last->count++;
      last->bytes += all.data[i].bytes;
      if (all.data[i].least < last->least) last->least = all.data[i].least;
      if (all.data[i].most > last->most) last->most = all.data[i].most;
    } else {
      vec_push(arena, &groups, all.data[i]);
    }
  }
  if (groups.count) qsort(groups.data, groups.count, sizeof *groups.data, by_bytes);
  return groups;
}
