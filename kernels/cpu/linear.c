/* Owns: the linear layer, y[rows,out] = x[rows,in] w[out,in]^T + bias. All of its time is matmul.c's. */
#include "kernels/cpu/gradient.h"
#include "kernels/cpu/matmul.h"

void SYM(linear_fwd)(const KernelContext *k, int64_t rows, int64_t out, int64_t in, const stored *x,
                     int64_t ldx, const stored *w, const stored *bias, stored *y, int64_t ldy) {
  Matmul mm = {.k = k, .ta = 'N', .tb = 'T', .m = rows, .n = out, .inner = in, .bias = bias};
  mm.a = x, mm.lda = ldx, mm.b = w, mm.ldb = in, mm.c = y, mm.ldc = ldy, mm.c_type = STORED_TYPE;
  SYM(matmul)(&mm);
}

void SYM(linear_bwd_x)(const KernelContext *k, int64_t rows, int64_t out, int64_t in, const stored *dy,
                       int64_t lddy, const stored *w, stored *dx, int64_t lddx, int add) {
  Matmul mm = {.k = k, .ta = 'N', .tb = 'N', .m = rows, .n = in, .inner = out, .add = add};
  mm.a = dy, mm.lda = lddy, mm.b = w, mm.ldb = in, mm.c = dx, mm.ldc = lddx, mm.c_type = STORED_TYPE;
  SYM(matmul)(&mm);
}

void SYM(linear_bwd_w)(const KernelContext *k, int64_t rows, int64_t out, int64_t in, const stored *x,
                       int64_t ldx, const stored *dy, int64_t lddy, void *dw, void *dbias, int add_w,
                       int add_b) {
  Matmul mm = {.k = k, .ta = 'T', .tb = 'N', .m = out, .n = in, .inner = rows, .add = add_w};
  mm.a = dy, mm.lda = lddy, mm.b = x, mm.ldb = ldx, mm.c = dw, mm.ldc = in, mm.c_type = gradient_type(k);
  mm.row_sums = dbias, mm.add_row_sums = add_b;
  SYM(matmul)(&mm);
}
