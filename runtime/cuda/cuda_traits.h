/* Owns: algorithms of cuBLASLt as numbers that can be listed, compared, stored, and made an algorithm again. */
#ifndef FSDPC_RUNTIME_CUDA_TRAITS_H
#define FSDPC_RUNTIME_CUDA_TRAITS_H

#include "runtime/cuda/cuda_product_state.h"

enum { CUDA_TRAITS = 9 };

/* All that can be set of an algorithm; 0 where it says nothing of it. */
typedef struct CudaTraits {
  uint32_t value[CUDA_TRAITS];
} CudaTraits;

/* "algorithm", "tile", ..., in the order of cublasLt.h. */
const char *cuda_trait_name(int i);
CudaTraits cuda_traits_of(const CudaLibs *libs, const cublasLtMatmulAlgo_t *algorithm);
/* The algorithm of these traits for the entry's products. What this device and version cannot run, what wants more workspace than there
 * is, and what would sum rounded parts is refused: not CUBLAS_STATUS_SUCCESS. */
cublasStatus_t cuda_traits_make(CudaProducts *products, const CudaEntry *entry, const CudaTraits *traits, cublasLtMatmulAlgo_t *out);

#endif
