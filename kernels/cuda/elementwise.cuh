/* Owns: the frame of element-by-element kernels: y (+)= f(a, b), b's row r being r mod brows. A grid of at most
 * MAP_BLOCKS blocks strides over the rows' 16-byte pieces; y may be a or b. */
#ifndef FSDPC_KERNELS_CUDA_ELEMENTWISE_CUH
#define FSDPC_KERNELS_CUDA_ELEMENTWISE_CUH

#include "kernels/cuda/device.cuh"

constexpr int MAP_THREADS = 256, MAP_BLOCKS = 4096;

static inline unsigned map_blocks(int64_t total) {
  int64_t blocks = ceil_of(total, MAP_THREADS);
  return (unsigned)(blocks < MAP_BLOCKS ? blocks : MAP_BLOCKS);
}

template <class T, int N, class F>
__global__ void map_kernel(uint32_t total, uint32_t chunks, uint32_t brows, const T *a, int64_t lda, const T *b,
                           int64_t ldb, T *y, int64_t ldy, int add, F f) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
    uint32_t row = i / chunks;
    int64_t col = (int64_t)(i % chunks) * N;
    float u[N], v[N] = {0};
    load<T, N>(a + row * lda + col, u);
    if (b != NULL) load<T, N>(b + (int64_t)(row % brows) * ldb + col, v);
#pragma unroll
    for (int j = 0; j < N; j++) u[j] = f(u[j], v[j]);
    put<T, N>(y + row * ldy + col, u, add);
  }
}

/* half: f for elements of 16 bits, where it may be less exact than f. */
template <class T, class F, class H> static auto f_for(F f, H half) {
  if constexpr (sizeof(T) == 2) return half;
  else return f;
}

template <class F, class H = F>
static int map(CudaStream stream, int64_t rows, int64_t cols, int64_t brows, CudaTensor a, CudaTensor b, CudaTensor y,
               F f, H half = H()) {
  if (a.type != y.type || (b.x != NULL && b.type != y.type)) return CUDA_UNSUPPORTED;
  int n = wide_of(y.type);
  bool wide = wide_ok(a, rows, cols, n) && wide_ok(b, brows, cols, n) && wide_ok(y, rows, cols, n);
  int64_t chunks = wide ? cols / n : cols, total = rows * chunks;
  if (total > INT32_MAX) return CUDA_UNSUPPORTED;
  if (total == 0) return 0;
  FOR_TYPE(y.type, wide,
           auto g = f_for<T>(f, half);
           LAUNCH((map_kernel<T, N, decltype(g)>), map_blocks(total), MAP_THREADS, 0, stream, (uint32_t)total,
                  (uint32_t)chunks, (uint32_t)brows, (const T *)a.x, a.ld, (const T *)b.x, b.ld, (T *)y.x, y.ld, y.add, g);)
  return LAUNCHED();
}

#endif
