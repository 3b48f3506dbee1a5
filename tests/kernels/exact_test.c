/* Owns: exact sums: independent of order, splitting and merging, correctly rounded, over the whole range. */
#include "tests/kernels/support.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { COUNT = 3000 };

/* Values of every size: 2^-500 to 2^500. */
static void wild(uint64_t *state, int n, double *x) {
  for (int i = 0; i < n; i++) x[i] = ldexp(value_next(state) + 1.5, (int)(value_next(state) * 500));
}

static void test_order_and_splitting(void **unused) {
  (void)unused;
  uint64_t state = 1;
  double x[COUNT];
  wild(&state, COUNT, x);
  int64_t forward[EXACT_WORDS] = {0}, backward[EXACT_WORDS] = {0}, merged[EXACT_WORDS] = {0};
  int64_t raw[EXACT_WORDS] = {0}, part[7][EXACT_WORDS];
  memset(part, 0, sizeof part);
  for (int i = 0; i < COUNT; i++) {
    exact_add(forward, x[i]);
    exact_add(backward, x[COUNT - 1 - i]);
    exact_add(part[i % 7], x[i]);
  }
  for (int p = 6; p >= 0; p--) {
    exact_merge(merged, part[p]);
    for (int w = 0; w < EXACT_WORDS; w++) raw[w] += part[p][w]; /* as a plain all-reduce would */
  }
  assert_memory_equal(forward, backward, sizeof forward);
  assert_memory_equal(forward, merged, sizeof forward);
  assert_true(exact_value(raw) == exact_value(forward));
  exact_add(raw, 3);
  exact_add(forward, 3);
  assert_true(exact_value(raw) == exact_value(forward));
}

static double sum_of(int n, const double *x) {
  int64_t acc[EXACT_WORDS] = {0};
  for (int i = 0; i < n; i++) exact_add(acc, x[i]);
  return exact_value(acc);
}

#define SUM(...) sum_of(sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})

static void test_values(void **unused) {
  (void)unused;
  int64_t nothing[EXACT_WORDS] = {0};
  assert_true(exact_value(nothing) == 0);
  assert_true(SUM(0.0, 1.0, 0.1) == 1.1);
  assert_true(SUM(1e170, 1.0) == 1e170);
  assert_true(SUM(1, 0x1p-53) == 1);                     /* a tie, to even */
  assert_true(SUM(1, 0x1p-53, 0x1p-600) == 1 + 0x1p-52); /* just above it */
  assert_true(SUM(1 + 0x1p-52, 0x1p-53) == 1 + 0x1p-51); /* a tie, to even, upwards */
  assert_true(SUM(1, 0x1p-54, 0x1p-54) == 1);
  assert_true(SUM(0x1.fffffffffffffp0, 0x1p-53) == 2); /* the carry reaches the exponent */
  assert_true(SUM(1e60, 1.0) == 1e60);
  double smallest = 0x1p-149 * 0x1p-149, largest = (double)FLT_MAX * (double)FLT_MAX;
  assert_true(SUM(smallest) == smallest);
  assert_true(SUM(smallest, smallest, smallest) == 3 * smallest);
  assert_true(SUM(largest, smallest) == largest);
  assert_true(SUM(5e-324) == 0); /* below what is kept */
  for (int bit = -640; bit < 596; bit++) assert_true(SUM(ldexp(1, bit)) == ldexp(1, bit));
}

static void test_many(void **unused) {
  (void)unused;
  int64_t acc[EXACT_WORDS] = {0};
  for (int i = 0; i < 1000000; i++) exact_add(acc, 0x1.fffffffffffffp31);
  assert_true(exact_value(acc) == 1e6 * 0x1.fffffffffffffp31);
  for (int i = 0; i < 40; i++) exact_merge(acc, acc);
  assert_true(exact_value(acc) == ldexp(1e6 * 0x1.fffffffffffffp31, 40));
}

static void test_not_numbers(void **unused) {
  (void)unused;
  assert_true(isnan(SUM(1, NAN)));
  assert_true(isnan(SUM(INFINITY, 1)));
  assert_true(isnan(SUM(-1)));
  assert_true(isnan(SUM(1e300)));
  int64_t bad[EXACT_WORDS] = {0}, good[EXACT_WORDS] = {0};
  exact_add(bad, NAN);
  exact_add(bad, 5);
  exact_add(good, 5);
  exact_merge(good, bad);
  exact_merge(good, bad);
  assert_true(isnan(exact_value(good)));
}

/* Sums of squares do not depend on the variant; only on where runs of 64 begin. */
static void test_sum_squares(void **unused) {
  (void)unused;
  enum { N = 1000 * 64 };
  uint64_t state = 4;
  float *g = memory_get(N * sizeof *g);
  fill_f32(&state, N, g);
  g[5] = 1e30f, g[6] = 1e-38f;
  static const char *const variants[] = {"portable", "avx2", "avx512"};
  int64_t first[EXACT_WORDS] = {0};
  kernels_cpu_named("portable")->sum_squares(NULL, N, g, first);
  for (int v = 0; v < 3; v++) {
    const KernelTable *t = kernels_cpu_named(variants[v]);
    if (!t) continue;
    int64_t parts[EXACT_WORDS] = {0};
    for (int64_t i = 0; i < N; i += 64 * 250) t->sum_squares(NULL, 64 * 250, g + i, parts);
    assert_memory_equal(first, parts, sizeof first);
  }
  kernels_cpu()->sum_squares(NULL, 0, g, first);
  g[77] = NAN;
  kernels_cpu()->sum_squares(NULL, N, g, first);
  assert_true(isnan(exact_value(first)));
  memory_free();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order_and_splitting),
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_many),
      cmocka_unit_test(test_not_numbers),
      cmocka_unit_test(test_sum_squares),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
