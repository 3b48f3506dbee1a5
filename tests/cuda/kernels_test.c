/* Owns: every CUDA kernel against the CPU's in double, over the scenarios of tests/kernels: f32 closely, bf16 and f16
 * within what their 8 and 11 bits allow. Under the shim, in several orders of threads and blocks too. Runs the tests of kernel_tests.h. */
#include "tests/cuda/adapter.h"
#include "tests/cuda/closeness.h"
#include "tests/cuda/host_product.h"
#include "tests/cuda/kernel_tests.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Initial values come from the CPU; sums over ranks of 16 bits are tested below. */
static bool has_type(const Scenario *s, int type) {
  return type == CUDA_F32 || (strcmp(s->name, "init") != 0 && strcmp(s->name, "tree_sum") != 0);
}

/* Buffers of optimizers start on 16-byte boundaries, as shards do. */
static int64_t shift_of(const Scenario *s, int type) {
  return type == CUDA_F32 && strcmp(s->name, "optimizers") != 0 ? 1 : 0;
}

static void test_against_double(void **unused) {
  (void)unused;
  KernelContext alone = {0};
  for (int i = 0; i < SCENARIO_COUNT; i++) {
    Scene expected = {.state = 5};
    SCENARIOS[i].f64(&expected, kernels_cpu_f64(), &alone);
    for (int type = CUDA_F32; type <= CUDA_F16; type++) {
      if (!has_type(&SCENARIOS[i], type)) continue;
      Adapter adapter = {.type = type};
      Scene got = {.state = 5, .misaligned = shift_of(&SCENARIOS[i], type)};
      shim_seed((uint64_t)(type + 1));
      SCENARIOS[i].f32(&got, &adapter_table, &adapter.context);
      printf("%-22s %-5s %5.2f of %.1e\n", SCENARIOS[i].name, TYPE[type],
             worst(SCENARIOS[i].name, type, 1, &got, &expected), TOLERANCE[type]);
    }
    memory_free();
  }
}

/* The order in which threads and blocks run must not show. */
static void test_same_in_any_order(void **unused) {
  (void)unused;
  for (int i = 0; i < SCENARIO_COUNT; i++) {
    Scene first = {.state = 5}, second = {.state = 5};
    Adapter adapter = {.type = CUDA_BF16};
    if (!has_type(&SCENARIOS[i], CUDA_BF16) || strncmp(SCENARIOS[i].name, "linear", 6) == 0) continue;
    shim_seed(11);
    SCENARIOS[i].f32(&first, &adapter_table, &adapter.context);
    shim_seed(12);
    SCENARIOS[i].f32(&second, &adapter_table, &adapter.context);
    assert_int_equal(first.count, second.count);
    if (memcmp(first.out, second.out, (size_t)first.count * sizeof *first.out) != 0)
      fail_msg("%s: another order of threads gave other bits", SCENARIOS[i].name);
    memory_free();
  }
}

/* --- sums over ranks ------------------------------------------------------------------------------------------------- */

enum { SUMMANDS = 200, PEERS = 43 };

