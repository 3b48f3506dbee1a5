/* Owns: dropout, y = x/(1-p) with probability 1-p, else 0; backward is the same map. The mask is that of
 * kernels/cpu/dropout.c, bit for bit: two Philox blocks give a row its keys, a multiply-xorshift mix an element its bits.
 *
 * A warp walks a row, so that the keys are computed once a row. Moves 2 elements an element, one more with `add`; about
 * 12 integer operations each. Bound: memory. Rate: not measured; compared with float64 on an H200. */
#include "kernels/cuda/device.cuh"
#include "kernels/random.h"

constexpr int ROWS_A_BLOCK = 8;

struct Mask {
  CudaDropout site;
  uint32_t threshold; /* of the mix: below is dropped */
  float scale;
};

DEVICE RowKeys row_keys(const CudaStep *step, const CudaDropout &site, int64_t row) {
  uint64_t before = (step->micro_batch * site.ranks + site.rank) * site.micro_batch;
  uint64_t sample = step->first_sample + before + (uint64_t)(row / site.rows_per_sample);
  return random_row_keys(site.seed, step->step, site.site, sample, (uint64_t)(row % site.rows_per_sample));
}

template <class T, int N>
__global__ void dropout_kernel(const CudaStep *step, Mask mask, int64_t rows, int64_t cols, const T *x, int64_t ldx, T *y,
                               int64_t ldy, int add) {
  int64_t row = (int64_t)blockIdx.x * ROWS_A_BLOCK + threadIdx.x / WARP;
  if (row >= rows) return;
  RowKeys keys = row_keys(step, mask.site, row);
  for (int64_t col = threadIdx.x % WARP * N; col < cols; col += WARP * N) {
    float value[N];
    load<T, N>(x + row * ldx + col, value);
#pragma unroll
    for (int j = 0; j < N; j++)
      value[j] = random_mix((uint32_t)(col + j), keys) < mask.threshold ? 0.0f : mask.scale * value[j];
    put<T, N>(y + row * ldy + col, value, add);
  }
}

int cuda_dropout(CudaStream stream, const CudaStep *step, const CudaDropout *site, int64_t rows, int64_t cols,
                 CudaTensor x, CudaTensor y) {
  Mask mask = {*site, 0, 0};
  double threshold = site->p * 4294967296.0 + 0.5;
  mask.threshold = threshold >= 4294967296.0 ? UINT32_MAX : (uint32_t)threshold;
  mask.scale = site->p < 1 ? (float)(1 / (1 - site->p)) : 0.0f;
  if (x.type != y.type) return CUDA_UNSUPPORTED;
  if (rows * cols == 0) return 0;
  int n = wide_of(x.type);
  bool wide = wide_ok(x, rows, cols, n) && wide_ok(y, rows, cols, n);
  FOR_TYPE(x.type, wide,
           LAUNCH((dropout_kernel<T, N>), (unsigned)ceil_of(rows, ROWS_A_BLOCK), ROWS_A_BLOCK * WARP, 0, stream, step,
                  mask, rows, cols, (const T *)x.x, x.ld, (T *)y.x, y.ld, y.add);)
  return LAUNCHED();
}
