/* Owns: Adafactor (arXiv 1804.04235, as kernels/cpu/adafactor.c and runtime/cpu_adafactor.c) over a whole unit at a time:
 * blockIdx.y is the parameter. Sums over rows and columns are integers on a grid and norms are exact, so no order of
 * threads, blocks or ranks shows.
 *
 * Moves an element: gradient three times, weight twice and its update, the cast: 20 to 26 bytes, 12 to 18 with
 * bf16 weights, for some 20 flops.
 * Bound: memory. Rate: not measured yet (no GPU). */
#include "kernels/cuda/exact.cuh"
#include "kernels/cuda/weights.cuh"

constexpr int THREADS = 256, TILE_ROWS = 64, RUN = 64, LANES = 8, MOST_BLOCKS = 512, SUM_BITS = 62;

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

/* The square of element e of the parameter, cut to the grid; 0 where it is not in this shard. */
template <class G> DEVICE int64_t square_of(const CudaFactored &p, const G *g, double grid, int64_t e) {
  if (e < p.first || e >= p.first + p.count) return 0;
  double x = (double)to_float(g[p.local + e - p.first]);
  return (int64_t)(x * x * grid);
}

/* A thread walks down TILE_ROWS rows of one column; a warp's threads own neighbouring columns. */
template <class G> DEVICE void matrix_tile(const CudaFactored &p, const G *g, double grid, int64_t tile, int64_t *sums) {
  int64_t across = (p.cols + THREADS - 1) / THREADS, column = tile % across * THREADS + threadIdx.x, total = 0;
  int64_t row = p.first / p.cols + tile / across * TILE_ROWS;
  int64_t end = (p.first + p.count - 1) / p.cols + 1 < row + TILE_ROWS ? (p.first + p.count - 1) / p.cols + 1 : row + TILE_ROWS;
  for (int64_t r = row; r < end; r++) {
    int64_t square = column < p.cols ? square_of(p, g, grid, r * p.cols + column) : 0, sum = warp_total(square);
    total += square;
    if (threadIdx.x % WARP == 0) add_integer(&sums[p.row_at + r], sum);
  }
  if (column < p.cols) add_integer(&sums[p.col_at + column], total);
}

template <class G>
__global__ void sums_kernel(const CudaFactored *params, const G *g, const double *grid, int64_t *sums) {
  const CudaFactored p = params[blockIdx.y];
  if (p.count == 0 || *grid == 0) return;
  if (p.col_at < 0) { /* a vector: every element has its own */
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.count; i += (int64_t)gridDim.x * THREADS)
      sums[p.row_at + p.first + i] = square_of(p, g, *grid, p.first + i);
    return;
  }
  int64_t rows = (p.first + p.count - 1) / p.cols - p.first / p.cols + 1;
  int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS * ((p.cols + THREADS - 1) / THREADS);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) matrix_tile(p, g, *grid, tile, sums);
}

/* --- exact norms of what lies in this shard ---------------------------------------------------------------------- */

/* value(i): of element i of the shard's part, by whose runs of 64 squares are summed: a run never crosses shards. */
template <class F> DEVICE void exact_norm(int64_t count, F value, int64_t *norm) {
  SHARED_ARRAY(unsigned long long, own, EXACT_WORDS);
  for (int i = threadIdx.x; i < EXACT_WORDS; i += THREADS) own[i] = 0;
  __syncthreads();
  int64_t runs = (count + RUN - 1) / RUN, stride = (int64_t)gridDim.x * (THREADS / LANES);
  for (int64_t first = (int64_t)blockIdx.x * (THREADS / LANES); first < runs; first += stride) { /* all threads together */
    int64_t at = (first + threadIdx.x / LANES) * RUN, left = count - at;
    double sum = eight_squares(left < RUN ? left : RUN, [&](int64_t i) { return value(at + i); });
    if (left > 0 && threadIdx.x % LANES == 0) exact_put(own, sum);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < EXACT_WORDS; i += THREADS)
    if (own[i] != 0) atomicAdd((unsigned long long *)&norm[i], own[i]);
}

template <class W> __global__ void weights_kernel(const CudaFactored *params, const W *w, int64_t *norms) {
  const CudaFactored p = params[blockIdx.y];
  if (p.count == 0) return;
  exact_norm(p.count, [&](int64_t i) { return to_float(w[p.local + i]); }, norms + (int64_t)blockIdx.y * EXACT_WORDS);
}

