/* Owns: the recipe in a checkpoint's index, so that going on with another is not silent. What makes a checkpoint useless, such as
 * another optimizer, checkpoint_index.c refuses. */
#include "runtime/files/checkpoint.h"

#include "runtime/feed.h"

#include <inttypes.h>
#include <string.h>

static const char *const schedules[] = {SCHEDULE_NAMES};
static const char *const roundings[] = {ROUNDING_NAMES};

/* As text, since several texts of JSON are one double: a flipped bit must show in the checksum. */
static json_t *real(double value) { return json_sprintf("%.12g", value); }
static json_t *count(uint64_t value) { return json_sprintf("%" PRIu64, value); }

/* By the names of the train block. */
json_t *recipe_pack(const Plan *plan) {
  const Recipe *recipe = &plan->recipe;
  uint64_t sample = plan->inputs.count > 0 ? (uint64_t)plan->inputs.data[0].sample_numel : 0;
  const struct {
    const char *key;
    json_t *value;
  } entries[] = {{"batch", count(feed_samples_per_step(plan))},
                 {"sample", count(sample)},
                 {"steps", count(recipe->steps)},
                 {"schedule", json_string(schedules[recipe->schedule])},
                 {"lr", real(recipe->lr)},
                 {"min_lr", real(recipe->min_lr)},
                 {"warmup", count(recipe->warmup_steps)},
                 {"cooldown", count(recipe->cooldown_steps)},
                 {"beta1", real(recipe->beta1)},
                 {"beta2", real(recipe->beta2)},
                 {"eps", real(recipe->eps)},
                 {"momentum", real(recipe->momentum)},
                 {"beta2_decay", real(recipe->beta2_decay)},
                 {"eps2", real(recipe->eps2)},
                 {"threshold", real(recipe->threshold)},
                 {"decay", real(recipe->decay)},
                 {"clip", real(recipe->clip)},
                 {"precision", json_string(dtype_name(recipe->compute))},
                 {"reduce", json_string(dtype_name(recipe->reduce))},
                 {"master", json_string(dtype_name(recipe->master))},
                 {"rounding", json_string(roundings[recipe->rounding])}};
  json_t *packed = json_object();
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) json_object_set_new(packed, entries[i].key, entries[i].value);
  return packed;
}

void recipe_compare(Arena *arena, Checkpoint *checkpoint, const Plan *plan, const json_t *stored) {
  json_t *now = recipe_pack(plan), *value;
  const char *key;
  json_object_foreach(now, key, value) {
    const char *old = json_string_value(json_object_get(stored, key));
    if (old == NULL || strcmp(old, json_string_value(value)) == 0) continue;
    vec_push(arena, &checkpoint->changes,
             arena_printf(arena, "%s is %s, and was %s at the checkpoint", key, json_string_value(value), old));
  }
  json_decref(now);
}
