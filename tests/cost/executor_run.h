/* Owns: a model's file opened for predictions under an executor, and figures compared: what tests of one pinned policy share. */
#ifndef FSDPC_TESTS_COST_EXECUTOR_RUN_H
#define FSDPC_TESTS_COST_EXECUTOR_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/executor/executor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct Run {
  Arena *arena;
  SourceSet sources;
  DiagSink sink;
  Graph *graph;
  PlanSettings settings;
  ExecutorWorld world;
  ExecutorPrediction out;
} Run;

/* All ranks in one node, one micro-batch a step. */
static inline void run_open(Run *run, const char *path, uint32_t ranks, int64_t micro_batch) {
  memset(run, 0, sizeof *run);
  run->arena = arena_new();
  run->sources.arena = run->arena;
  run->sink = (DiagSink){.arena = run->arena, .sources = &run->sources};
  run->graph = frontend_compile(run->arena, &run->sources, &run->sink, path, &(FrontendOptions){0});
  if (!run->graph) fprintf(stderr, "%s does not compile\n", path);
  assert_non_null(run->graph);
  run->settings = run->graph->plan;
  run->world = (ExecutorWorld){.ranks = ranks, .shard = ranks, .ranks_per_node = ranks, .micro_batch = micro_batch, .accumulation = 1};
}

static inline ExecutorPrediction predict(Run *run) {
  assert_true(executor_predict(run->arena, &run->sink, run->graph, &run->settings, &run->world, &run->out));
  return run->out;
}

static inline void near(const char *what, double value, double expected, double relative) {
  if (fabs(value - expected) > relative * fabs(expected)) fprintf(stderr, "%s: %.9g, expected %.9g\n", what, value, expected);
  assert_true(fabs(value - expected) <= relative * fabs(expected));
}

#endif
