/* Owns: why a budget cannot be met: where the smallest plan peaks, what lives there, and what else to ask for. */
#ifndef FSDPC_PLANNER_INFEASIBLE_H
#define FSDPC_PLANNER_INFEASIBLE_H

#include "planner/search/search.h"

/* requires: the smallest plan that was found, placed. provides: all of `out`, of relaxations only the memory that it needs. */
void infeasible_explain(Arena *arena, const Search *search, const Found *found, Infeasible *out);
/* Other requests whose smallest plans need less, one line each. Searches anew; settings and ranks of the search are as before at the end. */
void infeasible_relax(Search *search, const Found *found, Infeasible *out);

#endif
