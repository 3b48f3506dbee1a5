/* Owns: what single kernels promise beyond their gradients: accuracy of the functions, the tree of sums,
 * updates against a scalar reference, and behaviour at the edges. */
#include "tests/kernels/support.h"
#include <math.h>
#include <string.h>

static const char *const VARIANTS[] = {"portable", "avx2", "avx512"};
enum { VARIANT_COUNT = 3 };

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

static double silu(double x) {
  return x * sigmoid(x);
}

static double gelu_tanh(double x) {
  return x * sigmoid(2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x));
}

static double gelu_erf(double x) {
  return 0.5 * x * erfc(-x * sqrt(0.5));
}

/* gelu's relative error grows in its left tail with the exponent that is rounded there. */
static void check_function(const char *what, const float *x, const float *y, int n, double (*f)(double),
                           double relative) {
  for (int i = 0; i < n; i++) {
    double want = f((double)x[i]), error = fabs((double)y[i] - want);
    if (error <= relative * fabs(want) + 1e-36 * fabs((double)x[i])) continue;
    fail_msg("%s(%.9g) = %.9g, not %.9g", what, (double)x[i], (double)y[i], want);
  }
}

static void test_function_accuracy(void **unused) {
  (void)unused;
  enum { N = 60001 };
  float *x = memory_get(N * sizeof *x), *y = memory_get(N * sizeof *y);
  for (int v = 0; v < VARIANT_COUNT; v++) {
    const KernelTable *t = kernels_cpu_named(VARIANTS[v]);
    if (!t) continue;
    for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2) * (60.0f / N);
    t->silu_fwd(NULL, 1, N, x, N, y, N);
    check_function("silu", x, y, N, silu, 4e-7);
    for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2) * (8.0f / N);
    t->gelu_fwd(NULL, 1, N, 0, x, N, y, N);
    check_function("gelu_tanh", x, y, N, gelu_tanh, 2e-6);
    t->gelu_fwd(NULL, 1, N, 1, x, N, y, N);
    check_function("gelu_erf", x, y, N, gelu_erf, 5e-6);
    x[0] = NAN;
    t->gelu_fwd(NULL, 1, 1, 0, x, 1, y, 1), assert_true(isnan(y[0]));
    t->gelu_fwd(NULL, 1, 1, 1, x, 1, y, 1), assert_true(isnan(y[0]));
    t->silu_fwd(NULL, 1, 1, x, 1, y, 1), assert_true(isnan(y[0]));
    t->relu_fwd(NULL, 1, 1, x, 1, y, 1), assert_true(isnan(y[0]));
  }
  memory_free();
}

/* One kernel gives what silu and the product give one after the other, every bit of it. */
static void test_silu_mul_is_both(void **unused) {
  (void)unused;
  enum { ROWS = 7, COLS = 1003, N = ROWS * COLS, BYTES = N * sizeof(float) };
  float *x = memory_get(BYTES), *u = memory_get(BYTES), *dy = memory_get(BYTES), *s = memory_get(BYTES), *ds = memory_get(BYTES);
  float *got[2] = {memory_get(BYTES), memory_get(BYTES)}, *want[2] = {memory_get(BYTES), memory_get(BYTES)};
  uint64_t state = 4;
  fill_f32(&state, N, x), fill_f32(&state, N, u), fill_f32(&state, N, dy);
  for (int i = 0; i < N; i++) x[i] *= 20;
  for (int v = 0; v < VARIANT_COUNT; v++) {
    const KernelTable *t = kernels_cpu_named(VARIANTS[v]);
    if (!t) continue;
    t->silu_fwd(NULL, ROWS, COLS, x, COLS, s, COLS);
    t->mul(NULL, ROWS, COLS, s, COLS, u, COLS, want[0], COLS, 0);
    t->silu_mul_fwd(NULL, ROWS, COLS, x, COLS, u, COLS, got[0], COLS);
    assert_memory_equal(got[0], want[0], BYTES);
    for (int add = 0; add < 2; add++) {
      t->mul(NULL, ROWS, COLS, u, COLS, dy, COLS, ds, COLS, 0);
      t->silu_bwd(NULL, ROWS, COLS, x, COLS, ds, COLS, want[0], COLS, add);
      t->mul(NULL, ROWS, COLS, s, COLS, dy, COLS, want[1], COLS, add);
      t->silu_mul_bwd(NULL, ROWS, COLS, x, COLS, u, COLS, dy, COLS, got[0], COLS, add, got[1], COLS, add);
      for (int n = 0; n < 2; n++) assert_memory_equal(got[n], want[n], BYTES);
    }
  }
  memory_free();
}

