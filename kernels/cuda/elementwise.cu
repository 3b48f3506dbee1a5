/* Owns: copy and cast, product, multiplication by a number, broadcast sum and its gradient.
 *
 * Moves 2 (copy, number) or 3 (product, sum) elements of 2 or 4 bytes an element, one more with `add`; at most 1 flop each.
 * Bound: memory. Rate on an H200, bf16: sum 4.22 TB/s at 131072 x 2048 and 4.01 at 65536 x 768, 99 and 94 % of a copy's 4.28;
 * broadcast's gradient 3.30 at 32768 x 1600, 77 %. The others: not measured, compared with float64. */
#include "kernels/cuda/elementwise.cuh"

struct First {
  DEVICE float operator()(float a, float) const { return a; }
};
struct Product {
  DEVICE float operator()(float a, float b) const { return a * b; }
};
struct Scale {
  float by;
  DEVICE float operator()(float a, float) const { return by * a; }
};
struct Sum {
  DEVICE float operator()(float a, float b) const { return a + b; }
};

/* y (+)= x with another element type; n elements at a time. */
template <class X, class Y, int N>
__global__ void cast_kernel(uint32_t total, uint32_t chunks, const X *x, int64_t ldx, Y *y, int64_t ldy, int add) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
    int64_t row = i / chunks, col = (int64_t)(i % chunks) * N;
    float value[N];
    load<X, N>(x + row * ldx + col, value);
    put<Y, N>(y + row * ldy + col, value, add);
  }
}

template <class X, class Y>
static int cast(CudaStream stream, int64_t rows, int64_t cols, CudaTensor x, CudaTensor y) {
  bool wide = wide_ok(x, rows, cols, 8) && wide_ok(y, rows, cols, 8);
  int64_t total = rows * (wide ? cols / 8 : cols);
  if (total > INT32_MAX) return CUDA_UNSUPPORTED;
  if (total == 0) return 0;
  if (wide)
    LAUNCH((cast_kernel<X, Y, 8>), map_blocks(total), MAP_THREADS, 0, stream, (uint32_t)total, (uint32_t)(cols / 8),
           (const X *)x.x, x.ld, (Y *)y.x, y.ld, y.add);
  else
    LAUNCH((cast_kernel<X, Y, 1>), map_blocks(total), MAP_THREADS, 0, stream, (uint32_t)total, (uint32_t)cols,
           (const X *)x.x, x.ld, (Y *)y.x, y.ld, y.add);
  return LAUNCHED();
}

int cuda_copy(CudaStream stream, int64_t rows, int64_t cols, CudaTensor x, CudaTensor y) {
  if (x.type == y.type) return map(stream, rows, cols, rows, x, CudaTensor{}, y, First());
  if (x.type == CUDA_F32) {
    if (y.type == CUDA_BF16) return cast<float, bf16>(stream, rows, cols, x, y);
    if (y.type == CUDA_F16) return cast<float, f16>(stream, rows, cols, x, y);
  }
  if (y.type == CUDA_F32) {
    if (x.type == CUDA_BF16) return cast<bf16, float>(stream, rows, cols, x, y);
    if (x.type == CUDA_F16) return cast<f16, float>(stream, rows, cols, x, y);
  }
  return CUDA_UNSUPPORTED;
}

int cuda_mul(CudaStream stream, int64_t rows, int64_t cols, CudaTensor a, CudaTensor b, CudaTensor y) {
  return map(stream, rows, cols, rows, a, b, y, Product());
}

int cuda_scale(CudaStream stream, int64_t rows, int64_t cols, double by, CudaTensor x, CudaTensor y) {
  Scale scale = {(float)by};
  return map(stream, rows, cols, rows, x, CudaTensor{}, y, scale, scale);
}

int cuda_add(CudaStream stream, int64_t rows, int64_t cols, int64_t brows, CudaTensor a, CudaTensor b, CudaTensor y) {
  return map(stream, rows, cols, brows, a, b, y, Sum());
}

/* A thread owns N columns of one row of db and adds the rows of dy that went into it in row order. */
template <class T, int N>
__global__ void broadcast_kernel(uint32_t total, uint32_t chunks, int64_t rows, int64_t brows, const T *dy, int64_t lddy,
                                 T *db, int64_t lddb, int add) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
    int64_t b = i / chunks, col = (int64_t)(i % chunks) * N;
    float sum[N] = {0};
    for (int64_t r = b; r < rows; r += brows) {
      float x[N];
      load<T, N>(dy + r * lddy + col, x);
#pragma unroll
      for (int j = 0; j < N; j++) sum[j] += x[j];
    }
    put<T, N>(db + b * lddb + col, sum, add);
  }
}

int cuda_broadcast_bwd(CudaStream stream, int64_t rows, int64_t cols, int64_t brows, CudaTensor dy, CudaTensor db,
                       void *scratch) {
  if (brows == 1 && scratch != NULL) return cuda_column_sums(stream, rows, cols, dy, CudaTensor{}, db, scratch);
  if (dy.type != db.type) return CUDA_UNSUPPORTED;
  int n = wide_of(dy.type);
  bool wide = wide_ok(dy, rows, cols, n) && wide_ok(db, brows, cols, n);
  int64_t chunks = wide ? cols / n : cols, total = brows * chunks;
  if (total > INT32_MAX) return CUDA_UNSUPPORTED;
  if (total == 0) return 0;
  FOR_TYPE(dy.type, wide,
           LAUNCH((broadcast_kernel<T, N>), map_blocks(total), MAP_THREADS, 0, stream, (uint32_t)total, (uint32_t)chunks,
                  rows, brows, (const T *)dy.x, dy.ld, (T *)db.x, db.ld, db.add);)
  return LAUNCHED();
}
