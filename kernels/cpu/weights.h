/* Owns: how optimizers load and store parameters: as f32 masters, or in 16 bits, rounded to nearest or stochastically. The
 * random bits of an element depend on seed, step, parameter and its number there, so no plan changes them. */
#ifndef FSDPC_KERNELS_CPU_WEIGHTS_H
#define FSDPC_KERNELS_CPU_WEIGHTS_H

#include "kernels/cpu/simd.h"
#include "kernels/kernels.h"
#include "kernels/random.h"

typedef struct Weights {
  void *at;
  FloatType type;
  int stochastic;
  RowKeys keys;
  uint32_t first; /* number of element 0, modulo 2^32: after that many the bits repeat */
} Weights;

static inline Weights weights_of(const KernelContext *k, void *w) {
  Weights weights = {.at = w, .type = FLOAT_REAL};
  if (k == NULL || k->weights == NULL) return weights;
  const WeightStore *store = k->weights;
  weights.type = store->type;
  weights.stochastic = store->stochastic;
  if (weights.stochastic) weights.keys = random_row_keys(store->seed, store->step, store->name_hash, 0, 0);
  weights.first = (uint32_t)store->first;
  return weights;
}

/* `left` elements remain from element i on, at least one. */
INLINE vec weights_take(const Weights *w, int64_t i, int64_t left) {
  return typed_take(w->type, w->at, i, left);
}

#if KERNELS_DOUBLE

INLINE void weights_put(const Weights *w, int64_t i, vec v, int64_t left) {
  typed_put(w->type, w->at, i, v, left);
}

#else

INLINE uvec weights_random(const Weights *w, int64_t i) {
  uvec random;
  for (int j = 0; j < VL; j++) random[j] = random_mix(w->first + (uint32_t)i + (uint32_t)j, w->keys);
  return random;
}

INLINE void weights_put(const Weights *w, int64_t i, vec v, int64_t left) {
  if (w->stochastic)
    hvec_put((Half *)w->at + i, bf16_cut(v, weights_random(w, i) >> 16), left);
  else
    typed_put(w->type, w->at, i, v, left);
}

#endif

#endif
