/* Owns: exporting weights to Hugging Face's .safetensors files, one tensor in memory at a time: from a checkpoint of
 * any number of ranks, or from other .safetensors. GPT-2's matrices are turned into its (in, out). Files are written
 * under temporary names and renamed when all are on disk; the index comes after them, and then earlier weights go. */
#include "base/remedy.h"
#include "kernels/half.h"
#include "base/text.h"
#include "runtime/files/checkpoint.h"
#include "runtime/files/layers.h"
#include "runtime/files/lock.h"
#include "runtime/runtime.h"
#include "runtime/files/trained.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { CHUNK = 1 << 18 /* elements */ };

static const char one_file[] = "model.safetensors", index_file[] = "model.safetensors.index.json";

/* A file to be written: parameters order[first .. end). */
typedef struct OutFile {
  const char *name, *path, *temp;
  uint32_t first, end;
} OutFile;

typedef struct Exporter {
  const Plan *plan;
  const ExportOptions *options;
  bool gpt2;
  Trained weights;
  uint32_t *order;     /* parameters by name */
  SafeTensor *tensors; /* parallel to order */
  OutFile *files;
  uint32_t file_count;
  float *values;
  unsigned char *chunk;
  int lock; /* of the folder; -1: none */
} Exporter;

static bool failed(const char *path, const char *what, Failure *failure) {
  return fail_file(failure, "export", path, what);
}

/* --- what is exported --------------------------------------------------------------------------------------------- */

/* Perhaps within another module, as transformers' GPT2LMHeadModel has it. */
static bool is_gpt2(const Plan *plan) {
  static const char first[] = "h.0.attn.c_attn.weight", within[] = ".h.0.attn.c_attn.weight";
  for (uint32_t i = 0; i < plan->params.count; i++) {
    const char *name = plan_str(plan, plan->params.data[i].name);
    if (strcmp(name, first) == 0 || text_ends_with(name, within)) return true;
  }
  return false;
}

static bool turned(const Exporter *self, const PlanParam *param) {
  return self->gpt2 && param->rank == 2 && is_conv1d(plan_str(self->plan, param->name));
}

/* --- layout ------------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b, void *plan) {
  const PlanParam *params = ((const Plan *)plan)->params.data;
  return strcmp(plan_str(plan, params[*(const uint32_t *)a].name), plan_str(plan, params[*(const uint32_t *)b].name));
}

static void describe(Exporter *self, uint32_t i) {
  const PlanParam *param = &self->plan->params.data[self->order[i]];
  SafeTensor *tensor = &self->tensors[i];
  bool f32 = self->options->dtype == DTYPE_F32;
  *tensor = (SafeTensor){.name = plan_str(self->plan, param->name),
                         .dtype = f32                                  ? "F32"
                                  : self->options->dtype == DTYPE_BF16 ? "BF16"
                                                                       : "F16",
                         .bits = f32 ? 32 : 16,
                         .rank = (uint32_t)param->rank,
                         .numel = param_numel(param)};
  memcpy(tensor->dim, param->dim, sizeof param->dim);
  if (!turned(self, param)) return;
  tensor->dim[0] = param->dim[1];
  tensor->dim[1] = param->dim[0];
}

static uint64_t tensor_bytes(const SafeTensor *tensor) {
  return tensor->numel * tensor->bits / 8;
}

/* Cuts the tensors into files of at most max_bytes, or one tensor. */
static void cut(Arena *arena, Exporter *self) {
  uint32_t count = self->plan->params.count;
  uint64_t filled = 0, most = self->options->max_bytes;
  self->files = ARENA_ARRAY(arena, OutFile, count + 1);
  self->file_count = 1;
  for (uint32_t i = 0; i < count; i++) {
    OutFile *file = &self->files[self->file_count - 1];
    uint64_t bytes = tensor_bytes(&self->tensors[i]);
    if (most != 0 && filled > 0 && filled + bytes > most) {
      file = &self->files[self->file_count++];
      file->first = i;
      filled = 0;
    }
    filled += bytes;
    file->end = i + 1;
  }
  for (uint32_t i = 0; i < self->file_count; i++) {
    OutFile *file = &self->files[i];
    file->name = self->file_count == 1 ? one_file
                                       : arena_printf(arena, "model-%05u-of-%05u.safetensors", i + 1, self->file_count);
    file->path = arena_printf(arena, "%s/%s", self->options->dir, file->name);
    file->temp = arena_printf(arena, "%s/.%s.tmp", self->options->dir, file->name);
  }
}

