/* Owns: table rows by token, and their gradient. A token outside the table reads as NaN, so that it shows in the loss,
 * and receives no gradient.
 *
 * The gradient has no atomics: the block of a row whose token occurred in an earlier row leaves when it meets that; the
 * others list the rows after theirs that have their token, 2048 looked at at a time, and add them in row order, AT_ONCE on their way.
 *
 * Moves forward 2 d elements a row; backward d a row and d a distinct token, plus the tokens: for each distinct one, and each
 * THREADS accesses of its row, all of them once out of L2, 8 KiB at a time; 1 flop an element backward.
 * Bound: memory; with many rows the comparisons, rows by distinct tokens; with a token that has a good part of the rows,
 * the latency of its reads. Rate on an H200: forward 3.9 TB/s of written elements at 131072 x 2048 bf16, 91 % of a copy's 4.28, the table's
 * being in L2; backward 0.50 at 65536 x 50257 x 768 and 1.79 at 131072 x 128256 x 2048, 12 and 42 %, the tokens being
 * bytes of text, of which one has about a sixth of the rows (0.25 and 0.82 with 8 rows on their way instead of AT_ONCE). */
#include "kernels/cuda/device.cuh"

/* TILE: tokens that a block compares in one access a thread; TILES: accesses on their way; SPAN: neighbours that a thread lists;
 * AT_ONCE: rows on their way. */
constexpr int FORWARD_ROWS = 4, THREADS = 128, TILE = THREADS * 4, TILES = 4, SPAN = TILES * 4, AT_ONCE = 16;

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

/* Which rows of [begin, end) have this token, of the THREADS SPAN from `base` on: their distances from it, in order. Returns how many;
 * all threads agree. totals: one a warp. */
DEVICE int list_same(const int32_t *tokens, int64_t begin, int64_t end, int64_t base, int32_t token, uint16_t *list, int *totals) {
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = threadIdx.x * SPAN, upto, count = 0;
  unsigned bits = 0;
#pragma unroll
  for (int j = 0; j < SPAN; j += 4) bits |= same_tokens(tokens, begin, end, base + first + j, token) << j;
  upto = __popc(bits);
#pragma unroll
  for (int offset = 1; offset < WARP; offset *= 2) {
    int below = __shfl_sync(WHOLE_WARP, upto, lane - offset);
    if (lane >= offset) upto += below;
  }
  if (lane == WARP - 1) totals[warp] = upto;
  __syncthreads();
  int at = upto - __popc(bits);
  for (int w = 0; w < THREADS / WARP; w++) {
    if (w < warp) at += totals[w];
    count += totals[w];
  }
  for (; bits != 0; bits &= bits - 1) list[at++] = (uint16_t)(first + __ffs((int)bits) - 1);
  __syncthreads();
  return count;
}

/* N elements as they lie in memory. */
template <class T, int N> struct Raw {
  typedef uint4 type;
};
template <class T> struct Raw<T, 1> {
  typedef T type;
};

/* Adds to sum the rows that the list names, AT_ONCE or, unless ALL, the first `count` of them: for the others its last is read again and 0
 * added, which leaves a sum that began at 0 as it is. Whole warps: their barrier keeps ptxas from starting a load only when another has
 * been added, to save registers. */
template <bool ALL, class T, int N> DEVICE void add_some(const uint16_t *list, int count, const T *dy, int64_t lddy, float *sum) {
  typename Raw<T, N>::type raw[AT_ONCE];
#pragma unroll
  for (int k = 0; k < AT_ONCE; k++)
    raw[k] = *reinterpret_cast<const typename Raw<T, N>::type *>(dy + list[ALL || k < count ? k : count - 1] * lddy);
  __syncwarp();
#pragma unroll
  for (int k = 0; k < AT_ONCE; k++) {
    float v[N];
    load<T, N>((const T *)&raw[k], v);
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] += ALL || k < count ? v[j] : 0;
  }
}
template <class T, int N> DEVICE void add_list(const uint16_t *list, int count, const T *dy, int64_t lddy, float *sum) {
  int i = 0;
  for (; i + AT_ONCE <= count; i += AT_ONCE) add_some<true, T, N>(list + i, AT_ONCE, dy, lddy, sum);
  if (i < count) add_some<false, T, N>(list + i, count - i, dy, lddy, sum);
}

/* Block (row, c): the columns [c THREADS N, ...) of the token of `row`. dtable holds what to add to. */
template <class T, class G, int N>
__global__ void backward_kernel(int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens, const T *dy, int64_t lddy,
                                G *dtable) {
  SHARED_ARRAY(uint16_t, list, TILES *TILE);
  SHARED_ARRAY(int, totals, THREADS / WARP);
  int64_t row = blockIdx.x, col = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * N, lane = threadIdx.x % WARP;
  int32_t token = tokens[row];
  if (token < 0 || token >= vocab || seen_before(tokens, row, token)) return;
  float sum[N] = {0};
  for (int64_t base = row / 4 * 4; base < rows; base += TILES * TILE) {
    if (!any_same(tokens, row, rows, base, token)) continue; /* and list is read no more */
    int count = list_same(tokens, row, rows, base, token, list, totals);
    if (col - lane * N < d) add_list<T, N>(list, count, dy + base * lddy + (col < d ? col : 0), lddy, sum);
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
