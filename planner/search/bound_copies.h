/* Owns: what compute waits for because results that are never run again are kept in host memory, for bound_waits.h. */
#ifndef FSDPC_PLANNER_BOUND_COPIES_H
#define FSDPC_PLANNER_BOUND_COPIES_H

#include "planner/search/bound_windows.h"

/* Lists it. */
void copies_wait(Finder *f);

#endif
