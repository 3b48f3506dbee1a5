/* Owns: the addition behind exact_add without the carries, for loops that add often: at most 2^30 times
 * before an exact_merge settles them. */
#ifndef FSDPC_KERNELS_EXACT_LAZY_H
#define FSDPC_KERNELS_EXACT_LAZY_H

#include "kernels/exact.h"
#include <string.h>

enum { EXACT_LOWEST = -640, EXACT_MARKER = EXACT_WORDS - 1 };

static inline void exact_add_lazily(int64_t acc[EXACT_WORDS], double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 52 & 0x7ff), shift = exponent - 1075 - EXACT_LOWEST;
  if (exponent == 0) return; /* zero, or below 2^-1022 */
  uint64_t mantissa = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(1) << 52;
  if (shift < 0) { /* the lowest bits of x lie below the lowest word */
    mantissa = shift > -64 ? mantissa >> -shift : 0;
    shift = 0;
  }
  int word = shift / 32, offset = shift % 32;
  if (bits >> 63 || exponent == 0x7ff || word + 2 >= EXACT_MARKER) {
    acc[EXACT_MARKER] = 1;
    return;
  }
  uint64_t low = mantissa << offset, high = mantissa >> 32 >> (32 - offset);
  acc[word] += (int64_t)(low & UINT32_MAX);
  acc[word + 1] += (int64_t)(low >> 32);
  acc[word + 2] += (int64_t)high;
}

#endif
