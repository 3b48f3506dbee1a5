/* Owns: the order of the checks, and collecting what they find. */
#include "planner/plan/check.h"

const char *verify_rule_name(VerifyRule rule) {
  static const char *const names[] = {
#define X(id, name, meaning) name,
      VERIFY_RULES(X)
#undef X
  };
  return names[rule];
}

const char *verify_rule_meaning(VerifyRule rule) {
  static const char *const meanings[] = {
#define X(id, name, meaning) meaning,
      VERIFY_RULES(X)
#undef X
  };
  return meanings[rule];
}

/* "i44 linear_fwd: ", where a violation is of one instruction. */
static const char *place_of(const Check *check, int32_t instr) {
  if (instr == PLAN_NONE) return "";
  const InstrOp op = check->plan->instrs.data[instr].op;
  return op < INSTR_COUNT ? arena_printf(check->arena, "i%d %s: ", instr, check->specs[op].name) : arena_printf(check->arena, "i%d: ", instr);
}

/* The last places of the list are kept for rules not seen yet, so that a flood of one does not hide another.
 */
void violate(Check *check, VerifyRule rule, int32_t instr, int32_t buf, const char *format, ...) {
  VerifyResult *result = check->result;
  result->total++;
  if (check->by_rule[rule]++ && result->violations.count >= VERIFY_LIMIT - VERIFY_RULE_COUNT) return;
  va_list args;
  va_start(args, format);
  const char *what = arena_vprintf(check->arena, format, args);
  Violation violation = {rule, instr, buf, arena_printf(check->arena, "%s%s", place_of(check, instr), what)};
  va_end(args);
  vec_push(check->arena, &result->violations, violation);
}

int check_find_int(const InstrSpec *spec, const char *name) {
  for (int i = 0; i < spec->int_count; i++)
    if (!strcmp(spec->ints[i], name)) return i;
  return -1;
}

int64_t check_int(const Check *check, const PlanInstr *instr, const char *name) {
  const int k = check_find_int(&check->specs[instr->op], name);
  return k < 0 ? 0 : plan_int(check->plan, instr, k);
}

static Lives list_lives(Arena *scratch, const Plan *plan) {
  Lives lives = {ARENA_ARRAY(scratch, int32_t, plan->instrs.count), ARENA_ARRAY(scratch, int32_t, plan->bufs.count),
                 ARENA_ARRAY(scratch, int32_t, plan->instrs.count), ARENA_ARRAY(scratch, int32_t, plan->bufs.count)};
  for (int32_t b = (int32_t)plan->bufs.count - 1; b >= 0; b--) { /* backwards, so that lists run forwards */
    const PlanBuf *buf = &plan->bufs.data[b];
    lives.next_born[b] = lives.born[buf->first];
    lives.born[buf->first] = b + 1;
    lives.next_dead[b] = lives.dead[buf->last];
    lives.dead[buf->last] = b + 1;
  }
  return lives;
}

bool plan_verify(Arena *arena, const Plan *plan, VerifyResult *result) {
  memset(result, 0, sizeof *result);
  Arena *scratch = arena_new();
  Check check = {.arena = arena, .plan = plan, .specs = instr_specs(scratch), .result = result};
  check_structure(&check);
  if (!result->total) check_offload(&check);
  if (!result->total) check_operands(&check); /* the rest indexes without looking */
  if (!result->total) check_parameters(&check);
  if (!result->total) check_recipe_followed(&check);
  if (!result->total) {
    check.lives = list_lives(scratch, plan);
    check_placement(&check);
    check_order(&check);
    check_accesses(&check);
    check_recompute(&check);
    check_gradients(&check);
    check_sums(&check);
  }
  arena_free(scratch);
  return result->total == 0;
}
