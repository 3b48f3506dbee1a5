/* Owns: which kernels serve which instruction on a GPU; the twin of cpu_dispatch. */
#ifndef FSDPC_RUNTIME_CUDA_DISPATCH_H
#define FSDPC_RUNTIME_CUDA_DISPATCH_H

#include "planner/plan/plan.h"
#include "runtime/backend.h"
#include "runtime/cuda/cuda_comm.h"
#include "runtime/cuda/cuda_flash.h"
#include "runtime/cuda/cuda_product.h"
#include "runtime/ranges.h"

/* Where the host puts what a step reads anew, by instruction: an INPUT's tokens of all repetitions side by side, a
 * COUNT_TARGETS's number. On the device. */
typedef struct CudaMachine {
  const Plan *plan;
  CudaProducts *products;
  CudaFlash *flash; /* NULL: attention is left to own kernels */
  bool hopper;      /* backward passes of attention that hopper_leads names are the kernel's for Hopper */
  bool hopper_all;  /* and so is all that Hopper's kernels take: what has not run on a GPU yet, too */
  void *attention;  /* memory of their backward passes, or NULL where they compute none */
  CudaComm *comm; /* NULL: one rank */
  uint32_t rank;
  const StepState *state; /* of the run: only what a graph may hold for good, or what only runs without graphs change */
  const CudaStep *step;
  const CudaRanges *ranges; /* by unit */
  const CudaFactoreds *factored; /* by unit; NULL: not Adafactor */
  void *scratch;            /* of the compute stream */
  const void **staged;      /* by instruction; NULL for those that stage nothing */
} CudaMachine;

typedef struct CudaCall {
  const CudaMachine *machine;
  CudaStream stream;
  int32_t position;
  const PlanInstr *instr;
  const CudaTensor *o; /* type -1: no float */
  const int64_t *n;    /* ints */
  const double *x;     /* reals */
  bool prepare;        /* choose algorithms, launch nothing */
  const char **refused; /* when preparing: why cuDNN leaves an attention to an own kernel */
  Failure *failure;    /* of the call alone */
} CudaCall;

/* 0; or a cudaError_t; or CUDA_UNSUPPORTED; or CUDA_COMM_FAILED, and the communicator says why; or CUDA_CALL_FAILED, and the call's
 * `failure` does. */
enum { CUDA_COMM_FAILED = -1, CUDA_CALL_FAILED = -2 };
typedef int (*CudaFunction)(const CudaCall *call);

/* What an optimizer's instruction updates: gradient and scale are always operands 0 and 1, w and cast those of these numbers. */
CudaUpdate cuda_update(const CudaCall *c, int w, int cast);

/* t from an element on: the same rows. */
CudaTensor cuda_at(CudaTensor t, int64_t row, int64_t column);

/* cuda_linear.c */
int cuda_op_linear_fwd(const CudaCall *c);
int cuda_op_linear_bwd_x(const CudaCall *c);
int cuda_op_linear_bwd_w(const CudaCall *c);
int cuda_op_linear_cross_entropy(const CudaCall *c);
int cuda_op_linear_cross_entropy_x(const CudaCall *c);

/* cuda_adafactor.c */
int cuda_op_adafactor_sums(const CudaCall *c);
int cuda_op_adafactor_moments(const CudaCall *c);
int cuda_op_adafactor(const CudaCall *c);
/* Allocates and fills device memory, which is the caller's to free. 0, or a cudaError_t. */
int cuda_adafactor_open(Arena *arena, const Plan *plan, const UnitRanges *ranges, void **memory, CudaFactoreds **out);

CudaFunction cuda_function(InstrOp op);
/* Must be called once with `prepare` before it runs. */
bool cuda_needs_preparing(InstrOp op);

#endif
