/* Owns: the frame of element-by-element kernels: tasks, rows, then one function over a run of elements. */
#ifndef FSDPC_KERNELS_CPU_ELEMENTWISE_H
#define FSDPC_KERNELS_CPU_ELEMENTWISE_H

#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"

/* y (+)= f(a, b); b NULL for functions of one argument. A run may overwrite a or b in place. */
typedef void (*RunFunction)(int64_t n, const stored *a, const stored *b, stored *y, int add);

void SYM(elementwise)(const KernelContext *k, int64_t rows, int64_t cols, RunFunction run, const stored *a,
                      int64_t lda, const stored *b, int64_t ldb, int64_t brows, stored *y, int64_t ldy, int add);

/* Defines a RunFunction from an expression of the vectors a and b. */
#define RUN_FUNCTION(name, expression)                                                                       \
  static void name(int64_t n, const stored *pa, const stored *pb, stored *y, int add) {                      \
    for (int64_t i = 0; i < n; i += VL) {                                                                    \
      vec a = vec_take(pa + i, n - i), b = pb ? vec_take(pb + i, n - i) : (vec){0};                          \
      (void)a, (void)b;                                                                                      \
      vec value = expression;                                                                                \
      vec_put(y + i, add ? vec_take(y + i, n - i) + value : value, n - i);                                   \
    }                                                                                                        \
  }

#endif
