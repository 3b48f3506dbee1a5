/* Owns: what completes an emitted plan: addresses, then the events that follow from them. */
#ifndef FSDPC_PLANNER_PLACE_H
#define FSDPC_PLANNER_PLACE_H

#include "planner/plan/plan.h"

/* memory.c. requires: lifetimes. provides: offsets, arena_bytes; stops trying once they are at most `goal`. effort: what may be
 * spent on hard cases beyond the quick ways; less what was. */
void memory_place(Plan *plan, uint64_t goal, uint64_t *effort);
/* events.c. requires: offsets. provides: waits, records. paced: gathers also wait for the compute that they are issued after. */
void events_insert(Arena *arena, Plan *plan, const InstrSpec *specs, bool paced);

#endif
