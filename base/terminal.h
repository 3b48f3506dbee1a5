/* Owns: whether progress is shown: to a person at a terminal that can rewrite a line, not to a log. */
#ifndef FSDPC_BASE_TERMINAL_H
#define FSDPC_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline bool terminal_shows_progress(void) {
  const char *term = getenv("TERM");
  return isatty(STDERR_FILENO) && !getenv("CI") && (!term || strcmp(term, "dumb") != 0);
}

#endif
