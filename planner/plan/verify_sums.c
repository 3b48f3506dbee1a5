/* Owns: rule sums. Exact sums that ranks of a shard group make together: begun anew every step, taken over the group
 * exactly once, and read only then. Where nothing is sharded a rank's own sum is whole already. */
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

static void need_whole(const Sums *s, int32_t i, const char *name) {
  int32_t buf = operand_named(s, &s->check->plan->instrs.data[i], name);
  bool alone = s->check->plan->world.shard == 1;
  if (buf != PLAN_NONE && s->state[buf] != SUM_WHOLE && !(alone && s->state[buf] == SUM_PART))
    blame(s, i, buf, "reads a sum before it was taken over the shard group");
}

static void write_part(const Sums *s, int32_t i, const char *name) {
  s->state[operand_named(s, &s->check->plan->instrs.data[i], name)] = SUM_PART;
}

static void add_part(const Sums *s, int32_t i) {
  int32_t buf = operand_named(s, &s->check->plan->instrs.data[i], "acc");
  if (s->state[buf] != SUM_EMPTY && s->state[buf] != SUM_PART)
    blame(s, i, buf, "adds to a sum that was not cleared in this step, or is whole already");
  s->state[buf] = SUM_PART;
}

static void take_over_group(const Sums *s, int32_t i) {
  int32_t buf = plan_operand(s->check->plan, &s->check->plan->instrs.data[i], 0)->buf;
  if (s->state[buf] != SUM_PART) blame(s, i, buf, "takes over the shard group what is no sum of this rank's");
  s->state[buf] = SUM_WHOLE;
}

static void visit(const Sums *s, int32_t i) {
  const PlanInstr *instr = &s->check->plan->instrs.data[i];
  switch (instr->op) {
  case INSTR_ZERO:
    s->state[plan_operand(s->check->plan, instr, 0)->buf] = SUM_EMPTY;
    break;
  case INSTR_SUM_SQUARES:
    add_part(s, i);
    break;
  case INSTR_ALLREDUCE_EXACT:
  case INSTR_ALLREDUCE_INT:
    take_over_group(s, i);
    break;
  case INSTR_CLIP:
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

void check_sums(Check *check) {
  Arena *scratch = arena_new();
  Sums sums = {check, ARENA_ARRAY(scratch, SumState, check->plan->bufs.count)};
  for (int32_t i = 0; i < (int32_t)check->plan->instrs.count; i++) visit(&sums, i);
  arena_free(scratch);
}
