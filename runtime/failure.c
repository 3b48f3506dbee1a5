/* Owns: filling in and saying a Failure. */
#include "runtime/failure.h"

#include "runtime/runtime.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

bool fail(Failure *failure, int code, const char *format, ...) {
  if (failure->code != 0) return false;
  va_list args;
  va_start(args, format);
  vsnprintf(failure->text, sizeof failure->text, format, args);
  va_end(args);
  failure->code = code;
  return false;
}

static const char *remedy_for(int error) {
  static const struct {
    int error;
    const char *remedy;
  } remedies[] = {
      {ENOSPC, "; free some space there, or choose another folder"},
      {EDQUOT, "; free some space there, or choose another folder"},
      {EFBIG, "; raise the limit of file sizes (ulimit -f)"},
      {EIO, "; the disk or its file system is in trouble: see the kernel's log, and choose another disk"},
      {ENODATA, "; it became shorter while it was read: is something else writing it?"},
      {EMFILE, "; raise the limit of open files (ulimit -n)"},
      {ENFILE, "; close other programs' files"},
      {EACCES, "; check its permissions"},
      {EPERM, "; check its permissions"},
      {EROFS, "; choose a folder that can be written to"},
  };
  for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
    if (remedies[i].error == error) return remedies[i].remedy;
  return "";
}

bool fail_file(Failure *failure, const char *part, const char *path, const char *what) {
  int error = errno;
  return fail(failure, RUN_INVALID, "%s: %s: %s: %s%s", part, path, what, strerror(error), remedy_for(error));
}

bool errno_means_damage(int error) {
  static const int damages[] = {ENOENT, ENODATA, EIO, EBADMSG, EUCLEAN}; /* missing, cut short, and what disks and file systems say */
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
    if (damages[i] == error) return true;
  return false;
}

void failure_say(const char *text) {
  if (*text != '\0') fprintf(stderr, "fsdpc: error: %s\n", text);
}
