/* Owns: the exact sums of kernels/exact.c on the device: the same digits, added with integer atomics, so that the sum
 * does not depend on the order. Carries are left to exact_round: a digit is below 2^32, so 2^30 of them fit a word. */
#ifndef FSDPC_KERNELS_CUDA_EXACT_CUH
#define FSDPC_KERNELS_CUDA_EXACT_CUH

#include "kernels/cuda/device.cuh"

#define DIGIT_BITS 32
#define DIGIT_MASK 0xffffffffull
#define LOWEST (-640) /* word 0 weighs 2^LOWEST */
#define MARKER (EXACT_WORDS - 1)

DEVICE void exact_word(unsigned long long *acc, int word, uint64_t digit) {
  if (digit != 0) atomicAdd(&acc[word], (unsigned long long)digit);
}

/* x >= 0. acc may lie in shared memory. */
DEVICE void exact_put(unsigned long long *acc, double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & 0xfffffffffffffull;
  if (exponent == 0x7ff || x < 0) {
    exact_word(acc, MARKER, 1);
    return;
  }
  if (exponent == 0) return; /* zero, or below 2^-1022 */
  int shift = exponent - 1075 - LOWEST; /* the mantissa's lowest bit above 2^LOWEST */
  mantissa |= 1ull << 52;
  if (shift < 0) {
    mantissa = shift > -64 ? mantissa >> -shift : 0;
    shift = 0;
  }
  int word = shift / DIGIT_BITS, offset = shift % DIGIT_BITS;
  if (word + 2 >= MARKER) {
    exact_word(acc, MARKER, 1);
    return;
  }
  uint64_t low = mantissa << offset;
  exact_word(acc, word, low & DIGIT_MASK);
  exact_word(acc, word + 1, low >> DIGIT_BITS);
  exact_word(acc, word + 2, offset ? mantissa >> (64 - offset) : 0);
}

constexpr int RUN = 64, LANES = 8, EXACT_THREADS = 256;

/* Elements of device memory, N at a time; x on a 16-byte boundary where N > 1, and i a multiple of N. */
template <class T> struct Elements {
  const T *x;
  template <int N> DEVICE void take(int64_t i, float *out) const { load<T, N>(x + i, out); }
};

/* Lane j of 8 adds the squares of values j, j + 8, ... of a run of n, at most RUN, from element `at` on, in double; then the
 * lanes are added: the order of kernels/cpu/optimizer.c, and so its bits. A float's square is exact in double. N lanes are
 * one thread's, which reads their values at once. Whole warps. */
template <int N, class F> DEVICE double run_squares(int64_t at, int64_t n, const F &value) {
  int first = (int)threadIdx.x % (LANES / N) * N;
  double lane[N] = {0};
  if (n == RUN) {
#pragma unroll
    for (int i = 0; i < RUN; i += LANES) {
      float x[N];
      value.template take<N>(at + first + i, x);
#pragma unroll
      for (int j = 0; j < N; j++) lane[j] += (double)x[j] * (double)x[j];
    }
  } else {
    for (int64_t i = first; i < n; i += LANES)
#pragma unroll
      for (int j = 0; j < N; j++) {
        float x = 0;
        if (i + j < n) value.template take<1>(at + i + j, &x);
        lane[j] += (double)x * (double)x;
      }
  }
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) /* l0+l4, l2+l6, l1+l5, l3+l7 */
#pragma unroll
    for (int j = 0; j < (offset < N ? offset : N); j++)
      lane[j] += offset < N ? lane[(j + offset) % N] : __shfl_xor_sync(WHOLE_WARP, lane[j], offset / N);
  return lane[0];
}

/* acc += the squares of `runs` runs of RUN elements; left(i): how many count from element i, where a run begins, to the
 * end of what it belongs to; maybe none. A grid of EXACT_THREADS a block, LANES / N of them a run. */
template <int N, class Left, class F>
DEVICE void exact_squares(int64_t runs, Left left, const F &value, int64_t *acc) {
  SHARED_ARRAY(unsigned long long, own, EXACT_WORDS);
  for (int i = threadIdx.x; i < EXACT_WORDS; i += EXACT_THREADS) own[i] = 0;
  __syncthreads();
  constexpr int TURN = EXACT_THREADS * N / LANES; /* runs */
  for (int64_t run = (int64_t)blockIdx.x * TURN; run < runs; run += (int64_t)gridDim.x * TURN) { /* all threads together */
    int64_t mine = run + threadIdx.x * N / LANES, n = mine < runs ? left(mine * RUN) : 0;
    double sum = run_squares<N>(mine * RUN, n < RUN ? n : RUN, value);
    if (n > 0 && threadIdx.x * N % LANES == 0) exact_put(own, sum);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < EXACT_WORDS; i += EXACT_THREADS)
    if (own[i] != 0) atomicAdd((unsigned long long *)&acc[i], own[i]);
}

/* Nearest double, ties to even; NaN when marked. */
DEVICE double exact_round(const int64_t *acc) {
  int64_t word[EXACT_WORDS];
  for (int i = 0; i < EXACT_WORDS; i++) word[i] = acc[i];
  for (int i = 0; i < MARKER; i++) {
    word[i + 1] += word[i] >> DIGIT_BITS;
    word[i] &= (int64_t)DIGIT_MASK;
  }
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
