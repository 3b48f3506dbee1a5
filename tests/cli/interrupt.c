/* Owns: a signal in the middle of writing a file, for surroundings.sh: preloaded, it comes when fsync is called. */
#include <signal.h>
#include <unistd.h>

int fsync(int fd) {
  (void)fd;
  return kill(getpid(), SIGTERM);
}
