/* Owns: the linear layer, y[rows,out] = x[rows,in] w[out,in]^T + bias. All of its time is matmul.c's. */
#include "kernels/cpu/matmul.h"

void SYM(linear_fwd)(const KernelContext *k, int64_t rows, int64_t out, int64_t in, const real *x,
                     int64_t ldx, const real *w, const real *bias, real *y, int64_t ldy) {
  Matmul mm = {.k = k, .ta = 'N', .tb = 'T', .m = rows, .n = out, .inner = in, .bias = bias};
  mm.a = x, mm.lda = ldx, mm.b = w, mm.ldb = in, mm.c = y, mm.ldc = ldy;
  SYM(matmul)(&mm);
}

void SYM(linear_bwd_x)(const KernelContext *k, int64_t rows, int64_t out, int64_t in, const real *dy,
                       int64_t lddy, const real *w, real *dx, int64_t lddx, int add) {
  Matmul mm = {.k = k, .ta = 'N', .tb = 'N', .m = rows, .n = in, .inner = out, .add = add};
  mm.a = dy, mm.lda = lddy, mm.b = w, mm.ldb = in, mm.c = dx, mm.ldc = lddx;
  SYM(matmul)(&mm);
}

void SYM(linear_bwd_w)(const KernelContext *k, int64_t rows, int64_t out, int64_t in, const real *x,
                       int64_t ldx, const real *dy, int64_t lddy, real *dw, real *dbias, int add_w,
                       int add_b) {
  Matmul mm = {.k = k, .ta = 'T', .tb = 'N', .m = out, .n = in, .inner = rows, .add = add_w};
  mm.a = dy, mm.lda = lddy, mm.b = x, mm.ldb = ldx, mm.c = dw, mm.ldc = in;
  mm.row_sums = dbias, mm.add_row_sums = add_b;
  SYM(matmul)(&mm);
}
