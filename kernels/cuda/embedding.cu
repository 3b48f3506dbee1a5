/* Owns: table rows by token, and their gradient. A token outside the table reads as NaN, so that it shows in the loss,
 * and receives no gradient.
 *
 * The gradient has no atomics: the block of a row whose token occurred in an earlier row leaves when it meets that; the
 * others walk the rows after theirs and add those of their token in row order, several on their way at a time.
 *
 * Moves forward 2 d elements a row; backward d a row and d a distinct token, plus the tokens: for each distinct one, and each
 * THREADS accesses of its row, all of them once out of L2, 8 KiB at a time; 1 flop an element backward.
 * Bound: memory; with many rows the comparisons, rows by distinct tokens; with a token that has a good part of the rows,
 * the latency of its reads. Rate on an H200: forward 3.9 TB/s of written elements at 131072 x 2048 bf16, 91 % of a copy's 4.28, the table's
 * being in L2; backward 0.24 at 65536 x 50257 x 768 and 0.82 at 131072 x 128256 x 2048, 6 and 19 %: tokens were bytes of text. By
 * count: if a byte has a sixth of the rows, a block reads these 8 at a time, 1.2 us each time. */
#include "kernels/cuda/device.cuh"

/* TILE: tokens that a block compares in one access a thread; TILES: accesses on their way; AT_ONCE: rows, likewise. */
constexpr int FORWARD_ROWS = 4, THREADS = 128, TILE = THREADS * 4, TILES = 4, AT_ONCE = 8;

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

/* Of four tokens from a 16-byte boundary on, bit by bit: is it this one? */
DEVICE unsigned four_same(const int32_t *tokens, int32_t token) {
  uint4 four = *reinterpret_cast<const uint4 *>(tokens);
  unsigned wanted = (unsigned)token;
  return (four.x == wanted ? 1u : 0u) | (four.y == wanted ? 2u : 0u) | (four.z == wanted ? 4u : 0u) | (four.w == wanted ? 8u : 0u);
}

/* Of rows r to r + 3, bit by bit: is it in [begin, end), and its token this one? r is a multiple of 4. */
DEVICE unsigned same_tokens(const int32_t *tokens, int64_t begin, int64_t end, int64_t r, int32_t token) {
  if (r >= begin && r + 4 <= end && (uintptr_t)tokens % 16 == 0) return four_same(tokens + r, token);
  unsigned bits = 0;
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (r + j >= begin && r + j < end && tokens[r + j] == token) bits |= 1u << j;
  return bits;
}

/* Is this token in a row of [begin, end) in the TILES tiles from `base` on? All threads agree. */
DEVICE bool any_same(const int32_t *tokens, int64_t begin, int64_t end, int64_t base, int32_t token) {
  unsigned bits = 0;
  if (base >= begin && base + TILES * TILE <= end && (uintptr_t)tokens % 16 == 0) {
#pragma unroll
    for (int k = 0; k < TILES; k++) bits |= four_same(tokens + base + k * TILE + threadIdx.x * 4, token);
  } else {
    for (int k = 0; k < TILES; k++) bits |= same_tokens(tokens, begin, end, base + k * TILE + threadIdx.x * 4, token);
  }
  return __syncthreads_or(bits != 0) != 0;
}

DEVICE bool seen_before(const int32_t *tokens, int64_t row, int32_t token) {
  for (int64_t base = 0; base < row; base += TILES * TILE)
    if (any_same(tokens, 0, row, base, token)) return true;
  return false;
}

/* Bits of `found` one after the other: `left` are those not yet met of word `word`. -1 after the last. */
DEVICE int found_next(const unsigned *found, int &word, unsigned &left) {
  while (left == 0) {
    if (word == TILE / 32 - 1) return -1;
    left = found[++word];
  }
  int bit = word * 32 + __ffs((int)left) - 1;
  left &= left - 1;
  return bit;
}

/* Adds to sum the rows of a tile that `found` names, in row order. */
template <class T, int N> DEVICE void add_found(const unsigned *found, const T *dy, int64_t lddy, float *sum) {
  int word = 0, row[AT_ONCE];
  unsigned left = found[0];
  do {
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) row[k] = found_next(found, word, left);
    float v[AT_ONCE][N];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) load<T, N>(dy + (row[k] >= 0 ? row[k] : 0) * lddy, v[k]); /* no branch between loads */
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
      for (int j = 0; j < N; j++)
        if (row[k] >= 0) sum[j] += v[k][j];
  } while (row[AT_ONCE - 1] >= 0);
}

/* Adds to sum the rows of [begin, end) in a tile from `base` on whose token it is. */
template <class T, int N>
DEVICE void add_tile(const int32_t *tokens, int64_t begin, int64_t end, int64_t base, int32_t token, const T *dy,
                     int64_t lddy, bool active, unsigned *found, float *sum) {
  unsigned bits = same_tokens(tokens, begin, end, base + threadIdx.x * 4, token);
  if (!__syncthreads_or(bits != 0)) return; /* and found is read no more */
  bits <<= threadIdx.x % 8 * 4; /* eight threads share a word */
  for (int offset = 1; offset < 8; offset *= 2) bits |= __shfl_xor_sync(WHOLE_WARP, bits, offset);
  if (threadIdx.x % 8 == 0) found[threadIdx.x / 8] = bits;
  __syncthreads();
  if (active) add_found<T, N>(found, dy + base * lddy, lddy, sum);
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
  for (int64_t base = row / 4 * 4; base < rows; base += TILES * TILE) {
    if (!any_same(tokens, row, rows, base, token)) continue;
    for (int k = 0; k < TILES; k++)
      add_tile<T, N>(tokens, row, rows, base + k * TILE, token, dy + col, lddy, col < d, found, sum);
  }
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