/* The number is rounded to float, and the product once. */
static void test_scale_rounds_once(void **unused) {
  (void)unused;
  enum { N = 1003 };
  float x[N], y[N];
  uint64_t state = 5;
  fill_f32(&state, N, x);
  for (int v = 0; v < VARIANT_COUNT; v++) {
    const KernelTable *t = kernels_cpu_named(VARIANTS[v]);
    if (!t) continue;
    t->scale(NULL, 1, N, 1.0 / 3, x, N, y, N, 0);
    for (int i = 0; i < N; i++) assert_true(y[i] == (float)((double)(1.0f / 3) * (double)x[i]));
  }
}

/* --- tree of sums ------------------------------------------------------------------------------------------------- */

static float tree(const float *const *x, int lo, int n, int64_t i) {
  if (n == 1) return x[lo][i];
  int p = 1;
  while (2 * p < n) p *= 2;
  float left = tree(x, lo, p, i), right = tree(x, lo + p, n - p, i);
  return left + right;
}

static void test_tree(void **unused) {
  (void)unused;
  enum { RANKS = 21, N = 1500 };
  uint64_t state = 2;
  const float *x[RANKS];
  const void *const *sources = (const void *const *)x;
  for (int r = 0; r < RANKS; r++) {
    float *values = memory_get(N * sizeof *values);
    fill_f32(&state, N, values);
    x[r] = values;
  }
  float *y = memory_get(N * sizeof *y), *parts[4];
  const KernelTable *t = kernels_cpu();
  for (int ranks = 1; ranks <= RANKS; ranks++) {
    t->tree_sum(N, ranks, FLOAT_REAL, sources, y, 0);
    for (int i = 0; i < N; i++) assert_true(y[i] == tree(x, 0, ranks, i));
    for (int i = 0; i < N; i++) y[i] = 5;
    t->tree_sum(N, ranks, FLOAT_REAL, sources, y, 1);
    for (int i = 0; i < N; i++) assert_true(y[i] == 5 + tree(x, 0, ranks, i));
  }
  /* Groups of four, then the groups: the bits of the whole. */
  for (int g = 0; g < 4; g++) {
    parts[g] = memory_get(N * sizeof *y);
    t->tree_sum(N, 4, FLOAT_REAL, sources + 4 * g, parts[g], 0);
  }
  t->tree_sum(N, 4, FLOAT_REAL, (const void *const *)parts, parts[2], 0); /* into one of its sources */
  t->tree_sum(N, 16, FLOAT_REAL, sources, y, 0);
  assert_memory_equal(y, parts[2], N * sizeof *y);
  memory_free();
}

/* --- updates ------------------------------------------------------------------------------------------------------ */

