/* Owns: the thorough search: strict in the budget. Which budgets are anchors does not depend on the budget asked for, nor does the plan
 * of an anchor; the fastest plan of all anchors up to a budget is therefore never slower than that of a smaller one.
 * What an anchor's plan may be made of is bounded under every larger budget too. So where the bound of an anchor, units of all sizes that may be
 * tried included (search_bound_sizes), is not below the best step, neither are plans of anchors below it, and few of them are searched.
 * The smallest plan, and those that are found below it by halves, are the same whatever is asked for: they count under every budget that they
 * fit, and what the smallest of them takes is an anchor too. Below all of these nothing fits, whatever the search under that very budget would
 * find: a larger one might not find it again. */
#ifndef FSDPC_PLANNER_SEARCH_ANCHORS_H
#define FSDPC_PLANNER_SEARCH_ANCHORS_H

#include "planner/search/search_candidates.h"

/* The fastest plan of the anchors up to search->budget and of the smallest plans; found->plan is NULL if none fits. Leaves the bounds of
 * candidates under that budget, the least over the found plan's units too. False after diagnostics. */
bool search_anchors(Search *search, Candidates *candidates, Found *found);

#endif
