/* Owns: plans as texts and files, for tests. */
#ifndef FSDPC_TESTS_PLAN_READING_H
#define FSDPC_TESTS_PLAN_READING_H

#include "planner/plan/plan_text.h"

typedef struct Read {
  SourceSet sources;
  DiagSink sink;
  Plan *plan; /* NULL after an error */
} Read;

/* A file of this process; each takes the place of the one before. */
const char *write_file(Arena *arena, const char *data, size_t length);
Read *read_text(Arena *arena, const char *data, size_t length);
Text written(Arena *arena, const Plan *plan);
/* Fails the test, and says why the text was refused. */
void fail_with(DiagSink *sink);

#endif
