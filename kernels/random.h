/* Owns: counter-based random numbers (Philox 4x32-10, Salmon et al., "Parallel random numbers: as easy as 1,
 * 2, 3", SC11) and normal values from them (Box-Muller). Plain double arithmetic: files that include this are
 * compiled without contraction into fused multiply-adds, so every variant and machine gets the same bits. */
#ifndef FSDPC_KERNELS_RANDOM_H
#define FSDPC_KERNELS_RANDOM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__ /* the CUDA kernels draw the same numbers */
#define RANDOM_INLINE static inline __host__ __device__
#else
#define RANDOM_INLINE static inline
#endif

typedef struct Philox {
  uint32_t word[4];
} Philox;

RANDOM_INLINE Philox philox(uint64_t key, uint64_t high, uint64_t low) {
  uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32), c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#ifndef __CUDACC__
#pragma GCC unroll 10
#endif
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = n0, c2 = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  Philox out = {{c0, c1, c2, c3}};
  return out;
}

/* Many cheap numbers: two Philox blocks give a row of elements its keys, a multiply-xorshift mix an element of it 32 bits
 * in a few vector instructions. */
typedef struct RowKeys {
  uint32_t first, second;
} RowKeys;

/* One key per step and site, then one per row, which has a number of 128 bits. */
RANDOM_INLINE RowKeys random_row_keys(uint64_t seed, uint64_t step, uint64_t site, uint64_t high, uint64_t low) {
  Philox outer = philox(seed, step, site);
  Philox inner = philox((uint64_t)outer.word[0] << 32 | outer.word[1], high, low);
  RowKeys keys = {inner.word[0], inner.word[1]};
  return keys;
}

RANDOM_INLINE uint32_t random_mix(uint32_t column, RowKeys keys) {
  uint32_t x = column * 0x9E3779B9u + keys.first;
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15 ^ keys.second) * 0x846CA68Bu;
  return x ^ x >> 16;
}

/* -2 ln((w + 0.5) / 2^32). ln m for m in [sqrt(1/2), sqrt(2)) is 2 atanh(s), s = (m - 1)/(m + 1), |s| <
 * 0.172. */
RANDOM_INLINE double random_minus_2_log(uint32_t w) {
  double u = ((double)(int32_t)(w ^ 0x80000000u) + 2147483648.5) * 0x1p-32;
  uint64_t bits;
  memcpy(&bits, &u, sizeof bits);
  uint64_t offset = bits - UINT64_C(0x3fe6a09e667f3bcd); /* bits of sqrt(1/2) */
  int32_t exponent = (int32_t)(offset >> 52);
  exponent = exponent >= 2048 ? exponent - 4096 : exponent;
  bits -= offset >> 52 << 52;
  double m;
  memcpy(&m, &bits, sizeof m);
  double s = (m - 1) / (m + 1), t = s * s;
  double p = 1.0 / 17;
  p = p * t + 1.0 / 15;
  p = p * t + 1.0 / 13;
  p = p * t + 1.0 / 11;
  p = p * t + 1.0 / 9;
  p = p * t + 1.0 / 7;
  p = p * t + 1.0 / 5;
  p = p * t + 1.0 / 3;
  p = p * t + 1.0;
  return -4 * s * p - 2 * 0.69314718055994530942 * (double)exponent;
}

typedef struct SinCos {
  double sin, cos;
} SinCos;

/* Of an angle given in quarter turns, |turns| < 2^51: Taylor series on [-pi/4, pi/4]. */
RANDOM_INLINE SinCos sincos_quarters(double quarters) {
  const double magic = 6755399441055744.0; /* 1.5 2^52: rounds, and leaves the integer in the low bits */
  double shifted = quarters + magic, r = (quarters - (shifted - magic)) * 1.57079632679489661923, t = r * r;
  double s = -1.0 / 1307674368000, c = 1.0 / 20922789888000;
  s = s * t + 1.0 / 6227020800;
  s = s * t - 1.0 / 39916800;
  s = s * t + 1.0 / 362880;
  s = s * t - 1.0 / 5040;
  s = s * t + 1.0 / 120;
  s = s * t - 1.0 / 6;
  s = s * t * r + r;
  c = c * t - 1.0 / 87178291200;
  c = c * t + 1.0 / 479001600;
  c = c * t - 1.0 / 3628800;
  c = c * t + 1.0 / 40320;
  c = c * t - 1.0 / 720;
  c = c * t + 1.0 / 24;
  c = c * t - 0.5;
  c = c * t + 1;
  uint64_t n;
  memcpy(&n, &shifted, sizeof n);
  double sine = n & 1 ? c : s, cosine = n & 1 ? s : c;
  SinCos out = {n & 2 ? -sine : sine, (n + 1) & 2 ? -cosine : cosine};
  return out;
}

/* Two independent normal values from two words. */
RANDOM_INLINE SinCos normal_pair(uint32_t radius, uint32_t angle) {
  double r = sqrt(random_minus_2_log(radius));
  SinCos at = sincos_quarters(((double)(int32_t)(angle ^ 0x80000000u) + 2147483648.5) * 0x1p-30);
  SinCos out = {r * at.sin, r * at.cos};
  return out;
}

#endif
