/* Owns: linear layers of a few outputs: the classes that are left where their number is no multiple of what tensor cores take at a time
 * (runtime/cuda/cuda_linear.c). cuBLASLt's own kernels for a column of logits, rows 50304 apart, take 1.2 ms where reading x takes 0.03, and
 * lose their way beyond 2^31 elements (13.1 on an H200, docs/gpu-results.md).
 *
 * Forward: a warp a row. dx: a thread 16 bytes of ROWS rows. Weights: sums of x's columns (norm.cu), an output at a time.
 *
 * Moves forward and for each output's weights `in` elements a row, for dx as many (twice with `add`); 2 flops an element and output.
 * Bound: memory. Rate: not measured by itself; compared with float64 on an H200. */
#include "kernels/cuda/device.cuh"

constexpr int THREADS = 256, ROWS = 4;

template <class T> struct Narrow {
  int64_t rows, in;
  int outs;
  const T *x, *w, *bias, *dy;
  T *y, *dx;
  int64_t ldx, ldy, lddy, lddx;
  int add_x;
};

template <class T, int N> __global__ void narrow_forward_kernel(Narrow<T> l) {
  int64_t row = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  int lane = threadIdx.x % WARP;
  if (row >= l.rows) return; /* whole warps */
  for (int o = 0; o < l.outs; o++) {
    float sum = 0, v[N], w[N];
    for (int64_t c = lane * N; c < l.in; c += WARP * N) {
      load<T, N>(l.x + row * l.ldx + c, v);
      load<T, N>(l.w + o * l.in + c, w);
#pragma unroll
      for (int j = 0; j < N; j++) sum += v[j] * w[j];
    }
    sum = warp_sum(sum);
    if (lane == 0) l.y[row * l.ldy + o] = from_float<T>(sum + (l.bias != NULL ? to_float(l.bias[o]) : 0));
  }
}

template <class T, int N> __global__ void narrow_input_kernel(Narrow<T> l) {
  int64_t first = (int64_t)blockIdx.x * ROWS;
  for (int64_t c = (int64_t)threadIdx.x * N; c < l.in; c += THREADS * N) {
    float sum[ROWS][N] = {}, w[N];
    for (int o = 0; o < l.outs; o++) {
      load<T, N>(l.w + o * l.in + c, w);
#pragma unroll
      for (int k = 0; k < ROWS; k++) {
        float g = first + k < l.rows ? to_float(l.dy[(first + k) * l.lddy + o]) : 0;
#pragma unroll
        for (int j = 0; j < N; j++) sum[k][j] += g * w[j];
      }
    }
#pragma unroll
    for (int k = 0; k < ROWS; k++)
      if (first + k < l.rows) put<T, N>(l.dx + (first + k) * l.lddx + c, sum[k], l.add_x);
  }
}

/* --- entry points ---------------------------------------------------------------------------------------------- */

/* w has rows of `in` elements, one after the other. */
static bool wide_rows(CudaTensor x, int64_t rows, int64_t in) { return wide_ok(x, rows, in, wide_of(x.type)); }

int cuda_narrow_fwd(CudaStream stream, int64_t rows, int64_t outs, int64_t in, CudaTensor x, CudaTensor w, CudaTensor bias, CudaTensor y) {
  if (w.type != x.type || y.type != x.type || (bias.x != NULL && bias.type != x.type)) return CUDA_UNSUPPORTED;
  FOR_TYPE(x.type, wide_rows(x, rows, in) && wide_rows(w, 1, in), Narrow<T> l = {}; l.rows = rows; l.in = in; l.outs = (int)outs;
           l.x = (const T *)x.x; l.ldx = x.ld; l.w = (const T *)w.x; l.bias = (const T *)bias.x; l.y = (T *)y.x; l.ldy = y.ld;
           LAUNCH((narrow_forward_kernel<T, N>), (unsigned)ceil_of(rows, THREADS / WARP), THREADS, 0, stream, l);)
  return LAUNCHED();
}

int cuda_narrow_bwd_x(CudaStream stream, int64_t rows, int64_t outs, int64_t in, CudaTensor dy, CudaTensor w, CudaTensor dx) {
  if (w.type != dx.type || dy.type != dx.type) return CUDA_UNSUPPORTED;
  FOR_TYPE(dx.type, wide_rows(dx, rows, in) && wide_rows(w, 1, in), Narrow<T> l = {}; l.rows = rows; l.in = in; l.outs = (int)outs;
           l.dy = (const T *)dy.x; l.lddy = dy.ld; l.w = (const T *)w.x; l.dx = (T *)dx.x; l.lddx = dx.ld; l.add_x = dx.add;
           LAUNCH((narrow_input_kernel<T, N>), (unsigned)ceil_of(rows, ROWS), THREADS, 0, stream, l);)
  return LAUNCHED();
}

int cuda_narrow_bwd_w(CudaStream stream, int64_t rows, int64_t outs, int64_t in, CudaTensor x, CudaTensor dy, CudaTensor dw, void *scratch) {
  int failed = 0;
  for (int64_t o = 0; o < outs && failed == 0; o++) {
    CudaTensor weights = dy, row = dw;
    weights.x = (unsigned char *)dy.x + o * type_bytes(dy.type);
    row.x = (unsigned char *)dw.x + o * in * type_bytes(dw.type);
    failed = cuda_column_sums(stream, rows, in, x, weights, row, scratch);
  }
  return failed;
}
