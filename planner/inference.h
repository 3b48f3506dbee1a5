/* Owns: the forward plan, which generates token by token for one sample on one rank: nothing to search, but two programs.
 * "prefill" runs PREFILL_ROWS tokens at a time and only fills the caches of keys and values, "decode" one token, and ends
 * with its logits (plan.h). */
#ifndef FSDPC_PLANNER_INFERENCE_H
#define FSDPC_PLANNER_INFERENCE_H

#include "planner/search/search.h"

/* requires: search->ranks is 1. False after diagnostics: tokens of the model cannot be computed one after the other. */
bool inference_plan(Search *search, Found *found);

#endif
