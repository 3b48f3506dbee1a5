/* Owns: Adafactor (arXiv 1804.04235, as kernels/cpu/adafactor.c and runtime/cpu/cpu_adafactor.c) over a whole unit at a time:
 * blockIdx.y is the parameter. Sums over rows and columns are integers on a grid and norms are exact, so no order of
 * threads, blocks or ranks shows.
 *
 * Moves an element: gradient three times, weight twice and its update, the cast: 20 to 26 bytes, 12 to 18 with
 * bf16 weights, for some 20 flops; gradients and weights by 16 bytes (the update by 4 elements). Sums and moments, rows plus
 * columns of them, lie at any multiple of 4 and come out of L1 and L2 one by one; a division of integers finds their row for
 * each piece of 4 or 8.
 * Bound: memory; for sums of 16-bit gradients, their two conversions from and to double an element, 16 a clock and multiprocessor on
 * computes 8.0 and 9.0. Rate: not measured; on an H200 it trained as on the CPU. */
#include "kernels/cuda/exact.cuh"
#include "kernels/cuda/weights.cuh"

constexpr int THREADS = EXACT_THREADS, TILE_ROWS = 64, AT_ONCE = 4, PER = 4, MOST_BLOCKS = 512, SUM_BITS = 62;

/* What the kernels of one instruction hand on, in scratch memory: doubles. */
struct Handed {
  double *grid;      /* 1: 2^k such that all squares together, times this, lie below 2^SUM_BITS; 0: no finite sum */
  double *row_scale; /* a parameter: 1 / mean of the rows' moments */
  double *keep, *step;
};

static Handed handed_in(void *scratch, int32_t params) {
  double *x = (double *)scratch;
  return Handed{x, x + 1, x + 1 + params, x + 1 + 2 * params};
}

static __global__ void grid_kernel(const int64_t *acc, double *grid) {
  double squares = exact_round(acc);
  int exponent = 0;
  bool good = squares > 0 && squares - squares == 0; /* neither NaN nor infinite */
  if (good) frexp(squares, &exponent);
  *grid = good ? ldexp(1.0, SUM_BITS - exponent) : 0;
}

/* --- sums over rows and columns -------------------------------------------------------------------------------- */

DEVICE void add_integer(int64_t *to, int64_t x) {
  if (x != 0) atomicAdd((unsigned long long *)to, (unsigned long long)x);
}

DEVICE int64_t warp_total(int64_t x) {
  for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(WHOLE_WARP, x, offset);
  return x;
}

/* Elements e to e + N - 1 of the parameter; 0 for those that are not in this shard. */
template <int N, class G> DEVICE void own_elements(const CudaFactored &p, const G *g, int64_t e, float *x) {
  const G *at = g + (p.local + e - p.first);
  if (e >= p.first && e + N <= p.first + p.count) {
    load<G, N>(at, x);
    return;
  }
#pragma unroll
  for (int j = 0; j < N; j++) {
    x[j] = 0;
    if (e + j >= p.first && e + j < p.first + p.count) load<G, 1>(at + j, x + j);
  }
}

/* The square of x, cut to the grid. */
DEVICE int64_t square_of(float x, double grid) { return (int64_t)((double)x * (double)x * grid); }

/* A warp walks down TILE_ROWS rows of WARP N columns, of which a lane owns N neighbours; several rows are on their way at a
 * time. */
template <int N, class G>
DEVICE void matrix_tile(const CudaFactored &p, const G *g, double grid, int64_t rows_end, int64_t row, int64_t column,
                        int64_t *sums) {
  int64_t total[N] = {0}, end = row + TILE_ROWS < rows_end ? row + TILE_ROWS : rows_end;
  for (int64_t first = row; first < end; first += AT_ONCE) {
    float x[AT_ONCE][N] = {};
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
      if (first + k < end && column < p.cols) own_elements<N>(p, g, (first + k) * p.cols + column, x[k]);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      int64_t sum = 0;
#pragma unroll
      for (int j = 0; j < N; j++) {
        int64_t square = square_of(x[k][j], grid);
        total[j] += square, sum += square;
      }
      sum = warp_total(sum);
      if (threadIdx.x % WARP == 0 && first + k < end) add_integer(&sums[p.row_at + first + k], sum);
    }
  }
#pragma unroll
  for (int j = 0; j < N; j++)
    if (column < p.cols) add_integer(&sums[p.col_at + column + j], total[j]);
}

