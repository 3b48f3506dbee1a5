/* Owns: placing a segment's buffers from where memory is tightest; see memory_core.c. */
#ifndef FSDPC_PLANNER_MEMORY_CORE_H
#define FSDPC_PLANNER_MEMORY_CORE_H

#include "planner/place/memory_order.h"

/* Until the goal is reached; keeps the best. effort: entries of the placing's gaps that may be looked at;
 * what was is taken off. */
void memory_core(Placing *placing, uint64_t *effort);

#endif
