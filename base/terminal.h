/* Owns: whether progress is shown, to a person at a terminal that can rewrite a line, not to a log; and that it is one line. */
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

/* A line that wraps could not be drawn over: what does not fit before the last column of the terminal at standard error is left out,
 * by whole fields where two blanks stand between them. */
void terminal_cut(char *line);

#endif
