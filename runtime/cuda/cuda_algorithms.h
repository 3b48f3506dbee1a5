/* Owns: which algorithm a product has where the user names a file for it (FSDPC_CUDA_ALGORITHMS): the file's, or, of products that it does
 * not know, the fastest on this GPU, which the file then knows.
 *
 * Runs with the same file have the same algorithms, and so the same bits on GPUs of one kind, in every plan; without it, a race may end
 * otherwise. So it is not the default. Of several ranks one races while the others wait for the file, and then read what it chose. They
 * wait for the file alone: no rank is in a collective, and none is expected in one. */
#ifndef FSDPC_RUNTIME_CUDA_ALGORITHMS_H
#define FSDPC_RUNTIME_CUDA_ALGORITHMS_H

#include "runtime/cuda/cuda_choices.h"

typedef struct CudaAlgorithmsConfig {
  const char *path;
  CudaChoicePlace place;
  cudaStream_t stream; /* to race on */
  const _Atomic uint32_t *stop; /* not 0: fail soon; NULL: never */
  _Atomic int32_t *beat;        /* changes while products race, so that who watches sees that something happens; 0 after it. NULL: not told */
  bool quiet;
} CudaAlgorithmsConfig;

/* After all products are prepared, and before anything is in their memory, which must be zero, and is again. False: the file cannot be
 * used (RUN_INVALID), or no algorithm runs. */
bool cuda_algorithms_settle(CudaProducts *products, const CudaAlgorithmsConfig *config, Failure *failure);

#endif
