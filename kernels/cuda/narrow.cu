/* Owns: linear layers of a few outputs: the classes that are left where their number is no multiple of what tensor cores take at a time
 * (runtime/cuda/cuda_linear.c). cuBLASLt's own kernels for a column of logits, rows 50304 apart, take 1.2 ms where reading x takes 0.03, and
 * lose their way beyond 2^31 elements: they wrote elsewhere (13.1 on an H200).
 *
 * Forward: a warp a row. dx: a thread 16 bytes of ROWS rows. Weights: as sums of columns (norm.cu), an output at a time: blocks sum pieces of
 * rows into scratch, then a thread adds the pieces of a column; no atomics, one order.
 *
 * Moves forward and for each output's weights `in` elements a row, for dx as many (twice with `add`); 2 flops an element and output.
 * Bound: memory. Rate: not measured; compared with float64 as plain C++ only. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/scratch.h"

constexpr int THREADS = 256, ROWS = 4, GROUPS = 8;

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

/* Block (c, p): columns [c WARP N, ...) of x over piece p, each row times its dy. A lane owns N columns, a warp every GROUPS-th row.
 * out: [piece][in]. */
template <class T, int N> __global__ void narrow_weight_kernel(Narrow<T> l, int64_t rows_a_piece, float *out) {
  SHARED_ARRAY(float, space, GROUPS *WARP *N);
  int lane = threadIdx.x % WARP, group = threadIdx.x / WARP;
  int64_t col = ((int64_t)blockIdx.x * WARP + lane) * N;
  int64_t first = (int64_t)blockIdx.y * rows_a_piece, end = first + rows_a_piece < l.rows ? first + rows_a_piece : l.rows;
  float sum[N] = {0}, v[N];
  if (col >= l.in) end = first;
#pragma unroll 4
  for (int64_t r = first + group; r < end; r += GROUPS) {
    load<T, N>(l.x + r * l.ldx + col, v);
    float g = to_float(l.dy[r * l.lddy]);
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] += g * v[j];
  }
  float *mine = space + (group * WARP + lane) * N;
#pragma unroll
  for (int j = 0; j < N; j++) mine[j] = sum[j];
  __syncthreads();
  if (group != 0 || col >= l.in) return;
  for (int other = 1; other < GROUPS; other++) {
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] += space[(other * WARP + lane) * N + j];
  }
  store<float, N>(out + (int64_t)blockIdx.y * l.in + col, sum);
}

template <class G> __global__ void narrow_piece_kernel(int64_t pieces, int64_t in, const float *from, G *dw, int add) {
  int64_t col = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  float sum = 0;
  if (col >= in) return;
#pragma unroll 8 /* many loads on their way */
  for (int64_t p = 0; p < pieces; p++) sum += from[p * in + col];
  put<G, 1>(dw + col, &sum, add);
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
  if (dy.type != x.type || (dw.type != x.type && dw.type != CUDA_F32)) return CUDA_UNSUPPORTED;
  int64_t pieces = cuda_column_pieces(rows), rows_a_piece = ceil_of(rows, pieces);
  FOR_TYPE(x.type, wide_rows(x, rows, in), Narrow<T> l = {}; l.rows = rows; l.in = in; l.x = (const T *)x.x; l.ldx = x.ld; l.lddy = dy.ld;
           dim3 grid((unsigned)ceil_of(in, WARP * N), (unsigned)pieces);
           for (int64_t o = 0; o < outs; o++) {
             l.dy = (const T *)dy.x + o;
             LAUNCH((narrow_weight_kernel<T, N>), grid, GROUPS * WARP, 0, stream, l, rows_a_piece, (float *)scratch);
             unsigned blocks = (unsigned)ceil_of(in, THREADS);
             if (dw.type == CUDA_F32)
               LAUNCH((narrow_piece_kernel<float>), blocks, THREADS, 0, stream, pieces, in, (const float *)scratch, (float *)dw.x + o * in, dw.add);
             else
               LAUNCH((narrow_piece_kernel<T>), blocks, THREADS, 0, stream, pieces, in, (const float *)scratch, (T *)dw.x + o * in, dw.add);
           })
  return LAUNCHED();
}
