/* Owns: the file of FSDPC_CUDA_ALGORITHMS: which algorithm a product has, by GPU, version of cuBLASLt, workspace and shape; what others it
 * holds is kept. JSON:
 *
 *   {"schema_version": 1, "choices": [
 *     {"gpu": "NVIDIA H200", "multiprocessors": 132, "cublaslt": 130100, "workspace_bytes": 33554432,
 *      "product": "65536 x 2304 x 768 NT bf16 to bf16",     for readers, as are candidates and faster_percent
 *      "shape": {"m": 65536, ...},                           what the heuristic sees of CUDA_SHAPE
 *      "algorithm": {"algorithm": 66, "tile": 20, ...},      CudaTraits
 *      "candidates": 8, "faster_percent": 12.8}]}
 *
 * From open to close this process has the file for itself where it can be written: others that open it, of this run or another, wait.
 * An empty file knows nothing. */
#ifndef FSDPC_RUNTIME_CUDA_CHOICES_H
#define FSDPC_RUNTIME_CUDA_CHOICES_H

#include "runtime/cuda/cuda_traits.h"

typedef struct CudaChoices CudaChoices;

/* What a choice is good for, beside its shape. */
typedef struct CudaChoicePlace {
  const char *gpu; /* its name */
  int multiprocessors;
  uint64_t cublaslt, workspace_bytes;
} CudaChoicePlace;

/* NULL: it cannot be opened, is no such file, or *stop (NULL: never) was set while it waited. */
CudaChoices *cuda_choices_open(Arena *arena, const char *path, const CudaChoicePlace *place, const _Atomic uint32_t *stop, Failure *failure);
/* False: the file does not know this shape. */
bool cuda_choices_find(const CudaChoices *choices, const CudaShape *shape, CudaTraits *out);
/* Whether what is added can be saved, before effort is spent on it. */
bool cuda_choices_writable(const CudaChoices *choices, Failure *failure);
void cuda_choices_add(CudaChoices *choices, const CudaEntry *entry, const CudaTraits *traits);
/* Whole, or not at all. */
bool cuda_choices_save(CudaChoices *choices, Failure *failure);
void cuda_choices_close(CudaChoices *choices);

#endif
