/* Owns: planning the points of a sweep on all cores. Workers are processes: the planner may end one with its own message, and
 * results are plain data in shared memory. Each worker takes the next point that nobody has taken. */
#include "cli/tune.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/terminal.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Counters {
  atomic_uint next, done;
} Counters;

/* --- one point ------------------------------------------------------------------------------------------- */

static void copy_text(char out[TUNE_TEXT], const char *text) {
  snprintf(out, TUNE_TEXT, "%s", text);
}

static void describe(Arena *arena, TunePoint *point, const Graph *graph, const PlannerResult *result) {
  const Plan *plan = result->plan;
  point->state = result->fits ? TUNE_FITS : TUNE_TOO_LARGE;
  point->ranks = plan->world.ranks;
  point->shard = plan->world.shard;
  point->prefetch = plan->summary.prefetch;
  point->micro_batch = plan->world.micro_batch;
  point->accumulation = plan->world.accumulation;
  point->step_ns = result->sim.step_ns;
  point->lower_bound_ns = plan->summary.lower_bound_ns;
  point->exposed_ns = result->sim.exposed_comm_ns;
  point->arena_bytes = plan->arena_bytes;
  point->budget_bytes = plan->summary.budget_bytes;
  point->samples = (double)plan->world.micro_batch * (double)plan->world.accumulation * plan->world.ranks;
  double tokens = point->samples * (plan->inputs.count ? (double)plan->inputs.data[0].sample_numel : 1);
  point->ns_per_token = (double)point->step_ns / tokens;
  point->usd_per_million = graph->cluster.price_per_hour * plan->world.ranks * point->ns_per_token * 1e6 / 3600e9;
  copy_text(point->strategy, plan_strategy(arena, plan));
  copy_text(point->wrap, plan_str(plan, plan->summary.wrap));
  copy_text(point->checkpoint, plan_str(plan, plan->summary.checkpoint));
}

static void describe_impossible(TunePoint *point, const DiagSink *sink) {
  const Diag *first = sink->list.count ? sink->list.data[0] : NULL;
  point->state = TUNE_IMPOSSIBLE;
  snprintf(point->why, sizeof point->why, "%s", first ? first->text : "no plan");
  snprintf(point->help, sizeof point->help, "%s", first && first->helps.count ? first->helps.data[0] : "");
}

/* The command line of this point alone. */
static Cli cli_of(const Tune *tune, Arena *arena, uint32_t p) {
  Cli cli = *tune->cli;
  cli.arena = arena;
  cli.sink = (DiagSink){.arena = arena, .sources = &tune->cli->sources};
  for (int d = 1; d < TUNE_DIMS; d++) {
    Words one = {0};
    vec_push(arena, &one, tune_value(tune, p, d));
    cli.options.given[tune->dims[d].option] = one;
  }
  return cli;
}

bool tune_leaves_host(const Cli *cli, const Graph *graph) {
  return graph->plan.offload == SETTING_AUTO && !option_text(&cli->options, OPTION_OFFLOAD, NULL);
}

static void plan_point(const Tune *tune, uint32_t p) {
  Arena *arena = arena_new();
  Cli cli = cli_of(tune, arena, p);
  const Graph *graph = tune->graphs[p % tune->dims[0].values.count];
  PlannerOptions options;
  PlannerResult result = {0};
  TunePoint *point = &tune->points[p];
  compile_options_of_planner(&cli, graph, &options); /* was checked before workers started */
  if (tune_leaves_host(&cli, graph)) options.settings.offload = 0;
  options.brief = true;
  planner_plan(arena, &cli.sink, graph, &options, 0, NULL, &result);
  if (result.plan)
    describe(arena, point, graph, &result);
  else
    describe_impossible(point, &cli.sink);
  arena_free(arena);
}

/* --- workers --------------------------------------------------------------------------------------------- */

_Noreturn static void work(const Tune *tune, Counters *counters, pid_t parent) {
  if (!child_ends_with(parent)) _exit(EXIT_INVALID);
  for (uint32_t p; (p = atomic_fetch_add(&counters->next, 1)) < tune->count;) {
    plan_point(tune, p);
    atomic_fetch_add(&counters->done, 1);
  }
  _exit(EXIT_OK);
}

static void *shared(size_t size) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static void progress(const Tune *tune, const Counters *counters, double seconds, bool last) {
  enum { BAR = 30 };
  unsigned done = atomic_load(&counters->done), filled = done * BAR / tune->count;
  char line[128];
  snprintf(line, sizeof line, "%u/%u plans, %.1f s  [%.*s%.*s]", done, tune->count, seconds, (int)filled,
           "##############################", BAR - (int)filled, "..............................");
  terminal_cut(line);
  fprintf(stderr, "\r%s\033[K%s", line, last ? "\n" : "");
}

/* An exit code. Who exits has said why it does not end well; who was killed could not. */
static int code_of(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return cli_error("a worker was killed by signal %d (%s); by hand, or by the system for want of memory? --jobs N starts fewer",
                   WTERMSIG(status), strsignal(WTERMSIG(status)));
}

/* Waits for the workers, until one ends badly: the others end with us. Shows how far they are on a terminal. An exit code. */
static int wait_for(const Tune *tune, const Counters *counters, int64_t workers, double start) {
  bool shows = terminal_shows_progress();
  int code = EXIT_OK;
  while (workers > 0 && code == EXIT_OK) {
    int status;
    pid_t ended = waitpid(-1, &status, shows ? WNOHANG : 0);
    if (ended > 0) {
      workers--;
      code = code_of(status);
    } else if (ended < 0 && errno != EINTR) {
      return cli_error("cannot wait for workers: %s", strerror(errno));
    } else if (ended == 0) {
      progress(tune, counters, clock_seconds() - start, false);
      usleep(100000);
    }
  }
  if (shows && code == EXIT_OK) progress(tune, counters, clock_seconds() - start, true);
  return code;
}

int tune_run(Tune *tune, int64_t jobs) {
  double start = clock_seconds();
  Counters *counters = shared(sizeof *counters);
  tune->points = shared(tune->count * sizeof *tune->points);
  if (!counters || !tune->points) return cli_error("no memory for %u plans", tune->count);
  if (jobs > (int64_t)tune->count) jobs = tune->count;
  fflush(stdout);
  int64_t started = 0;
  pid_t parent = getpid();
  for (; started < jobs; started++) {
    pid_t child = fork();
    if (child == 0) work(tune, counters, parent);
    if (child < 0) break;
  }
  if (!started) return cli_error("cannot start workers: %s", strerror(errno));
  int code = wait_for(tune, counters, started, start);
  munmap(counters, sizeof *counters);
  tune->seconds = clock_seconds() - start;
  return code;
}
