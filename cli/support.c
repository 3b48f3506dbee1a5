/* Owns: messages, colour and files, as every command needs them. */
#include "cli/cli.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
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

bool cli_print_diags(Cli *cli) {
  if (cli->sink.errors || cli->sink.warnings) diag_print(&cli->sink, stderr, cli_color(cli, stderr));
  return cli->sink.errors == 0;
}

int cli_error(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "fsdpc: error: ");
  vfprintf(stderr, format, args);
  fprintf(stderr, "\n");
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

static bool write_all(FILE *file, const char *bytes, size_t length) {
  bool written = fwrite(bytes, 1, length, file) == length && fflush(file) == 0 && fsync(fileno(file)) == 0;
  return fclose(file) == 0 && written;
}

/* The mode of a file that is being replaced, or that of a new one. */
static mode_t mode_for(const char *path) {
  struct stat status;
  if (stat(path, &status) == 0) return status.st_mode & 0777;
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

/* A path that must not be renamed onto: a pipe, or a link, such as /dev/stdout, also where it leads to a regular file. */
static bool is_special(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

static bool write_special(const char *path, const char *bytes, size_t length) {
  FILE *file = fopen(path, "w");
  return file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0;
}

static bool write_renamed(char *temporary, const char *path, const char *bytes, size_t length) {
  int descriptor = mkstemp(temporary);
  FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
  if (file && fchmod(descriptor, mode_for(path)) == 0 && write_all(file, bytes, length) && rename(temporary, path) == 0)
    return true;
  int reason = errno;
  if (descriptor >= 0) unlink(temporary);
  errno = reason;
  return false;
}

const char *write_file(Arena *arena, const char *path, const char *bytes, size_t length) {
  bool written = is_special(path) ? write_special(path, bytes, length)
                                  : write_renamed(arena_printf(arena, "%s.XXXXXX", path), path, bytes, length);
  return written ? NULL : arena_printf(arena, "cannot write %s: %s", path, strerror(errno));
}

bool cli_write_file(const Cli *cli, const char *path, const char *bytes, size_t length) {
  const char *trouble = write_file(cli->arena, path, bytes, length);
  if (trouble) cli_error("%s", trouble);
  return !trouble;
}

json_t *cli_read_json(const char *path, size_t flags) {
  struct stat status;
  json_error_t error;
  FILE *file = fopen(path, "rb");
  json_t *root = NULL;
  if (!file || fstat(fileno(file), &status) != 0 || S_ISDIR(status.st_mode))
    cli_error("cannot read %s: %s", path, file ? "it is a folder" : strerror(errno));
  else if ((root = json_loadf(file, flags, &error)) == NULL)
    cli_error("%s:%d:%d: not JSON: %s", path, error.line, error.column, error.text);
  if (file) fclose(file);
  return root;
}
