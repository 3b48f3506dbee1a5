/* Owns: saying how far long work is: to a person at a terminal that can rewrite a line, several times a second; in a log, a line of
 * its own now and then. */
#ifndef FSDPC_BASE_PROGRESS_H
#define FSDPC_BASE_PROGRESS_H

#include <stdbool.h>

typedef struct Progress {
  double start, next; /* seconds of clock.h */
  bool terminal, open; /* open: a line stands on the terminal, unended */
} Progress;

Progress progress_start(void);
/* Whether there is something to be said now, at first after a while. */
bool progress_due(const Progress *progress);
double progress_seconds(const Progress *progress);
/* Of one line; cut to the terminal's width. */
void progress_say(Progress *progress, char *line);
/* What stands on the terminal goes, before anything else is said. */
void progress_clear(Progress *progress);
/* Or it stays. */
void progress_keep(Progress *progress);

#endif
