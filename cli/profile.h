/* Owns: measuring this machine's cores for a cluster file. */
#ifndef FSDPC_CLI_PROFILE_H
#define FSDPC_CLI_PROFILE_H

#include "cli/profile_step.h"
#include "frontend/cluster.h"

enum { PROFILE_SIZES = 6 };

/* How often and how large: rounds of steps, repetitions, rows of the largest product, elements of the largest collective. */
#ifdef FSDPC_PROFILE_BRIEF /* under sanitizers, where times mean nothing */
enum { PROFILE_ROUNDS = 1, PROFILE_REPEATS = 3, PROFILE_PRODUCT = 512, PROFILE_FLOATS = 1 << 20 };
#else
enum { PROFILE_ROUNDS = 3, PROFILE_REPEATS = 9, PROFILE_PRODUCT = 2048, PROFILE_FLOATS = 16 << 20 };
#endif

typedef struct ProfileResult {
  uint32_t ranks, threads;
  const char *gemm; /* library */
  double peak, bandwidth, bandwidth_share;
  PassRate products[PRODUCT_PASSES];
  HeadRate attention[2];
  TimedSizes moves[MOVE_COUNT];
  double launch_ns, latency_ns;
  TimedSize collectives[COLLECTIVE_COUNT][PROFILE_SIZES];
  double contention, compute_spread, comm_spread;
} ProfileResult;

/* Takes some ten seconds; starts `ranks` processes of `threads` computing threads, several times. */
bool profile_measure(Arena *arena, uint32_t ranks, uint32_t threads, ProfileResult *result, Failure *failure);

/* From steps to rates of products, attention, what moves, and the launch; raises the peak to the fastest product of a step. */
void profile_fit(Arena *arena, const ProfileStep steps[PROFILE_MODELS], ProfileResult *out);

#endif
