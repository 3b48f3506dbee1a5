/* Owns: what every .cu file starts from: element types, 16-byte loads and stores, launches, reductions.
 *
 * FSDPC_SHIM: the file is being compiled as plain C++ for the CPU (tests/cuda/shim, included before this), which supplies
 * the same names. Kernels therefore keep to: threadIdx, blockIdx, blockDim, gridDim, SHARED_ARRAY, DYNAMIC_SHARED,
 * __syncthreads, __syncwarp, warp shuffles and ballots of whole warps, integer atomics, fast_exp2, fast_inverse, copies; and to
 * attention_mma.cuh's products. */
#ifndef FSDPC_KERNELS_CUDA_DEVICE_CUH
#define FSDPC_KERNELS_CUDA_DEVICE_CUH

#include "kernels/cuda/cuda_kernels.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef FSDPC_SHIM
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                               \
  (kernel)<<<(grid), (block), (shared_bytes), (cudaStream_t)(stream)>>>(__VA_ARGS__)
#define LAUNCHED() ((int)cudaGetLastError())
#define SHARED_ARRAY(type, name, count) __shared__ type name[count]
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
/* More than 48 KiB of dynamic shared memory must be asked for. */
#define ALLOW_SHARED(kernel, bytes)                                                                          \
  ((bytes) <= 48 * 1024 ? 0                                                                                  \
                        : (int)cudaFuncSetAttribute((kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)))

/* 2^x and 1/x, for results that are rounded to 16 bits: relative error below 2^-22 for every x, below 2^-126 zero. */
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float fast_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* So many bytes, aligned so, to shared memory, zeros where there are none: on their way until copies_wait of the same thread. */
template <int BYTES> __device__ __forceinline__ void copy_async(void *to, const void *from, bool there) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  size_t source = __cvta_generic_to_global(from);
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(source), "r"(there ? 16 : 0) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(source), "n"(BYTES), "r"(there ? BYTES : 0) : "memory");
}
/* Other threads see the copies after a barrier that follows. */
__device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif

#define DEVICE __device__ __forceinline__

typedef __nv_bfloat16 bf16;
typedef __half f16;

constexpr int WARP = 32;
#define WHOLE_WARP 0xffffffffu

/* --- elements -------------------------------------------------------------------------------------------------- */

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(bf16 x) { return __bfloat162float(x); }
DEVICE float to_float(f16 x) { return __half2float(x); }

template <class T> DEVICE T from_float(float x);
template <> DEVICE float from_float<float>(float x) { return x; }
template <> DEVICE bf16 from_float<bf16>(float x) { return __float2bfloat16(x); }
template <> DEVICE f16 from_float<f16>(float x) { return __float2half(x); }

/* Elements of one 16-byte access. */
template <class T> struct Wide {
  static constexpr int N = 16 / (int)sizeof(T);
  static constexpr bool BF16 = false;
};
template <> struct Wide<bf16> {
  static constexpr int N = 8;
  static constexpr bool BF16 = true;
};

/* N elements of device memory as floats; N > 1 needs 16-byte alignment and N a multiple of Wide<T>::N. */
template <class T, int N> DEVICE void load(const T *p, float *out) {
  if constexpr (N == 1) {
    out[0] = to_float(p[0]);
  } else {
    constexpr int PER = Wide<T>::N;
#pragma unroll
    for (int i = 0; i < N; i += PER) {
      uint4 raw = *reinterpret_cast<const uint4 *>(p + i);
      T x[PER];
      memcpy(x, &raw, sizeof raw);
#pragma unroll
      for (int j = 0; j < PER; j++) out[i + j] = to_float(x[j]);
    }
  }
}

/* To device memory, by the intrinsic: nvcc cuts some plain stores of 16 bytes into stores of 4. */
template <class V> DEVICE void store_whole(V *to, V value) { __stwb(to, value); }

template <class T, int N> DEVICE void store(T *p, const float *in) {
  if constexpr (N == 1) {
    p[0] = from_float<T>(in[0]);
  } else {
    constexpr int PER = Wide<T>::N;
#pragma unroll
    for (int i = 0; i < N; i += PER) {
      T x[PER];
#pragma unroll
      for (int j = 0; j < PER; j++) x[j] = from_float<T>(in[i + j]);
      uint4 raw;
      memcpy(&raw, x, sizeof raw);
      store_whole(reinterpret_cast<uint4 *>(p + i), raw);
    }
  }
}

