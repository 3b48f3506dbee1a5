/* Owns: placing a segment's buffers from the bottom upward, taking back what leads nowhere; see memory_levels.c. */
#ifndef FSDPC_PLANNER_MEMORY_LEVELS_H
#define FSDPC_PLANNER_MEMORY_LEVELS_H

#include "planner/place/memory_order.h"

/* Keeps that if it reaches the goal, which is at least what is live at once. effort: entries that may be looked at, as of gaps; what was is taken
 * off. Nothing is tried where that many buffers would take long. */
void memory_levels(Placing *placing, uint64_t *effort);

#endif
