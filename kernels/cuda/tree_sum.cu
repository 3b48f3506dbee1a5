/* Owns: sums over ranks whose buffers this device can read, along one fixed binary tree (comm.h): sum(lo, n) =
 * sum(lo, p) + sum(lo + p, n - p), p the largest power of two below n. Numbers of 16 bits are added in f32 and rounded after every addition, as
 * kernels/cpu/tree_sum.c does: sums in groups followed by sums over groups then have the bits of the sum over all.
 *
 * An element's sources are read before it is written, by the same thread: y may be one of them. Moves ranks + 1 elements
 * an element, one more with `add`, for ranks - 1 flops. Bound: memory, or NVLink. Rate: not measured;
 * 2 and 4 ranks that shared an H200 had the losses of the CPU's. */
#include "kernels/cuda/elementwise.cuh"

struct Sources {
  const void *x[CUDA_MAX_PEERS];
};

constexpr int BITS = 7; /* of a number of ranks */
static_assert(CUDA_MAX_PEERS < 1 << BITS, "every number of ranks has a tree");

/* As a partial sum of elements T is kept. */
template <class T> DEVICE float kept(float x) { return to_float(from_float<T>(x)); }
template <class T> DEVICE double kept(double x) { return x; }

/* Of 2^LOG ranks from `first` on. take(rank, to) reads N values. */
template <int LOG, int N, class T, class V, class Take> DEVICE void whole_tree(int32_t first, Take take, V *out) {
  if constexpr (LOG == 0) {
    take(first, out);
  } else {
    V right[N];
    whole_tree<LOG - 1, N, T>(first, take, out);
    whole_tree<LOG - 1, N, T>(first + (1 << (LOG - 1)), take, right);
#pragma unroll
    for (int j = 0; j < N; j++) out[j] = kept<T>(out[j] + right[j]);
  }
}

/* A number of ranks is a sum of powers of two, the largest first: whole trees, added from the smallest, last one on. All
 * indices are constants, so that sums stay in registers. started: out holds the trees below 2^LOG. */
template <int LOG, int N, class T, class V, class Take> DEVICE void tree(int32_t ranks, Take take, bool started, V *out) {
  if (ranks >> LOG & 1) {
    V sum[N];
    whole_tree<LOG, N, T>(ranks >> (LOG + 1) << (LOG + 1), take, sum);
#pragma unroll
    for (int j = 0; j < N; j++) out[j] = started ? kept<T>(sum[j] + out[j]) : sum[j];
    started = true;
  }
  if constexpr (LOG + 1 < BITS) tree<LOG + 1, N, T>(ranks, take, started, out);
}

template <class T, int N> __global__ void tree_kernel(int64_t pieces, int32_t ranks, Sources sources, T *y, int add) {
  for (int64_t p = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; p < pieces; p += (int64_t)gridDim.x * blockDim.x) {
    float sum[N] = {0};
    tree<0, N, T>(ranks, [&](int32_t rank, float *to) { load<T, N>((const T *)sources.x[rank] + p * N, to); }, false, sum);
    put<T, N>(y + p * N, sum, add);
  }
}

int cuda_tree_sum(CudaStream stream, int64_t n, int32_t ranks, const void *const *sources, CudaTensor y) {
  Sources list = {};
  int width = wide_of(y.type);
  bool wide = (uintptr_t)y.x % 16 == 0 && n % width == 0;
  if (ranks < 1 || ranks > CUDA_MAX_PEERS) return CUDA_UNSUPPORTED;
  if (n == 0) return 0;
  for (int32_t r = 0; r < ranks; r++) {
    list.x[r] = sources[r];
    wide = wide && (uintptr_t)sources[r] % 16 == 0;
  }
  int64_t pieces = wide ? n / width : n;
  FOR_TYPE(y.type, wide, LAUNCH((tree_kernel<T, N>), map_blocks(pieces), MAP_THREADS, 0, stream, pieces, ranks, list,
                                (T *)y.x, y.add);)
  return LAUNCHED();
}

static __global__ void tree_f64_kernel(int64_t n, int32_t ranks, Sources sources, double *y) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
    double sum = 0;
    tree<0, 1, double>(ranks, [&](int32_t rank, double *to) { *to = ((const double *)sources.x[rank])[i]; }, false, &sum);
    y[i] = sum;
  }
}

int cuda_tree_sum_f64(CudaStream stream, int64_t n, int32_t ranks, const void *const *sources, double *y) {
  Sources list = {};
  if (ranks < 1 || ranks > CUDA_MAX_PEERS) return CUDA_UNSUPPORTED;
  if (n == 0) return 0;
  for (int32_t r = 0; r < ranks; r++) list.x[r] = sources[r];
  LAUNCH(tree_f64_kernel, map_blocks(n), MAP_THREADS, 0, stream, n, ranks, list, y);
  return LAUNCHED();
}

static __global__ void integer_kernel(int64_t n, int32_t ranks, Sources sources, int64_t *y) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t sum = 0;
    for (int32_t r = 0; r < ranks; r++) sum += ((const int64_t *)sources.x[r])[i];
    y[i] = sum;
  }
}

int cuda_integer_sum(CudaStream stream, int64_t n, int32_t ranks, const void *const *sources, int64_t *y) {
  Sources list = {};
  if (ranks < 1 || ranks > CUDA_MAX_PEERS) return CUDA_UNSUPPORTED;
  if (n == 0) return 0;
  for (int32_t r = 0; r < ranks; r++) list.x[r] = sources[r];
  LAUNCH(integer_kernel, map_blocks(n), MAP_THREADS, 0, stream, n, ranks, list, y);
  return LAUNCHED();
}
