/* Owns: rule structure. Nothing of the plan is trusted here, not even that an index is inside its array;
 * after it, all are. */
#include "planner/plan/check.h"
#include "base/checked.h"

#include <math.h>
#include <stdlib.h>

enum { SEGMENTS_MAX = 8 };
static const uint64_t bytes_max = UINT64_C(1) << PLAN_MAX_BYTES_LOG2, total_ns_max = UINT64_C(1) << 62;

#define BROKEN(...)        violate(check, VERIFY_STRUCTURE, PLAN_NONE, PLAN_NONE, __VA_ARGS__)
#define BROKEN_AT(i, ...)  violate(check, VERIFY_STRUCTURE, (int32_t)(i), PLAN_NONE, __VA_ARGS__)
#define BROKEN_BUF(b, ...) violate(check, VERIFY_STRUCTURE, PLAN_NONE, (int32_t)(b), __VA_ARGS__)

static bool is_buf(const Plan *plan, int32_t id) {
  return id >= 0 && (uint32_t)id < plan->bufs.count;
}
static bool is_unit(const Plan *plan, int32_t id) {
  return id >= 0 && (uint32_t)id < plan->units.count;
}

static void check_string(Check *check, StrId id) {
  if (id >= check->plan->strings.count) BROKEN("a name lies outside the string table");
}

static void check_world(Check *check) {
  const PlanWorld *world = &check->plan->world;
  if (!world->ranks || !world->shard || !world->replicas || !world->ranks_per_node)
    BROKEN("ranks, shard, replicas and ranks_per_node are at least 1");
  else if ((uint64_t)world->shard * world->replicas != world->ranks)
    BROKEN("%u ranks are not shard %u x replicas %u", world->ranks, world->shard, world->replicas);
  if (!world->micro_batch || !world->accumulation) BROKEN("micro_batch and accumulation are at least 1");
  for (int s = 0; s < STREAM_COUNT; s++)
    if (check->plan->queue[s] >= STREAM_COUNT)
      BROKEN("stream %s is on queue %u, but there are %d", stream_name((StreamId)s), check->plan->queue[s],
             STREAM_COUNT);
}

/* As the language takes them: other numbers train, but nothing anybody wants. */
static void check_rates(Check *check) {
  const Recipe *r = &check->plan->recipe;
  const struct {
    const char *name;
    double value;
    bool low; /* enough */
    const char *limit;
  } rates[] = {{"lr", r->lr, true, ""},
               {"min_lr", r->min_lr, r->min_lr <= r->lr, " and at most lr"},
               {"beta1", r->beta1, r->beta1 < 1, " and below 1"},
               {"beta2", r->beta2, r->beta2 < 1, " and below 1"},
               {"momentum", r->momentum, r->momentum <= 1, " and at most 1"},
               {"decay", r->decay, true, ""},
               {"clip", r->clip, true, ""},
               {"eps2", r->eps2, true, ""},
               {"threshold", r->threshold, true, ""}};
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
    if (!isfinite(rates[i].value) || rates[i].value < 0 || !rates[i].low)
      BROKEN("the recipe's %s is %g, but it is at least 0%s", rates[i].name, rates[i].value, rates[i].limit);
  if (!isfinite(r->eps) || r->eps < recipe_least_eps(r->optimizer))
    BROKEN("the recipe's eps is %g, but it is at least %g", r->eps, recipe_least_eps(r->optimizer));
  if (!isfinite(r->beta2_decay) || r->beta2_decay > 0) BROKEN("the recipe's beta2_decay is %g, but it is at most 0", r->beta2_decay);
  if (check->plan->training && !r->steps) BROKEN("the recipe's steps are at least 1");
}

static void check_recipe(Check *check) {
  const Recipe *recipe = &check->plan->recipe;
  bool bf16 = recipe->master == DTYPE_BF16 && recipe->compute == DTYPE_BF16;
  if (recipe->compute >= DTYPE_COUNT || recipe->reduce >= DTYPE_COUNT) BROKEN("the recipe names no dtype");
  if (recipe->master != DTYPE_F32 && !bf16) BROKEN("parameters are kept in f32, or in bf16 where compute is bf16");
  if (recipe->rounding >= ROUNDING_COUNT || (recipe->rounding != ROUNDING_NEAREST && !bf16))
    BROKEN("the recipe rounds updated parameters in a way that is not known, or to f32");
  check_rates(check);
}

