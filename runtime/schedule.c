/* Owns: learning-rate schedules. */
#include "runtime/schedule.h"

#include <math.h>

/* Warmup, then stable, then a decay: linear over the last steps. */
static double cooling(const Recipe *recipe, uint64_t total, uint64_t step) {
  uint64_t cooldown = recipe->cooldown_steps != 0 ? recipe->cooldown_steps : total / 5;
  uint64_t left = total - step; /* not 0 */
  if (left >= cooldown) return recipe->lr;
  return recipe->min_lr + (recipe->lr - recipe->min_lr) * (double)left / (double)cooldown;
}

double schedule_lr(const Recipe *recipe, uint64_t total, uint64_t step) {
  if (step <= recipe->warmup_steps) return recipe->lr * (double)step / (double)recipe->warmup_steps;
  if (recipe->schedule == SCHEDULE_CONSTANT) return recipe->lr;
  if (step >= total) return recipe->min_lr;
  if (recipe->schedule == SCHEDULE_WSD) return cooling(recipe, total, step);
  double done = (double)(step - recipe->warmup_steps) / (double)(total - recipe->warmup_steps);
  double left = recipe->schedule == SCHEDULE_LINEAR ? 1 - done : 0.5 * (1 + cos(3.14159265358979323846 * done));
  return recipe->min_lr + (recipe->lr - recipe->min_lr) * left;
}
