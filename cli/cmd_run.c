/* Owns: `fsdpc run`: a plan, checked once more, handed to the runtime. */
#include "cli/cli.h"

#include "planner/plan/verify.h"
#include "runtime/runtime.h"

enum { MOST_STEPS = 1 << 30, MOST_THREADS = 4096, MOST_LOCAL_RANKS = 256 };

static bool read_options(const Cli *cli, TrainOptions *train) {
  const Options *options = &cli->options;
  static const char *const backends[] = {"cpu", "cuda"};
  int64_t steps = 0, every = 0, threads = 0;
  int backend = 0;
  if (!option_word(options, OPTION_BACKEND, backends, 2, &backend) ||
      !option_integer(options, OPTION_STEPS, 1, MOST_STEPS, &steps) ||
      !option_integer(options, OPTION_SAVE_EVERY, 1, MOST_STEPS, &every) ||
      !option_integer(options, OPTION_THREADS, 1, MOST_THREADS, &threads))
    return false;
  if (!option_given(options, OPTION_DATA))
    return usage_error("--data PATH names a .bin of tokens, a text file or a folder",
                       "there is nothing to train on"),
           false;
  if (every && !option_given(options, OPTION_SAVE))
    return usage_error("add --save DIR", "--save-every has no effect without --save"), false;
  *train = (TrainOptions){.backend = backends[backend],
                          .data = options->given[OPTION_DATA].data,
                          .data_count = options->given[OPTION_DATA].count,
                          .steps = (uint64_t)steps,
                          .init_path = option_text(options, OPTION_INIT, NULL),
                          .save_dir = option_text(options, OPTION_SAVE, NULL),
                          .save_every = (uint64_t)every,
                          .metrics_path = option_text(options, OPTION_METRICS, NULL),
                          .gemm = option_text(options, OPTION_GEMM, NULL),
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

int cmd_run(Cli *cli) {
  TrainOptions train;
  Planned planned;
  if (!read_options(cli, &train)) return EXIT_USAGE;
  int code = open_plan(cli, cli->options.operands.data[0], &planned);
  if (code != EXIT_OK) return code;
  const Plan *plan = planned.plan;
  check_own(cli, plan);
  if (!plan->training) return cli_error("this plan has no backward pass: it was made to generate");
  if (plan->world.ranks > MOST_LOCAL_RANKS)
    return cli_error(
        "the plan is for %u ranks, and this machine can start at most %d; --ranks N plans for fewer",
        plan->world.ranks, MOST_LOCAL_RANKS);
  return runtime_train(plan, &train);
}
