/* Owns: rules operand and attribute: what one instruction says, against the table of instructions and the
 * tables of the plan. */
#include "planner/plan/check.h"
#include "base/checked.h"

#include <math.h>

/* --- operands ---------------------------------------------------------------------------------------- */

static bool takes(const OperandSpec *spec, DType dtype) {
  if (spec->dtype == OPERAND_ANY) return true;
  if (spec->dtype != OPERAND_FLOAT) return dtype == (DType)spec->dtype;
  return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16 || dtype == DTYPE_F64;
}

/* offset + (rows - 1) * ld + cols, or false when that overflows. */
static bool operand_end(const PlanOperand *operand, uint64_t rows, uint64_t cols, uint64_t *end) {
  uint64_t stride = operand->ld ? operand->ld : cols;
  return checked_mul(rows - 1, stride, end) && checked_add(*end, cols, end) &&
         checked_add(*end, operand->offset, end);
}

/* Of what a micro-batch makes nothing may be left out: of columns some, as of fused projections, but all rows. */
static bool takes_rows(const Check *check, const PlanOperand *operand, const PlanBuf *buf, uint64_t rows, uint64_t cols) {
  if (!check->plan->training || (buf->class != BUF_ACTIVATION && buf->class != BUF_INPUT)) return true;
  const uint64_t stride = operand->ld ? operand->ld : cols;
  return rows == buf->numel / stride && buf->numel % stride == 0;
}

#define WRONG(...) violate(check, VERIFY_OPERAND, i, operand->buf, __VA_ARGS__)

static void check_extent(Check *check, int32_t i, int k, const PlanOperand *operand) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const char *name = check->specs[instr->op].operands[k].name;
  const PlanBuf *buf = check_buf(check, operand->buf);
  uint64_t rows, cols, end;
  if (!plan_operand_dims(check->plan, check->specs, instr, k, &rows, &cols))
    violate(check, VERIFY_ATTRIBUTE, i, operand->buf,
            "operand %s has no size: a dimension is not positive or too large", name);
  else if (operand->ld && operand->ld < cols)
    WRONG("rows of operand %s are %llu elements, but only %u apart", name, (unsigned long long)cols,
          operand->ld);
  else if (!operand_end(operand, rows, cols, &end) || end > buf->numel)
    WRONG("operand %s ends behind b%d \"%s\" of %llu elements", name, operand->buf,
          check_buf_name(check, operand->buf), (unsigned long long)buf->numel);
  else if (!takes_rows(check, operand, buf, rows, cols))
    WRONG("operand %s takes %llu rows of b%d \"%s\", which does not hold as many", name, (unsigned long long)rows, operand->buf,
          check_buf_name(check, operand->buf));
}

static void check_operand(Check *check, int32_t i, int k) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const OperandSpec *spec = &check->specs[instr->op].operands[k];
  const PlanOperand *operand = plan_operand(check->plan, instr, k);
  if (operand->add && spec->mode != MODE_ADD) WRONG("operand %s cannot be added into", spec->name);
  if (operand->buf == PLAN_NONE) {
    if (!spec->optional)
      WRONG("operand %s is missing", spec->name);
    else if (operand->offset || operand->ld || operand->add)
      WRONG("operand %s is absent, yet has a place", spec->name);
    return;
  }
  DType dtype = check_buf(check, operand->buf)->dtype;
  if (!takes(spec, dtype))
    WRONG("operand %s is %s, but b%d holds %s", spec->name,
          spec->dtype >= 0 ? dtype_name((DType)spec->dtype) : "a float", operand->buf, dtype_name(dtype));
  check_extent(check, i, k, operand);
}

/* All-reduce may work in place; every other instruction may assume that what it writes is nowhere else. */
static bool may_alias(const PlanInstr *instr, const PlanOperand *a, const PlanOperand *b) {
  return instr->op == INSTR_ALLREDUCE && a->offset == b->offset && !a->add && !b->add;
}

static void check_alias(Check *check, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const InstrSpec *spec = &check->specs[instr->op];
  for (int k = 1; k < spec->operand_count; k++) {
    const PlanOperand *operand = plan_operand(check->plan, instr, k);
    for (int j = 0; j < k && operand->buf != PLAN_NONE; j++) {
      const PlanOperand *other = plan_operand(check->plan, instr, j);
      if (other->buf != operand->buf || may_alias(instr, other, operand)) continue;
      if (spec->operands[k].mode == MODE_READ && spec->operands[j].mode == MODE_READ) continue;
      Region a = operand_region(check, instr, k), b = operand_region(check, instr, j);
      if (region_overlap(&a, &b))
        WRONG("operands %s and %s overlap", spec->operands[j].name, spec->operands[k].name);
    }
  }
}

