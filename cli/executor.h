/* Owns: what `predict` and `plan --executor` share. */
#ifndef FSDPC_CLI_EXECUTOR_H
#define FSDPC_CLI_EXECUTOR_H

#include "planner/executor_search.h"

/* A note on stderr where no published run calibrates what times rest on. */
void executor_note_assumed(const Graph *graph, const PlanSettings *settings, const ExecutorWorld *world);

#endif
