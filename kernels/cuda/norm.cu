/* Owns: layer and root-mean-square normalisation over rows, and sums of columns (bias gradients).
 *
 * Forward and dx: a warp a row, or the neighbouring lanes that it takes where rows are short (of heads), three sweeps of which only
 * the first leaves L1. Weight gradients: blocks sum pieces of
 * COLUMN_PIECE_ROWS rows into scratch, then the pieces of a column are added by TURNS threads, and what these have by one; no
 * atomics, one order. They come first, so that dx may overwrite dy. Then dx goes from the last row on, for the last rows are in L2.
 *
 * Moves forward 2 elements an element, backward 3 for dx and 2 for the weights, of 2 or 4 bytes; 8 and 14 flops.
 * Bound: memory; of adding the pieces, latency. Sums of columns need 20 KB on their way in each multiprocessor of an H100 (3.35 TB/s,
 * 0.8 us): four rows a thread, for with one it is 16. Rate on an H200, bf16: forward 3.27 TB/s at
 * 131072 x 2048 (root mean square), 2.89 at 32768 x 1600, 2.69 at 65536 x 768, 76, 68 and 63 % of a copy's 4.28: by count, because a
 * warp has one row and loads nothing while it adds. Backward, with dx added to and x and dy counted once, 2.19, 2.04 and 2.32, 51, 48 and 54 %; counted
 * twice, for both parts read them, 3.28, 3.06 and 3.48. */
#include "kernels/cuda/device.cuh"

constexpr int THREADS = 128, GROUPS = 8, TURNS = 8;

template <class T> struct Norm {
  int64_t rows, d;
  float eps;
  const T *x, *w, *bias;
  T *y;
  const T *dy;
  T *dx;
  int64_t ldx, ldy, lddy, lddx;
  float *mean, *rstd; /* mean NULL: root mean square */
  int add_x;
};

/* Over LANES neighbours. The bits of a warp's sum in which the other lanes have zeros. */
template <int LANES> DEVICE float row_sum(float x) {
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(WHOLE_WARP, x, offset);
  return x;
}

/* LANES threads a row. Those beyond the last row have none, for whole warps shuffle. In f32: doubles' root and quotient, some 60 operations a
 * warp, would take as long as moving a row of 128, and where doubles run at 1/64 one of 768. */
template <class T, int N, int LANES> __global__ void forward_kernel(Norm<T> l) {
  int64_t row = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
  int64_t d = row < l.rows ? l.d : 0;
  const T *x = l.x + row * l.ldx;
  int lane = threadIdx.x % LANES;
  float mean = 0, squares = 0, v[N], w[N], b[N] = {0};
  if (l.mean != NULL) {
    for (int64_t c = lane * N; c < d; c += LANES * N) {
      load<T, N>(x + c, v);
#pragma unroll
      for (int j = 0; j < N; j++) mean += v[j];
    }
    mean = row_sum<LANES>(mean) / (float)l.d;
  }
  for (int64_t c = lane * N; c < d; c += LANES * N) {
    load<T, N>(x + c, v);
#pragma unroll
    for (int j = 0; j < N; j++) squares += (v[j] - mean) * (v[j] - mean);
  }
  float rstd = 1 / sqrtf(row_sum<LANES>(squares) / (float)l.d + l.eps);
  for (int64_t c = lane * N; c < d; c += LANES * N) {
    load<T, N>(x + c, v);
    load<T, N>(l.w + c, w);
    if (l.bias != NULL) load<T, N>(l.bias + c, b);
#pragma unroll
    for (int j = 0; j < N; j++) v[j] = (v[j] - mean) * rstd * w[j] + b[j];
    store<T, N>(l.y + row * l.ldy + c, v);
  }
  if (lane != 0 || row >= l.rows) return;
  if (l.mean != NULL) l.mean[row] = mean;
  l.rstd[row] = rstd;
}

