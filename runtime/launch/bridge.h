/* Owns: what the hosts of a job tell each other beside the collectives: that it must stop and why, where every rank is,
 * which checkpoint files are written.
 *
 * A star of TCP connections between the processes that lead on each host, rank 0's in the middle. Where to connect, and
 * a token that proves who does, travels with the ranks' first message through Open MPI. Each side tells all it knows of
 * its own ranks and takes the other's word into its control block, so that everything else reads the control block as
 * if all ranks were here. A connection that ends is a process that has died. */
#ifndef FSDPC_RUNTIME_BRIDGE_H
#define FSDPC_RUNTIME_BRIDGE_H

#include "runtime/launch/shared.h"

enum { BRIDGE_TICK_MS = 50 };

typedef struct Bridge Bridge;

/* Before the ranks start. */
Bridge *bridge_open(Arena *arena, const Join *join, const SharedMemory *memory, Failure *failure);
/* Tells and hears; to be called every BRIDGE_TICK_MS. False when this host cannot reach rank 0's. */
bool bridge_tick(Bridge *bridge, Failure *failure);
/* The lowest rank, not yet finished, of a host that is gone, or -1. */
int32_t bridge_gone(const Bridge *bridge);
/* A rank of a host that has not told anything for a while, though it should, and since when; or -1. */
int32_t bridge_silent(const Bridge *bridge, uint64_t *silent_s);
/* Last words. NULL is allowed. */
void bridge_close(Bridge *bridge);

#endif
