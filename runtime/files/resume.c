/* Owns: reading checkpoints: which piece of which file holds which elements of this rank's shard. A file is untrusted:
 * its size, its header and every tensor that is read must match their checksums. */
#include "runtime/files/checkpoint.h"

#include "runtime/files/crc32c.h"
#include "runtime/floats.h"
#include "runtime/runtime.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHUNK_BYTES = 1 << 20 };

bool checkpoint_damaged(const char *path, const char *what, Failure *failure) {
  failure->damaged = failure->code == 0;
  return fail(failure, RUN_INVALID, "checkpoint: %s: %s; the checkpoint is damaged: use an older one", path, what);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static const SafeTensor *sums_of(const Safetensors *file) {
  const SafeTensor *sums = safetensors_find(file, "crc32c");
  bool good = sums != NULL && strcmp(sums->dtype, "U32") == 0 && sums->numel + 1 == file->tensors.count;
  return good ? sums : NULL;
}

/* The header and the table of checksums are what the index says they are. */
static bool check_file(const CheckpointFile *wanted, const Safetensors *file, Failure *failure) {
  struct stat info;
  if (fstat(file->fd, &info) != 0 || (uint64_t)info.st_size != wanted->bytes)
    return checkpoint_damaged(wanted->path, "its size is not what the index says", failure);
  const SafeTensor *sums = sums_of(file);
  if (sums == NULL) return checkpoint_damaged(wanted->path, "it has no table of checksums", failure);
  uint64_t bytes = file->buffer + sums->end; /* "crc32c" lies first */
  unsigned char *head = malloc(bytes);
  if (head == NULL) return fail(failure, RUN_INVALID, "checkpoint: %s: no memory for its header", wanted->path);
  const SafeTensor from_start = {.name = "header"};
  Safetensors whole = *file;
  whole.buffer = 0;
  bool ok = safetensors_read_bytes(&whole, &from_start, 0, bytes, head, failure);
  if (ok && crc32c(0, head, bytes) != wanted->crc)
    ok = checkpoint_damaged(wanted->path, "the checksum of its header does not match", failure);
  free(head);
  return ok;
}

/* What is wrong with a safetensors file is, in a checkpoint, damage. */
static bool refuse_file(const Failure *reason, Failure *failure) {
  failure->damaged = reason->damaged && failure->code == 0;
  bool said = strncmp(reason->text, "checkpoint: ", 12) == 0;
  return fail(failure, reason->code, "%s%s%s", said ? "" : "checkpoint: ", reason->text,
              reason->damaged && !said ? "; the checkpoint is damaged: use an older one" : "");
}

bool checkpoint_open(Arena *arena, Checkpoint *checkpoint, const Plan *plan, const char *path, bool to_train,
                     Failure *failure) {
  if (!index_read(arena, checkpoint, plan, path, to_train, failure)) return false;
  checkpoint->opened = ARENA_ARRAY(arena, Safetensors, checkpoint->file_count);
  for (uint32_t i = 0; i < checkpoint->file_count; i++) checkpoint->opened[i].fd = -1;
  for (uint32_t i = 0; i < checkpoint->file_count; i++) {
    Failure reason = {0};
    if (safetensors_open(arena, &checkpoint->opened[i], checkpoint->files[i].path, &reason) &&
        check_file(&checkpoint->files[i], &checkpoint->opened[i], &reason))
      continue;
    checkpoint_close(checkpoint);
    return refuse_file(&reason, failure);
  }
  return true;
}

void checkpoint_close(Checkpoint *checkpoint) {
  for (uint32_t i = 0; checkpoint->opened != NULL && i < checkpoint->file_count; i++)
    safetensors_close(&checkpoint->opened[i]);
  checkpoint->opened = NULL;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* A parameter's place in this rank's shard, and how much of it has been read. */
typedef struct Target {
  const PlanUnit *unit;
  const ParamRange *range[STATE_KINDS]; /* NULL: nothing of it is ours */
  uint64_t loaded[STATE_KINDS];
} Target;

typedef struct Loader {
  const Plan *plan;
  Backend *backend; /* NULL: values go to `out` instead */
  float *out;
  Target *targets; /* one a parameter */
  uint32_t *order; /* parameters by name */
  unsigned char *chunk;
} Loader;

/* A tensor's name, taken apart: "m/h.0.ln_1.weight@64". */
typedef struct PieceName {
  StateKind kind;
  const char *param; /* `length` characters of the tensor's name */
  size_t length;
  uint64_t first;
} PieceName;

static bool parse_name(const char *text, PieceName *name) {
  const char *slash = strchr(text, '/'), *at = strrchr(text, '@');
  char end;
  if (slash == NULL || at == NULL || at < slash) return false;
  int kind = 0;
  while (kind < STATE_KINDS && (strlen(state_name((StateKind)kind)) != (size_t)(slash - text) ||
                                strncmp(state_name((StateKind)kind), text, (size_t)(slash - text)) != 0))
    kind++;
  name->kind = (StateKind)kind;
  name->param = slash + 1;
  name->length = (size_t)(at - slash - 1);
  return kind < STATE_KINDS && sscanf(at + 1, "%" SCNu64 "%c", &name->first, &end) == 1;
}

static int by_name(const void *a, const void *b, void *arg) {
  const Plan *plan = arg;
  return strcmp(plan_str(plan, plan->params.data[*(const uint32_t *)a].name),
                plan_str(plan, plan->params.data[*(const uint32_t *)b].name));
}

/* As strcmp has it. */
static int compare_name(const PieceName *name, const char *param) {
  const int order = strncmp(name->param, param, name->length);
  return order == 0 && param[name->length] != '\0' ? -1 : order;
}

static Target *find_target(const Loader *loader, const PieceName *name) {
  uint32_t low = 0, high = loader->plan->params.count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    int order = compare_name(name, plan_str(loader->plan, loader->plan->params.data[loader->order[middle]].name));
    if (order == 0) return &loader->targets[loader->order[middle]];
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}

/* Writes what [first, first + n) of the parameter, in the chunk, and the target have in common. */
static bool keep(Loader *loader, Target *target, StateKind kind, uint64_t first, uint64_t n, Failure *failure) {
  const ParamRange *range = target->range[kind];
  uint64_t low = first > range->first ? first : range->first;
  uint64_t high = first + n < range->first + range->count ? first + n : range->first + range->count;
  if (low >= high) return true;
  const float *values = (const float *)(const void *)loader->chunk + (low - first);
  uint64_t at = range->local + (low - range->first);
  if (loader->backend == NULL)
    memcpy(loader->out + at, values, (high - low) * sizeof *values);
  else if (!floats_write(loader->backend, loader->plan, state_buf(target->unit, kind), at, values, high - low))
    return fail(failure, RUN_INVALID, "checkpoint: %s", loader->backend->error(loader->backend));
  target->loaded[kind] += high - low;
  return true;
}

static bool load_tensor(Loader *loader, const Safetensors *file, const SafeTensor *tensor, uint32_t sum, Target *target,
                        const PieceName *name, Failure *failure) {
  uint64_t bytes = tensor->end - tensor->begin;
  uint32_t crc = 0;
  for (uint64_t done = 0; done < bytes; done += CHUNK_BYTES) {
    uint64_t n = bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES;
    if (!safetensors_read_bytes(file, tensor, done, n, loader->chunk, failure)) return false;
    crc = crc32c(crc, loader->chunk, n);
    if (!keep(loader, target, name->kind, name->first + done / sizeof(float), n / sizeof(float), failure)) return false;
  }
  if (crc == sum) return true;
  char what[700];
  snprintf(what, sizeof what, "the checksum of tensor \"%.600s\" does not match", tensor->name);
  return checkpoint_damaged(file->path, what, failure);
}

static bool load_file(Loader *loader, const Safetensors *file, Failure *failure) {
  const SafeTensor *sums = sums_of(file);
  for (uint32_t i = 1; i < file->tensors.count; i++) { /* by name, as the checksums are; "crc32c" is the first */
    const SafeTensor *tensor = &file->tensors.data[i];
    PieceName name;
    uint32_t sum;
    Target *target = parse_name(tensor->name, &name) ? find_target(loader, &name) : NULL;
    if (target == NULL || strcmp(tensor->dtype, "F32") != 0)
      return fail(failure, RUN_INVALID, "checkpoint: %s: tensor \"%.200s\" is not known", file->path, tensor->name);
    const ParamRange *range = target->range[name.kind];
    if (range == NULL || name.first >= range->first + range->count ||
        name.first + tensor->numel <= range->first)
      continue;
    if (!safetensors_read_bytes(file, sums, (i - 1) * sizeof sum, sizeof sum, &sum, failure) ||
        !load_tensor(loader, file, tensor, sum, target, &name, failure))
      return false;
  }
  return true;
}

static bool check_complete(const Loader *loader, const char *path, Failure *failure) {
  for (uint32_t p = 0; p < loader->plan->params.count; p++) {
    const Target *target = &loader->targets[p];
    for (int kind = 0; kind < STATE_KINDS; kind++) {
      if (target->range[kind] == NULL || target->loaded[kind] == target->range[kind]->count) continue;
      return fail(failure, RUN_INVALID, "checkpoint: %s: it does not hold all of \"%s\" of parameter \"%s\"", path,
                  state_name((StateKind)kind), plan_str(loader->plan, loader->plan->params.data[p].name));
    }
  }
  return true;
}

static bool load_all(const Checkpoint *checkpoint, Loader *loader, Failure *failure) {
  for (uint32_t i = 0; i < checkpoint->file_count; i++)
    if (!load_file(loader, &checkpoint->opened[i], failure)) return false;
  return check_complete(loader, checkpoint->path, failure);
}

static void open_loader(Arena *arena, Loader *loader) {
  const Plan *plan = loader->plan;
  uint32_t count = plan->params.count;
  loader->targets = ARENA_ARRAY(arena, Target, count);
  loader->order = ARENA_ARRAY(arena, uint32_t, count);
  loader->chunk = arena_alloc(arena, CHUNK_BYTES);
  for (uint32_t i = 0; i < count; i++) loader->order[i] = i;
  if (count > 1) qsort_r(loader->order, count, sizeof *loader->order, by_name, (void *)(uintptr_t)plan);
}

bool checkpoint_read(const Checkpoint *checkpoint, const Plan *plan, uint32_t param, float *out, Failure *failure) {
  Loader loader = {.plan = plan, .out = out};
  const ParamRange all = {.param = (int32_t)param, .count = param_numel(&plan->params.data[param])};
  Arena *arena = arena_new();
  open_loader(arena, &loader);
  loader.targets[param] = (Target){.range[STATE_PARAM] = &all};
  bool ok = load_all(checkpoint, &loader, failure);
  arena_free(arena);
  return ok;
}

static void find_targets(Arena *arena, Loader *loader, uint32_t unit, StateKind kind, const UnitRanges *shard) {
  const PlanUnit *of = &loader->plan->units.data[unit];
  if (state_buf(of, kind) == PLAN_NONE) return;
  UnitRanges ranges = state_ranges(arena, loader->plan, unit, kind, shard);
  for (uint32_t r = 0; r < ranges.count; r++) {
    Target *target = &loader->targets[ranges.data[r].param];
    target->unit = of;
    target->range[kind] = &ranges.data[r];
  }
}

bool checkpoint_load(const Checkpoint *checkpoint, const Plan *plan, const UnitRanges *ranges, Backend *backend,
                     StateKind last, Failure *failure) {
  Loader loader = {.plan = plan, .backend = backend};
  Arena *arena = arena_new();
  open_loader(arena, &loader);
  for (uint32_t u = 0; u < plan->units.count; u++)
    for (int kind = 0; kind <= (int)last; kind++) find_targets(arena, &loader, u, (StateKind)kind, ranges);
  bool ok = load_all(checkpoint, &loader, failure);
  arena_free(arena);
  return ok;
}
