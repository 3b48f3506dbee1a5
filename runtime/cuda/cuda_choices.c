/* Owns: reading, checking, locking and replacing a file of choices. The lock is on the file itself, which is replaced by renaming
 * another onto it: who gets the lock of one that has been replaced meanwhile opens the new one. */
#include "runtime/cuda/cuda_choices.h"

#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE "FSDPC_CUDA_ALGORITHMS"
enum { SCHEMA = 1, WAIT_MS = 20 };

struct CudaChoices {
  Arena *arena;
  const char *path;
  const char *file; /* path without links, which renaming would replace */
  const CudaChoicePlace *place;
  int fd;
  bool writable;
  bool fresh; /* empty still: if nothing comes of it, nothing stays */
  json_t *root, *list;
};

static bool failed(const CudaChoices *c, const char *what, Failure *failure) { return fail_file(failure, VARIABLE, c->path, what); }

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* A file that may be read only is as good, as long as nothing is added. */
static bool open_file(CudaChoices *c, Failure *failure) {
  c->fd = open(c->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  c->writable = c->fd >= 0;
  int error = errno;
  if (c->fd < 0 && (error == EACCES || error == EROFS || error == EPERM)) c->fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  errno = error;
  return c->fd >= 0 || failed(c, "cannot be opened", failure);
}

static bool wait_for_lock(const CudaChoices *c, const _Atomic uint32_t *stop, Failure *failure) {
  const struct timespec pause = {.tv_nsec = WAIT_MS * 1000000L};
  while (flock(c->fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed(c, "cannot be locked", failure);
    if (stop != NULL && atomic_load(stop) != 0) return fail(failure, RUN_PEER_FAILED, "another rank failed");
    nanosleep(&pause, NULL);
  }
  return true;
}

/* Of the file that now has the name. *current false: it is another than the one that is open. */
static bool look(CudaChoices *c, bool *current, Failure *failure) {
  struct stat own, named;
  if (fstat(c->fd, &own) != 0) return failed(c, "cannot be looked at", failure);
  if (!S_ISREG(own.st_mode)) return fail(failure, RUN_INVALID, "%s: %s: is no plain file; name one, or one that is still to be made", VARIABLE, c->path);
  *current = own.st_nlink > 0 /* what NFS knows sooner than names */ && stat(c->path, &named) == 0 && named.st_dev == own.st_dev &&
             named.st_ino == own.st_ino;
  c->fresh = own.st_size == 0;
  return true;
}

/* Nothing locks a file that nothing is added to: it is read as a whole, whatever is renamed onto it meanwhile. */
static bool open_locked(CudaChoices *c, const _Atomic uint32_t *stop, Failure *failure) {
  for (bool current = false; !current;) {
    if (c->fd >= 0) close(c->fd);
    if (!open_file(c, failure) || !look(c, &current, failure) || (c->writable && !wait_for_lock(c, stop, failure)) ||
        !look(c, &current, failure))
      return false;
  }
  char *real = realpath(c->path, NULL);
  c->file = real != NULL ? arena_strdup(c->arena, real) : c->path;
  free(real);
  return true;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static bool has_numbers(const json_t *object, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (names[i] != NULL && !json_is_integer(json_object_get(object, names[i]))) return false;
  return true;
}

static bool has_traits(const json_t *object) {
  for (int i = 0; i < CUDA_TRAITS; i++) {
    const json_t *value = json_object_get(object, cuda_trait_name(i));
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > UINT32_MAX) return false;
  }
  return true;
}

static bool is_choice(const json_t *choice) {
  static const char *const place[] = {"multiprocessors", "cublaslt", "workspace_bytes"};
  static const char *const shape[] = {
#define X(type, name, seen) seen ? #name : NULL,
      CUDA_SHAPE(X)
#undef X
  };
  return json_is_string(json_object_get(choice, "gpu")) && has_numbers(choice, place, sizeof place / sizeof *place) &&
         has_numbers(json_object_get(choice, "shape"), shape, sizeof shape / sizeof *shape) && has_traits(json_object_get(choice, "algorithm"));
}

static bool spoilt(const CudaChoices *c, const char *why, Failure *failure) {
  return fail(failure, RUN_INVALID, "%s: %s: %s; delete the file to have its products raced anew, or name another", VARIABLE, c->path, why);
}

static bool check_root(CudaChoices *c, Failure *failure) {
  json_t *version = json_object_get(c->root, "schema_version");
  c->list = json_object_get(c->root, "choices");
  if (!json_is_integer(version) || !json_is_array(c->list)) return spoilt(c, "has no schema_version, or no list of choices", failure);
  if (json_integer_value(version) != SCHEMA)
    return spoilt(c, arena_printf(c->arena, "has schema_version %lld, and this fsdpc reads %d", (long long)json_integer_value(version), SCHEMA), failure);
  for (size_t i = 0; i < json_array_size(c->list); i++)
    if (!is_choice(json_array_get(c->list, i)))
      return spoilt(c, arena_printf(c->arena, "choice %zu lacks its gpu, or a number of place, shape or algorithm", i + 1), failure);
  return true;
}

static bool read_file(CudaChoices *c, Failure *failure) {
  json_error_t error;
  c->root = c->fresh ? json_pack("{si s[]}", "schema_version", SCHEMA, "choices") : json_loadfd(c->fd, JSON_REJECT_DUPLICATES, &error);
  if (c->root != NULL) return check_root(c, failure);
  return spoilt(c, arena_printf(c->arena, "line %d, column %d: %s", error.line, error.column, error.text), failure);
}

CudaChoices *cuda_choices_open(Arena *arena, const char *path, const CudaChoicePlace *place, const _Atomic uint32_t *stop, Failure *failure) {
  CudaChoices *c = ARENA_NEW(arena, CudaChoices);
  *c = (CudaChoices){.arena = arena, .path = path, .file = path, .place = place, .fd = -1};
  if (open_locked(c, stop, failure) && read_file(c, failure)) return c;
  cuda_choices_close(c);
  return NULL;
}

/* --- asking and adding --------------------------------------------------------------------------------------------- */

static bool number_is(const json_t *object, const char *name, uint64_t value) {
  return json_integer_value(json_object_get(object, name)) == (json_int_t)value;
}

static bool is_here(const CudaChoicePlace *place, const json_t *choice) {
  return strcmp(json_string_value(json_object_get(choice, "gpu")), place->gpu) == 0 &&
         number_is(choice, "multiprocessors", (uint64_t)place->multiprocessors) && number_is(choice, "cublaslt", place->cublaslt) &&
         number_is(choice, "workspace_bytes", place->workspace_bytes);
}

static bool is_of(const CudaShape *shape, const json_t *choice) {
  const json_t *object = json_object_get(choice, "shape");
  bool same = true;
#define X(type, name, seen) same = same && (!seen || number_is(object, #name, (uint64_t)shape->name));
  CUDA_SHAPE(X)
#undef X
  return same;
}

bool cuda_choices_find(const CudaChoices *c, const CudaShape *shape, CudaTraits *out) {
  const json_t *found = NULL;
  for (size_t i = 0; i < json_array_size(c->list) && found == NULL; i++) {
    const json_t *choice = json_array_get(c->list, i);
    if (is_here(c->place, choice) && is_of(shape, choice)) found = json_object_get(choice, "algorithm");
  }
  for (int i = 0; i < CUDA_TRAITS && found != NULL; i++)
    out->value[i] = (uint32_t)json_integer_value(json_object_get(found, cuda_trait_name(i)));
  return found != NULL;
}

void cuda_choices_add(CudaChoices *c, const CudaEntry *entry, const CudaTraits *traits) {
  json_t *shape = json_object(), *algorithm = json_object();
  char text[CUDA_SHAPE_TEXT_BYTES];
  CudaShape seen_shape = entry->shape;
  seen_shape.add = 0;
#define X(type, name, seen) if (seen) json_object_set_new(shape, #name, json_integer((json_int_t)entry->shape.name));
  CUDA_SHAPE(X)
#undef X
  for (int i = 0; i < CUDA_TRAITS; i++) json_object_set_new(algorithm, cuda_trait_name(i), json_integer((json_int_t)traits->value[i]));
  json_array_append_new(
      c->list, json_pack("{ss si sI sI ss so so si sf}", "gpu", c->place->gpu, "multiprocessors", c->place->multiprocessors, "cublaslt",
                         (json_int_t)c->place->cublaslt, "workspace_bytes", (json_int_t)c->place->workspace_bytes, "product",
                         cuda_shape_text(&seen_shape, text), "shape", shape, "algorithm", algorithm, "candidates", entry->candidates,
                         "faster_percent", 0.1 * (double)(int64_t)(10 * entry->faster + 0.5)));
}

/* --- saving ------------------------------------------------------------------------------------------------------- */

/* Another file in the same folder. */
static int open_other(const CudaChoices *c, char **name) {
  *name = arena_printf(c->arena, "%s/.fsdpc.XXXXXX", dirname(arena_strdup(c->arena, c->file)));
  return mkstemp(*name);
}

bool cuda_choices_writable(const CudaChoices *c, Failure *failure) {
  char *name;
  if (!c->writable) return errno = EACCES, failed(c, "does not know all products of this run, and cannot be written", failure);
  int fd = open_other(c, &name);
  if (fd < 0) return failed(c, "cannot be replaced, for want of another file in its folder", failure);
  close(fd), unlink(name);
  return true;
}

static bool write_other(const CudaChoices *c, int fd) {
  struct stat status;
  return fstat(c->fd, &status) == 0 && fchmod(fd, status.st_mode & 0777) == 0 &&
         json_dumpfd(c->root, fd, JSON_INDENT(1) | JSON_REAL_PRECISION(4)) == 0 && write(fd, "\n", 1) == 1 && fsync(fd) == 0;
}

bool cuda_choices_save(CudaChoices *c, Failure *failure) {
  char *name;
  int fd = open_other(c, &name);
  if (fd < 0) return failed(c, "cannot be replaced, for want of another file in its folder", failure);
  bool saved = write_other(c, fd) && rename(name, c->file) == 0;
  int error = errno;
  if (!saved) unlink(name);
  close(fd);
  errno = error;
  c->fresh = c->fresh && !saved;
  return saved || failed(c, "cannot be written", failure);
}

void cuda_choices_close(CudaChoices *c) {
  json_decref(c->root);
  if (c->fresh && c->writable) unlink(c->file);
  if (c->fd >= 0) close(c->fd);
}
