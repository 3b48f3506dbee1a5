/* Owns: gelu (tanh and erf), relu, silu, silu times another tensor, and their gradients. gelu's tanh form is x sigmoid(2 u),
 * u = sqrt(2/pi)(x + 0.044715 x^3): one exp and one division. Elements of 16 bits do not show that the erf form is computed to
 * 1e-5 of the result: one exp, one division and a polynomial; by erfc it would be bound by instructions. Nor do they show
 * sigmoids to 1e-5, by the special units. By expf and a division that rounds correctly gelu takes some 30 instructions an element:
 * 1.0 ns for a thousand of them on an H100, which moves a thousand in 1.2.
 *
 * Moves 2 elements of 2 or 4 bytes forward, 3 backward, one more with `add`; about 10 flops an element. Silu times another
 * tensor: 3 forward, 5 backward, one more with each `add`; about 11 and 17 flops.
 * Bound: memory. Rate on an H200, bf16: gelu 3.91 TB/s forward and 4.11 backward at 65536 x 3072, 91 and 96 % of a copy's 4.28; silu
 * times another tensor 4.18 and 4.06 at 131072 x 8192, 98 and 95 %. The others: not measured, compared with float64 there. */
#include "kernels/cuda/elementwise.cuh"

/* HALF: for elements of 16 bits. */
template <bool HALF> DEVICE float sigmoid(float x) {
  if constexpr (HALF) return fast_inverse(1.0f + fast_exp2(x * -1.44269504f));
  else return 1.0f / (1.0f + expf(-x));
}
DEVICE float normal_cdf(float x) { return 0.5f * erfcf(-x * 0.70710678f); }

#define TWO_ROOT_2_PI 1.59576912f /* 2 sqrt(2/pi) */
#define CUBIC 0.044715f
#define DENSITY 0.39894228f /* 1/sqrt(2 pi) */

/* e^(-x^2/2) and the normal distribution function, both to a relative 1e-5 (kernels/cpu/fit_polynomials.py). */
struct Normal {
  float bell, cdf;
};
DEVICE Normal normal_of(float x) {
  float bell = fast_exp2(x * x * -0.72134752f), t = fast_inverse(1 + 0.31f * fabsf(x)), p = -7.516315579e-02f;
  p = p * t + 1.841960400e-01f;
  p = p * t + 1.144810673e-02f;
  p = p * t + 1.357310265e-01f;
  p = p * t + 1.198732555e-01f;
  p = p * t + 1.239117980e-01f;
  float tail = p * t * bell; /* beyond |x| */
  return Normal{bell, x > 0 ? 1 - tail : tail};
}

template <bool HALF> DEVICE float gelu_sigmoid(float x) {
  return sigmoid<HALF>(x * (TWO_ROOT_2_PI + TWO_ROOT_2_PI * CUBIC * (x * x)));
}

template <bool HALF> struct GeluTanh {
  DEVICE float operator()(float x, float) const { return x * gelu_sigmoid<HALF>(x); }
};
struct GeluErf {
  DEVICE float operator()(float x, float) const { return x * normal_cdf(x); }
};
struct GeluErfHalf {
  DEVICE float operator()(float x, float) const { return x * normal_of(x).cdf; }
};
struct Relu {
  DEVICE float operator()(float x, float) const { return x > 0 ? x : 0.0f; }
};
template <bool HALF> struct Silu {
  DEVICE float operator()(float x, float) const { return x * sigmoid<HALF>(x); }
};
template <bool HALF> struct GeluTanhSlope {
  DEVICE float operator()(float x, float dy) const {
    float s = gelu_sigmoid<HALF>(x), inner = TWO_ROOT_2_PI + 3 * TWO_ROOT_2_PI * CUBIC * (x * x);
    return (s + x * inner * (s - s * s)) * dy;
  }
};
struct GeluErfSlope {
  DEVICE float operator()(float x, float dy) const {
    return (normal_cdf(x) + x * (DENSITY * expf(-0.5f * x * x))) * dy;
  }
};
struct GeluErfHalfSlope {
  DEVICE float operator()(float x, float dy) const {
    Normal n = normal_of(x);
    return (n.cdf + x * (DENSITY * n.bell)) * dy;
  }
};
struct ReluSlope {
  DEVICE float operator()(float x, float dy) const { return x > 0 ? dy : 0.0f; }
};
DEVICE float silu_slope(float x, float s) { return s + x * (s - s * s); } /* s: sigmoid(x) */
template <bool HALF> struct SiluSlope {
  DEVICE float operator()(float x, float dy) const { return silu_slope(x, sigmoid<HALF>(x)) * dy; }
};
template <bool HALF> struct SiluMul {
  DEVICE float operator()(float x, float u) const { return x * sigmoid<HALF>(x) * u; }
};

