/* Owns: matching files with a plan's parameters. */
#include "runtime/files/pretrained.h"

#include "base/json.h"
#include "base/text.h"
#include "runtime/files/layers.h"
#include "runtime/runtime.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COMPARE_FLOATS = 1 << 16 };

static const char one_file[] = "model.safetensors", index_file[] = "model.safetensors.index.json";

bool is_conv1d(const char *name) {
  return text_ends_with(name, ".c_attn.weight") || text_ends_with(name, ".c_fc.weight") || text_ends_with(name, ".c_proj.weight");
}

/* --- opening files ------------------------------------------------------------------------------------------------ */

static bool add_file(Arena *arena, Pretrained *weights, const char *path, Failure *failure) {
  for (uint32_t i = 0; i < weights->file_count; i++)
    if (strcmp(weights->files[i].path, path) == 0) return true;
  if (!safetensors_open(arena, &weights->files[weights->file_count], path, failure)) return false;
  weights->file_count++;
  return true;
}

static const Safetensors *file_of(const Pretrained *weights, const char *path) {
  for (uint32_t i = 0; i < weights->file_count; i++)
    if (strcmp(weights->files[i].path, path) == 0) return &weights->files[i];
  return NULL;
}

static const char *beside(Arena *arena, const char *path, const char *name) {
  const char *slash = strrchr(path, '/');
  return arena_printf(arena, "%.*s%s", slash != NULL ? (int)(slash + 1 - path) : 0, path, name);
}

/* The headers are what is believed; the index only says which files there are, and must not contradict them. */
static bool open_mapped(Arena *arena, Pretrained *weights, const char *path, json_t *map, Failure *failure) {
  const char *tensor;
  json_t *value;
  weights->files = ARENA_ARRAY(arena, Safetensors, json_object_size(map) + 1);
  json_object_foreach(map, tensor, value) {
    const char *name = json_string_value(value);
    if (name == NULL || *name == '\0' || strchr(name, '/') != NULL)
      return fail(failure, RUN_INVALID, "%s: tensor \"%.200s\" is not mapped to the name of a file", path, tensor);
    const char *file = beside(arena, path, name);
    if (!add_file(arena, weights, file, failure)) return false;
    if (safetensors_find(file_of(weights, file), tensor) == NULL)
      return fail(failure, RUN_INVALID, "%s: tensor \"%.200s\" should be in %s, but is not", path, tensor, name);
  }
  return true;
}

static bool open_index(Arena *arena, Pretrained *weights, const char *path, Failure *failure) {
  json_error_t error;
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would wait for its writer */
  if (fd < 0) return fail_file(failure, "weights", path, "cannot be opened");
  json_t *root = json_loadfd(fd, JSON_REJECT_DUPLICATES, &error);
  close(fd);
  if (root == NULL) return fail(failure, RUN_INVALID, "%s: cannot be read as JSON: %s", path, json_trouble(&error));
  json_t *map = json_object_get(root, "weight_map");
  bool ok = json_is_object(map) ? open_mapped(arena, weights, path, map, failure)
                                : fail(failure, RUN_INVALID, "%s: it is no index of .safetensors files: it has no \"weight_map\"", path);
  json_decref(root);
  return ok;
}

static bool open_files(Arena *arena, Pretrained *weights, const char *path, Failure *failure) {
  struct stat info;
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
    const char *whole = arena_printf(arena, "%s/%s", path, one_file),
               *index = arena_printf(arena, "%s/%s", path, index_file);
    if (access(whole, F_OK) != 0 && access(index, F_OK) != 0)
      return fail(failure, RUN_INVALID,
                  "%s: there is neither %s nor %s in it, and no checkpoint", path, one_file, index_file);
    path = access(whole, F_OK) == 0 ? whole : index;
  }
  if (text_ends_with(path, ".json")) return open_index(arena, weights, path, failure);
  weights->files = ARENA_ARRAY(arena, Safetensors, 1);
  return add_file(arena, weights, path, failure);
}

/* --- matching ----------------------------------------------------------------------------------------------------- */

