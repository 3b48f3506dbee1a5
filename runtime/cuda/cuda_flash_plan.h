/* Owns: attention as graphs of cuDNN, and their plans. */
#ifndef FSDPC_RUNTIME_CUDA_FLASH_PLAN_H
#define FSDPC_RUNTIME_CUDA_FLASH_PLAN_H

#include "runtime/cuda/cuda_dnn.h"
#include "runtime/cuda/cuda_flash.h"

/* What dnn_bind calls a graph's tensors. Of a part, in the workspace: DELTA, sum of o do, f32 [samples heads tq]; DQ_SUMS, f32
 * [samples heads tq head_dim], in a fast backward pass only. */
typedef enum {
  FLASH_Q = 1,
  FLASH_K,
  FLASH_V,
  FLASH_O,
  FLASH_LSE,
  FLASH_SCALE,
  FLASH_HIDDEN,
  FLASH_ONE,
  FLASH_DELTA,
  FLASH_D_O,
  FLASH_DQ,
  FLASH_DK,
  FLASH_DV,
  FLASH_DQ_SUMS,
  FLASH_VIRTUAL /* and on */
} FlashId;

typedef struct FlashPlan {
  DnnGraph graph;
  AttentionShape part; /* of the call, at a time */
  uint64_t delta_at, sums_at, workspace_bytes;
} FlashPlan;

/* What plans are made for. */
typedef struct FlashTarget {
  cudnnBackendDescriptor_t device;
  int compute;    /* as 90 */
  uint64_t bytes; /* of the device, as the training plan has them; 0: not stated */
  bool fast;      /* results need not repeat bit by bit */
} FlashTarget;

/* Could cuDNN take the call, as far as types, strides and sizes go? */
bool flash_fits(const CudaFlashCall *call);
/* Is this version of cuDNN known to compute it right, and unless fast the same each time? False: *why. */
bool flash_sound(const CudaFlashCall *call, const FlashTarget *target, size_t version, const char **why);
/* False with plan->graph.error. Destroy plan->graph in either case. */
bool flash_plan(FlashPlan *plan, const Dnn *dnn, const FlashTarget *target, const CudaFlashCall *call);

#endif