static void lay_out(Arena *arena, Exporter *self) {
  uint32_t count = self->plan->params.count;
  uint64_t longest = 1;
  self->gpt2 = is_gpt2(self->plan);
  self->order = ARENA_ARRAY(arena, uint32_t, count);
  self->tensors = ARENA_ARRAY(arena, SafeTensor, count);
  for (uint32_t i = 0; i < count; i++) self->order[i] = i;
  if (count > 1) qsort_r(self->order, count, sizeof *self->order, by_name, (void *)(uintptr_t)self->plan);
  for (uint32_t i = 0; i < count; i++) {
    describe(self, i);
    if (self->tensors[i].numel > longest) longest = self->tensors[i].numel;
  }
  cut(arena, self);
  self->values = malloc(longest * sizeof *self->values);
  self->chunk = malloc(CHUNK * sizeof(float));
}

static uint64_t total_bytes(const Exporter *self) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < self->plan->params.count; i++) total += tensor_bytes(&self->tensors[i]);
  return total;
}

/* --- what lies there already -------------------------------------------------------------------------------------- */

/* A file that loaders would take for the model's weights, or a part of them. */
static bool is_weights(const char *name) {
  unsigned index, count;
  int used = 0;
  if (strcmp(name, one_file) == 0 || strcmp(name, index_file) == 0) return true;
  return sscanf(name, "model-%5u-of-%5u.safetensors%n", &index, &count, &used) == 2 && used > 0 && name[used] == '\0';
}

static bool is_written(const Exporter *self, const char *name) {
  for (uint32_t i = 0; i < self->file_count; i++)
    if (strcmp(self->files[i].name, name) == 0) return true;
  return self->file_count > 1 && strcmp(name, index_file) == 0;
}

static bool refuse_weights(const Exporter *self, Failure *failure) {
  struct dirent *entry;
  DIR *folder = opendir(self->options->dir);
  while (folder != NULL && failure->code == 0 && (entry = readdir(folder)) != NULL)
    if (is_weights(entry->d_name))
      fail(failure, RUN_INVALID, "export: %s/%s exists; --force overwrites the weights there", self->options->dir, entry->d_name);
  if (folder != NULL) closedir(folder);
  return failure->code == 0;
}

/* What the new files do not replace: loaders prefer one file to an index, and believe an index that names others. */
static bool remove_stale(const Exporter *self, Failure *failure) {
  struct dirent *entry;
  DIR *folder = opendir(self->options->dir);
  while (folder != NULL && failure->code == 0 && (entry = readdir(folder)) != NULL)
    if (is_weights(entry->d_name) && !is_written(self, entry->d_name) && unlinkat(dirfd(folder), entry->d_name, 0) != 0)
      failed(entry->d_name, "cannot be removed", failure);
  if (folder != NULL) closedir(folder);
  return failure->code == 0;
}

/* Of an export that was killed: with the folder locked, nobody writes them any more. */
static void remove_unfinished(const Exporter *self) {
  struct dirent *entry;
  DIR *folder = opendir(self->options->dir);
  while (folder != NULL && (entry = readdir(folder)) != NULL) {
    char name[sizeof entry->d_name];
    size_t length = (size_t)snprintf(name, sizeof name, "%s", entry->d_name);
    if (length < 6 || name[0] != '.' || strcmp(name + length - 4, ".tmp") != 0) continue;
    name[length - 4] = '\0';
    if (is_weights(name + 1)) unlinkat(dirfd(folder), entry->d_name, 0);
  }
  if (folder != NULL) closedir(folder);
}

