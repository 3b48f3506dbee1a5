/* Owns: the CPU backend: a thread a queue, events as counters. */
#ifndef FSDPC_RUNTIME_BACKEND_CPU_H
#define FSDPC_RUNTIME_BACKEND_CPU_H

#include "base/arena.h"
#include "kernels/kernels.h"
#include "runtime/backend.h"
#include "runtime/counter.h"
#include "runtime/failure.h"
#include "runtime/cpu/pool.h"
#include "runtime/ranges.h"

typedef struct CpuBackendConfig {
  const Plan *plan;
  unsigned char *arena;          /* this rank's, plan->arena_bytes and behind them plan->host_bytes, zeroed */
  Comm *comm;
  Feed *feed;
  const KernelTable *kernels;
  const Gemm *gemm;
  Pool *pool;                    /* of the compute queue */
  const UnitRanges *ranges;
  uint32_t spins;
  const _Atomic uint32_t *stop;  /* not 0: fail soon; NULL: never */
  _Atomic int32_t *position;     /* told the list position + 1 of every instruction that starts; NULL: not told */
} CpuBackendConfig;

/* What the calling thread, and every thread that computes, must have done first. arg: const Gemm *. */
void cpu_thread_init(void *gemm);

/* NULL when the plan asks for what the CPU cannot do, or a thread cannot be started. The calling thread serves the
 * compute queue in run_segment. */
Backend *backend_cpu_open(Arena *arena, const CpuBackendConfig *config, Failure *failure);

#endif
