/* Owns: saving weights from all ranks into one file, whole or not at all. */
#include "runtime/files/weights.h"

#include "base/arena.h"
#include "runtime/files/checkpoint.h"
#include "runtime/files/layers.h"
#include "runtime/floats.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 18 }; /* elements */

static const char file_name[] = "model.safetensors";

static bool failed(const Saver *saver, Failure *failure, const char *what) {
  return fail_file(failure, "save", saver->path, what);
}

/* --- before the fork ------------------------------------------------------------------------------------------------ */

static bool make_folder(Arena *arena, const char *dir, Failure *failure) {
  char *path = arena_strdup(arena, dir);
  for (char *slash = path + 1; *path != '\0'; slash++) {
    if (*slash != '/' && *slash != '\0') continue;
    char kept = *slash;
    *slash = '\0';
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
      return fail_file(failure, "save", path, "the folder cannot be made");
    *slash = kept;
    if (kept == '\0') break;
  }
  struct stat info;
  if (stat(dir, &info) == 0 && !S_ISDIR(info.st_mode)) {
    errno = ENOTDIR;
  } else if (access(dir, W_OK | X_OK) == 0) {
    return true;
  }
  return fail_file(failure, "save", dir, "cannot be written to");
}

static int by_name(const void *a, const void *b, void *plan) {
  const PlanParam *params = ((const Plan *)plan)->params.data;
  return strcmp(plan_str(plan, params[*(const uint32_t *)a].name), plan_str(plan, params[*(const uint32_t *)b].name));
}

static bool write_header(Arena *arena, Saver *saver, Failure *failure) {
  uint32_t count = saver->plan->params.count;
  SafeOrigin origin = {saver->step, layers_text(arena, saver->plan)};
  saver->header = safetensors_layout_of(arena, saver->tensors, count, origin, &saver->header_bytes);
  if (saver->header == NULL)
    return fail(failure, RUN_INVALID, "save: the plan's parameter names are not distinct UTF-8 texts");
  saver->file_bytes = saver->header_bytes + (count > 0 ? saver->tensors[count - 1].end : 0);
  return true;
}

static void list_tensors(Arena *arena, Saver *saver, const Plan *plan) {
  uint32_t count = plan->params.count;
  uint32_t *order = ARENA_ARRAY(arena, uint32_t, count);
  saver->tensors = ARENA_ARRAY(arena, SafeTensor, count);
  saver->of_param = ARENA_ARRAY(arena, uint32_t, count);
  for (uint32_t i = 0; i < count; i++) order[i] = i;
  if (count > 1) qsort_r(order, count, sizeof *order, by_name, (void *)(uintptr_t)plan);
  for (uint32_t i = 0; i < count; i++) {
    const PlanParam *param = &plan->params.data[order[i]];
    SafeTensor *tensor = &saver->tensors[i];
    saver->of_param[order[i]] = i;
    *tensor = (SafeTensor){.name = plan_str(plan, param->name), .rank = (uint32_t)param->rank};
    tensor->numel = param_numel(param);
    memcpy(tensor->dim, param->dim, sizeof param->dim);
  }
}

bool saver_open(Arena *arena, Saver *saver, const Plan *plan, const char *dir, uint64_t step, Failure *failure) {
  *saver = (Saver){.plan = plan, .dir = dir, .step = step};
  saver->path = arena_printf(arena, "%s/%s", dir, file_name);
  saver->temp = arena_printf(arena, "%s/.%s.tmp", dir, file_name); /* the folder is locked: one job has it */
  list_tensors(arena, saver, plan);
  return make_folder(arena, dir, failure) && write_header(arena, saver, failure);
}

bool saver_at(Arena *arena, const Saver *opened, uint64_t step, Saver *saver, Failure *failure) {
  *saver = *opened;
  saver->step = step;
  return write_header(arena, saver, failure);
}

/* --- one save ---------------------------------------------------------------------------------------------------------- */

