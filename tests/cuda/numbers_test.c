/* Owns: tests over odd numbers: every one of 16 bits, and logits that are infinite or no numbers, in rows of any length. */
#include "tests/cuda/adapter.h"
#include "tests/cuda/closeness.h"
#include "tests/cuda/host_product.h"
#include "tests/cuda/kernel_tests.h"

#include <math.h>

/* --- every number of 16 bits ------------------------------------------------------------------------------------------- */

enum { NUMBERS = 1 << 16 };

/* gelu's erf form and its gradient are as close as rounding lets them be, and 1e-4 of the result. */
void test_gelu_of_all_halves(void **unused) {
  static const double ROUNDING[] = {[CUDA_BF16] = 0x1p-8, [CUDA_F16] = 0x1p-11}, LEAST[] = {[CUDA_BF16] = 1e-36, [CUDA_F16] = 0x1p-25};
  (void)unused;
  for (int type = CUDA_BF16; type <= CUDA_F16; type++) {
    float *x = memory_get(3 * NUMBERS * sizeof *x), *y = x + NUMBERS, *one = y + NUMBERS, *dx = memory_get(NUMBERS * sizeof *dx);
    for (int i = 0; i < NUMBERS; i++) x[i] = element_get(type, &(uint16_t){(uint16_t)i}, 0), one[i] = 1;
    Adapter adapter = {.type = type};
    adapter_table.gelu_fwd(&adapter.context, 1, NUMBERS, 1, x, NUMBERS, y, NUMBERS);
    adapter_table.gelu_bwd(&adapter.context, 1, NUMBERS, 1, x, NUMBERS, one, NUMBERS, dx, NUMBERS, 0);
    for (int i = 0; i < NUMBERS; i++) {
      double v = (double)x[i], cdf = erfc(-v * sqrt(0.5)) / 2, slope = cdf + v * exp(-v * v / 2) / sqrt(2 * acos(-1.0));
      double allowed = ROUNDING[type] + 1e-4, want = v * cdf;
      if (isnan(v)) assert_true(isnan((double)y[i]) && isnan((double)dx[i]));
      if (!isfinite(v)) continue;
      if (!(fabs((double)y[i] - want) <= allowed * fabs(want) + LEAST[type]))
        fail_msg("%s: gelu(%g) is %g, not %g", TYPE[type], v, (double)y[i], want);
      if (!(fabs((double)dx[i] - slope) <= allowed * fabs(slope) + 1e-5 * fmin(cdf, 1 - cdf) * (1 + fabs(v)) + LEAST[type]))
        fail_msg("%s: the slope at %g is %g, not %g", TYPE[type], v, (double)dx[i], slope);
    }
    memory_free();
  }
}

/* --- logits that are no numbers, rows of any length --------------------------------------------------------------------- */

enum { LOGIT_ROWS = 9, MOST_LOGITS = 9001 };

/* Row by row: what a row of logits must survive, or show. */
static void logits_of(int type, int64_t vocab, float *x) {
  uint64_t state = 61;
  for (int64_t i = 0; i < LOGIT_ROWS * vocab; i++) x[i] = 20 * (float)coarse_value_next(&state);
  for (int64_t i = 0; i < vocab; i++) x[1 * vocab + i] = -INFINITY, x[3 * vocab + i] = NAN;
  for (int64_t i = 0; i + 1 < vocab; i++) x[2 * vocab + i] = -INFINITY; /* but for the last */
  x[4 * vocab + vocab / 2] = NAN;
  x[5 * vocab + vocab / 3] = INFINITY;
  x[6 * vocab + vocab / 2] = 16000, x[7 * vocab] = -16000;
  for (int64_t i = 0; i < vocab; i++) x[8 * vocab + i] = i % 3 != 0 ? -INFINITY : i % 2 == 0 ? 3 : 3.5f;
  uint16_t h[1];
  for (int64_t i = 0; type != CUDA_F32 && i < LOGIT_ROWS * vocab; i++) element_set(type, h, 0, x[i]), x[i] = element_get(type, h, 0);
}

static void same_numbers(int type, int64_t vocab, int64_t n, const float *got, const float *want) {
  for (int64_t i = 0; i < n; i++)
    if (isnan((double)got[i]) != isnan((double)want[i]) ||
        (!isnan((double)want[i]) && got[i] != want[i] && !(fabsf(got[i] - want[i]) <= (float)TOLERANCE[type] * (0.05f + fabsf(want[i])))))
      fail_msg("%s, %ld logits: output %ld is %.9g, on the CPU %.9g", TYPE[type], (long)vocab, (long)i, (double)got[i], (double)want[i]);
}

/* Rows lie one behind the other, so that they begin anywhere in 16 bytes. */
void test_cross_entropy_of_odd_logits(void **unused) {
  static const int64_t sizes[] = {1, 5, 8, 17, 515, 4099, 8192, MOST_LOGITS};
  (void)unused;
  for (size_t n = 0; n < 3 * sizeof sizes / sizeof *sizes; n++) {
    int type = (int)(n % 3);
    int64_t vocab = sizes[n / 3];
    float *want = memory_get((size_t)(LOGIT_ROWS * vocab) * sizeof *want), *got = memory_get((size_t)(LOGIT_ROWS * vocab) * sizeof *got);
    float losses[2][LOGIT_ROWS];
    double loss[2] = {0, 0};
    int32_t targets[LOGIT_ROWS];
    KernelContext alone = {0};
    Adapter adapter = {.type = type};
    for (int i = 0; i < LOGIT_ROWS; i++) targets[i] = i < 3 ? (int32_t)vocab - 1 : (int32_t)(i * vocab / LOGIT_ROWS);
    logits_of(type, vocab, want), logits_of(type, vocab, got);
    kernels_cpu_named("portable")->cross_entropy(&alone, LOGIT_ROWS, vocab, -100, 4, want, vocab, targets, &loss[0], losses[0]);
    adapter_table.cross_entropy(&adapter.context, LOGIT_ROWS, vocab, -100, 4, got, vocab, targets, &loss[1], losses[1]);
    same_numbers(type, vocab, LOGIT_ROWS, losses[1], losses[0]);
    same_numbers(type, vocab, LOGIT_ROWS * vocab, got, want);
    memory_free();
  }
}
