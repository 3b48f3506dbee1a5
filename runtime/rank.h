/* Owns: assembling what one rank runs on: kernels, threads, communicator, backend. */
#ifndef FSDPC_RUNTIME_RANK_H
#define FSDPC_RUNTIME_RANK_H

#include "kernels/kernels.h"
#include "runtime/backend.h"
#include "runtime/launch/launch.h"
#include "runtime/cpu/pool.h"
#include "runtime/ranges.h"

typedef struct RankMachine {
  const KernelTable *kernels; /* of the CPU; GPUs use their own but for initial values */
  const Gemm *gemm;
  const char *kernels_name, *gemm_name; /* what computes, for reports */
  uint64_t beside_bytes;                /* of device memory beside the arena, where that is not the host's */
  uint32_t threads; /* that compute, the calling one included */
  KernelContext context;
  uint32_t spins;
  UnitRanges *ranges;
  Pool *pool;
  Comm *comm;
  Backend *backend;
} RankMachine;

typedef struct BackendKind BackendKind;

typedef struct RankSetup {
  const Plan *plan;
  const BackendKind *kind;
  const RankEnv *env;
  Feed *feed;
  const char *gemm; /* NULL: the best */
  uint32_t threads; /* 0: this machine's cores shared out among the ranks */
  bool quiet;       /* says nothing of what takes long */
} RankSetup;

typedef struct RankThreads {
  uint32_t count; /* that compute, the calling one included */
  uint32_t spins; /* how long they look for work before they sleep */
} RankThreads;

RankThreads rank_threads(const RankEnv *env, uint32_t wanted);

/* Runs in the rank's process: matrix libraries may start threads when they are loaded. */
bool rank_open(Arena *arena, RankMachine *machine, const RankSetup *setup, Failure *failure);
void rank_close(RankMachine *machine);

#endif
