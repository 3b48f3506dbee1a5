/* Owns: how fast attention's backward kernel for Hopper is, in bursts and after a second without a pause (GPUs slow down at their power
 * limit), and that its results repeat. No part of the program:
 *   nvcc -std=c++17 -O3 -I. -gencode arch=compute_90a,code=sm_90a tools/attention/backward.cu kernels/cuda/attention*.cu -o bench_backward */
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/scratch.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

/* batch, tq, tk, heads, kv_heads, head_dim, causal */
static const AttentionShape shapes[] = {{8, 8192, 8192, 32, 8, 64, 1, 0},   {32, 1024, 1024, 12, 12, 64, 1, 0},  {16, 1024, 1024, 25, 25, 64, 1, 0},
                                        {4, 8192, 8192, 32, 8, 128, 1, 0},  {16, 2048, 2048, 32, 8, 128, 1, 0}, {4, 4096, 4096, 32, 32, 128, 1, 0},
                                        {2, 8192, 8192, 128, 8, 128, 1, 0}};
static const uint64_t MOST_SCRATCH = 576ull << 20; /* as a run has */

static void need(int failed, const char *what) {
  if (failed == 0) return;
  fprintf(stderr, "%s: error %d (%s)\n", what, failed, cudaGetErrorString((cudaError_t)failed));
  exit(1);
}

/* Some eight bits of noise, of variance 1. */
static __global__ void fill_kernel(__nv_bfloat16 *x, int64_t n, uint32_t seed) {
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
    uint32_t h = (uint32_t)i * 2654435761u ^ seed, sum = 0;
    for (int k = 0; k < 4; k++) h ^= h << 13, h ^= h >> 17, h ^= h << 5, sum += h >> 16;
    x[i] = __float2bfloat16(((float)sum - 131070) / 37837);
  }
}

static std::vector<void *> taken;
static void *take(int64_t bytes) {
  void *x;
  need(cudaMalloc(&x, (size_t)bytes), "cudaMalloc");
  taken.push_back(x);
  return x;
}
static CudaTensor tensor(int64_t rows, int64_t cols, uint32_t seed) {
  CudaTensor t = {take(rows * cols * 2), cols, CUDA_BF16, 0};
  fill_kernel<<<1024, 256>>>((__nv_bfloat16 *)t.x, rows * cols, seed);
  return t;
}

/* Seconds of one of `count` launches, after as many that warm up. */
template <class Launch> static double seconds_of(const Launch &launch, int warm, int count) {
  cudaEvent_t begin, end;
  float ms;
  need(cudaEventCreate(&begin), "event"), need(cudaEventCreate(&end), "event");
  for (int i = 0; i < warm; i++) launch();
  cudaEventRecord(begin);
  for (int i = 0; i < count; i++) launch();
  cudaEventRecord(end);
  need(cudaEventSynchronize(end), "launches"), need(cudaEventElapsedTime(&ms, begin, end), "time");
  return ms * 1e-3 / count;
}

static void measure(AttentionShape s) {
  int64_t rows = s.batch * s.tq, q_cols = s.heads * s.head_dim, cols = s.kv_heads * s.head_dim;
  s.scale = 1 / std::sqrt((double)s.head_dim);
  int64_t groups = cuda_attention_hopper_groups(&s, MOST_SCRATCH);
  CudaTensor q = tensor(rows, q_cols, 1), k = tensor(rows, cols, 2), v = tensor(rows, cols, 3), o = tensor(rows, q_cols, 4), d_o = tensor(rows, q_cols, 5);
  CudaTensor dq = tensor(rows, q_cols, 6), dk = tensor(rows, cols, 7), dv = tensor(rows, cols, 8);
  float *lse = (float *)take(rows * s.heads * 4);
  void *scratch = take((int64_t)cuda_attention_hopper_scratch(&s, groups));
  need(cuda_attention_fwd(NULL, &s, q, k, v, o, lse, scratch), "forward");
  auto launch = [&]() { need(cuda_attention_hopper_bwd(NULL, &s, groups, 0, q, k, v, o, lse, d_o, dq, dk, dv, scratch), "backward"); };
  std::vector<uint16_t> first((size_t)(rows * q_cols)), again(first.size());
  launch(), need(cudaMemcpy(first.data(), dq.x, first.size() * 2, cudaMemcpyDeviceToHost), "dq");
  launch(), need(cudaMemcpy(again.data(), dq.x, again.size() * 2, cudaMemcpyDeviceToHost), "dq");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  double flops = 5.0 * (double)(s.batch * s.heads * s.tq * s.tq * s.head_dim), burst = seconds_of(launch, 1, 2);
  double sustained = seconds_of(launch, (int)(1 / burst), (int)(0.5 / burst) + 1);
  printf("%2ld x %3ld/%-2ld x %ld x %3ld: %4.0f TFLOP/s in bursts, %4.0f sustained%s\n", (long)s.batch, (long)s.heads, (long)s.kv_heads, (long)s.tq,
         (long)s.head_dim, flops / burst * 1e-12, flops / sustained * 1e-12, first == again ? "" : ", DOES NOT REPEAT");
  for (void *x : taken) cudaFree(x);
  taken.clear();
}

int main() {
  for (const AttentionShape &s : shapes) measure(s);
  return 0;
}