static void test_adamw(void **unused) {
  (void)unused;
  enum { N = 1003 };
  uint64_t state = 3;
  float g[N], w[N], m[N] = {0}, v[N] = {0};
  double dw[N], dm[N] = {0}, dv[N] = {0};
  fill_f32(&state, N, w);
  for (int i = 0; i < N; i++) dw[i] = (double)w[i];
  for (int step = 1; step <= 5; step++) {
    AdamwRates r = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1 - pow(0.9, step), 1 - pow(0.95, step), 0.25};
    fill_f32(&state, N, g);
    for (int i = 0; i < N; i++) {
      double gi = (double)g[i] * r.grad_scale;
      dm[i] = r.beta1 * dm[i] + (1 - r.beta1) * gi;
      dv[i] = r.beta2 * dv[i] + (1 - r.beta2) * gi * gi;
      dw[i] -= r.lr * (dm[i] / r.bias1 / (sqrt(dv[i] / r.bias2) + r.eps) + r.decay * dw[i]);
    }
    /* In two pieces: a shard's border changes no bit. */
    float whole_w[N], whole_m[N], whole_v[N];
    memcpy(whole_w, w, sizeof w), memcpy(whole_m, m, sizeof m), memcpy(whole_v, v, sizeof v);
    kernels_cpu()->adamw(NULL, N, &r, g, whole_w, whole_m, whole_v);
    kernels_cpu()->adamw(NULL, 517, &r, g, w, m, v);
    kernels_cpu()->adamw(NULL, N - 517, &r, g + 517, w + 517, m + 517, v + 517);
    assert_memory_equal(w, whole_w, sizeof w);
    for (int i = 0; i < N; i++) {
      assert_true(fabs((double)w[i] - dw[i]) < 1e-6 && fabs((double)m[i] - dm[i]) < 1e-7);
      assert_true(fabs((double)v[i] - dv[i]) < 1e-7);
    }
  }
}

static void test_sgd(void **unused) {
  (void)unused;
  enum { N = 77 };
  uint64_t state = 3;
  for (int with_momentum = 0; with_momentum < 2; with_momentum++) {
    float g[N], w[N], m[N] = {0};
    double dw[N], dm[N] = {0};
    fill_f32(&state, N, w);
    for (int i = 0; i < N; i++) dw[i] = (double)w[i];
    SgdRates r = {0.1, with_momentum ? 0.9 : 0, 0.01, 0.5};
    for (int step = 0; step < 5; step++) {
      fill_f32(&state, N, g);
      for (int i = 0; i < N; i++) {
        dm[i] = r.momentum * dm[i] + (double)g[i] * r.grad_scale;
        dw[i] -= r.lr * (dm[i] + r.decay * dw[i]);
      }
      kernels_cpu()->sgd(NULL, N, &r, g, w, with_momentum ? m : NULL);
      for (int i = 0; i < N; i++) assert_true(fabs((double)w[i] - dw[i]) < 1e-6);
    }
  }
}

static void test_lion(void **unused) {
  (void)unused;
  enum { N = 77 };
  uint64_t state = 3;
  float g[N], w[N], m[N] = {0};
  double dw[N], dm[N] = {0};
  fill_f32(&state, N, w);
  for (int i = 0; i < N; i++) dw[i] = (double)w[i];
  LionRates r = {1e-2, 0.9, 0.99, 0.1, 0.5};
  for (int step = 0; step < 5; step++) {
    fill_f32(&state, N, g);
    g[7] = 0; /* its momentum stays 0: no step, only decay */
    for (int i = 0; i < N; i++) {
      double gi = (double)g[i] * r.grad_scale, c = r.beta1 * dm[i] + (1 - r.beta1) * gi;
      dw[i] -= r.lr * ((c > 0) - (c < 0) + r.decay * dw[i]);
      dm[i] = r.beta2 * dm[i] + (1 - r.beta2) * gi;
    }
    kernels_cpu()->lion(NULL, N, &r, g, w, m);
    for (int i = 0; i < N; i++) assert_true(fabs((double)w[i] - dw[i]) < 1e-6 && fabs((double)m[i] - dm[i]) < 1e-7);
  }
}

/* --- edges -------------------------------------------------------------------------------------------------------- */

