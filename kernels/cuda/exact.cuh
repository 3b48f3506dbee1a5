/* Owns: the exact sums of kernels/exact.c on the device: the same digits, added as integers, so that the sum does not depend on
 * the order: over a warp by shuffles, then by atomics. Carries are left to exact_carry: a digit is below 2^32, so 2^30 of them
 * fit a word. */
#ifndef FSDPC_KERNELS_CUDA_EXACT_CUH
#define FSDPC_KERNELS_CUDA_EXACT_CUH

#include "kernels/cuda/device.cuh"

#define DIGIT_BITS 32
#define DIGIT_MASK 0xffffffffull
#define LOWEST (-640) /* word 0 weighs 2^LOWEST */
#define MARKER (EXACT_WORDS - 1)

/* One double: three neighbouring digits from `word` on. */
struct Digits {
  int word;
  uint64_t digit[3];
};
constexpr int NOWHERE = 2 * EXACT_WORDS; /* where nothing lies: all digits are 0 */

/* x >= 0 */
DEVICE Digits digits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 52 & 0x7ff);
  if (exponent == 0) return Digits{NOWHERE, {0, 0, 0}}; /* zero, or below 2^-1022 */
  uint64_t mantissa = (bits & 0xfffffffffffffull) | 1ull << 52;
  int shift = exponent - 1075 - LOWEST; /* the mantissa's lowest bit above 2^LOWEST */
  if (shift < 0) {
    mantissa = shift > -64 ? mantissa >> -shift : 0;
    shift = 0;
  }
  int word = shift / DIGIT_BITS, offset = shift % DIGIT_BITS;
  if (exponent == 0x7ff || x < 0 || word + 2 >= MARKER) return Digits{MARKER, {1, 0, 0}};
  uint64_t low = mantissa << offset;
  return Digits{word, {low & DIGIT_MASK, low >> DIGIT_BITS, offset ? mantissa >> (64 - offset) : 0}};
}

DEVICE void exact_word(unsigned long long *acc, int word, uint64_t digit) {
  if (digit != 0) atomicAdd(&acc[word], (unsigned long long)digit);
}

DEVICE int warp_least(int x) {
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2) {
    int other = __shfl_xor_sync(WHOLE_WARP, x, offset);
    x = other < x ? other : x;
  }
  return x;
}

/* acc, in shared memory, += the lanes' x >= 0. Values of one tensor mostly begin in one word or the next: then four words of
 * the warp are summed first, for an atomic addition of 64 bits to shared memory is a loop that lanes leave one by one. A word
 * of 32 digits stays below 2^37. Whole warps. */
DEVICE void exact_put(unsigned long long *acc, double x) {
  Digits d = digits_of(x);
  int base = warp_least(d.word);
  bool near = d.word <= base + 1 || d.word == NOWHERE;
  if (__ballot_sync(WHOLE_WARP, near) != WHOLE_WARP) {
#pragma unroll
    for (int i = 0; i < 3; i++) exact_word(acc, d.word + i, d.digit[i]);
    return;
  }
  bool next = d.word != base;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint64_t sum = next ? (i > 0 ? d.digit[i - 1] : 0) : (i < 3 ? d.digit[i] : 0);
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(WHOLE_WARP, sum, offset);
    if (threadIdx.x % WARP == 0) exact_word(acc, base + i, sum);
  }
}

constexpr int RUN = 64, LANES = 8, EXACT_THREADS = 256;

/* Elements of device memory; x on a 16-byte boundary where they are read N > 1 at a time, from multiples of N on. */
template <class T> struct Elements {
  typedef T Element;
  const T *x;
  DEVICE const T *at(int64_t i) const { return x + i; }
  template <int N> DEVICE void finish(int64_t, float *) const {} /* of elements i to i + N - 1, in place: what is squared */
};

/* A warp's runs side by side, 4 KiB from a 16-byte boundary on, as they come fastest; `stage` is the warp's. There a run is a
 * run, LANES / N pieces of 16 bytes from the next, so that eight lanes which read theirs meet no bank twice. */
constexpr int PIECES = RUN / LANES, STAGE = (PIECES + 1) * WARP;
template <int N> DEVICE void stage_runs(const void *from, uint4 *stage) {
  int lane = threadIdx.x % WARP;
  uint4 piece[PIECES];
#pragma unroll
  for (int k = 0; k < PIECES; k++) piece[k] = reinterpret_cast<const uint4 *>(from)[k * WARP + lane];
  __syncwarp(); /* the runs before these have been read */
#pragma unroll
  for (int k = 0; k < PIECES; k++) {
    int i = k * WARP + lane;
    stage[i + i / (RUN / N) * (LANES / N)] = piece[k];
  }
  __syncwarp();
}

/* Lane j of 8 adds the squares of values j, j + 8, ... of a run in double; then the lanes are added: the order of
 * kernels/cpu/optimizer.c, and so its bits. A float's square is exact in double. N lanes are one thread's.
 * run_whole: of the run of RUN at `x` which is element `at`. run_part: of n, maybe none; read one by one. */
