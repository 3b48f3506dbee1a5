/* Owns: `fsdpc import`: a Hugging Face model's config.json to a .fsdp file. */
#include "cli/cli.h"
#include "cli/import.h"

#include <sys/stat.h>

/* Sizes that the configuration states may still not make a model. A pipe cannot be read again. */
static int check_written(Cli *cli, const char *path) {
  struct stat info;
  FrontendOptions options = compile_options(cli);
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return EXIT_OK;
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
