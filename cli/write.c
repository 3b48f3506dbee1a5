/* Owns: files written whole: under another name beside the file, then renamed onto it, so that what stood there is whole until
 * what replaces it is, whatever ends us in between. */
#include "cli/cli.h"

#include "base/remedy.h"
#include "base/stream.h"

#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const char *write_replaces(Arena *arena, const char *path) {
  struct stat link, file;
  if (lstat(path, &link) != 0 || S_ISREG(link.st_mode)) return path;
  if (stat(path, &file) != 0 || !S_ISREG(file.st_mode) || stream_behind(path) >= 0) return NULL;
  char *behind = realpath(path, NULL);
  const char *kept = behind ? arena_strdup(arena, behind) : NULL;
  free(behind);
  return kept;
}

/* The mode of a file that is being replaced, or that of a new one. */
static mode_t mode_for(const char *path) {
  struct stat status;
  if (stat(path, &status) == 0) return status.st_mode & 0777;
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

static bool write_all(FILE *file, const char *bytes, size_t length) {
  bool written = fwrite(bytes, 1, length, file) == length && fflush(file) == 0 && fsync(fileno(file)) == 0;
  return fclose(file) == 0 && written;
}

/* What was asked for by name stands alone on standard output: whatever is said after it goes to standard error. */
static bool write_opened(const char *path, const char *bytes, size_t length) {
  int stream = stream_behind(path);
  fflush(stdout); /* in order */
  FILE *file = stream >= 0 ? fdopen(dup(stream), "w") : fopen(path, "w");
  if (!file || fwrite(bytes, 1, length, file) != length || fclose(file) != 0) return false;
  return stream != STDOUT_FILENO || dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
}

/* The other name is short: that of the file may be as long as names can be. */
static bool write_renamed(Arena *arena, const char *path, const char *bytes, size_t length) {
  char *temporary = arena_printf(arena, "%s/.fsdpc.XXXXXX", dirname(arena_strdup(arena, path)));
  int descriptor = mkstemp(temporary);
  FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
  if (file && fchmod(descriptor, mode_for(path)) == 0 && write_all(file, bytes, length) && rename(temporary, path) == 0)
    return true;
  int reason = errno;
  if (descriptor >= 0) unlink(temporary);
  errno = reason;
  return false;
}

/* Signals wait until nothing is left that they would leave behind. */
static bool write_undisturbed(Arena *arena, const char *path, const char *bytes, size_t length) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  bool written = write_renamed(arena, path, bytes, length);
  int reason = errno;
  sigprocmask(SIG_SETMASK, &before, NULL);
  errno = reason;
  return written;
}

const char *write_trouble(Arena *arena, const char *path) {
  return arena_printf(arena, "cannot write %s: %s%s", path, strerror(errno), errno == ENOENT ? "; make its folder first" : remedy_of(errno));
}

const char *write_file(Arena *arena, const char *path, const char *bytes, size_t length) {
  const char *file = write_replaces(arena, path);
  bool written = file ? write_undisturbed(arena, file, bytes, length) : write_opened(path, bytes, length);
  return written ? NULL : write_trouble(arena, path);
}

bool cli_write_file(const Cli *cli, const char *path, const char *bytes, size_t length) {
  const char *trouble = write_file(cli->arena, path, bytes, length);
  if (trouble) cli_error("%s", trouble);
  return !trouble;
}
