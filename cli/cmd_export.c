/* Owns: `fsdpc export`: weights to Hugging Face's files; policies are export_policy.c's. */
#include "cli/executor.h"

#include "planner/plan/plan_text.h"
#include "runtime/runtime.h"

static bool read_options(const Cli *cli, ExportOptions *export) {
  static const char *const dtypes[] = {"f32", "bf16", "f16"};
  static const DType values[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
  const Options *options = &cli->options;
  int dtype = 0;
  uint64_t most = 0;
  if (!option_word(options, OPTION_DTYPE, dtypes, 3, &dtype) || !option_bytes(options, OPTION_MAX_FILE, &most)) return false;
  if (options->operands.count < 2)
    return usage_error("fsdpc export PLAN DIR --to safetensors --weights RUN", "the folder to write to is missing"),
           false;
  if (!option_given(options, OPTION_WEIGHTS))
    return usage_error("--weights DIR names the folder that 'fsdpc run --save DIR' wrote",
                       "there are no weights to export"),
           false;
  *export = (ExportOptions){.weights = option_text(options, OPTION_WEIGHTS, NULL),
                            .dir = options->operands.data[1],
                            .dtype = values[dtype],
                            .max_bytes = most,
                            .force = option_given(options, OPTION_FORCE)};
  return true;
}

/* Options that only the other kind of export heeds. */
static bool refuse_others(const Cli *cli, bool weights) {
  static const OptionId of_weights[] = {OPTION_WEIGHTS, OPTION_DTYPE, OPTION_MAX_FILE, OPTION_FORCE},
                        of_policies[] = {OPTION_EXECUTOR, OPTION_PRECISION, OPTION_LOSSY, OPTION_OUTPUT};
  for (size_t i = 0; i < (weights ? sizeof of_policies : sizeof of_weights) / sizeof(OptionId); i++) {
    OptionId id = weights ? of_policies[i] : of_weights[i];
    if (!option_given(&cli->options, id)) continue;
    usage_error(NULL, "--%s has no effect with --to %s", option_info(id)->name, option_text(&cli->options, OPTION_TO, ""));
    return false;
  }
  return true;
}

/* Which parameters there are. Weights are the same whatever trained them, so a step, budget or number of ranks that cannot be planned
 * here is no hindrance. */
static int plan_weights(Cli *cli, const char *path, Planned *planned) {
  static const PlannerOptions one_rank = {
      .ranks = 1,
      .ranks_per_node = 1,
      .settings = {.strategy = STRATEGY_NO_SHARD,
                   .wrap = WRAP_WHOLE,
                   .checkpoint = CHECKPOINT_NONE,
                   .micro_batch = 1,
                   .memory_bytes = UINT64_C(1) << 62}};
  Graph *graph;
  PlannerOptions asked;
  if (plan_is_plan_file(path)) return read_plan(cli, path, planned);
  int code = compile_settings(cli, path, &graph, &asked);
  if (code == EXIT_OK && graph->cluster.device.kind == DEVICE_NONE) /* no weight depends on it */
    (void)compile_on_cluster(cli, path, "cpu", &graph, &asked, &code);
  return code == EXIT_OK ? plan_graph(cli, graph, &one_rank, 0, NULL, planned) : code;
}

int cmd_export(Cli *cli) {
  static const char *const targets[] = {"safetensors", "torch", "transformers", "accelerate"};
  ExportOptions export;
  Planned planned;
  int target = -1;
  if (!option_word(&cli->options, OPTION_TO, targets, 4, &target)) return EXIT_USAGE;
  if (target < 0)
    return usage_error("--to safetensors writes weights, --to torch|transformers|accelerate a policy", "--to is missing: what to export to");
  if (!refuse_others(cli, target == EXPORT_SAFETENSORS)) return EXIT_USAGE;
  if (target != EXPORT_SAFETENSORS && cli->options.operands.count > 1)
    return usage_error("-o FILE names the file to write", "--to %s takes no folder", targets[target]);
  if (target != EXPORT_SAFETENSORS) return export_policy(cli, cli->options.operands.data[0], (ExportTarget)target);
  if (!read_options(cli, &export)) return EXIT_USAGE;
  int code = plan_weights(cli, cli->options.operands.data[0], &planned);
  return code == EXIT_OK ? runtime_export(planned.plan, &export) : code;
}