template <class T, int N, int LANES> __global__ void input_kernel(Norm<T> l) {
  int64_t row = l.rows - 1 - ((int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES);
  int64_t d = row >= 0 ? l.d : 0;
  if (row < 0) row = 0;
  const T *x = l.x + row * l.ldx, *dy = l.dy + row * l.lddy;
  int lane = threadIdx.x % LANES;
  float mean = l.mean != NULL ? l.mean[row] : 0, rstd = l.rstd[row], sum_g = 0, sum_gx = 0, v[N], g[N], w[N];
  for (int64_t c = lane * N; c < d; c += LANES * N) {
    load<T, N>(x + c, v);
    load<T, N>(dy + c, g);
    load<T, N>(l.w + c, w);
#pragma unroll
    for (int j = 0; j < N; j++) {
      sum_g += g[j] * w[j];
      sum_gx += g[j] * w[j] * ((v[j] - mean) * rstd);
    }
  }
  float mean_g = l.mean != NULL ? row_sum<LANES>(sum_g) / (float)l.d : 0, mean_gx = row_sum<LANES>(sum_gx) / (float)l.d;
  for (int64_t c = lane * N; c < d; c += LANES * N) {
    load<T, N>(x + c, v);
    load<T, N>(dy + c, g);
    load<T, N>(l.w + c, w);
#pragma unroll
    for (int j = 0; j < N; j++) v[j] = rstd * (g[j] * w[j] - mean_g - (v[j] - mean) * rstd * mean_gx);
    put<T, N>(l.dx + row * l.lddx + c, v, l.add_x);
  }
}

/* --- columns --------------------------------------------------------------------------------------------------- */

/* Block (c, p): columns [c WARP N, ...) of piece p. A lane owns N columns, a warp every GROUPS-th row. out: [piece][2][d],
 * sums of dy xhat (where X: x is given) and of dy. */
template <class T, int N, bool X> __global__ void column_kernel(Norm<T> l, int64_t rows_a_piece, float *out) {
  SHARED_ARRAY(float, space, GROUPS *WARP *N * 2);
  int lane = threadIdx.x % WARP, group = threadIdx.x / WARP;
  int64_t col = ((int64_t)blockIdx.x * WARP + lane) * N;
  int64_t first = (int64_t)blockIdx.y * rows_a_piece, end = first + rows_a_piece < l.rows ? first + rows_a_piece : l.rows;
  float scale[N] = {0}, shift[N] = {0}, v[N], g[N];
  if (col >= l.d) end = first;
#pragma unroll 4
  for (int64_t r = first + group; r < end; r += GROUPS) {
    load<T, N>(l.dy + r * l.lddy + col, g);
    if constexpr (X) load<T, N>(l.x + r * l.ldx + col, v);
    float mean = X && l.mean != NULL ? l.mean[r] : 0, rstd = X ? l.rstd[r] : 0;
#pragma unroll
    for (int j = 0; j < N; j++) {
      shift[j] += g[j];
      if constexpr (X) scale[j] += g[j] * ((v[j] - mean) * rstd);
    }
  }
  float *mine = space + (group * WARP + lane) * 2 * N;
#pragma unroll
  for (int j = 0; j < N; j++) mine[j] = scale[j], mine[N + j] = shift[j];
  __syncthreads();
  if (group != 0 || col >= l.d) return;
  for (int other = 1; other < GROUPS; other++) {
    const float *from = space + (other * WARP + lane) * 2 * N;
#pragma unroll
    for (int j = 0; j < N; j++) scale[j] += from[j], shift[j] += from[N + j];
  }
  float *to = out + (int64_t)blockIdx.y * 2 * l.d + col;
  store<float, N>(to, scale);
  store<float, N>(to + l.d, shift);
}

/* Thread (lane, turn) of a block adds pieces turn, turn + TURNS, ... of a column; then the turns are added in order. */
template <class G>
__global__ void piece_kernel(int64_t pieces, int64_t d, const float *in, G *dw, int add_w, G *db, int add_b) {
  SHARED_ARRAY(float, space, TURNS *WARP * 2);
  int lane = threadIdx.x % WARP, turn = threadIdx.x / WARP;
  int64_t col = (int64_t)blockIdx.x * WARP + lane, end = col < d ? pieces : 0;
  float scale = 0, shift = 0;
#pragma unroll 8 /* many loads of each on their way */
  for (int64_t p = turn; p < end; p += TURNS) {
    if (dw != NULL) scale += in[p * 2 * d + col];
    shift += in[(p * 2 + 1) * d + col];
  }
  space[threadIdx.x] = scale, space[TURNS * WARP + threadIdx.x] = shift;
  __syncthreads();
  if (turn != 0 || col >= d) return;
  for (int other = 1; other < TURNS; other++) {
    scale += space[other * WARP + lane];
    shift += space[(TURNS + other) * WARP + lane];
  }
  if (dw != NULL) put<G, 1>(dw + col, &scale, add_w);
  if (db != NULL) put<G, 1>(db + col, &shift, add_b);
}

template <class T>
static int columns(CudaStream stream, Norm<T> l, bool wide, CudaTensor dw, CudaTensor db, float *scratch) {
  constexpr int WIDE = Wide<T>::N;
  int64_t pieces = cuda_column_pieces(l.rows), per_piece = ceil_of(l.rows, pieces), n = wide ? (int64_t)WIDE : 1;
  dim3 grid((unsigned)ceil_of(l.d, WARP * n), (unsigned)pieces);
  auto sums = l.x != NULL ? (wide ? column_kernel<T, WIDE, true> : column_kernel<T, 1, true>)
                          : (wide ? column_kernel<T, WIDE, false> : column_kernel<T, 1, false>);
  LAUNCH(sums, grid, GROUPS * WARP, 0, stream, l, per_piece, scratch);
  int type = dw.x != NULL ? dw.type : db.type;
  if (dw.x != NULL && db.x != NULL && dw.type != db.type) return CUDA_UNSUPPORTED;
  if (dw.x == NULL && db.x == NULL) return LAUNCHED();
  unsigned blocks = (unsigned)ceil_of(l.d, WARP);
  if (type == CUDA_F32)
    LAUNCH((piece_kernel<float>), blocks, TURNS * WARP, 0, stream, pieces, l.d, scratch, (float *)dw.x, dw.add, (float *)db.x,
           db.add);
  else
    LAUNCH((piece_kernel<T>), blocks, TURNS * WARP, 0, stream, pieces, l.d, scratch, (T *)dw.x, dw.add, (T *)db.x, db.add);
  return LAUNCHED();
}

int cuda_column_sums(CudaStream stream, int64_t rows, int64_t cols, CudaTensor dy, CudaTensor db, void *scratch) {
  if (db.type != CUDA_F32 && db.type != dy.type) return CUDA_UNSUPPORTED;
  if (cols == 0) return 0;
  bool wide = wide_ok(dy, rows, cols, wide_of(dy.type));
  CudaTensor none = {};
  FOR_TYPE(dy.type, false, (void)N; Norm<T> l = {}; l.rows = rows; l.d = cols; l.dy = (const T *)dy.x; l.lddy = dy.ld;
           return columns<T>(stream, l, wide, none, db, (float *)scratch);)
}

/* --- entry points ---------------------------------------------------------------------------------------------- */

template <bool BACK, class T, int N, int LANES> static void launch_lanes(CudaStream stream, const Norm<T> &l) {
  LAUNCH((BACK ? input_kernel<T, N, LANES> : forward_kernel<T, N, LANES>), (unsigned)ceil_of(l.rows, THREADS / LANES), THREADS, 0, stream, l);
}

/* Of rows that half or a quarter of a warp takes at once, in 16-byte pieces, a warp has two or four. */
template <bool BACK, class T, int N> static void launch_rows(CudaStream stream, const Norm<T> &l) {
  if constexpr (N > 1) {
    if (l.d <= 8 * N) return launch_lanes<BACK, T, N, 8>(stream, l);
    if (l.d <= 16 * N) return launch_lanes<BACK, T, N, 16>(stream, l);
  }
  launch_lanes<BACK, T, N, WARP>(stream, l);
}

int cuda_norm_fwd(CudaStream stream, int64_t rows, int64_t d, double eps, CudaTensor x, CudaTensor w, CudaTensor bias,
                  CudaTensor y, float *mean, float *rstd) {
  if (x.type != y.type || w.type != y.type || (bias.x != NULL && bias.type != y.type)) return CUDA_UNSUPPORTED;
  if (rows == 0) return 0;
  int n = wide_of(y.type);
  bool wide = wide_ok(x, rows, d, n) && wide_ok(w, 1, d, n) && wide_ok(bias, 1, d, n) && wide_ok(y, rows, d, n);
  FOR_TYPE(y.type, wide, Norm<T> l = {}; l.rows = rows; l.d = d; l.eps = (float)eps; l.x = (const T *)x.x; l.ldx = x.ld;
           l.w = (const T *)w.x; l.bias = (const T *)bias.x; l.y = (T *)y.x; l.ldy = y.ld; l.mean = mean; l.rstd = rstd;
           launch_rows<false, T, N>(stream, l);)
  return LAUNCHED();
}

int cuda_norm_bwd(CudaStream stream, int64_t rows, int64_t d, CudaTensor x, CudaTensor w, const float *mean,
                  const float *rstd, CudaTensor dy, CudaTensor dx, CudaTensor dw, CudaTensor dbias, void *scratch) {
  if (x.type != dx.type || w.type != dx.type || dy.type != dx.type) return CUDA_UNSUPPORTED;
  if (dw.type != CUDA_F32 && dw.type != dx.type) return CUDA_UNSUPPORTED;
  int n = wide_of(dx.type);
  bool wide = wide_ok(x, rows, d, n) && wide_ok(w, 1, d, n) && wide_ok(dy, rows, d, n) && wide_ok(dx, rows, d, n);
  FOR_TYPE(dx.type, wide, Norm<T> l = {}; l.rows = rows; l.d = d; l.x = (const T *)x.x; l.ldx = x.ld;
           l.w = (const T *)w.x; l.dy = (const T *)dy.x; l.lddy = dy.ld; l.dx = (T *)dx.x; l.lddx = dx.ld;
           l.mean = (float *)mean; l.rstd = (float *)rstd; l.add_x = dx.add;
           int failed = columns<T>(stream, l, wide, dw, dbias, (float *)scratch); if (failed || rows == 0) return failed;
           launch_rows<true, T, N>(stream, l);)
  return LAUNCHED();
}
