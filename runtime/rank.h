/* Owns: assembling what one rank runs on: kernels, threads, communicator, backend. */
#ifndef FSDPC_RUNTIME_RANK_H
#define FSDPC_RUNTIME_RANK_H

#include "kernels/kernels.h"
#include "runtime/backend.h"
#include "runtime/launch.h"
#include "runtime/pool.h"
#include "runtime/ranges.h"

typedef struct RankMachine {
  const KernelTable *kernels;
  const Gemm *gemm;
  uint32_t threads; /* that compute, the calling one included */
  KernelContext context;
  UnitRanges *ranges;
  Pool *pool;
  Comm *comm;
  Backend *backend;
} RankMachine;

/* gemm NULL: the best; threads 0: this machine's cores shared out among the ranks. Runs in the rank's process: matrix
 * libraries may start threads when they are loaded. */
bool rank_open(Arena *arena, RankMachine *machine, const Plan *plan, const RankEnv *env, Feed *feed, const char *gemm,
               uint32_t threads, Failure *failure);
void rank_close(RankMachine *machine);

#endif
