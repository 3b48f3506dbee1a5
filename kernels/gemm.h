/* Owns: the table of matrix products and which library fills it. Libraries are loaded at run time (dlopen), so
 * planning needs none and a machine without any still trains with the built-in kernel. */
#ifndef FSDPC_KERNELS_GEMM_H
#define FSDPC_KERNELS_GEMM_H

#include <stdint.h>

typedef struct Gemm {
  const char *name; /* "onednn", "openblas", "builtin" */
  /* Row-major, single-threaded, callable from several threads at once. C[m,n] = alpha op(A) op(B) + beta C, op(A) being
   * m x k; ta, tb are 'N' or 'T'. beta 0 overwrites C even where it holds NaN. */
  void (*sgemm)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
  void (*thread_init)(void); /* call once in every thread that will multiply; may be NULL */
  uint64_t thread_bytes;     /* of address space that each of them must find when it first multiplies */
} Gemm;

/* name NULL: the best that loads (onednn; builtin where it has AVX-512; openblas; builtin). NULL with *why when a named one does not load. */
const Gemm *gemm_open(const char *name, const char **why);
/* The built-in one, vectorised, always there. */
const Gemm *gemm_builtin(void);

#endif
