/* Owns: what else is tried beside the units that are listed, where a plan is not near its bound: units of other sizes, of its outer choice and of
 * others; and units that are all released after forward, or all kept, which leaves moves less to choose and less to get stuck in. */
#ifndef FSDPC_PLANNER_SEARCH_SIZES_H
#define FSDPC_PLANNER_SEARCH_SIZES_H

#include "planner/search/search_candidates.h"

/* Replaces `found` by a better plan in units of other sizes, if there is one. least: falls to the bound of what is tried. False after
 * diagnostics. */
bool search_other_sizes(Search *search, const Candidates *candidates, Found *found, Bound *least);
/* Likewise, in units that are kept or released alike. False after diagnostics. */
bool search_kept_alike(Search *search, const Candidates *candidates, Found *found, Bound *least);
/* Likewise, where there is none yet and the model is small. False after diagnostics. */
bool search_fit(Search *search, const Candidates *candidates, Found *found, Bound *least);

#endif
