/* Owns: the layers in a checkpoint's index, as far as parameters do not show them: another number of heads, another activation or
 * another mask fits the same weights, and going on with it is not silent. Of any plan of a model they are the same, so what a
 * plan decides (rows, fused products with silu, chunks of the loss) is not among them. */
#include "runtime/files/checkpoint.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { WORD_BYTES = 32, LAYER_BYTES = 400 };

typedef struct Kind {
  InstrOp op;
  const char *name, *attributes; /* those that count, as instr.def calls them */
} Kind;

static const Kind kinds[] = {
    {INSTR_ATTENTION_FWD, "attention", "heads kv_heads causal scale"},
    {INSTR_ROPE_FWD, "rope", "heads theta llama3 factor low high original"},
    {INSTR_LAYERNORM_FWD, "layernorm", "eps"},
    {INSTR_RMSNORM_FWD, "rmsnorm", "eps"},
    {INSTR_GELU_FWD, "gelu", "erf"},
    {INSTR_RELU_FWD, "relu", ""},
    {INSTR_SCALE_FWD, "scale", "by"},
    {INSTR_ADD_FWD, "add", ""},
    {INSTR_DROPOUT_FWD, "dropout", "p"},
    {INSTR_CROSS_ENTROPY, "cross_entropy", "ignore"},
    {INSTR_LINEAR_CROSS_ENTROPY, "cross_entropy", "ignore"},
    {INSTR_LINEAR_CROSS_ENTROPY_X, "cross_entropy", "ignore"},
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

/* Place of a word among others, or -1. */
static int place_of(const char *words, const char *wanted) {
  char word[WORD_BYTES];
  for (int place = 0; next_word(&words, word); place++)
    if (strcmp(word, wanted) == 0) return place;
  return -1;
}

/* "attention heads=3 kv_heads=3 causal=1 scale=0.353553390593" */
static void describe(const Plan *plan, const PlanInstr *instr, const Kind *kind, char out[LAYER_BYTES]) {
  const char *wanted = kind->attributes;
  char word[WORD_BYTES];
  size_t used = (size_t)snprintf(out, LAYER_BYTES, "%s", kind->name);
  while (used < LAYER_BYTES && next_word(&wanted, word)) {
    int place = place_of(attributes[instr->op].ints, word);
    double value = place >= 0 ? (double)plan_int(plan, instr, place) : plan_real(plan, instr, place_of(attributes[instr->op].reals, word));
    used += (size_t)snprintf(out + used, LAYER_BYTES - used, " %s=%.12g", word, value);
  }
}

json_t *layers_pack(const Plan *plan) {
  const PlanSegment *segment = plan_first_micro(plan);
  json_t *packed = json_object();
  for (int32_t i = segment->first; i < segment->end; i++) {
    char text[LAYER_BYTES];
    const PlanInstr *instr = &plan->instrs.data[i];
    const Kind *kind = kind_of(instr->op);
    if (kind == NULL) continue;
    describe(plan, instr, kind, text);
    json_object_set_new(packed, plan_str(plan, instr->name), json_string(text));
  }
  return packed;
}

/* Of how many layers of `a` this is another in `b`, or, with `absent`, none. The first of all that were found in *name. */
static uint64_t count_changes(json_t *a, const json_t *b, bool absent, const char **name) {
  uint64_t count = 0;
  const char *key;
  json_t *value;
  json_object_foreach(a, key, value) {
    json_t *other = json_object_get(b, key);
    if (absent ? other != NULL : json_equal(value, other)) continue;
    if (count++ == 0 && *name == NULL) *name = key;
  }
  return count;
}

static const char *text_of(const json_t *layers, const char *name) {
  const char *text = json_string_value(json_object_get(layers, name));
  return text != NULL ? text : "not there";
}

void layers_compare(Arena *arena, Checkpoint *checkpoint, const Plan *plan, json_t *stored) {
  if (stored == NULL) return;
  json_t *now = layers_pack(plan);
  const char *first = NULL, *more = "";
  uint64_t count = count_changes(now, stored, false, &first) + count_changes(stored, now, true, &first);
  if (count > 1)
    more = arena_printf(arena, "; %llu more layer%s differ%s", (unsigned long long)(count - 1), text_plural(count - 1), count == 2 ? "s" : "");
  if (count > 0)
    vec_push(arena, &checkpoint->changes,
             arena_printf(arena, "layer \"%s\" is %s, and was %s at the checkpoint%s", first, text_of(now, first), text_of(stored, first), more));
  json_decref(now);
}
