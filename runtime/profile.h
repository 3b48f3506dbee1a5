/* Owns: what a run measures of itself: when each instruction of one step ran, and how long, on average, units and
 * streams took beside what the plan predicted. Of rank 0; everything is allocated at open, so that measuring allocates
 * nothing inside a step. */
#ifndef FSDPC_RUNTIME_PROFILE_H
#define FSDPC_RUNTIME_PROFILE_H

#include "base/arena.h"
#include "planner/plan/plan.h"
#include "runtime/backend.h"
#include "runtime/runtime.h"

#include <stdio.h>

typedef struct Profile Profile;

/* Which step is the first to be measured. first_step: of this run; the first steps warm up and are not measured, unless the run is
 * as short as that. */
uint64_t profile_begin(uint64_t first_step, uint64_t last_step);
Profile *profile_open(Arena *arena, const Plan *plan, uint64_t begin);
/* At a step's start: where a backend puts the times of each segment's repetition, which profile_take then keeps; NULL:
 * the step is not measured. */
InstrTime *profile_times(Profile *profile, uint64_t step);
void profile_take(Profile *profile, int32_t segment);
void profile_end_step(Profile *profile, uint64_t step_ns);

/* The latest measured step. */
MeasuredStep profile_measured(const Profile *profile);
/* Predicted beside measured, and their ratio. */
void profile_print(const Profile *profile, FILE *out);

#endif
