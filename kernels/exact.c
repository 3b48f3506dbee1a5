/* Owns: the fixed-point superaccumulator of exact.h. Words stay in [0, 2^32) except where a caller (an
 * all-reduce) has added accumulators word by word; then they are merely non-negative, which every function
 * here accepts.
 *
 * The last word is the marker: anything but zero in it means NaN, infinity, a term of 2^596 or a sum of 2^608
 * and more. Bits below 2^-640, which no square of a float reaches, are dropped. */
#include "kernels/exact.h"
#include "kernels/exact_lazy.h"
#include <math.h>

enum { DIGIT_BITS = 32, LOWEST = EXACT_LOWEST, MARKER = EXACT_MARKER };

static const int64_t DIGIT = (INT64_C(1) << DIGIT_BITS) - 1;

static void normalise(int64_t *acc) {
  for (int i = 0; i < MARKER; i++) {
    acc[i + 1] += acc[i] >> DIGIT_BITS;
    acc[i] &= DIGIT;
  }
  if (acc[MARKER]) acc[MARKER] = 1;
}

void exact_add(int64_t acc[EXACT_WORDS], double x) {
  exact_add_lazily(acc, x);
  normalise(acc);
}

void exact_merge(int64_t acc[EXACT_WORDS], const int64_t other[EXACT_WORDS]) {
  for (int i = 0; i < EXACT_WORDS; i++) acc[i] += other[i];
  normalise(acc);
}

double exact_value(const int64_t acc[EXACT_WORDS]) {
  int64_t word[EXACT_WORDS] = {0};
  exact_merge(word, acc);
  if (word[MARKER]) return NAN;
  int top = MARKER - 1;
  while (top >= 0 && word[top] == 0) top--;
  if (top < 0) return 0;
  /* 64 bits from the first set one on; what lies below only tells whether a tie is one. */
  uint64_t second = top > 0 ? (uint64_t)word[top - 1] : 0, third = top > 1 ? (uint64_t)word[top - 2] : 0;
  int zeros = __builtin_clzll((uint64_t)word[top]) - DIGIT_BITS;
  uint64_t bits = (uint64_t)word[top] << 32 | second;
  uint64_t sticky = third << zeros & (uint64_t)DIGIT;
  bits = bits << zeros | (third << zeros >> DIGIT_BITS);
  for (int i = top - 3; i >= 0; i--) sticky |= (uint64_t)word[i];
  uint64_t kept = bits >> 11, rest = bits & 0x7ff;
  if (rest > 0x400 || (rest == 0x400 && (sticky || kept & 1))) kept++;
  return ldexp((double)kept, DIGIT_BITS * (top - 1) + LOWEST - zeros + 11);
}
