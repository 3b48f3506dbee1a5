/* Owns: times and sizes of a program's operators and of a grouping's units, from the cost model. The search reads only
 * these; the cost model is asked once. */
#ifndef FSDPC_PLANNER_FIGURES_H
#define FSDPC_PLANNER_FIGURES_H

#include "planner/schedule/schedule.h"

/* Fills flops, bytes and ns of every op. */
void figures_of_program(Program *program, const Cluster *cluster);
/* By unit. world and outer: ranks, shard, replicas and ranks_per_node are set, of outer accumulation, offload and reduce_once too. */
UnitFigures *figures_of_units(Arena *arena, const Program *program, const UnitSet *units, const Cluster *cluster,
                              const PlanWorld *world, const Decisions *outer);
StepFigures figures_of_step(const Program *program, const Cluster *cluster, const PlanWorld *world);
/* Bytes that persist on one rank: master, cast, gradient and optimizer shards of all units, and what decisions hold over
 * micro-batches. */
uint64_t figures_persistent(const Program *program, const UnitSet *units, const Decisions *decisions);
/* Bytes of what the decisions leave in host memory for good. */
uint64_t figures_host(const Program *program, const UnitSet *units, const Decisions *decisions);

#endif
