/* Owns: exp and the normal distribution function on vectors. In float, polynomials (fit_polynomials.py); in
 * double the C library lane by lane, for that variant exists to be right.
 *
 * Float errors, measured by tests/kernels: exp 1 ulp on [-87.3, 88.3] (0 below, no overflow above: it stays
 * at 2.3e38); cdf 1.2e-7 absolute. NaN stays NaN. */
#ifndef FSDPC_KERNELS_CPU_SIMD_MATH_H
#define FSDPC_KERNELS_CPU_SIMD_MATH_H

#include "kernels/cpu/simd.h"

#if KERNELS_DOUBLE

INLINE vec vec_exp(vec x) {
  for (int i = 0; i < VL; i++) x[i] = exp(x[i]);
  return x;
}

INLINE vec vec_cdf(vec x) {
  for (int i = 0; i < VL; i++) x[i] = 0.5 * erfc(-x[i] * 0.70710678118654752440);
  return x;
}

#else

/* e^x = 2^n e^r with |r| <= ln2/2. Adding 1.5 2^23 rounds to an integer and leaves it in the low mantissa
 * bits. */
INLINE vec vec_exp(vec x) {
  const vec magic = vec_all(12582912.0f);
  x = vec_max(vec_all(-88.0f), vec_min(vec_all(88.37f), x));
  vec shifted = x * 1.44269504f + magic;
  vec n = shifted - magic;
  vec r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  vec p = vec_all(1.392617589e-03f);
  p = p * r + 8.363173343e-03f;
  p = p * r + 4.166655615e-02f;
  p = p * r + 1.666657776e-01f;
  p = p * r + 5.000000000e-01f;
  p = p * (r * r) + (r + 1.0f);
  ivec scale = ((ivec)shifted - (ivec)magic + 127) << 23; /* zero for n = -127: the result is flushed */
  return p * (vec)scale;
}

/* With z = |x|/sqrt(2): (1 + erf)/2 from an odd polynomial for z < 1, erfc/2 = exp(-z R(z))/2 beyond, where
 * the left tail keeps its relative accuracy. */
INLINE vec vec_cdf(vec x) {
  vec z = x * 0.707106781f;
  vec a = vec_min(vec_all(10.0f), vec_max(-z, z));
  vec t = z * z;
  vec near = vec_all(7.875874871e-05f);
  near = near * t - 8.016864303e-04f;
  near = near * t + 5.189087242e-03f;
  near = near * t - 2.685421146e-02f;
  near = near * t + 1.128359437e-01f;
  near = near * t - 3.761262596e-01f;
  near = near * t + 1.128379107e+00f;
  near = near * (0.5f * z) + 0.5f;
  vec far = vec_all(-2.324658244e-09f);
  far = far * a + 1.409511725e-07f;
  far = far * a - 3.808618658e-06f;
  far = far * a + 6.078621664e-05f;
  far = far * a - 6.416675169e-04f;
  far = far * a + 4.768958781e-03f;
  far = far * a - 2.606339753e-02f;
  far = far * a + 1.089446396e-01f;
  far = far * a + 6.334509850e-01f;
  far = far * a + 1.129088998e+00f;
  vec tail = 0.5f * vec_exp(-a * far);
  far = vec_select((ivec)(z < 0.0f), tail, 1.0f - tail);
  return vec_select((ivec)(a < 1.0f), near, far);
}

#endif

#endif
