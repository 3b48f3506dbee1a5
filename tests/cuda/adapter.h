/* Owns: the CUDA kernels behind the KernelTable of the CPU's, so that one set of scenarios tests both. Operands are
 * converted to the element type, copied to where the kernels run, and back. */
#ifndef FSDPC_TESTS_CUDA_ADAPTER_H
#define FSDPC_TESTS_CUDA_ADAPTER_H

#include "kernels/cuda/cuda_kernels.h"
#include <stddef.h>

/* What scenarios are handed as their KernelContext. */
typedef struct Adapter {
  KernelContext context; /* first */
  int type;              /* CudaType of matrices; statistics and losses are f32 */
} Adapter;

extern const KernelTable adapter_table;

/* Where the kernels run: this process, or a GPU (device_memory.c, host_memory.c). */
void *device_get(size_t bytes);
void device_free(void *p);
void device_put(void *to, const void *from, size_t bytes);
void device_fetch(void *to, const void *from, size_t bytes);
CudaStream device_stream(void);
int device_is_gpu(void);
int device_compute(void); /* 90: compute 9.0, as the shim's */
/* 0 or an error of the launch. */
int device_product(const CudaProduct *product);

/* value_next of tests/kernels with 8 significant bits at most, which every element type holds. */
double coarse_value_next(uint64_t *state);

#endif
