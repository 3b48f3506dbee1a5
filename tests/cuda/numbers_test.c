/* Owns: tests over odd numbers: every one of 16 bits; logits that are infinite or no numbers, in rows of any length; sums over many rows;
 * norms of long rows and of many. */
#include "tests/cuda/adapter.h"
#include "tests/cuda/closeness.h"
#include "tests/cuda/host_product.h"
#include "tests/cuda/kernel_tests.h"

#include <math.h>
#include <stdbool.h>

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

typedef struct Sigmoids { /* x s, s the sigmoid of g(x), and its slope s + x g' s (1 - s) */
  double value, slope, error; /* what roundings of g(x) may do to the slope */
} Sigmoids;

static Sigmoids sigmoids_of(bool silu, double x) {
  double c = 0.044715, g = silu ? x : 2 * sqrt(2 / acos(-1.0)) * (x + c * x * x * x);
  double g1 = silu ? 1 : 2 * sqrt(2 / acos(-1.0)) * (1 + 3 * c * x * x), s = 1 / (1 + exp(-g));
  return (Sigmoids){x * s, s + x * g1 * s * (1 - s), 5e-5 * s * (1 + fabs(x * g1) * (1 - s)) + 1e-6 * s};
}

/* So are gelu's tanh form and silu, whose sigmoid is computed to 5e-5 for 16 bits. */
void test_sigmoids_of_all_halves(void **unused) {
  static const double ROUNDING[] = {[CUDA_BF16] = 0x1p-8, [CUDA_F16] = 0x1p-11}, LEAST[] = {[CUDA_BF16] = 1e-36, [CUDA_F16] = 0x1p-25};
  (void)unused;
  for (int n = 0; n < 4; n++) {
    int type = n % 2 ? CUDA_BF16 : CUDA_F16;
    bool silu = n >= 2;
    float *x = memory_get(3 * NUMBERS * sizeof *x), *y = x + NUMBERS, *one = y + NUMBERS, *dx = memory_get(NUMBERS * sizeof *dx);
    for (int i = 0; i < NUMBERS; i++) x[i] = element_get(type, &(uint16_t){(uint16_t)i}, 0), one[i] = 1;
    Adapter adapter = {.type = type};
    if (silu) {
      adapter_table.silu_fwd(&adapter.context, 1, NUMBERS, x, NUMBERS, y, NUMBERS);
      adapter_table.silu_bwd(&adapter.context, 1, NUMBERS, x, NUMBERS, one, NUMBERS, dx, NUMBERS, 0);
    } else {
      adapter_table.gelu_fwd(&adapter.context, 1, NUMBERS, 0, x, NUMBERS, y, NUMBERS);
      adapter_table.gelu_bwd(&adapter.context, 1, NUMBERS, 0, x, NUMBERS, one, NUMBERS, dx, NUMBERS, 0);
    }
    for (int i = 0; i < NUMBERS; i++) {
      double v = (double)x[i], allowed = ROUNDING[type] + 1e-4;
      if (isnan(v)) assert_true(isnan((double)y[i]) && isnan((double)dx[i]));
      if (!isfinite(v) || fabs(v) > 1e9) continue; /* a cube's overflow is not this test's */
      Sigmoids want = sigmoids_of(silu, v);
      if (!(fabs((double)y[i] - want.value) <= allowed * fabs(want.value) + LEAST[type]))
        fail_msg("%s %s: at %g it is %g, not %g", silu ? "silu" : "gelu", TYPE[type], v, (double)y[i], want.value);
      if (!(fabs((double)dx[i] - want.slope) <= allowed * fabs(want.slope) + want.error + LEAST[type]))
        fail_msg("%s %s: the slope at %g is %g, not %g", silu ? "silu" : "gelu", TYPE[type], v, (double)dx[i], want.slope);
    }
    memory_free();
  }
}

/* --- logits that are no numbers, rows of any length --------------------------------------------------------------------- */

enum { LOGIT_ROWS = 9 };

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
      fail_msg("%s, %ld a row: output %ld is %.9g, on the CPU %.9g", TYPE[type], (long)vocab, (long)i, (double)got[i], (double)want[i]);
}

/* Rows lie one behind the other, so that they begin anywhere in 16 bytes. The longest do not fit in shared memory: the last at all, the
 * one before in f32. */
