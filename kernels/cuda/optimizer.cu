/* Owns: AdamW (arXiv 1711.05101, bias-corrected), Lion (arXiv 2302.06675) and SGD over a whole shard in one launch, with f32 master weights and
 * their copy in the compute dtype, or with bf16 weights alone; exact sums of squares; clipping.
 *
 * A shard's parameters start at multiples of 64 elements, so 4 neighbouring elements belong to one parameter or to the
 * padding, which is neither read nor written. Rates that change with the step are read from device memory.
 *
 * Moves an element: AdamW 4 f32 reads (or 3 and a gradient of 2 bytes), 3 f32 writes and the cast, 28 to 30 bytes for
 * 14 flops; Lion 20 to 22; SGD 12 to 22; 4 to 6 less with bf16 weights, and some 8 integer operations more for each that
 * is rounded stochastically. Four elements an access, 16 bytes of f32 and 8 of 16 bits: with eight, the f32 ones would need two
 * accesses 32 bytes apart. sum_squares: 2 or 4 bytes by 16, once more through shared memory, one conversion to double and one
 * flop there. Bound: memory, sum_squares too: conversions, 16 a clock and multiprocessor on computes 8.0 and 9.0, need half its
 * time with 16 bits.
 * Rate on an H200, of f32 gradients and bf16 copies: AdamW 3.78 TB/s at 61 M elements, 3.68 at 31 M, 88 and 86 % of a copy's 4.28;
 * sum_squares 3.56 at 263 M and 2.77 at 31 M, 83 and 65 %. Lion and SGD: not measured; Lion trained
 * there as on the CPU. */
#include "kernels/cuda/exact.cuh"
#include "kernels/cuda/weights.cuh"

constexpr int THREADS = EXACT_THREADS, PER = 4, MOST_BLOCKS = 1056;

/* The range that holds element i of the shard, or NULL in the padding. */
DEVICE const CudaRange *range_of(CudaRanges ranges, int64_t i) {
  int32_t low = 0, high = ranges.count; /* the last range that starts at or before i lies in [low - 1, high - 1] */
  while (low < high) {
    int32_t middle = (low + high) / 2;
    if (ranges.data[middle].first <= i) low = middle + 1;
    else high = middle;
  }
  if (low == 0) return NULL;
  const CudaRange *range = &ranges.data[low - 1];
  return i < range->first + range->count ? range : NULL;
}

typedef enum { SGD, LION, ADAMW } Kind;

struct Moments {
  double beta1, beta2; /* SGD: beta1 is the momentum */
  float eps;
  float *m, *v;
};

/* G: gradient, W: weights, C: cast. Elements [i, i + n), n <= PER, of one range. */
template <class G, class W, class C, Kind KIND> struct Step {
  Moments u;
  const G *g;
  W *weights;
  C *cast;
  float lr, step, root, scale;

  /* Products that are fused with an addition are named, and no other product is added to anything: a compiler that chooses may choose
   * otherwise in the next instantiation, or for the last elements of a parameter. */
  DEVICE void update(float grad, float decay, float &w, float &m, float &v) const {
    if (KIND == ADAMW) {
      m = fmaf((float)u.beta1, m, (float)(1 - u.beta1) * grad);
      v = fmaf((float)u.beta2, v, (float)(1 - u.beta2) * (grad * grad));
      w -= fmaf(decay, w, step * m / fmaf(sqrtf(v), root, u.eps));
    } else if (KIND == LION) {
      float c = fmaf((float)u.beta1, m, (float)(1 - u.beta1) * grad);
      m = fmaf((float)u.beta2, m, (float)(1 - u.beta2) * grad);
      w -= fmaf(decay, w, c > 0 ? lr : c < 0 ? -lr : 0.0f);
    } else {
      if (u.m != NULL) m = grad = fmaf((float)u.beta1, m, grad);
      w -= fmaf(lr, grad, decay * w);
    }
  }

  DEVICE void one(int64_t i, float decay, const Rounder &rounder) const {
    float w = to_float(weights[i]), m = u.m != NULL ? u.m[i] : 0, v = KIND == ADAMW ? u.v[i] : 0;
    update(to_float(g[i]) * scale, decay, w, m, v);
    if (u.m != NULL) u.m[i] = m;
    if (KIND == ADAMW) u.v[i] = v;
    weights[i] = rounded<W>(w, i, rounder);
    if (cast != NULL) cast[i] = from_float<C>(w);
  }

  DEVICE void four(int64_t i, float decay, const Rounder &rounder) const {
    float grad[PER], w[PER], m[PER] = {0}, v[PER] = {0};
    W kept[PER];
    C copy[PER];
    four_take(g + i, grad);
    four_take(weights + i, w);
    if (u.m != NULL) load<float, PER>(u.m + i, m);
    if (KIND == ADAMW) load<float, PER>(u.v + i, v);
#pragma unroll
    for (int j = 0; j < PER; j++) {
      update(grad[j] * scale, decay, w[j], m[j], v[j]);
      kept[j] = rounded<W>(w[j], i + j, rounder);
      copy[j] = from_float<C>(w[j]);
    }
    four_put(weights + i, kept);
    if (u.m != NULL) store<float, PER>(u.m + i, m);
    if (KIND == ADAMW) store<float, PER>(u.v + i, v);
    if (cast != NULL) four_put(cast + i, copy);
  }
};

