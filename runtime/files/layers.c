/* Owns: layers.h: the layers that count, and which of their attributes. */
#include "runtime/files/layers.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 32, LAYER_BYTES = 400 };

typedef struct Kind {
  InstrOp op;
  const char *name, *attributes; /* those that count, as instr.def calls them, or with the only value that they have */
  bool trains; /* of no meaning to weights that are only used */
} Kind;

static const Kind kinds[] = {
    {INSTR_ATTENTION_FWD, "attention", "heads kv_heads causal scale", false},
    {INSTR_ATTENTION_CACHED, "attention", "heads kv_heads causal=1 scale", false},
    {INSTR_ROPE_FWD, "rope", "heads theta llama3 factor low high original dims", false},
    {INSTR_LAYERNORM_FWD, "layernorm", "eps", false},
    {INSTR_RMSNORM_FWD, "rmsnorm", "eps", false},
    {INSTR_GELU_FWD, "gelu", "erf", false},
    {INSTR_RELU_FWD, "relu", "", false},
    {INSTR_SCALE_FWD, "scale", "by", false},
    {INSTR_ADD_FWD, "add", "", false},
    {INSTR_DROPOUT_FWD, "dropout", "p", true},
    {INSTR_CROSS_ENTROPY, "cross_entropy", "ignore", true},
    {INSTR_LINEAR_CROSS_ENTROPY, "cross_entropy", "ignore", true},
    {INSTR_LINEAR_CROSS_ENTROPY_X, "cross_entropy", "ignore", true},
};

/* Instead of instr_specs, which allocates: checkpoints are written while steps run. */
static const struct {
  const char *ints, *reals;
} attributes[INSTR_COUNT] = {
#define INSTR(id, name, stream, operands, ints, reals, meaning) {ints, reals},
#include "planner/plan/instr.def"
#undef INSTR
};

static const Kind *kind_of(InstrOp op) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (kinds[i].op == op) return &kinds[i];
  return NULL;
}

/* The next of words that blanks separate; false after the last. */
static bool next_word(const char **words, char out[WORD_BYTES]) {
  *words += strspn(*words, " ");
  size_t length = strcspn(*words, " ");
  snprintf(out, WORD_BYTES, "%.*s", (int)length, *words);
  *words += length;
  return length > 0;
}

/* Place of an attribute among others, NAME or NAME=EARLIER, or -1. */
static int place_of(const char *words, const char *wanted) {
  char word[WORD_BYTES];
  for (int place = 0; next_word(&words, word); place++) {
    size_t length = strcspn(word, "=");
    if (length == strlen(wanted) && strncmp(word, wanted, length) == 0) return place;
  }
  return -1;
}

static void word_at(const char *words, int place, char out[WORD_BYTES]) {
  do next_word(&words, out);
  while (place-- > 0);
}

/* An int NAME=EARLIER, where it is equal to that one: what was written before there was such an attribute describes the same layer. */
static bool left_out(const Plan *plan, const PlanInstr *instr, const char *attribute) {
  const char *ints = attributes[instr->op].ints;
  char word[WORD_BYTES];
  int place = place_of(ints, attribute);
  if (place < 0) return false;
  word_at(ints, place, word);
  const char *like = strchr(word, '=');
  return like != NULL && plan_int(plan, instr, place) == plan_int(plan, instr, place_of(ints, like + 1));
}

static double value_of(const Plan *plan, const PlanInstr *instr, const char *attribute) {
  int place = place_of(attributes[instr->op].ints, attribute);
  return place >= 0 ? (double)plan_int(plan, instr, place) : plan_real(plan, instr, place_of(attributes[instr->op].reals, attribute));
}

/* "attention heads=3 kv_heads=3 causal=1 scale=0.353553390593" */
static void describe(const Plan *plan, const PlanInstr *instr, const Kind *kind, char out[LAYER_BYTES]) {
  const char *wanted = kind->attributes;
  char word[WORD_BYTES];
  size_t used = (size_t)snprintf(out, LAYER_BYTES, "%s", kind->name);
  while (used < LAYER_BYTES && next_word(&wanted, word)) {
    if (left_out(plan, instr, word)) continue;
    bool stated = strchr(word, '=') != NULL;
    used += stated ? (size_t)snprintf(out + used, LAYER_BYTES - used, " %s", word)
                   : (size_t)snprintf(out + used, LAYER_BYTES - used, " %s=%.12g", word, value_of(plan, instr, word));
  }
}

static void pack_range(const Plan *plan, int32_t first, int32_t end, json_t *packed) {
  for (int32_t i = first; i < end; i++) {
    char text[LAYER_BYTES];
    const PlanInstr *instr = &plan->instrs.data[i];
    const Kind *kind = kind_of(instr->op);
    if (kind == NULL) continue;
    describe(plan, instr, kind, text);
    json_object_set_new(packed, plan_str(plan, instr->name), json_string(text));
  }
}

/* One micro-batch runs all layers of a training plan; of the segments of another, some leave out the last layers. */
json_t *layers_pack(const Plan *plan) {
  json_t *packed = json_object();
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    if (!plan->training || segment == plan_first_micro(plan)) pack_range(plan, segment->first, segment->end, packed);
  }
  return packed;
}

const char *layers_text(Arena *arena, const Plan *plan) {
  json_t *packed = layers_pack(plan);
  char *text = json_dumps(packed, JSON_COMPACT);
  const char *kept = text != NULL ? arena_strdup(arena, text) : NULL;
  json_decref(packed);
  free(text);
  return kept;
}

/* Whether a layer, in words, matters only while training. */
static bool only_trains(const char *text) {
  size_t length = strcspn(text, " ");
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strncmp(kinds[i].name, text, length) == 0 && kinds[i].name[length] == '\0') return kinds[i].trains;
  return false;
}

static const char *text_of(const json_t *layers, const char *name) {
  const char *text = json_string_value(json_object_get(layers, name));
  return text != NULL ? text : "not there";
}

typedef struct Difference {
  const char *first; /* of all layers that differ */
  uint64_t count;
  bool to_train;
} Difference;

/* Adds the layers of `a` that are others in `b`, or, with `absent`, not there. */
static void count_differing(Difference *difference, json_t *a, const json_t *b, bool absent) {
  const char *name;
  json_t *value;
  json_object_foreach(a, name, value) {
    json_t *other = json_object_get(b, name);
    if (absent ? other != NULL : json_equal(value, other)) continue;
    if (!difference->to_train && only_trains(text_of(a, name)) && (other == NULL || only_trains(text_of(b, name)))) continue;
    if (difference->count++ == 0) difference->first = name;
  }
}

static const char *words_of(Arena *arena, const Difference *difference, const json_t *now, const json_t *stored, const char *when) {
  const char *first = difference->first, *more = "";
  uint64_t others = difference->count - 1;
  if (others > 0)
    more = arena_printf(arena, "; %llu more layer%s differ%s", (unsigned long long)others, text_plural(others), others == 1 ? "s" : "");
  return arena_printf(arena, "layer \"%s\" is %s, and was %s %s%s", first, text_of(now, first), text_of(stored, first), when, more);
}

const char *layers_difference(Arena *arena, const Plan *plan, json_t *stored, bool to_train, const char *when) {
  if (!json_is_object(stored)) return NULL;
  json_t *now = layers_pack(plan);
  Difference difference = {.to_train = to_train};
  count_differing(&difference, now, stored, false);
  count_differing(&difference, stored, now, true);
  const char *text = difference.count > 0 ? words_of(arena, &difference, now, stored, when) : NULL;
  json_decref(now);
  return text;
}
