/* Owns: how fast attention's forward kernel for Hopper is, and its variants, in bursts and after some time without a pause (GPUs slow down at
 * their power limit); and that results are right and repeat. No part of the program:
 *   nvcc -std=c++17 -O3 -I. -gencode arch=compute_90a,code=sm_90a tools/attention/forward.cu -o bench_forward
 *   ./bench_forward [PART OF A VARIANT'S NAME [SECONDS A RATE]] */
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/hopper.cuh"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#define VARIANT base
#include "tools/attention/variant.h"
#define VARIANT tma
#define FORWARD_TMA 1
#include "tools/attention/variant.h"
#define VARIANT tma_sums_8
#define FORWARD_TMA 1
#define FORWARD_SUMS 8
#include "tools/attention/variant.h"
#define VARIANT tma_sums_16
#define FORWARD_TMA 1
#define FORWARD_SUMS 16
#include "tools/attention/variant.h"
#define VARIANT tma_no_turns
#define FORWARD_TMA 1
#define FORWARD_TURNS 0
#include "tools/attention/variant.h"
#define VARIANT tma_early_0
#define FORWARD_TMA 1
#define FORWARD_EARLY 0
#include "tools/attention/variant.h"
#define VARIANT tma_early_4
#define FORWARD_TMA 1
#define FORWARD_EARLY 4
#include "tools/attention/variant.h"
#define VARIANT tma_maxima
#define FORWARD_TMA 1
#define FORWARD_MAXIMA 1
#include "tools/attention/variant.h"
#define VARIANT tma_groups_3
#define FORWARD_TMA 1
#define FORWARD_GROUPS 3
#include "tools/attention/variant.h"
#define VARIANT tma_groups_2
#define FORWARD_TMA 1
#define FORWARD_GROUPS 2
#define FORWARD_EARLY 4
#include "tools/attention/variant.h"
#define VARIANT tma_groups_2_sums_8
#define FORWARD_TMA 1
#define FORWARD_GROUPS 2
#define FORWARD_EARLY 4
#define FORWARD_SUMS 8
#include "tools/attention/variant.h"
#define VARIANT tma_stages_2
#define FORWARD_TMA 1
#define FORWARD_STAGES 2
#include "tools/attention/variant.h"
#define VARIANT sums_8
#define FORWARD_SUMS 8
#include "tools/attention/variant.h"
#define VARIANT no_turns
#define FORWARD_TURNS 0
#include "tools/attention/variant.h"
#define VARIANT maxima
#define FORWARD_MAXIMA 1
#include "tools/attention/variant.h"

typedef int Launch(CudaStream, const AttentionShape *, int, CudaTensor, CudaTensor, CudaTensor, CudaTensor, float *);
struct Variant {
  const char *name;
  Launch *launch;
  int shares, of_128; /* of_128: does the setting change heads of 128? */
};
#define OF(name, of_128) {#name, name::forward_of_variant, 0, of_128}
static const Variant variants[] = {{"base, short lists", base::forward_of_variant, 1, 1},
                                   {"tma, short lists", tma::forward_of_variant, 1, 1},
                                   OF(base, 1),
                                   OF(tma, 1),
                                   OF(tma_sums_8, 1),
                                   OF(tma_sums_16, 1),
                                   OF(tma_no_turns, 1),
                                   OF(tma_early_0, 1),
                                   OF(tma_early_4, 1),
                                   OF(tma_maxima, 1),
                                   OF(tma_groups_3, 0),
                                   OF(tma_groups_2, 0),
                                   OF(tma_groups_2_sums_8, 0),
                                   OF(tma_stages_2, 0),
                                   OF(sums_8, 1),
                                   OF(no_turns, 1),
                                   OF(maxima, 1)};

/* batch, tq, tk, heads, kv_heads, head_dim, causal, scale */
static const AttentionShape shapes[] = {{8, 8192, 8192, 32, 8, 64, 1, 0.125},
                                        {2, 8192, 8192, 32, 8, 64, 1, 0.125},
                                        {16, 1024, 1024, 25, 25, 64, 1, 0.125},
                                        {32, 1024, 1024, 12, 12, 64, 1, 0.125},
                                        {4, 8192, 8192, 32, 8, 128, 1, 0.08838834764831845}};

