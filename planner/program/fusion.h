/* Owns: nothing; which layers become one instruction together. */
#ifndef FSDPC_PLANNER_FUSION_H
#define FSDPC_PLANNER_FUSION_H

#include "frontend/graph.h"

/* By graph op: of a silu the product that computes it, and of such a product that silu; -1 for all others. `settings` has the rules
 * that may name a silu by itself; NULL: none do. */
int32_t *fusion_find(Arena *arena, const Graph *graph, const PlanSettings *settings);

#endif
