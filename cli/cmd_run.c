/* Owns: `fsdpc run`: a plan, checked once more, handed to the runtime. */
#include "cli/run_trace.h"

#include "planner/plan/plan_text.h"
#include "planner/plan/verify.h"

#include <signal.h>
#include <sys/stat.h>

enum { MOST_STEPS = 1 << 30, MOST_LOCAL_RANKS = 256, MOST_SECONDS = 1 << 24, TIMEOUT_S = 600 };

/* What a run was planned from, so that its restarts are too: the files may have been edited meanwhile. */
typedef struct Origin {
  Graph *graph; /* NULL: a finished plan */
  PlannerOptions options;
} Origin;

static bool check_saving(const Options *options) {
  static const OptionId need_save[] = {OPTION_SAVE_EVERY, OPTION_KEEP, OPTION_MAX_RESTARTS};
  const char *resume = option_text(options, OPTION_RESUME, NULL);
  bool newest = resume && strcmp(resume, "auto") == 0;
  for (size_t i = 0; i < sizeof need_save / sizeof *need_save; i++)
    if (option_given(options, need_save[i]) && !option_given(options, OPTION_SAVE))
      return usage_error("add --save DIR", "--%s has no effect without --save", option_info(need_save[i])->name), false;
  if (newest && !option_given(options, OPTION_SAVE))
    return usage_error("add --save DIR", "--resume auto looks for checkpoints in the folder of --save"), false;
  if (option_given(options, OPTION_MIN_RANKS) && !option_given(options, OPTION_MAX_RESTARTS))
    return usage_error("add --max-restarts N", "--min-ranks has no effect without --max-restarts"), false;
  if (resume && !newest && option_given(options, OPTION_INIT))
    return usage_error(NULL, "--init and --resume both say where weights come from; give one, or --resume auto"), false;
  return true;
}

static bool read_options(const Cli *cli, TrainOptions *train) {
  const Options *options = &cli->options;
  int64_t steps = 0, every = 0, threads = 0, keep = 0, timeout = TIMEOUT_S, eval_every = 0, eval_batches = 0;
  const char *backend, *gemm;
  if (!option_backend(options, &backend) || !option_gemm(options, &gemm) ||
      !option_integer(options, OPTION_STEPS, 1, MOST_STEPS, &steps) ||
      !option_integer(options, OPTION_SAVE_EVERY, 1, MOST_STEPS, &every) ||
      !option_integer(options, OPTION_EVAL_EVERY, 1, MOST_STEPS, &eval_every) ||
      !option_integer(options, OPTION_EVAL_BATCHES, 1, MOST_STEPS, &eval_batches) ||
      !option_integer(options, OPTION_KEEP, 1, MOST_STEPS, &keep) ||
      !option_integer(options, OPTION_TIMEOUT, 0, MOST_SECONDS, &timeout) ||
      !cli_threads(options, &threads))
    return false;
  if (!option_given(options, OPTION_DATA))
    return usage_error("--data PATH names a .bin of tokens, a text file or a folder",
                       "there is nothing to train on"),
           false;
  if ((eval_every || eval_batches) && !option_given(options, OPTION_EVAL))
    return usage_error("add --eval PATH", "--eval-every and --eval-batches have no effect without --eval"), false;
  if (!check_saving(options)) return false;
  *train = (TrainOptions){.backend = backend,
                          .data = options->given[OPTION_DATA].data,
                          .data_count = options->given[OPTION_DATA].count,
                          .steps = (uint64_t)steps,
                          .init_path = option_text(options, OPTION_INIT, NULL),
                          .save_dir = option_text(options, OPTION_SAVE, NULL),
                          .save_every = (uint64_t)every,
                          .keep = (uint32_t)keep,
                          .resume = option_text(options, OPTION_RESUME, NULL),
                          .timeout_s = (uint32_t)timeout,
                          .metrics_path = option_text(options, OPTION_METRICS, NULL),
                          .eval_data = options->given[OPTION_EVAL].data,
                          .eval_count = options->given[OPTION_EVAL].count,
                          .eval_every = (uint64_t)eval_every,
                          .eval_batches = (uint64_t)eval_batches,
                          .tensorboard = option_text(options, OPTION_TENSORBOARD, NULL),
                          .analyze = option_given(options, OPTION_ANALYZE),
                          .gemm = gemm,
                          .threads = (uint32_t)threads,
                          .quiet = option_given(options, OPTION_QUIET)};
  return true;
}

