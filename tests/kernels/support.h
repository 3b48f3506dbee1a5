/* Owns: what the kernel tests share: memory that one call frees, reproducible values, pools of threads. */
#ifndef FSDPC_TESTS_KERNELS_SUPPORT_H
#define FSDPC_TESTS_KERNELS_SUPPORT_H

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/kernels.h"

/* Zeroed, 64-byte aligned, with red zones under AddressSanitizer; memory_free frees all of it. */
void *memory_get(size_t bytes);
void memory_free(void);

/* In [-1, 1), a multiple of 2^-20: the same number in float and double. */
double value_next(uint64_t *state);
void fill_f64(uint64_t *state, int64_t n, double *x);
void fill_f32(uint64_t *state, int64_t n, float *x);

/* A pool that starts `threads` threads for every run; they take tasks from the last to the first. */
typedef struct Pool {
  Parallel parallel;
  int threads;
} Pool;
Pool pool_of(int threads);

#endif
