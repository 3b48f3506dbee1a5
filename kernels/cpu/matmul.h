/* Owns: the parallel matrix product that linear layers and losses share. */
#ifndef FSDPC_KERNELS_CPU_MATMUL_H
#define FSDPC_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/variant.h"

/* C[m,n] = op(A)[m,inner] op(B)[inner,n] (+ C when add), then bias[n] added to each row; and, when row_sums
 * is given, row_sums[m] (+)= sums of op(A)'s rows, taken while A is in cache. */
typedef struct Matmul {
  const KernelContext *k;
  char ta, tb;
  int64_t m, n, inner;
  const real *a;
  int64_t lda;
  const real *b;
  int64_t ldb;
  real *c;
  int64_t ldc;
  int add;
  const real *bias; /* or NULL */
  real *row_sums;   /* or NULL; needs ta 'T' */
  int add_row_sums;
} Matmul;

void SYM(matmul)(const Matmul *mm);

#endif
