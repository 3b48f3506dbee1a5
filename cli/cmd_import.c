/* Owns: `fsdpc import`: a Hugging Face model's config.json to a .fsdp file. */
#include "cli/cli.h"
#include "cli/import.h"

/* Ours to keep: what import writes passes check. */
static int check_written(Cli *cli, const char *path) {
  FrontendOptions options = compile_options(cli);
  frontend_check(cli->arena, &cli->sources, &cli->sink, path, &options);
  return cli_print_diags(cli) ? EXIT_OK : EXIT_INVALID;
}

int cmd_import(Cli *cli) {
  Imported model;
  Text text = {.arena = cli->arena};
  const char *output = option_text(&cli->options, OPTION_OUTPUT, NULL);
  if (!import_read(cli->arena, cli->options.operands.data[0], &model)) return EXIT_INVALID;
  import_write(&text, &model);
  if (output == NULL)
    return fwrite(text.data, 1, text.length, stdout) == text.length ? EXIT_OK : EXIT_INVALID;
  if (!cli_write_file(cli, output, text.data, text.length)) return EXIT_INVALID;
  return check_written(cli, output);
}
