/* Owns: putting a cuBLASLt that runs on the CPU in the library's place. */
#ifndef FSDPC_TESTS_CUDA_FAKE_FAKE_CUBLASLT_H
#define FSDPC_TESTS_CUDA_FAKE_FAKE_CUBLASLT_H

#include "runtime/cuda/cuda_libs.h"

void fake_cublaslt(CudaLibs *libs);

#endif