void test_cross_entropy_of_odd_logits(void **unused) {
  static const int64_t sizes[] = {1, 5, 8, 17, 515, 4099, 8192, 9001, 50257, 50501};
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

/* --- sums of columns over many rows ------------------------------------------------------------------------------------- */

/* Of small integers, which are exact in whatever order: every piece of rows is added once, also the last, and where there are more
 * rows than pieces of COLUMN_PIECE_ROWS. */
void test_sums_of_many_rows(void **unused) {
  static const int64_t counts[] = {1, 127, 129, 128 * 11 + 5, 128 * 256 + 77};
  enum { WIDE = 40, ODD = 35 };
  (void)unused;
  for (size_t n = 0; n < 4 * sizeof counts / sizeof *counts; n++) {
    int64_t rows = counts[n / 4], cols = n % 2 ? ODD : WIDE;
    int add = n / 2 % 2;
    if (rows > 10000 && n % 2 != (size_t)add) continue; /* takes long */
    Adapter adapter = {.type = CUDA_F16};
    float *dy = memory_get((size_t)(rows * cols) * sizeof *dy), *x = memory_get((size_t)(rows * cols) * sizeof *x);
    float *dx = memory_get((size_t)(rows * cols) * sizeof *dx), *mean = memory_get((size_t)rows * sizeof *mean);
    float *rstd = memory_get((size_t)rows * sizeof *rstd), w[WIDE], dw[WIDE], db[WIDE], want_w[WIDE], want_b[WIDE];
    for (int64_t c = 0; c < cols; c++) w[c] = 1, dw[c] = db[c] = 3, want_w[c] = want_b[c] = add ? 3 : 0;
    for (int64_t r = 0; r < rows; r++) {
      mean[r] = (float)(r % 3), rstd[r] = r % 2 ? 1 : 2;
      for (int64_t c = 0; c < cols; c++) {
        float g = dy[r * cols + c] = (float)((r * 7 + c) % 5 - 1), v = x[r * cols + c] = (float)((r + c * 3) % 4);
        want_b[c] += g, want_w[c] += g * ((v - mean[r]) * rstd[r]);
      }
    }
    adapter_table.layernorm_bwd(&adapter.context, rows, cols, x, cols, w, mean, rstd, dy, cols, dx, cols, dw, db, 0, add, add);
    assert_memory_equal(dw, want_w, (size_t)cols * sizeof *dw);
    assert_memory_equal(db, want_b, (size_t)cols * sizeof *db);
    for (int64_t c = 0; c < cols; c++) dw[c] = add ? 3 : 0;
    adapter_table.rmsnorm_bwd(&adapter.context, rows, cols, x, cols, w, rstd, dy, cols, dx, cols, dw, 0, add);
    for (int64_t c = 0; c < cols; c++) db[c] = add ? 3 : 0;
    for (int64_t i = 0; i < rows * cols; i++) db[i % cols] += dy[i] * (x[i] * rstd[i / cols]);
    assert_memory_equal(dw, db, (size_t)cols * sizeof *dw);
    memory_free();
  }
}

/* --- norms of rows of any length ---------------------------------------------------------------------------------------- */

/* Rows that registers hold in few pieces, in many, and not at all, in 16 and in 32 bits. */
void test_norms_of_long_rows(void **unused) {
  static const int64_t sizes[] = {8, 136, 520, 1024, 1032, 2048, 2056};
  enum { ROWS = 5, MOST = 2056 };
  (void)unused;
  for (size_t n = 0; n < 6 * sizeof sizes / sizeof *sizes; n++) {
    int type = (int)(n % 3);
    bool centred = n / 3 % 2 != 0;
    int64_t d = sizes[n / 6];
    float *x = memory_get((size_t)(2 * MOST) * sizeof *x), *all = memory_get((size_t)(ROWS * d * 3) * sizeof *all);
    float *want = all + ROWS * d, *got = want + ROWS * d, *w = x, *bias = x + MOST, mean[2][ROWS], rstd[2][ROWS];
    uint64_t state = 91;
    KernelContext alone = {0};
    Adapter adapter = {.type = type};
    const KernelTable *tables[] = {kernels_cpu_named("portable"), &adapter_table};
    const KernelContext *contexts[] = {&alone, &adapter.context};
    for (int64_t i = 0; i < 2 * MOST; i++) x[i] = (float)coarse_value_next(&state);
    for (int64_t i = 0; i < ROWS * d; i++) all[i] = (float)coarse_value_next(&state);
    for (int t = 0; t < 2; t++) {
      float *y = t ? got : want;
      if (centred) tables[t]->layernorm_fwd(contexts[t], ROWS, d, 1e-5, all, d, w, bias, y, d, mean[t], rstd[t]);
      else tables[t]->rmsnorm_fwd(contexts[t], ROWS, d, 1e-5, all, d, w, y, d, rstd[t]);
    }
    same_numbers(type, d, ROWS * d, got, want);
    same_numbers(CUDA_F32, d, ROWS, rstd[1], rstd[0]);
    if (centred) same_numbers(CUDA_F32, d, ROWS, mean[1], mean[0]);
    memory_free();
  }
}

/* --- the norms' gradients over many rows --------------------------------------------------------------------------------- */

/* rows x cols of: x, dy, dx before and after; then of a row or a column */
typedef struct Sweep {
  int64_t rows, cols;
  float *x, *dy, *before, *dx, *mean, *rstd, *w, *dw, *db;
} Sweep;

/* Each on 64 bytes, as the adapter's copies then are. */
static float *floats_get(int64_t n) { return memory_get((size_t)n * sizeof(float)); }

static Sweep sweep_get(int64_t rows, int64_t cols) {
  int64_t all = rows * cols;
  Sweep s = {rows, cols, floats_get(all), floats_get(all), floats_get(all), floats_get(all), floats_get(rows), floats_get(rows),
             floats_get(cols), floats_get(cols), floats_get(cols)};
  uint64_t state = 77;
  for (int64_t i = 0; i < all; i++) {
    s.x[i] = (float)coarse_value_next(&state), s.dy[i] = (float)coarse_value_next(&state);
    s.dx[i] = s.before[i] = (float)coarse_value_next(&state);
  }
  for (int64_t r = 0; r < rows; r++) s.mean[r] = (float)(r % 3) / 8, s.rstd[r] = r % 2 ? 1 : 1.5f;
  for (int64_t c = 0; c < cols; c++) s.w[c] = (float)coarse_value_next(&state);
  return s;
}

/* Row r of dx, in double; what it adds to the weights' gradients is added to dw and db. */
static void check_row(const Sweep *s, const char *name, int64_t r, bool centred, int add, double allowed, double *dw, double *db) {
  const float *x = s->x + r * s->cols, *dy = s->dy + r * s->cols;
  double sum_g = 0, sum_gx = 0, mean = centred ? (double)s->mean[r] : 0, rstd = (double)s->rstd[r];
  for (int64_t c = 0; c < s->cols; c++) {
    double g = (double)dy[c] * (double)s->w[c], v = ((double)x[c] - mean) * rstd;
    sum_g += centred ? g : 0, sum_gx += g * v, dw[c] += (double)dy[c] * v, db[c] += (double)dy[c];
  }
  for (int64_t c = 0; c < s->cols; c++) {
    double g = (double)dy[c] * (double)s->w[c], v = ((double)x[c] - mean) * rstd;
    double want = rstd * (g - (sum_g + v * sum_gx) / (double)s->cols), got = (double)s->dx[r * s->cols + c];
    if (add) want += (double)s->before[r * s->cols + c];
    if (!(fabs(got - want) <= allowed * (1 + fabs(want)))) fail_msg("%s: dx of row %d, %d is %g, not %g", name, (int)r, (int)c, got, want);
  }
}

/* As one sweep makes them: rows of several warps, of one, of a part; the last block with hardly a row. */
void test_norms_of_many_rows(void **unused) {
  static const struct {
    int type, centred, add;
    int64_t cols;
  } cases[] = {{CUDA_BF16, 1, 1, 520}, {CUDA_F16, 0, 0, 136}, {CUDA_F32, 1, 0, 132}, {CUDA_BF16, 0, 1, 264}};
  enum { ROWS = 128 * 255 + 3, MOST_COLS = 520 };
  static const double ROUNDING[] = {[CUDA_F32] = 1e-5, [CUDA_BF16] = 0x1p-8, [CUDA_F16] = 0x1p-11};
  (void)unused;
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    int type = cases[n].type, add = cases[n].add;
    double dw[MOST_COLS] = {0}, db[MOST_COLS] = {0};
    Adapter adapter = {.type = type};
    Sweep s = sweep_get(ROWS, cases[n].cols);
    if (cases[n].centred)
      adapter_table.layernorm_bwd(&adapter.context, ROWS, s.cols, s.x, s.cols, s.w, s.mean, s.rstd, s.dy, s.cols, s.dx, s.cols, s.dw, s.db,
                                  add, 0, 0);
    else
      adapter_table.rmsnorm_bwd(&adapter.context, ROWS, s.cols, s.x, s.cols, s.w, s.rstd, s.dy, s.cols, s.dx, s.cols, s.dw, add, 0);
    for (int64_t r = 0; r < ROWS; r++) check_row(&s, TYPE[type], r, cases[n].centred, add, ROUNDING[type], dw, db);
    for (int64_t c = 0; c < s.cols; c++) {
      assert_true(fabs((double)s.dw[c] - dw[c]) <= 1e-3 * (1 + fabs(dw[c])));
      if (cases[n].centred) assert_true(fabs((double)s.db[c] - db[c]) <= 1e-3 * (1 + fabs(db[c])));
    }
    memory_free();
  }
}
