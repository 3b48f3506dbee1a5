/* Owns: the communicator of ranks on one host: peers' arenas are mapped here and read in place. */
#ifndef FSDPC_RUNTIME_COMM_SHM_H
#define FSDPC_RUNTIME_COMM_SHM_H

#include "base/arena.h"
#include "kernels/kernels.h"
#include "runtime/comm.h"
#include "runtime/control.h"

typedef struct CommShmConfig {
  uint32_t rank, ranks, shard, replicas;
  unsigned char *const *arenas;  /* of every rank, as mapped in this process */
  CommLane *lanes;               /* of every rank, shared */
  const _Atomic uint32_t *stop;  /* collectives return COMM_PEER_FAILED soon after it is set */
  const KernelTable *kernels;    /* tree_sum */
  uint32_t spins;
} CommShmConfig;

/* Lives as long as the arena; config is copied. */
Comm *comm_shm_open(Arena *arena, const CommShmConfig *config);

#endif
