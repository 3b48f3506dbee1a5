/* Owns: the words that arguments of options may be, for completion in shells and editors. */
#include "cli/cli.h"

#include <glob.h>
#include <libgen.h>

static const char *spaced(Arena *arena, const char *const *names, size_t count) {
  Text words = {.arena = arena};
  for (size_t i = 0; i < count; i++) text_printf(&words, "%s%s", i ? " " : "", names[i]);
  return words.data;
}

static const char *executor_words(Arena *arena) {
  size_t count = 0;
  while (executor_names()[count]) count++;
  return spaced(arena, executor_names(), count);
}

/* The clusters of the models folder, by the names that --cluster takes for them. */
static const char *cluster_words(Arena *arena, const char *models) {
  Text words = {.arena = arena};
  glob_t found;
  if (glob(arena_printf(arena, "%s/clusters/*.fsdp", models), 0, NULL, &found) != 0) return NULL;
  for (size_t i = 0; i < found.gl_pathc; i++) {
    const char *file = basename(found.gl_pathv[i]);
    text_printf(&words, "%s%.*s", words.length ? " " : "", (int)(strlen(file) - strlen(".fsdp")), file);
  }
  globfree(&found);
  return words.data;
}

const char *option_list(Arena *arena, OptionId id) {
  return id == OPTION_OFFLOAD ? spaced(arena, offload_names(), OFFLOAD_KINDS)
         : id == OPTION_DUMP  ? "graph program units checkpoint memory plan"
                              : NULL;
}

const char *option_words(Arena *arena, const char *models, OptionId id) {
  static const char *const words[OPTION_COUNT] = {
      [OPTION_STRATEGY] = "auto full_shard shard_grad_op shard_optim hybrid_shard: no_shard",
      [OPTION_WRAP] = "auto block size: whole",
      [OPTION_CHECKPOINT] = "auto none full",
      [OPTION_RESHARD] = "auto yes no",
      [OPTION_GATHER] = "auto micro_batch step",
      [OPTION_REDUCE] = "auto micro_batch step",
      [OPTION_PREFETCH] = "auto",
      [OPTION_MICRO_BATCH] = "auto",
      [OPTION_OFFLOAD] = "auto none",
      [OPTION_PRECISION] = "f32 bf16 f16",
      [OPTION_COLOR] = "auto always never",
      [OPTION_BACKEND] = "cpu cuda",
      [OPTION_GEMM] = "onednn openblas builtin",
      [OPTION_RESUME] = "auto",
      [OPTION_TO] = "safetensors torch transformers accelerate",
      [OPTION_DTYPE] = "f32 bf16 f16",
  };
  return id == OPTION_EXECUTOR ? executor_words(arena) : id == OPTION_CLUSTER ? cluster_words(arena, models) : words[id];
}
