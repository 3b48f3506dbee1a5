/* Owns: learning-rate schedules. */
#include "runtime/schedule.h"

#include <math.h>

double schedule_lr(const Recipe *recipe, uint64_t total, uint64_t step) {
  if (step <= recipe->warmup_steps) return recipe->lr * (double)step / (double)recipe->warmup_steps;
  if (recipe->schedule == SCHEDULE_CONSTANT) return recipe->lr;
  if (step >= total) return recipe->min_lr;
  double done = (double)(step - recipe->warmup_steps) / (double)(total - recipe->warmup_steps);
  double left = recipe->schedule == SCHEDULE_LINEAR ? 1 - done : 0.5 * (1 + cos(3.14159265358979323846 * done));
  return recipe->min_lr + (recipe->lr - recipe->min_lr) * left;
}
