/* Owns: which tests of kernels_test.c's program lie in which file. */
#ifndef FSDPC_TESTS_CUDA_KERNEL_TESTS_H
#define FSDPC_TESTS_CUDA_KERNEL_TESTS_H

#include <stdint.h>

void shim_seed(uint64_t seed); /* where there is no shim, nothing to seed */

/* attention_test.c */
void test_tensor_core_attention(void **unused);
void test_hopper_attention(void **unused);
void test_not_hopper_attention(void **unused);
void test_hopper_forward(void **unused);
void test_not_hopper_forward(void **unused);
void test_attention_of_single_rows(void **unused);
void test_scratch_of_single_rows(void **unused);

/* updates_test.c */
void test_weights_without_masters(void **unused);
void test_sums_of_squares(void **unused);
void test_sums_of_spread_squares(void **unused);
void test_carries_of_sums(void **unused);
void test_adafactor(void **unused);

/* numbers_test.c */
void test_gelu_of_all_halves(void **unused);
void test_sigmoids_of_all_halves(void **unused);
void test_sums_of_many_rows(void **unused);
void test_norms_of_long_rows(void **unused);
void test_norms_of_many_rows(void **unused);
void test_cross_entropy_of_odd_logits(void **unused);

/* wide_test.c */
void test_wide_against_single(void **unused);

#endif
