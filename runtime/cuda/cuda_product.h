/* Owns: matrix products on a GPU: cuBLASLt with its algorithm chosen once a shape, when the backend opens, and stored for the
 * run. Not on disk: a stored algorithm is good for the version of cuBLASLt that chose it (cublasLt.h), and that version
 * chooses the same one again; choosing takes far less than a step.
 * f32 products are f32 throughout (no TF32), as on CPUs. */
#ifndef FSDPC_RUNTIME_CUDA_PRODUCT_H
#define FSDPC_RUNTIME_CUDA_PRODUCT_H

#include "kernels/cuda/cuda_kernels.h"
#include "runtime/cuda/cuda_libs.h"
#include "runtime/failure.h"

#include "base/arena.h"

#include <stdio.h>

typedef struct CudaProducts CudaProducts;

/* `workspace`: device memory that products may use, one launch at a time. */
CudaProducts *cuda_products_open(Arena *arena, const CudaLibs *libs, void *workspace, uint64_t workspace_bytes,
                                 Failure *failure);
/* Chooses and stores the algorithm for products of this shape, types and strides; addresses play no part. */
bool cuda_products_prepare(CudaProducts *products, const CudaProduct *product, Failure *failure);
/* Launches; the shape must have been prepared. */
bool cuda_products_run(CudaProducts *products, CudaStream stream, const CudaProduct *product, Failure *failure);
/* Of all products prepared and their algorithms, whatever the order: equal where products have the same algorithms. */
uint64_t cuda_products_fingerprint(const CudaProducts *products);
/* A line a product: its shape, and the algorithm. */
void cuda_products_list(const CudaProducts *products, FILE *out);
void cuda_products_close(CudaProducts *products);

#endif
