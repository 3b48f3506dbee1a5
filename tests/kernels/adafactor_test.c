/* Owns: Adafactor's kernels: however a parameter is cut into ranges, on any threads, sums, norms and updates are the
 * same bits; and they are what the formulas in double say. */
#include "tests/kernels/support.h"

#include <math.h>
#include <string.h>

static const char *const VARIANTS[] = {"portable", "avx2", "avx512"};

/* rows x cols; cols 0: a vector of `rows` elements. */
typedef struct Case {
  int64_t rows, cols;
} Case;

static const Case CASES[] = {{1, 64}, {64, 1}, {300, 77}, {5, 3000}, {130, 1024}, {40001, 0}};
enum { CASES_COUNT = sizeof CASES / sizeof *CASES };

typedef struct Result {
  int64_t *sums; /* rows, then columns */
  int64_t norm[EXACT_WORDS];
  float *w;
} Result;

static int64_t numel(const Case *c) { return c->cols ? c->rows * c->cols : c->rows; }
static int64_t moments(const Case *c) { return c->rows + c->cols; }

static double grid_of(const float *g, int64_t n) {
  double squares = 0;
  int exponent;
  for (int64_t i = 0; i < n; i++) squares += (double)g[i] * g[i];
  frexp(squares, &exponent);
  return ldexp(1, 62 - exponent);
}

static AdafactorRates rates_of(const float *v, const Case *c) {
  double mean = 0;
  for (int64_t r = 0; r < c->rows; r++) mean += v[r] / (double)c->rows;
  return (AdafactorRates){.grad_scale = 0.5, .row_scale = 1 / mean, .floor = 0x1p-46, .keep = 0.99, .step = 0.01};
}

/* The parameter in ranges of `part` elements, a multiple of 64. */
static Result run(const KernelTable *t, int threads, const Case *c, const float *g, const float *w, const float *v, int64_t part) {
  Pool pool = pool_of(threads);
  KernelContext k = {.parallel = threads ? &pool.parallel : NULL};
  AdafactorRates rates = rates_of(v, c);
  Result result = {memory_get((size_t)moments(c) * sizeof(int64_t)), {0}, memory_get((size_t)numel(c) * sizeof(float))};
  memcpy(result.w, w, (size_t)numel(c) * sizeof(float));
  const float *col = c->cols ? v + c->rows : NULL;
  int64_t cols = c->cols ? c->cols : 1;
  for (int64_t first = 0; first < numel(c); first += part) {
    int64_t n = numel(c) - first < part ? numel(c) - first : part;
    t->adafactor_sums(&k, first, n, cols, grid_of(g, numel(c)), g + first, result.sums, c->cols ? result.sums + c->rows : NULL);
    t->adafactor_norm(&k, &rates, first, n, cols, v, col, g + first, result.norm);
    t->adafactor(&k, &rates, first, n, cols, v, col, g + first, result.w + first);
  }
  return result;
}

static void open_case(const Case *c, float **g, float **w, float **v) {
  uint64_t state = 11;
  *g = memory_get((size_t)numel(c) * sizeof(float)), *w = memory_get((size_t)numel(c) * sizeof(float));
  *v = memory_get((size_t)moments(c) * sizeof(float));
  fill_f32(&state, numel(c), *g);
  fill_f32(&state, numel(c), *w);
  fill_f32(&state, moments(c), *v);
  for (int64_t i = 0; i < moments(c); i++) (*v)[i] = fabsf((*v)[i]) + 0.01f;
  (*g)[0] = 0, (*g)[1] = 1e-30f, (*g)[2] = 900; /* far apart */
}

static void test_any_cut(void **unused) {
  (void)unused;
  for (int i = 0; i < CASES_COUNT; i++) {
    const Case *c = &CASES[i];
    float *g, *w, *v;
    open_case(c, &g, &w, &v);
    Result first = {0};
    for (int variant = 0; variant < 3; variant++) {
      const KernelTable *t = kernels_cpu_named(VARIANTS[variant]);
      if (!t) continue;
      Result whole = run(t, 0, c, g, w, v, numel(c));
      if (!first.sums) first = whole;
      assert_memory_equal(first.sums, whole.sums, (size_t)moments(c) * sizeof(int64_t)); /* integers: every variant */
      static const int64_t parts[] = {64, 64 * 11, 64 * 601};
      for (int p = 0; p < 3; p++) {
        if (numel(c) / parts[p] > 250) continue;
        Result cut = run(t, p, c, g, w, v, parts[p]);
        assert_memory_equal(whole.sums, cut.sums, (size_t)moments(c) * sizeof(int64_t));
        assert_memory_equal(whole.norm, cut.norm, sizeof whole.norm);
        assert_memory_equal(whole.w, cut.w, (size_t)numel(c) * sizeof(float));
      }
    }
    memory_free();
  }
}

