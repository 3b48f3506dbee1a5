/* Owns: checkpoint.json. It carries a checksum of itself: that of its own text without the entry "crc32c", keys sorted
 * and no blanks. */
#include "runtime/files/checkpoint.h"

#include "runtime/files/crc32c.h"
#include "runtime/files/layers.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 28 };

static const char *const optimizers[] = {OPTIMIZER_NAMES};
static const char *const scaler_words[SCALER_WORDS] = {"scale", "good_steps", "skipped_steps"};
static const char *const orders[] = {"sequential", "shuffled"};

void checkpoint_file_name(char out[64], uint32_t index, uint32_t count) {
  snprintf(out, 64, "rank-%05u-of-%05u.safetensors", index + 1, count);
}

static const char *hex(char out[9], uint32_t crc) {
  snprintf(out, 9, "%08" PRIx32, crc);
  return out;
}

/* Of an index without the entry "crc32c". False without memory. */
static bool checksum(const json_t *root, uint32_t *crc) {
  char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
  if (text == NULL) return false;
  *crc = crc32c(0, text, strlen(text));
  free(text);
  return true;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static json_t *params_of(const Plan *plan) {
  json_t *params = json_object();
  for (uint32_t i = 0; i < plan->params.count; i++) {
    const PlanParam *param = &plan->params.data[i];
    json_t *shape = json_array();
    for (int32_t k = 0; k < param->rank; k++) json_array_append_new(shape, json_integer(param->dim[k]));
    json_object_set_new(params, plan_str(plan, param->name), shape);
  }
  return params;
}

static json_t *frozen_of(const Plan *plan) {
  json_t *frozen = json_array();
  for (uint32_t i = 0; i < plan->params.count; i++)
    if (plan_unit_frozen(plan, &plan->units.data[plan->params.data[i].unit]))
      json_array_append_new(frozen, json_string(plan_str(plan, plan->params.data[i].name)));
  return frozen;
}

static json_t *files_of(const CheckpointerConfig *config, uint32_t count) {
  json_t *files = json_array();
  for (uint32_t i = 0; i < count; i++) {
    char name[64], digits[9];
    const RankStatus *status = &config->statuses[i];
    checkpoint_file_name(name, i, count);
    json_array_append_new(files, json_pack("{ss sI ss}", "name", name, "bytes", (json_int_t)status->saved_bytes,
                                           "crc32c", hex(digits, status->saved_crc)));
  }
  return files;
}

/* NULL where the loss was never scaled. */
static json_t *scaler_of(const Scaler *scaler) {
  if (scaler->word[SCALER_SCALE] == 0) return NULL;
  return json_pack("{sf sf sf}", scaler_words[SCALER_SCALE], scaler->word[SCALER_SCALE], scaler_words[SCALER_GOOD],
                   scaler->word[SCALER_GOOD], scaler_words[SCALER_SKIPPED], scaler->word[SCALER_SKIPPED]);
}

bool index_write(const CheckpointerConfig *config, const Standing *standing, const char *path, uint32_t files,
                 Failure *failure) {
  const Plan *plan = config->plan;
  const Recipe *recipe = &plan->recipe;
  char digits[9], data[17];
  uint32_t crc = 0;
  snprintf(data, sizeof data, "%016" PRIx64, config->data_hash);
  /* A seed of 64 bits does not fit into JSON's signed integers. */
  json_t *root =
      json_pack("{si ss ss si si sI sI sI sI ss ss sI ss so so so so so so*}", "schema_version", CHECKPOINT_SCHEMA, "version",
                FSDPC_VERSION, "model", plan_str(plan, plan->model), "ranks", (int)plan->world.ranks, "shard",
                (int)plan->world.shard, "step", (json_int_t)standing->step, "samples", (json_int_t)standing->samples,
                "tokens", (json_int_t)standing->tokens, "seed", (json_int_t)(int64_t)recipe->seed, "optimizer",
                optimizers[recipe->optimizer], "order", orders[recipe->order], "data_tokens",
                (json_int_t)config->data_tokens, "data_hash", data, "params", params_of(plan), "frozen", frozen_of(plan),
                "recipe", recipe_pack(plan), "layers", layers_pack(plan), "files", files_of(config, files), "loss_scale", scaler_of(&standing->scaler));
  bool ok =
      root != NULL && checksum(root, &crc) && json_object_set_new(root, "crc32c", json_string(hex(digits, crc))) == 0;
  char *text = ok ? json_dumps(root, JSON_INDENT(1)) : NULL;
  json_decref(root);
  if (text == NULL) return fail(failure, RUN_INVALID, "checkpoint: %s: no memory for the index", path);
  ok = folder_write(path, text, strlen(text), failure);
  free(text);
  return ok;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static bool number(const json_t *root, const char *key, uint64_t *out) {
  const json_t *value = json_object_get(root, key);
  *out = (uint64_t)json_integer_value(value);
  return json_is_integer(value);
}

static const char *word(Arena *arena, const json_t *root, const char *key) {
  const char *text = json_string_value(json_object_get(root, key));
  return text != NULL ? arena_strdup(arena, text) : "";
}

static bool check_sum(const char *path, json_t *root, Failure *failure) {
  char digits[9];
  uint32_t crc;
  const char *stored = json_string_value(json_object_get(root, "crc32c"));
  snprintf(digits, sizeof digits, "%s", stored != NULL ? stored : "");
  json_object_del(root, "crc32c");
  char want[9];
  if (checksum(root, &crc) && strcmp(hex(want, crc), digits) == 0) return true;
  return checkpoint_damaged(path, "its checksum does not match its contents", failure);
}

static bool check_shape(const PlanParam *param, const char *name, const char *path, const json_t *shape, Failure *failure) {
  json_t *own = json_array();
  for (int32_t k = 0; k < param->rank; k++) json_array_append_new(own, json_integer(param->dim[k]));
  bool same = json_equal(own, shape);
  if (!same) {
    char *have = json_dumps(shape, JSON_ENCODE_ANY), *want = json_dumps(own, 0);
    fail(failure, RUN_INVALID,
         "checkpoint: %s: parameter \"%s\" has shape %.100s, but the model's has %s; give the model, and the --set, that it was trained with", path,
         name, have != NULL ? have : "none", want != NULL ? want : "another");
    free(have), free(want);
  }
  json_decref(own);
  return same;
}

static bool check_params(const Plan *plan, const char *path, const json_t *params, Failure *failure) {
  for (uint32_t i = 0; i < plan->params.count; i++) {
    const char *name = plan_str(plan, plan->params.data[i].name);
    const json_t *shape = json_object_get(params, name);
    if (shape == NULL)
      return fail(failure, RUN_INVALID,
                  "checkpoint: %s: parameter \"%s\" of the model is not in it; it is of another model", path, name);
    if (!check_shape(&plan->params.data[i], name, path, shape, failure)) return false;
  }
  if (json_object_size(params) == plan->params.count) return true;
  return fail(failure, RUN_INVALID, "checkpoint: %s: it holds %zu parameters and the model has %u; it is of another model",
              path, json_object_size(params), plan->params.count);
}

static bool read_files(Arena *arena, Checkpoint *checkpoint, const json_t *files, Failure *failure) {
  checkpoint->file_count = (uint32_t)json_array_size(files);
  checkpoint->files = ARENA_ARRAY(arena, CheckpointFile, checkpoint->file_count);
  for (uint32_t i = 0; i < checkpoint->file_count; i++) {
    const json_t *entry = json_array_get(files, i);
    CheckpointFile *file = &checkpoint->files[i];
    const char *name = word(arena, entry, "name"), *digits = word(arena, entry, "crc32c");
    if (!number(entry, "bytes", &file->bytes) || *name == '\0' || strchr(name, '/') != NULL)
      return checkpoint_damaged(checkpoint->index, "its list of files cannot be read", failure);
    file->path = arena_printf(arena, "%s/%s", checkpoint->path, name);
    file->crc = (uint32_t)strtoul(digits, NULL, 16);
  }
  return checkpoint->file_count > 0 || checkpoint_damaged(checkpoint->index, "it names no files", failure);
}

/* Seed and order decide which samples and which dropout masks come next; the optimizer, what the moments mean. */
static bool check_recipe(const Checkpoint *checkpoint, const Plan *plan, Failure *failure) {
  const Recipe *recipe = &plan->recipe;
  if (strcmp(checkpoint->optimizer, optimizers[recipe->optimizer]) != 0)
    return fail(failure, RUN_INVALID,
                "resume: %s: its moments are of optimizer %s, and the recipe's is %s; set `optimizer %s` to go on, or begin a new run from its "
                "weights with --init",
                checkpoint->path, checkpoint->optimizer, optimizers[recipe->optimizer], checkpoint->optimizer);
  if (checkpoint->seed != recipe->seed)
    return fail(failure, RUN_INVALID,
                "resume: %s: it was trained with seed %" PRIu64 ", and the recipe's is %" PRIu64 "; set `seed %" PRIu64
                "` to go on with its samples",
                checkpoint->path, checkpoint->seed, recipe->seed, checkpoint->seed);
  if (strcmp(checkpoint->order, orders[recipe->order]) != 0)
    return fail(failure, RUN_INVALID, "resume: %s: its samples were drawn `order %s`, and the recipe says %s; set `order %s` to go on with them",
                checkpoint->path, checkpoint->order, orders[recipe->order], checkpoint->order);
  return true;
}

/* What was frozen has no moments, and what is frozen now would lose its own. Older checkpoints name none. */
static bool check_frozen(const char *path, const Plan *plan, const json_t *frozen, Failure *failure) {
  for (uint32_t i = 0; i < plan->params.count; i++) {
    const PlanParam *param = &plan->params.data[i];
    bool was = recipe_names(frozen, plan_str(plan, param->name)), is = plan_unit_frozen(plan, &plan->units.data[param->unit]);
    if (was == is) continue;
    return fail(failure, RUN_INVALID,
                "resume: %s: parameter \"%s\" was %s there and is %s now; freeze the same parameters to go on, or begin a "
                "new run from its weights with --init",
                path, plan_str(plan, param->name), was ? "frozen" : "trained", is ? "frozen" : "trained");
  }
  return true;
}

/* Absent where the loss was never scaled. */
static bool read_scaler(const char *path, const json_t *stored, Scaler *scaler, Failure *failure) {
  if (stored == NULL) return true;
  for (int i = 0; i < SCALER_WORDS; i++) {
    const json_t *value = json_object_get(stored, scaler_words[i]);
    scaler->word[i] = json_number_value(value);
    if (!json_is_number(value) || !(scaler->word[i] >= 0))
      return checkpoint_damaged(path, "its loss scale cannot be read", failure);
  }
  return scaler->word[SCALER_SCALE] > 0 || checkpoint_damaged(path, "its loss scale is zero", failure);
}

static bool read_root(Arena *arena, Checkpoint *checkpoint, const Plan *plan, json_t *root, bool to_train,
                      Failure *failure) {
  uint64_t schema;
  Standing *standing = &checkpoint->standing;
  if (!check_sum(checkpoint->index, root, failure)) return false;
  if (!number(root, "schema_version", &schema) || schema != CHECKPOINT_SCHEMA)
    return fail(failure, RUN_INVALID, "checkpoint: %s: fsdpc %s wrote it, in a form that this one, %s, does not know; go on with the one that wrote it",
                checkpoint->path, word(arena, root, "version"), FSDPC_VERSION);
  if (!number(root, "step", &standing->step) || !number(root, "samples", &standing->samples) ||
      !number(root, "tokens", &standing->tokens) || !number(root, "seed", &checkpoint->seed) ||
      !number(root, "data_tokens", &checkpoint->data_tokens))
    return checkpoint_damaged(checkpoint->index, "it lacks an entry", failure);
  checkpoint->optimizer = word(arena, root, "optimizer");
  checkpoint->order = word(arena, root, "order");
  checkpoint->data_hash = strtoull(word(arena, root, "data_hash"), NULL, 16);
  if (to_train) recipe_compare(arena, checkpoint, plan, json_object_get(root, "recipe"));
  const char *change = layers_difference(arena, plan, json_object_get(root, "layers"), to_train, "at the checkpoint");
  if (change != NULL) vec_push(arena, &checkpoint->changes, change);
  return read_scaler(checkpoint->index, json_object_get(root, "loss_scale"), &standing->scaler, failure) &&
         check_params(plan, checkpoint->path, json_object_get(root, "params"), failure) &&
         (!to_train || (check_recipe(checkpoint, plan, failure) &&
                        check_frozen(checkpoint->path, plan, json_object_get(root, "frozen"), failure))) &&
         read_files(arena, checkpoint, json_object_get(root, "files"), failure);
}

static bool unreadable(const char *path, Failure *failure) {
  failure->damaged = failure->code == 0 && errno_means_damage(errno);
  return fail_file(failure, "checkpoint", path, "cannot be read");
}

/* What stands in an index's place is not read: a pipe would wait for its writer, and what is far too large would take the memory. */
static bool open_text(const char *path, int *fd, size_t *bytes, Failure *failure) {
  struct stat info;
  *bytes = 0;
  *fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (*fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return checkpoint_damaged(path, "it is missing", failure);
  if (*fd < 0 || fstat(*fd, &info) != 0) return unreadable(path, failure);
  if (!S_ISREG(info.st_mode)) return checkpoint_damaged(path, "it is not a plain file", failure);
  if (info.st_size > MOST_BYTES) return checkpoint_damaged(path, "it is larger than any index", failure);
  *bytes = (size_t)info.st_size;
  return true;
}

/* NULL with errno; freed by the caller. */
static char *read_all(int fd, size_t *bytes) {
  char *text = malloc(*bytes + 1);
  for (size_t done = 0; text != NULL && done < *bytes;) {
    ssize_t got = pread(fd, text + done, *bytes - done, (off_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) *bytes = done; /* cut short meanwhile */
    if (got < 0) free(text), text = NULL;
    if (got > 0) done += (size_t)got;
  }
  return text;
}

/* NULL after a failure; freed by the caller. */
static char *read_text(const char *path, size_t *bytes, Failure *failure) {
  int fd;
  char *text = NULL;
  if (open_text(path, &fd, bytes, failure) && (text = read_all(fd, bytes)) == NULL) unreadable(path, failure);
  if (fd >= 0) close(fd);
  return text;
}

bool index_read(Arena *arena, Checkpoint *checkpoint, const Plan *plan, const char *path, bool to_train,
                Failure *failure) {
  size_t bytes;
  *checkpoint = (Checkpoint){.path = arena_strdup(arena, path),
                             .index = arena_printf(arena, "%s/checkpoint.json", path)};
  char *text = read_text(checkpoint->index, &bytes, failure);
  if (text == NULL) return false;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
  free(text);
  bool ok = json_is_object(root) ? read_root(arena, checkpoint, plan, root, to_train, failure)
                                 : checkpoint_damaged(checkpoint->index, "it is not JSON", failure);
  json_decref(root);
  return ok;
}
