/* Owns: the names of CUDA C++ that kernels/cuda uses, for compiling those files as plain C++ on the CPU. Included before
 * each (-include). One fiber a CUDA thread, blocks one after the other; barriers and shuffles switch fibers. No CUDA
 * header is needed: element types are defined here. */
#ifndef FSDPC_TESTS_CUDA_SHIM_H
#define FSDPC_TESTS_CUDA_SHIM_H

#define FSDPC_SHIM 1

#include <functional>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
template <class V> static void __stwb(V *to, V value) { *to = value; }

/* --- element types: conversions round to nearest, ties to even -------------------------------------------------- */

struct __nv_bfloat16 {
  uint16_t bits;
};
struct __half {
  uint16_t bits;
};

static inline float __bfloat162float(__nv_bfloat16 x) {
  uint32_t wide = (uint32_t)x.bits << 16;
  float out;
  memcpy(&out, &wide, sizeof out);
  return out;
}
static inline __nv_bfloat16 __float2bfloat16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return __nv_bfloat16{0x7fff};
  return __nv_bfloat16{(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
static inline float shim_half_to_float(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float x = exponent == 31 ? (mantissa != 0 ? NAN : INFINITY) : (float)mantissa * 0x1p-24f;
  uint32_t wide = (uint32_t)(exponent + 112) << 23 | (uint32_t)mantissa << 13;
  if (exponent != 0 && exponent != 31) memcpy(&x, &wide, sizeof x);
  return bits & 0x8000 ? -x : x;
}
uint16_t shim_float_to_half(float x);
static inline float __half2float(__half x) { return shim_half_to_float(x.bits); }
static inline __half __float2half(float x) { return __half{shim_float_to_half(x)}; }

/* --- threads ----------------------------------------------------------------------------------------------------- */

constexpr int SHIM_MOST_THREADS = 1024; /* of a block */

struct ShimThread {
  dim3 thread, block, threads, blocks;
};
extern const ShimThread *shim_now; /* the thread that runs */
#define threadIdx (shim_now->thread)
#define blockIdx  (shim_now->block)
#define blockDim  (shim_now->threads)
#define gridDim   (shim_now->blocks)

void shim_run(dim3 blocks, dim3 threads, size_t shared_bytes, void (*call)(void *), void *arg);
/* Order of threads and of blocks; each seed another. */
extern "C" void shim_seed(uint64_t seed);

/* Runs the work now, or later when a fake CUDA runtime is linked (fake/fake_cuda.cpp), which has streams. */
void shim_submit(void *stream, std::function<void()> work);

/* How much dynamic shared memory a kernel may have; that it has been allowed as much as a launch wants. */
int shim_allow_bytes(void *kernel, size_t bytes, size_t most);
void shim_need_allowed(void *kernel, size_t bytes);
template <class K> static int shim_allow(K *kernel, size_t bytes, size_t most) { return shim_allow_bytes((void *)kernel, bytes, most); }

/* As CUDA does, arguments are copied when a kernel is launched. */
template <class... P, class... A>
static void shim_launch(void (*kernel)(P...), dim3 blocks, dim3 threads, size_t shared_bytes, void *stream, A... args) {
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> args;
  };
  Call call = {kernel, std::tuple<P...>(args...)};
  shim_need_allowed((void *)kernel, shared_bytes);
  shim_submit(stream, [=]() mutable {
    shim_run(blocks, threads, shared_bytes, [](void *p) { std::apply(((Call *)p)->kernel, ((Call *)p)->args); }, &call);
  });
}
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                               \
  shim_launch((kernel), dim3(grid), dim3(block), (size_t)(shared_bytes), (void *)(stream), __VA_ARGS__)
int shim_last_error(); /* 0, but for what a fake runtime puts in its place */
#define LAUNCHED()                  shim_last_error()
#define SHIM_SHARED_BYTES           (99 * 1024) /* what a block may have at least: computes 8.6, 8.9 and 12.0 */
#define ALLOW_SHARED(kernel, bytes) shim_allow((kernel), (size_t)(bytes), SHIM_SHARED_BYTES)

/* --- shared memory: NaN when a block starts, with red zones between arrays under AddressSanitizer ------------------ */

void *shim_shared(size_t bytes); /* every thread of a block must ask for the same arrays in the same order */
void *shim_dynamic(void);
#define SHARED_ARRAY(type, name, count) type *name = (type *)shim_shared(sizeof(type) * (size_t)(count))
#define DYNAMIC_SHARED(name)            unsigned char *name = (unsigned char *)shim_dynamic()

bool shim_is_shared(const void *p, size_t bytes);

/* --- barriers, shuffles, atomics ------------------------------------------------------------------------------------ */

void __syncthreads(void);
int __syncthreads_or(int predicate);
struct ShimExchange {
  const unsigned char (*slot)[16]; /* what each lane gave */
  unsigned lanes;                  /* that took part */
};
unsigned char *shim_offer(void); /* where the calling lane puts what it gives, 16 bytes at most */
ShimExchange shim_meet(void);    /* then waits until its warp has given */
template <class T> static ShimExchange shim_exchange(const T &value) {
  static_assert(sizeof value <= 16, "a slot has 16 bytes");
  memcpy(shim_offer(), &value, sizeof value);
  return shim_meet();
}
[[noreturn]] void shim_fail(const char *what);
void shim_wait_until(bool (*holds)(const void *at, uint32_t value), const void *at, uint32_t value);
void shim_linger(void); /* until all others wait, or linger too */
bool shim_chance(void); /* one in two */
void shim_async_end(void); /* the thread that runs has come to its end: hopper.cpp's part of that */
static inline void __syncwarp(void) { shim_exchange('\0'); }

static inline int shim_index(void) { /* of the thread in its block */
  return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
static inline int shim_lane(void) { return shim_index() % 32; }
template <class T> static T shim_from_lane(T value, int lane) {
  ShimExchange all = shim_exchange(value);
  if ((all.lanes >> lane & 1) == 0) shim_fail("a shuffle reads a lane that takes no part");
  memcpy(&value, all.slot[lane], sizeof value);
  return value;
}
template <class T> static T __shfl_xor_sync(unsigned, T value, int mask) {
  return shim_from_lane(value, shim_lane() ^ mask);
}
template <class T> static T __shfl_sync(unsigned, T value, int lane) { return shim_from_lane(value, lane & 31); }
static inline unsigned __ballot_sync(unsigned, int predicate) {
  ShimExchange all = shim_exchange(predicate);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; lane++) {
    int theirs = 0;
    if (all.lanes >> lane & 1) memcpy(&theirs, all.slot[lane], sizeof theirs);
    bits |= (theirs != 0 ? 1u : 0u) << lane;
  }
  return bits;
}
static inline unsigned long long atomicAdd(unsigned long long *at, unsigned long long x) {
  unsigned long long old = *at;
  *at += x;
  return old;
}
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }

