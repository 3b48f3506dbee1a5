/* Owns: the search over decisions. Grows into the joint search; today: every (micro-batch, strategy) with block units
 * and as few recomputed blocks as the budget asks for, then, around the best of these, unit policies, prefetch depth
 * and keeping the last unit. */
#ifndef FSDPC_PLANNER_SEARCH_H
#define FSDPC_PLANNER_SEARCH_H

#include "planner/bound.h"
#include "planner/emit.h"
#include "planner/planner.h"

/* One point of the space: everything that is enumerated. */
typedef struct Choice {
  int64_t micro_batch;
  Strategy strategy;
  WrapKind wrap;
  uint64_t wrap_numel;
  uint32_t full_blocks; /* recomputed blocks */
  uint32_t prefetch;
  bool keep_last; /* the last block's unit stays gathered */
} Choice;

typedef struct Search {
  Arena *arena;
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
  bool inference;
  VEC(Program *) programs; /* one a micro-batch tried */
  uint32_t candidates;
} Search;

typedef struct Found {
  Choice choice;
  Plan *plan; /* placed, with events; in search->arena */
  SimResult sim;
  Bound bound;
  bool fits;
} Found;

/* micro[0..count): micro-batches to consider. False after diagnostics. When nothing fits, found is the smallest plan. */
bool search_best(Search *search, const int64_t *micro, uint32_t count, Found *found);
/* The placed plan of one choice, in `arena`; NULL after diagnostics. */
Plan *search_build(Search *search, Arena *arena, const Choice *choice);
/* The program of a choice, for dumps. */
const Program *search_program(Search *search, int64_t micro_batch);
const UnitSet *search_units(Search *search, Arena *arena, const Choice *choice);
void search_recompute(Search *search, const Choice *choice, bool *recompute);

#endif
