/* Owns: `fsdpc check`: every mistake of every file. */
#include "cli/cli.h"

#include "planner/pins.h"

/* Settings that contradict each other whatever the ranks are mistakes of the file, too. */
static void check_file(Cli *cli, const char *path, const FrontendOptions *options) {
  const Graph *graph = frontend_check(cli->arena, &cli->sources, &cli->sink, path, options);
  if (graph) pins_agree(&cli->sink, &graph->plan);
}

int cmd_check(Cli *cli) {
  const Words *files = &cli->options.operands;
  FrontendOptions options = compile_options(cli);
  if (option_given(&cli->options, OPTION_JSON) && option_given(&cli->options, OPTION_SARIF))
    return usage_error("give one of them", "--json prints one object, --sarif another");
  for (uint32_t i = 0; i < files->count; i++) check_file(cli, files->data[i], &options);
  if (option_given(&cli->options, OPTION_JSON))
    diag_print_json(&cli->sink, stdout);
  else if (option_given(&cli->options, OPTION_SARIF))
    sarif_print(&cli->sink, stdout);
  else
    cli_print_diags(cli);
  return cli->sink.errors ? EXIT_INVALID : EXIT_OK;
}
