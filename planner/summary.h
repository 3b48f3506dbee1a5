/* Owns: what a plan says of itself at its head (PlanSummary): which policy was found, what it costs, how far it is from the bound. */
#ifndef FSDPC_PLANNER_SUMMARY_H
#define FSDPC_PLANNER_SUMMARY_H

#include "planner/search/search.h"

/* The outer choice that the bound is of, in words, parted by "; ", for what the plan decided otherwise; NULL: it is the plan's own. */
const char *summary_bound_of(Arena *arena, const Search *search, const Found *found);

/* requires: a placed plan with events; where it does not fit, times are 0. provides: found->plan->summary, its texts in the arena. */
void summary_fill(Arena *arena, const Search *search, const Found *found);

#endif
