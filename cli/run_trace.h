/* Owns: the trace that `run --trace` writes. */
#ifndef FSDPC_CLI_RUN_TRACE_H
#define FSDPC_CLI_RUN_TRACE_H

#include "cli/cli.h"
#include "runtime/runtime.h"

typedef struct TraceWriter {
  StepObserver observer; /* first: the runtime hands it back */
  Arena *arena;
  const char *path;
} TraceWriter;

TraceWriter trace_writer(Cli *cli, const char *path);

#endif
