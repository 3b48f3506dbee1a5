/* Owns: elements of 16 bits: conversions, one by one and in vectors; every kernel against double within what 8 and 11 bits
 * allow; results that must not move with threads and alignment; stochastic rounding of weights; sums over ranks whose subtrees may be taken apart. */
#include "tests/kernels/half_adapter.h"
#include "tests/kernels/scenario.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const VARIANTS[] = {"portable", "avx2", "avx512"};
static const char *const TYPES[] = {[FLOAT_BF16] = "bf16", [FLOAT_F16] = "f16"};
enum { VARIANT_COUNT = 3, HALVES = 1 << 16 };

/* Scenarios draw multiples of 1/128, which every type holds. */
double coarse_value_next(uint64_t *state) {
  return floor(value_next(state) * 128) / 128;
}

/* --- conversions -------------------------------------------------------------------------------------------------- */

/* By definition: sign, exponent and fraction as IEEE 754 lays them out. */
static double value_of(FloatType type, uint16_t bits) {
  int fraction_bits = type == FLOAT_BF16 ? 7 : 10, bias = type == FLOAT_BF16 ? 127 : 15;
  int top = type == FLOAT_BF16 ? 255 : 31, exponent = bits >> fraction_bits & top;
  double fraction = bits & ((1 << fraction_bits) - 1), sign = bits >> 15 ? -1 : 1;
  if (exponent == top) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
  return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static int same(double a, double b) {
  return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void test_every_half_widens(void **unused) {
  (void)unused;
  for (FloatType type = FLOAT_BF16; type <= FLOAT_F16; type++)
    for (uint32_t bits = 0; bits < HALVES; bits++) {
      Half half = {(uint16_t)bits};
      double want = value_of(type, half.bits);
      if (fabs(want) > 0 && fabs(want) < 0x1p-126) continue; /* bf16's denormals are floats' */
      float x = float_of_half(type, half);
      if (!same((double)x, want)) fail_msg("%s %04x widens to %g, not %g", TYPES[type], bits, (double)x, want);
      if (!isnan(want) && half_of_float(type, x).bits != bits) fail_msg("%s %04x does not come back", TYPES[type], bits);
    }
}

/* A number between two neighbours goes to the nearer; in the middle to the even one; beyond the last to infinity. */
static void test_narrowing_is_to_nearest_even(void **unused) {
  (void)unused;
  for (FloatType type = FLOAT_BF16; type <= FLOAT_F16; type++) {
    uint32_t infinity = type == FLOAT_BF16 ? 0x7f80 : 0x7c00, first = type == FLOAT_BF16 ? 0x80 : 0;
    for (uint32_t bits = first; bits < infinity; bits++) {
      double low = value_of(type, (uint16_t)bits);
      double high = bits + 1 == infinity ? 2 * low - value_of(type, (uint16_t)(bits - 1)) : value_of(type, (uint16_t)(bits + 1));
      float middle = (float)((low + high) / 2);
      assert_true((double)middle == (low + high) / 2);
      assert_int_equal(half_of_float(type, middle).bits, bits + (bits & 1));
      assert_int_equal(half_of_float(type, -nextafterf(middle, 0)).bits, bits | 0x8000);
      assert_int_equal(half_of_float(type, nextafterf(middle, INFINITY)).bits, bits + 1);
    }
    assert_int_equal(half_of_float(type, INFINITY).bits, infinity);
    assert_true(isnan((double)float_of_half(type, half_of_float(type, NAN))));
  }
}

/* By a number that 16 bits do not hold. */
static void test_scale_rounds_once(void **unused) {
  (void)unused;
  Half *x = memory_get(HALVES * sizeof *x), *y = memory_get(HALVES * sizeof *y);
  for (FloatType type = FLOAT_BF16; type <= FLOAT_F16; type++)
    for (int v = 0; v < VARIANT_COUNT; v++) {
      const KernelTable16 *table = kernels_cpu_half_named(type, VARIANTS[v]);
      if (!table) continue;
      for (uint32_t i = 0; i < HALVES; i++) x[i].bits = (uint16_t)i;
      table->scale(NULL, 1, HALVES, 1.0 / 3, x, HALVES, y, HALVES, 0);
      for (uint32_t i = 0; i < HALVES; i++) {
        float wide = float_of_half(type, x[i]);
        if (isnan(wide) || fabsf(wide) < 0x1p-120f) continue; /* denormals may become zeros */
        if (y[i].bits != half_of_float(type, 1.0f / 3 * wide).bits) fail_msg("%s: a third of %g is %04x", table->name, (double)wide, y[i].bits);
      }
    }
  memory_free();
}

/* Vectors, whole and partial, give what single numbers give. */
static void test_vectors_convert_alike(void **unused) {
  (void)unused;
  enum { COUNT = HALVES - 3 };
  const KernelContext k = {.parallel = NULL};
  Half *half = memory_get((HALVES + 1) * sizeof *half), *back = memory_get((HALVES + 1) * sizeof *back);
  float *wide = memory_get((HALVES + 1) * sizeof *wide);
  uint64_t state = 9;
  for (FloatType type = FLOAT_BF16; type <= FLOAT_F16; type++)
    for (int v = 0; v < VARIANT_COUNT; v++) {
      const KernelTable16 *table = kernels_cpu_half_named(type, VARIANTS[v]);
      if (!table) continue;
      for (uint32_t i = 0; i < HALVES; i++) half[i].bits = (uint16_t)i;
      table->copy(&k, 1, COUNT, half + 1, COUNT, wide, COUNT, 0); /* k.gradient says that the copy is in float */
      for (uint32_t i = 0; i < COUNT; i++) {
        float want = float_of_half(type, half[i + 1]);
        if (!same((double)wide[i], (double)want)) fail_msg("%s: %04x widens to %g", table->name, i + 1, (double)wide[i]);
      }
      for (uint32_t i = 0; i < COUNT; i++) wide[i] *= (float)(1 + value_next(&state) / 100);
      table->narrow(&k, COUNT, type, wide, back);
      for (uint32_t i = 0; i < COUNT; i++) {
        Half want = half_of_float(type, wide[i]);
        if (back[i].bits != want.bits && !isnan(wide[i])) fail_msg("%s: %g narrows to %04x", table->name, (double)wide[i], back[i].bits);
        if (isnan(wide[i])) assert_true(isnan(float_of_half(type, back[i])));
      }
    }
  memory_free();
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

/* Relative to the output and to the scenario's root mean square, as for CUDA's kernels. */
static const double TOLERANCE[] = {[FLOAT_BF16] = 2.5e-2, [FLOAT_F16] = 4e-3};

static bool through_adapter(const Scenario *s) {
  return strcmp(s->name, "tree_sum") != 0 && strcmp(s->name, "init") != 0;
}

static Scene run(const Scenario *scenario, const KernelTable16 *table, FloatType type, FloatType gradient, int threads,
                 int64_t misaligned) {
  Pool pool = pool_of(threads);
  HalfAdapter adapter = {{threads ? &pool.parallel : NULL, gemm_builtin(), gradient, NULL}, table, type};
  Scene s = {.state = 5, .misaligned = misaligned};
  scenario->f32(&s, &half_adapter, &adapter.context);
  return s;
}

static void compare(const Scenario *scenario, const KernelTable16 *table, FloatType type, const Scene *got,
                    const Scene *expected) {
  double squares = 0;
  int64_t finite = 0;
  assert_int_equal(got->count, expected->count);
  for (int64_t i = 0; i < expected->count; i++)
    if (isfinite(expected->out[i])) squares += expected->out[i] * expected->out[i], finite++;
  double typical = sqrt(squares / (double)finite);
  for (int64_t i = 0; i < got->count; i++) {
    double want = expected->out[i], error = fabs(got->out[i] - want);
    if (got->out[i] == want || error <= TOLERANCE[type] * (typical + fabs(want))) continue;
    fail_msg("%s, %s: output %ld is %.9g, in double %.9g", scenario->name, table->name, (long)i, got->out[i], want);
  }
}

static void test_against_double(void **unused) {
  (void)unused;
  const KernelContext alone = {.parallel = NULL};
  for (int i = 0; i < SCENARIO_COUNT; i++) {
    if (!through_adapter(&SCENARIOS[i])) continue;
    Scene expected = {.state = 5};
    SCENARIOS[i].f64(&expected, kernels_cpu_f64(), &alone);
    for (FloatType type = FLOAT_BF16; type <= FLOAT_F16; type++)
      for (int v = 0; v < VARIANT_COUNT; v++) {
        const KernelTable16 *table = kernels_cpu_half_named(type, VARIANTS[v]);
        if (!table) continue;
        const FloatType gradients[] = {FLOAT_REAL, type};
        for (int g = 0; g < 2; g++) {
          Scene got = run(&SCENARIOS[i], table, type, gradients[g], 0, 0);
          compare(&SCENARIOS[i], table, type, &got, &expected);
        }
      }
    memory_free();
  }
}

static void test_threads_and_alignment(void **unused) {
  (void)unused;
  for (int i = 0; i < SCENARIO_COUNT; i++) {
    if (!through_adapter(&SCENARIOS[i])) continue;
    const KernelTable16 *table = kernels_cpu_half(FLOAT_BF16);
    Scene alone = run(&SCENARIOS[i], table, FLOAT_BF16, FLOAT_BF16, 0, 0);
    Scene three = run(&SCENARIOS[i], table, FLOAT_BF16, FLOAT_BF16, 3, 1);
    assert_int_equal(alone.count, three.count);
    for (int64_t n = 0; n < alone.count; n++)
      if (memcmp(&alone.out[n], &three.out[n], sizeof(double)) != 0)
        fail_msg("%s: output %ld is %.17g, was %.17g", SCENARIOS[i].name, (long)n, three.out[n], alone.out[n]);
    memory_free();
  }
}

/* --- sums over ranks ---------------------------------------------------------------------------------------------- */

/* Four ranks at once, or two by two and then both: hybrid sharding must keep the bits. */
static void test_subtrees_keep_the_bits(void **unused) {
  (void)unused;
  enum { N = 1100, RANKS = 4 };
  uint64_t state = 3;
  for (FloatType type = FLOAT_BF16; type <= FLOAT_F16; type++)
    for (int v = 0; v < VARIANT_COUNT; v++) {
      const KernelTable16 *table = kernels_cpu_half_named(type, VARIANTS[v]);
      if (!table) continue;
      Half *x[RANKS], *all = memory_get(N * sizeof **x), *pair[2], *both = memory_get(N * sizeof **x);
      for (int r = 0; r < RANKS; r++) {
        x[r] = memory_get(N * sizeof **x);
        for (int i = 0; i < N; i++) x[r][i] = half_of_float(type, (float)(value_next(&state) * ldexp(1, i % 9)));
      }
      table->tree_sum(N, RANKS, type, (const void *const *)x, all, 0);
      for (int p = 0; p < 2; p++) {
        pair[p] = memory_get(N * sizeof **x);
        table->tree_sum(N, 2, type, (const void *const *)(x + 2 * p), pair[p], 0);
      }
      table->tree_sum(N, 2, type, (const void *const *)pair, both, 0);
      assert_memory_equal(all, both, N * sizeof *all);
      for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int r = 0; r < RANKS; r++) sum += (double)float_of_half(type, x[r][i]);
        double error = fabs((double)float_of_half(type, all[i]) - sum);
        assert_true(error <= 3 * ldexp(4, i % 9) * (type == FLOAT_BF16 ? 0x1p-8 : 0x1p-11));
      }
    }
  memory_free();
}

/* --- stochastic rounding ------------------------------------------------------------------------------------------- */

/* One step of SGD that moves every weight from `from` by `move`, of elements [first, first + n) of a parameter. */
static void move_all(const KernelTable *table, const WeightStore *store, int64_t n, float from, float move, Half *out) {
  float *g = memory_get((size_t)n * sizeof *g);
  const SgdRates rates = {.lr = 1, .grad_scale = 1};
  const KernelContext k = {.weights = store};
  for (int64_t i = 0; i < n; i++) g[i] = -move, out[i] = bf16_of_float(from);
  table->sgd(&k, n, &rates, g, out, NULL);
}

static WeightStore stochastic(uint64_t step, uint64_t name_hash, int64_t first) {
  return (WeightStore){
      .type = FLOAT_BF16, .stochastic = 1, .seed = 7, .step = step, .name_hash = name_hash, .first = first};
}

/* A number between two neighbours becomes one of them, with probabilities that keep the mean: within 5 deviations. */
static void test_stochastic_rounding_keeps_the_mean(void **unused) {
  (void)unused;
  enum { N = 1 << 16 };
  const float froms[] = {1, -3, 0x1p-20F, 0x1.fep0F}, gap = 0x1p-7F; /* of 1 to its neighbour */
  const double shares[] = {1.0 / 65536, 0.125, 0.5, 0.999};
  Half *out = memory_get(N * sizeof *out);
  for (size_t f = 0; f < sizeof froms / sizeof *froms; f++)
    for (size_t s = 0; s < sizeof shares / sizeof *shares; s++) {
      double from = (double)froms[f], ulp = ldexp((double)gap, ilogb(from)) * (from < 0 ? -1 : 1);
      float move = (float)(ulp * shares[s]), sum = froms[f] + move;
      double share = ((double)sum - from) / ulp, ups = 0;
      WeightStore store = stochastic(f + 1, s, 0);
      move_all(kernels_cpu(), &store, N, froms[f], move, out);
      for (int i = 0; i < N; i++) {
        double up = ((double)float_of_bf16(out[i]) - from) / ulp;
        assert_true(up == 0 || up == 1);
        ups += up;
      }
      double deviation = sqrt(N * share * (1 - share));
      if (fabs(ups - N * share) > 5 * deviation)
        fail_msg("%g + %g: %g of %d went up, not %g +- %g", from, (double)move, ups, N, N * share, deviation);
    }
  memory_free();
}

/* What an element becomes depends on seed, step, parameter and its number: on neither variant, nor where a range begins. */
static void test_stochastic_rounding_is_of_the_element(void **unused) {
  (void)unused;
  enum { N = 1000, CUT = 333 };
  Half want[N], got[N];
  WeightStore whole = stochastic(3, 5, 0), rest = stochastic(3, 5, CUT), next = stochastic(4, 5, 0), other = stochastic(3, 6, 0);
  const WeightStore *const others[] = {&next, &other};
  move_all(kernels_cpu(), &whole, N, 1, 0x1p-9F, want);
  for (int v = 0; v < VARIANT_COUNT; v++) {
    const KernelTable *table = kernels_cpu_named(VARIANTS[v]);
    if (!table) continue;
    move_all(table, &whole, CUT, 1, 0x1p-9F, got);
    move_all(table, &rest, N - CUT, 1, 0x1p-9F, got + CUT);
    assert_memory_equal(got, want, sizeof want);
  }
  for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
    int differ = 0;
    move_all(kernels_cpu(), others[o], N, 1, 0x1p-9F, got);
    for (int i = 0; i < N; i++) differ += got[i].bits != want[i].bits;
    assert_in_range(differ, 300, 450); /* 2 x 1/4 x 3/4 of them */
  }
  memory_free();
}

