/* Owns: what pinned settings say of each other. A strategy names how often parameters are gathered and gradients reduced, and
 * whether parameters are released between forward and backward; the same can be pinned by itself. */
#ifndef FSDPC_PLANNER_PINS_H
#define FSDPC_PLANNER_PINS_H

#include "base/diag.h"
#include "frontend/graph.h"

/* False with diagnostics where two of them cannot both be had. */
bool pins_agree(DiagSink *sink, const PlanSettings *settings);
/* Whether parameters, all or those of a unit, are to be released between forward and backward. */
bool pins_release(const PlanSettings *settings);
/* With what follows from others; requires pins_agree. */
PlanSettings pins_completed(PlanSettings settings);

#endif
