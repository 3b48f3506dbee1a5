/* Owns: vectors of `real`, as wide as the variant's registers: 64 bytes (AVX-512), 32 (AVX2), 16 (anything
 * else). Built on the compiler's vector extension; intrinsics only where it has no word for the operation.
 *
 * A loop written with vec_take and vec_put treats its last, partial vector exactly as the whole ones, so an
 * element's bits depend neither on its place in a row nor on the buffer's alignment. Reductions add lanes in
 * one fixed order. */
#ifndef FSDPC_KERNELS_CPU_SIMD_H
#define FSDPC_KERNELS_CPU_SIMD_H

#include "kernels/cpu/variant.h"
#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && !KERNELS_DOUBLE
#define VEC_BYTES 64
#elif defined(__AVX2__) && !KERNELS_DOUBLE
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif

#if KERNELS_DOUBLE
typedef int64_t lane_int;
#else
typedef int32_t lane_int;
#endif

typedef real vec __attribute__((vector_size(VEC_BYTES)));
typedef lane_int ivec __attribute__((vector_size(VEC_BYTES)));
enum { VL = VEC_BYTES / sizeof(real) }; /* lanes */

#define INLINE static inline __attribute__((always_inline))

INLINE vec vec_load(const real *p) {
  vec v;
  memcpy(&v, p, sizeof v);
  return v;
}

INLINE void vec_store(real *p, vec v) {
  memcpy(p, &v, sizeof v);
}

/* x - 0 is x even for -0, so this is a plain broadcast. */
INLINE vec vec_all(real x) {
  return x - (vec){0};
}

/* Loads and stores the first n lanes, 0 < n < VL; the others read as zero and stay unwritten. */
INLINE vec vec_load_some(const real *p, int64_t n) {
#if VEC_BYTES == 64
  return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#elif VEC_BYTES == 32
  const ivec lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  return (vec)_mm256_maskload_ps(p, (__m256i)(lanes < (lane_int)n));
#else
  vec v = {0};
  for (int64_t i = 0; i < n; i++) v[i] = p[i];
  return v;
#endif
}

INLINE void vec_store_some(real *p, vec v, int64_t n) {
#if VEC_BYTES == 64
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#elif VEC_BYTES == 32
  const ivec lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  _mm256_maskstore_ps(p, (__m256i)(lanes < (lane_int)n), (__m256)v);
#else
  for (int64_t i = 0; i < n; i++) p[i] = v[i];
#endif
}

/* `left` elements remain from p on, at least one. */
INLINE vec vec_take(const real *p, int64_t left) {
  return __builtin_expect(left >= VL, 1) ? vec_load(p) : vec_load_some(p, left);
}

INLINE void vec_put(real *p, vec v, int64_t left) {
  if (__builtin_expect(left >= VL, 1))
    vec_store(p, v);
  else
    vec_store_some(p, v, left);
}

/* A partial vector's missing lanes replaced by `fill`. */
INLINE vec vec_take_filled(const real *p, int64_t left, real fill) {
  if (__builtin_expect(left >= VL, 1)) return vec_load(p);
  vec v = vec_all(fill);
  for (int64_t i = 0; i < left; i++) v[i] = p[i];
  return v;
}

INLINE vec vec_select(ivec mask, vec yes, vec no) {
  return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

/* Of a NaN and a number: b. */
INLINE vec vec_max(vec a, vec b) {
#if VEC_BYTES == 64
  return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif VEC_BYTES == 32
  return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__) && !KERNELS_DOUBLE
  return (vec)_mm_max_ps((__m128)a, (__m128)b);
#else
  return vec_select((ivec)(a > b), a, b);
#endif
}

INLINE vec vec_min(vec a, vec b) {
  return -vec_max(-a, -b);
}

INLINE vec vec_sqrt(vec a) {
#if VEC_BYTES == 64
  return (vec)_mm512_sqrt_ps((__m512)a);
#elif VEC_BYTES == 32
  return (vec)_mm256_sqrt_ps((__m256)a);
#elif defined(__SSE2__) && !KERNELS_DOUBLE
  return (vec)_mm_sqrt_ps((__m128)a);
#else
  for (int i = 0; i < VL; i++) a[i] = (real)sqrt(a[i]);
  return a;
#endif
}

/* Halves added to halves: one order for every caller. */
INLINE real vec_sum(vec v) {
  real lane[VL];
  memcpy(lane, &v, sizeof v);
  for (int width = VL / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; i++) lane[i] += lane[i + width];
  }
  return lane[0];
}

INLINE real vec_top(vec v) {
  real top = v[0];
  for (int i = 1; i < VL; i++) top = v[i] > top ? v[i] : top;
  return top;
}

#include "kernels/cpu/storage.h"

#endif
