/* Owns: the learning rate of a step. */
#ifndef FSDPC_RUNTIME_SCHEDULE_H
#define FSDPC_RUNTIME_SCHEDULE_H

#include "base/recipe.h"

/* Rate of step 1, 2, ...: linear warmup from lr/warmup, then constant, or a decay that reaches min_lr at step
 * `total` and stays there: at once, or (wsd) over the last cooldown_steps. */
double schedule_lr(const Recipe *recipe, uint64_t total, uint64_t step);

#endif
