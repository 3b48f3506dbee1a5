/* Owns: see progress.h. */
#include "base/progress.h"

#include "base/clock.h"
#include "base/terminal.h"

#include <stdio.h>

/* Seconds until the first line and between lines. A log is read afterwards, or by somebody who wonders whether anything happens. */
static const double PATIENCE = 0.5, BETWEEN = 0.1, LOG_BETWEEN = 30;

Progress progress_start(void) {
  Progress progress = {.start = clock_seconds(), .terminal = terminal_shows_progress()};
  progress.next = progress.start + (progress.terminal ? PATIENCE : LOG_BETWEEN);
  return progress;
}

bool progress_due(const Progress *progress) {
  return clock_seconds() >= progress->next;
}

double progress_seconds(const Progress *progress) {
  return clock_seconds() - progress->start;
}

void progress_say(Progress *progress, char *line) {
  progress->next = clock_seconds() + (progress->terminal ? BETWEEN : LOG_BETWEEN);
  progress->open = progress->terminal;
  if (progress->terminal) terminal_cut(line);
  fprintf(stderr, progress->terminal ? "\r%s\033[K" : "%s\n", line);
}

void progress_clear(Progress *progress) {
  if (progress->open) fprintf(stderr, "\r\033[K");
  progress->open = false;
}

void progress_keep(Progress *progress) {
  if (progress->open) fputc('\n', stderr);
  progress->open = false;
}
