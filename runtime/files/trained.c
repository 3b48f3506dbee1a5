/* Owns: choosing between a run's checkpoints and what it exported; one door to either. */
#include "runtime/files/trained.h"

#include "runtime/files/layers.h"
#include "runtime/files/weights.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Whether model.safetensors was written at the end of the run. Where it states no step, as others' do not, its time tells. damage: why
 * nobody can know. */
static bool is_as_late(Arena *arena, const char *weights, const char *newest, Failure *damage) {
  Safetensors file;
  struct stat one, two;
  uint64_t step;
  if (!safetensors_open(arena, &file, weights, damage)) return false;
  safetensors_close(&file);
  if (file.origin.step != SAFETENSORS_NO_STEP && folder_step_of(newest, &step)) return file.origin.step >= step;
  if (stat(weights, &one) != 0 || stat(arena_printf(arena, "%s/checkpoint.json", newest), &two) != 0) return false;
  return one.st_mtim.tv_sec != two.st_mtim.tv_sec ? one.st_mtim.tv_sec > two.st_mtim.tv_sec : one.st_mtim.tv_nsec >= two.st_mtim.tv_nsec;
}

/* The checkpoint that a folder stands for; NULL: its files. */
static bool find_checkpoint(Arena *arena, const char *dir, bool speaks, const char **newest, Failure *failure) {
  const char *weights = arena_printf(arena, "%s/model.safetensors", dir);
  Failure damage = {0};
  *newest = NULL;
  if (!is_folder(dir)) return true;
  if (!folder_latest(arena, dir, UINT64_MAX, newest, failure)) return false;
  if (*newest == NULL || access(weights, F_OK) != 0) return true;
  if (is_as_late(arena, weights, *newest, &damage))
    *newest = NULL;
  else if (speaks && damage.code != 0)
    fprintf(stderr, "warning: %s; %s is what is used\n", damage.text, *newest);
  else if (speaks)
    fprintf(stderr, "note: %s is newer than model.safetensors beside it, and is what is used\n", *newest);
  return true;
}

/* The first difference between the plan's layers and those that the weights were trained in; NULL: none is known. */
static const char *difference_of(Arena *arena, const Trained *trained, const Plan *plan) {
  if (trained->checkpoint.path != NULL) return trained->checkpoint.changes.count > 0 ? trained->checkpoint.changes.data[0] : NULL;
  const char *layers = trained->files.file_count > 0 ? trained->files.files[0].origin.layers : NULL;
  json_t *stored = layers != NULL ? json_loads(layers, 0, NULL) : NULL;
  const char *text = layers_difference(arena, plan, stored, false, "when they were written");
  json_decref(stored);
  return text;
}

static void say_difference(Arena *arena, const Trained *trained, const Plan *plan) {
  const char *text = difference_of(arena, trained, plan);
  const char *path = trained->checkpoint.path != NULL ? trained->checkpoint.path : trained->files.path;
  if (text != NULL) fprintf(stderr, "warning: weights: %s: %s" OTHER_MODEL "\n", path, text);
}

/* A run that saves in the folder may remove a checkpoint for a newer one while it is opened. *gone: so it was. */
static bool open_newest(Arena *arena, Trained *trained, const Plan *plan, const char *path, bool speaks, bool *gone, Failure *failure) {
  const char *newest;
  *trained = (Trained){0};
  *gone = false;
  if (!find_checkpoint(arena, path, speaks, &newest, failure)) return false;
  if (newest == NULL) return pretrained_open(arena, &trained->files, plan, path, failure);
  const bool opened = checkpoint_open(arena, &trained->checkpoint, plan, newest, false, failure);
  *gone = !opened && access(newest, F_OK) != 0 && strcmp(newest, path) != 0;
  return opened;
}

bool trained_open(Arena *arena, Trained *trained, const Plan *plan, const char *path, bool speaks, Failure *failure) {
  bool opened, gone;
  path = folder_of_file(arena, path);
  do {
    *failure = (Failure){0};
    opened = open_newest(arena, trained, plan, path, speaks, &gone, failure);
  } while (gone);
  if (opened && speaks) say_difference(arena, trained, plan);
  return opened;
}

bool trained_load(const Trained *trained, const Plan *plan, const UnitRanges *ranges, Backend *backend, Failure *failure) {
  return trained->checkpoint.path != NULL ? checkpoint_load(&trained->checkpoint, plan, ranges, backend, STATE_PARAM, failure)
                                          : weights_load(plan, ranges, backend, &trained->files, failure);
}

bool trained_read(const Trained *trained, const Plan *plan, uint32_t param, float *out, Failure *failure) {
  const PlanParam *of = &plan->params.data[param];
  return trained->checkpoint.path != NULL ? checkpoint_read(&trained->checkpoint, plan, param, out, failure)
                                          : pretrained_read(&trained->files, of, param, 0, param_numel(of), out, failure);
}

void trained_close(Trained *trained) {
  checkpoint_close(&trained->checkpoint);
  pretrained_close(&trained->files);
}
