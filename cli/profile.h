/* Owns: measuring this machine's cores for a cluster file. */
#ifndef FSDPC_CLI_PROFILE_H
#define FSDPC_CLI_PROFILE_H

#include "base/arena.h"
#include "frontend/cluster.h"

enum { PROFILE_SIZES = 4 }; /* of collectives: 1, 4, 16, 64 MiB */

typedef struct ProfileResult {
  uint32_t ranks;
  const char *gemm; /* library */
  double peak, gemm_share, gemm_prologue, bandwidth, bandwidth_share;
  double attention_share, attention_backward, attention_tokens;
  double launch_ns, latency_ns;
  double collective_ns[COLLECTIVE_COUNT][PROFILE_SIZES];
  double contention, compute_spread, comm_spread;
} ProfileResult;

/* Takes some seconds; starts `ranks` processes for the collectives. NULL, or what went wrong. */
const char *profile_measure(Arena *arena, uint32_t ranks, ProfileResult *result);

#endif
