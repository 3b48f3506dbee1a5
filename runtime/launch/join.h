/* Owns: how the processes that a launcher started on one host become one job: they meet at a socket, agree on what they
 * run, and the lowest rank, which leads, hands out the memory they share. Hosts meet in bridge.c.
 *
 * The socket has an abstract name and the memory has none (memfd): both are gone with the last process, whatever kills
 * it. The connections stay open, so that each process notices when another is gone. */
#ifndef FSDPC_RUNTIME_JOIN_H
#define FSDPC_RUNTIME_JOIN_H

#include "base/arena.h"
#include "runtime/comm.h"
#include "runtime/launch/launcher.h"

enum { JOIN_TIMEOUT_S = 300 };

/* What all ranks must have in common. */
typedef struct JoinTerms {
  uint64_t plan_hash, options_hash, data_hash, memory_bytes, first_step;
} JoinTerms;

typedef struct Join {
  uint32_t rank, ranks;
  uint32_t *locals, local_ranks; /* the ranks on this host, ascending; the first one leads */
  int *peers; /* by place in locals: who leads has one to everybody, everybody one to who leads; else -1 */
  int32_t starter; /* as the launcher's */
  int memory; /* memfd of terms.memory_bytes, or -1 */
} Join;

static inline bool join_leads(const Join *join) { return join->rank == join->locals[0]; }
static inline bool join_spans_hosts(const Join *join) { return join->local_ranks < join->ranks; }

/* Waits for all ranks of this host, at most timeout_s. On failure nothing stays open; where another process says why, the text is
 * empty. */
bool join_open(Arena *arena, Join *join, const Launcher *launcher, const JoinTerms *terms, uint32_t timeout_s,
               Failure *failure);
/* What ranks of several hosts do once they can talk: every one compares all with rank 0's. */
bool join_agree_all(Arena *arena, Comm *comm, const JoinTerms *own, Failure *failure);
/* The rank of a process that has ended, or -1. */
int32_t join_gone(const Join *join);
/* Who leads waits a moment for the others to end. */
void join_close(Join *join);

#endif
