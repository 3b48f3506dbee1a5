/* Owns: the folder that checkpoints lie in: names, the lock, the one rename that makes a checkpoint, pruning. */
#include "runtime/files/checkpoint.h"

#include "runtime/files/lock.h"
#include "runtime/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool folder_failed(const char *path, const char *what, Failure *failure) {
  return fail_file(failure, "checkpoint", path, what);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

#define STEP_NAME "step-%08" PRIu64

static void folder_step_path(char out[CHECKPOINT_PATH_BYTES], const char *dir, uint64_t step) {
  snprintf(out, CHECKPOINT_PATH_BYTES, "%s/" STEP_NAME, dir, step);
}

void folder_temp_path(char out[CHECKPOINT_PATH_BYTES], const char *dir, uint64_t step) {
  snprintf(out, CHECKPOINT_PATH_BYTES, "%s/.step-%08" PRIu64 ".tmp", dir, step);
}

/* "step-00000020" -> 20. Another spelling of the number would not be found again by it. */
static bool parse_step(const char *name, uint64_t *step) {
  char own[32];
  if (sscanf(name, "step-%" SCNu64, step) != 1) return false;
  snprintf(own, sizeof own, STEP_NAME, *step);
  return strcmp(name, own) == 0;
}

bool folder_step_of(const char *path, uint64_t *step) {
  const char *slash = strrchr(path, '/');
  return parse_step(slash != NULL ? slash + 1 : path, step);
}

const char *folder_of_file(Arena *arena, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
  if (strcmp(name, "checkpoint.json") != 0 && strncmp(name, "rank-", 5) != 0) return path;
  const char *folder = slash != NULL ? arena_strndup(arena, path, (size_t)(slash + 1 - path)) : "./";
  return access(arena_printf(arena, "%scheckpoint.json", folder), F_OK) == 0 ? folder : path;
}

static bool is_unfinished(const char *name) {
  size_t length = strlen(name);
  return strncmp(name, ".step-", 6) == 0 && length > 10 && strcmp(name + length - 4, ".tmp") == 0;
}

/* --- files and folders -------------------------------------------------------------------------------------------- */

/* Of a link only itself: what it leads to is kept elsewhere. */
static void remove_folder(const char *path) {
  struct dirent *entry;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
  if (fd < 0) unlink(path); /* a link, or a file in the place of one */
  if (folder == NULL) return;
  while ((entry = readdir(folder)) != NULL) unlinkat(dirfd(folder), entry->d_name, 0);
  closedir(folder);
  rmdir(path);
}

bool folder_sync(const char *path, Failure *failure) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL); /* some file systems sync no folders */
  if (!ok) folder_failed(path, "cannot be written to disk", failure);
  if (fd >= 0) close(fd);
  return ok;
}

bool folder_write(const char *path, const char *text, uint64_t bytes, Failure *failure) {
  int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0) return folder_failed(path, "cannot be created", failure);
  bool ok = true;
  for (uint64_t done = 0; ok && done < bytes;) {
    ssize_t put = write(fd, text + done, bytes - done);
    if (put < 0 && errno == EINTR) continue;
    ok = put > 0;
    if (ok) done += (uint64_t)put;
  }
  ok = ok && fsync(fd) == 0;
  if (!ok) folder_failed(path, "cannot be written", failure);
  close(fd);
  return ok;
}

void folder_clean(const char *dir) {
  char path[CHECKPOINT_PATH_BYTES];
  struct dirent *entry;
  DIR *folder = opendir(dir);
  if (folder == NULL) return;
  while ((entry = readdir(folder)) != NULL) {
    if (!is_unfinished(entry->d_name)) continue;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) < sizeof path) remove_folder(path);
  }
  closedir(folder);
}

bool folder_lock(const char *dir, int *fd, Failure *failure) {
  if (strlen(dir) > CHECKPOINT_PATH_BYTES - 256)
    return fail(failure, RUN_INVALID, "save: the folder's name is too long");
  *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*fd < 0) return folder_failed(dir, "cannot be opened", failure);
  if (!lock_take(*fd)) {
    close(*fd);
    *fd = -1;
    return fail(failure, RUN_INVALID, "save: %s: another run is saving here; stop it or save elsewhere", dir);
  }
  folder_clean(dir);
  return true;
}

/* --- finding, committing, pruning --------------------------------------------------------------------------------- */

/* The checkpoints in DIR: how many, the newest, the newest before `bound`, and the oldest but `bound`. */
typedef struct Census {
  uint32_t count;
  uint64_t newest, before, oldest;
  bool any_before;
} Census;

