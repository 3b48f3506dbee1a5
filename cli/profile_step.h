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

typedef struct LaunchJob LaunchJob; /* runtime/launch/launch.h */
typedef struct Failure Failure;     /* runtime/failure.h */

/* Starts the ranks. Of what ended them launch_run has spoken: the failure has its exit code and no text. */
bool profile_launch(const LaunchJob *job, Failure *failure);
/* Plans and runs every model on as many ranks and threads a rank. */
bool profile_steps(Arena *arena, uint32_t ranks, uint32_t threads, ProfileStep steps[PROFILE_MODELS], Failure *failure);

#endif
