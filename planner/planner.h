/* Owns: the planner's door. A checked graph, the world and the settings in; a placed, verified, simulated plan out. */
#ifndef FSDPC_PLANNER_PLANNER_H
#define FSDPC_PLANNER_PLANNER_H

#include "frontend/graph.h"
#include "planner/plan/plan.h"
#include "planner/plan/sim.h"
#include "planner/relaxations.h"

/* How far a search is. */
typedef struct PlannerStage {
  uint32_t ranks;
  uint32_t budgets; /* of a thorough search: how many it has tried, the last one's bytes, the best step yet (0: no plan fits yet) */
  uint64_t bytes, step_ns;
} PlannerStage;

/* Called whenever an outer choice has been bounded, and before one is searched: mostly several times a second. */
typedef void PlannerProgress(void *watcher, const PlannerStage *stage);

typedef struct PlannerOptions {
  int64_t ranks;          /* 0: all devices of the cluster */
  int64_t ranks_per_node; /* 0: the cluster's node size (at most ranks) */
  PlanSettings settings;  /* the file's plan block with the command line's overrides */
  bool inference;         /* a forward plan (plan.h): one sample, output = input of the loss (logits); requires ranks 1 */
  bool brief;             /* one of many: no second look where a plan is far from its bound, no effort for hard placements */
  bool thorough;          /* the fastest plan of all budgets of a fixed grid up to this one: never slower with a larger budget (search_anchors.h) */
  PlannerProgress *progress; /* or NULL */
  void *watcher;
} PlannerOptions;

typedef struct LargestBuffer {
  const char *name, *class;
  uint64_t bytes;
} LargestBuffer;

/* Why a budget cannot be met. */
typedef struct Infeasible {
  uint64_t lacks_host_bytes;    /* what lies in host memory is so much more than there is; 0: that is not why */
  uint64_t smallest_peak_bytes; /* arena of the smallest plan found */
  const char *peak_at;          /* instruction and layer where that plan peaks */
  VEC(LargestBuffer) largest;   /* live there, largest first, at most 8 */
  Relaxations relaxations;      /* cheapest first */
} Infeasible;

typedef struct PlannerResult {
  Plan *plan;      /* NULL after diagnostics; when !fits, the smallest plan found */
  SimResult sim;
  bool fits;
  const char *bound_of;  /* what the lower bound is of, where the plan decided otherwise (summary.h); else NULL */
  uint64_t own_bound_ns; /* of what the plan decided; 0: nothing fits */
  uint64_t unplaced_ns; /* the best step that was estimated before addresses were known: what placing cost; 0: nothing was searched */
  Infeasible infeasible; /* when !fits */
  double seconds;
} PlannerResult;

/* Dumps asked for with --dump=a,b: text of each pass. */
typedef enum { DUMP_GRAPH = 1, DUMP_PROGRAM = 2, DUMP_UNITS = 4, DUMP_CHECKPOINT = 8, DUMP_MEMORY = 16, DUMP_PLAN = 32 } DumpMask;

/* Deterministic. User errors (a micro-batch that does not divide, a unit pattern that matches nothing, no cluster)
 * go to the sink. The emitted plan has passed the verifier: a violation here is a bug and aborts with its text. */
void planner_plan(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, unsigned dump,
                  Text *dump_text, PlannerResult *result);

#endif
