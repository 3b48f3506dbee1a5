/* Owns: see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Why the open file is not read, or NULL. */
static const char *objection(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return strerror(errno);
  if (S_ISREG(info.st_mode)) return NULL;
  return S_ISDIR(info.st_mode) ? "it is a folder" : "it is not a regular file";
}

FILE *file_open(const char *path, const char **why) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* not fopen: it would wait for a pipe's writer */
  if (fd < 0) return *why = strerror(errno), NULL;
  *why = objection(fd);
  FILE *file = *why ? NULL : fdopen(fd, "rb");
  if (file) return file;
  if (!*why) *why = strerror(errno);
  close(fd);
  return NULL;
}
