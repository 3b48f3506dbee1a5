/* Owns: what tests share that run a model's plan themselves, without a launcher: the only rank's machine, in the test's own process. */
#ifndef FSDPC_TESTS_RUNTIME_MACHINE_H
#define FSDPC_TESTS_RUNTIME_MACHINE_H

#include "testing.h"

#include "frontend/graph.h"
#include "runtime/launch/shared.h"
#include "runtime/rank.h"

typedef struct Model {
  SourceSet sources;
  DiagSink sink;
  const Graph *graph;
} Model;

/* Fails the test where the file is no model. */
Model *compile_model(Arena *arena, const char *path, const char *const *sets, uint32_t count);

typedef struct Machine {
  const Plan *plan;
  SharedMemory memory;
  RankEnv env;
  RankMachine rank;
} Machine;

void machine_open(Arena *arena, Machine *machine, const Plan *plan, Feed *feed);
void machine_close(Machine *machine);
/* Where a parameter lies. */
int32_t param_buffer(const Plan *plan, const PlanParam *param);
/* Norms start at one and biases at zero: shaken, so that every parameter matters. Deviations of vectors and of matrices. */
void machine_shake(Machine *machine, double vectors, double matrices);

#endif
