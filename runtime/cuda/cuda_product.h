/* Owns: matrix products on a GPU: cuBLASLt with its algorithm chosen once a shape, when the backend opens, and kept for the
 * run. Not on disk, unless the user names a file (cuda_algorithms.h): a stored algorithm is good for the version of cuBLASLt that chose
 * it (cublasLt.h), and that version's heuristic chooses the same one again; asking it takes far less than a step.
 * f32 products are f32 throughout (no TF32), as on CPUs. */
#ifndef FSDPC_RUNTIME_CUDA_PRODUCT_H
#define FSDPC_RUNTIME_CUDA_PRODUCT_H

#include "kernels/cuda/cuda_kernels.h"
#include "runtime/cuda/cuda_libs.h"
#include "runtime/failure.h"

#include "base/arena.h"

#include <stdio.h>

typedef struct CudaProducts CudaProducts;

/* `workspace`: device memory that products may use, one launch at a time. later: preparing chooses no algorithms, and
 * cuda_algorithms_settle does when all products are prepared. */
CudaProducts *cuda_products_open(Arena *arena, const CudaLibs *libs, void *workspace, uint64_t workspace_bytes,
                                 bool later, Failure *failure);
/* Chooses and stores the algorithm for products of this shape, types, strides and alignment; addresses play no other part. */
bool cuda_products_prepare(CudaProducts *products, const CudaProduct *product, Failure *failure);
/* Launches; the shape must have been prepared. */
bool cuda_products_run(CudaProducts *products, CudaStream stream, const CudaProduct *product, Failure *failure);
/* Of all products prepared and their algorithms, whatever the order: equal where products have the same algorithms. */
uint64_t cuda_products_fingerprint(const CudaProducts *products);
/* A line a product: its shape, the algorithm, and where that is from. */
void cuda_products_list(const CudaProducts *products, FILE *out);
void cuda_products_close(CudaProducts *products);

#endif
