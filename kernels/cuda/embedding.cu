/* Owns: table rows by token, and their gradient. A token outside the table reads as NaN, so that it shows in the loss,
 * and receives no gradient.
 *
 * The gradient has no atomics: the block of a row whose token occurred in an earlier row leaves at once; the others walk
 * the rows after theirs and add those of their token in row order.
 *
 * Moves forward 2 d elements a row; backward d a row and d a distinct token, plus rows^2/2 comparisons out of L2, of tokens
 * four at a time; 1 flop an element backward.
 * Bound: memory; with many rows the comparisons, which grow with their square. Rate: not measured yet (no GPU). */
#include "kernels/cuda/device.cuh"

constexpr int FORWARD_ROWS = 4, THREADS = 128, TILE = THREADS * 4; /* tokens that a block compares at a time */

template <class T, int N>
__global__ void forward_kernel(int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens, const T *table, T *y,
                               int64_t ldy) {
  int64_t row = (int64_t)blockIdx.x * FORWARD_ROWS + threadIdx.x / WARP;
  if (row >= rows) return;
  int64_t token = tokens[row];
  bool valid = token >= 0 && token < vocab;
  for (int64_t c = threadIdx.x % WARP * N; c < d; c += WARP * N) {
    float v[N];
    if (valid) load<T, N>(table + token * d + c, v);
#pragma unroll
    for (int j = 0; j < N; j++) v[j] = valid ? v[j] : NAN;
    store<T, N>(y + row * ldy + c, v);
  }
}

int cuda_embedding_fwd(CudaStream stream, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens,
                       CudaTensor table, CudaTensor y) {
  if (table.type != y.type) return CUDA_UNSUPPORTED;
  if (rows == 0) return 0;
  int n = wide_of(y.type);
  bool wide = wide_ok(table, vocab, d, n) && wide_ok(y, rows, d, n);
  FOR_TYPE(y.type, wide, LAUNCH((forward_kernel<T, N>), (unsigned)ceil_of(rows, FORWARD_ROWS), FORWARD_ROWS * WARP, 0,
                                stream, rows, vocab, d, tokens, (const T *)table.x, (T *)y.x, y.ld);)
  return LAUNCHED();
}

template <class G, int N> __global__ void zero_kernel(int64_t chunks, G *to) {
  float zero[N] = {0};
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < chunks; i += (int64_t)gridDim.x * blockDim.x)
    store<G, N>(to + i * N, zero);
}

/* Of rows r to r + 3, bit by bit: is it in [begin, end), and its token this one? r is a multiple of 4. */
DEVICE unsigned same_tokens(const int32_t *tokens, int64_t begin, int64_t end, int64_t r, int32_t token) {
  unsigned bits = 0, wanted = (unsigned)token;
  if (r >= begin && r + 4 <= end && (uintptr_t)tokens % 16 == 0) {
    uint4 four = *reinterpret_cast<const uint4 *>(tokens + r);
    return (four.x == wanted ? 1u : 0u) | (four.y == wanted ? 2u : 0u) | (four.z == wanted ? 4u : 0u) | (four.w == wanted ? 8u : 0u);
  }
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (r + j >= begin && r + j < end && tokens[r + j] == token) bits |= 1u << j;
  return bits;
}

/* Is this token in a row before `row`? All threads agree. */
DEVICE bool seen_before(const int32_t *tokens, int64_t row, int32_t token) {
  for (int64_t base = 0; base < row; base += TILE)
    if (__syncthreads_or(same_tokens(tokens, 0, row, base + threadIdx.x * 4, token) != 0)) return true;
  return false;
}

/* Adds to sum the rows of [begin, end) in a tile of TILE rows from `base` on whose token it is, in row order. */
template <class T, int N>
DEVICE void add_tile(const int32_t *tokens, int64_t begin, int64_t end, int64_t base, int32_t token, const T *dy,
                     int64_t lddy, bool active, unsigned *found, float *sum) {
  unsigned bits = same_tokens(tokens, begin, end, base + threadIdx.x * 4, token);
  if (!__syncthreads_or(bits != 0)) return; /* and found is read no more */
  bits <<= threadIdx.x % 8 * 4; /* eight threads share a word */
  for (int offset = 1; offset < 8; offset *= 2) bits |= __shfl_xor_sync(WHOLE_WARP, bits, offset);
  if (threadIdx.x % 8 == 0) found[threadIdx.x / 8] = bits;
  __syncthreads();
  for (int w = 0; w < TILE / 32; w++) {
    for (unsigned left = found[w]; left != 0; left &= left - 1) {
      if (!active) continue;
      float v[N];
      load<T, N>(dy + (base + w * 32 + __ffs((int)left) - 1) * lddy, v);
#pragma unroll
      for (int j = 0; j < N; j++) sum[j] += v[j];
    }
  }
}

/* Block (row, c): the columns [c THREADS N, ...) of the token of `row`. dtable holds what to add to. */
template <class T, class G, int N>
__global__ void backward_kernel(int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens, const T *dy, int64_t lddy,
                                G *dtable) {
  SHARED_ARRAY(unsigned, found, TILE / 32);
  int64_t row = blockIdx.x, col = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * N;
  int32_t token = tokens[row];
  if (token < 0 || token >= vocab || seen_before(tokens, row, token)) return;
  float sum[N] = {0};
  for (int64_t base = row / 4 * 4; base < rows; base += TILE)
    add_tile<T, N>(tokens, row, rows, base, token, dy + col, lddy, col < d, found, sum);
  if (col < d) put<G, N>(dtable + (int64_t)token * d + col, sum, 1);
}

template <class T, class G>
static int backward(CudaStream stream, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens, CudaTensor dy,
                    CudaTensor dtable, bool wide) {
  constexpr int WIDE = Wide<T>::N;
  G *to = (G *)dtable.x;
  if (!dtable.add) {
    if (wide) LAUNCH((zero_kernel<G, WIDE>), 1024, 256, 0, stream, vocab * d / WIDE, to);
    else LAUNCH((zero_kernel<G, 1>), 1024, 256, 0, stream, vocab * d, to);
  }
  if (rows == 0) return LAUNCHED();
  dim3 grid((unsigned)rows, (unsigned)ceil_of(d, THREADS * (wide ? (int64_t)WIDE : 1)));
  if (wide)
    LAUNCH((backward_kernel<T, G, WIDE>), grid, THREADS, 0, stream, rows, vocab, d, tokens, (const T *)dy.x, dy.ld, to);
  else
    LAUNCH((backward_kernel<T, G, 1>), grid, THREADS, 0, stream, rows, vocab, d, tokens, (const T *)dy.x, dy.ld, to);
  return LAUNCHED();
}

int cuda_embedding_bwd(CudaStream stream, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens, CudaTensor dy,
                       CudaTensor dtable) {
  int n = wide_of(dy.type);
  bool wide = wide_ok(dy, rows, d, n) && wide_ok(dtable, vocab, d, n);
  if (dtable.type != CUDA_F32 && dtable.type != dy.type) return CUDA_UNSUPPORTED;
  FOR_TYPE(dy.type, false, (void)N;
           return dtable.type == CUDA_F32 ? backward<T, float>(stream, rows, vocab, d, tokens, dy, dtable, wide)
                                          : backward<T, T>(stream, rows, vocab, d, tokens, dy, dtable, wide);)
}
