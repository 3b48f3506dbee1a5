/* Owns: how many ranks a job has, how they fill nodes, and whether a step's samples can be cut over them: the same for this
 * project's runtime and for other executors. */
#ifndef FSDPC_PLANNER_WORLD_H
#define FSDPC_PLANNER_WORLD_H

#include "planner/planner.h"

enum { MOST_RANKS_OF_A_JOB = 1 << 20 };

typedef struct World {
  uint32_t ranks, ranks_per_node;
} World;

/* That there is a device, and how fast it computes. False with a diagnostic. */
bool world_knows_device(DiagSink *sink, const Graph *graph);
/* All devices of the cluster in its nodes, unless the options say otherwise. False with a diagnostic where ranks do not fill
 * nodes, or nothing connects ranks in a node, or nodes. */
bool world_choose(DiagSink *sink, const Graph *graph, const PlannerOptions *options, World *out);
/* That a step can be cut into micro-batches of so many samples on every rank. False with a diagnostic. */
bool world_cuts_step(DiagSink *sink, const Graph *graph, uint32_t ranks, int64_t micro_batch);
/* That times of a step that takes so long can be stated: they are integers. False with a diagnostic. */
bool world_states_time(DiagSink *sink, const Graph *graph, double ns);

#endif
