/* Owns: filling in and saying a Failure. */
#include "runtime/failure.h"

#include "base/remedy.h"
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

bool fail_file(Failure *failure, const char *part, const char *path, const char *what) {
  int error = errno;
  return fail(failure, RUN_INVALID, "%s: %s: %s: %s%s", part, path, what, strerror(error), remedy_of(error));
}

bool errno_means_damage(int error) {
  static const int damages[] = {ENOENT, ENOTDIR, ELOOP, ENODATA, EIO, EBADMSG, EUCLEAN}; /* missing, cut short, and what disks and file systems say */
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
    if (damages[i] == error) return true;
  return false;
}

void failure_say(const char *text) {
  if (*text != '\0') fprintf(stderr, "fsdpc: error: %s\n", text);
}