/* Collectives move bytes; they do not convert. */
static void check_collective_dtype(Check *check, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  if (check->specs[instr->op].operand_count < 2) return;
  const PlanOperand *operand = plan_operand(check->plan, instr, 1);
  DType from = check_buf(check, plan_operand(check->plan, instr, 0)->buf)->dtype,
        to = check_buf(check, operand->buf)->dtype;
  if (from != to) WRONG("%s from %s to %s", check->specs[instr->op].name, dtype_name(from), dtype_name(to));
}
#undef WRONG

/* --- attributes -------------------------------------------------------------------------------------- */

#define WRONG(...) violate(check, VERIFY_ATTRIBUTE, i, PLAN_NONE, __VA_ARGS__)

typedef struct Range {
  const char *name;
  int64_t least, most;
} Range;

/* Attributes that are not dimensions; all others are at least 1. */
static Range range_of(const char *name) {
  static const Range ranges[] = {{"causal", 0, 1},       {"erf", 0, 1},
                                 {"llama3", 0, 1},       {"original", 0, INT64_MAX},
                                 {"unit", 0, INT64_MAX}, {"input", 0, INT64_MAX},
                                 {"site", 0, INT64_MAX}, {"ignore", INT64_MIN, INT64_MAX}};
  for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++)
    if (!strcmp(ranges[r].name, name)) return ranges[r];
  return (Range){name, 1, INT64_C(1) << PLAN_MAX_BYTES_LOG2};
}

static void check_ranges(Check *check, int32_t i, Range ranges[INSTR_COUNT][INSTR_MAX_INTS]) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const InstrSpec *spec = &check->specs[instr->op];
  for (int k = 0; k < spec->int_count; k++) {
    const Range *range = &ranges[instr->op][k];
    int64_t value = plan_int(check->plan, instr, k);
    if (value < range->least || value > range->most)
      WRONG("%s=%lld is out of range", spec->ints[k], (long long)value);
  }
  for (int k = 0; k < spec->real_count; k++)
    if (!isfinite(plan_real(check->plan, instr, k))) WRONG("%s is not a finite number", spec->reals[k]);
}

static void check_input(Check *check, int32_t i) {
  const Plan *plan = check->plan;
  const PlanInstr *instr = &plan->instrs.data[i];
  int64_t input = check_int(check, instr, "input"), rows = check_int(check, instr, "rows");
  if (input < 0 || input >= (int64_t)plan->inputs.count)
    WRONG("input %lld is not there", (long long)input);
  else if (instr->op == INSTR_INPUT && !plan->training && rows > plan->inputs.data[input].sample_numel)
    WRONG("%lld rows are more than a sample of input \"%s\"", (long long)rows,
          plan_str(plan, plan->inputs.data[input].name));
  else if (instr->op == INSTR_INPUT && plan->training &&
           (uint64_t)rows % (uint64_t)plan->inputs.data[input].sample_numel) /* whole samples */
    WRONG("%lld rows are not whole samples of input \"%s\"", (long long)rows,
          plan_str(plan, plan->inputs.data[input].name));
  else if (instr->op == INSTR_INPUT && plan->training &&
           (uint64_t)(rows / plan->inputs.data[input].sample_numel) != plan->world.micro_batch)
    WRONG("%lld rows are not a micro-batch of input \"%s\"", (long long)rows,
          plan_str(plan, plan->inputs.data[input].name));
}

static const PlanSegment *segment_of(const Plan *plan, int32_t i) {
  const PlanSegment *segment = plan->segments.data;
  while (segment->end <= i) segment++;
  return segment;
}

/* What works at a position touches rows position .. position + rows of the whole context. The runtime keeps what it feeds
 * inside the context, so these must be the rows that the segment is fed. */
