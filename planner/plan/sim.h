/* Owns: executing a plan on virtual clocks. Needs no cost model: durations are in the instructions, what
 * streams cost each other in plan->overlap.
 *
 * Queues are FIFO; an instruction starts when its queue is free and its events have been recorded; queues
 * join between segments. While a collective runs, compute progresses at 1 - contention of its speed; while
 * compute runs, collectives at 1/(1 + comm_slowdown). */
#ifndef FSDPC_PLANNER_PLAN_SIM_H
#define FSDPC_PLANNER_PLAN_SIM_H

#include "planner/plan/plan.h"

typedef struct SimSpan {
  uint64_t start, end; /* ns from the start of the step; in the first repetition of its segment */
} SimSpan;

typedef struct SimResult {
  uint64_t step_ns;
  uint64_t fast_ns,
      slow_ns; /* the step lies between them when every duration is within its spread and contention
                  between none and what the plan states: proved in sim.c, not estimated */
  uint64_t exposed_comm_ns; /* compute idle while a communication queue works */
  uint64_t segment_ns[8];   /* one repetition; plans have at most 8 segments */
  SimSpan *spans;           /* one an instruction */
} SimResult;

/* The plan is verified (waits name earlier records). O(instrs + waits). */
void plan_simulate(Arena *arena, const Plan *plan, SimResult *result);

#endif