static void test_formulas(void **unused) {
  (void)unused;
  for (int i = 0; i < CASES_COUNT; i++) {
    const Case *c = &CASES[i];
    float *g, *w, *v;
    open_case(c, &g, &w, &v);
    Result got = run(kernels_cpu(), 2, c, g, w, v, numel(c));
    AdafactorRates rates = rates_of(v, c);
    double *sums = memory_get((size_t)moments(c) * sizeof *sums), total = 0, norm = 0, grid = grid_of(g, numel(c));
    for (int64_t e = 0; e < numel(c); e++) {
      int64_t r = c->cols ? e / c->cols : e, column = c->cols ? e % c->cols : 0;
      double square = (double)g[e] * g[e], second = c->cols ? v[r] * rates.row_scale * v[c->rows + column] : v[r];
      double update = rates.grad_scale * g[e] / sqrt(fmax(second, rates.floor));
      sums[r] += square, total += square, norm += update * update;
      if (c->cols) sums[c->rows + column] += square;
      assert_true(fabs(got.w[e] - (rates.keep * w[e] - rates.step * update)) <= 1e-6 * (1 + fabs(rates.step * update)));
    }
    for (int64_t m = 0; m < moments(c); m++) assert_true(fabs((double)got.sums[m] / grid - sums[m]) <= 1e-12 * total);
    assert_true(fabs(exact_value(got.norm) - norm) <= 1e-5 * norm);
    memory_free();
  }
}

static void test_average(void **unused) {
  (void)unused;
  const int64_t sums[] = {0, INT64_C(1) << 40, INT64_MAX};
  float v[] = {8, 8, 0};
  kernels_cpu()->adafactor_average(3, 0.25, 0x1p-40, sums, v);
  assert_true(v[0] == 6 && v[1] == 6.25f && v[2] == 0.25f * 0x1p23f);
}

/* Gradients of 16 bits: what the same values in 32 give, however they are cut. */
static void test_half_gradients(void **unused) {
  (void)unused;
  for (int i = 0; i < CASES_COUNT; i++) {
    const Case *c = &CASES[i];
    const KernelTable *t = kernels_cpu();
    float *g, *w, *v;
    open_case(c, &g, &w, &v);
    AdafactorRates rates = rates_of(v, c);
    const float *col = c->cols ? v + c->rows : NULL;
    int64_t cols = c->cols ? c->cols : 1, parts[] = {numel(c), 64 * 601};
    for (int type = FLOAT_BF16; type <= FLOAT_F16; type++) {
      Half *halves = memory_get((size_t)numel(c) * sizeof *halves);
      for (int64_t e = 0; e < numel(c); e++) {
        halves[e] = half_of_float((FloatType)type, g[e]);
        g[e] = float_of_half((FloatType)type, halves[e]);
      }
      Result want = run(t, 0, c, g, w, v, numel(c));
      for (int p = 0; p < 2; p++) {
        KernelContext k = {.gradient = (FloatType)type};
        Result got = {memory_get((size_t)moments(c) * sizeof(int64_t)), {0}, memory_get((size_t)numel(c) * sizeof(float))};
        memcpy(got.w, w, (size_t)numel(c) * sizeof(float));
        for (int64_t first = 0; first < numel(c); first += parts[p]) {
          int64_t n = numel(c) - first < parts[p] ? numel(c) - first : parts[p];
          t->adafactor_sums(&k, first, n, cols, grid_of(g, numel(c)), halves + first, got.sums,
                            c->cols ? got.sums + c->rows : NULL);
          t->adafactor_norm(&k, &rates, first, n, cols, v, col, halves + first, got.norm);
          t->adafactor(&k, &rates, first, n, cols, v, col, halves + first, got.w + first);
        }
        assert_memory_equal(want.sums, got.sums, (size_t)moments(c) * sizeof(int64_t));
        assert_memory_equal(want.norm, got.norm, sizeof want.norm);
        assert_memory_equal(want.w, got.w, (size_t)numel(c) * sizeof(float));
      }
    }
    memory_free();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_cut), cmocka_unit_test(test_formulas),
                                     cmocka_unit_test(test_average),
                                     cmocka_unit_test(test_half_gradients)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
