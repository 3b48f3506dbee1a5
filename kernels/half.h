/* Owns: numbers of 16 bits as they lie in memory (bf16, IEEE f16) and their conversion, one number at a time.
 *
 * Rounding is to nearest, ties to even; what f16 cannot hold becomes infinity; NaN stays NaN. Denormal f16 are numbers like
 * any other, whatever the floating-point mode of the thread: the code below never computes with a denormal float. */
#ifndef FSDPC_KERNELS_HALF_H
#define FSDPC_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

/* Numbered as the floats of base/dtype.h. FLOAT_REAL: the kernel's own type. */
typedef enum { FLOAT_REAL, FLOAT_BF16, FLOAT_F16 } FloatType;

typedef struct Half {
  uint16_t bits;
} Half;

static inline float float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint32_t bits_of_float(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float float_of_f16(Half half) {
  const uint32_t top = UINT32_C(0x7c00) << 13, lowest = UINT32_C(113) << 23; /* exponent all ones; 2^-14 */
  uint32_t bits = (half.bits & UINT32_C(0x7fff)) << 13, exponent = bits & top;
  bits += UINT32_C(112) << 23;
  if (exponent == top) bits += UINT32_C(112) << 23;
  if (exponent == 0) bits = bits_of_float(float_of_bits(bits + (UINT32_C(1) << 23)) - float_of_bits(lowest));
  return float_of_bits(bits | (half.bits & UINT32_C(0x8000)) << 16);
}

static inline Half f16_of_float(float x) {
  const uint32_t infinity = UINT32_C(255) << 23, too_large = UINT32_C(143) << 23, lowest = UINT32_C(113) << 23;
  const uint32_t denormal = UINT32_C(126) << 23; /* 1/2: its last bit weighs what f16's last bit does */
  uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000;
  bits &= UINT32_C(0x7fffffff);
  if (bits > infinity) return (Half){(uint16_t)(sign | 0x7e00)};
  if (bits >= too_large) return (Half){(uint16_t)(sign | 0x7c00)};
  if (bits < lowest)
    return (Half){(uint16_t)(sign | (bits_of_float(float_of_bits(bits) + float_of_bits(denormal)) - denormal))};
  bits += UINT32_C(0xc8000fff) + (bits >> 13 & 1); /* the exponent's bias 127 becomes 15; half of the last bit, or just less */
  return (Half){(uint16_t)(sign | bits >> 13)};
}

static inline float float_of_bf16(Half half) {
  return float_of_bits((uint32_t)half.bits << 16);
}

static inline Half bf16_of_float(float x) {
  uint32_t bits = bits_of_float(x);
  if ((bits & UINT32_C(0x7fffffff)) > UINT32_C(0x7f800000)) return (Half){(uint16_t)(bits >> 16 | 0x40)};
  return (Half){(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

/* type: FLOAT_BF16 or FLOAT_F16. */
static inline float float_of_half(FloatType type, Half half) {
  return type == FLOAT_BF16 ? float_of_bf16(half) : float_of_f16(half);
}

static inline Half half_of_float(FloatType type, float x) {
  return type == FLOAT_BF16 ? bf16_of_float(x) : f16_of_float(x);
}

#endif
