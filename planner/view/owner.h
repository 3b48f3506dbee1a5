/* Owns: which unit an instruction serves. */
#ifndef FSDPC_PLANNER_VIEW_OWNER_H
#define FSDPC_PLANNER_VIEW_OWNER_H

#include "planner/plan/plan.h"

/* One a instruction, or PLAN_NONE: the unit whose parameters, gradients or moments it touches; else that of the
 * parameters nearest in name ("h.3.mlp.gelu" lies with "h.3.mlp.c_fc"); else that of the instruction before. */
int32_t *owners_of(Arena *arena, const Plan *plan, const InstrSpec *specs);

#endif