template <int N, class G> DEVICE void matrix_sums(const CudaFactored &p, const G *g, double grid, int64_t *sums) {
  constexpr int WARPS = THREADS / WARP;
  int64_t first = p.first / p.cols, end = (p.first + p.count - 1) / p.cols + 1;
  int64_t across = (p.cols + WARP * N - 1) / (WARP * N), tiles = (end - first + TILE_ROWS - 1) / TILE_ROWS * across;
  for (int64_t tile = blockIdx.x * WARPS + threadIdx.x / WARP; tile < tiles; tile += gridDim.x * WARPS) {
    int64_t row = first + tile / across * TILE_ROWS, column = (tile % across * WARP + threadIdx.x % WARP) * N;
    matrix_tile<N>(p, g, grid, end, row, column, sums);
  }
}

/* A vector: every element has its own. */
template <class G> DEVICE void vector_sums(const CudaFactored &p, const G *g, double grid, int64_t *sums) {
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.count; i += (int64_t)gridDim.x * THREADS)
    sums[p.row_at + p.first + i] = square_of(to_float(g[p.local + i]), grid);
}

/* Rows of other lengths, and shards that begin elsewhere, are read one by one. */
template <class G, int N>
__global__ void sums_kernel(const CudaFactored *params, const G *g, const double *grid, int64_t *sums) {
  const CudaFactored p = params[blockIdx.y];
  if (p.count == 0 || *grid == 0) return;
  if (p.col_at < 0) vector_sums(p, g, *grid, sums);
  else if (p.cols % N == 0 && p.first % N == 0) matrix_sums<N>(p, g, *grid, sums);
  else matrix_sums<1>(p, g, *grid, sums);
}

/* --- exact norms of what lies in this shard ---------------------------------------------------------------------- */

/* value: of the elements of the shard's part, by whose runs squares are summed: a run never crosses shards. */
template <int N, class F> DEVICE void exact_norm(int64_t count, const F &value, int64_t *norms) {
  int64_t *norm = norms + (int64_t)blockIdx.y * EXACT_WORDS;
  exact_squares<N>((count + RUN - 1) / RUN, [=](int64_t i) { return count - i; }, value, norm);
}

template <class W, int N> __global__ void weights_kernel(const CudaFactored *params, const W *w, int64_t *norms) {
  const CudaFactored p = params[blockIdx.y];
  if (p.count > 0) exact_norm<N>(p.count, Elements<W>{w + p.local}, norms);
}

/* g / sqrt(second moment) of elements of the shard's part. */
template <class G> struct Divided {
  typedef G Element;
  CudaFactored p;
  const G *g;
  const float *v;
  double row_scale;
  float scale, floor;

  /* Of a matrix: the row's moment over the mean of all. */
  DEVICE float row_factor(int64_t row) const { return (float)((double)v[p.row_at + row] * row_scale); }

  /* Second moments of elements e to e + N - 1 of the parameter; e is a multiple of N in the part. One division finds row and
   * column of the first; mostly they are all of one row. */
  template <int N> DEVICE void seconds(int64_t e, float *out) const {
    if (p.col_at < 0) {
#pragma unroll
      for (int j = 0; j < N; j++) out[j] = v[p.row_at + e + j];
      return;
    }
    const float *moment = v + p.col_at;
    int64_t row = e / p.cols, column = e - row * p.cols;
    float factor = row_factor(row);
    if (p.cols % N == 0 && p.first % N == 0) {
#pragma unroll
      for (int j = 0; j < N; j++) out[j] = factor * moment[column + j];
      return;
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
      if (column == p.cols) column = 0, factor = row_factor(++row);
      out[j] = factor * moment[column++];
    }
  }

  DEVICE const G *at(int64_t i) const { return g + p.local + i; }

  /* grad: of elements [i, i + N) of the part, i a multiple of N, in place */
  template <int N> DEVICE void finish(int64_t i, float *grad) const {
    float second[N];
    seconds<N>(p.first + i, second);
#pragma unroll
    for (int j = 0; j < N; j++) grad[j] = scale * grad[j] / sqrtf(fmaxf(second[j], floor));
  }
};

template <class G, int N>
__global__ void norms_kernel(const CudaFactored *params, CudaAdafactor a, const G *g, const float *scale, const float *v,
                             Handed h, int64_t *norms) {
  const CudaFactored p = params[blockIdx.y];
  if (*scale != *scale || p.count == 0) return; /* NaN: this step is skipped */
  exact_norm<N>(p.count, Divided<G>{p, g, v, h.row_scale[blockIdx.y], *scale, (float)(a.eps * a.eps)}, norms);
}

/* --- moments, rates, update ---------------------------------------------------------------------------------------- */

DEVICE void average(float *v, const int64_t *sums, int64_t n, double weight, double factor) {
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
    v[i] = (float)((double)v[i] + weight * ((double)sums[i] * factor - (double)v[i]));
}

