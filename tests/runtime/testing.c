/* Owns: the helpers of testing.h. */
#include "testing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int scratch_setup(void **state) {
  Scratch *scratch = calloc(1, sizeof *scratch);
  strcpy(scratch->dir, "/tmp/fsdpc-test-XXXXXX");
  if (mkdtemp(scratch->dir) == NULL) return -1;
  scratch->arena = arena_new();
  *state = scratch;
  return 0;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where) {
  (void)info, (void)kind, (void)where;
  return remove(path);
}

int scratch_teardown(void **state) {
  Scratch *scratch = *state;
  nftw(scratch->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
  arena_free(scratch->arena);
  free(scratch);
  return 0;
}

void scratch_remove(Scratch *scratch, const char *name) {
  nftw(scratch_path(scratch, name), remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_path(Scratch *scratch, const char *name) {
  return arena_printf(scratch->arena, "%s/%s", scratch->dir, name);
}

const char *scratch_file(Scratch *scratch, const char *name, const void *data, size_t bytes) {
  const char *path = scratch_path(scratch, name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
  return path;
}

char *read_text(Arena *arena, const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  rewind(file);
  char *text = arena_alloc(arena, size + 1);
  assert_int_equal(fread(text, 1, size, file), size);
  fclose(file);
  if (bytes != NULL) *bytes = size;
  return text;
}

uint32_t folder_entries(const char *dir) {
  uint32_t count = 0;
  DIR *folder = opendir(dir);
  assert_non_null(folder);
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count - 2;
}

static const char kept_name[] = "stderr.fd"; /* a link would do, but a file descriptor number survives no fork better */

void capture_stderr(Scratch *scratch) {
  int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
  int file = open(scratch_path(scratch, "stderr"), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
  assert_true(kept >= 0 && file >= 0);
  fflush(stderr);
  dup2(file, STDERR_FILENO);
  close(file);
  char text[16];
  int length = snprintf(text, sizeof text, "%d", kept);
  scratch_file(scratch, kept_name, text, (size_t)length);
}

const char *captured_stderr(Scratch *scratch) {
  fflush(stderr);
  int kept = atoi(read_text(scratch->arena, scratch_path(scratch, kept_name), NULL));
  dup2(kept, STDERR_FILENO);
  close(kept);
  remove(scratch_path(scratch, kept_name));
  return read_text(scratch->arena, scratch_path(scratch, "stderr"), NULL);
}

void assert_said(const char *text, const char *part) {
  if (strstr(text, part) == NULL) fail_msg("expected \"%s\" in:\n%s", part, text);
}

void assert_no_children(void) {
  errno = 0;
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
}

void assert_no_shared_memory(void) {
  struct dirent *entry;
  DIR *folder = opendir("/dev/shm");
  if (folder == NULL) return;
  while ((entry = readdir(folder)) != NULL)
    if (strncmp(entry->d_name, "fsdpc", 5) == 0) fail_msg("/dev/shm/%s is left", entry->d_name);
  closedir(folder);
}
