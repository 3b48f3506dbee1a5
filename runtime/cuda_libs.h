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
  X(cublasLtMatmulAlgoGetHeuristic)                                                                          \
  X(cublasLtMatmulDescInit_internal)                                                                         \
  X(cublasLtMatmulDescSetAttribute)                                                                          \
  X(cublasLtMatmulPreferenceInit_internal)                                                                   \
  X(cublasLtMatmulPreferenceSetAttribute)                                                                    \
  X(cublasLtMatrixLayoutInit_internal)

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

typedef struct CudaLibs {
#define X(name) __typeof__(&name) name;
  CUBLASLT_FUNCTIONS(X)
  NCCL_FUNCTIONS(X)
#undef X
} CudaLibs;

/* Each fills its part of the table; false with a message that says what is missing and how to get it. */
bool cuda_libs_cublaslt(CudaLibs *libs, Failure *failure);
bool cuda_libs_nccl(CudaLibs *libs, Failure *failure);

/* What `fsdpc doctor` says of the CUDA side of this machine. */
typedef struct CudaFinding {
  const char *name, *value, *help; /* help NULL: nothing to do */
} CudaFinding;
enum { CUDA_FINDINGS = 24 };
/* Fills at most CUDA_FINDINGS; returns how many. */
int cuda_findings(Arena *arena, CudaFinding out[CUDA_FINDINGS]);

#endif
