/* Owns: rotary positions with split halves (arXiv 2104.09864), as kernels/cpu/rope.c: pairs (i, i + dims/2) of the first
 * `dims` of every head turn by t freq_i, angles in double. What stays is paired likewise, and turns at frequency 0.
 *
 * A thread owns one position and 16 bytes of neighbouring pairs, or one pair where rows are not aligned: their sines and
 * cosines, once computed, serve all heads and samples that it walks. Neighbouring threads own neighbouring pairs. A block's frequencies
 * are computed once, for all its positions: eight powers a thread, some 150 operations in double each, took half as long as
 * the bytes on an H100. Moves 2 elements an element, one more with `add`; 3 flops each.
 * Bound: memory; where doubles are slow (1/64 of floats' rate on computes 8.6, 8.9 and 12), sines. Rate on
 * an H200: 3.40 TB/s at 131072 x 2048 bf16, heads of 64, and 3.27 at 131072 x 512, 79 and 76 % of a copy's 4.28. */
#include "kernels/cuda/device.cuh"
#include "kernels/random.h" /* sincos_quarters */

constexpr int THREADS = 128;

/* In quarter turns a position; of a pair that stays 0, whose sine and cosine are 0 and 1 to the bit. */
DEVICE double frequency(const RopeShape &s, int64_t pair) {
  const double two_pi = 6.28318530717958647693;
  if (pair >= s.dims / 2) return 0;
  double f = pow(s.theta, -2.0 * (double)pair / (double)s.dims);
  if (s.llama3) {
    double turns = (double)s.original * f / two_pi; /* over the original context */
    double smooth = (turns - s.low) / (s.high - s.low);
    if (turns < s.low) f /= s.factor;
    else if (turns <= s.high) f = (1 - smooth) * f / s.factor + smooth * f;
  }
  return f * 4 / two_pi;
}

/* blockIdx.y: the part of the batch * heads this block walks. A thread's pairs are neighbours. */
template <class T, int N>
__global__ void rope_kernel(RopeShape s, int backward, const T *x, int64_t ldx, T *y, int64_t ldy, int add) {
  SHARED_ARRAY(double, turns, THREADS * N); /* of the block's pairs, until they repeat */
  int64_t pairs = s.head_dim / 2, first_pair = (int64_t)blockIdx.x * THREADS * N, i = first_pair + threadIdx.x * N, t = i / pairs, pair = i % pairs;
  int64_t turning = s.dims / 2, before = pair < turning ? 0 : turning, half = pair < turning ? turning : pairs - turning;
  int distinct = pairs < THREADS * N ? (int)pairs : THREADS * N;
  for (int k = threadIdx.x; k < distinct; k += THREADS) turns[k] = frequency(s, (first_pair + k) % pairs);
  __syncthreads();
  if (t >= s.seq) return;
  int own = (int)threadIdx.x * N % distinct; /* N divides `distinct` */
  float c[N], sn[N];
#pragma unroll
  for (int j = 0; j < N; j++) {
    SinCos at = sincos_quarters((double)(s.first + t) * turns[own + j] * (backward ? -1 : 1));
    c[j] = (float)at.cos, sn[j] = (float)at.sin;
  }
  for (int64_t n = blockIdx.y; n < s.batch * s.heads; n += gridDim.y) {
    int64_t row = n / s.heads * s.seq + t, col = n % s.heads * s.head_dim + before + pair;
    const T *from = x + row * ldx + col;
    T *to = y + row * ldy + col;
    float a[N], b[N], first[N], second[N];
    load<T, N>(from, a);
    load<T, N>(from + half, b);
#pragma unroll
    for (int j = 0; j < N; j++) first[j] = a[j] * c[j] - b[j] * sn[j], second[j] = b[j] * c[j] + a[j] * sn[j];
    put<T, N>(to, first, add);
    put<T, N>(to + half, second, add);
  }
}

int cuda_rope(CudaStream stream, const RopeShape *shape, int backward, CudaTensor x, CudaTensor y) {
  if (x.type != y.type) return CUDA_UNSUPPORTED;
  int n = wide_of(x.type);
  int64_t pairs = shape->head_dim / 2, rows = shape->batch * shape->seq, parts = shape->batch * shape->heads / 8;
  if (shape->seq * pairs == 0) return 0;
  bool wide = shape->dims / 2 % n == 0 && wide_ok(x, rows, pairs, n) && wide_ok(y, rows, pairs, n);
  unsigned threads = (unsigned)ceil_of(shape->seq * pairs / (wide ? n : 1), THREADS);
  dim3 grid(threads, (unsigned)(parts < 1 ? 1 : parts < 64 ? parts : 64));
  FOR_TYPE(x.type, wide, LAUNCH((rope_kernel<T, N>), grid, THREADS, 0, stream, *shape, backward, (const T *)x.x, x.ld, (T *)y.x,
                                y.ld, y.add);)
  return LAUNCHED();
}
