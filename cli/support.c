/* Owns: messages, colour and JSON read, as every command needs them. */
#include "cli/cli.h"

#include "base/cores.h"
#include "base/file.h"
#include "base/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool cli_color(const Cli *cli, FILE *stream) {
  const char *when = option_text(&cli->options, OPTION_COLOR, "auto");
  const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
  if (strcmp(when, "auto") != 0) return strcmp(when, "always") == 0;
  if (no_color && *no_color) return false;
  return isatty(fileno(stream)) && !(terminal && strcmp(terminal, "dumb") == 0);
}

int cli_width(FILE *stream) {
  struct winsize size;
  const char *columns = getenv("COLUMNS");
  if (isatty(fileno(stream)) && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
  int width = columns ? atoi(columns) : 0;
  return width >= 40 ? width : 100;
}

/* Each kernel wakes all threads: beyond a few for each core a step takes longer the more there are, and results are the same. */
bool cli_threads(const Options *options, int64_t *out) {
  enum { MOST_THREADS = 1 << 20, THREADS_A_CORE = 8 };
  int64_t most = (int64_t)cores_available() * THREADS_A_CORE;
  if (!option_integer(options, OPTION_THREADS, 1, MOST_THREADS, out)) return false;
  if (*out <= most) return true;
  fprintf(stderr, "note: --threads %lld: %lld are started, %d for each of %u core%s; more would only wait for each other\n", (long long)*out,
          (long long)most, THREADS_A_CORE, cores_available(), text_plural((uint64_t)cores_available()));
  *out = most;
  return true;
}

bool cli_print_diags(Cli *cli) {
  if (cli->sink.errors || cli->sink.warnings) diag_print(&cli->sink, stderr, cli_color(cli, stderr));
  return cli->sink.errors == 0;
}

int cli_error(const char *format, ...) {
  va_list args;
  va_start(args, format);
  print_error(format, args);
  va_end(args);
  return EXIT_INVALID;
}

void cli_bug(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "fsdpc: internal error: ");
  vfprintf(stderr, format, args);
  fprintf(stderr, "\nThis is a bug in fsdpc, not in your input.\n");
  va_end(args);
  exit(EXIT_BUG);
}

json_t *cli_read_json(const char *path, size_t flags) {
  const char *why;
  json_error_t error;
  FILE *file = file_open(path, &why);
  json_t *root = NULL;
  if (!file)
    cli_error("cannot read %s: %s", path, why);
  else if ((root = json_loadf(file, flags, &error)) == NULL)
    cli_error("%s:%d:%d: not JSON: %s", path, error.line, error.column, json_trouble(&error));
  if (file) fclose(file);
  return root;
}
