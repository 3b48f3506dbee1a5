/* Owns: training steps that are measured instruction by instruction, of small models made for that. */
#ifndef FSDPC_CLI_PROFILE_STEP_H
#define FSDPC_CLI_PROFILE_STEP_H

#include "base/arena.h"
#include "planner/plan/plan.h"

enum { PROFILE_MODELS = 5 };

typedef struct ProfileStep {
  const Plan *plan;
  double *ns;   /* of each instruction, when nothing else interferes */
  double gap_ns; /* between two instructions that compute */
} ProfileStep;

/* Plans and runs every model on as many ranks and threads a rank. NULL, or what went wrong. */
const char *profile_steps(Arena *arena, uint32_t ranks, uint32_t threads, ProfileStep steps[PROFILE_MODELS]);

#endif
