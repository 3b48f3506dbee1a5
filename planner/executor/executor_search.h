/* Owns: planning for somebody else's executor. What PyTorch can be told (units of neighbouring blocks, what is resharded, which
 * blocks are checkpointed, how far ahead it gathers, how wide it shards, how a step is cut into micro-batches) is a grid small
 * enough to try whole, so the choice is the best of it, a larger budget is never slower, and equal input gives equal output. */
#ifndef FSDPC_PLANNER_EXECUTOR_SEARCH_H
#define FSDPC_PLANNER_EXECUTOR_SEARCH_H

#include "planner/executor/executor.h"
#include "planner/planner.h"

/* The decisions; each is pinned by the file or an option, or has several values. */
typedef enum {
  AXIS_SHARD,       /* ranks that one copy of the states is divided over */
  AXIS_MICRO_BATCH, /* samples */
  AXIS_REDUCE,      /* when gradients are reduced */
  AXIS_CHECKPOINT,  /* blocks that run again in backward */
  AXIS_UNITS,       /* blocks in a unit */
  AXIS_RESHARD,
  AXIS_PREFETCH,
  AXIS_OFFLOAD, /* of parameters, gradients and optimizer together */
  AXIS_COUNT
} ExecutorAxis;

const char *executor_axis_name(ExecutorAxis axis);

/* The best policy in which one decision is another, and what it costs beside the chosen one. */
typedef struct RunnerUp {
  ExecutorAxis axis;
  const char *value;
  bool fits;
  double ns_per_sample; /* when it fits */
  double reserved_bytes; /* of the fastest that fits, else of the smallest */
  const char *lost; /* why: "recompute +1.2 s", "needs 81 GiB" */
} RunnerUp;

/* As it is gathered: blocks first .. last; or modules before the blocks or after them; or the root, which is what is left. */
typedef struct PlannedUnit {
  const char *name, *last;
  uint32_t blocks;           /* 0: modules outside of blocks, as the root is unless all is one unit */
  VEC(const char *) modules; /* of such a unit, in order */
  double numel;
  int32_t reshard;                /* as PlanSettings.reshard */
  double gather_bytes, gather_ns; /* of the gathered unit; over the whole step */
} PlannedUnit;

typedef struct ExecutorPlan {
  bool fits;               /* else everything below describes the smallest policy found */
  PlanSettings settings;   /* every decision pinned: predicting them gives the prediction below */
  ExecutorWorld world;
  ExecutorPrediction prediction;
  double budget_bytes;                /* of reserved memory */
  const char *chosen[AXIS_COUNT];     /* values as text */
  bool idle[AXIS_COUNT];              /* makes no difference beside the others */
  VEC(PlannedUnit) units;             /* the root first */
  uint32_t candidates;                /* policies compared */
  VEC(RunnerUp) runners;              /* by axis */
  Relaxations relaxations;            /* when !fits: "ranks 16: reserves 55.1 GiB, fits" */
} ExecutorPlan;

/* [AXIS_COUNT] the decisions of a policy as executor_predict() understands it, what it leaves open included; NULL: makes no difference. */
void executor_policy_words(Arena *arena, const Graph *graph, const PlanSettings *settings, const ExecutorWorld *world, const char **words);

/* False with diagnostics. Strategy auto tries every width; shard_optim is none that PyTorch has. */
bool executor_plan(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, ExecutorPlan *out);

/* Whether any policy fits, which is found sooner than the best. False with diagnostics. */
bool executor_fits(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, bool *fits);

/* The world of a policy that is pinned: all devices, one sample a rank, as many micro-batches as a step's samples ask for, unless
 * options and settings say otherwise. False with a diagnostic: as of world.h. */
bool executor_world(DiagSink *sink, const Graph *graph, const PlannerOptions *options, ExecutorWorld *out);

#endif
