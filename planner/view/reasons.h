/* Owns: why a plan is as it is, in sentences: what each policy saves and costs, and what binds. */
#ifndef FSDPC_PLANNER_VIEW_REASONS_H
#define FSDPC_PLANNER_VIEW_REASONS_H

#include "planner/view/facts.h"

typedef VEC(const char *) Reasons;

/* Sharding, recomputation, what the budget has left, and (with costs) the bound. costs: with times. */
Reasons reasons_of(const Facts *facts, bool costs);

#endif
