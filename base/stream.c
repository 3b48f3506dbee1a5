/* Owns: see stream.h. */
#include "base/stream.h"

#include <sys/stat.h>
#include <unistd.h>

int stream_behind(const char *path) {
  struct stat file, stream;
  if (stat(path, &file) != 0) return -1;
  for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
    if (fstat(fd, &stream) == 0 && stream.st_dev == file.st_dev && stream.st_ino == file.st_ino) return fd;
  return -1;
}
