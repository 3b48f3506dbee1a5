/* Owns: closeness.h. */
#include "tests/cuda/closeness.h"

#include <math.h>

const double TOLERANCE[] = {[CUDA_F32] = 6e-6, [CUDA_BF16] = 2.5e-2, [CUDA_F16] = 4e-3};
const char *const TYPE[] = {"f32", "bf16", "f16"};

static double typical_of(const Scene *scene) {
  double squares = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < scene->count; i++)
    if (isfinite(scene->out[i])) squares += scene->out[i] * scene->out[i], finite++;
  return sqrt(squares / (double)finite);
}

double worst(const char *name, int type, double slack, const Scene *got, const Scene *expected) {
  double typical = typical_of(expected), most = 0;
  assert_int_equal(got->count, expected->count);
  for (int64_t i = 0; i < got->count; i++) {
    double want = expected->out[i], error = fabs(got->out[i] - want);
    if (got->out[i] == want) continue;
    error /= slack * TOLERANCE[type] * (typical + fabs(want));
    if (!(error <= 1))
      fail_msg("%s, %s: output %ld is %.9g, in double %.9g", name, TYPE[type], (long)i, got->out[i], want);
    if (error > most) most = error;
  }
  return most;
}
