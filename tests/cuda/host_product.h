/* Owns: elements of any type on the CPU, and products where tests stand in for cuBLASLt. */
#ifndef FSDPC_TESTS_CUDA_HOST_PRODUCT_H
#define FSDPC_TESTS_CUDA_HOST_PRODUCT_H

#include "kernels/cuda/cuda_kernels.h"

float element_get(int type, const void *from, int64_t i);
void element_set(int type, void *to, int64_t i, float x); /* to nearest, ties to even */
int host_product(const CudaProduct *product); /* 0 */

#endif
