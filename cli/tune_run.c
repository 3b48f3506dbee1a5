/* Owns: planning the points of a sweep on all cores. Workers are processes: the planner may end one with its own message, and
 * results are plain data in shared memory. Each worker takes the next point that nobody has taken. Who interrupts a sweep is told
 * what it found so far. */
#include "cli/tune.h"

#include "base/child.h"
#include "base/progress.h"
#include "base/remedy.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct Counters {
  atomic_uint next, done;
} Counters;

/* --- one point ------------------------------------------------------------------------------------------- */

static void copy_text(char out[TUNE_TEXT], const char *text) {
  snprintf(out, TUNE_TEXT, "%s", text);
}

/* Last of all: who is killed before has not finished the point. */
static void finish(TunePoint *point, TuneState state) {
  atomic_thread_fence(memory_order_release);
  point->state = state;
}

static void describe(Arena *arena, TunePoint *point, const Graph *graph, const PlannerResult *result) {
  const Plan *plan = result->plan;
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
  finish(point, result->fits ? TUNE_FITS : TUNE_TOO_LARGE);
}

static void describe_impossible(TunePoint *point, const DiagSink *sink) {
  const Diag *first = sink->list.count ? sink->list.data[0] : NULL;
  snprintf(point->why, sizeof point->why, "%s", first ? first->text : "no plan");
  snprintf(point->help, sizeof point->help, "%s", first && first->helps.count ? first->helps.data[0] : "");
  finish(point, TUNE_IMPOSSIBLE);
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

static void say_done(Progress *progress, const Tune *tune, const Counters *counters) {
  enum { BAR = 30 };
  unsigned done = atomic_load(&counters->done), filled = done * BAR / tune->count;
  char line[128];
  snprintf(line, sizeof line, "%u/%u plans, %.1f s  [%.*s%.*s]", done, tune->count, progress_seconds(progress), (int)filled,
           "##############################", BAR - (int)filled, "..............................");
  progress_say(progress, line);
}

/* An exit code. Who exits has said why it does not end well; who was killed could not. */
static int code_of(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return cli_error("a worker was killed by signal %d (%s); by hand, or by the system for want of memory? --jobs N starts fewer",
                   WTERMSIG(status), strsignal(WTERMSIG(status)));
}

/* A child that ended, an interrupt, unless whoever started us has them ignored, as shells do in the background. They are blocked, in
 * workers too, where a terminal sends an interrupt as well. */
static sigset_t awaited_signals(void) {
  static const int ends[] = {SIGINT, SIGTERM};
  sigset_t awaited;
  struct sigaction now;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&awaited, ends[i]);
  return awaited;
}

/* Those that have ended: out of workers[], and *count. The code of one that ended badly, or EXIT_OK. */
static int reap(pid_t *workers, int64_t *count) {
  int code = EXIT_OK;
  for (int64_t w = *count - 1; w >= 0; w--) {
    int status;
    if (waitpid(workers[w], &status, WNOHANG) != workers[w]) continue;
    workers[w] = workers[--*count];
    if (code == EXIT_OK) code = code_of(status);
  }
  return code;
}

/* None of them writes any more. */
static void kill_workers(const pid_t *workers, int64_t count) {
  for (int64_t w = 0; w < count; w++) kill(workers[w], SIGKILL);
  for (int64_t w = 0; w < count; w++) waitpid(workers[w], NULL, 0);
}

/* Waits for the workers, until one ends badly or we are interrupted: then the others are killed. Says how far they are. An exit code. */
static int wait_for(Tune *tune, const Counters *counters, pid_t *workers, int64_t count, const sigset_t *awaited, Progress *progress) {
  static const struct timespec tick = {.tv_nsec = 100000000};
  int code = EXIT_OK;
  while (count > 0 && code == EXIT_OK && !tune->stopped_by) {
    int number = sigtimedwait(awaited, NULL, &tick);
    if (number > 0 && number != SIGCHLD) tune->stopped_by = number;
    code = reap(workers, &count);
    if (progress_due(progress)) say_done(progress, tune, counters);
  }
  kill_workers(workers, count);
  if (progress->open && code == EXIT_OK) say_done(progress, tune, counters);
  progress_keep(progress);
  return code;
}

/* How many of so many could be started. */
static int64_t start_workers(const Tune *tune, Counters *counters, pid_t *workers, int64_t count) {
  pid_t parent = getpid();
  for (int64_t w = 0; w < count; w++) {
    workers[w] = fork();
    if (workers[w] == 0) work(tune, counters, parent);
    if (workers[w] < 0) return w;
  }
  return count;
}

int tune_run(Tune *tune, int64_t jobs) {
  Progress progress = progress_start();
  Counters *counters = shared(sizeof *counters);
  sigset_t awaited = awaited_signals(), before;
  tune->points = shared(tune->count * sizeof *tune->points);
  if (!counters || !tune->points) return cli_error("no memory for %u plans", tune->count);
  if (jobs > (int64_t)tune->count) jobs = tune->count;
  pid_t *workers = ARENA_ARRAY(tune->cli->arena, pid_t, (size_t)jobs);
  fflush(stdout);
  signal(SIGCHLD, SIG_DFL); /* ignored, as some launchers have it, none would come */
  sigprocmask(SIG_BLOCK, &awaited, &before);
  int64_t started = start_workers(tune, counters, workers, jobs);
  int code = started ? wait_for(tune, counters, workers, started, &awaited, &progress) : cli_error("cannot start workers: %s%s", strerror(errno), remedy_of(errno));
  sigprocmask(SIG_SETMASK, &before, NULL);
  munmap(counters, sizeof *counters);
  tune->seconds = progress_seconds(&progress);
  return code;
}
