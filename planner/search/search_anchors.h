/* Owns: the thorough search: strict in the budget. Which budgets are anchors does not depend on the budget asked for, nor does the plan
 * of an anchor; the fastest plan of all anchors up to a budget is therefore never slower than that of a smaller one.
 * Anchors below one whose bound is not below the best step cannot be better, so that few of them are searched. That leaves out units of sizes
 * that are tried beside those that bounds cover (search_groupings): should one beat a bound, an anchor below may be missed. */
#ifndef FSDPC_PLANNER_SEARCH_ANCHORS_H
#define FSDPC_PLANNER_SEARCH_ANCHORS_H

#include "planner/search/search_candidates.h"

/* The fastest plan of the anchors up to search->budget; found->plan is NULL if none has a plan. Leaves the bounds of candidates under
 * that budget, the least over the found plan's units too. False after diagnostics. */
bool search_anchors(Search *search, Candidates *candidates, Found *found);

#endif