static const SafeTensor *find(const Pretrained *weights, const char *name, const Safetensors **file) {
  for (uint32_t i = 0; i < weights->file_count; i++) {
    const SafeTensor *tensor = safetensors_find(&weights->files[i], name);
    *file = &weights->files[i];
    if (tensor != NULL) return tensor;
  }
  return NULL;
}

static bool find_param(Arena *arena, const Pretrained *weights, const char *name, PretrainedParam *out) {
  static const char *const prefixes[] = {"", "transformer.", "model."};
  out->tensor = NULL;
  for (size_t i = 0; out->tensor == NULL && i < sizeof prefixes / sizeof *prefixes; i++)
    out->tensor = find(weights, arena_printf(arena, "%s%s", prefixes[i], name), &out->file);
  return out->tensor != NULL;
}

static bool same_shape(const PlanParam *param, const SafeTensor *tensor) {
  if ((uint32_t)param->rank != tensor->rank) return false;
  return param->rank == 0 || memcmp(param->dim, tensor->dim, (size_t)param->rank * sizeof *param->dim) == 0;
}

static bool reversed_shape(const PlanParam *param, const SafeTensor *tensor) {
  return param->rank == 2 && tensor->rank == 2 && param->dim[0] == tensor->dim[1] && param->dim[1] == tensor->dim[0];
}

static const char *shape_text(char text[200], const int64_t *dim, uint32_t rank) {
  size_t used = 0;
  text[used++] = '[';
  for (uint32_t i = 0; i < rank && used < 160; i++)
    used += (size_t)snprintf(text + used, 200 - used, "%s%lld", i > 0 ? ", " : "", (long long)dim[i]);
  text[used++] = ']';
  text[used] = '\0';
  return text;
}

/* Square matrices do not show how they are stored; the oblong ones of the same files do. */
static bool stores_transposed(const Pretrained *weights, const Plan *plan) {
  for (uint32_t i = 0; i < plan->params.count; i++) {
    const PlanParam *param = &plan->params.data[i];
    if (weights->params[i].tensor == NULL || !is_conv1d(plan_str(plan, param->name)) || param->rank != 2) continue;
    if (param->dim[0] != param->dim[1]) return reversed_shape(param, weights->params[i].tensor);
  }
  return false;
}

static bool check_param(const Plan *plan, const PlanParam *param, PretrainedParam *found, bool transposed,
                        Failure *failure) {
  const char *name = plan_str(plan, param->name);
  const SafeTensor *tensor = found->tensor;
  char want[200], have[200];
  found->transposed = transposed && is_conv1d(name);
  if (!(found->transposed ? reversed_shape(param, tensor) : same_shape(param, tensor)))
    return fail(failure, RUN_INVALID, "%s: tensor \"%s\" has shape %s, but the model's has %s%s" OTHER_MODEL, found->file->path,
                tensor->name, shape_text(have, tensor->dim, tensor->rank),
                shape_text(want, param->dim, (uint32_t)param->rank), found->transposed ? " (stored transposed)" : "");
  return safetensors_read_f32(found->file, tensor, 0, 0, NULL, failure); /* a dtype that can be loaded */
}

static bool match_params(Arena *arena, Pretrained *weights, const Plan *plan, Failure *failure) {
  weights->params = ARENA_ARRAY(arena, PretrainedParam, plan->params.count);
  for (uint32_t i = 0; i < plan->params.count; i++) {
    const char *name = plan_str(plan, plan->params.data[i].name);
    if (!find_param(arena, weights, name, &weights->params[i]))
      return fail(failure, RUN_INVALID, "%s: tensor \"%s\" of the model is missing" OTHER_MODEL, weights->path, name);
  }
  bool transposed = stores_transposed(weights, plan);
  for (uint32_t i = 0; i < plan->params.count; i++)
    if (!check_param(plan, &plan->params.data[i], &weights->params[i], transposed, failure)) return false;
  return true;
}

/* --- what the model has no parameter for -------------------------------------------------------------------------- */

static bool is_buffer(const char *name) {
  return text_ends_with(name, ".attn.bias") || text_ends_with(name, ".attn.masked_bias") ||
         text_ends_with(name, ".rotary_emb.inv_freq");
}