static void check_position(Check *check, int32_t i) {
  const Plan *plan = check->plan;
  const PlanInstr *instr = &plan->instrs.data[i];
  const PlanSegment *segment = segment_of(plan, i);
  int64_t rows = check_int(check, instr, "rows"), ctx = check_int(check, instr, "ctx");
  bool fed = false;
  if (plan->training || plan->world.micro_batch != 1)
    WRONG("%s is for forward plans of one sample: others have no position", check->specs[instr->op].name);
  for (uint32_t n = 0; n < plan->inputs.count; n++)
    if (plan->inputs.data[n].sample_numel != ctx)
      WRONG("ctx=%lld, but a sample of input \"%s\" has %lld values", (long long)ctx,
            plan_str(plan, plan->inputs.data[n].name), (long long)plan->inputs.data[n].sample_numel);
  for (int32_t j = segment->first; j < segment->end; j++) {
    const PlanInstr *input = &plan->instrs.data[j];
    if (input->op != INSTR_INPUT) continue;
    fed = true;
    if (check_int(check, input, "rows") != rows)
      WRONG("rows=%lld, but i%d feeds %lld", (long long)rows, j, (long long)check_int(check, input, "rows"));
  }
  if (!fed) WRONG("%s in a segment without input", check->specs[instr->op].name);
}

/* Data are checked against what the plan's inputs may hold: of a table that has no such row nothing may be read. */
static void check_ids(Check *check, int32_t i, int k) {
  const Plan *plan = check->plan;
  const PlanInstr *instr = &plan->instrs.data[i];
  const int64_t vocab = check_int(check, instr, "vocab");
  const PlanSegment *segment = segment_of(plan, i);
  for (int32_t j = segment->first; j < segment->end; j++) {
    const PlanInstr *feed = &plan->instrs.data[j];
    if (feed->op != INSTR_INPUT || plan_operand(plan, feed, 0)->buf != plan_operand(plan, instr, k)->buf) continue;
    const int64_t input = check_int(check, feed, "input");
    if (input >= 0 && input < (int64_t)plan->inputs.count && plan->inputs.data[input].vocab > vocab)
      WRONG("vocab=%lld, but input \"%s\" may hold ids below %lld", (long long)vocab, plan_str(plan, plan->inputs.data[input].name),
            (long long)plan->inputs.data[input].vocab);
  }
}

static void check_heads(Check *check, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  if (check_int(check, instr, "heads") % check_int(check, instr, "kv_heads"))
    WRONG("heads are not a multiple of kv_heads");
}

static void check_rope(Check *check, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  int64_t dims = check_int(check, instr, "dims"), head_dim = check_int(check, instr, "head_dim");
  if (head_dim % 2) WRONG("head_dim is odd");
  if (dims % 2) WRONG("dims is odd");
  if (dims > head_dim) WRONG("dims=%lld are more than head_dim=%lld", (long long)dims, (long long)head_dim);
}

static void check_model_shapes(Check *check, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  switch (instr->op) {
  case INSTR_ATTENTION_FWD:
  case INSTR_ATTENTION_BWD:
    check_heads(check, i);
    break;
  case INSTR_ATTENTION_CACHED:
    check_heads(check, i);
    check_position(check, i);
    break;
  case INSTR_POSITIONS_FWD:
  case INSTR_CACHE_APPEND:
    check_position(check, i);
    break;
  case INSTR_ROPE_FWD:
  case INSTR_ROPE_BWD:
    check_rope(check, i);
    break;
  case INSTR_EMBEDDING_FWD:
  case INSTR_EMBEDDING_BWD:
    check_ids(check, i, 0);
    break;
  case INSTR_CROSS_ENTROPY:
    check_ids(check, i, 1);
    break;
  case INSTR_LINEAR_CROSS_ENTROPY:
  case INSTR_LINEAR_CROSS_ENTROPY_X:
    check_ids(check, i, 3);
    if (check_int(check, instr, "chunk") > check_int(check, instr, "rows"))
      WRONG("chunk is larger than rows");
    break;
  case INSTR_DROPOUT_FWD:
  case INSTR_DROPOUT_BWD:
    if (!(plan_real(check->plan, instr, 0) >= 0 && plan_real(check->plan, instr, 0) < 1))
      WRONG("p is not in [0, 1)");
    break;
  case INSTR_INPUT:
  case INSTR_COUNT_TARGETS:
    check_input(check, i);
    break;
  default:
    break;
  }
}

/* The buffer that the unit's table gives for an operand of an optimizer instruction. */
static int32_t state_buf(const PlanUnit *unit, const char *operand, bool *known) {
  *known = true;
  if (!strcmp(operand, "w")) return unit->param_buf;
  if (!strcmp(operand, "m")) return unit->m_buf;
  if (!strcmp(operand, "v")) return unit->v_buf;
  if (!strcmp(operand, "cast")) return unit->cast_buf;
  *known = false;
  return PLAN_NONE;
}

/* It is that buffer, or on the device the image of that host buffer. */
static bool stands_for(const Check *check, int32_t buf, int32_t state) {
  return buf == state || (buf != PLAN_NONE && state != PLAN_NONE && check->image[buf] == state);
}