static void check_header(Check *check) {
  const Plan *plan = check->plan;
  if (!plan->strings.count || plan->strings.data[0] || plan->strings.data[plan->strings.count - 1])
    BROKEN("the string table does not begin and end with a NUL");
  const StrId ids[] = {
      plan->model,        plan->source_path,        plan->cluster,         plan->summary.strategy,
      plan->summary.wrap, plan->summary.checkpoint, plan->summary.bound_by};
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) check_string(check, ids[i]);
  check_recipe(check);
  if (plan->event_count > plan->instrs.count)
    BROKEN("%u events, but only %u instructions to record them", plan->event_count, plan->instrs.count);
  for (uint32_t i = 0; i < plan->inputs.count; i++) {
    const PlanInput *input = &plan->inputs.data[i];
    check_string(check, input->name);
    if (input->sample_numel <= 0 || input->vocab <= 0)
      BROKEN("input n%u: sample and vocab are at least 1", i);
  }
}

/* --- buffers ----------------------------------------------------------------------------------------- */

static void check_buf_range(Check *check, uint32_t b) {
  const PlanBuf *buf = &check->plan->bufs.data[b];
  int32_t last = (int32_t)check->plan->instrs.count - 1;
  if (buf->persistent ? buf->first != 0 || buf->last != last
                      : buf->first < 0 || buf->first > buf->last || buf->last > last)
    BROKEN_BUF(b, "b%u lives i%d..i%d, but instructions are i0..i%d%s", b, buf->first, buf->last, last,
               buf->persistent ? ", and it is persistent" : "");
}

static void check_buf_table(Check *check) {
  for (uint32_t b = 0; b < check->plan->bufs.count; b++) {
    const PlanBuf *buf = &check->plan->bufs.data[b];
    uint64_t bytes;
    check_string(check, buf->name);
    check_buf_range(check, b);
    if (buf->class >= BUF_CLASS_COUNT || buf->dtype >= DTYPE_COUNT)
      BROKEN_BUF(b, "b%u has no known class and dtype", b);
    else if (!buf->numel || !checked_mul(buf->numel, dtype_bytes(buf->dtype), &bytes) || bytes != buf->bytes)
      BROKEN_BUF(b, "b%u has %llu elements of %s, but %llu bytes", b, (unsigned long long)buf->numel,
                 dtype_name(buf->dtype), (unsigned long long)buf->bytes);
    if (buf->bytes > bytes_max || buf->offset > bytes_max)
      BROKEN_BUF(b, "b%u: size or offset above 2^%d bytes", b, PLAN_MAX_BYTES_LOG2);
    if (buf->unit != PLAN_NONE && !is_unit(check->plan, buf->unit))
      BROKEN_BUF(b, "b%u belongs to unit u%d, which is not there", b, buf->unit);
  }
}

/* A scalar that the runtime reads after the step. */
static void check_result(Check *check, int32_t id, const char *what) {
  const Plan *plan = check->plan;
  if (!is_buf(plan, id)) {
    if (plan->training || id != PLAN_NONE) BROKEN("the %s has no buffer", what);
  } else if (plan->bufs.data[id].dtype != DTYPE_F64 || !plan->bufs.data[id].persistent) {
    BROKEN_BUF(id, "the %s is in b%d, which is not a persistent f64", what, id);
  }
}

static bool writes(const Check *check, const PlanInstr *instr, int32_t buf) {
  for (int k = 0; k < check->specs[instr->op].operand_count; k++)
    if (plan_operand(check->plan, instr, k)->buf == buf &&
        check->specs[instr->op].operands[k].mode != MODE_READ)
      return true;
  return false;
}

static void check_results(Check *check) {
  const Plan *plan = check->plan;
  check_result(check, plan->loss_buf, "loss");
  check_result(check, plan->count_buf, "count");
  check_result(check, plan->norm_buf, "norm");
  if (plan->training) {
    if (plan->output_buf != PLAN_NONE) BROKEN("a training plan has an output buffer");
  } else if (!is_buf(plan, plan->output_buf) ||
             !writes(check, &plan->instrs.data[plan->instrs.count - 1], plan->output_buf)) {
    BROKEN("the last instruction of a forward plan writes the output, but not this one");
  }
}