static __global__ void average_kernel(const CudaFactored *params, CudaAdafactor a, const CudaStep *step,
                                      const float *scale, Handed h, const int64_t *sums, float *v) {
  const CudaFactored p = params[blockIdx.y];
  if (*scale != *scale) return;
  double weight = pow((double)step->update, a.beta2_decay), s = (double)*scale;
  double unit = *h.grid > 0 ? s * s / *h.grid : 0; /* of one integer, after clipping */
  average(v + p.row_at, sums + p.row_at, p.rows, weight, unit / (double)p.cols);
  if (p.col_at >= 0) average(v + p.col_at, sums + p.col_at, p.cols, weight, unit / (double)p.rows);
}

/* A block a parameter. */
static __global__ void row_scale_kernel(const CudaFactored *params, double eps, const float *v, double *row_scale) {
  SHARED_ARRAY(double, space, THREADS / WARP);
  const CudaFactored p = params[blockIdx.x];
  double sum = 0;
  for (int64_t r = threadIdx.x; r < p.rows; r += THREADS) sum += (double)v[p.row_at + r];
  sum = block_sum(sum, space);
  if (threadIdx.x == 0) row_scale[blockIdx.x] = 1 / fmax(sum / (double)p.rows, eps);
}

/* A thread a parameter. squares: exact, of the weights; norms: of the updates. */
static __global__ void rates_kernel(const CudaFactored *params, int32_t count, CudaAdafactor a, const CudaStep *step,
                                    const int64_t *squares, const int64_t *norms, Handed h) {
  int32_t i = (int32_t)(blockIdx.x * WARP + threadIdx.x);
  if (i >= count) return;
  const CudaFactored p = params[i];
  double n = (double)(p.rows * p.cols);
  double weights = sqrt(exact_round(squares + (int64_t)i * EXACT_WORDS) / n);
  double updates = sqrt(exact_round(norms + (int64_t)i * EXACT_WORDS) / n);
  h.keep[i] = 1 - step->lr * p.decay;
  h.step[i] = fmax(a.eps2, weights) * fmin(step->lr, 1 / sqrt((double)step->update)) / fmax(1.0, updates / a.threshold);
}

/* G: gradient, W: weights, C: cast. Of the part of one parameter. */
template <class G, class W, class C> struct Step {
  Divided<G> u;
  W *w;
  C *cast;
  float keep, step;
  Rounder rounder;

  /* Fused by name, as optimizer.cu says why. */
  DEVICE float moved(float x, float grad) const { return fmaf(keep, x, -(step * grad)); }

  DEVICE void one(int64_t i) const {
    float grad = to_float(*u.at(i));
    u.template finish<1>(i, &grad);
    i += u.p.local;
    float x = moved(to_float(w[i]), grad);
    w[i] = rounded<W>(x, i, rounder);
    if (cast != NULL) cast[i] = from_float<C>(x);
  }

  DEVICE void four(int64_t i) const {
    float grad[PER], x[PER];
    W kept[PER];
    C copy[PER];
    four_take(u.at(i), grad);
    u.template finish<PER>(i, grad);
    i += u.p.local;
    four_take(w + i, x);
#pragma unroll
    for (int j = 0; j < PER; j++) {
      x[j] = moved(x[j], grad[j]);
      kept[j] = rounded<W>(x[j], i + j, rounder);
      copy[j] = from_float<C>(x[j]);
    }
    four_put(w + i, kept);
    if (cast != NULL) four_put(cast + i, copy);
  }
};

template <class G, class W, class C>
__global__ void update_kernel(const CudaFactored *params, CudaAdafactor a, CudaUpdate t, const float *v, Handed h) {
  const CudaFactored p = params[blockIdx.y];
  if (*t.scale != *t.scale || p.count == 0) return;
  Divided<G> u = {p, (const G *)t.g.x, v, h.row_scale[blockIdx.y], *t.scale, (float)(a.eps * a.eps)};
  Step<G, W, C> s = {u, (W *)t.w.x, (C *)t.cast.x, (float)h.keep[blockIdx.y], (float)h.step[blockIdx.y],
                     rounder_of<W>(t.rounding, t.step, p.name_hash, p.local, p.first)};
  int64_t stride = (int64_t)gridDim.x * THREADS * PER;
  for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * PER; i < p.count; i += stride) {
    if (i + PER <= p.count) {
      s.four(i);
    } else {
      for (int64_t j = i; j < p.count; j++) s.one(j);
    }
  }
}

/* --- launches -------------------------------------------------------------------------------------------------------- */

/* As shards start; parts of parameters begin at multiples of 64 elements there. */
static bool aligned(CudaTensor t) { return (uintptr_t)t.x % 16 == 0; }

