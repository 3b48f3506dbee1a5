/* Owns: the inner product of blocks: what the built-in gemm and attention are made of. */
#ifndef FSDPC_KERNELS_CPU_BLOCK_MM_H
#define FSDPC_KERNELS_CPU_BLOCK_MM_H

#include "kernels/cpu/simd.h"

typedef enum {
  BLOCK_SET,  /* C = A B */
  BLOCK_ADD,  /* C = C + A B */
  BLOCK_SCALE /* C = diag(scale) C + A B */
} BlockMode;

enum { BLOCK_COLS = VEC_BYTES / sizeof(real) * (VEC_BYTES == 64 ? 4 : 2) }; /* width of a register tile */

/* C[m,n] from A[m,k] B[k,n]; element (i, p) of A is a[i*ar + p*ap], rows of B and C are contiguous. Each
 * element of C is one chain of additions over p, whatever the tile it falls into. Fast while B[k, BLOCK_COLS]
 * fits in L1. */
void BASE(block_mm)(int64_t m, int64_t n, int64_t k, const real *a, int64_t ar, int64_t ap, const real *b,
                   int64_t ldb, real *c, int64_t ldc, BlockMode mode, const real *scale);

/* C[m,n] = alpha op(A) op(B) + beta C, single-threaded; 256 KiB of stack. beta 0 overwrites. */
void SYM(gemm_blocked)(char ta, char tb, int64_t m, int64_t n, int64_t k, real alpha, const real *a,
                       int64_t lda, const real *b, int64_t ldb, real beta, real *c, int64_t ldc);

#endif
