/* Owns: choosing between a run's checkpoints and what it exported; one door to either. */
#include "runtime/trained.h"

#include "runtime/runtime.h"
#include "runtime/weights.h"

#include <stdio.h>
#include <sys/stat.h>

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Of two files, of which the second is written no earlier where a run ends well. */
static bool is_newer(const struct stat *a, const struct stat *b) {
  return a->st_mtim.tv_sec != b->st_mtim.tv_sec ? a->st_mtim.tv_sec > b->st_mtim.tv_sec : a->st_mtim.tv_nsec > b->st_mtim.tv_nsec;
}

/* The checkpoint that a folder stands for; NULL: its files. */
static bool find_checkpoint(Arena *arena, const char *dir, bool speaks, const char **newest, Failure *failure) {
  struct stat index, weights;
  *newest = NULL;
  if (!is_folder(dir)) return true;
  if (!folder_latest(arena, dir, UINT64_MAX, newest, failure)) return false;
  if (*newest == NULL || stat(arena_printf(arena, "%s/model.safetensors", dir), &weights) != 0) return true;
  if (stat(arena_printf(arena, "%s/checkpoint.json", *newest), &index) == 0 && !is_newer(&index, &weights))
    *newest = NULL;
  else if (speaks)
    fprintf(stderr, "note: %s is newer than model.safetensors beside it, and is what is used\n", *newest);
  return true;
}

bool trained_open(Arena *arena, Trained *trained, const Plan *plan, const char *path, bool speaks, Failure *failure) {
  const char *newest;
  *trained = (Trained){0};
  if (!find_checkpoint(arena, path, speaks, &newest, failure)) return false;
  return newest != NULL ? checkpoint_open(arena, &trained->checkpoint, plan, newest, false, failure)
                        : pretrained_open(arena, &trained->files, plan, path, failure);
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
