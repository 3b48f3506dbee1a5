/* Owns: the parallel matrix product that linear layers and losses share. */
#ifndef FSDPC_KERNELS_CPU_MATMUL_H
#define FSDPC_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/simd.h"

/* C[m,n] = op(A)[m,inner] op(B)[inner,n] (+ C when add), then bias[n] added to each row; and, when row_sums
 * is given, row_sums[m] (+)= sums of op(A)'s rows, taken while A is in cache. C and row_sums have c_type. Sums are
 * `real`: a C of 16 bits is rounded once. */
typedef struct Matmul {
  const KernelContext *k;
  char ta, tb;
  int64_t m, n, inner;
  const stored *a;
  int64_t lda;
  const stored *b;
  int64_t ldb;
  FloatType c_type;
  void *c;
  int64_t ldc;
  int add;
  const stored *bias; /* or NULL */
  void *row_sums;     /* or NULL; needs ta 'T' */
  int add_row_sums;
} Matmul;

void SYM(matmul)(const Matmul *mm);

#endif
