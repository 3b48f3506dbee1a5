/* Owns: the CUDA backend: a stream a queue, events as CUDA events, a step as one captured graph; where it accumulates over
 * micro-batches, a graph a segment.
 *
 * A step runs without the host waiting: run_segment queues a graph and returns, and only the call for the last
 * repetition of the plan's last segment waits, watching for errors, for `stop` and for a time limit. What the step reads
 * anew (rates, counts, the tokens of all its micro-batches) is staged in pinned memory and copied to the device once, at
 * its start. The first step runs without graphs: it loads kernels and lets NCCL connect.
 *
 * environment.def lists the variables that change how it runs. */
#ifndef FSDPC_RUNTIME_BACKEND_CUDA_H
#define FSDPC_RUNTIME_BACKEND_CUDA_H

#include "base/arena.h"
#include "runtime/backend.h"
#include "runtime/cuda/cuda_comm.h"
#include "runtime/failure.h"
#include "runtime/ranges.h"

typedef struct CudaBackendConfig {
  const Plan *plan;
  Comm *host;                     /* numbers, barrier and share; its buffers are not used */
  unsigned char *const *exchange; /* CUDA_EXCHANGE_BYTES of every rank of this host, shared, zeroed; of others NULL */
  Feed *feed;
  const UnitRanges *ranges;
  const _Atomic uint32_t *stop; /* not 0: fail soon; NULL: never */
  _Atomic int32_t *position;    /* told the list position + 1 of every instruction that is launched, and 0 when all are; NULL: not told */
  bool quiet;                   /* says nothing of what takes long */
} CudaBackendConfig;

/* In the rank's process, which has not forked since. */
Backend *backend_cuda_open(Arena *arena, const CudaBackendConfig *config, Failure *failure);
/* In the parent, before ranks exist: false with what is missing and how to get it. Touches no GPU. */
bool backend_cuda_check(const Plan *plan, Failure *failure);
/* "NVIDIA H200, compute 9.0" */
const char *backend_cuda_device(const Backend *backend);
/* Device memory that it has taken beside the arena. */
uint64_t backend_cuda_beside(const Backend *backend);

#endif
