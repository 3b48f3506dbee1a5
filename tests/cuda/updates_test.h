/* Owns: tests of what reads a whole shard: sums of squares and Adafactor, aligned and not, of shards that begin in the middle of a
 * row. Part of kernels_test.c's program. */
#ifndef FSDPC_TESTS_CUDA_UPDATES_TEST_H
#define FSDPC_TESTS_CUDA_UPDATES_TEST_H

void test_sums_of_squares(void **unused);
void test_sums_of_spread_squares(void **unused);
void test_adafactor(void **unused);

#endif
