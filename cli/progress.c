/* Owns: what is said of planning, from when that has taken a while until there is a result. */
#include "cli/executor.h"

#include "base/progress.h"

typedef struct Watcher {
  const Graph *graph;
  Progress progress;
} Watcher;

static void say_stage(Watcher *w, const PlannerStage *stage) {
  char line[256], size[32], time[32];
  int length = snprintf(line, sizeof line, "planning %.100s on %u rank%s ... %.1f s", w->graph->name, stage->ranks,
                        text_plural(stage->ranks), progress_seconds(&w->progress));
  if (stage->budgets)
    length += snprintf(line + length, sizeof line - (size_t)length, "; %u budget%s tried, down to %s", stage->budgets,
                       text_plural(stage->budgets), text_bytes(size, stage->bytes));
  if (stage->step_ns) snprintf(line + length, sizeof line - (size_t)length, "; %s a step", text_time(time, (double)stage->step_ns));
  progress_say(&w->progress, line);
}

/* PlannerProgress. */
static void watch(void *watcher, const PlannerStage *stage) {
  Watcher *w = watcher;
  if (progress_due(&w->progress)) say_stage(w, stage);
}

/* --quiet leaves it out. */
static PlannerOptions watched(const Cli *cli, const PlannerOptions *options, Watcher *watcher) {
  PlannerOptions out = *options;
  watcher->progress = progress_start();
  out.progress = option_given(&cli->options, OPTION_QUIET) ? NULL : watch;
  out.watcher = watcher;
  return out;
}

void plan_watched(Cli *cli, DiagSink *sink, const Graph *graph, const PlannerOptions *options, unsigned dump, Text *dump_text,
                  PlannerResult *result) {
  Watcher watcher = {.graph = graph};
  PlannerOptions with = watched(cli, options, &watcher);
  planner_plan(cli->arena, sink, graph, &with, dump, dump_text, result);
  progress_clear(&watcher.progress);
}

bool plan_executor_watched(Cli *cli, const Graph *graph, const PlannerOptions *options, ExecutorPlan *out) {
  Watcher watcher = {.graph = graph};
  PlannerOptions with = watched(cli, options, &watcher);
  bool good = executor_plan(cli->arena, &cli->sink, graph, &with, out);
  progress_clear(&watcher.progress);
  return good;
}
