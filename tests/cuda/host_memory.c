/* Owns: where shimmed kernels run: this process. Products are plain loops, so that what is around them is tested. */
#include "tests/cuda/adapter.h"
#include "tests/cuda/host_product.h"

#include <stdlib.h>
#include <string.h>

void *device_get(size_t bytes) {
  void *p = NULL;
  return posix_memalign(&p, 256, bytes + 1) == 0 ? p : NULL;
}
void device_free(void *p) { free((void *)((uintptr_t)p / 256 * 256)); }
void device_put(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void device_fetch(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
CudaStream device_stream(void) { return NULL; }
int device_is_gpu(void) { return 0; }
int device_compute(void) { return 90; }

int device_product(const CudaProduct *product) { return host_product(product); }