static void need(int failed, const char *what) {
  if (failed == 0) return;
  fprintf(stderr, "%s: error %d (%s)\n", what, failed, cudaGetErrorString((cudaError_t)failed));
  exit(1);
}

static __device__ float normal(uint64_t i) {
  uint32_t x = (uint32_t)(i * 0x9E3779B97F4A7C15u >> 32), sum = 0;
  for (int n = 0; n < 4; n++) x ^= x << 13, x ^= x >> 17, x ^= x << 5, sum += x >> 16;
  return ((float)sum - 131070) / 37837; /* variance 1 */
}
static __global__ void fill_kernel(bf16 *x, int64_t n, uint64_t seed) {
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) x[i] = __float2bfloat16(normal((uint64_t)i * 4 + seed));
}
static __global__ void differ_kernel(const uint32_t *x, const uint32_t *y, int64_t n, unsigned long long *count) {
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
    if (x[i] != y[i]) atomicAdd(count, 1ull);
}

/* A block a row that is looked at: the largest error of o and of lse. */
static __global__ void check_kernel(AttentionShape s, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *o, const float *lse, float *errors) {
  extern __shared__ float weights[];
  __shared__ float top, sum;
  int row = blockIdx.x == 0 ? 0 : blockIdx.x == 1 ? (int)s.tq - 1 : (int)(blockIdx.x * 2654435761u % (uint32_t)s.tq), head = (int)(blockIdx.x * 7 % s.heads);
  int64_t sample = blockIdx.x % s.batch, d = s.head_dim, kv = head / (s.heads / s.kv_heads), at = sample * s.tq + row;
  for (int j = threadIdx.x; j <= row; j += blockDim.x) {
    float x = 0;
    for (int i = 0; i < d; i++) x += __bfloat162float(q[at * s.heads * d + head * d + i]) * __bfloat162float(k[(sample * s.tk + j) * s.kv_heads * d + kv * d + i]);
    weights[j] = x * (float)s.scale;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    top = -INFINITY, sum = 0;
    for (int j = 0; j <= row; j++) top = fmaxf(top, weights[j]);
    for (int j = 0; j <= row; j++) sum += weights[j] = expf(weights[j] - top);
    atomicMax((int *)&errors[1], __float_as_int(fabsf(top + logf(sum) - lse[(sample * s.heads + head) * s.tq + row])));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    float x = 0;
    for (int j = 0; j <= row; j++) x += weights[j] * __bfloat162float(v[(sample * s.tk + j) * s.kv_heads * d + kv * d + i]);
    float error = fabsf(x / sum - __bfloat162float(o[at * s.heads * d + head * d + i]));
    atomicMax((int *)&errors[0], __float_as_int(error == error ? error : INFINITY));
  }
}

struct Bench {
  AttentionShape s;
  CudaTensor q, k, v, o;
  float *lse, *errors;
  bf16 *first; /* o of the first run */
  int64_t elements;
};

static CudaTensor tensor(int64_t rows, int64_t cols, uint64_t seed) {
  void *x;
  need(cudaMalloc(&x, (size_t)(rows * cols) * 2), "cudaMalloc");
  fill_kernel<<<1024, 256>>>((bf16 *)x, rows * cols, seed);
  return CudaTensor{x, cols, CUDA_BF16, 0};
}

static Bench open_bench(const AttentionShape &s) {
  int64_t rows = s.batch * s.tq, heads = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  Bench b = {s, tensor(rows, heads, 0), tensor(rows, kv, 1), tensor(rows, kv, 2), tensor(rows, heads, 3), NULL, NULL, NULL, rows * heads};
  need(cudaMalloc((void **)&b.lse, (size_t)(rows * s.heads) * 4), "cudaMalloc"), need(cudaMalloc((void **)&b.errors, 16), "cudaMalloc");
  need(cudaMalloc((void **)&b.first, (size_t)b.elements * 2), "cudaMalloc");
  return b;
}
static void close_bench(Bench &b) {
  for (void *p : {b.q.x, b.k.x, b.v.x, b.o.x, (void *)b.lse, (void *)b.errors, (void *)b.first}) cudaFree(p);
}

