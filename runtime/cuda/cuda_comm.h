/* Owns: collectives between GPUs, launched on streams. Two kinds: NCCL, one GPU a rank; and local, for several ranks on
 * one GPU (or more ranks than GPUs), which reads peers' arenas in place and serves as the oracle for NCCL.
 *
 * Both sum along the fixed tree of comm.h, so a plan's shape does not change the bits: NCCL moves the operands to the rank
 * that needs their sum, and cuda_tree_sum adds them. FSDPC_NCCL_SUM=nccl lets NCCL add instead: less traffic over a
 * network, but sums whose order follows NCCL's rings and may differ between plans. */
#ifndef FSDPC_RUNTIME_CUDA_COMM_H
#define FSDPC_RUNTIME_CUDA_COMM_H

#include "base/arena.h"
#include "base/dtype.h"
#include "kernels/cuda/cuda_kernels.h"
#include "runtime/comm.h"
#include "runtime/cuda/cuda_libs.h"
#include "runtime/failure.h"

/* Device addresses in the rank's own arena; counts as in comm.h. Launches on the stream; false with a message. */
typedef struct CudaComm CudaComm;
struct CudaComm {
  const char *name;
  uint64_t device_bytes; /* that it has taken */
  bool capturable; /* launches without waiting for anything, so that a step can be a graph */
  bool (*allgather)(CudaComm *, CudaStream, const void *shard, void *full, uint64_t count, DType dtype);
  bool (*reduce_scatter)(CudaComm *, CudaStream, const void *full, void *shard, uint64_t count, DType dtype, bool add);
  bool (*allreduce)(CudaComm *, CudaStream, const void *x, void *y, uint64_t count, DType dtype, bool add);
  bool (*allreduce_sum)(CudaComm *, CudaStream, double *x, uint64_t count);
  bool (*allreduce_int)(CudaComm *, CudaStream, int64_t *x, uint64_t count); /* over the shard group */
  bool (*poll)(CudaComm *); /* false: a peer or the network has failed */
  void (*close)(CudaComm *, bool broken);
  Failure failure; /* of the last method that returned false */
};

typedef struct CudaCommConfig {
  const CudaLibs *libs;           /* NCCL's part loaded, for cuda_comm_nccl_open */
  Comm *host;                     /* for its numbers, share and barrier */
  unsigned char *const *exchange; /* memory that every rank of this host sees, one block of CUDA_EXCHANGE_BYTES a rank, zeroed */
  bool spans_hosts;               /* some ranks are on other hosts, and have no block here */
  unsigned char *arena;           /* own, on the device: the start of an allocation */
  uint64_t arena_bytes;           /* the same on every rank */
  bool nccl_memory;               /* the arena is from ncclMemAlloc */
} CudaCommConfig;

enum { CUDA_EXCHANGE_BYTES = 4096 };

CudaComm *cuda_comm_nccl_open(Arena *arena, const CudaCommConfig *config, Failure *failure);
CudaComm *cuda_comm_local_open(Arena *arena, const CudaCommConfig *config, Failure *failure);

#endif
