/* Owns: matrix products on a GPU: cuBLASLt with its algorithm chosen once a shape, when the backend opens, and stored.
 * f32 products are f32 throughout (no TF32), as on CPUs. */
#ifndef FSDPC_RUNTIME_CUDA_PRODUCT_H
#define FSDPC_RUNTIME_CUDA_PRODUCT_H

#include "kernels/cuda/cuda_kernels.h"
#include "runtime/cuda_libs.h"
#include "runtime/failure.h"

#include "base/arena.h"

typedef struct CudaProducts CudaProducts;

/* `workspace`: device memory that products may use, one launch at a time. */
CudaProducts *cuda_products_open(Arena *arena, const CudaLibs *libs, void *workspace, uint64_t workspace_bytes,
                                 Failure *failure);
/* Chooses and stores the algorithm for products of this shape, types and strides; addresses play no part. */
bool cuda_products_prepare(CudaProducts *products, const CudaProduct *product, Failure *failure);
/* Launches; the shape must have been prepared. 0, or CUDA_UNSUPPORTED. */
int cuda_products_run(CudaProducts *products, CudaStream stream, const CudaProduct *product);
void cuda_products_close(CudaProducts *products);

#endif
