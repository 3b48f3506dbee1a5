/* Owns: Philox against the known answers of the Random123 distribution, the values made from it, and
 * dropout's mask. */
#include "kernels/random.h"
#include "tests/kernels/support.h"
#include <stdlib.h>

static void test_known_answers(void **unused) {
  (void)unused;
  Philox zero = philox(0, 0, 0), ones = philox(UINT64_MAX, UINT64_MAX, UINT64_MAX);
  const uint32_t zero_answer[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const uint32_t ones_answer[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  assert_memory_equal(zero.word, zero_answer, sizeof zero_answer);
  assert_memory_equal(ones.word, ones_answer, sizeof ones_answer);
}

static void test_functions(void **unused) {
  (void)unused;
  for (uint64_t w = 0; w <= UINT32_MAX; w += 999983) {
    double u = ((double)w + 0.5) * 0x1p-32, got = random_minus_2_log((uint32_t)w);
    assert_true(fabs(got + 2 * log(u)) <= 1e-15 * (1 + fabs(got)));
  }
  assert_true(fabs(random_minus_2_log(UINT32_MAX) - 0x1p-32) < 1e-18);
  for (double quarters = -1e6; quarters < 1e6; quarters += 1013.3781) {
    SinCos at = sincos_quarters(quarters);
    double angle = remainder(quarters, 4) * 1.57079632679489661923;
    assert_true(fabs(at.sin - sin(angle)) < 1e-15 && fabs(at.cos - cos(angle)) < 1e-15);
  }
}

static void test_distributions(void **unused) {
  (void)unused;
  enum { N = 400000 };
  double mean = 0, square = 0, fourth = 0, neighbours = 0, last = 0, uniform = 0;
  for (uint64_t i = 0; i < N; i++) {
    double x = random_normal(7, 8, i), u = random_uniform(7, 9, i);
    assert_true(u >= 0 && u < 1);
    mean += x, square += x * x, fourth += x * x * x * x, neighbours += x * last, uniform += u;
    last = x;
  }
  assert_true(fabs(mean / N) < 0.008 && fabs(square / N - 1) < 0.012 && fabs(fourth / N - 3) < 0.08);
  assert_true(fabs(neighbours / N) < 0.008 && fabs(uniform / N - 0.5) < 0.003);
}

/* Any piece of a parameter has the values that its elements have in the whole. */
static void test_init(void **unused) {
  (void)unused;
  enum { N = 500 };
  float w[N];
  for (int64_t first = 0; first < 200; first += 67) {
    InitFill normal = {2, 0.02, 11, 12}, uniform = {3, 0.25, 11, 12};
    kernels_cpu()->init_fill(NULL, &normal, first, N, w);
    for (int i = 0; i < N; i++)
      assert_true(w[i] == (float)(0.02 * random_normal(11, 12, (uint64_t)(first + i))));
    kernels_cpu()->init_fill(NULL, &uniform, first, N, w);
    for (int i = 0; i < N; i++) {
      double want = 0.25 * (2 * random_uniform(11, 12, (uint64_t)(first + i)) - 1);
      assert_true(fabs((double)w[i] - want) < 1e-7 && w[i] >= -0.25f && w[i] < 0.25f);
    }
  }
}

static void mask_of(DropoutSite site, int64_t rows, int64_t cols, float *y) {
  for (int64_t i = 0; i < rows * cols; i++) y[i] = 1;
  kernels_cpu()->dropout(NULL, &site, rows, cols, y, cols, y, cols, 0);
}

static void test_dropout(void **unused) {
  (void)unused;
  enum { ROWS = 64, COLS = 1000, N = ROWS * COLS };
  float *a = memory_get(N * sizeof *a), *b = memory_get(N * sizeof *b);
  DropoutSite site = {0.25, 1, 2, 3, 100, 16}, other;
  mask_of(site, ROWS, COLS, a);
  int kept = 0, column_kept = 0;
  for (int i = 0; i < N; i++) {
    assert_true(a[i] == 0 || a[i] == (float)(1 / 0.75));
    kept += a[i] != 0;
    column_kept += i % COLS == 3 && a[i] != 0;
  }
  assert_true(abs(kept - N * 3 / 4) < 500 && column_kept > ROWS / 2 && column_kept < ROWS);
  other = site, other.first_sample = 102; /* samples 102, 103 are rows 32 .. 63 of the above */
  mask_of(other, ROWS / 2, COLS, b);
  assert_memory_equal(b, a + N / 2, N / 2 * sizeof *a);
  for (int change = 0; change < 4; change++) {
    other = site;
    if (change == 0) other.seed++;
    if (change == 1) other.step++;
    if (change == 2) other.site++;
    if (change == 3) other.first_sample += 50;
    mask_of(other, ROWS, COLS, b);
    int equal = 0;
    for (int i = 0; i < N; i++) equal += (a[i] == 0) == (b[i] == 0);
    assert_true(abs(equal - N * 10 / 16) < 700); /* 0.75^2 + 0.25^2 */
  }
  static const char *const variants[] = {"portable", "avx2", "avx512"};
  for (int v = 0; v < 3; v++) { /* the mask is everyone's */
    const KernelTable *t = kernels_cpu_named(variants[v]);
    if (!t) continue;
    for (int i = 0; i < N; i++) b[i] = 1;
    t->dropout(NULL, &site, ROWS, COLS, b, COLS, b, COLS, 0);
    assert_memory_equal(a, b, N * sizeof *a);
  }
  site.p = 0;
  mask_of(site, ROWS, COLS, a);
  for (int i = 0; i < N; i++) assert_true(a[i] == 1);
  site.p = 1;
  mask_of(site, ROWS, COLS, a);
  for (int i = 0; i < N; i++) assert_true(a[i] == 0);
  memory_free();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_answers), cmocka_unit_test(test_functions),
      cmocka_unit_test(test_distributions), cmocka_unit_test(test_init),
      cmocka_unit_test(test_dropout),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
