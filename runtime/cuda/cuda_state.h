/* Owns: the state of the CUDA backend, shared by the files that open it (cuda_open.c, cuda_staging.c) and run it
 * (backend_cuda.c). */
#ifndef FSDPC_RUNTIME_CUDA_STATE_H
#define FSDPC_RUNTIME_CUDA_STATE_H

#include "runtime/cuda/backend_cuda.h"
#include "runtime/cuda/cuda_dispatch.h"

#include <cuda_runtime_api.h>

typedef struct CudaTimer {
  cudaEvent_t start, end;
} CudaTimer;

typedef struct CudaBackend {
  Backend base; /* first: methods are given &cuda->base */
  CudaBackendConfig config;
  CudaLibs libs;
  CudaMachine machine;
  CudaTensor *operands; /* parallel to plan->operands */
  uint64_t *reach;      /* of each instruction: the offset in the device's arena that its operands end at */
  int device, compute, multiprocessors; /* its number, its capability, as 90, and how many it has */
  char gpu[256]; /* its name */
  uint32_t sharers;  /* ranks on that device, this one included */
  bool own_gpus;     /* no two ranks of the job are on one device */
  char device_name[400]; /* and what was chosen on it */

  unsigned char *arena;
  uint64_t arena_bytes;    /* plan->arena_bytes, in whole pages of the GPU */
  bool nccl;               /* ranks communicate through NCCL */
  bool nccl_memory;        /* the arena is from ncclMemAlloc */
  unsigned char *host;     /* plan->host_bytes of pinned memory, which kernels can read and write too; NULL: nothing is offloaded */
  uint64_t beside_bytes;   /* of device memory that was taken beside the arena */
  void *workspace;         /* of products */
  void *scratch;           /* of the compute stream */
  void *attention_memory;  /* of attention's backward passes, one at a time */
  CudaRange *range_memory; /* of all units */
  void *factored_memory;   /* of all units; Adafactor's */

  /* What a step reads anew: the same layout on both sides. */
  unsigned char *staging_host, *staging_device;
  uint64_t staging_bytes;
  uint64_t *staged_at; /* by instruction: offset, 0: stages nothing */

  cudaStream_t streams[STREAM_COUNT]; /* by queue; NULL where no stream uses it */
  uint32_t origin;                    /* the compute queue: others fork from it and join it */
  cudaEvent_t *events;                /* the plan's */
  cudaEvent_t fork, join[STREAM_COUNT], done;
  cudaGraphExec_t *graphs; /* by first segment; NULL: not captured yet, or part of another */
  CudaTimer *timers;       /* by instruction; NULL until times are asked for */

  bool use_graphs, sync_each;
  uint32_t timeout_s;
  bool warm; /* a whole step has run */
  uint64_t high_water;
  Failure failure;
} CudaBackend;

/* The backend's methods, to be copied into `base`. */
extern const Backend cuda_methods;

/* Of a buffer, in whichever arena it lies. */
unsigned char *cuda_address(const CudaBackend *cuda, const PlanBuf *buf);
/* Takes a GPU, tells the other ranks which, and checks that the run fits it. */
bool cuda_device_open(CudaBackend *cuda, Arena *arena, Failure *failure);
/* Fails with the instruction at this list position, its stream and layer, and the reason. */
bool cuda_instr_failed(const CudaBackend *cuda, int32_t position, const char *reason, int code, Failure *failure);
/* Fails with what was being done and CUDA's reason; true when error is 0. */
bool cuda_ok(int error, const char *what, Failure *failure);
/* Whether some rank has failed. */
bool cuda_stopped(const CudaBackend *cuda);
/* A peer that is gone, or a broken connection, is a consequence: waits a while for who knows the cause to stop the job. */
void cuda_await_cause(const CudaBackend *cuda, const Failure *failure);
/* Fills the host's staging memory for the step that begins, or for the one segment of a forward plan that is to run, and
 * queues its copy to the device. */
bool cuda_stage_step(CudaBackend *cuda, const StepState *state, int32_t segment);
/* Lays out the staging memory and allocates it. */
bool cuda_stage_open(CudaBackend *cuda, Arena *arena, Failure *failure);
/* Frees whatever open has made so far. */
void cuda_release(CudaBackend *cuda);

#endif
