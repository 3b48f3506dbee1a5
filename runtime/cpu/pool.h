/* Owns: the compute threads of a rank: Parallel for kernels. Threads start at open and sleep when idle; run allocates
 * nothing. One thread at a time calls run, and works too. */
#ifndef FSDPC_RUNTIME_POOL_H
#define FSDPC_RUNTIME_POOL_H

#include "base/arena.h"
#include "kernels/parallel.h"
#include "runtime/failure.h"

typedef struct Pool Pool;

/* `threads` counts the caller; 1 starts none. `init` (or NULL) runs first in every new thread. `spins`: how long to
 * look for work before sleeping (SPIN_SHORT, SPIN_LONG). NULL when a thread cannot be started. */
Pool *pool_open(Arena *arena, uint32_t threads, uint32_t spins, void (*init)(void *arg), void *arg, Failure *failure);
Parallel *pool_parallel(Pool *pool);
void pool_close(Pool *pool);

/* Runs tasks in order in the calling thread: for queues other than compute, and for tests. */
Parallel *parallel_serial(Arena *arena);

#endif
