/* Owns: the table of backends, one row each: what a rank needs shared, and how its machine is opened. */
#ifndef FSDPC_RUNTIME_BACKENDS_H
#define FSDPC_RUNTIME_BACKENDS_H

#include "runtime/rank.h"

typedef struct BackendKind {
  const char *name;
  PlanDevice device; /* that it computes on */
  /* In the parent, before any rank exists: can this plan run here at all? NULL: always. */
  bool (*check)(const Plan *plan, Failure *failure);
  /* Memory of a rank that all ranks see. */
  uint64_t (*shared_bytes)(const Plan *plan);
  /* Fills machine->comm and machine->backend; the rest of the machine is there. */
  bool (*open)(Arena *arena, RankMachine *machine, const RankSetup *setup, Failure *failure);
  bool guarded; /* no allocation inside a step, by anyone (FSDPC_ALLOC_GUARD) */
} BackendKind;

/* NULL, with a message, when this build has no backend of that name. name NULL: cpu. */
const BackendKind *backend_find(const char *name, Failure *failure);

#endif
