/* Owns: the one message of a failure that is not our bug: files, memory, peers. Functions that can fail return bool and
 * take a Failure; the first message wins, since what follows it is a consequence. */
#ifndef FSDPC_RUNTIME_FAILURE_H
#define FSDPC_RUNTIME_FAILURE_H

#include <stdbool.h>

enum { FAILURE_TEXT_BYTES = 1024 };

typedef struct Failure {
  int code;     /* exit code, RUN_*; 0: none */
  bool damaged; /* what was read is torn, altered or lost by its disk: an older copy may be whole */
  char text[FAILURE_TEXT_BYTES]; /* place: reason; remedy. No "error:", no full stop */
} Failure;

/* Always false, so that a caller can `return fail(...)`. */
bool fail(Failure *failure, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Of a file or folder, by errno: "part: path: what: reason; remedy", with exit code 1. Always false. */
bool fail_file(Failure *failure, const char *part, const char *path, const char *what);

/* Of reading a file, by errno: trying again will not help, but another copy may be whole. Not so where this process lacks a
 * right, memory or descriptors. */
bool errno_means_damage(int error);

/* To stderr, as the command line says its own; nothing where there is no text. */
void failure_say(const char *text);

#endif
