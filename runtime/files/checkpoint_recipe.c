/* Owns: the recipe in a checkpoint's index, so that going on with another is not silent. What makes a checkpoint useless, such as
 * another optimizer, checkpoint_index.c refuses. */
#include "runtime/files/checkpoint.h"

#include "base/text.h"
#include "runtime/feed.h"

#include <inttypes.h>
#include <string.h>

static const char *const schedules[] = {SCHEDULE_NAMES};
static const char *const roundings[] = {ROUNDING_NAMES};

/* As text, since several texts of JSON are one double: a flipped bit must show in the checksum. */
static json_t *real(double value) { return json_sprintf("%.12g", value); }
static json_t *count(uint64_t value) { return json_sprintf("%" PRIu64, value); }

bool recipe_names(const json_t *names, const char *name) {
  for (size_t i = 0; i < json_array_size(names); i++) {
    const char *other = json_string_value(json_array_get(names, i));
    if (other != NULL && strcmp(other, name) == 0) return true;
  }
  return false;
}

/* The parameters that weight decay would be of, by their rank, if they were not named. */
static bool excepted(const PlanParam *param) { return param->rank >= 2 && !param->decay; }

static json_t *pack_excepted(const Plan *plan) {
  json_t *names = json_array();
  for (uint32_t i = 0; i < plan->params.count; i++)
    if (excepted(&plan->params.data[i])) json_array_append_new(names, json_string(plan_str(plan, plan->params.data[i].name)));
  return names;
}

/* Only where the loss is scaled. */
static void pack_scaling(json_t *packed, const Plan *plan) {
  LossScaling scaling;
  if (!scaler_settings(plan, &scaling)) return;
  json_object_set_new(packed, "loss_scale init", real(scaling.init));
  json_object_set_new(packed, "loss_scale growth", real(scaling.growth));
  json_object_set_new(packed, "loss_scale backoff", real(scaling.backoff));
  json_object_set_new(packed, "loss_scale interval", count(scaling.interval));
}

/* By the names of the train block: texts, but no_decay, which is a list. */
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
  pack_scaling(packed, plan);
  json_object_set_new(packed, "no_decay", pack_excepted(plan));
  return packed;
}

/* Older checkpoints have no list. */
static void compare_excepted(Arena *arena, Checkpoint *checkpoint, const Plan *plan, const json_t *stored) {
  const PlanParam *first = NULL;
  uint32_t differing = 0;
  for (uint32_t i = 0; json_is_array(stored) && i < plan->params.count; i++) {
    const PlanParam *param = &plan->params.data[i];
    if (recipe_names(stored, plan_str(plan, param->name)) != excepted(param) && differing++ == 0) first = param;
  }
  if (first == NULL || plan->recipe.decay == 0) return;
  const char *more = differing > 1 ? arena_printf(arena, "; %u more differ%s", differing - 1, differing == 2 ? "s" : "") : "";
  vec_push(arena, &checkpoint->changes,
           arena_printf(arena, "parameter \"%s\" has %s weight decay, and had %s at the checkpoint%s", plan_str(plan, first->name),
                        first->decay ? "some" : "no", first->decay ? "none" : "some", more));
}

void recipe_compare(Arena *arena, Checkpoint *checkpoint, const Plan *plan, const json_t *stored) {
  json_t *now = recipe_pack(plan), *value;
  const char *key;
  json_object_foreach(now, key, value) {
    const char *old = json_string_value(json_object_get(stored, key));
    if (old == NULL || !json_is_string(value) || strcmp(old, json_string_value(value)) == 0) continue;
    vec_push(arena, &checkpoint->changes,
             arena_printf(arena, "%s is %s, and was %s at the checkpoint", key, json_string_value(value), old));
  }
  json_decref(now);
  compare_excepted(arena, checkpoint, plan, json_object_get(stored, "no_decay"));
}
