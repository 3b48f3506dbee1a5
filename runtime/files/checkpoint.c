/* Owns: writing checkpoints: the copy at a step's border, and the thread that brings it to disk.
 *
 * The thread runs while steps do, so it allocates nothing of this program's. Rank 0's thread waits for the others'
 * files, writes the index and renames the folder; what it needs to know of them they leave in their RankStatus. */
#include "runtime/files/checkpoint.h"

#include "base/remedy.h"
#include "runtime/files/crc32c.h"
#include "runtime/floats.h"
#include "runtime/runtime.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE_BYTES = 4 << 20 };

/* A tensor of this rank's file. */
typedef struct Piece {
  int32_t buf;
  uint64_t local; /* element of the shard's buffer */
  uint64_t count;
} Piece;

struct Checkpointer {
  CheckpointerConfig config;
  SafeTensor *tensors; /* by name; the first is "crc32c" */
  Piece *pieces;       /* of tensors 1, 2, ... */
  uint32_t piece_count;
  const char *header;
  uint64_t header_bytes, data_bytes;
  uint32_t *sums;
  unsigned char *host;
  uint32_t asked; /* saves so far */
  Standing standing;
  bool writes, started;
  pthread_t thread;
  Failure failure; /* of the thread, before `failed` */
  _Atomic uint32_t failed, closing;
  Counter go;
};

const char *state_name(StateKind kind) {
  static const char *const names[STATE_KINDS] = {"param", "m", "v"};
  return names[kind];
}

int32_t state_buf(const PlanUnit *unit, StateKind kind) {
  const int32_t bufs[STATE_KINDS] = {unit->param_buf, unit->m_buf, unit->v_buf};
  return bufs[kind];
}

/* Every rank holds all of it, instead of its shard: Adafactor's factored moments. */
static bool state_is_whole(const Plan *plan, StateKind kind) {
  return kind == STATE_V && plan->recipe.optimizer == OPTIMIZER_ADAFACTOR;
}

UnitRanges state_ranges(Arena *arena, const Plan *plan, uint32_t unit, StateKind kind, const UnitRanges *shard) {
  if (!state_is_whole(plan, kind)) return shard[unit];
  const PlanUnit *of = &plan->units.data[unit];
  UnitRanges ranges = {.data = ARENA_ARRAY(arena, ParamRange, (size_t)of->param_count)};
  uint64_t at = 0;
  for (int32_t p = of->first_param; p < of->first_param + of->param_count; p++) {
    uint64_t count = factored_numel(plan->params.data[p].rank, plan->params.data[p].dim);
    ranges.data[ranges.count++] = (ParamRange){p, 0, at, count};
    at += count;
  }
  return ranges;
}

/* --- in the thread ------------------------------------------------------------------------------------------------ */

static bool put(Checkpointer *self, int fd, const void *data, uint64_t bytes, uint64_t offset) {
  const unsigned char *from = data;
  while (bytes > 0) {
    ssize_t done = pwrite(fd, from, bytes < WRITE_BYTES ? bytes : WRITE_BYTES, (off_t)offset);
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = EIO;
    if (done <= 0) return false;
    from += done;
    offset += (uint64_t)done;
    bytes -= (uint64_t)done;
    atomic_fetch_add(&self->config.statuses[self->config.rank].beats, 1);
  }
  return true;
}

static bool put_all(Checkpointer *self, int fd) {
  const SafeTensor *sums = &self->tensors[0];
  uint64_t data_at = self->header_bytes + sums->end;
  for (uint32_t i = 0; i < self->piece_count; i++) {
    const SafeTensor *tensor = &self->tensors[i + 1];
    self->sums[i] = crc32c(0, self->host + (tensor->begin - sums->end), tensor->end - tensor->begin);
  }
  return put(self, fd, self->header, self->header_bytes, 0) &&
         put(self, fd, self->sums, self->piece_count * sizeof *self->sums, self->header_bytes) &&
         put(self, fd, self->host, self->data_bytes, data_at) && fsync(fd) == 0;
}

static uint32_t writers(const Checkpointer *self) {
  return self->config.plan->world.shard;
}

static bool is_made(const char *path) { return mkdir(path, 0777) == 0 || errno == EEXIST; }

/* Also where DIR was moved or removed since the run began: what was trained is not lost for that. */
static bool is_made_within(const char *dir, const char *path) {
  return is_made(path) || (errno == ENOENT && is_made(dir) && is_made(path));
}

