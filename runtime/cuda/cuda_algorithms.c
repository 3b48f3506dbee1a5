/* Owns: the order of it: the file, what it knows, races for the rest, the file again; and saying so. */
#include "runtime/cuda/cuda_algorithms.h"

#include "base/progress.h"
#include "base/text.h"
#include "runtime/cuda/cuda_race.h"
#include "runtime/runtime.h"

#include <stdatomic.h>
#include <stdio.h>

/* Races of this process. */
typedef struct Races {
  uint32_t due, done, won; /* won: by another than the heuristic's first */
  Progress progress;
} Races;

static bool take(CudaProducts *products, CudaEntry *entry, const CudaTraits *traits, const char *path, Failure *failure) {
  char text[CUDA_SHAPE_TEXT_BYTES];
  cublasStatus_t status = cuda_traits_make(products, entry, traits, &entry->algorithm);
  entry->origin = CUDA_BY_FILE;
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  return fail(failure, RUN_INVALID, "FSDPC_CUDA_ALGORITHMS: %s: cuBLASLt refuses the algorithm of the product %s with status %d; delete that choice, or the "
              "file, to have it raced anew", path, cuda_shape_text(&entry->shape, text), (int)status);
}

/* What the file knows; *unknown: how many it does not, whose origin stays. */
static bool take_known(CudaProducts *products, const CudaChoices *choices, const char *path, uint32_t *unknown, Failure *failure) {
  for (uint32_t i = 0; i < products->count; i++) {
    CudaTraits traits;
    CudaEntry *entry = &products->entries[i];
    if (!cuda_choices_find(choices, &entry->shape, &traits)) ++*unknown;
    else if (!take(products, entry, &traits, path, failure)) return false;
  }
  return true;
}

static void say_progress(Races *races) {
  char line[96];
  snprintf(line, sizeof line, "racing algorithms of products: %u of %u", races->done, races->due);
  progress_say(&races->progress, line);
}

static void say_end(Races *races, const char *path) {
  progress_clear(&races->progress);
  fprintf(stderr, "note: raced the algorithms of %u product%s in %.1f s, of which %u %s another than cuBLASLt's first choice; they are kept in %s\n",
          races->done, text_plural(races->done), progress_seconds(&races->progress), races->won, races->won == 1 ? "has" : "have", path);
}

/* Of an entry before this one that differs only by what no choice depends on: has what that one got. */
static bool take_alike(const CudaProducts *products, CudaEntry *entry) {
  for (const CudaEntry *e = products->entries; e < entry; e++) {
    if (!cuda_shapes_alike(&e->shape, &entry->shape)) continue;
    entry->algorithm = e->algorithm, entry->origin = e->origin, entry->candidates = e->candidates, entry->faster = e->faster;
    return true;
  }
  return false;
}

static bool race_one(const CudaRace *race, CudaProducts *products, CudaEntry *entry, CudaChoices *choices, Failure *failure) {
  if (take_alike(products, entry)) return true;
  if (!cuda_race_run(race, products, entry, failure)) return false;
  CudaTraits traits = cuda_traits_of(products->libs, &entry->algorithm);
  cuda_choices_add(choices, entry, &traits);
  return true;
}

static bool race_unknown(const CudaRace *race, CudaProducts *products, CudaChoices *choices, const CudaAlgorithmsConfig *config, Races *races,
                         Failure *failure) {
  for (uint32_t i = 0; i < products->count; i++) {
    CudaEntry *entry = &products->entries[i];
    if (entry->origin == CUDA_BY_FILE) continue;
    if (config->stop != NULL && atomic_load(config->stop) != 0) return fail(failure, RUN_PEER_FAILED, "another rank failed");
    if (config->beat != NULL) atomic_store(config->beat, (int32_t)i + 1);
    if (!config->quiet && progress_due(&races->progress)) say_progress(races);
    if (!race_one(race, products, entry, choices, failure)) return false;
    races->done++, races->won += entry->faster > 0;
  }
  return true;
}

static bool race(Arena *arena, CudaProducts *products, CudaChoices *choices, const CudaAlgorithmsConfig *config, uint32_t due, Failure *failure) {
  CudaRace open = {0};
  Races races = {.due = due, .progress = progress_start()};
  bool ok = cuda_choices_writable(choices, failure) && cuda_race_open(&open, arena, config->stream, failure) &&
            race_unknown(&open, products, choices, config, &races, failure) && cuda_choices_save(choices, failure);
  cuda_race_close(&open);
  if (config->beat != NULL) atomic_store(config->beat, 0);
  if (ok && !config->quiet) say_end(&races, config->path);
  else progress_clear(&races.progress);
  return ok;
}

bool cuda_algorithms_settle(CudaProducts *products, const CudaAlgorithmsConfig *config, Failure *failure) {
  Arena *arena = arena_new();
  uint32_t unknown = 0;
  CudaChoices *choices = cuda_choices_open(arena, config->path, &config->place, config->stop, failure);
  bool ok = choices != NULL && take_known(products, choices, config->path, &unknown, failure) &&
            (unknown == 0 || race(arena, products, choices, config, unknown, failure));
  if (choices != NULL) cuda_choices_close(choices);
  arena_free(arena);
  return ok;
}
