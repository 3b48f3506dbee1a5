/* Owns: `fsdpc check`: every mistake of every file. */
#include "cli/cli.h"

int cmd_check(Cli *cli) {
  const Words *files = &cli->options.operands, *sets = &cli->options.given[OPTION_SET];
  FrontendOptions options = {.sets = sets->data,
                             .set_count = sets->count,
                             .cluster_path = option_text(&cli->options, OPTION_CLUSTER, NULL)};
  for (uint32_t i = 0; i < files->count; i++)
    frontend_compile(cli->arena, &cli->sources, &cli->sink, files->data[i], &options);
  if (option_given(&cli->options, OPTION_JSON))
    diag_print_json(&cli->sink, stdout);
  else
    cli_print_diags(cli);
  return cli->sink.errors ? EXIT_INVALID : EXIT_OK;
}
