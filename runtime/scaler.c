/* Owns: reading and writing the state of loss scaling. */
#include "runtime/scaler.h"

#include "runtime/runtime.h"

/* Where even this scale overflows the gradients themselves are broken. */
static const double LEAST_SCALE = 0x1p-20;

/* NULL in a plan that does not scale. */
static const PlanInstr *scaling(const Plan *plan) {
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    if (plan->instrs.data[i].op == INSTR_CLIP_SCALED) return &plan->instrs.data[i];
  return NULL;
}

static int32_t state_buf_of(const Plan *plan, const PlanInstr *instr) { return plan_operand(plan, instr, 1)->buf; }

bool scaler_settings(const Plan *plan, LossScaling *out) {
  const PlanInstr *instr = scaling(plan);
  if (instr == NULL) return false;
  *out = (LossScaling){.growth = plan_real(plan, instr, 1),
                       .backoff = plan_real(plan, instr, 2),
                       .init = plan_real(plan, instr, 3),
                       .interval = (uint64_t)plan_int(plan, instr, 0)};
  return true;
}

bool scaler_begin(Scaler *scaler, const Plan *plan, Backend *backend, Failure *failure) {
  const PlanInstr *instr = scaling(plan);
  if (instr == NULL) return true;
  if (scaler->word[SCALER_SCALE] == 0) scaler->word[SCALER_SCALE] = plan_real(plan, instr, 3);
  return backend->write(backend, state_buf_of(plan, instr), 0, scaler->word, sizeof scaler->word) ||
         fail(failure, RUN_INVALID, "%s", backend->error(backend));
}

bool scaler_end(Scaler *scaler, const Plan *plan, Backend *backend, bool *skipped, double *used, Failure *failure) {
  const PlanInstr *instr = scaling(plan);
  const Scaler before = *scaler;
  *skipped = false;
  *used = 0;
  if (instr == NULL) return true;
  if (!backend->read(backend, state_buf_of(plan, instr), 0, scaler->word, sizeof scaler->word))
    return fail(failure, RUN_INVALID, "%s", backend->error(backend));
  *skipped = scaler->word[SCALER_SKIPPED] > before.word[SCALER_SKIPPED];
  *used = before.word[SCALER_SCALE];
  if (!*skipped || scaler->word[SCALER_SCALE] >= LEAST_SCALE) return true;
  return fail(failure, RUN_INVALID,
              "the gradients overflow even with a loss scale of %g: training has diverged; lower the learning rate, warm up "
              "longer, or set `precision bf16`",
              *used);
}
