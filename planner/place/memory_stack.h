/* Owns: the fast way of placing buffers; see memory_stack.c. */
#ifndef FSDPC_PLANNER_MEMORY_STACK_H
#define FSDPC_PLANNER_MEMORY_STACK_H

#include "planner/plan/plan.h"

/* Which of the briefly living buffers are hung first. */
typedef enum {
  STACK_BY_SIZE,
  STACK_BY_AREA, /* bytes times lifetime */
  STACK_ORDERS
} StackOrder;

/* A segment and where its buffers go. */
typedef struct StackInput {
  int32_t first, end; /* list positions */
  int32_t turn;       /* of the loss; end: there is none */
  uint64_t base, top; /* [base, top) where they fit */
  StackOrder order;
} StackInput;

/* Sets the offsets of the segment's buffers that are not persistent. Returns the bytes of arena needed, UINT64_MAX when the
 * segment has no turn. */
uint64_t memory_stack(Plan *plan, const StackInput *input);

#endif