static bool write_file(Checkpointer *self) {
  char path[CHECKPOINT_PATH_BYTES], name[64];
  RankStatus *status = &self->config.statuses[self->config.rank];
  folder_temp_path(path, self->config.dir, self->standing.step);
  if (!is_made_within(self->config.dir, path)) return folder_failed(path, "cannot be made", &self->failure);
  checkpoint_file_name(name, self->config.rank, writers(self));
  size_t used = strlen(path);
  snprintf(path + used, sizeof path - used, "/%s", name);
  int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0) return folder_failed(path, "cannot be created", &self->failure);
  bool ok = put_all(self, fd);
  if (!ok) folder_failed(path, "cannot be written", &self->failure);
  close(fd);
  status->saved_bytes = self->header_bytes + self->tensors[0].end + self->data_bytes;
  status->saved_crc =
      crc32c(crc32c(0, self->header, self->header_bytes), self->sums, self->piece_count * sizeof *self->sums);
  return ok;
}

/* Rank 0: everybody's files are there. */
static bool commit(Checkpointer *self) {
  char path[CHECKPOINT_PATH_BYTES];
  Control *control = self->config.control;
  for (uint32_t rank = 0; rank < writers(self); rank++)
    if (!counter_wait(&self->config.statuses[rank].saved, self->asked, SPIN_SHORT, &control->stop))
      return fail(&self->failure, RUN_PEER_FAILED, "rank 0: another rank failed while saving");
  folder_temp_path(path, self->config.dir, self->standing.step);
  size_t used = strlen(path);
  snprintf(path + used, sizeof path - used, "/checkpoint.json");
  if (!index_write(&self->config, &self->standing, path, writers(self), &self->failure) ||
      !folder_commit(self->config.dir, self->standing.step, self->config.keep, &self->failure))
    return false;
  atomic_store(&control->saved_step, self->standing.step);
  counter_set(&control->committed, self->asked);
  return true;
}

static void *writer_main(void *arg) {
  Checkpointer *self = arg;
  for (uint32_t next = 1;; next++) {
    if (!counter_wait(&self->go, next, SPIN_SHORT, &self->closing)) return NULL;
    bool ok = write_file(self);
    if (ok) counter_set(&self->config.statuses[self->config.rank].saved, next);
    if (ok && self->config.rank == 0) ok = commit(self);
    if (ok) continue;
    control_name_saved(self->config.control, &self->failure);
    atomic_store(&self->failed, 1);
    control_fail(self->config.control, self->config.rank, &self->failure);
    return NULL;
  }
}

/* --- in the rank -------------------------------------------------------------------------------------------------- */

bool checkpointer_wait(Checkpointer *self, Failure *failure) {
  Control *control = self->config.control;
  if (counter_wait(&control->committed, self->asked, SPIN_SHORT, &control->stop)) return true;
  if (atomic_load(&self->failed) != 0) return fail(failure, self->failure.code, "%s", self->failure.text);
  return fail(failure, RUN_PEER_FAILED, "rank %u: another rank failed while saving", self->config.rank);
}

static bool copy_state(Checkpointer *self, Failure *failure) {
  Backend *backend = self->config.backend;
  uint64_t begin = self->tensors[0].end;
  for (uint32_t i = 0; i < self->piece_count; i++) {
    const Piece *piece = &self->pieces[i];
    const SafeTensor *tensor = &self->tensors[i + 1];
    float *to = (float *)(void *)(self->host + (tensor->begin - begin));
    if (!floats_read(backend, self->config.plan, piece->buf, piece->local, to, piece->count))
      return fail(failure, RUN_INVALID, "checkpoint: %s", backend->error(backend));
  }
  return true;
}

bool checkpointer_save(Checkpointer *self, const Standing *standing, Failure *failure) {
  if (!checkpointer_wait(self, failure) || (self->writes && !copy_state(self, failure))) return false;
  self->asked++; /* not for a copy that failed, which no file will follow */
  if (!self->writes) return true;
  self->standing = *standing;
  counter_set(&self->go, self->asked);
  return true;
}

uint64_t runtime_checkpoint_bytes(const Plan *plan) {
  uint64_t bytes = 0;
  for (uint32_t u = 0; u < plan->units.count; u++)
    for (int kind = 0; kind < STATE_KINDS; kind++) {
      int32_t buf = state_buf(&plan->units.data[u], (StateKind)kind);
      if (buf != PLAN_NONE) bytes += plan->bufs.data[buf].numel * sizeof(float);
    }
  return bytes;
}