template <class G, class W, class C, Kind KIND>
__global__ void update_kernel(CudaUpdate p, Moments u, int64_t pieces) {
  if (*p.scale != *p.scale) return; /* NaN: this step is skipped */
  Step<G, W, C, KIND> s = {u, (const G *)p.g.x, (W *)p.w.x, (C *)p.cast.x, (float)p.step->lr,
                           (float)(p.step->lr / p.step->bias1), (float)(1 / sqrt(p.step->bias2)), *p.scale};
  const CudaRange *before = NULL;
  Rounder rounder = {false, {0, 0}, 0};
  for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < pieces; n += (int64_t)gridDim.x * THREADS) {
    int64_t i = n * PER;
    const CudaRange *range = range_of(p.ranges, i);
    if (range == NULL) continue;
    if (range != before) rounder = rounder_of<W>(p.rounding, p.step, range->name_hash, range->first, range->element);
    before = range;
    float decay = (float)(p.step->lr * range->decay);
    int64_t end = range->first + range->count;
    if (i + PER <= end) {
      s.four(i, decay, rounder);
    } else {
      for (; i < end; i++) s.one(i, decay, rounder);
    }
  }
}

static unsigned blocks_of(int64_t pieces) {
  int64_t blocks = ceil_of(pieces, THREADS);
  return (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

template <class G, class W, class C, Kind KIND>
static int launch_update(CudaStream stream, const CudaUpdate &p, const Moments &u) {
  int64_t pieces = ceil_of(p.shard, PER);
  if (pieces == 0 || p.ranges.count == 0) return 0;
  LAUNCH((update_kernel<G, W, C, KIND>), blocks_of(pieces), THREADS, 0, stream, p, u, pieces);
  return LAUNCHED();
}

/* As shards start. */
static bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

template <Kind KIND> static int update(CudaStream stream, const CudaUpdate &p, const Moments &u) {
  if (!aligned(p.g.x) || !aligned(p.w.x) || !aligned(p.cast.x) || !aligned(u.m) || !aligned(u.v)) return CUDA_UNSUPPORTED;
  int from = p.g.type, to = p.cast.x == NULL ? from : p.cast.type; /* absent: any type that is compiled with g's */
  if (p.w.type == CUDA_BF16 && p.cast.x == NULL && from == CUDA_F32) return launch_update<float, bf16, bf16, KIND>(stream, p, u);
  if (p.w.type == CUDA_BF16 && p.cast.x == NULL && from == CUDA_BF16) return launch_update<bf16, bf16, bf16, KIND>(stream, p, u);
  if (p.w.type != CUDA_F32) return CUDA_UNSUPPORTED;
  if (from == CUDA_F32 && to == CUDA_F32) return launch_update<float, float, float, KIND>(stream, p, u);
  if (from == CUDA_F32 && to == CUDA_BF16) return launch_update<float, float, bf16, KIND>(stream, p, u);
  if (from == CUDA_F32 && to == CUDA_F16) return launch_update<float, float, f16, KIND>(stream, p, u);
  if (from == CUDA_BF16 && to == CUDA_BF16) return launch_update<bf16, float, bf16, KIND>(stream, p, u);
  if (from == CUDA_F16 && to == CUDA_F16) return launch_update<f16, float, f16, KIND>(stream, p, u);
  return CUDA_UNSUPPORTED;
}

int cuda_adamw(CudaStream stream, const CudaUpdate *p, double beta1, double beta2, double eps, float *m, float *v) {
  return update<ADAMW>(stream, *p, Moments{beta1, beta2, (float)eps, m, v});
}

int cuda_lion(CudaStream stream, const CudaUpdate *p, double beta1, double beta2, float *m) {
  return update<LION>(stream, *p, Moments{beta1, beta2, 0, m, NULL});
}

int cuda_sgd(CudaStream stream, const CudaUpdate *p, double momentum, float *m) {
  return update<SGD>(stream, *p, Moments{momentum, 0, 0, m, NULL});
}

/* --- norms ----------------------------------------------------------------------------------------------------- */

template <class G, int N> __global__ void squares_kernel(CudaRanges ranges, int64_t runs, const G *g, int64_t *acc) {
  exact_squares<N>(runs, [&](int64_t i) {
    const CudaRange *range = range_of(ranges, i);
    return range != NULL ? range->first + range->count - i : 0;
  }, Elements<G>{g}, acc);
}

int cuda_sum_squares(CudaStream stream, CudaRanges ranges, int64_t shard, CudaTensor g, int64_t *acc) {
  int64_t runs = ceil_of(shard, RUN);
  if (runs == 0 || ranges.count == 0) return 0;
  FOR_TYPE(g.type, aligned(g.x), LAUNCH((squares_kernel<T, N>), blocks_of(runs * LANES / N), THREADS, 0, stream, ranges, runs,
                                        (const T *)g.x, acc);)
  return LAUNCHED();
}

static __global__ void carry_kernel(int64_t *acc) {
  int64_t word[EXACT_WORDS];
  for (int i = 0; i < EXACT_WORDS; i++) word[i] = acc[i];
  exact_carry(word);
  for (int i = 0; i < EXACT_WORDS; i++) acc[i] = word[i];
}

int cuda_exact_carry(CudaStream stream, int64_t *acc) {
  LAUNCH(carry_kernel, 1, 1, 0, stream, acc);
  return LAUNCHED();
}

static __global__ void clip_kernel(double max_norm, const int64_t *acc, double *norm, float *scale) {
  double value = sqrt(exact_round(acc));
  *norm = value;
  *scale = max_norm > 0 && max_norm < value + 1e-6 ? (float)(max_norm / (value + 1e-6)) : 1.0f;
}

int cuda_clip(CudaStream stream, double max_norm, const int64_t *acc, double *norm, float *scale) {
  LAUNCH(clip_kernel, 1, 1, 0, stream, max_norm, acc, norm, scale);
  return LAUNCHED();
}

/* --- loss scaling ---------------------------------------------------------------------------------------------- */

/* Words of the scaler, as planner/plan/plan.h numbers them. */
enum { SCALE, GOOD, SKIPPED };

static __global__ void scale_count_kernel(const double *count, const double *scaler, double *scaled) {
  *scaled = *count / scaler[SCALE];
}

int cuda_scale_count(CudaStream stream, const double *count, const double *scaler, double *scaled) {
  LAUNCH(scale_count_kernel, 1, 1, 0, stream, count, scaler, scaled);
  return LAUNCHED();
}

static __global__ void clip_scaled_kernel(CudaScaling s, const int64_t *acc, double *scaler, double *norm, float *scale) {
  double value = sqrt(exact_round(acc)) / scaler[SCALE];
  bool good = value - value == 0; /* neither NaN nor infinite */
  *norm = value;
  double clipped = s.max_norm > 0 && s.max_norm < value + 1e-6 ? s.max_norm / (value + 1e-6) : 1;
  *scale = good ? (float)(clipped / scaler[SCALE]) : NAN;
  scaler[GOOD] = good ? scaler[GOOD] + 1 : 0;
  if (!good) scaler[SKIPPED] += 1;
  if (!good) scaler[SCALE] *= s.backoff;
  if (scaler[GOOD] < (double)s.interval) return;
  scaler[SCALE] *= s.growth;
  scaler[GOOD] = 0;
}

int cuda_clip_scaled(CudaStream stream, CudaScaling scaling, const int64_t *acc, double *scaler, double *norm,
                     float *scale) {
  LAUNCH(clip_scaled_kernel, 1, 1, 0, stream, scaling, acc, scaler, norm, scale);
  return LAUNCHED();
}
