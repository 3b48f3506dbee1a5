/* Owns: the communicator of ranks on several hosts: Open MPI between hosts, shared memory inside each.
 *
 * Loads Open MPI, so it is opened in the rank's own process, and used by one thread at a time. */
#ifndef FSDPC_RUNTIME_COMM_MPI_H
#define FSDPC_RUNTIME_COMM_MPI_H

#include "runtime/comm/comm_shm.h"
#include "runtime/failure.h"

typedef struct CommMpiConfig {
  CommShmConfig local; /* arenas are NULL of ranks on other hosts */
  void *notice;        /* rank 0's is given to all */
  uint32_t notice_bytes;
} CommMpiConfig;

/* Every rank of the job calls it; waits for all of them. Memory beside the arena: 24 MiB, less
 * where the job has few hosts. */
Comm *comm_mpi_open(Arena *arena, const CommMpiConfig *config, Failure *failure);

#endif
