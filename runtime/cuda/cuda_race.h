/* Owns: finding which of the algorithms that cuBLASLt's heuristic offers for a product is the fastest on this GPU.
 *
 * A race writes random numbers over the operands of the product, and zeros when it is over: it is for the time in which a backend opens,
 * when all of the arena is zero. Random, since the power that a product draws, and with it the clock, depends on its numbers; of both
 * signs and small, so that a sum that is added to again and again stays finite in 16 bits too. */
#ifndef FSDPC_RUNTIME_CUDA_RACE_H
#define FSDPC_RUNTIME_CUDA_RACE_H

#include "runtime/cuda/cuda_product_state.h"

enum { CUDA_RACERS = 8 };

typedef struct CudaRace {
  cudaStream_t stream;
  cudaEvent_t events[CUDA_RACERS + 1];
  const uint16_t *numbers[2][2]; /* on the host: of either factor; f16, and bf16, any two of which are an f32 too */
} CudaRace;

/* close frees what it has made, also where it fails, and must come before the arena goes. */
bool cuda_race_open(CudaRace *race, Arena *arena, cudaStream_t stream, Failure *failure);
/* Fills in the entry's algorithm, how many ran, and by how much the one that won is faster than the first of them. It wins by being at
 * least 1 % faster. What raced are algorithms as cuda_traits_make makes them: what a file's traits will be again. */
bool cuda_race_run(const CudaRace *race, CudaProducts *products, CudaEntry *entry, Failure *failure);
void cuda_race_close(CudaRace *race);

#endif
