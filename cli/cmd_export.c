/* Owns: `fsdpc export`: weights to Hugging Face's files. */
#include "cli/cli.h"

#include "runtime/runtime.h"

static bool read_options(const Cli *cli, ExportOptions *export) {
  static const char *const targets[] = {"safetensors", "torch", "transformers", "accelerate"};
  static const char *const dtypes[] = {"f32", "bf16", "f16"};
  static const DType values[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
  const Options *options = &cli->options;
  int target = -1, dtype = 0;
  uint64_t most = 0;
  if (!option_word(options, OPTION_TO, targets, 4, &target) || !option_word(options, OPTION_DTYPE, dtypes, 3, &dtype) ||
      !option_bytes(options, OPTION_MAX_FILE, &most))
    return false;
  if (target < 0) return usage_error("--to safetensors writes weights", "--to is missing: what to export to"), false;
  if (target > 0) return usage_error(NULL, "--to %s is not available in this version", targets[target]), false;
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

int cmd_export(Cli *cli) {
  ExportOptions export;
  Planned planned;
  if (!read_options(cli, &export)) return EXIT_USAGE;
  int code = open_plan(cli, cli->options.operands.data[0], &planned);
  return code == EXIT_OK ? runtime_export(planned.plan, &export) : code;
}
