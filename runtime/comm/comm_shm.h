/* Owns: the communicator of ranks on one host: peers' arenas are mapped here and read in place. */
#ifndef FSDPC_RUNTIME_COMM_SHM_H
#define FSDPC_RUNTIME_COMM_SHM_H

#include "base/arena.h"
#include "kernels/kernels.h"
#include "runtime/comm.h"
#include "runtime/launch/control.h"

typedef struct CommShmConfig {
  uint32_t rank, ranks, shard, replicas;
  unsigned char *const *arenas;  /* of every rank that ours meets, as mapped in this process */
  CommLane *lanes;               /* of every rank, shared */
  const _Atomic uint32_t *stop;  /* collectives return COMM_PEER_FAILED soon after it is set */
  const KernelTable *kernels;    /* tree_sum */
  uint32_t spins;
} CommShmConfig;

/* Lives as long as the arena; config is copied. */
Comm *comm_shm_open(Arena *arena, const CommShmConfig *config);

/* The tree of comm.h over element k of vectors lo, lo + 1, ... lo + n - 1. */
double comm_tree_sum(const double *const *vectors, uint64_t k, uint32_t lo, uint32_t n);

/* --- what a communicator of several hosts is made of --------------------------------------------------------------- */

/* Ranks first, first + stride, ...: `count` of them, one of which is number `self`. */
typedef struct CommGroup {
  uint32_t first, stride, count, self;
} CommGroup;

static inline uint32_t comm_member(const CommGroup *group, uint32_t i) { return group->first + i * group->stride; }
/* The groups that a rank belongs to. */
CommGroup comm_shard_group(const Comm *comm, uint32_t rank);
CommGroup comm_replica_group(const Comm *comm, uint32_t rank);

/* arrive: my operands are ready; returns when the group's are. depart: I have read; returns when the group has. Every
 * rank of the job goes through the same number of pairs, whatever its groups, so that numbers of ranks compare. */
CommStatus comm_shm_arrive(Comm *shm, const CommGroup *group);
CommStatus comm_shm_depart(Comm *shm, const CommGroup *group);
/* y[0, count) (+)= tree sum over the group, which has arrived, of what lies at x_offset in every arena. */
void comm_shm_sum(Comm *shm, const CommGroup *group, uint64_t x_offset, void *y, uint64_t count, DType dtype, bool add);

#endif