static void test_tokens_outside(void **unused) {
  (void)unused;
  const KernelTable *t = kernels_cpu();
  int32_t tokens[3] = {1, 9, -1};
  float table[6] = {1, 2, 3, 4, 5, 6}, y[6], dt[6];
  t->embedding_fwd(NULL, 3, 3, 2, tokens, table, y, 2);
  assert_true(y[0] == 3 && y[1] == 4 && isnan(y[2]) && isnan(y[5]));
  t->embedding_bwd(NULL, 3, 3, 2, tokens, table, 2, dt, 0);
  assert_true(dt[0] == 0 && dt[2] == 1 && dt[3] == 2 && dt[5] == 0);
  float logits[6] = {0, 1, 2, 0, 1, 2}, row_loss[2];
  int32_t targets[2] = {7, -100};
  double loss = 0;
  t->cross_entropy(NULL, 2, 3, -100, 1, logits, 3, targets, &loss, row_loss);
  assert_true(isnan(loss) && isnan(row_loss[0]) && row_loss[1] == 0 && isnan(logits[0]) && logits[3] == 0);
}

static void test_count_zero(void **unused) {
  (void)unused;
  float logits[3] = {0, 1, 2}, row_loss[1];
  int32_t targets[1] = {-100};
  double loss = 4;
  kernels_cpu()->cross_entropy(NULL, 1, 3, -100, 0, logits, 3, targets, &loss, row_loss);
  assert_true(loss == 4 && logits[0] == 0 && logits[1] == 0 && logits[2] == 0);
}

/* A query that sees nothing gives nothing, and takes nothing back. */
static void test_attention_blind_queries(void **unused) {
  (void)unused;
  AttentionShape shape = {1, 4, 2, 1, 1, 2, 1, 1};
  float q[8] = {1, 2, 3, 4, 5, 6, 7, 8}, k[4] = {1, 2, 3, 4}, v[4] = {5, 6, 7, 8}, o[8], lse[4], dq[8], dk[4],
        dv[4];
  memset(dq, 0xff, sizeof dq);
  kernels_cpu()->attention_fwd(NULL, &shape, q, 2, k, 2, v, 2, o, 2, lse);
  assert_true(o[0] == 0 && o[3] == 0 && o[4] == 5 && isinf(lse[0]) && isinf(lse[1]) && lse[2] == 17);
  kernels_cpu()->attention_bwd(NULL, &shape, q, 2, k, 2, v, 2, o, 2, lse, q, 2, dq, 2, 0, dk, 2, 0, dv, 2, 0);
  for (int i = 0; i < 8; i++) assert_true(isfinite(dq[i]) && (i > 4 || dq[i] == 0));
  for (int i = 0; i < 4; i++) assert_true(isfinite(dk[i]) && isfinite(dv[i]));
}

/* Scores far apart: no overflow, and rows sum to one. */
static void test_attention_extremes(void **unused) {
  (void)unused;
  enum { T = 130 };
  AttentionShape shape = {1, T, T, 1, 1, 1, 0, 1};
  float q[T], k[T], v[T], o[T], lse[T];
  for (int i = 0; i < T; i++) q[i] = 1000, k[i] = (float)((i * 37) % T) * 10, v[i] = 2;
  kernels_cpu()->attention_fwd(NULL, &shape, q, 1, k, 1, v, 1, o, 1, lse);
  for (int i = 0; i < T; i++) assert_true(o[i] == 2 && lse[i] == 1290000);
}

static void test_denormals_flushed(void **unused) {
  (void)unused;
#if defined(__x86_64__)
  kernels_thread_init();
  volatile float small = 1e-38f, less = small * 0.01f;
  assert_true(less == 0);
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_function_accuracy),
      cmocka_unit_test(test_silu_mul_is_both),
      cmocka_unit_test(test_scale_rounds_once),
      cmocka_unit_test(test_tree),
      cmocka_unit_test(test_adamw),
      cmocka_unit_test(test_sgd),
      cmocka_unit_test(test_lion),
      cmocka_unit_test(test_tokens_outside),
      cmocka_unit_test(test_count_zero),
      cmocka_unit_test(test_attention_blind_queries),
      cmocka_unit_test(test_attention_extremes),
      cmocka_unit_test(test_denormals_flushed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