/* Blocks in x enough for the largest parameter's share of n elements, one a thread. */
static dim3 blocks_of(const CudaFactoreds &params, int64_t n) {
  int64_t blocks = ceil_of(n, THREADS);
  return dim3((unsigned)(blocks < 1 ? 1 : blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), (unsigned)params.count);
}

int cuda_adafactor_sums(CudaStream stream, CudaFactoreds params, int64_t shard, CudaTensor g, CudaTensor w,
                        const int64_t *acc, int64_t *sums, void *scratch) {
  if (params.count == 0) return 0;
  Handed h = handed_in(scratch, params.count);
  LAUNCH(grid_kernel, 1, 1, 0, stream, acc, h.grid);
  FOR_TYPE(g.type, aligned(g), LAUNCH((sums_kernel<T, N>), blocks_of(params, ceil_of(shard, N)), THREADS, 0, stream, params.data,
                                      (const T *)g.x, h.grid, sums);)
  FOR_TYPE(w.type, aligned(w), LAUNCH((weights_kernel<T, N>), blocks_of(params, ceil_of(shard, N)), THREADS, 0, stream, params.data,
                                      (const T *)w.x, sums + params.moments);)
  return LAUNCHED();
}

int cuda_adafactor_moments(CudaStream stream, const CudaStep *step, CudaAdafactor a, CudaFactoreds params, int64_t shard,
                           CudaTensor g, const int64_t *acc, const float *scale, const int64_t *sums, float *v,
                           int64_t *norms, void *scratch) {
  if (params.count == 0) return 0;
  Handed h = handed_in(scratch, params.count);
  LAUNCH(grid_kernel, 1, 1, 0, stream, acc, h.grid);
  LAUNCH(average_kernel, blocks_of(params, params.moments), THREADS, 0, stream, params.data, a, step, scale, h, sums, v);
  LAUNCH(row_scale_kernel, (unsigned)params.count, THREADS, 0, stream, params.data, a.eps, v, h.row_scale);
  FOR_TYPE(g.type, aligned(g), LAUNCH((norms_kernel<T, N>), blocks_of(params, ceil_of(shard, N)), THREADS, 0, stream, params.data, a,
                                      (const T *)g.x, scale, v, h, norms);)
  return LAUNCHED();
}

template <class G, class W, class C>
static int launch_update(CudaStream stream, const CudaUpdate &t, const CudaAdafactor &a, const CudaFactoreds &params,
                         const float *v, const Handed &h) {
  LAUNCH((update_kernel<G, W, C>), blocks_of(params, ceil_of(t.shard, PER)), THREADS, 0, stream, params.data, a, t, v, h);
  return LAUNCHED();
}

int cuda_adafactor(CudaStream stream, const CudaUpdate *update, CudaAdafactor a, CudaFactoreds params, const int64_t *sums,
                   const int64_t *norms, const float *v, void *scratch) {
  const CudaUpdate &t = *update;
  if (!aligned(t.g) || !aligned(t.w) || !aligned(t.cast)) return CUDA_UNSUPPORTED;
  if (params.count == 0) return 0;
  Handed h = handed_in(scratch, params.count);
  int from = t.g.type, to = t.cast.x == NULL ? from : t.cast.type; /* absent: any type that is compiled with g's */
  LAUNCH(row_scale_kernel, (unsigned)params.count, THREADS, 0, stream, params.data, a.eps, v, h.row_scale);
  LAUNCH(rates_kernel, (unsigned)ceil_of(params.count, WARP), WARP, 0, stream, params.data, params.count, a, t.step,
         sums + params.moments, norms, h);
  if (t.w.type == CUDA_BF16 && t.cast.x == NULL && from == CUDA_F32) return launch_update<float, bf16, bf16>(stream, t, a, params, v, h);
  if (t.w.type == CUDA_BF16 && t.cast.x == NULL && from == CUDA_BF16) return launch_update<bf16, bf16, bf16>(stream, t, a, params, v, h);
  if (t.w.type != CUDA_F32) return CUDA_UNSUPPORTED;
  if (from == CUDA_F32 && to == CUDA_F32) return launch_update<float, float, float>(stream, t, a, params, v, h);
  if (from == CUDA_F32 && to == CUDA_BF16) return launch_update<float, float, bf16>(stream, t, a, params, v, h);
  if (from == CUDA_F32 && to == CUDA_F16) return launch_update<float, float, f16>(stream, t, a, params, v, h);
  if (from == CUDA_BF16 && to == CUDA_BF16) return launch_update<bf16, float, bf16>(stream, t, a, params, v, h);
  if (from == CUDA_F16 && to == CUDA_F16) return launch_update<f16, float, f16>(stream, t, a, params, v, h);
  return CUDA_UNSUPPORTED;
}
