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

/* Lane j of 8 adds the squares of values j, j + 8, ... of a run of up to 64 in double, then the lanes are added: the order
 * of kernels/cpu/optimizer.c, and so its bits. A float's square is exact in double. Whole warps. */
template <class F> DEVICE double eight_squares(int64_t n, F value) {
  double sum = 0;
  for (int64_t i = threadIdx.x % 8; i < n; i += 8) {
    double x = (double)value(i);
    sum += x * x;
  }
  sum += __shfl_xor_sync(WHOLE_WARP, sum, 4); /* l0+l4, l2+l6, l1+l5, l3+l7 */
  sum += __shfl_xor_sync(WHOLE_WARP, sum, 2);
  sum += __shfl_xor_sync(WHOLE_WARP, sum, 1);
  return sum;
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
