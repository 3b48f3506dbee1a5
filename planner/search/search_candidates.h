/* Owns: outer choices (micro-batch, shard width, offload, cadences) as candidates: which there are, how long a plan of each takes at
 * least, and which are searched. */
#ifndef FSDPC_PLANNER_SEARCH_CANDIDATES_H
#define FSDPC_PLANNER_SEARCH_CANDIDATES_H

#include "planner/search/search.h"

typedef struct Candidate {
  Outer outer;
  Bound bound;       /* the least of its groupings under Search.budget; 0: found with the plan */
  Grouping grouping; /* Tried's, when it was tried in full */
  uint64_t estimate_ns; /* likewise; 0: it was not tried, or its estimates say little */
  uint32_t order;
} Candidate;

typedef struct Candidates {
  Candidate *data;
  uint32_t count;
} Candidates;

/* All that the settings leave open, for micro[0..count). In search->arena. */
Candidates candidates_list(Search *search, const int64_t *micro, uint32_t count);
/* Bounds anew, best first. Where there is no choice, the bound is found with the plan. False after diagnostics. */
bool candidates_bound(Search *search, Candidates *candidates);
/* Likewise, also where there is no choice: for a plan that was not found by trying it. False after diagnostics. */
bool candidates_bound_each(Search *search, Candidates *candidates);
/* Replaces `found` by a better plan of those that leave hope for one. False after diagnostics. */
bool candidates_try(Search *search, Candidates *candidates, Found *found);
/* The fastest plan that a search of them, bounded, finds under search->budget; found->plan is NULL if it finds none. False after diagnostics. */
bool search_within(Search *search, Candidates *candidates, Found *found);
/* The smallest placed plan of all, which may exceed the budget. False after diagnostics. */
bool search_find_smallest(Search *search, const Candidates *candidates, Found *found);

#endif
