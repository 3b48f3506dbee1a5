/* Owns: the thorough search: strict in the budget. Which budgets are anchors does not depend on the budget asked for, nor does the plan
 * of an anchor; the fastest plan of all anchors up to a budget is therefore never slower than that of a smaller one.
 * What an anchor's plan may be made of is bounded under every larger budget too. So where the bound of an anchor, units of all sizes that may be
 * tried included (search_bound_sizes), is not below the best step, neither are plans of anchors below it, and few of them are searched.
 * Budgets for which no anchor up to them has a plan are left to the smallest plan: those within one step of the grid of what is needed at least. */
#ifndef FSDPC_PLANNER_SEARCH_ANCHORS_H
#define FSDPC_PLANNER_SEARCH_ANCHORS_H

#include "planner/search/search_candidates.h"

/* The fastest plan of the anchors up to search->budget; found->plan is NULL if none has a plan. Leaves the bounds of candidates under
 * that budget, the least over the found plan's units too. False after diagnostics. */
bool search_anchors(Search *search, Candidates *candidates, Found *found);

#endif
