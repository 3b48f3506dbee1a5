/* Owns: whose fault it is that compute waits. */
#ifndef FSDPC_PLANNER_VIEW_EXPOSED_H
#define FSDPC_PLANNER_VIEW_EXPOSED_H

#include "planner/view/facts.h"

/* One a instruction: ns of one repetition in which compute stands idle while this collective runs. Of several at
 * once the one that the next computation waits for is charged. The sum over all, times the repetitions, is the simulator's
 * exposed_comm_ns. requires: facts->recorder and segment_begin. */
uint64_t *exposed_by_instr(const Facts *facts);

#endif
