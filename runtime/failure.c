/* Owns: filling in and saying a Failure. */
#include "runtime/failure.h"

#include "base/remedy.h"
#include "base/text.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { WHOLE_BYTES = 3 * 4096 }; /* two paths, and words */

/* Place, reason and remedy stand at the ends: what is too long loses its middle, which is that of a path. */
static void set_text(char out[FAILURE_TEXT_BYTES], const char *whole) {
  enum { HEAD = FAILURE_TEXT_BYTES / 2, TAIL = FAILURE_TEXT_BYTES - HEAD - 6 };
  size_t length = strlen(whole);
  if (length < FAILURE_TEXT_BYTES) memcpy(out, whole, length + 1);
  else snprintf(out, FAILURE_TEXT_BYTES, "%.*s ... %s", HEAD, whole, whole + length - TAIL);
}

bool fail(Failure *failure, int code, const char *format, ...) {
  if (failure->code != 0) return false;
  char whole[WHOLE_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(whole, sizeof whole, format, args);
  va_end(args);
  set_text(failure->text, whole);
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
  char shown[FAILURE_TEXT_BYTES];
  int length = snprintf(shown, sizeof shown, "%s", text); /* printed at once: other ranks print, too */
  if (length > 0) fprintf(stderr, "fsdpc: error: %s\n", text_mask(shown, strlen(shown)));
}
