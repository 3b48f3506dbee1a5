/* Owns: lock.h. */
#include "runtime/files/lock.h"

#include <errno.h>
#include <sys/file.h>
#include <time.h>

enum { TRIES = 40, WAIT_MS = 50 /* ranks of a killed run need a moment to die */ };

bool lock_take(int fd) {
  const struct timespec pause = {.tv_nsec = WAIT_MS * 1000000L};
  for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
    if (errno != EWOULDBLOCK) break;
    if (i == TRIES) return false;
    nanosleep(&pause, NULL);
  }
  return true;
}
