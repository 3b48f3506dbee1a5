/* Owns: outer choices (micro-batch, shard width, offload, cadences) as candidates: which there are, how long a plan of each takes at
 * least, and which are searched. */
#ifndef FSDPC_PLANNER_SEARCH_CANDIDATES_H
#define FSDPC_PLANNER_SEARCH_CANDIDATES_H

#include "planner/search/search.h"

typedef struct Candidate {
  Outer outer;
  Bound bound;       /* the least of its groupings under Candidates.budget, or no more than that; 0: found with the plan */
  bool exact;        /* it is the least of them */
  bool leads;        /* the first of its micro-batch */
  Grouping grouping; /* Tried's, when it was tried in full */
  uint64_t estimate_ns; /* likewise; 0: it was not tried, or its estimates say little */
  uint32_t order;
} Candidate;

typedef struct Candidates {
  Candidate *data; /* by bound */
  uint32_t count;
  uint64_t budget; /* under which they are bounded, 0: none yet */
  Bound least;     /* of all of them, and of units of other sizes that were tried */
} Candidates;

/* All that the settings leave open, for micro[0..count). In search->arena. */
Candidates candidates_list(Search *search, const int64_t *micro, uint32_t count);
/* Bounds anew, under search->budget, best first: exactly what comes near the least bound, others no further than that takes. Where there is no
 * choice, the bound is found with the plan. False after diagnostics. */
bool candidates_bound(Search *search, Candidates *candidates);
/* Likewise, also where there is no choice: for a plan that was not found by trying it. False after diagnostics. */
bool candidates_bound_each(Search *search, Candidates *candidates);
/* Replaces `found` by a better plan of those that leave hope for one. False after diagnostics. */
bool candidates_try(Search *search, Candidates *candidates, Found *found);
/* Likewise, of policies that people set by hand, which it is never slower than. False after diagnostics. */
bool candidates_by_hand(Search *search, const Candidates *candidates, Found *found);
/* The fastest plan that a search of them, bounded, finds under search->budget; found->plan is NULL if it finds none. False after diagnostics. */
bool search_within(Search *search, Candidates *candidates, Found *found);
/* What is left to do for a plan that fits search->budget. False after diagnostics. */
bool search_finish(Search *search, Found *found);
/* The smallest placed plan of those that run everything again; it is the same under every budget. False after diagnostics. */
bool search_place_smallest(Search *search, const Candidates *candidates, Found *found);
/* Likewise, or where that exceeds the budget one that fits, if there is one among the smallest choices. False after diagnostics. */
bool search_find_smallest(Search *search, const Candidates *candidates, Found *found);
/* Where a smaller plan than that is looked for: between a budget under which none was found and the least under which one was. */
typedef struct Halves {
  uint64_t none, some;
  uint64_t effort; /* of placing, for each budget */
} Halves;
Halves search_halves(const Found *smallest);
/* Whether that is not yet so close to the smallest that looking further is in vain. */
bool search_halves_left(const Halves *halves);
/* Looks under the budget in the middle, and moves there what is between; found->plan is NULL where there is none. What is found depends on the
 * smallest plan alone. False after diagnostics. */
bool search_half(Search *search, Candidates *candidates, Halves *halves, Found *found);

#endif
