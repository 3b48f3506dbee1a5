/* Owns: see graphviz.h. dot reads and writes files without names, so that neither side waits for the other. */
#include "cli/graphviz.h"

#include "base/remedy.h"
#include "cli/cli.h"

#include <errno.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Runs `dot -Tsvg`; its exit status, or -1 with errno. */
static int run_dot(FILE *input, FILE *output) {
  char *const command[] = {"dot", "-Tsvg", NULL};
  posix_spawn_file_actions_t actions;
  pid_t child;
  int status = -1;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(input), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(output), STDOUT_FILENO);
  errno = posix_spawnp(&child, command[0], &actions, NULL, command, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (errno) return -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void add_file(Text *out, FILE *file) {
  char piece[1 << 14];
  rewind(file);
  for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;) text_add(out, piece, n);
}

static bool say_unstarted(int error) {
  cli_error("--svg is laid out by Graphviz, and dot cannot be started: %s%s", strerror(error), remedy_of(error));
  fprintf(stderr, "help: %swrite the graph alone with --dot\n", error == ENOENT ? "install it with 'apt-get install graphviz', or " : "");
  return false;
}

static bool lay_out(Text *out, const Text *digraph, FILE *input, FILE *output) {
  if (fwrite(digraph->data, 1, digraph->length, input) != digraph->length || fflush(input) != 0)
    return cli_error("cannot hand the graph to Graphviz: %s", strerror(errno)), false;
  rewind(input);
  int status = run_dot(input, output);
  if (status < 0 || status == 127) return say_unstarted(status < 0 ? errno : ENOENT); /* 127: where the shell's way of saying so is used */
  if (status > 0) return cli_error("Graphviz's dot failed with exit code %d", status), false;
  add_file(out, output);
  return true;
}

/* In memory: no folder for temporary files need be there, or have room. */
static FILE *nameless(void) {
  int fd = memfd_create("fsdpc", MFD_CLOEXEC);
  return fd < 0 ? NULL : fdopen(fd, "w+");
}

bool graphviz_svg(Text *out, const Text *digraph) {
  FILE *input = nameless(), *output = nameless();
  bool fine = input && output ? lay_out(out, digraph, input, output)
                              : (cli_error("no temporary file: %s%s", strerror(errno), remedy_of(errno)), false);
  if (input) fclose(input);
  if (output) fclose(output);
  return fine;
}
