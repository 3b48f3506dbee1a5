/* Owns: layer and root-mean-square normalisation over rows, and sums of columns (bias gradients).
 *
 * Forward and dx: a warp a row, or the neighbouring lanes that it takes where rows are short (of heads). Forward keeps the row in registers
 * up to 2048 elements of 16 bits; else, and for dx, there are sweeps of which only the first leaves L1. Weight gradients: blocks sum pieces of
 * COLUMN_PIECE_ROWS rows into scratch, then the pieces of a column are added by TURNS threads, and what these have by one; no
 * atomics, one order. They come first, so that dx may overwrite dy. Then dx goes from the last row on, for the last rows are in L2.
 * Of many rows that a block can hold, dx and the pieces' sums are made in one sweep (`one_sweep`), x and dy read once.
 *
 * Moves forward 2 elements an element, backward 3 in one sweep, else 3 for dx and 2 for the weights, of 2 or 4 bytes, one more with `add`;
 * 8 and 14 flops.
 * Bound: memory; of adding the pieces, latency. Sums of columns need 20 KB on their way in each multiprocessor of an H100 (3.35 TB/s,
 * 0.8 us): four rows a thread, for with one it is 16. Rate on an H200, bf16, of a copy's 4.28 TB/s: forward
 * 4.01 at 65536 x 2048 (root mean square), 3.21 at 65536 x 768 and 3.14 at 32768 x 1600, 94, 75 and 73 %; backward in one sweep, with dx added to,
 * 3.76, 2.84 and 2.49, 88, 66 and 58 %, counting x and dy once. With rows read three times forward was 3.31, 2.69 and 2.90, backward in two
 * sweeps 2.15, 2.32 and 2.04. Sums of columns alone, of products' gradients: 2.8 at 65536 x 3072, 1.3 at 65536 x 768, by difference. */
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
  const T *weights;   /* of rows whose columns are summed; their own rows are ldw apart */
  int64_t ldw;
  int add_x;
};

/* Over LANES neighbours. The bits of a warp's sum in which the other lanes have zeros. */
template <int LANES> DEVICE float row_sum(float x) {
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(WHOLE_WARP, x, offset);
  return x;
}

template <class T> DEVICE uint4 raw_of(const T *x) { return *reinterpret_cast<const uint4 *>(x); }
template <class T, int N> DEVICE void floats_of(const uint4 &raw, float *out) { load<T, N>((const T *)&raw, out); }

/* LANES threads a row, which they keep as it lies in memory in KEPT pieces each; 0: they read it three times. Those beyond the last row
 * take it, too, and store nothing, for whole warps shuffle. In f32: doubles' root and quotient, some 60 operations a
 * warp, would take as long as moving a row of 128, and where doubles run at 1/64 one of 768. */