static void launch(const Bench &b, const Variant &v) { need(v.launch(NULL, &b.s, v.shares, b.q, b.k, b.v, b.o, b.lse), v.name); }

/* Errors of some rows; elements that differ between two runs. */
static void check(const Bench &b, const Variant &v, float errors[2], unsigned long long *differ) {
  need(cudaMemset(b.errors, 0, 16), "cudaMemset"), need(cudaMemset(b.o.x, 0xff, (size_t)b.elements * 2), "cudaMemset");
  need(cudaMemset(b.lse, 0xff, (size_t)(b.s.batch * b.s.tq * b.s.heads) * 4), "cudaMemset"); /* or a variant might pass by another's */
  launch(b, v);
  need(cudaMemcpy(b.first, b.o.x, (size_t)b.elements * 2, cudaMemcpyDeviceToDevice), v.name);
  check_kernel<<<96, 128, (size_t)b.s.tq * 4>>>(b.s, (bf16 *)b.q.x, (bf16 *)b.k.x, (bf16 *)b.v.x, (bf16 *)b.o.x, b.lse, b.errors);
  need((int)cudaGetLastError(), "check");
  for (int i = 0; i < 3; i++) {
    launch(b, v);
    differ_kernel<<<1024, 256>>>((uint32_t *)b.o.x, (uint32_t *)b.first, b.elements / 2, (unsigned long long *)(b.errors + 2));
  }
  need(cudaMemcpy(errors, b.errors, 8, cudaMemcpyDeviceToHost), v.name);
  need(cudaMemcpy(differ, b.errors + 2, 8, cudaMemcpyDeviceToHost), v.name);
}

/* Seconds a launch: of so many, all but the first `warm`. */
static double time_of(const Bench &b, const Variant &v, int warm, int count) {
  cudaEvent_t begin, end;
  float ms;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  for (int i = 0; i < warm; i++) launch(b, v);
  cudaEventRecord(begin);
  for (int i = 0; i < count; i++) launch(b, v);
  cudaEventRecord(end);
  need((int)cudaEventSynchronize(end), v.name), cudaEventElapsedTime(&ms, begin, end);
  cudaEventDestroy(begin), cudaEventDestroy(end);
  return ms / 1e3 / count;
}

int main(int argc, char **argv) {
  double seconds = argc > 2 ? atof(argv[2]) : 1.5;
  cudaDeviceProp device;
  need((int)cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  printf("%s, bf16, causal, TFLOP/s\n", device.name);
  for (const AttentionShape &s : shapes) {
    Bench b = open_bench(s);
    double flops = 2.0 * (double)s.tq * (double)s.tq * (double)s.head_dim * (double)(s.batch * s.heads);
    printf("%ld x %ld/%ld x %ld x %ld\n%-24s %10s %10s %12s\n", (long)s.batch, (long)s.heads, (long)s.kv_heads, (long)s.tq, (long)s.head_dim, "", "burst",
           "sustained", "ms sustained");
    for (const Variant &v : variants) {
      if ((argc > 1 && strstr(v.name, argv[1]) == NULL) || (s.head_dim == 128 && !v.of_128)) continue;
      float errors[2];
      unsigned long long differ;
      check(b, v, errors, &differ);
      double burst = 1e9;
      for (int i = 0; i < 4; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
        burst = std::min(burst, time_of(b, v, 1, 3));
      }
      int count = (int)(seconds / burst) + 3;
      double sustained = time_of(b, v, count / 3, count - count / 3);
      printf("%-24s %10.1f %10.1f %12.3f   error of o %.1e, of lse %.1e%s\n", v.name, flops / burst / 1e12, flops / sustained / 1e12, sustained * 1e3,
             errors[0], errors[1], differ > 0 ? ", DOES NOT REPEAT" : "");
      fflush(stdout);
    }
    close_bench(b);
  }
}
