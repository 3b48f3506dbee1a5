/* Owns: float variants against double, and results that must not move: under any number of threads, any
 * alignment, with any product library. */
#include "tests/kernels/scenario.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const VARIANTS[] = {"portable", "avx2", "avx512"};
enum { VARIANT_COUNT = 3 };

static Scene run_f32(const Scenario *scenario, const KernelTable *table, const Gemm *gemm, int threads,
                     int64_t misaligned) {
  Pool pool = pool_of(threads);
  KernelContext k = {.parallel = threads ? &pool.parallel : NULL, .gemm = gemm};
  Scene s = {.state = 5, .misaligned = misaligned};
  scenario->f32(&s, table, &k);
  return s;
}

/* Errors are measured against the scenario's typical output, its root mean square: an output far above it may
 * err in proportion to itself. */
static void compare(const Scenario *scenario, const char *variant, const Scene *got, const Scene *expected) {
  assert_int_equal(got->count, expected->count);
  double squares = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < expected->count; i++) {
    if (isfinite(expected->out[i])) squares += expected->out[i] * expected->out[i], finite++;
  }
  double typical = sqrt(squares / (double)finite);
  for (int64_t i = 0; i < got->count; i++) {
    double want = expected->out[i], error = fabs(got->out[i] - want);
    if (error <= scenario->tolerance * (typical + fabs(want)) || got->out[i] == want) continue;
    fail_msg("%s, %s: output %ld is %.9g, in double %.9g", scenario->name, variant, (long)i, got->out[i],
             want);
  }
}

static void test_float_against_double(void **unused) {
  (void)unused;
  KernelContext alone = {0};
  for (int i = 0; i < SCENARIO_COUNT; i++) {
    Scene expected = {.state = 5};
    SCENARIOS[i].f64(&expected, kernels_cpu_f64(), &alone);
    for (int v = 0; v < VARIANT_COUNT; v++) {
      const KernelTable *table = kernels_cpu_named(VARIANTS[v]);
      if (!table) continue;
      Scene got = run_f32(&SCENARIOS[i], table, gemm_builtin(), 0, 0);
      compare(&SCENARIOS[i], VARIANTS[v], &got, &expected);
    }
    memory_free();
  }
}

static void assert_same(const Scenario *scenario, const char *what, const Scene *a, const Scene *b) {
  assert_int_equal(a->count, b->count);
  for (int64_t i = 0; i < a->count; i++) {
    if (memcmp(&a->out[i], &b->out[i], sizeof(double)) == 0) continue;
    fail_msg("%s, %s: output %ld is %.17g, was %.17g", scenario->name, what, (long)i, b->out[i], a->out[i]);
  }
}

static void test_threads_and_alignment(void **unused) {
  (void)unused;
  static const char *const libraries[] = {"onednn", "openblas", "builtin"};
  for (int i = 0; i < SCENARIO_COUNT; i++) {
    for (int v = 0; v < VARIANT_COUNT; v++) {
      const KernelTable *table = kernels_cpu_named(VARIANTS[v]);
      for (int l = 0; table && l < 3; l++) {
        const Gemm *gemm = gemm_open(libraries[l], NULL);
        if (!gemm || (l < 2 && strncmp(SCENARIOS[i].name, "linear", 6) != 0)) continue;
        Scene alone = run_f32(&SCENARIOS[i], table, gemm, 0, 0),
              two = run_f32(&SCENARIOS[i], table, gemm, 2, 0);
        Scene three = run_f32(&SCENARIOS[i], table, gemm, 3, 1),
              one = run_f32(&SCENARIOS[i], table, gemm, 1, 5);
        assert_same(&SCENARIOS[i], "two threads", &alone, &two);
        assert_same(&SCENARIOS[i], "three threads, shifted", &alone, &three);
        assert_same(&SCENARIOS[i], "one thread, shifted", &alone, &one);
        memory_free();
      }
    }
  }
}

/* Kernels that only compare, add in a given order, or give up fused multiply-adds. */
static void test_same_in_every_variant(void **unused) {
  (void)unused;
  for (int i = 0; i < SCENARIO_COUNT; i++) {
    static const char *const same[] = {"init", "tree_sum", "relu"};
    int wanted = 0;
    for (size_t n = 0; n < sizeof same / sizeof *same; n++) wanted |= strcmp(SCENARIOS[i].name, same[n]) == 0;
    if (!wanted) continue;
    Scene first = run_f32(&SCENARIOS[i], kernels_cpu_named("portable"), gemm_builtin(), 0, 0);
    for (int v = 1; v < VARIANT_COUNT; v++) {
      const KernelTable *table = kernels_cpu_named(VARIANTS[v]);
      if (!table) continue;
      Scene other = run_f32(&SCENARIOS[i], table, gemm_builtin(), 0, 0);
      assert_same(&SCENARIOS[i], VARIANTS[v], &first, &other);
    }
    memory_free();
  }
}

static void test_choice(void **unused) {
  (void)unused;
  assert_non_null(kernels_cpu());
  assert_non_null(kernels_cpu_named("portable"));
  assert_null(kernels_cpu_named("sparc"));
  assert_null(kernels_cpu_named(NULL));
  assert_string_equal(kernels_cpu_f64()->name, "f64");
  const char *asked = getenv("FSDPC_ISA");
  setenv("FSDPC_ISA", "portable", 1);
  assert_ptr_equal(kernels_cpu(), kernels_cpu_named("portable"));
  setenv("FSDPC_ISA", "sparc", 1);
  assert_null(kernels_cpu());
  assert_non_null(gemm_builtin());
  if (asked)
    setenv("FSDPC_ISA", asked, 1);
  else
    unsetenv("FSDPC_ISA");
}

int main(void) {
  kernels_thread_init();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_choice),
      cmocka_unit_test(test_float_against_double),
      cmocka_unit_test(test_threads_and_alignment),
      cmocka_unit_test(test_same_in_every_variant),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
