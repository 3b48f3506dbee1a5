/* Owns: rule sums. Sums that ranks make together, exact ones in a shard group, the loss and the number of targets among all: begun anew every
 * step, taken over the ranks exactly once, and read only then. Where there are no others a rank's own sum is whole already. */
#include "planner/plan/check.h"

typedef enum { SUM_STALE, SUM_EMPTY, SUM_PART, SUM_WHOLE } SumState; /* STALE: of the step before, or none */

typedef struct Sums {
  Check *check;
  SumState *state; /* by buffer */
} Sums;

static void blame(const Sums *s, int32_t i, int32_t buf, const char *what) {
  violate(s->check, VERIFY_SUMS, i, buf, "%s: b%d \"%s\"", what, buf, check_buf_name(s->check, buf));
}

/* The buffer of the operand called so, or PLAN_NONE. */
static int32_t operand_named(const Sums *s, const PlanInstr *instr, const char *name) {
  const InstrSpec *spec = &s->check->specs[instr->op];
  for (int k = 0; k < spec->operand_count; k++)
    if (!strcmp(spec->operands[k].name, name)) return plan_operand(s->check->plan, instr, k)->buf;
  return PLAN_NONE;
}

static bool is_whole(const Sums *s, int32_t buf, uint32_t ranks) {
  return s->state[buf] == SUM_WHOLE || (ranks == 1 && s->state[buf] == SUM_PART);
}

static void need_whole(const Sums *s, int32_t i, const char *name) {
  int32_t buf = operand_named(s, &s->check->plan->instrs.data[i], name);
  if (buf != PLAN_NONE && !is_whole(s, buf, s->check->plan->world.shard)) blame(s, i, buf, "reads a sum before it was taken over the shard group");
}

/* The number of targets, perhaps over the loss scale. */
static void need_count(const Sums *s, int32_t i) {
  int32_t buf = operand_named(s, &s->check->plan->instrs.data[i], "count");
  if (!is_whole(s, buf, s->check->plan->world.ranks)) blame(s, i, buf, "reads a number of targets before it was summed over all ranks");
}

static void write_part(const Sums *s, int32_t i, const char *name) {
  s->state[operand_named(s, &s->check->plan->instrs.data[i], name)] = SUM_PART;
}

static void add_part(const Sums *s, int32_t i, const char *name) {
  int32_t buf = operand_named(s, &s->check->plan->instrs.data[i], name);
  if (s->state[buf] != SUM_EMPTY && s->state[buf] != SUM_PART)
    blame(s, i, buf, "adds to a sum that was not cleared in this step, or is whole already");
  s->state[buf] = SUM_PART;
}

static void take_over_ranks(const Sums *s, int32_t i, const char *ranks) {
  int32_t buf = plan_operand(s->check->plan, &s->check->plan->instrs.data[i], 0)->buf;
  if (s->state[buf] != SUM_PART)
    violate(s->check, VERIFY_SUMS, i, buf, "takes over %s what is no sum of this rank's: b%d \"%s\"", ranks, buf, check_buf_name(s->check, buf));
  s->state[buf] = SUM_WHOLE;
}

static void visit(const Sums *s, int32_t i) {
  const PlanInstr *instr = &s->check->plan->instrs.data[i];
  switch (instr->op) {
  case INSTR_ZERO:
    s->state[plan_operand(s->check->plan, instr, 0)->buf] = SUM_EMPTY;
    break;
  case INSTR_SUM_SQUARES:
    add_part(s, i, "acc");
    break;
  case INSTR_COUNT_TARGETS:
    write_part(s, i, "count");
    break;
  case INSTR_SCALE_COUNT:
    need_count(s, i);
    s->state[operand_named(s, instr, "scaled")] = SUM_WHOLE;
    break;
  case INSTR_CROSS_ENTROPY:
  case INSTR_LINEAR_CROSS_ENTROPY:
  case INSTR_LINEAR_CROSS_ENTROPY_X:
  case INSTR_MSE:
    need_count(s, i);
    add_part(s, i, "loss");
    break;
  case INSTR_ALLREDUCE_SUM:
    take_over_ranks(s, i, "all ranks");
    break;
  case INSTR_ALLREDUCE_EXACT:
  case INSTR_ALLREDUCE_INT:
    take_over_ranks(s, i, "the shard group");
    break;
  case INSTR_CLIP:
  case INSTR_CLIP_SCALED:
    need_whole(s, i, "acc");
    break;
  case INSTR_ADAFACTOR_SUMS:
    need_whole(s, i, "acc");
    write_part(s, i, "sums");
    break;
  case INSTR_ADAFACTOR_MOMENTS:
    need_whole(s, i, "acc");
    need_whole(s, i, "sums");
    write_part(s, i, "norms");
    break;
  case INSTR_ADAFACTOR:
    need_whole(s, i, "sums");
    need_whole(s, i, "norms");
    break;
  default:
    break;
  }
}

/* What is repeated must find again what it needs. */
static void visit_segment(const Sums *s, const PlanSegment *segment) {
  const uint32_t found = s->check->by_rule[VERIFY_SUMS];
  for (uint32_t pass = 0; pass < 2 && pass < segment->count && s->check->by_rule[VERIFY_SUMS] == found; pass++)
    for (int32_t i = segment->first; i < segment->end; i++) visit(s, i);
}

static void check_loss(const Sums *s) {
  const Plan *plan = s->check->plan;
  if (plan->loss_buf != PLAN_NONE && s->state[plan->loss_buf] == SUM_PART && plan->world.ranks > 1)
    blame(s, PLAN_NONE, plan->loss_buf, "the step ends before its loss was summed over all ranks");
}

void check_sums(Check *check) {
  Arena *scratch = arena_new();
  Sums sums = {check, ARENA_ARRAY(scratch, SumState, check->plan->bufs.count)};
  for (uint32_t i = 0; i < check->plan->segments.count; i++) visit_segment(&sums, &check->plan->segments.data[i]);
  check_loss(&sums);
  arena_free(scratch);
}
