/* Owns: the way from argv to a command and back to an exit code. */
#include "cli/cli.h"

#include "base/remedy.h"
#include "base/stack.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

typedef struct Command {
  const char *name;
  uint32_t least, most; /* operands */
  int (*run)(Cli *);
} Command;

static const Command commands[COMMAND_COUNT] = {
#define COMMAND(id, name, operands, least, most, summary, examples) {#name, least, most, cmd_##name},
#include "cli/commands.def"
#undef COMMAND
};

static int find_command(const char *name) {
  for (int id = 0; id < COMMAND_COUNT; id++)
    if (strcmp(commands[id].name, name) == 0) return id;
  return -1;
}

/* The command that is called so elsewhere, or is spelled nearly so, or NULL. */
static const char *command_meant(const char *name) {
  static const char *const elsewhere[][2] = {
      {"train", "run"},      {"apply", "run"},       {"compare", "diff"},    {"format", "fmt"},    {"lint", "check"}, {"validate", "check"},
      {"show", "explain"},   {"analyze", "explain"}, {"sample", "generate"}, {"bench", "profile"}, {"sweep", "tune"}, {"estimate", "predict"}};
  const char *names[COMMAND_COUNT];
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
    if (strcmp(name, elsewhere[i][0]) == 0) return elsewhere[i][1];
  for (int id = 0; id < COMMAND_COUNT; id++) names[id] = commands[id].name;
  return text_nearest(name, names, COMMAND_COUNT);
}

static int unknown_command(const char *name) {
  const char *meant = command_meant(name);
  char help[64] = "'fsdpc --help' lists the commands";
  if (meant) snprintf(help, sizeof help, "did you mean '%s'?", meant);
  return usage_error(help, "unknown command '%s'", name);
}

/* Before any command. */
static int unknown_option(const char *option) {
  static const char *const names[] = {"--help", "--version"};
  const char *meant = text_nearest(option, names, sizeof names / sizeof *names);
  char help[64] = "options follow the command, as in 'fsdpc plan FILE --ranks 8'";
  if (meant) snprintf(help, sizeof help, "did you mean %s?", meant);
  return usage_error(help, "unknown option %s", option);
}

/* All that a handler of signals may do. */
static void leave(const char *text, int code) {
  ssize_t written = write(STDERR_FILENO, text, strlen(text));
  (void)written;
  _exit(code);
}

/* An assertion that failed is our bug, not the user's signal. */
static void on_abort(int signal) {
  (void)signal;
  leave("fsdpc: internal error: this is a bug in fsdpc, not in your input\n", EXIT_BUG);
}

/* Data are mapped, and so this is how it shows that they cannot be read. Of ranks their parent says so, and where. */
static void on_bus_error(int signal) {
  (void)signal;
  leave("fsdpc: error: data: a file could not be read to its end: is something else writing it, or its disk in trouble?\n", EXIT_INVALID);
}

/* A full disk must not look like success. Where only an earlier write failed, its reason is gone, and a line's end is refused for
 * the same one; where it no longer is, what stands there is torn all the same. */
static int finish_output(int code) {
  errno = 0;
  bool failed = fflush(stdout) != 0 || ferror(stdout);
  if (!failed) return code;
  bool known = errno != 0 || write(STDOUT_FILENO, "\n", 1) < 0;
  fprintf(stderr, "fsdpc: error: cannot write to standard output%s%s%s\n", known ? ": " : "", known ? strerror(errno) : "", remedy_of(errno));
  return code == EXIT_OK ? EXIT_INVALID : code;
}

/* Of options that many commands take. */
static bool check_shared(const Options *options) {
  static const char *const words[] = {"auto", "always", "never"};
  int which;
  return option_word(options, OPTION_COLOR, words, 3, &which) && option_pairs(options, OPTION_SET);
}

static const char *operands_help(Arena *arena, CommandId id) {
  const CommandText *text = command_text(id);
  return arena_printf(arena, "fsdpc %s [OPTION]...%s%s; 'fsdpc %s --help' says more", text->name, *text->operands ? " " : "", text->operands, text->name);
}

static int run_command(CommandId id, int argc, char **argv) {
  const Command *command = &commands[id];
  Cli cli = {.arena = arena_new()};
  cli.models = models_folder(cli.arena);
  cli.sources.arena = cli.sink.arena = cli.arena;
  cli.sink.sources = &cli.sources;
  int code = EXIT_USAGE;
  const Words *operands = &cli.options.operands;
  if (!options_parse(cli.arena, id, argc, argv, &cli.options) || !check_shared(&cli.options)) goto done;
  if (option_given(&cli.options, OPTION_HELP)) {
    help_command(id, stdout);
    code = EXIT_OK;
  } else if (operands->count < command->least) {
    usage_error(operands_help(cli.arena, id), "an operand is missing");
  } else if (operands->count > command->most) {
    usage_error(operands_help(cli.arena, id), "unexpected operand \"%s\"", operands->data[command->most]);
  } else {
    code = paths_check(&cli);
    if (code == EXIT_OK) code = command->run(&cli);
  }
done:
  arena_free(cli.arena);
  return code;
}

/* What comes after all that is known. */
static int unexpected(const char *argument, const char *usage) { return usage_error(usage, "unexpected operand \"%s\"", argument); }

static int say_version(int argc, char **argv) {
  const bool json = argc > 2 && strcmp(argv[2], "--json") == 0;
  const int known = json ? 3 : 2;
  if (argc > known) return unexpected(argv[known], "fsdpc version [--json]");
  return help_version(json, stdout), EXIT_OK;
}

static int say_help(int argc, char **argv) {
  if (argc == 2) return help_all(stdout), EXIT_OK;
  if (argc > 3) return unexpected(argv[3], "fsdpc help [COMMAND]");
  int id = find_command(argv[2]);
  return id < 0 ? unknown_command(argv[2]) : (help_command((CommandId)id, stdout), EXIT_OK);
}

static int dispatch(int argc, char **argv) {
  const char *first = argc > 1 ? argv[1] : NULL;
  if (!first) return help_all(stderr), EXIT_USAGE;
  if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) return help_all(stdout), EXIT_OK;
  if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0 || strcmp(first, "version") == 0) return say_version(argc, argv);
  if (strcmp(first, "help") == 0) return say_help(argc, argv);
  if (first[0] == '-') return unknown_option(first);
  int id = find_command(first);
  return id < 0 ? unknown_command(first) : run_command((CommandId)id, argc - 1, argv + 1);
}

/* Passes take scratch memory by megabytes and give it back: it is kept for the next one, as the system zeroes what it hands out.
 * Larger arrays than these go back, lest they lie unused beside what comes next. The heap grows by whole large pages (arena.c). */
static void keep_freed_memory(void) {
  (void)mallopt(M_MMAP_THRESHOLD, 8 << 20);
  (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
  (void)mallopt(M_TOP_PAD, 4 << 20);
}

/* A standard stream that came closed would be the next file that is opened, and messages would land among its bytes. In its place
 * comes one that fails as a closed one does, also where a name such as /dev/stdout opens it again. */
static void hold_standard_streams(void) {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
    if (fcntl(stream, F_GETFD) < 0 && open("/", O_PATH | O_DIRECTORY) < 0) _exit(EXIT_INVALID);
}

int main(int argc, char **argv) {
  hold_standard_streams();
  keep_freed_memory();
  signal(SIGABRT, on_abort);
  signal(SIGBUS, on_bus_error);
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of write, which says which file */
  if (!stack_ensure()) return EXIT_INVALID;
  return finish_output(dispatch(argc, argv));
}