void checkpointer_close(Checkpointer *self) {
  if (self == NULL) return;
  if (self->started) {
    atomic_store(&self->closing, 1);
    pthread_join(self->thread, NULL);
  }
  free(self->host);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* What this rank writes of a unit's state; what all hold, the first one does. */
static UnitRanges written_ranges(Arena *arena, const Checkpointer *self, uint32_t unit, StateKind kind) {
  const Plan *plan = self->config.plan;
  bool held = state_buf(&plan->units.data[unit], kind) != PLAN_NONE;
  if (!held || (state_is_whole(plan, kind) && self->config.rank != 0)) return (UnitRanges){0};
  return state_ranges(arena, plan, unit, kind, self->config.ranges);
}

static uint32_t count_pieces(Arena *arena, const Checkpointer *self) {
  uint32_t count = 0;
  for (uint32_t u = 0; u < self->config.plan->units.count; u++)
    for (int kind = 0; kind < STATE_KINDS; kind++) count += written_ranges(arena, self, u, (StateKind)kind).count;
  return count;
}

typedef struct Named {
  SafeTensor tensor;
  Piece piece;
} Named;

static int by_name(const void *a, const void *b) {
  return strcmp(((const Named *)a)->tensor.name, ((const Named *)b)->tensor.name);
}

static Named named(Arena *arena, const Checkpointer *self, uint32_t unit, const ParamRange *range, StateKind kind) {
  const Plan *plan = self->config.plan;
  const char *param = plan_str(plan, plan->params.data[range->param].name);
  Named it = {.piece = {state_buf(&plan->units.data[unit], kind), range->local, range->count}};
  it.tensor.name = arena_printf(arena, "%s/%s@%" PRIu64, state_name(kind), param, range->first);
  it.tensor.rank = 1;
  it.tensor.dim[0] = (int64_t)range->count;
  it.tensor.numel = range->count;
  return it;
}

/* Tensors in the order of their names, "crc32c" first. */
static bool lay_out(Arena *arena, Checkpointer *self, Failure *failure) {
  const Plan *plan = self->config.plan;
  uint32_t count = 0;
  self->piece_count = count_pieces(arena, self);
  Named *all = ARENA_ARRAY(arena, Named, self->piece_count);
  for (uint32_t u = 0; u < plan->units.count; u++)
    for (int kind = 0; kind < STATE_KINDS; kind++) {
      UnitRanges ranges = written_ranges(arena, self, u, (StateKind)kind);
      for (uint32_t r = 0; r < ranges.count; r++) all[count++] = named(arena, self, u, &ranges.data[r], (StateKind)kind);
    }
  if (count > 1) qsort(all, count, sizeof *all, by_name);
  self->tensors = ARENA_ARRAY(arena, SafeTensor, count + 1);
  self->pieces = ARENA_ARRAY(arena, Piece, count);
  self->sums = ARENA_ARRAY(arena, uint32_t, count);
  self->tensors[0] =
      (SafeTensor){.name = "crc32c", .dtype = "U32", .bits = 32, .rank = 1, .dim = {(int64_t)count}, .numel = count};
  for (uint32_t i = 0; i < count; i++) self->tensors[i + 1] = all[i].tensor, self->pieces[i] = all[i].piece;
  self->header = safetensors_layout(arena, self->tensors, count + 1, &self->header_bytes);
  if (self->header == NULL)
    return fail(failure, RUN_INVALID, "save: the plan's parameter names are not distinct UTF-8 texts");
  self->data_bytes = self->tensors[count].end - self->tensors[0].end;
  return true;
}

Checkpointer *checkpointer_open(Arena *arena, const CheckpointerConfig *config, Failure *failure) {
  Checkpointer *self = ARENA_NEW(arena, Checkpointer);
  self->config = *config;
  self->writes = config->rank < config->plan->world.shard; /* replica 0 */
  if (!self->writes) return self;
  if (!lay_out(arena, self, failure)) return NULL;
  uint64_t bytes = runtime_checkpoint_bytes(config->plan); /* data_bytes and the padding of shards */
  assert(self->data_bytes <= bytes);
  self->host = malloc(bytes > 0 ? bytes : 1);
  if (self->host == NULL) {
    fail(failure, RUN_INVALID,
         "save: no memory for the checkpoint's host buffer of %" PRIu64
         " bytes a rank; use more ranks, or leave --save out",
         bytes);
    return NULL;
  }
  memset(self->host, 0, bytes); /* memory that is not there is missed now, and not at the first save */
  int error = pthread_create(&self->thread, NULL, writer_main, self);
  self->started = error == 0;
  if (self->started) return self;
  fail(failure, RUN_INVALID, "save: the thread that writes checkpoints cannot be started: %s%s", strerror(error), remedy_of(error));
  free(self->host);
  return NULL;
}