/* --- units and parameters ---------------------------------------------------------------------------- */

static bool param_numel(const PlanParam *param, uint64_t *numel) {
  *numel = 1;
  if (param->rank < 0 || param->rank > PLAN_MAX_RANK) return false;
  for (int d = 0; d < param->rank; d++)
    if (param->dim[d] <= 0 || !checked_mul(*numel, (uint64_t)param->dim[d], numel)) return false;
  return *numel <= bytes_max;
}

typedef struct Extent {
  uint64_t begin, end;
  uint32_t param;
} Extent;

static int by_begin(const void *a, const void *b) {
  const Extent *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static void check_extents(Check *check, uint32_t u, Extent *extents, size_t count, uint64_t full) {
  qsort(extents, count, sizeof *extents, by_begin);
  for (size_t i = 0; i < count; i++) {
    if (extents[i].begin % PLAN_ALIGN_ELEMENTS)
      BROKEN("p%u does not begin at a multiple of %d", extents[i].param, PLAN_ALIGN_ELEMENTS);
    if (extents[i].end > full) BROKEN("p%u ends behind the shards of u%u", extents[i].param, u);
    if (i && extents[i - 1].end > extents[i].begin)
      BROKEN("p%u and p%u overlap", extents[i - 1].param, extents[i].param);
  }
}

/* Numbers of f32; zeros and ones take none. */
static bool draws(const Init *init) {
  const bool spread = init->kind == INIT_NORMAL || init->kind == INIT_UNIFORM;
  return init->kind <= INIT_UNIFORM && init->a >= 0 && (spread ? isfinite((float)init->a) : init->a == 0);
}

/* Parameters of the unit, each inside its flat tensor, and none over another. */
static void check_params(Check *check, Arena *scratch, uint32_t u) {
  const Plan *plan = check->plan;
  const PlanUnit *unit = &plan->units.data[u];
  Extent *extents = ARENA_ARRAY(scratch, Extent, (size_t)unit->param_count);
  uint64_t total = 0, full;
  for (int32_t i = 0; i < unit->param_count; i++) {
    uint32_t p = (uint32_t)(unit->first_param + i);
    const PlanParam *param = &plan->params.data[p];
    uint64_t numel;
    check_string(check, param->name);
    if (param->unit != (int32_t)u) BROKEN("p%u is in the range of u%u, but says u%d", p, u, param->unit);
    if (!draws(&param->init)) BROKEN("p%u has no initial value", p);
    if (!param_numel(param, &numel) || param->offset > bytes_max) {
      BROKEN("p%u has no size", p);
      return;
    }
    extents[i] = (Extent){param->offset, param->offset + numel, p};
    total += numel;
  }
  if (total != unit->numel)
    BROKEN("u%u has %llu elements, its parameters %llu", u, (unsigned long long)unit->numel,
           (unsigned long long)total);
  if (unit->shard % PLAN_ALIGN_ELEMENTS)
    BROKEN("the shard of u%u is not a multiple of %d", u, PLAN_ALIGN_ELEMENTS);
  if (unit->shard > bytes_max || !checked_mul(unit->shard, plan->world.shard, &full))
    BROKEN("the shard of u%u is too large", u);
  else
    check_extents(check, u, extents, (size_t)unit->param_count, full);
}

static void check_state(Check *check, uint32_t u, int32_t id, const char *what, BufClass class, uint64_t numel) {
  const Plan *plan = check->plan;
  if (id == PLAN_NONE) return;
  if (!is_buf(plan, id)) {
    BROKEN("the %s buffer of u%u is b%d, which is not there", what, u, id);
    return;
  }
  const PlanBuf *buf = &plan->bufs.data[id];
  if (!buf->persistent || buf->class != class || buf->unit != (int32_t)u ||
      buf->numel != numel)
    BROKEN_BUF(id, "the %s buffer of u%u is b%d, which is not persistent, of that unit, in class %s and %llu elements "
               "long", what, u, id, buf_class_name(class), (unsigned long long)numel);
}

/* Whatever is updated is kept in the master dtype; what is not may be kept as it is gathered. */
static void check_kept(Check *check, uint32_t u) {
  const Plan *plan = check->plan;
  const PlanUnit *unit = &plan->units.data[u];
  if (!is_buf(plan, unit->param_buf)) return;
  DType kept = plan->bufs.data[unit->param_buf].dtype, compute = plan->recipe.compute;
  if (kept != plan->recipe.master && (kept != compute || unit->grad_buf != PLAN_NONE))
    BROKEN_BUF(unit->param_buf, "the param buffer of u%u is not in the recipe's master dtype, %s", u, dtype_name(plan->recipe.master));
  if (unit->cast_buf != PLAN_NONE && kept == compute)
    BROKEN_BUF(unit->cast_buf, "u%u has a cast buffer, though its parameters are kept in the compute dtype", u);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Checkpoints and exported weights find tensors by their names; safetensors headers keep one for themselves. */
static void check_param_names(Check *check, Arena *scratch) {
  const Plan *plan = check->plan;
  const char **names = ARENA_ARRAY(scratch, const char *, plan->params.count);
  for (uint32_t p = 0; p < plan->params.count; p++) {
    names[p] = plan_str(plan, plan->params.data[p].name);
    if (!strcmp(names[p], "__metadata__")) BROKEN("p%u has a name that safetensors files have another use for, \"%s\"", p, names[p]);
  }
  qsort(names, plan->params.count, sizeof *names, by_text);
  for (uint32_t p = 1; p < plan->params.count; p++)
    if (!strcmp(names[p - 1], names[p])) BROKEN("two parameters are called \"%s\"", names[p]);
}

static void check_units(Check *check) {
  const Plan *plan = check->plan;
  Arena *scratch = arena_new();
  uint64_t params = 0, numel = 0;
  for (uint32_t u = 0; u < plan->units.count; u++) {
    const PlanUnit *unit = &plan->units.data[u];
    check_string(check, unit->name);
    if (unit->name < plan->strings.count && !*plan_str(plan, unit->name)) BROKEN("u%u has no name", u);
    if (unit->param_buf == PLAN_NONE) BROKEN("u%u has no param buffer", u);
    check_state(check, u, unit->param_buf, "param", BUF_PARAM, unit->shard);
    check_state(check, u, unit->cast_buf, "cast", BUF_PARAM, unit->shard);
    check_kept(check, u);
    check_state(check, u, unit->grad_buf, "grad", BUF_GRAD, unit->shard);
    check_state(check, u, unit->m_buf, "m", BUF_OPTIM, unit->shard);
    if (unit->grad_buf == PLAN_NONE && (unit->m_buf != PLAN_NONE || unit->v_buf != PLAN_NONE))
      BROKEN("u%u has moments but no gradient", u);
    if (unit->first_param < 0 || unit->param_count < 0 ||
        (int64_t)unit->first_param + unit->param_count > (int64_t)plan->params.count) {
      BROKEN("u%u has parameters that are not there", u);
      continue;
    }
    params += (uint32_t)unit->param_count;
    numel += unit->numel;
    if (params > plan->params.count) break; /* ranges overlap: said below */
    check_params(check, scratch, u);
    bool factored = plan->recipe.optimizer == OPTIMIZER_ADAFACTOR;
    if (!check->result->total)
      check_state(check, u, unit->v_buf, "v", BUF_OPTIM, factored ? plan_factored_numel(plan, unit) : unit->shard);
  }
  if (params != plan->params.count)
    BROKEN("%u parameters, but units hold %llu", plan->params.count, (unsigned long long)params);
  else if (numel != plan->param_numel)
    BROKEN("the model has %llu parameters, its units %llu", (unsigned long long)plan->param_numel,
           (unsigned long long)numel);
  else if (!check->result->total)
    check_param_names(check, scratch);
  arena_free(scratch);
}

/* --- instructions ------------------------------------------------------------------------------------ */

static void check_segments(Check *check) {
  const Plan *plan = check->plan;
  int64_t at = 0;
  uint64_t micro = 0;
  if (!plan->instrs.count || plan->instrs.count > INT32_MAX / 2)
    BROKEN("there are %u instructions", plan->instrs.count);
  if (plan->segments.count > SEGMENTS_MAX)
    BROKEN("%u segments, at most %d are possible", plan->segments.count, SEGMENTS_MAX);
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    check_string(check, segment->name);
    if (segment->first != at || segment->end < segment->first || segment->end > (int64_t)plan->instrs.count)
      BROKEN("segment %u is i%d..i%d, but the one before ends at i%lld", s, segment->first, segment->end,
             (long long)at);
    if (!segment->count || segment->count > bytes_max)
      BROKEN("segment %u runs %llu times", s, (unsigned long long)segment->count);
    at = segment->end;
  }
  if (at != (int64_t)plan->instrs.count)
    BROKEN("segments end at i%lld, the list at i%u", (long long)at, plan->instrs.count);
  if (check->result->total) return;
  for (uint32_t s = plan->segments.count; s-- > 0;) {
    const uint64_t count = plan->segments.data[s].count;
    if (plan_segment_feeds(plan, s)) micro += count;
    else if (micro && count != 1) BROKEN("segment %u runs %llu times, but what comes before the first input runs once", s, (unsigned long long)count);
  }
  if (plan->training && micro && micro != plan->world.accumulation)
    BROKEN("segments with an input run %llu times, but accumulation is %llu", (unsigned long long)micro,
           (unsigned long long)plan->world.accumulation);
}

static bool inside(uint32_t first, uint64_t count, uint32_t total) {
  return first + count <= total;
}

static void check_instr(Check *check, uint32_t i) {
  const Plan *plan = check->plan;
  const PlanInstr *instr = &plan->instrs.data[i];
  if (instr->op >= INSTR_COUNT || instr->stream >= STREAM_COUNT || instr->phase >= PHASE_COUNT) {
    BROKEN_AT(i, "unknown instruction, stream or phase");
    return;
  }
  const InstrSpec *spec = &check->specs[instr->op];
  if (!inside(instr->operands, (uint64_t)spec->operand_count, plan->operands.count) ||
      !inside(instr->ints, (uint64_t)spec->int_count, plan->ints.count) ||
      !inside(instr->reals, (uint64_t)spec->real_count, plan->reals.count) ||
      !inside(instr->waits, instr->wait_count, plan->waits.count)) {
    BROKEN_AT(i, "operands, attributes or waits lie outside their arrays");
    return;
  }
  for (int k = 0; k < spec->operand_count; k++) {
    int32_t buf = plan_operand(plan, instr, k)->buf;
    if (buf != PLAN_NONE && !is_buf(plan, buf))
      BROKEN_AT(i, "operand %s is b%d, which is not there", spec->operands[k].name, buf);
  }
  for (uint32_t w = 0; w < instr->wait_count; w++) {
    int32_t event = plan->waits.data[instr->waits + w];
    if (event < 0 || (uint32_t)event >= plan->event_count)
      BROKEN_AT(i, "waits for e%d, which is not there", event);
  }
  if (instr->record != PLAN_NONE && (instr->record < 0 || (uint32_t)instr->record >= plan->event_count))
    BROKEN_AT(i, "records e%d, which is not there", instr->record);
  if (!is_collective(instr->op) && instr->stream != spec->stream)
    BROKEN_AT(i, "%s is on stream %s, but belongs on %s", spec->name, stream_name(instr->stream),
              stream_name(spec->stream));
  check_string(check, instr->name);
  check_string(check, instr->span.path);
}

/* Sums over a step must not wrap around in the simulator. */
static void check_times(Check *check) {
  const Plan *plan = check->plan;
  uint64_t total = 0;
  bool fits = true;
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    for (int32_t i = segment->first; i < segment->end && fits; i++) {
      uint64_t ns;
      fits = checked_mul(plan->instrs.data[i].ns, segment->count, &ns) && checked_add(total, ns, &total) &&
             total < total_ns_max;
    }
  }
  if (!fits) BROKEN("predicted times add up to more than 2^62 ns");
}

void check_structure(Check *check) {
  const Plan *plan = check->plan;
  uint64_t waits = 0;
  check_header(check);
  check_world(check);
  check_segments(check);
  check_buf_table(check);
  if (check->result->total) return;
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    check_instr(check, i);
    waits += plan->instrs.data[i].wait_count;
  }
  if (waits > plan->waits.count) BROKEN("instructions share their lists of waits");
  check_times(check);
  check_units(check);
  if (!check->result->total) check_results(check);
}
