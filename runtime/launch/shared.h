/* Owns: the memory of a job: an arena a rank, the control block, and where they are mapped in this process. Also of one
 * process without ranks. */
#ifndef FSDPC_RUNTIME_SHARED_H
#define FSDPC_RUNTIME_SHARED_H

#include "base/arena.h"
#include "runtime/launch/control.h"
#include "runtime/launch/join.h"

typedef struct SharedMemory {
  uint32_t ranks;
  unsigned char **arenas; /* one a rank: arena_bytes, zeroed, a guard page behind; NULL: on another host */
  CommLane *lanes;
  RankStatus *statuses;
  Control *control;
  void *block; /* control, statuses and lanes */
  uint64_t block_bytes;
  unsigned char **reserved; /* per rank: what was mapped, guard pages included */
  uint64_t reserved_bytes;
} SharedMemory;

/* For this process and those it forks. On failure nothing stays mapped. */
bool shared_open(Arena *arena, SharedMemory *memory, uint32_t ranks, uint64_t arena_bytes, Failure *failure);
/* The same in join->memory, which this host's processes share. join NULL: as shared_open. */
bool shared_open_joined(Arena *arena, SharedMemory *memory, uint32_t ranks, uint64_t arena_bytes, const Join *join,
                        Failure *failure);
/* What join->memory must hold for it. */
uint64_t shared_file_bytes(uint32_t ranks, uint64_t arena_bytes);
void shared_close(SharedMemory *memory);

#endif