static bool take_census(const char *dir, uint64_t bound, Census *census) {
  struct dirent *entry;
  DIR *folder = opendir(dir);
  *census = (Census){.oldest = UINT64_MAX};
  if (folder == NULL) return false;
  while ((entry = readdir(folder)) != NULL) {
    uint64_t step;
    if (!parse_step(entry->d_name, &step)) continue;
    if (census->count++ == 0 || step > census->newest) census->newest = step;
    if (step < bound && (!census->any_before || step > census->before)) census->before = step;
    census->any_before |= step < bound;
    if (step != bound && step < census->oldest) census->oldest = step;
  }
  closedir(folder);
  return true;
}

bool folder_latest(Arena *arena, const char *dir, uint64_t before, const char **path, Failure *failure) {
  Census census;
  char out[CHECKPOINT_PATH_BYTES];
  *path = NULL;
  if (before == UINT64_MAX && access(arena_printf(arena, "%s/checkpoint.json", dir), F_OK) == 0) {
    *path = arena_strdup(arena, dir);
    return true;
  }
  if (!take_census(dir, before, &census))
    return errno == ENOENT || fail_file(failure, "checkpoint", dir, "cannot be listed");
  if (!census.any_before) return true;
  folder_step_path(out, dir, census.before);
  *path = arena_strdup(arena, out);
  return true;
}

/* Where no earlier branch has been set aside: superseded-step-00000012, or superseded-step-00000012-2. */
static void aside_path(char out[CHECKPOINT_PATH_BYTES], const char *dir, uint64_t step) {
  size_t used = (size_t)snprintf(out, CHECKPOINT_PATH_BYTES, "%.4000s/superseded-" STEP_NAME, dir, step);
  for (unsigned next = 2; access(out, F_OK) == 0; next++) snprintf(out + used, CHECKPOINT_PATH_BYTES - used, "-%u", next);
}

bool folder_set_aside(const char *dir, uint64_t step, Failure *failure) {
  char path[CHECKPOINT_PATH_BYTES], aside[CHECKPOINT_PATH_BYTES];
  Census census;
  for (;;) {
    if (!take_census(dir, UINT64_MAX, &census)) return fail_file(failure, "save", dir, "cannot be listed");
    if (census.count == 0 || census.newest <= step) return true;
    folder_step_path(path, dir, census.newest);
    aside_path(aside, dir, census.newest);
    if (rename(path, aside) != 0) return fail_file(failure, "save", path, "cannot be set aside");
    fprintf(stderr, "note: %s is newer than where this run goes on, and is now called %s\n", path, strrchr(aside, '/') + 1);
  }
}

static void prune(const char *dir, uint64_t step, uint32_t keep) {
  char path[CHECKPOINT_PATH_BYTES], gone[CHECKPOINT_PATH_BYTES];
  Census census;
  while (take_census(dir, step, &census) && census.count > keep && census.oldest != UINT64_MAX) {
    folder_step_path(path, dir, census.oldest);
    snprintf(gone, sizeof gone, "%.4000s/.step-%08" PRIu64 ".old.tmp", dir, census.oldest);
    if (rename(path, gone) != 0) return; /* at once invisible, then removed piece by piece */
    remove_folder(gone);
  }
}

/* Where a file system exchanges nothing (NFS), the old one leaves first. */
static bool put_after(const char *temp, const char *path) {
  char gone[CHECKPOINT_PATH_BYTES + sizeof ".old.tmp"];
  const char *slash = strrchr(path, '/');
  snprintf(gone, sizeof gone, "%.*s.%s.old.tmp", (int)(slash + 1 - path), path, slash + 1);
  if (rename(path, gone) != 0) return false;
  if (rename(temp, path) != 0) {
    const int error = errno;
    rename(gone, path);
    errno = error;
    return false;
  }
  remove_folder(gone);
  return true;
}

/* A run that went back to an older checkpoint comes by the same step again: the new one takes the old one's place. */
static bool put_in_place(const char *temp, const char *path) {
  if (rename(temp, path) == 0) return true;
  if (errno != EEXIST && errno != ENOTEMPTY) return false;
  if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_EXCHANGE) != 0) return (errno == EINVAL || errno == ENOSYS) && put_after(temp, path);
  remove_folder(temp);
  return true;
}

bool folder_commit(const char *dir, uint64_t step, uint32_t keep, Failure *failure) {
  char temp[CHECKPOINT_PATH_BYTES], path[CHECKPOINT_PATH_BYTES];
  folder_temp_path(temp, dir, step);
  folder_step_path(path, dir, step);
  if (!folder_sync(temp, failure)) return false;
  if (!put_in_place(temp, path)) return folder_failed(path, "cannot be put in place", failure);
  if (!folder_sync(dir, failure)) return false;
  if (keep > 0) prune(dir, step, keep);
  return true;
}
