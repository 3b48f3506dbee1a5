/* Owns: `fsdpc generate`: a forward plan for one sample, run with trained weights. */
#include "cli/cli.h"

#include "runtime/runtime.h"

enum { MOST_TOKENS = 1 << 24, MOST_VOCABULARY = 1 << 24 };

static bool read_options(const Cli *cli, GenerateOptions *generate) {
  const Options *options = &cli->options;
  int64_t tokens = 200, top_k = 0, seed = 0, threads = 0;
  double temperature = 0.8;
  uint64_t memory;
  const char *backend, *gemm;
  if (!option_bytes(options, OPTION_MEMORY, &memory) || !option_backend(options, &backend) || !option_gemm(options, &gemm) ||
      !option_integer(options, OPTION_TOKENS, 1, MOST_TOKENS, &tokens) ||
      !option_integer(options, OPTION_TOP_K, 0, MOST_VOCABULARY, &top_k) ||
      !option_integer(options, OPTION_SEED, 0, INT64_MAX, &seed) ||
      !cli_threads(options, &threads) ||
      !option_real(options, OPTION_TEMPERATURE, 0, 100, &temperature))
    return false;
  *generate = (GenerateOptions){.weights = option_text(options, OPTION_WEIGHTS, NULL),
                                .prompt = option_text(options, OPTION_PROMPT, "\n"),
                                .tokens = (uint64_t)tokens,
                                .temperature = temperature,
                                .top_k = (uint32_t)top_k,
                                .seed = (uint64_t)seed,
                                .backend = backend,
                                .gemm = gemm,
                                .threads = (uint32_t)threads};
  if (generate->weights) return true;
  usage_error("--weights DIR names the folder that 'fsdpc run --save DIR' wrote",
              "there are no weights to generate with");
  return false;
}

/* Of the plan block only the budget says something of generating; the rest is about how many ranks train. */
static PlannerOptions plan_options(const Cli *cli, const Graph *graph) {
  PlannerOptions options = {.ranks = 1,
                            .ranks_per_node = 1,
                            .inference = true,
                            .settings = {.memory_bytes = graph->plan.memory_bytes,
                                         .prefetch = SETTING_AUTO,
                                         .micro_batch = SETTING_AUTO,
                                         .reshard = SETTING_AUTO,
                                         .offload = SETTING_AUTO}};
  option_bytes(&cli->options, OPTION_MEMORY, &options.settings.memory_bytes);
  return options;
}

int cmd_generate(Cli *cli) {
  GenerateOptions generate;
  Graph *graph;
  PlannerResult result = {0};
  if (!read_options(cli, &generate)) return EXIT_USAGE;
  int code = compile_graph(cli, cli->options.operands.data[0], &graph);
  if (code != EXIT_OK) return code;
  PlannerOptions options = plan_options(cli, graph);
  planner_plan(cli->arena, &cli->sink, graph, &options, 0, NULL, &result);
  if (!cli_print_diags(cli) || !result.plan) return EXIT_INVALID;
  if (!result.fits) {
    Planned planned = {.plan = result.plan, .infeasible = &result.infeasible};
    return report_infeasible(&planned, stderr), EXIT_NO_FIT;
  }
  return runtime_generate(result.plan, &generate);
}
