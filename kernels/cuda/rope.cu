/* Owns: rotary positions with split halves (arXiv 2104.09864), as kernels/cpu/rope.c: pairs (i, i + head_dim/2) of every
 * head turn by t freq_i, angles in double.
 *
 * A thread owns one position and pair: its sine and cosine, once computed, serve all heads and samples. Neighbouring
 * threads own neighbouring pairs. Moves 2 elements an element, one more with `add`; 3 flops each.
 * Bound: memory. Rate: not measured yet (no GPU). */
#include "kernels/cuda/device.cuh"
#include "kernels/random.h" /* sincos_quarters */

/* In quarter turns a position. */
DEVICE double frequency(const RopeShape &s, int64_t pair) {
  const double two_pi = 6.28318530717958647693;
  double f = pow(s.theta, -2.0 * (double)pair / (double)s.head_dim);
  if (s.llama3) {
    double turns = (double)s.original * f / two_pi; /* over the original context */
    double smooth = (turns - s.low) / (s.high - s.low);
    if (turns < s.low) f /= s.factor;
    else if (turns <= s.high) f = (1 - smooth) * f / s.factor + smooth * f;
  }
  return f * 4 / two_pi;
}

/* blockIdx.y: the part of the batch * heads this block walks. */
template <class T>
__global__ void rope_kernel(RopeShape s, int backward, const T *x, int64_t ldx, T *y, int64_t ldy, int add) {
  int64_t half = s.head_dim / 2, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, t = i / half, pair = i % half;
  if (t >= s.seq) return;
  SinCos at = sincos_quarters((double)(s.first + t) * frequency(s, pair) * (backward ? -1 : 1));
  float c = (float)at.cos, sn = (float)at.sin;
  for (int64_t n = blockIdx.y; n < s.batch * s.heads; n += gridDim.y) {
    int64_t row = n / s.heads * s.seq + t, col = n % s.heads * s.head_dim + pair;
    const T *from = x + row * ldx + col;
    T *to = y + row * ldy + col;
    float a = to_float(from[0]), b = to_float(from[half]);
    float first = a * c - b * sn, second = b * c + a * sn;
    put<T, 1>(to, &first, add);
    put<T, 1>(to + half, &second, add);
  }
}

int cuda_rope(CudaStream stream, const RopeShape *shape, int backward, CudaTensor x, CudaTensor y) {
  if (x.type != y.type) return CUDA_UNSUPPORTED;
  int64_t threads = shape->seq * (shape->head_dim / 2), parts = shape->batch * shape->heads / 8;
  if (threads == 0) return 0;
  dim3 grid((unsigned)ceil_of(threads, 128), (unsigned)(parts < 1 ? 1 : parts < 64 ? parts : 64));
  FOR_TYPE(x.type, false, (void)N; LAUNCH((rope_kernel<T>), grid, 128, 0, stream, *shape, backward, (const T *)x.x, x.ld,
                                          (T *)y.x, y.ld, y.add);)
  return LAUNCHED();
}