/* Infinity and NaN stay what they are; what bf16 holds is not moved. */
static void test_stochastic_rounding_keeps_what_fits(void **unused) {
  (void)unused;
  enum { N = 64 };
  Half out[N];
  WeightStore store = stochastic(1, 1, 0);
  const float kept[] = {0, -1.5F, 0x1.fep127F};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    move_all(kernels_cpu(), &store, N, kept[i], 0, out);
    for (int j = 0; j < N; j++) assert_true(float_of_bf16(out[j]) == kept[i]);
  }
  move_all(kernels_cpu(), &store, N, 1, -INFINITY, out);
  for (int j = 0; j < N; j++) assert_true(float_of_bf16(out[j]) == -INFINITY);
  move_all(kernels_cpu(), &store, N, 1, NAN, out);
  for (int j = 0; j < N; j++) assert_true(isnan((double)float_of_bf16(out[j])));
  memory_free();
}

/* Every optimizer updates weights of 16 bits as it does f32 ones, and then rounds. */
static void test_optimizers_round_what_they_update(void **unused) {
  (void)unused;
  enum { N = 77 };
  uint64_t state = 11;
  const AdamwRates adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .bias1 = 0.1, .bias2 = 0.05, .grad_scale = 1};
  const LionRates lion = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.1, .grad_scale = 1};
  const SgdRates sgd = {.lr = 1e-2, .momentum = 0.9, .decay = 0.1, .grad_scale = 1};
  const AdafactorRates adafactor = {.grad_scale = 1, .row_scale = 1, .floor = 1e-6, .keep = 0.99, .step = 1e-2};
  const WeightStore nearest = {.type = FLOAT_BF16};
  const KernelTable *t = kernels_cpu();
  for (int which = 0; which < 4; which++) {
    float g[N], w[N], m[2][N] = {{0}}, v[2][N];
    Half h[N];
    for (int i = 0; i < N; i++) {
      g[i] = (float)value_next(&state), h[i] = bf16_of_float((float)value_next(&state)), w[i] = float_of_bf16(h[i]);
      v[0][i] = v[1][i] = 1;
    }
    for (int half = 0; half < 2; half++) {
      const KernelContext k = {.weights = half ? &nearest : NULL};
      void *at = half ? (void *)h : (void *)w;
      if (which == 0) t->adamw(&k, N, &adamw, g, at, m[half], v[half]);
      if (which == 1) t->lion(&k, N, &lion, g, at, m[half]);
      if (which == 2) t->sgd(&k, N, &sgd, g, at, m[half]);
      if (which == 3) t->adafactor(&k, &adafactor, 0, N, 1, v[half], NULL, g, at);
    }
    assert_memory_equal(m[0], m[1], sizeof m[0]);
    for (int i = 0; i < N; i++) assert_int_equal(h[i].bits, bf16_of_float(w[i]).bits);
  }
}

int main(void) {
  kernels_thread_init();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_half_widens),      cmocka_unit_test(test_narrowing_is_to_nearest_even),
      cmocka_unit_test(test_vectors_convert_alike),  cmocka_unit_test(test_against_double),
      cmocka_unit_test(test_threads_and_alignment),  cmocka_unit_test(test_subtrees_keep_the_bits),
      cmocka_unit_test(test_stochastic_rounding_keeps_the_mean),
      cmocka_unit_test(test_stochastic_rounding_is_of_the_element),
      cmocka_unit_test(test_stochastic_rounding_keeps_what_fits),
      cmocka_unit_test(test_optimizers_round_what_they_update),
      cmocka_unit_test(test_scale_rounds_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
