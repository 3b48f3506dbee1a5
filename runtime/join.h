/* Owns: how the processes that a launcher started become one job: they meet at a socket, agree on what they run, and
 * rank 0 hands out the memory they share.
 *
 * The socket has an abstract name and the memory has none (memfd): both are gone with the last process, whatever kills
 * it. The connections stay open, so that each process notices when another is gone. */
#ifndef FSDPC_RUNTIME_JOIN_H
#define FSDPC_RUNTIME_JOIN_H

#include "base/arena.h"
#include "runtime/launcher.h"

enum { JOIN_TIMEOUT_S = 300 };

/* What all ranks must have in common. */
typedef struct JoinTerms {
  uint64_t plan_hash, options_hash, memory_bytes, first_step;
} JoinTerms;

typedef struct Join {
  uint32_t rank, ranks;
  int *peers; /* by rank: rank 0 has one to everybody, everybody one to rank 0; else -1 */
  int memory; /* memfd of terms.memory_bytes, or -1 */
} Join;

/* Waits for all ranks, at most timeout_s. On failure nothing stays open; where another process says why, the text is
 * empty. */
bool join_open(Arena *arena, Join *join, const Launcher *launcher, const JoinTerms *terms, uint32_t timeout_s,
               Failure *failure);
/* The rank of a process that has ended, or -1. */
int32_t join_gone(const Join *join);
/* Rank 0 waits a moment for the others to end. */
void join_close(Join *join);

#endif
