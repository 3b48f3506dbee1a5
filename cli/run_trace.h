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

/* False after a message: nothing could be written there once the run has ended. */
bool trace_writer_open(Cli *cli, const char *path, TraceWriter *writer);

#endif
