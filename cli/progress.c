/* Owns: the line on a terminal that says what is being planned, from when that has taken a while until there is a result. */
#include "cli/executor.h"

#include "base/clock.h"
#include "base/terminal.h"

static const double PATIENCE = 0.5, BETWEEN_LINES = 0.1; /* seconds */

typedef struct Watcher {
  const Graph *graph;
  double start, shown; /* 0: nothing was shown yet */
} Watcher;

static void print_stage(const Watcher *w, const PlannerStage *stage, double seconds) {
  char line[256], size[32], time[32];
  int length = snprintf(line, sizeof line, "planning %.100s on %u rank%s ... %.1f s", w->graph->name, stage->ranks,
                        text_plural(stage->ranks), seconds);
  if (stage->budgets)
    length += snprintf(line + length, sizeof line - (size_t)length, "; %u budget%s tried, down to %s", stage->budgets,
                       text_plural(stage->budgets), text_bytes(size, stage->bytes));
  if (stage->step_ns) snprintf(line + length, sizeof line - (size_t)length, "; %s a step", text_time(time, (double)stage->step_ns));
  terminal_cut(line);
  fprintf(stderr, "\r%s\033[K", line);
}

/* PlannerProgress. */
static void show(void *watcher, const PlannerStage *stage) {
  Watcher *w = watcher;
  double now = clock_seconds();
  if (now - w->start < PATIENCE || now - w->shown < BETWEEN_LINES) return;
  w->shown = now;
  print_stage(w, stage, now - w->start);
}

static PlannerOptions watched(const PlannerOptions *options, Watcher *watcher) {
  PlannerOptions out = *options;
  watcher->start = clock_seconds();
  out.progress = terminal_shows_progress() ? show : NULL;
  out.watcher = watcher;
  return out;
}

static void clear(const Watcher *w) {
  if (w->shown > 0) fprintf(stderr, "\r\033[K");
}

void plan_watched(Cli *cli, DiagSink *sink, const Graph *graph, const PlannerOptions *options, unsigned dump, Text *dump_text,
                  PlannerResult *result) {
  Watcher watcher = {.graph = graph};
  PlannerOptions with = watched(options, &watcher);
  planner_plan(cli->arena, sink, graph, &with, dump, dump_text, result);
  clear(&watcher);
}

bool plan_executor_watched(Cli *cli, const Graph *graph, const PlannerOptions *options, ExecutorPlan *out) {
  Watcher watcher = {.graph = graph};
  PlannerOptions with = watched(options, &watcher);
  bool good = executor_plan(cli->arena, &cli->sink, graph, &with, out);
  clear(&watcher);
  return good;
}