/* Temporary names are the same in every export: two at once would write into one file. */
static bool lock_target(Exporter *self, Failure *failure) {
  const char *dir = self->options->dir;
  self->lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (self->lock < 0) return failed(dir, "cannot be opened", failure);
  return lock_take(self->lock) ||
         fail(failure, RUN_INVALID, "export: %s: another export or run is writing there; wait for it, or name another folder", dir);
}

/* Before hours of writing: the folder, what would be overwritten, the room. */
static bool check_target(Exporter *self, Failure *failure) {
  struct statvfs disk;
  const char *dir = self->options->dir;
  uint64_t total = total_bytes(self);
  if (mkdir(dir, 0777) != 0 && errno != EEXIST) return failed(dir, "cannot be made", failure);
  if (!lock_target(self, failure)) return false;
  remove_unfinished(self);
  if (!self->options->force && !refuse_weights(self, failure)) return false;
  if (statvfs(dir, &disk) != 0 || (uint64_t)disk.f_bavail * disk.f_frsize >= total) return true;
  return fail(failure, RUN_INVALID, "export: %s: %" PRIu64 " bytes are needed, and %" PRIu64 " are free%s", dir, total,
              (uint64_t)disk.f_bavail * disk.f_frsize, remedy_of(ENOSPC));
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* False where a value has no place in the narrower type: it would become infinite. */
static bool narrow(const Exporter *self, const float *from, uint64_t n, unsigned char *out) {
  for (uint64_t i = 0; i < n; i++) {
    FloatType type = (FloatType)self->options->dtype;
    Half half = half_of_float(type, from[i]);
    if (isinf(float_of_half(type, half)) && isfinite(from[i])) return false;
    memcpy(out + 2 * i, &half, sizeof half);
  }
  return true;
}

static bool put(FILE *file, const void *data, uint64_t bytes) {
  return fwrite(data, 1, bytes, file) == bytes;
}

/* Element k of the tensor as it lies in the file. */
static float value_at(const Exporter *self, const PlanParam *param, uint64_t k) {
  uint64_t out = (uint64_t)param->dim[0], in = (uint64_t)param->dim[1];
  return self->values[k % out * in + k / out];
}

static bool write_tensor(Exporter *self, const OutFile *out, FILE *file, uint32_t i, Failure *failure) {
  const PlanParam *param = &self->plan->params.data[self->order[i]];
  uint64_t numel = self->tensors[i].numel;
  float row[1024];
  if (!trained_read(&self->weights, self->plan, self->order[i], self->values, failure)) return false;
  for (uint64_t first = 0; first < numel; first += 1024) {
    uint64_t n = numel - first < 1024 ? numel - first : 1024;
    const float *from = self->values + first;
    if (turned(self, param)) {
      for (uint64_t k = 0; k < n; k++) row[k] = value_at(self, param, first + k);
      from = row;
    }
    if (self->options->dtype != DTYPE_F32 && !narrow(self, from, n, self->chunk))
      return fail(failure, RUN_INVALID, "export: tensor \"%s\" holds values that are too large for %s; choose another --dtype",
                  self->tensors[i].name, self->tensors[i].dtype);
    const void *bytes = self->options->dtype == DTYPE_F32 ? (const void *)from : self->chunk;
    if (!put(file, bytes, n * self->tensors[i].bits / 8))
      return failed(out->path, "cannot be written", failure);
  }
  return true;
}

static bool fill_file(Arena *arena, Exporter *self, const OutFile *out, FILE *file, Failure *failure) {
  uint64_t header_bytes;
  SafeOrigin origin = {SAFETENSORS_NO_STEP, layers_text(arena, self->plan)};
  const char *header = safetensors_layout_of(arena, self->tensors + out->first, out->end - out->first, origin, &header_bytes);
  if (header == NULL)
    return fail(failure, RUN_INVALID, "export: the plan's parameter names are not distinct UTF-8 texts");
  if (!put(file, header, header_bytes)) return failed(out->path, "cannot be written", failure);
  for (uint32_t i = out->first; i < out->end; i++)
    if (!write_tensor(self, out, file, i, failure)) return false;
  if (fflush(file) != 0 || fsync(fileno(file)) != 0) return failed(out->path, "cannot be written", failure);
  return true;
}

static bool write_file(Arena *arena, Exporter *self, const OutFile *out, Failure *failure) {
  FILE *file = fopen(out->temp, "we");
  if (file == NULL) return failed(out->temp, "cannot be created", failure);
  bool ok = fill_file(arena, self, out, file, failure);
  if (fclose(file) != 0 && ok) ok = failed(out->path, "cannot be written", failure);
  return ok;
}

static bool write_index(Arena *arena, const Exporter *self, Failure *failure) {
  json_t *map = json_object();
  for (uint32_t f = 0; f < self->file_count; f++)
    for (uint32_t i = self->files[f].first; i < self->files[f].end; i++)
      json_object_set_new(map, self->tensors[i].name, json_string(self->files[f].name));
  json_t *root = json_pack("{s{sI sI} so}", "metadata", "total_size", (json_int_t)total_bytes(self), "total_parameters",
                           (json_int_t)self->plan->param_numel, "weight_map", map);
  char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
  json_decref(root);
  const char *path = arena_printf(arena, "%s/%s", self->options->dir, index_file);
  const char *temp = arena_printf(arena, "%s/.%s.tmp", self->options->dir, index_file);
  bool ok = text != NULL && folder_write(temp, text, strlen(text), failure);
  if (ok && rename(temp, path) != 0) ok = failed(path, "cannot be put in place", failure);
  if (!ok) unlink(temp);
  free(text);
  return ok;
}

/* Without its index a folder of old files and new ones is no model. */
static bool remove_index(Arena *arena, const Exporter *self, Failure *failure) {
  const char *path = arena_printf(arena, "%s/%s", self->options->dir, index_file);
  if (unlink(path) != 0 && errno != ENOENT) return failed(path, "cannot be removed", failure);
  return folder_sync(self->options->dir, failure);
}

/* Old weights stay whole until all of the new ones are on disk. */
static bool write_files(Arena *arena, Exporter *self, Failure *failure) {
  bool ok = true;
  for (uint32_t i = 0; ok && i < self->file_count; i++) ok = write_file(arena, self, &self->files[i], failure);
  ok = ok && (self->file_count == 1 || remove_index(arena, self, failure));
  for (uint32_t i = 0; ok && i < self->file_count; i++)
    if (rename(self->files[i].temp, self->files[i].path) != 0) ok = failed(self->files[i].path, "cannot be put in place", failure);
  for (uint32_t i = 0; !ok && i < self->file_count; i++) unlink(self->files[i].temp);
  return ok;
}

static bool export_all(Arena *arena, Exporter *self, Failure *failure) {
  if (!trained_open(arena, &self->weights, self->plan, self->options->weights, true, failure)) return false;
  lay_out(arena, self);
  if (self->values == NULL || self->chunk == NULL)
    return fail(failure, RUN_INVALID, "export: no memory for the largest tensor");
  return check_target(self, failure) && write_files(arena, self, failure) &&
         (self->file_count == 1 || write_index(arena, self, failure)) && folder_sync(self->options->dir, failure) && remove_stale(self, failure);
}

int runtime_export(const Plan *plan, const ExportOptions *options) {
  Arena *arena = arena_new();
  Failure failure = {0};
  Exporter self = {.plan = plan, .options = options, .lock = -1};
  if (!export_all(arena, &self, &failure))
    failure_say(failure.text);
  else
    for (uint32_t i = 0; i < self.file_count; i++) printf("%s\n", self.files[i].path);
  if (self.lock >= 0) close(self.lock);
  free(self.values);
  free(self.chunk);
  trained_close(&self.weights);
  arena_free(arena);
  return failure.code;
}
