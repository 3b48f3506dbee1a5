/* Owns: attention by cuDNN: which of a plan's attentions it takes, its graphs and plans, its workspace. The rest stays with
 * the own kernels of kernels/cuda, which are the reference.
 *
 * What decides is the shape, the element type, the strides and the alignment, never the address or the memory that is
 * free: every plan of a model decides alike. */
#ifndef FSDPC_RUNTIME_CUDA_FLASH_H
#define FSDPC_RUNTIME_CUDA_FLASH_H

#include "base/arena.h"
#include "kernels/cuda/cuda_kernels.h"
#include "planner/plan/plan.h"
#include "runtime/failure.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct CudaFlash CudaFlash;

/* As cuda_attention_fwd or cuda_attention_bwd take them; d_o, dq, dk, dv of the latter only. */
typedef struct CudaFlashCall {
  AttentionShape shape;
  bool backward;
  CudaTensor q, k, v, o, d_o, dq, dk, dv;
  float *lse;
} CudaFlashCall;

/* Of the cuDNN that would be used, as 91900; 0: there is none, *why says what is wrong. */
int cuda_flash_version(const char **why);
/* Calls are told apart by the number of their instruction. compute: the device's capability, as 90. fast: results need not
 * repeat bit by bit. NULL: *why. */
CudaFlash *cuda_flash_open(Arena *arena, const Plan *plan, int device, int compute, bool fast, const char **why);
/* Builds the plan of a call, about a second a shape. False: cuDNN does not take it, *why. */
bool cuda_flash_prepare(CudaFlash *flash, int32_t number, const CudaFlashCall *call, const char **why);
/* After all calls are prepared: does cuDNN take one? Then the device memory that they need one at a time, maybe none, and that
 * memory, without which nothing is launched. False: *why. */
bool cuda_flash_takes_any(const CudaFlash *flash);
uint64_t cuda_flash_workspace_bytes(const CudaFlash *flash);
bool cuda_flash_bind(CudaFlash *flash, void *workspace, const char **why);
/* A line a shape: the part computed at a time, and the engine of cuDNN with its knobs. */
void cuda_flash_list(const CudaFlash *flash, FILE *out);
bool cuda_flash_takes(const CudaFlash *flash, int32_t number);
/* Launches. */
bool cuda_flash_run(CudaFlash *flash, CudaStream stream, int32_t number, Failure *failure);
void cuda_flash_close(CudaFlash *flash);

#endif
