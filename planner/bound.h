/* Owns: a lower bound on step time that no plan of the searched space can beat under the cost model.
 *
 * For fixed micro-batch and sharding: every operator of the program runs at least once, every gathered parameter
 * travels at least once a micro-batch and every gradient once, all in one message; queues that run side by side are
 * bounded by the busiest. Recompute, latency per unit and waiting come on top, so the bound is valid for every choice
 * of units, checkpointing and prefetch. Over several micro-batches or strategies, take the least. */
#ifndef FSDPC_PLANNER_BOUND_H
#define FSDPC_PLANNER_BOUND_H

#include "planner/plan/plan.h"

#include "frontend/cluster.h"

typedef struct Bound {
  uint64_t ns;
  const char *by; /* "compute", "gather", "reduce", "communication" */
} Bound;

/* plan: any emitted plan of that micro-batch and sharding. */
Bound bound_of(const Cluster *cluster, const Plan *plan);

#endif