static void check_class(Check *check, int32_t i, int k, BufClass class) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  if (check_buf(check, plan_operand(check->plan, instr, k)->buf)->class != class)
    WRONG("operand %s is not of class %s", check->specs[instr->op].operands[k].name, buf_class_name(class));
}

/* Operands that hold the unit's flat tensor or a shard of it: all but the scalars. */
static void check_unit_operands(Check *check, int32_t i, int64_t u) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const InstrSpec *spec = &check->specs[instr->op];
  const PlanUnit *unit = &check->plan->units.data[u];
  for (int k = 0; k < spec->operand_count; k++) {
    int32_t buf = plan_operand(check->plan, instr, k)->buf;
    const char *name = spec->operands[k].name;
    bool known;
    int32_t expected = state_buf(unit, name, &known);
    if (known && !stands_for(check, buf, expected)) WRONG("operand %s is not the %s buffer of u%lld", name, name, (long long)u);
    if (known || buf == PLAN_NONE || !strcmp(name, "acc") || !strcmp(name, "scale")) continue;
    if (check_buf(check, buf)->unit != u)
      WRONG("operand %s, b%d, does not belong to u%lld", name, buf, (long long)u);
  }
  if (instr->op == INSTR_ALLGATHER) {
    int32_t shard = plan_operand(check->plan, instr, 0)->buf;
    if (!stands_for(check, shard, unit->param_buf) && !stands_for(check, shard, unit->cast_buf))
      WRONG("operand shard is no parameter shard of u%lld", (long long)u);
    check_class(check, i, 1, BUF_GATHERED);
  }
  if (instr->op == INSTR_REDUCE_SCATTER) check_class(check, i, 0, BUF_GRADFULL);
}

/* Sizes that Adafactor's instructions take from the shapes of the unit's parameters. */
static void check_factored(Check *check, int32_t i, const PlanUnit *unit) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const struct {
    const char *name;
    uint64_t value;
  } sizes[] = {{"words", plan_factored_words(check->plan, unit)},
               {"m", plan_factored_numel(check->plan, unit)},
               {"params", (uint64_t)unit->param_count}};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    if (check_find_int(&check->specs[instr->op], sizes[s].name) < 0) continue;
    if ((uint64_t)check_int(check, instr, sizes[s].name) != sizes[s].value)
      WRONG("%s=%lld, but the parameters of u%d make %llu", sizes[s].name,
            (long long)check_int(check, instr, sizes[s].name), (int)(unit - check->plan->units.data),
            (unsigned long long)sizes[s].value);
  }
}

static void check_unit_attributes(Check *check, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const InstrSpec *spec = &check->specs[instr->op];
  if (check_find_int(spec, "unit") < 0) return;
  int64_t u = check_int(check, instr, "unit");
  if (u < 0 || u >= (int64_t)check->plan->units.count) {
    WRONG("unit %lld is not there", (long long)u);
    return;
  }
  const char *size = check_find_int(spec, "shard") >= 0 ? "shard" : "n";
  int64_t value = check_int(check, instr, size);
  if ((uint64_t)value != check->plan->units.data[u].shard)
    WRONG("%s=%lld, but the shard of u%lld has %llu elements", size, (long long)value, (long long)u,
          (unsigned long long)check->plan->units.data[u].shard);
  else
    check_unit_operands(check, i, u);
  if (instr->op == INSTR_ADAFACTOR_SUMS || instr->op == INSTR_ADAFACTOR_MOMENTS || instr->op == INSTR_ADAFACTOR)
    check_factored(check, i, &check->plan->units.data[u]);
}
#undef WRONG

void check_operands(Check *check) {
  Range ranges[INSTR_COUNT][INSTR_MAX_INTS];
  for (int op = 0; op < INSTR_COUNT; op++)
    for (int k = 0; k < check->specs[op].int_count; k++) ranges[op][k] = range_of(check->specs[op].ints[k]);
  for (int32_t i = 0; i < (int32_t)check->plan->instrs.count; i++) {
    const PlanInstr *instr = &check->plan->instrs.data[i];
    uint32_t before = check->result->total;
    check_ranges(check, i, ranges);
    for (int k = 0; k < check->specs[instr->op].operand_count; k++) check_operand(check, i, k);
    if (check->result->total != before) continue; /* the rest divides by attributes and follows operands */
    check_alias(check, i);
    check_model_shapes(check, i);
    check_unit_attributes(check, i);
    if (is_collective(instr->op)) check_collective_dtype(check, i);
  }
}
