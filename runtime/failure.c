/* Owns: filling in and saying a Failure. */
#include "runtime/failure.h"

#include <stdarg.h>
#include <stdio.h>

bool fail(Failure *failure, int code, const char *format, ...) {
  if (failure->code != 0) return false;
  va_list args;
  va_start(args, format);
  vsnprintf(failure->text, sizeof failure->text, format, args);
  va_end(args);
  failure->code = code;
  return false;
}

void failure_say(const char *text) {
  if (*text != '\0') fprintf(stderr, "fsdpc: error: %s\n", text);
}
