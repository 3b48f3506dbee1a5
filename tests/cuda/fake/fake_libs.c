/* Owns: stand-ins for cuBLASLt (products on the CPU, queued on the stream) and for loading libraries. */
#include "runtime/cuda_doctor.h"
#include "runtime/cuda_product.h"
#include "runtime/runtime.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/host_product.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHAPES = 256 };

struct CudaProducts {
  CudaProduct prepared[MOST_SHAPES];
  uint32_t count;
};

static size_t version(void) { return 130000; }

bool cuda_libs_cublaslt(CudaLibs *libs, Failure *failure) {
  (void)failure;
  libs->cublasLtGetVersion = version;
  return true;
}
bool cuda_libs_nccl(CudaLibs *libs, Failure *failure) {
  (void)failure;
#define X(name) libs->name = name;
  NCCL_FUNCTIONS(X)
  NCCL_WINDOW_FUNCTIONS(X)
#undef X
  return true;
}
/* This program itself: fake_dnn.cpp. */
void *cuda_libs_cudnn(void) { return getenv("FAKE_CUDNN") != NULL ? dlopen(NULL, RTLD_NOW) : NULL; }

CudaProducts *cuda_products_open(Arena *arena, const CudaLibs *libs, void *workspace, uint64_t workspace_bytes,
                                 Failure *failure) {
  (void)libs, (void)workspace, (void)workspace_bytes, (void)failure;
  return ARENA_NEW(arena, CudaProducts);
}

static bool same_shape(const CudaProduct *a, const CudaProduct *b) {
  return a->m == b->m && a->n == b->n && a->k == b->k && a->ta == b->ta && a->tb == b->tb && a->a.ld == b->a.ld &&
         a->b.ld == b->b.ld && a->c.ld == b->c.ld && a->a.type == b->a.type && a->c.type == b->c.type &&
         (a->c.add != 0) == (b->c.add != 0) && (a->bias.x != NULL) == (b->bias.x != NULL);
}

static bool is_prepared(const CudaProducts *products, const CudaProduct *product) {
  for (uint32_t i = 0; i < products->count; i++)
    if (same_shape(&products->prepared[i], product)) return true;
  return false;
}

bool cuda_products_prepare(CudaProducts *products, const CudaProduct *product, Failure *failure) {
  if (is_prepared(products, product)) return true;
  if (products->count == MOST_SHAPES) return fail(failure, RUN_INVALID, "cuda: products of too many shapes");
  products->prepared[products->count++] = *product;
  return true;
}

static void multiply(void *arg) {
  CudaProduct product;
  memcpy(&product, arg, sizeof product);
  host_product(&product);
}

int cuda_products_run(CudaProducts *products, CudaStream stream, const CudaProduct *product) {
  if (!is_prepared(products, product)) return CUDA_UNSUPPORTED;
  fake_cuda_enqueue(stream, multiply, product, sizeof *product);
  return 0;
}

void cuda_products_close(CudaProducts *products) { (void)products; }
