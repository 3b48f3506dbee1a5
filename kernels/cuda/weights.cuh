/* Owns: parameters as optimizers update them on a GPU, the twin of kernels/cpu/weights.h: f32 masters, or bf16 rounded to
 * nearest or stochastically. The random bits of an element depend on seed, step, parameter and its number there; they are
 * the CPU's. */
#ifndef FSDPC_KERNELS_CUDA_WEIGHTS_CUH
#define FSDPC_KERNELS_CUDA_WEIGHTS_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/random.h"

/* What rounds the elements of one parameter. */
struct Rounder {
  bool stochastic;
  RowKeys keys;
  uint32_t first; /* number, in the parameter, of element 0 of the shard, modulo 2^32 */
};

/* local, element: where the parameter's part begins in the shard, and in the parameter. */
template <class W>
DEVICE Rounder rounder_of(const CudaRounding &rounding, const CudaStep *step, uint64_t name_hash, int64_t local, int64_t element) {
  Rounder r = {sizeof(W) == 2 && rounding.stochastic != 0, {0, 0}, (uint32_t)(element - local)};
  if (r.stochastic) r.keys = random_row_keys(rounding.seed, step->step, name_hash, 0, 0);
  return r;
}

/* Up or down with the probabilities that keep the mean; a NaN stays one. */
DEVICE bf16 bf16_drawn(float x, uint32_t random) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  uint16_t half = (uint16_t)((nan ? bits | 0x400000u : bits + (random >> 16)) >> 16);
  bf16 out;
  memcpy(&out, &half, sizeof out);
  return out;
}

/* As element i of the shard is kept. */
template <class W> DEVICE W rounded(float x, int64_t i, const Rounder &r);
template <> DEVICE float rounded<float>(float x, int64_t, const Rounder &) { return x; }
template <> DEVICE bf16 rounded<bf16>(float x, int64_t i, const Rounder &r) {
  return r.stochastic ? bf16_drawn(x, random_mix(r.first + (uint32_t)i, r.keys)) : from_float<bf16>(x);
}

#endif
