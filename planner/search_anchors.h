/* Owns: the thorough search: strict in the budget. Which budgets are anchors does not depend on the budget asked for, nor does the plan
 * of an anchor; the fastest plan of all anchors up to a budget is therefore never slower than that of a smaller one.
 * Anchors below one whose bound is not below the best step cannot be better, so that few of them are searched. */
#ifndef FSDPC_PLANNER_SEARCH_ANCHORS_H
#define FSDPC_PLANNER_SEARCH_ANCHORS_H

#include "planner/search_candidates.h"

/* The fastest plan of the anchors up to search->budget; found->plan is NULL if none has a plan. Leaves the bounds of candidates under
 * that budget, the least over the found plan's units too. False after diagnostics. */
bool search_anchors(Search *search, Candidates *candidates, Found *found);
/* The fastest plan that a search under Search.budget finds, candidates bounded; found->plan is NULL if it finds none. False after
 * diagnostics. */
bool search_within(Search *search, Candidates *candidates, Found *found);

#endif