static bool write_all(int fd, const void *data, uint64_t bytes, uint64_t offset) {
  const unsigned char *from = data;
  while (bytes > 0) {
    ssize_t put = pwrite(fd, from, bytes, (off_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    from += put;
    offset += (uint64_t)put;
    bytes -= (uint64_t)put;
  }
  return true;
}

static void fd_path(char out[64], long pid, int fd) { snprintf(out, 64, "/proc/%ld/fd/%d", pid, fd); }

/* From now on the parent removes the temporary file when we die. */
static bool name_temp(const Saver *saver, Control *control) {
  errno = ENAMETOOLONG;
  if (strlen(saver->temp) >= sizeof control->save_temp) return false;
  strcpy(control->save_temp, saver->temp);
  return true;
}

static int open_named_temp(const Saver *saver, Control *control) {
  return !name_temp(saver, control) ? -1 : open(saver->temp, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0666);
}

static int open_temp(const Saver *saver, Control *control) {
  char path[64];
  int fd = open(saver->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd >= 0) {
    fd_path(path, (long)getpid(), fd);
    if (access(path, F_OK) == 0) return fd;
    close(fd); /* without /proc it could get no name later */
  } else if (errno == EACCES || errno == EROFS || errno == EMFILE || errno == ENFILE) {
    return -1;
  }
  return open_named_temp(saver, control);
}

/* Where a file system takes none in advance, writing will tell. */
static bool take_room(int fd, uint64_t bytes) {
  int taken;
  do taken = fallocate(fd, 0, 0, (off_t)bytes);
  while (taken != 0 && errno == EINTR); /* a signal, in memory's file system */
  return taken == 0 || errno == EOPNOTSUPP || errno == ENOSYS;
}

/* Rank 0: an empty file of the right size, with its header. */
static bool begin_file(const Saver *saver, const SaveRank *self, int *fd, Failure *failure) {
  Control *control = self->control;
  *fd = self->one_host ? open_temp(saver, control) : open_named_temp(saver, control);
  if (*fd < 0) return failed(saver, failure, "cannot be created");
  if (!take_room(*fd, saver->file_bytes))
    return failed(saver, failure, "no room for it");
  if (!write_all(*fd, saver->header, saver->header_bytes, 0)) return failed(saver, failure, "cannot be written");
  atomic_store(&control->save_pid, (int32_t)getpid());
  atomic_store(&control->save_fd, *fd);
  return true;
}

static bool write_range(const Saver *saver, const SaveRank *self, int32_t unit, const ParamRange *range, int fd,
                        float *chunk, Failure *failure) {
  const SafeTensor *tensor = &saver->tensors[saver->of_param[range->param]];
  uint64_t to = saver->header_bytes + tensor->begin + range->first * sizeof(float);
  int32_t buf = saver->plan->units.data[unit].param_buf;
  for (uint64_t done = 0; done < range->count; done += CHUNK) {
    uint64_t n = range->count - done < CHUNK ? range->count - done : CHUNK;
    if (!floats_read(self->backend, saver->plan, buf, range->local + done, chunk, n))
      return fail(failure, RUN_INVALID, "save: %s", self->backend->error(self->backend));
    if (!write_all(fd, chunk, n * sizeof *chunk, to + done * sizeof *chunk)) return failed(saver, failure, "cannot be written");
  }
  return true;
}

static bool write_shard(const Saver *saver, const SaveRank *self, int fd, Failure *failure) {
  float *chunk = malloc(CHUNK * sizeof *chunk);
  bool ok = chunk != NULL || fail(failure, RUN_INVALID, "save: no memory for a copy buffer");
  for (uint32_t u = 0; ok && u < saver->plan->units.count; u++)
    for (uint32_t r = 0; ok && r < self->ranges[u].count; r++)
      ok = write_range(saver, self, (int32_t)u, &self->ranges[u].data[r], fd, chunk, failure);
  free(chunk);
  return ok;
}

/* Gives the written file its name. */
static bool publish(const Saver *saver, Control *control, int fd, Failure *failure) {
  char path[64];
  if (fsync(fd) != 0) return failed(saver, failure, "cannot be written");
  if (control->save_temp[0] == '\0') {
    fd_path(path, (long)getpid(), fd);
    if (linkat(AT_FDCWD, path, AT_FDCWD, saver->path, AT_SYMLINK_FOLLOW) == 0) return true;
    if (errno != EEXIST) return failed(saver, failure, "cannot be put in place");
    unlink(saver->temp); /* of a run that was killed right here */
    if (!name_temp(saver, control) || linkat(AT_FDCWD, path, AT_FDCWD, saver->temp, AT_SYMLINK_FOLLOW) != 0)
      return failed(saver, failure, "cannot be put in place");
  }
  if (rename(saver->temp, saver->path) != 0) {
    failed(saver, failure, "cannot be put in place");
    unlink(saver->temp);
    return false;
  }
  return true;
}

static int open_peers_file(const Saver *saver, const SaveRank *self) {
  char path[64];
  bool named = !self->one_host || self->control->save_temp[0] != '\0'; /* the folder is all that hosts share */
  if (named) return open(saver->temp, O_RDWR | O_CLOEXEC);
  fd_path(path, (long)atomic_load(&self->control->save_pid), atomic_load(&self->control->save_fd));
  return open(path, O_RDWR | O_CLOEXEC);
}

static bool meet(const SaveRank *self, Failure *failure) {
  if (self->comm->barrier(self->comm) == COMM_OK) return true;
  return fail(failure, RUN_PEER_FAILED, "rank %u: another rank failed while saving", self->rank);
}

static bool save(const Saver *saver, const SaveRank *self, int *fd, Failure *failure) {
  bool writes = self->rank < saver->plan->world.shard; /* replica 0 */
  if (self->rank == 0 && !begin_file(saver, self, fd, failure)) return false;
  if (!meet(self, failure)) return false;
  if (writes && self->rank != 0) *fd = open_peers_file(saver, self);
  if (writes && *fd < 0) return failed(saver, failure, "cannot be opened by every rank");
  if (!meet(self, failure)) return false; /* or a rank 0 that fails would close the file before others opened it */
  if (writes && !write_shard(saver, self, *fd, failure)) return false;
  if (writes && !self->one_host && fsync(*fd) != 0) return failed(saver, failure, "cannot be written");
  if (!meet(self, failure)) return false;
  if (self->rank != 0) return true;
  if (!publish(saver, self->control, *fd, failure)) return false;
  return folder_sync(saver->dir, failure);
}

bool saver_save(const Saver *saver, const SaveRank *self, Failure *failure) {
  int fd = -1;
  bool ok = save(saver, self, &fd, failure);
  if (fd >= 0) close(fd);
  if (self->rank == 0 && self->control->save_temp[0] != '\0') {
    if (!ok) unlink(self->control->save_temp);
    self->control->save_temp[0] = '\0';
  }
  return ok;
}