/* A plan that the planner made and the verifier refuses is our bug; one that was read has been verified
 * already. */
static void check_own(Cli *cli, const Plan *plan) {
  VerifyResult result = {0};
  if (!plan_verify(cli->arena, plan, &result))
    cli_bug("the plan violates %s: %s", verify_rule_name(result.violations.data[0].rule),
            result.violations.data[0].text);
}

/* Under a launcher the number of ranks is not ours to choose. */
static int heed_launcher(Cli *cli, Launcher *launcher) {
  Failure failure = {0};
  int64_t ranks = 0;
  if (!launcher_detect(launcher, &failure)) return cli_error("%s", failure.text);
  if (launcher->name == NULL) return EXIT_OK;
  if (!option_integer(&cli->options, OPTION_RANKS, 1, MOST_STEPS, &ranks)) return EXIT_USAGE;
  if (ranks != 0 && ranks != (int64_t)launcher->ranks)
    return usage_error("leave --ranks out under a launcher", "--ranks is %lld, but %s started %u process%s, each of them one rank",
                       (long long)ranks, launcher->name, launcher->ranks, launcher->ranks == 1 ? "" : "es");
  if (ranks == 0 && !plan_is_plan_file(cli->options.operands.data[0]))
    vec_push(cli->arena, &cli->options.given[OPTION_RANKS], arena_printf(cli->arena, "%u", launcher->ranks));
  return EXIT_OK;
}

/* That a finished plan is for as many ranks as were started. */
static int check_started(const Launcher *launcher, const Plan *plan, const char *path) {
  if (launcher->name == NULL || launcher->ranks == plan->world.ranks) return EXIT_OK;
  char help[64];
  snprintf(help, sizeof help, "start %u, or plan again with --ranks %u", plan->world.ranks, launcher->ranks);
  return usage_error(help, "%s started %u process%s, each of them one rank, but %s is a plan for %u rank%s", launcher->name, launcher->ranks,
                     launcher->ranks == 1 ? "" : "es", path, plan->world.ranks, text_plural(plan->world.ranks));
}

static int open_origin(Cli *cli, Origin *origin, Planned *planned) {
  const char *path = cli->options.operands.data[0];
  if (plan_is_plan_file(path)) return read_plan(cli, path, planned);
  int code = compile_settings(cli, path, &origin->graph, &origin->options);
  if (code == EXIT_OK) note_own_runtime(path, &origin->options.settings);
  if (code == EXIT_OK) code = plan_fitting(cli, origin->graph, &origin->options, planned);
  if (code == EXIT_OK) origin->graph->recipe.samples_per_step = planned->plan->recipe.samples_per_step; /* the file may leave it to the ranks */
  return code;
}

/* NULL: there is none for so many ranks, which here is an answer and no error. */
static const Plan *plan_for(Cli *cli, const Origin *origin, uint32_t ranks) {
  DiagSink sink = {.arena = cli->arena, .sources = &cli->sources};
  PlannerOptions options = origin->options;
  PlannerResult result = {0};
  options.ranks = ranks;
  plan_watched(cli, &sink, origin->graph, &options, 0, NULL, &result);
  if (!result.fits) return NULL;
  check_own(cli, result.plan);
  return result.plan;
}

