/* Owns: cuBLASLt, cuDNN and NCCL, loaded when the CUDA backend opens (dlopen), so that planning and CPU runs need none. */
#ifndef FSDPC_RUNTIME_CUDA_LIBS_H
#define FSDPC_RUNTIME_CUDA_LIBS_H

#include "base/arena.h"
#include "runtime/failure.h"

#include <cublasLt.h>
#include <nccl.h>

/*  X(name): functions of cuBLASLt */
#define CUBLASLT_FUNCTIONS(X)                                                                                \
  X(cublasLtCreate)                                                                                          \
  X(cublasLtDestroy)                                                                                         \
  X(cublasLtGetVersion)                                                                                      \
  X(cublasLtMatmul)                                                                                          \
  X(cublasLtMatmulAlgoCheck)                                                                                 \
  X(cublasLtMatmulAlgoConfigGetAttribute)                                                                    \
  X(cublasLtMatmulAlgoConfigSetAttribute)                                                                    \
  X(cublasLtMatmulAlgoGetHeuristic)                                                                          \
  X(cublasLtMatmulAlgoInit)                                                                                  \
  X(cublasLtMatmulDescCreate)                                                                                \
  X(cublasLtMatmulDescDestroy)                                                                               \
  X(cublasLtMatmulDescSetAttribute)                                                                          \
  X(cublasLtMatmulPreferenceCreate)                                                                          \
  X(cublasLtMatmulPreferenceDestroy)                                                                         \
  X(cublasLtMatmulPreferenceSetAttribute)                                                                    \
  X(cublasLtMatrixLayoutCreate)                                                                              \
  X(cublasLtMatrixLayoutDestroy)

/*  X(name): functions of NCCL */
#define NCCL_FUNCTIONS(X)                                                                                    \
  X(ncclAllGather)                                                                                           \
  X(ncclAllReduce)                                                                                           \
  X(ncclCommAbort)                                                                                           \
  X(ncclCommDestroy)                                                                                         \
  X(ncclCommGetAsyncError)                                                                                   \
  X(ncclCommInitRank)                                                                                        \
  X(ncclCommSplit)                                                                                           \
  X(ncclGetErrorString)                                                                                      \
  X(ncclGetLastError)                                                                                        \
  X(ncclGetUniqueId)                                                                                         \
  X(ncclGetVersion)                                                                                          \
  X(ncclGroupEnd)                                                                                            \
  X(ncclGroupStart)                                                                                          \
  X(ncclRecv)                                                                                                \
  X(ncclReduceScatter)                                                                                       \
  X(ncclSend)

/*  X(name): functions of NCCL 2.27 and later, NULL in earlier ones */
#define NCCL_WINDOW_FUNCTIONS(X)                                                                             \
  X(ncclCommWindowDeregister)                                                                                \
  X(ncclCommWindowRegister)                                                                                  \
  X(ncclMemAlloc)                                                                                            \
  X(ncclMemFree)

typedef struct CudaLibs {
#define X(name) __typeof__(&name) name;
  CUBLASLT_FUNCTIONS(X)
  NCCL_FUNCTIONS(X)
  NCCL_WINDOW_FUNCTIONS(X)
#undef X
} CudaLibs;

/* Each fills its part of the table; false with a message that says what is missing and how to get it. */
bool cuda_libs_cublaslt(CudaLibs *libs, Failure *failure);
bool cuda_libs_nccl(CudaLibs *libs, Failure *failure);
/* A handle for dlsym (cuda_dnn.h), or NULL. */
void *cuda_libs_cudnn(void);

#endif