template <int N, class F>
DEVICE void run_whole(const typename F::Element *x, int64_t at, const F &value, double lane[N]) {
  int first = (int)threadIdx.x % (LANES / N) * N;
#pragma unroll
  for (int i = 0; i < RUN; i += LANES) {
    float v[N];
    load<typename F::Element, N>(x + first + i, v);
    value.template finish<N>(at + first + i, v);
#pragma unroll
    for (int j = 0; j < N; j++) lane[j] += (double)v[j] * (double)v[j];
  }
}
template <int N, class F> DEVICE void run_part(int64_t at, int64_t n, const F &value, double lane[N]) {
  for (int64_t i = (int)threadIdx.x % (LANES / N) * N; i < n; i += LANES)
#pragma unroll
    for (int j = 0; j < N; j++) {
      float v = 0;
      if (i + j < n) {
        load<typename F::Element, 1>(value.at(at + i + j), &v);
        value.template finish<1>(at + i + j, &v);
      }
      lane[j] += (double)v * (double)v;
    }
}
template <int N> DEVICE double lanes_sum(double lane[N]) {
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) /* l0+l4, l2+l6, l1+l5, l3+l7 */
#pragma unroll
    for (int j = 0; j < (offset < N ? offset : N); j++)
      lane[j] += offset < N ? lane[(j + offset) % N] : __shfl_xor_sync(WHOLE_WARP, lane[j], offset / N);
  return lane[0];
}

/* Of this thread's run, from element `at` on, of which n count; the warp's lie side by side. In its first thread. */
template <int N, class F> DEVICE double run_squares(int64_t at, int64_t n, const F &value, uint4 *stage) {
  double lane[N] = {0};
  if (N > 1 && __ballot_sync(WHOLE_WARP, n >= RUN) == WHOLE_WARP) {
    int run = (int)threadIdx.x % WARP * N / LANES;
    stage += threadIdx.x / WARP * STAGE;
    stage_runs<N>(value.at(at - run * RUN), stage);
    run_whole<N>((const typename F::Element *)(stage + run * (RUN + LANES) / N), at, value, lane);
  } else {
    run_part<N>(at, n < RUN ? n : RUN, value, lane);
  }
  return lanes_sum<N>(lane);
}

/* acc += the squares of `runs` runs of RUN elements; left(i): how many count from element i, where a run begins, to the
 * end of what it belongs to; maybe none. A grid of EXACT_THREADS a block, LANES / N of them a run. */
template <int N, class Left, class F>
DEVICE void exact_squares(int64_t runs, Left left, const F &value, int64_t *acc) {
  SHARED_ARRAY(unsigned long long, own, EXACT_WORDS);
  SHARED_ARRAY(uint4, stage, N > 1 ? EXACT_THREADS / WARP * STAGE : 1);
  for (int i = threadIdx.x; i < EXACT_WORDS; i += EXACT_THREADS) own[i] = 0;
  __syncthreads();
  constexpr int TURN = EXACT_THREADS * N / LANES; /* runs */
  for (int64_t run = (int64_t)blockIdx.x * TURN; run < runs; run += (int64_t)gridDim.x * TURN) { /* all threads together */
    int64_t mine = run + threadIdx.x * N / LANES, n = mine < runs ? left(mine * RUN) : 0;
    double sum = run_squares<N>(mine * RUN, n, value, stage);
    exact_put(own, threadIdx.x * N % LANES == 0 ? sum : 0);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < EXACT_WORDS; i += EXACT_THREADS)
    if (own[i] != 0) atomicAdd((unsigned long long *)&acc[i], own[i]);
}

/* The same sum, of digits below 2^32 but for the marker. */
DEVICE void exact_carry(int64_t *word) {
  for (int i = 0; i < MARKER; i++) {
    word[i + 1] += word[i] >> DIGIT_BITS;
    word[i] &= (int64_t)DIGIT_MASK;
  }
}

/* Nearest double, ties to even; NaN when marked. */
DEVICE double exact_round(const int64_t *acc) {
  int64_t word[EXACT_WORDS];
  for (int i = 0; i < EXACT_WORDS; i++) word[i] = acc[i];
  exact_carry(word);
  if (word[MARKER] != 0) return NAN;
  int top = MARKER - 1;
  while (top >= 0 && word[top] == 0) top--;
  if (top < 0) return 0;
  uint64_t second = top > 0 ? (uint64_t)word[top - 1] : 0, third = top > 1 ? (uint64_t)word[top - 2] : 0;
  int zeros = 0; /* above the first set bit of the digit */
  while (((uint64_t)word[top] << zeros & 0x80000000ull) == 0) zeros++;
  uint64_t bits = (uint64_t)word[top] << 32 | second;
  uint64_t sticky = third << zeros & DIGIT_MASK;
  bits = bits << zeros | (third << zeros >> DIGIT_BITS);
  for (int i = top - 3; i >= 0; i--) sticky |= (uint64_t)word[i];
  uint64_t kept = bits >> 11, rest = bits & 0x7ff;
  if (rest > 0x400 || (rest == 0x400 && (sticky != 0 || (kept & 1)))) kept++;
  return ldexp((double)kept, DIGIT_BITS * (top - 1) + LOWEST - zeros + 11);
}

#endif