/* For the most ranks that are fewer and can be planned for, or as before where there are none. */
static const Plan *plan_fewer(Cli *cli, const Origin *origin, const Plan *before, uint32_t least) {
  for (uint32_t ranks = before->world.ranks - 1; ranks >= least; ranks--) {
    const Plan *plan = plan_for(cli, origin, ranks);
    if (plan) return plan;
  }
  return before;
}

static int train_with_restarts(Cli *cli, const Origin *origin, const Plan *plan, TrainOptions *train) {
  int64_t most = 0, least = 0;
  if (!option_integer(&cli->options, OPTION_MAX_RESTARTS, 0, MOST_STEPS, &most) ||
      !option_integer(&cli->options, OPTION_MIN_RANKS, 1, MOST_LOCAL_RANKS, &least))
    return EXIT_USAGE;
  if (most > 0 && train->launcher->ranks > 1)
    return usage_error("torchrun --max-restarts, or requeueing by Slurm, restarts all ranks; add --resume auto",
                       "--max-restarts is for ranks that this process starts itself");
  if (least > 0 && plan_is_plan_file(cli->options.operands.data[0]))
    return usage_error("give the model file instead", "--min-ranks needs to plan again, and a finished plan cannot be");
  if (least > (int64_t)plan->world.ranks)
    return usage_error(NULL, "--min-ranks is %lld, but the job has %u rank%s", (long long)least, plan->world.ranks,
                       text_plural(plan->world.ranks));
  signal(SIGPIPE, SIG_IGN); /* whoever reads what is said may go, as in `2>&1 | tee log` of a session that ends: training does not end with that */
  for (int64_t restart = 0;; restart++) {
    if (!option_given(&cli->options, OPTION_TIMEOUT)) train->timeout_s = runtime_patience_s(plan, TIMEOUT_S);
    int code = runtime_train(plan, train);
    if (code != EXIT_PEER || restart == most) return code;
    if (least > 0) plan = plan_fewer(cli, origin, plan, (uint32_t)least);
    fprintf(stderr, "restart %lld of %lld, with %u rank%s\n", (long long)restart + 1, (long long)most, plan->world.ranks,
            text_plural(plan->world.ranks));
    train->restarted = true;
  }
}

/* What a plan's hash of its source covers, such as --set, is not known any more: times of files tell enough for a note. */
static void note_stale(const Plan *plan, const char *path) {
  struct stat made, source;
  const char *model = plan_str(plan, plan->source_path);
  if (!plan_is_plan_file(path) || stat(path, &made) != 0 || stat(model, &source) != 0) return;
  if (source.st_mtim.tv_sec > made.st_mtim.tv_sec)
    fprintf(stderr, "note: %s has been changed since %s was planned from it; the plan is what runs\n", model, path);
}

int cmd_run(Cli *cli) {
  TrainOptions train;
  Origin origin = {0};
  Planned planned;
  Launcher launcher;
  TraceWriter writer;
  const char *trace = option_text(&cli->options, OPTION_TRACE, NULL);
  if (!read_options(cli, &train)) return EXIT_USAGE;
  if (trace) writer = trace_writer(cli, trace);
  train.observer = trace ? &writer.observer : NULL;
  int trouble = heed_launcher(cli, &launcher);
  if (trouble != EXIT_OK) return trouble;
  train.launcher = &launcher;
  int code = open_origin(cli, &origin, &planned);
  if (code != EXIT_OK) return code;
  const Plan *plan = planned.plan;
  code = check_started(&launcher, plan, cli->options.operands.data[0]);
  if (code != EXIT_OK) return code;
  check_own(cli, plan);
  if (launcher.rank == 0) note_stale(plan, cli->options.operands.data[0]);
  if (!plan->training) return cli_error("this plan has no backward pass: it was made to generate");
  if (launcher.ranks == 1 && plan->world.ranks > MOST_LOCAL_RANKS)
    return cli_error(
        "the plan is for %u ranks, and this machine can start at most %d; --ranks N plans for fewer",
        plan->world.ranks, MOST_LOCAL_RANKS);
  return train_with_restarts(cli, &origin, plan, &train);
}