/* Four elements as floats, in one access of 8 or 16 bytes: from a multiple of their size on. */
template <class T> DEVICE void four_take(const T *p, float *x) {
  if constexpr (sizeof(T) == 4) {
    load<T, 4>(p, x);
  } else {
    uint64_t raw = *reinterpret_cast<const uint64_t *>(p);
    T four[4];
    memcpy(four, &raw, sizeof raw);
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = to_float(four[j]);
  }
}

/* What four elements of so many bytes are stored by. */
template <int BYTES> struct FourBytes {
  typedef uint4 type;
};
template <> struct FourBytes<2> {
  typedef unsigned long long type;
};
template <class T> DEVICE void four_put(T *p, const T *four) {
  typename FourBytes<sizeof(T)>::type raw;
  memcpy(&raw, four, sizeof raw);
  store_whole(reinterpret_cast<decltype(raw) *>(p), raw);
}

/* y (+)= value */
template <class T, int N> DEVICE void put(T *p, float *value, int add) {
  if (add) {
    float old[N];
    load<T, N>(p, old);
#pragma unroll
    for (int j = 0; j < N; j++) value[j] += old[j];
  }
  store<T, N>(p, value);
}

/* What a softmax's exponents are relative to: where nothing is above -infinity, to 0. */
DEVICE float base_of(float top) { return top == -INFINITY ? 0 : top; }

/* --- reductions: every lane, or thread, gets the result -------------------------------------------------------- */

DEVICE float warp_sum(float x) {
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(WHOLE_WARP, x, offset);
  return x;
}

DEVICE double warp_sum(double x) {
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(WHOLE_WARP, x, offset);
  return x;
}

/* space: one element a warp. All threads of the block. */
template <class T> DEVICE T block_sum(T x, T *space) {
  x = warp_sum(x);
  __syncthreads(); /* the space may be in use from the time before */
  if (threadIdx.x % WARP == 0) space[threadIdx.x / WARP] = x;
  __syncthreads();
  T sum = 0;
  for (unsigned w = 0; w < blockDim.x / WARP; w++) sum += space[w];
  return sum;
}

DEVICE float block_max(float x, float *space) {
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(WHOLE_WARP, x, offset));
  __syncthreads(); /* as there */
  if (threadIdx.x % WARP == 0) space[threadIdx.x / WARP] = x;
  __syncthreads();
  for (unsigned w = 0; w < blockDim.x / WARP; w++) x = fmaxf(x, space[w]);
  return x;
}

/* --- choosing instantiations on the host ----------------------------------------------------------------------- */

static inline int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t type_bytes(int type) { return type == CUDA_F32 ? 4 : 2; }

/* May rows of cols elements be accessed n at a time? An absent tensor is no obstacle. */
static inline bool wide_ok(CudaTensor t, int64_t rows, int64_t cols, int n) {
  if (t.x == NULL) return true;
  return (uintptr_t)t.x % 16 == 0 && cols % n == 0 && (rows == 1 || t.ld % n == 0);
}

/* Runs the statement(s) with T the element type and N the elements of a wide access, or 1 when `wide` is false. */
#define FOR_TYPE(type, wide, ...)                                                                            \
  switch ((type) * 2 + ((wide) ? 1 : 0)) {                                                                   \
    case CUDA_F32 * 2: { typedef float T; constexpr int N = 1; __VA_ARGS__ } break;                               \
    case CUDA_F32 * 2 + 1: { typedef float T; constexpr int N = 4; __VA_ARGS__ } break;                           \
    case CUDA_BF16 * 2: { typedef bf16 T; constexpr int N = 1; __VA_ARGS__ } break;                               \
    case CUDA_BF16 * 2 + 1: { typedef bf16 T; constexpr int N = 8; __VA_ARGS__ } break;                           \
    case CUDA_F16 * 2: { typedef f16 T; constexpr int N = 1; __VA_ARGS__ } break;                                 \
    case CUDA_F16 * 2 + 1: { typedef f16 T; constexpr int N = 8; __VA_ARGS__ } break;                             \
    default: return CUDA_UNSUPPORTED;                                                                        \
  }

static inline int wide_of(int type) { return type == CUDA_F32 ? 4 : 8; }

#endif