/* Numbers below 2^-126 are zero to them. */
static inline float shim_flushed(float x) { return fabsf(x) < 0x1p-126f ? 0.0f * x : x; }
static inline float fast_exp2(float x) { return shim_flushed(exp2f(shim_flushed(x))); }
static inline float fast_inverse(float x) { return shim_flushed(1 / shim_flushed(x)); }

/* --- asynchronous copies ------------------------------------------------------------------------------------------- */

/* Each comes to be at once or when it is waited for, as it happens. */
void shim_copy_async(void *to, const void *from, size_t bytes, bool there);
template <int BYTES> static void copy_async(void *to, const void *from, bool there) { shim_copy_async(to, from, BYTES, there); }
void copies_wait(void);

/* --- tensor cores ------------------------------------------------------------------------------------------------- */

/* ldmatrix.x4: lane l gives the address of row l % 8 of matrix l / 8, 16 bytes. */
template <bool TRANSPOSE> static void ldmatrix(uint32_t r[4], const void *row) {
  ShimExchange all = shim_exchange(row);
  int g = shim_lane() / 4, t = shim_lane() % 4;
  if (all.lanes != 0xffffffffu || (uintptr_t)row % 16 != 0) shim_fail("ldmatrix without a whole warp, or misaligned");
  for (int m = 0; m < 4; m++) {
    uint16_t pair[2];
    for (int i = 0; i < 2; i++) {
      const uint16_t *from;
      memcpy(&from, all.slot[m * 8 + (TRANSPOSE ? 2 * t + i : g)], sizeof from);
      pair[i] = from[TRANSPOSE ? g : 2 * t + i];
    }
    memcpy(&r[m], pair, sizeof pair);
  }
}

static inline float shim_half_of(__nv_bfloat16, uint32_t bits) { return __bfloat162float(__nv_bfloat16{(uint16_t)bits}); }
static inline float shim_half_of(__half, uint32_t bits) { return __half2float(__half{(uint16_t)bits}); }

/* A warp's 16-bit elements, two a word: of the four lanes that hold a row of a or a column of b the 16 values, of words w and w + apart. */
template <class T> static void shim_sixteen(const ShimExchange &all, int row, int w, int apart, float out[16]) {
  for (int k = 0; k < 16; k++) {
    uint32_t word;
    memcpy(&word, all.slot[row * 4 + k % 8 / 2] + 4 * (w + (k >= 8 ? apart : 0)), sizeof word);
    out[k] = shim_half_of(T{}, word >> k % 2 * 16 & 0xffff);
  }
}

/* mma.m16n8k16: c += a b. */
template <class T> static void mma(float c[4], const uint32_t a[4], const uint32_t b[2]) {
  float rows[2][16], cols[2][16];
  int g = shim_lane() / 4, t = shim_lane() % 4;
  ShimExchange all = shim_exchange(*(const uint32_t(*)[4])a);
  for (int i = 0; i < 2; i++) shim_sixteen<T>(all, g, i, 2, rows[i]);
  all = shim_exchange(*(const uint32_t(*)[2])b);
  for (int i = 0; i < 2; i++) shim_sixteen<T>(all, 2 * t + i, 0, 1, cols[i]);
  if (all.lanes != 0xffffffffu) shim_fail("mma without a whole warp");
  for (int i = 0; i < 4; i++) {
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += rows[i / 2][k] * cols[i % 2][k];
    c[i] += sum;
  }
}

#include "tests/cuda/shim/hopper.h"

#endif
