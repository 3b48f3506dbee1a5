/* Owns: stand-ins for loading libraries: what is loaded is the fakes of this folder. */
#include "runtime/cuda/cuda_libs.h"
#include "tests/cuda/fake/fake_cublaslt.h"

#include <dlfcn.h>
#include <stdlib.h>

bool cuda_libs_cublaslt(CudaLibs *libs, Failure *failure) {
  (void)failure;
  fake_cublaslt(libs);
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
