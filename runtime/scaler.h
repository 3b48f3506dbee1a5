/* Owns: the state of loss scaling between steps: where the plan keeps it, how it starts, whether training can still go on.
 * What a step does with it is instruction clip_scaled. */
#ifndef FSDPC_RUNTIME_SCALER_H
#define FSDPC_RUNTIME_SCALER_H

#include "runtime/backend.h"
#include "runtime/failure.h"

/* By ScalerWord. All zero: the loss was never scaled. */
typedef struct Scaler {
  double word[SCALER_WORDS];
} Scaler;

/* As the plan has them. False: it does not scale. */
bool scaler_settings(const Plan *plan, LossScaling *out);
/* Hands the backend the state that the next step begins with: this one, or, where there is none yet, the plan's initial
 * one. A plan that does not scale leaves it alone. */
bool scaler_begin(Scaler *scaler, const Plan *plan, Backend *backend, Failure *failure);
/* After a step. *skipped: it left the weights as they were. *used: the loss scale that it had; 0 in a plan without. */
bool scaler_end(Scaler *scaler, const Plan *plan, Backend *backend, bool *skipped, double *used, Failure *failure);

#endif