/* Bit by bit what the CPU's kernel gives, whose partial sums are rounded to 16 bits too. */
static void test_sums_of_16_bits(void **unused) {
  (void)unused;
  static const int32_t counts[] = {1, 2, 3, 4, 7, 8, 21, PEERS};
  for (int n = 0; n < 2 * 2 * (int)(sizeof counts / sizeof *counts); n++) {
    int type = n % 2 ? CUDA_BF16 : CUDA_F16, add = n / 2 % 2;
    uint64_t state = 21;
    const float *floats[PEERS];
    const void *halves[PEERS];
    for (int r = 0; r < PEERS; r++) {
      float *x = memory_get(SUMMANDS * sizeof *x);
      uint16_t *h = memory_get(SUMMANDS * sizeof *h);
      for (int i = 0; i < SUMMANDS; i++) element_set(type, h, i, 3 * (float)value_next(&state)), x[i] = element_get(type, h, i);
      floats[r] = x, halves[r] = h;
    }
    float *sum = memory_get(SUMMANDS * sizeof *sum);
    uint16_t *want = memory_get(SUMMANDS * sizeof *want);
    for (int i = 0; i < SUMMANDS; i++) element_set(type, want, i, 1), sum[i] = 1;
    adapter_table.tree_sum(SUMMANDS, counts[n / 4], (FloatType)type, (const void *const *)floats, sum, add);
    kernels_cpu_named("portable")->tree_sum(SUMMANDS, counts[n / 4], (FloatType)type, halves, want, add);
    for (int i = 0; i < SUMMANDS; i++)
      if (sum[i] != element_get(type, want, i))
        fail_msg("%s, %d ranks: sum %d is %g, on the CPU %g", TYPE[type], (int)counts[n / 4], i, (double)sum[i],
                 (double)element_get(type, want, i));
    memory_free();
  }
}

/* --- sums over tokens ------------------------------------------------------------------------------------------------ */

/* More rows than a block compares tokens of at a time, and tokens that are everywhere, rare, or once at each end. Sums are in
 * row order, as the CPU's. */
static void test_embedding_gradient_of_many_rows(void **unused) {
  enum { TOKENS = 6301, VOCAB = 37, D = 8 };
  static int32_t tokens[TOKENS];
  static float dy[TOKENS * D], want[VOCAB * D], got[VOCAB * D];
  (void)unused;
  for (int i = 0; i < TOKENS; i++) tokens[i] = i % 4 != 0 ? 7 : i < 900 ? i * i % (VOCAB - 2) : i / 4 % 30;
  tokens[0] = tokens[TOKENS - 1] = VOCAB - 2, tokens[700] = VOCAB, tokens[5000] = -1;
  for (int type = CUDA_F32; type <= CUDA_BF16; type++) {
    uint64_t state = 51;
    for (int i = 0; i < TOKENS * D; i++) dy[i] = (float)(type == CUDA_F32 ? value_next(&state) : coarse_value_next(&state));
    Adapter adapter = {.type = type};
    KernelContext alone = {0};
    kernels_cpu_named("portable")->embedding_bwd(&alone, TOKENS, VOCAB, D, tokens, dy, D, want, 0);
    adapter_table.embedding_bwd(&adapter.context, TOKENS, VOCAB, D, tokens, dy, D, got, 0);
    assert_memory_equal(got, want, sizeof want);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_against_double),
      cmocka_unit_test(test_tensor_core_attention),
      cmocka_unit_test(test_hopper_attention),
      cmocka_unit_test(test_not_hopper_attention),
      cmocka_unit_test(test_hopper_forward),
      cmocka_unit_test(test_not_hopper_forward),
      cmocka_unit_test(test_attention_of_single_rows),
      cmocka_unit_test(test_scratch_of_single_rows),
      cmocka_unit_test(test_weights_without_masters),
      cmocka_unit_test(test_sums_of_16_bits),
      cmocka_unit_test(test_sums_of_squares),
      cmocka_unit_test(test_sums_of_spread_squares),
      cmocka_unit_test(test_carries_of_sums),
      cmocka_unit_test(test_adafactor),
      cmocka_unit_test(test_embedding_gradient_of_many_rows),
      cmocka_unit_test(test_gelu_of_all_halves),
      cmocka_unit_test(test_sigmoids_of_all_halves),
      cmocka_unit_test(test_sums_of_many_rows),
      cmocka_unit_test(test_norms_of_long_rows),
      cmocka_unit_test(test_norms_of_many_rows),
      cmocka_unit_test(test_cross_entropy_of_odd_logits),
      cmocka_unit_test(test_wide_against_single),
      cmocka_unit_test(test_same_in_any_order),
  };
  setvbuf(stdout, NULL, _IOLBF, 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
