/* Owns: what the model's own operators take of units: whole parameters, never a place between them, nor what only the update may read; and what
 * they write, which is gradients. */
#include "planner/plan/check.h"

#include <stdlib.h>

typedef struct Place {
  int32_t unit;
  uint64_t offset; /* in the unit's flat tensor */
  uint64_t numel;
} Place;

static int by_place(const void *a, const void *b) {
  const Place *x = a, *y = b;
  if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Sizes have been checked. */
static Place *list_places(Arena *scratch, const Plan *plan) {
  Place *places = ARENA_ARRAY(scratch, Place, plan->params.count);
  for (uint32_t p = 0; p < plan->params.count; p++) {
    const PlanParam *param = &plan->params.data[p];
    places[p] = (Place){param->unit, param->offset, 1};
    for (int d = 0; d < param->rank; d++) places[p].numel *= (uint64_t)param->dim[d];
  }
  qsort(places, plan->params.count, sizeof *places, by_place);
  return places;
}

static bool is_of_model(const Check *check, const PlanInstr *instr) {
  return (instr->phase == PHASE_FORWARD || instr->phase == PHASE_BACKWARD || instr->phase == PHASE_RECOMPUTE) && instr->op != INSTR_ZERO &&
         !is_collective(instr->op) && !is_transfer(instr->op) && check_find_int(&check->specs[instr->op], "unit") < 0;
}

#define WRONG(...) violate(check, VERIFY_OPERAND, i, operand->buf, __VA_ARGS__)

static void check_place(Check *check, int32_t i, int k, const Place *places) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const PlanOperand *operand = plan_operand(check->plan, instr, k);
  const char *name = check->specs[instr->op].operands[k].name;
  const PlanBuf *buf = operand->buf == PLAN_NONE ? NULL : check_buf(check, operand->buf);
  if (!buf || buf->unit == PLAN_NONE) return;
  if (buf->class == BUF_OPTIM) {
    WRONG("operand %s is in class %s, which is for the update", name, buf_class_name(buf->class));
    return;
  }
  if (check->specs[instr->op].operands[k].mode != MODE_READ && buf->class != BUF_GRAD && buf->class != BUF_GRADFULL) {
    WRONG("operand %s is written into class %s: the model's operators write gradients of units, not parameters", name, buf_class_name(buf->class));
    return;
  }
  uint64_t rows = 1, cols = 1;
  const Place *place = bsearch(&(Place){buf->unit, operand->offset, 0}, places, check->plan->params.count, sizeof *places, by_place);
  plan_operand_dims(check->plan, check->specs, instr, k, &rows, &cols);
  if (!place) WRONG("operand %s begins where no parameter of u%d does", name, buf->unit);
  else if (rows * cols != place->numel || (operand->ld && operand->ld != cols))
    WRONG("operand %s is not the whole parameter of u%d that begins there", name, buf->unit);
}
#undef WRONG

void check_parameters(Check *check) {
  Arena *scratch = arena_new();
  const Place *places = list_places(scratch, check->plan);
  for (int32_t i = 0; i < (int32_t)check->plan->instrs.count; i++) {
    const PlanInstr *instr = &check->plan->instrs.data[i];
    for (int k = 0; is_of_model(check, instr) && k < check->specs[instr->op].operand_count; k++) check_place(check, i, k, places);
  }
  arena_free(scratch);
}