template <class T, int N, int LANES, int KEPT> __global__ void forward_kernel(Norm<T> l) {
  int64_t row = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES, d = l.d;
  const T *x = l.x + (row < l.rows ? row : l.rows - 1) * l.ldx;
  int lane = threadIdx.x % LANES;
  float mean = 0, squares = 0, v[N], w[N], b[N] = {0};
  uint4 kept[KEPT + 1];
#pragma unroll
  for (int k = 0; k < KEPT; k++) kept[k] = raw_of(x + ((k * LANES + lane) * N < d ? (k * LANES + lane) * N : 0));
  __syncwarp(); /* or ptxas starts a read only when another has been added, to save registers */
  auto each = [&](auto f) {
    if constexpr (KEPT > 0) {
#pragma unroll
      for (int k = 0; k < KEPT; k++)
        if ((k * LANES + lane) * N < d) floats_of<T, N>(kept[k], v), f((k * LANES + lane) * N);
    } else {
      for (int64_t c = lane * N; c < d; c += LANES * N) load<T, N>(x + c, v), f(c);
    }
  };
  if (l.mean != NULL) {
    each([&](int64_t) {
#pragma unroll
      for (int j = 0; j < N; j++) mean += v[j];
    });
    mean = row_sum<LANES>(mean) / (float)d;
  }
  each([&](int64_t) {
#pragma unroll
    for (int j = 0; j < N; j++) squares += (v[j] - mean) * (v[j] - mean);
  });
  float rstd = 1 / sqrtf(row_sum<LANES>(squares) / (float)d + l.eps);
  if (row >= l.rows) return;
  each([&](int64_t c) {
    load<T, N>(l.w + c, w);
    if (l.bias != NULL) load<T, N>(l.bias + c, b);
#pragma unroll
    for (int j = 0; j < N; j++) v[j] = (v[j] - mean) * rstd * w[j] + b[j];
    store<T, N>(l.y + row * l.ldy + c, v);
  });
  if (lane != 0) return;
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

enum Columns { PLAIN, WEIGHTED, OF_NORM };

/* Block (c, p): columns [c WARP N, ...) of piece p. A lane owns N columns, a warp every GROUPS-th row. out: [piece][2][d],
 * sums of dy xhat (OF_NORM) and of dy, WEIGHTED: row by row. */
template <class T, int N, Columns KIND> __global__ void column_kernel(Norm<T> l, int64_t rows_a_piece, float *out) {
  SHARED_ARRAY(float, space, GROUPS *WARP *N * 2);
  int lane = threadIdx.x % WARP, group = threadIdx.x / WARP;
  int64_t col = ((int64_t)blockIdx.x * WARP + lane) * N;
  int64_t first = (int64_t)blockIdx.y * rows_a_piece, end = first + rows_a_piece < l.rows ? first + rows_a_piece : l.rows;
  float scale[N] = {0}, shift[N] = {0}, v[N], g[N];
  if (col >= l.d) end = first;
#pragma unroll 4
  for (int64_t r = first + group; r < end; r += GROUPS) {
    load<T, N>(l.dy + r * l.lddy + col, g);
    if constexpr (KIND == OF_NORM) load<T, N>(l.x + r * l.ldx + col, v);
    float mean = KIND == OF_NORM && l.mean != NULL ? l.mean[r] : 0, rstd = KIND == OF_NORM ? l.rstd[r] : 0;
    float weight = KIND == WEIGHTED ? to_float(l.weights[r * l.ldw]) : 1;
#pragma unroll
    for (int j = 0; j < N; j++) {
      shift[j] += KIND == WEIGHTED ? weight * g[j] : g[j];
      if constexpr (KIND == OF_NORM) scale[j] += g[j] * ((v[j] - mean) * rstd);
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
    if (db != NULL) shift += in[(p * 2 + 1) * d + col];
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

/* Adds the pieces that scratch has. */
template <class T> static int add_pieces(CudaStream stream, const Norm<T> &l, CudaTensor dw, CudaTensor db, const float *scratch) {
  int64_t pieces = cuda_column_pieces(l.rows);
  int type = dw.x != NULL ? dw.type : db.type;
  if (dw.x == NULL && db.x == NULL) return LAUNCHED();
  unsigned blocks = (unsigned)ceil_of(l.d, WARP);
  if (type == CUDA_F32)
    LAUNCH((piece_kernel<float>), blocks, TURNS * WARP, 0, stream, pieces, l.d, scratch, (float *)dw.x, dw.add, (float *)db.x,
           db.add);
  else
    LAUNCH((piece_kernel<T>), blocks, TURNS * WARP, 0, stream, pieces, l.d, scratch, (T *)dw.x, dw.add, (T *)db.x, db.add);
  return LAUNCHED();
}

template <class T, Columns KIND> static void launch_columns(CudaStream stream, const Norm<T> &l, bool wide, float *scratch) {
  constexpr int WIDE = Wide<T>::N;
  int64_t pieces = cuda_column_pieces(l.rows), per_piece = ceil_of(l.rows, pieces), n = wide ? (int64_t)WIDE : 1;
  dim3 grid((unsigned)ceil_of(l.d, WARP * n), (unsigned)pieces);
  auto sums = wide ? column_kernel<T, WIDE, KIND> : column_kernel<T, 1, KIND>;
  LAUNCH(sums, grid, GROUPS * WARP, 0, stream, l, per_piece, scratch);
}

int cuda_column_sums(CudaStream stream, int64_t rows, int64_t cols, CudaTensor x, CudaTensor weights, CudaTensor sums, void *scratch) {
  if ((sums.type != CUDA_F32 && sums.type != x.type) || (weights.x != NULL && weights.type != x.type)) return CUDA_UNSUPPORTED;
  if (cols == 0) return 0;
  bool wide = wide_ok(x, rows, cols, wide_of(x.type));
  CudaTensor none = {};
  FOR_TYPE(x.type, false, (void)N; Norm<T> l = {}; l.rows = rows; l.d = cols; l.dy = (const T *)x.x; l.lddy = x.ld;
           l.weights = (const T *)weights.x; l.ldw = weights.ld;
           if (weights.x != NULL) launch_columns<T, WEIGHTED>(stream, l, wide, (float *)scratch);
           else launch_columns<T, PLAIN>(stream, l, wide, (float *)scratch);
           return add_pieces<T>(stream, l, none, sums, (const float *)scratch);)
}

/* --- backward in one sweep ---------------------------------------------------------------------------------------- */

constexpr int AT_ONCE = 4 /* rows of a thread on their way */, SWEEP_WARPS = 16;

/* Of a row and a thread's N columns: x, dy and what dx is added to, as they lie in memory. */
struct Piece {
  uint4 x, dy, old;
};

/* Of AT_ONCE rows. Where the row or the column is not there dy is 0, and x any that is: no branch between loads. */
template <class T> DEVICE void pieces_take(const Norm<T> &l, int64_t row, int64_t end, int64_t col, Piece *piece) {
  int64_t at = col < l.d ? col : 0;
#pragma unroll
  for (int k = 0; k < AT_ONCE; k++) {
    int64_t r = row + k < end ? row + k : end - 1;
    piece[k].x = raw_of(l.x + r * l.ldx + at);
    piece[k].dy = raw_of(l.dy + r * l.lddy + at);
    piece[k].old = uint4{0, 0, 0, 0};
  }
  if (l.add_x)
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) piece[k].old = raw_of(l.dx + (row + k < end ? row + k : end - 1) * l.lddx + at);
#pragma unroll
  for (int k = 0; k < AT_ONCE; k++)
    if (row + k >= end || col >= l.d) piece[k].dy = uint4{0, 0, 0, 0};
}

/* What the piece adds to its row's sums of dy w xhat and of dy w, and to its columns'. */
template <bool CENTRED, class T, int N>
DEVICE void piece_sums(const Piece &p, float mean, float rstd, const float *w, float &sum_gx, float &sum_g, float *scale, float *shift) {
  float v[N], g[N];
  floats_of<T, N>(p.x, v);
  floats_of<T, N>(p.dy, g);
  sum_gx = sum_g = 0;
#pragma unroll
  for (int j = 0; j < N; j++) {
    v[j] = (v[j] - mean) * rstd;
    sum_gx += g[j] * w[j] * v[j];
    scale[j] += g[j] * v[j];
    if (CENTRED) sum_g += g[j] * w[j], shift[j] += g[j];
  }
}

template <class T, int N>
DEVICE void piece_put(const Piece &p, float mean, float rstd, const float *w, float mean_gx, float mean_g, T *dx, int add) {
  float v[N], g[N], old[N];
  floats_of<T, N>(p.x, v);
  floats_of<T, N>(p.dy, g);
  floats_of<T, N>(p.old, old);
#pragma unroll
  for (int j = 0; j < N; j++) {
    v[j] = rstd * (g[j] * w[j] - mean_g - (v[j] - mean) * rstd * mean_gx);
    if (add) v[j] += old[j];
  }
  store<T, N>(dx, v);
}

/* Each of COUNT numbers summed over `warps` warps, of which the block's warp `first` is the first. All threads. space: COUNT a warp, which
 * the next call leaves alone, so that one barrier is enough. */
template <int COUNT> DEVICE void warps_sum(float *sum, float *space, int first, int warps) {
  int lane = threadIdx.x % WARP;
#pragma unroll
  for (int i = 0; i < COUNT; i++) sum[i] = row_sum<WARP>(sum[i]);
  if (warps == 1) return;
  if (lane == 0)
#pragma unroll
    for (int i = 0; i < COUNT; i++) space[threadIdx.x / WARP * COUNT + i] = sum[i];
  __syncthreads();
  float total = 0;
  for (int w = first; lane < COUNT && w < first + warps; w++) total += space[w * COUNT + lane];
#pragma unroll
  for (int i = 0; i < COUNT; i++) sum[i] = __shfl_sync(WHOLE_WARP, total, i);
}

/* Adds what the block's slots have of each column, in their order; the first keeps it. */
template <int N> DEVICE void slots_sum(float *space, int slot_threads, float *scale, float *shift) {
  float *mine = space + threadIdx.x * 2 * N;
#pragma unroll
  for (int j = 0; j < N; j++) mine[j] = scale[j], mine[N + j] = shift[j];
  __syncthreads();
  for (int other = threadIdx.x + slot_threads; (int)threadIdx.x < slot_threads && other < (int)blockDim.x; other += slot_threads) {
    const float *from = space + other * 2 * N;
#pragma unroll
    for (int j = 0; j < N; j++) scale[j] += from[j], shift[j] += from[N + j];
  }
}

/* dx of a piece of rows, and its sums for the weights as column_kernel leaves them. A row is `warps` warps', a slot; the block's slots take
 * AT_ONCE rows each at a time. dx may be dy: an element is one thread's. */
template <class T, int N, bool CENTRED>
__global__ void __launch_bounds__(SWEEP_WARPS *WARP) sweep_kernel(Norm<T> l, int64_t rows_a_piece, int warps, float *out) {
  constexpr int COUNT = CENTRED ? 2 * AT_ONCE : AT_ONCE;
  SHARED_ARRAY(float, space, SWEEP_WARPS *WARP *N * 2);
  SHARED_ARRAY(float, sums, 2 * SWEEP_WARPS * COUNT);
  int slot = threadIdx.x / WARP / warps, slots = blockDim.x / WARP / warps, turn = 0;
  int64_t col = (int64_t)(threadIdx.x - slot * warps * WARP) * N;
  int64_t first = (int64_t)blockIdx.x * rows_a_piece, end = first + rows_a_piece < l.rows ? first + rows_a_piece : l.rows;
  float w[N] = {0}, scale[N] = {0}, shift[N] = {0}, inverse = 1 / (float)l.d;
  if (col < l.d) load<T, N>(l.w + col, w);
  for (int64_t row = first + slot * AT_ONCE; row - slot * AT_ONCE < end; row += slots * AT_ONCE, turn ^= 1) { /* all threads together */
    Piece piece[AT_ONCE];
    float sum[2 * AT_ONCE]; /* of dy w xhat, then of dy w */
    pieces_take(l, row, end, col, piece);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      int64_t r = row + k < end ? row + k : end - 1;
      piece_sums<CENTRED, T, N>(piece[k], CENTRED ? l.mean[r] : 0, l.rstd[r], w, sum[k], sum[AT_ONCE + k], scale, shift);
    }
    warps_sum<COUNT>(sum, sums + turn * SWEEP_WARPS * COUNT, slot * warps, warps);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
      if (row + k < end && col < l.d) /* mean and rstd once more out of L1, for they would take the last registers */
        piece_put<T, N>(piece[k], CENTRED ? l.mean[row + k] : 0, l.rstd[row + k], w, sum[k] * inverse,
                        CENTRED ? sum[AT_ONCE + k] * inverse : 0, l.dx + (row + k) * l.lddx + col, l.add_x);
  }
  slots_sum<N>(space, warps * WARP, scale, shift);
  if (slot != 0 || col >= l.d) return;
  float *to = out + (int64_t)blockIdx.x * 2 * l.d + col;
  store<float, N>(to, scale);
  store<float, N>(to + l.d, shift);
}

/* Where there are as many pieces as there may be, which two a multiprocessor then have in flight, and where a row is a block's at most. */
template <class T> static bool one_sweep(const Norm<T> &l, bool wide) {
  constexpr int N = Wide<T>::N;
  return wide && cuda_column_pieces(l.rows) == COLUMN_MOST_PIECES && l.d > WARP / 2 * N && l.d <= SWEEP_WARPS * WARP * N;
}

template <class T> static void launch_sweep(CudaStream stream, const Norm<T> &l, float *scratch) {
  constexpr int N = Wide<T>::N;
  int64_t pieces = cuda_column_pieces(l.rows), warps = ceil_of(l.d, WARP * N), slots = warps < GROUPS ? GROUPS / warps : 1;
  auto sweep = l.mean != NULL ? sweep_kernel<T, N, true> : sweep_kernel<T, N, false>;
  LAUNCH(sweep, (unsigned)pieces, (unsigned)(warps * slots * WARP), 0, stream, l, ceil_of(l.rows, pieces), (int)warps, scratch);
}

/* --- entry points ---------------------------------------------------------------------------------------------- */

template <class T, int N, int LANES> static void (*forward_of(int64_t d))(Norm<T>) {
  if constexpr (N == 1) return forward_kernel<T, N, LANES, 0>;
  else if constexpr (LANES < WARP) return forward_kernel<T, N, LANES, 1>;
  else if (d <= 4 * LANES * N) return forward_kernel<T, N, LANES, 4>;
  else return d <= 8 * LANES * N ? forward_kernel<T, N, LANES, 8> : forward_kernel<T, N, LANES, 0>;
}

template <bool BACK, class T, int N, int LANES> static void launch_lanes(CudaStream stream, const Norm<T> &l) {
  LAUNCH((BACK ? input_kernel<T, N, LANES> : forward_of<T, N, LANES>(l.d)), (unsigned)ceil_of(l.rows, THREADS / LANES), THREADS, 0, stream, l);
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
  if (dbias.x != NULL && dbias.type != dw.type) return CUDA_UNSUPPORTED;
  int n = wide_of(dx.type);
  bool wide = wide_ok(x, rows, d, n) && wide_ok(w, 1, d, n) && wide_ok(dy, rows, d, n) && wide_ok(dx, rows, d, n);
  FOR_TYPE(dx.type, wide, Norm<T> l = {}; l.rows = rows; l.d = d; l.x = (const T *)x.x; l.ldx = x.ld;
           l.w = (const T *)w.x; l.dy = (const T *)dy.x; l.lddy = dy.ld; l.dx = (T *)dx.x; l.lddx = dx.ld;
           l.mean = (float *)mean; l.rstd = (float *)rstd; l.add_x = dx.add;
           if (one_sweep(l, wide)) launch_sweep(stream, l, (float *)scratch); else launch_columns<T, OF_NORM>(stream, l, wide, (float *)scratch);
           int failed = add_pieces<T>(stream, l, dw, dbias, (const float *)scratch);
           if (failed || rows == 0 || one_sweep(l, wide)) return failed;
           launch_rows<true, T, N>(stream, l);)
  return LAUNCHED();
}
