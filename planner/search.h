/* Owns: the joint search. Outer choices (micro-batch, sharding) are bounded first and tried best bound first; those whose bound
 * exceeds the best plan found are dropped. Inside one, units, recompute per operator, units kept gathered and the issue
 * slot of every gather are chosen together under the memory budget: seeds by price (items.h) on several groupings of
 * units, then moves of whole classes of items, all judged by the exact schedule (schedule.h). */
#ifndef FSDPC_PLANNER_SEARCH_H
#define FSDPC_PLANNER_SEARCH_H

#include "planner/bound.h"
#include "planner/emit.h"
#include "planner/figures.h"
#include "planner/planner.h"

typedef struct Search {
  Arena *arena;
  Arena *scratch; /* of one judgement */
  DiagSink *sink;
  const Graph *graph;
  const Cluster *cluster;
  const PlanSettings *settings;
  const InstrSpec *specs;
  const PlanSpan *spans;
  const char *const *span_paths;
  uint32_t ranks, ranks_per_node;
  uint64_t samples; /* a step, 0: one micro-batch a rank */
  uint64_t budget;
  VEC(Program *) programs; /* one a micro-batch tried */
  uint32_t candidates;     /* schedules judged */
} Search;

/* One outer choice. */
typedef struct Outer {
  int64_t micro_batch;
  uint32_t shard; /* ranks a unit is spread over: all, or 1 */
} Outer;

/* A complete set of decisions. */
typedef struct Found {
  Outer outer;
  const UnitSet *units;
  WrapKind wrap;
  uint64_t wrap_numel;
  Decisions decisions;
  uint64_t estimate_ns;
  Plan *plan; /* placed, with events; in search->arena */
  SimResult sim;
  Bound bound;
  bool fits;
} Found;

/* micro[0..count): micro-batches to consider. False after diagnostics. When nothing fits, found is the smallest plan. */
bool search_best(Search *search, const int64_t *micro, uint32_t count, Found *found);
/* The smallest placed plan of an outer choice: everything recomputed that may be, nothing prefetched. NULL after diagnostics. */
Plan *search_smallest(Search *search, Arena *arena, const Outer *outer, Found *found);
/* The program of a micro-batch, costed; NULL after diagnostics. */
const Program *search_program(Search *search, int64_t micro_batch);

#endif