/* lm_head.weight of a model whose head is its embedding: the same values once more. */
static bool repeats_embedding(const Pretrained *weights, const Plan *plan, const Safetensors *file,
                              const SafeTensor *head, Failure *failure) {
  const PretrainedParam *table = NULL;
  for (uint32_t i = 0; i < plan->params.count; i++) {
    const char *name = plan_str(plan, plan->params.data[i].name);
    if (text_ends_with(name, "wte.weight") || text_ends_with(name, "embed_tokens.weight")) table = &weights->params[i];
  }
  if (table == NULL || table->tensor->numel != head->numel) return false;
  float *a = malloc(2 * COMPARE_FLOATS * sizeof *a), *b = a + COMPARE_FLOATS;
  bool same = a != NULL;
  for (uint64_t first = 0; same && first < head->numel; first += COMPARE_FLOATS) {
    uint64_t n = head->numel - first < COMPARE_FLOATS ? head->numel - first : COMPARE_FLOATS;
    same = safetensors_read_f32(file, head, first, n, a, failure) &&
           safetensors_read_f32(table->file, table->tensor, first, n, b, failure) && memcmp(a, b, n * sizeof *a) == 0;
  }
  free(a);
  return same;
}

static bool is_used(const Pretrained *weights, const Plan *plan, const SafeTensor *tensor) {
  for (uint32_t i = 0; i < plan->params.count; i++)
    if (weights->params[i].tensor == tensor) return true;
  return false;
}

static bool check_rest(const Pretrained *weights, const Plan *plan, Failure *failure) {
  for (uint32_t f = 0; f < weights->file_count; f++) {
    const Safetensors *file = &weights->files[f];
    for (uint32_t i = 0; i < file->tensors.count; i++) {
      const SafeTensor *tensor = &file->tensors.data[i];
      if (is_used(weights, plan, tensor) || is_buffer(tensor->name)) continue;
      bool head = strcmp(tensor->name, "lm_head.weight") == 0;
      if (head && repeats_embedding(weights, plan, file, tensor, failure)) continue;
      return fail(failure, RUN_INVALID, "%s: tensor \"%s\" is not a parameter of the model%s", file->path, tensor->name,
                  head ? ", whose head is tied to its embedding, and the two differ here" : OTHER_MODEL);
    }
  }
  return true;
}

bool pretrained_open(Arena *arena, Pretrained *weights, const Plan *plan, const char *path, Failure *failure) {
  *weights = (Pretrained){.path = arena_strdup(arena, path)};
  if (open_files(arena, weights, path, failure) && match_params(arena, weights, plan, failure) &&
      check_rest(weights, plan, failure))
    return true;
  pretrained_close(weights);
  return false;
}

void pretrained_close(Pretrained *weights) {
  for (uint32_t i = 0; i < weights->file_count; i++) safetensors_close(&weights->files[i]);
  weights->file_count = 0;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Element (o, i) of the parameter, out x in, is element (i, o) of the tensor: each row of the tensor is read where our
 * rows [low, high) cross it. */
static bool read_transposed(const PretrainedParam *from, const PlanParam *param, uint64_t first, uint64_t n, float *out,
                            Failure *failure) {
  uint64_t rows = (uint64_t)param->dim[0], cols = (uint64_t)param->dim[1];
  uint64_t low = first / cols, high = (first + n - 1) / cols + 1;
  float *strip = malloc((high - low) * sizeof *strip);
  if (strip == NULL) return fail(failure, RUN_INVALID, "%s: no memory for transposing", from->file->path);
  bool ok = true;
  for (uint64_t i = 0; ok && i < cols; i++) {
    ok = safetensors_read_f32(from->file, from->tensor, i * rows + low, high - low, strip, failure);
    for (uint64_t o = low; ok && o < high; o++) {
      uint64_t element = o * cols + i;
      if (element >= first && element < first + n) out[element - first] = strip[o - low];
    }
  }
  free(strip);
  return ok;
}

bool pretrained_read(const Pretrained *weights, const PlanParam *param, uint32_t index, uint64_t first, uint64_t n,
                     float *out, Failure *failure) {
  const PretrainedParam *from = &weights->params[index];
  if (from->transposed && n > 0) return read_transposed(from, param, first, n, out, failure);
  return safetensors_read_f32(from->file, from->tensor, first, n, out, failure);
}
