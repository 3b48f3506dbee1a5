/* Owns: elements as they lie in memory. `stored` is the type of activations and gathered parameters: `real`, or 16 bits
 * in the variants compiled with KERNELS_STORED 1 or 2, whose arithmetic is in float all the same: a load
 * widens, a store rounds. Gradients of parameters and what goes over the wire have a type of their own, known when a
 * kernel runs (KernelContext.gradient).
 *
 * vec_load, vec_store, vec_take, vec_put, vec_take_filled accept pointers to `stored` as well as to `real`, so that one
 * source serves all element types. Included at the end of simd.h. */
#ifndef FSDPC_KERNELS_CPU_STORAGE_H
#define FSDPC_KERNELS_CPU_STORAGE_H

#include "kernels/cpu/simd.h"

#if KERNELS_DOUBLE

INLINE vec typed_take(FloatType type, const void *p, int64_t i, int64_t left) {
  (void)type;
  return vec_take((const real *)p + i, left);
}

INLINE void typed_put(FloatType type, void *p, int64_t i, vec v, int64_t left) {
  (void)type;
  vec_put((real *)p + i, v, left);
}

#else

typedef uint16_t hvec __attribute__((vector_size(VEC_BYTES / 2)));
typedef uint32_t uvec __attribute__((vector_size(VEC_BYTES)));

INLINE vec bf16_widen(hvec h) {
  return (vec)(__builtin_convertvector(h, uvec) << 16);
}

/* Adds `up`, below 2^16, to what is cut off. NaN stays NaN. */
INLINE hvec bf16_cut(vec v, uvec up) {
  uvec bits = (uvec)v, rounded = bits + up;
  uvec nan = (uvec)((bits & 0x7fffffffu) > 0x7f800000u);
  return __builtin_convertvector((((bits | 0x400000u) & nan) | (rounded & ~nan)) >> 16, hvec);
}

INLINE hvec bf16_narrow(vec v) {
  return bf16_cut(v, 0x7fff + ((uvec)v >> 16 & 1));
}

INLINE vec f16_widen(hvec h) {
#if VEC_BYTES == 64
  return (vec)_mm512_cvtph_ps((__m256i)h);
#elif VEC_BYTES == 32
  return (vec)_mm256_cvtph_ps((__m128i)h);
#else
  vec v;
  for (int i = 0; i < VL; i++) v[i] = float_of_f16((Half){h[i]});
  return v;
#endif
}

INLINE hvec f16_narrow(vec v) {
#if VEC_BYTES == 64
  return (hvec)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif VEC_BYTES == 32
  return (hvec)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  hvec h;
  for (int i = 0; i < VL; i++) h[i] = f16_of_float(v[i]).bits;
  return h;
#endif
}

INLINE vec half_widen(FloatType type, hvec h) {
  return type == FLOAT_BF16 ? bf16_widen(h) : f16_widen(h);
}

INLINE hvec half_narrow(FloatType type, vec v) {
  return type == FLOAT_BF16 ? bf16_narrow(v) : f16_narrow(v);
}

INLINE vec half_take(FloatType type, const Half *p, int64_t left) {
  hvec h = {0};
  if (__builtin_expect(left >= VL, 1)) {
    memcpy(&h, p, sizeof h);
  } else {
#if VEC_BYTES == 64
    h = (hvec)_mm256_maskz_loadu_epi16((__mmask16)((1u << left) - 1), p);
#else
    for (int64_t i = 0; i < left; i++) h[i] = p[i].bits;
#endif
  }
  return half_widen(type, h);
}

INLINE void hvec_put(Half *p, hvec h, int64_t left) {
  if (__builtin_expect(left >= VL, 1)) {
    memcpy(p, &h, sizeof h);
    return;
  }
#if VEC_BYTES == 64
  _mm256_mask_storeu_epi16(p, (__mmask16)((1u << left) - 1), (__m256i)h);
#else
  for (int64_t i = 0; i < left; i++) p[i].bits = h[i];
#endif
}

INLINE void half_put(FloatType type, Half *p, vec v, int64_t left) {
  hvec_put(p, half_narrow(type, v), left);
}

/* `left` elements of the type remain from p[i] on, at least one. */
INLINE vec typed_take(FloatType type, const void *p, int64_t i, int64_t left) {
  return type == FLOAT_REAL ? vec_take((const real *)p + i, left) : half_take(type, (const Half *)p + i, left);
}

INLINE void typed_put(FloatType type, void *p, int64_t i, vec v, int64_t left) {
  if (type == FLOAT_REAL)
    vec_put((real *)p + i, v, left);
  else
    half_put(type, (Half *)p + i, v, left);
}

#endif

static const FloatType STORED_TYPE = (FloatType)KERNELS_STORED;

/* As it would come back from memory. */
INLINE vec typed_round(FloatType type, vec v) {
#if KERNELS_DOUBLE
  (void)type;
  return v;
#else
  return type == FLOAT_REAL ? v : half_widen(type, half_narrow(type, v));
#endif
}

INLINE size_t typed_bytes(FloatType type) {
  return type == FLOAT_REAL ? sizeof(real) : sizeof(Half);
}

#if KERNELS_STORED

INLINE real to_real(stored x) {
  return float_of_half(STORED_TYPE, x);
}

INLINE stored to_stored(real x) {
  return half_of_float(STORED_TYPE, x);
}

INLINE vec stored_load(const stored *p) {
  return half_take(STORED_TYPE, p, VL);
}

INLINE void stored_store(stored *p, vec v) {
  half_put(STORED_TYPE, p, v, VL);
}

INLINE vec stored_take(const stored *p, int64_t left) {
  return half_take(STORED_TYPE, p, left);
}

INLINE void stored_put(stored *p, vec v, int64_t left) {
  half_put(STORED_TYPE, p, v, left);
}

INLINE vec stored_take_filled(const stored *p, int64_t left, real fill) {
  vec v = half_take(STORED_TYPE, p, left);
  for (int64_t i = left; i < VL; i++) v[i] = fill;
  return v;
}

#define BY_TYPE(p, of_stored, of_real) _Generic((p), stored *: of_stored, const stored *: of_stored, default: of_real)
#define vec_load(p)                    BY_TYPE(p, stored_load, vec_load)(p)
#define vec_store(p, v)                BY_TYPE(p, stored_store, vec_store)(p, v)
#define vec_take(p, left)              BY_TYPE(p, stored_take, vec_take)(p, left)
#define vec_put(p, v, left)            BY_TYPE(p, stored_put, vec_put)(p, v, left)
#define vec_take_filled(p, left, fill) BY_TYPE(p, stored_take_filled, vec_take_filled)(p, left, fill)

#else

INLINE real to_real(stored x) {
  return x;
}

INLINE stored to_stored(real x) {
  return x;
}

#endif

#endif