/* g / sqrt(second moment) of element i of the shard's part. */
template <class G> struct Divided {
  CudaFactored p;
  const G *g;
  const float *v;
  double row_scale;
  float scale, floor;
  DEVICE float operator()(int64_t i) const {
    int64_t e = p.first + i;
    float second = p.col_at < 0 ? v[p.row_at + e]
                                : (float)((double)v[p.row_at + e / p.cols] * row_scale) * v[p.col_at + e % p.cols];
    return scale * to_float(g[p.local + i]) / sqrtf(fmaxf(second, floor));
  }
};

template <class G>
__global__ void norms_kernel(const CudaFactored *params, CudaAdafactor a, const G *g, const float *scale, const float *v,
                             Handed h, int64_t *norms) {
  const CudaFactored p = params[blockIdx.y];
  if (*scale != *scale || p.count == 0) return; /* NaN: this step is skipped */
  Divided<G> u = {p, g, v, h.row_scale[blockIdx.y], *scale, (float)(a.eps * a.eps)};
  exact_norm(p.count, u, norms + (int64_t)blockIdx.y * EXACT_WORDS);
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

template <class G, class W, class C>
__global__ void update_kernel(const CudaFactored *params, CudaAdafactor a, CudaUpdate t, const float *v, Handed h) {
  const CudaFactored p = params[blockIdx.y];
  if (*t.scale != *t.scale || p.count == 0) return;
  Divided<G> u = {p, (const G *)t.g.x, v, h.row_scale[blockIdx.y], *t.scale, (float)(a.eps * a.eps)};
  float keep = (float)h.keep[blockIdx.y], step = (float)h.step[blockIdx.y];
  W *w = (W *)t.w.x;
  C *cast = (C *)t.cast.x;
  Rounder rounder = rounder_of<W>(t.rounding, t.step, p.name_hash, p.local, p.first);
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.count; i += (int64_t)gridDim.x * THREADS) {
    float x = keep * to_float(w[p.local + i]) - step * u(i);
    w[p.local + i] = rounded<W>(x, p.local + i, rounder);
    if (cast != NULL) cast[p.local + i] = from_float<C>(x);
  }
}

/* --- launches -------------------------------------------------------------------------------------------------------- */

/* Blocks in x enough for the largest parameter's share of n elements. */
static dim3 blocks_of(const CudaFactoreds &params, int64_t n) {
  int64_t blocks = ceil_of(n, THREADS);
  return dim3((unsigned)(blocks < 1 ? 1 : blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), (unsigned)params.count);
}

int cuda_adafactor_sums(CudaStream stream, CudaFactoreds params, int64_t shard, CudaTensor g, CudaTensor w,
                        const int64_t *acc, int64_t *sums, void *scratch) {
  if (params.count == 0) return 0;
  Handed h = handed_in(scratch, params.count);
  dim3 blocks = blocks_of(params, shard);
  LAUNCH(grid_kernel, 1, 1, 0, stream, acc, h.grid);
  FOR_TYPE(g.type, false, (void)N; LAUNCH((sums_kernel<T>), blocks, THREADS, 0, stream, params.data, (const T *)g.x, h.grid, sums);)
  FOR_TYPE(w.type, false, (void)N; LAUNCH((weights_kernel<T>), blocks, THREADS, 0, stream, params.data, (const T *)w.x,
                                          sums + params.moments);)
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
  FOR_TYPE(g.type, false, (void)N; LAUNCH((norms_kernel<T>), blocks_of(params, shard), THREADS, 0, stream, params.data, a,
                                          (const T *)g.x, scale, v, h, norms);)
  return LAUNCHED();
}

template <class G, class W, class C>
static int launch_update(CudaStream stream, const CudaUpdate &t, const CudaAdafactor &a, const CudaFactoreds &params,
                         const float *v, const Handed &h) {
  LAUNCH((update_kernel<G, W, C>), blocks_of(params, t.shard), THREADS, 0, stream, params.data, a, t, v, h);
  return LAUNCHED();
}

int cuda_adafactor(CudaStream stream, const CudaUpdate *update, CudaAdafactor a, CudaFactoreds params, const int64_t *sums,
                   const int64_t *norms, const float *v, void *scratch) {
  if (params.count == 0) return 0;
  const CudaUpdate &t = *update;
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
