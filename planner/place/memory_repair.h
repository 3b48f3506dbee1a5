/* Owns: placing again, among others that stay, what ends above the goal together with what lives nearby. */
#ifndef FSDPC_PLANNER_MEMORY_REPAIR_H
#define FSDPC_PLANNER_MEMORY_REPAIR_H

#include "planner/place/memory_order.h"

/* Changes addresses that all buffers of `placing` have. part: prepared for as many; what it holds is lost. Gives up where a few stay above. */
void memory_repair(const Placing *placing, Placing *part);

#endif