int cuda_activation_fwd(CudaStream stream, CudaActivation kind, int64_t rows, int64_t cols, CudaTensor x, CudaTensor y) {
  CudaTensor none = {};
  switch (kind) {
    case CUDA_GELU_TANH: return map(stream, rows, cols, rows, x, none, y, GeluTanh<false>(), GeluTanh<true>());
    case CUDA_GELU_ERF: return map(stream, rows, cols, rows, x, none, y, GeluErf(), GeluErfHalf());
    case CUDA_RELU: return map(stream, rows, cols, rows, x, none, y, Relu());
    case CUDA_SILU: return map(stream, rows, cols, rows, x, none, y, Silu<false>(), Silu<true>());
  }
  return CUDA_UNSUPPORTED;
}

int cuda_activation_bwd(CudaStream stream, CudaActivation kind, int64_t rows, int64_t cols, CudaTensor x, CudaTensor dy,
                        CudaTensor dx) {
  switch (kind) {
    case CUDA_GELU_TANH: return map(stream, rows, cols, rows, x, dy, dx, GeluTanhSlope<false>(), GeluTanhSlope<true>());
    case CUDA_GELU_ERF: return map(stream, rows, cols, rows, x, dy, dx, GeluErfSlope(), GeluErfHalfSlope());
    case CUDA_RELU: return map(stream, rows, cols, rows, x, dy, dx, ReluSlope());
    case CUDA_SILU: return map(stream, rows, cols, rows, x, dy, dx, SiluSlope<false>(), SiluSlope<true>());
  }
  return CUDA_UNSUPPORTED;
}

/* --- silu(x) u ------------------------------------------------------------------------------------------------- */

int cuda_silu_mul_fwd(CudaStream stream, int64_t rows, int64_t cols, CudaTensor x, CudaTensor u, CudaTensor y) {
  return map(stream, rows, cols, rows, x, u, y, SiluMul<false>(), SiluMul<true>());
}

template <class T> struct GatedRows {
  const T *x, *u, *dy;
  T *dx, *du;
  int64_t ldx, ldu, lddy, lddx, lddu;
  int add_x, add_u;
};

/* As map_kernel, with one sigmoid for both gradients; either may be absent. */
template <class T, int N> __global__ void silu_mul_bwd_kernel(uint32_t total, uint32_t chunks, GatedRows<T> g) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
    int64_t row = i / chunks, col = (int64_t)(i % chunks) * N;
    float x[N], u[N], dy[N];
    load<T, N>(g.x + row * g.ldx + col, x);
    load<T, N>(g.u + row * g.ldu + col, u);
    load<T, N>(g.dy + row * g.lddy + col, dy);
#pragma unroll
    for (int j = 0; j < N; j++) {
      float s = sigmoid<sizeof(T) == 2>(x[j]);
      u[j] = silu_slope(x[j], s) * (u[j] * dy[j]);
      dy[j] = x[j] * s * dy[j];
    }
    if (g.dx != NULL) put<T, N>(g.dx + row * g.lddx + col, u, g.add_x);
    if (g.du != NULL) put<T, N>(g.du + row * g.lddu + col, dy, g.add_u);
  }
}

int cuda_silu_mul_bwd(CudaStream stream, int64_t rows, int64_t cols, CudaTensor x, CudaTensor u, CudaTensor dy,
                      CudaTensor dx, CudaTensor du) {
  const CudaTensor all[] = {x, u, dy, dx, du};
  int n = wide_of(x.type);
  bool wide = true;
  for (const CudaTensor &t : all) {
    if (t.x != NULL && t.type != x.type) return CUDA_UNSUPPORTED;
    wide = wide && wide_ok(t, rows, cols, n);
  }
  int64_t chunks = wide ? cols / n : cols, total = rows * chunks;
  if (total > INT32_MAX) return CUDA_UNSUPPORTED;
  if (total == 0) return 0;
  FOR_TYPE(x.type, wide,
           GatedRows<T> g = {(const T *)x.x, (const T *)u.x, (const T *)dy.x, (T *)dx.x, (T *)du.x,
                             x.ld, u.ld, dy.ld, dx.ld, du.ld, dx.add, du.add};
           LAUNCH((silu_mul_bwd_kernel<T, N>), map_blocks(total), MAP_THREADS, 0, stream, (uint32_t)total,
                  (uint32_t)chunks, g);)
  return LAUNCHED();
}
