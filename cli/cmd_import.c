/* Owns: `fsdpc import`: a Hugging Face model's config.json to a .fsdp file. */
#include "cli/cli.h"
#include "cli/import.h"

/* Sizes that the configuration states may still not make a model: then nothing is written, and what stood there stays. */
static bool check_text(Cli *cli, const char *path, const Text *text) {
  FrontendOptions options = compile_options(cli);
  SourceFile file = {path, text->data, text->length};
  vec_push(cli->arena, &cli->sources.overlays, file);
  frontend_check(cli->arena, &cli->sources, &cli->sink, path, &options);
  return cli_print_diags(cli);
}

int cmd_import(Cli *cli) {
  Imported model;
  Text text = {.arena = cli->arena};
  const char *output = option_text(&cli->options, OPTION_OUTPUT, NULL);
  if (!import_read(cli->arena, cli->options.operands.data[0], &model)) return EXIT_INVALID;
  import_write(&text, &model);
  if (!check_text(cli, output ? output : "imported.fsdp", &text)) return EXIT_INVALID;
  if (output) return cli_write_file(cli, output, text.data, text.length) ? EXIT_OK : EXIT_INVALID;
  return fwrite(text.data, 1, text.length, stdout) == text.length ? EXIT_OK : EXIT_INVALID;
}
