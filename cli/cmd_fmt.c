/* Owns: `fsdpc fmt`: rewrites files in place, whole or not at all, and names those it changed; with --check
 * only names them. */
#include "cli/cli.h"

/* Whether the file's text, read by frontend_format into sources, is already the canonical one. */
static bool unchanged(const Cli *cli, const char *path, const char *canonical) {
  for (uint32_t i = cli->sources.files.count; i-- > 0;)
    if (strcmp(cli->sources.files.data[i].path, path) == 0)
      return strcmp(cli->sources.files.data[i].text, canonical) == 0;
  return false;
}

static int format_one(Cli *cli, const char *path) {
  const char *canonical = frontend_format(cli->arena, &cli->sources, &cli->sink, path);
  if (!canonical) return EXIT_INVALID;
  if (option_given(&cli->options, OPTION_FMT_STDOUT)) return fputs(canonical, stdout), EXIT_OK;
  if (unchanged(cli, path, canonical)) return EXIT_OK;
  bool checks = option_given(&cli->options, OPTION_FMT_CHECK);
  if (!checks && !cli_write_file(cli, path, canonical, strlen(canonical))) return EXIT_INVALID;
  printf("%s\n", path);
  return checks ? EXIT_INVALID : EXIT_OK;
}

int cmd_fmt(Cli *cli) {
  const Words *files = &cli->options.operands;
  int code = EXIT_OK;
  if (option_given(&cli->options, OPTION_FMT_CHECK) && option_given(&cli->options, OPTION_FMT_STDOUT))
    return usage_error("give one of them", "--check prints names of files, --stdout what is to be in them");
  for (uint32_t i = 0; i < files->count; i++)
    if (format_one(cli, files->data[i]) != EXIT_OK) code = EXIT_INVALID;
  return cli_print_diags(cli) ? code : EXIT_INVALID;
}
