/* Owns: the fast way of placing buffers; see memory_stack.c. */
#ifndef FSDPC_PLANNER_MEMORY_STACK_H
#define FSDPC_PLANNER_MEMORY_STACK_H

#include "planner/plan/plan.h"

/* Sets the offsets of all buffers that are not persistent, in [base, top) where they fit; turn: list position of the loss.
 * Returns the bytes of arena needed, UINT64_MAX when the plan has no turn. */
uint64_t memory_stack(Plan *plan, uint64_t base, uint64_t top, int32_t turn);

#endif
