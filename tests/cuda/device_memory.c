/* Owns: where kernels run in the comparison on a real GPU: its memory, one stream, cuBLASLt. Exit code 77, which CTest
 * takes for "skipped", where there is no GPU. */
#include "tests/cuda/adapter.h"

#include "runtime/cuda/cuda_product.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { SKIPPED = 77, WORKSPACE_BYTES = 32 << 20 };

typedef struct Device {
  CudaLibs libs;
  CudaProducts *products;
  Arena *arena;
} Device;

static void need(int ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "%s failed: %s\n", what, cudaGetErrorString(cudaGetLastError()));
  exit(1);
}

static Device *device(void) {
  static Device only; /* for the life of the program */
  Failure failure = {0};
  void *workspace = NULL;
  int count = 0;
  if (only.products != NULL) return &only;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    printf("no GPU: skipped\n");
    exit(SKIPPED);
  }
  only.arena = arena_new();
  need(cudaMalloc(&workspace, WORKSPACE_BYTES) == cudaSuccess, "cudaMalloc");
  if (cuda_libs_cublaslt(&only.libs, &failure))
    only.products = cuda_products_open(only.arena, &only.libs, workspace, WORKSPACE_BYTES, false, &failure);
  if (only.products == NULL) fprintf(stderr, "%s\n", failure.text), exit(1);
  return &only;
}

void *device_get(size_t bytes) {
  void *p = NULL;
  device();
  need(cudaMalloc(&p, bytes + 1) == cudaSuccess, "cudaMalloc");
  need(cudaMemset(p, 0xff, bytes + 1) == cudaSuccess, "cudaMemset");
  return p;
}
void device_free(void *p) { need(cudaFree((void *)((uintptr_t)p / 256 * 256)) == cudaSuccess, "cudaFree"); }
void device_put(void *to, const void *from, size_t bytes) {
  need(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess, "copy to the GPU");
}
void device_fetch(void *to, const void *from, size_t bytes) {
  need(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess, "copy from the GPU");
}
CudaStream device_stream(void) { return NULL; }
int device_is_gpu(void) { return 1; }
int device_compute(void) {
  int now = 0, major = 0, minor = 0;
  device();
  need(cudaGetDevice(&now) == cudaSuccess, "cudaGetDevice");
  need(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, now) == cudaSuccess, "cudaDeviceGetAttribute");
  need(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, now) == cudaSuccess, "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

int device_product(const CudaProduct *product) {
  Failure failure = {0};
  if (!cuda_products_prepare(device()->products, product, &failure)) {
    fprintf(stderr, "%s\n", failure.text);
    return CUDA_UNSUPPORTED;
  }
  if (cuda_products_run(device()->products, device_stream(), product, &failure)) return 0;
  fprintf(stderr, "%s\n", failure.text);
  return CUDA_UNSUPPORTED;
}

void shim_seed(uint64_t seed);
void shim_seed(uint64_t seed) { (void)seed; } /* the GPU chooses its order itself */
