/* Owns: what follows from several keys of a config.json, once each is sound by itself: rotary positions, windows, heads. */
#include "cli/import_read.h"

#include "cli/cli.h"

#include <string.h>

static json_t *key_of(const Reader *reader, const char *key) {
  return json_object_get(reader->root, key);
}

/* --- rotary positions: "rope_parameters" of transformers 5, "rope_theta" and "rope_scaling" before ---------------- */

/* Most types turn short sequences otherwise too. */
#define TRAINED_WITHOUT "set it to null if the weights were trained without it, and train on sequences of that length"
#define ANOTHER_MODEL   "no layer of the language does that: choose another model"

static void read_llama3(Reader *reader, const json_t *from, const char *key) {
  ImportedRope *rope = &reader->model->rope;
  rope->llama3 = true;
  if (!reader->model->scalable)
    import_wrong(reader, key, "the family's rotary positions are not scaled", TRAINED_WITHOUT);
  else if (!import_real(json_object_get(from, "factor"), &rope->factor) ||
           !import_real(json_object_get(from, "low_freq_factor"), &rope->low) ||
           !import_real(json_object_get(from, "high_freq_factor"), &rope->high) ||
           !import_size(json_object_get(from, "original_max_position_embeddings"), &rope->original) ||
           rope->high <= rope->low)
    import_wrong(reader, key,
                 "llama3 needs factor, low_freq_factor, a larger high_freq_factor and "
                 "original_max_position_embeddings, all above 0",
                 "correct it");
}

/* What is not known includes entries by type of layer, each with rotary positions of its own. */
static void check_rope_entries(Reader *reader, const json_t *from, const char *key) {
  static const char *const known[] = {"rope_theta",      "rope_type",        "type",
                                      "factor",          "low_freq_factor",  "high_freq_factor",
                                      "original_max_position_embeddings",    "partial_rotary_factor"};
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)from, name, value) {
    bool is_known = import_absent(value);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) is_known |= strcmp(known[i], name) == 0;
    if (!is_known)
      import_wrong(reader, key, arena_printf(reader->arena, "its \"%.100s\" is not known", name), "remove what has no effect");
  }
  const json_t *share = json_object_get(from, "partial_rotary_factor");
  if (!import_absent(share) && (json_number_value(share) < 1 || json_number_value(share) > 1))
    import_wrong(reader, key, "by its partial_rotary_factor rotary positions turn a part of each head", ANOTHER_MODEL);
}

static void read_rope(Reader *reader) {
  const char *key = import_absent(key_of(reader, "rope_scaling")) ? "rope_parameters" : "rope_scaling";
  const json_t *from = key_of(reader, key), *theta = json_object_get(from, "rope_theta");
  ImportedRope *rope = &reader->model->rope;
  if (import_absent(theta)) theta = key_of(reader, "rope_theta");
  rope->theta = 10000;
  if (!import_absent(theta) && !import_real(theta, &rope->theta))
    import_wrong(reader, "rope_theta", "it must be a number above 0", "correct it");
  const char *type = import_word(reader, from, "rope_type", import_word(reader, from, "type", "default"));
  bool plain = strcmp(type, "default") == 0 && (import_absent(from) || json_is_object(from));
  if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)
    import_wrong(reader, key, "its factors count in short sequences too", ANOTHER_MODEL);
  else if (strcmp(type, "llama3") != 0 && !plain)
    import_wrong(reader, key, "only the types \"llama3\" and \"default\" are supported", TRAINED_WITHOUT);
  else
    check_rope_entries(reader, from, key);
  if (strcmp(type, "llama3") == 0) read_llama3(reader, from, key);
}

/* --- windows ------------------------------------------------------------------------------------------------------ */

/* Where layers may differ: whether any has the window. */
static bool has_window_layer(const Reader *reader) {
  const json_t *types = key_of(reader, "layer_types"), *full = key_of(reader, "max_window_layers");
  if (!reader->model->use_window) return false;
  if (import_absent(types))
    return reader->model->layers > (json_is_integer(full) ? json_integer_value(full) : reader->model->full_layers);
  for (size_t i = 0; i < json_array_size(types); i++)
    if (strcmp(json_string_value(json_array_get(types, i)), "sliding_attention") == 0) return true;
  return false;
}

static void check_layer_types(Reader *reader) {
  const json_t *types = key_of(reader, "layer_types");
  bool known = import_absent(types) || json_is_array(types);
  for (size_t i = 0; i < json_array_size(types); i++) {
    const char *type = json_string_value(json_array_get(types, i));
    known &= type != NULL && (strcmp(type, "full_attention") == 0 || strcmp(type, "sliding_attention") == 0);
  }
  if (!known)
    import_wrong(reader, "layer_types", "only \"full_attention\" and \"sliding_attention\" are known", ANOTHER_MODEL);
}

static void read_window(Reader *reader) {
  Imported *model = reader->model;
  if (model->layered_windows && !has_window_layer(reader)) model->window = 0;
  if (model->window >= model->ctx) model->window = 0; /* as if there were none */
  if (model->window == 0) return;
  model->ctx = model->window;
  fprintf(stderr,
          "note: %s: \"sliding_window\" is %lld: attention sees the whole sequence here, which is the same up to that "
          "length, so ctx is no larger\n",
          reader->path, (long long)model->window);
}

/* --- architectures ------------------------------------------------------------------------------------------------ */

static void check_heads(Reader *reader, const char *key) {
  if (reader->model->head_dim == 0) import_wrong(reader, key, "it does not divide the width of the model", "correct it");
}

static void check_decoder_heads(Reader *reader) {
  Imported *model = reader->model;
  if (model->kv_heads == 0) model->kv_heads = model->heads;
  if (model->head_dim == 0 && model->d % model->heads == 0) model->head_dim = model->d / model->heads;
  check_heads(reader, "num_attention_heads");
  if (model->heads % model->kv_heads != 0)
    import_wrong(reader, "num_key_value_heads", "it does not divide num_attention_heads", "correct it");
  if (model->head_dim % 2 != 0)
    import_wrong(reader, "head_dim", "rotary positions turn pairs, so a head's width must be even", "correct it");
}

void import_finish_decoder(Reader *reader) {
  Imported *model = reader->model;
  const char *act = import_word(reader, reader->root, "hidden_act", "silu");
  if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
    import_wrong(reader, "hidden_act", "the family's gate is \"silu\"", BY_HAND);
  check_decoder_heads(reader);
  read_rope(reader);
  check_layer_types(reader);
  if (reader->errors > 0) return;
  read_window(reader);
  /* What the weights were trained on first; longer sequences are a matter of --set ctx=N. */
  if (model->rope.original > 0 && model->rope.original < model->ctx) model->ctx = model->rope.original;
}

static void note_dropout(const Reader *reader) {
  static const char *const keys[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const json_t *value = key_of(reader, keys[i]);
    if (value != NULL && !(json_number_value(value) > 0)) continue;
    fprintf(stderr, "note: %s: \"%s\" is left out: the model trains without dropout\n", reader->path, keys[i]);
  }
}

void import_finish_gpt2(Reader *reader) {
  Imported *model = reader->model;
  const char *act = import_word(reader, reader->root, "activation_function", "gelu_new");
  model->erf = strcmp(act, "gelu") == 0;
  if (!model->erf && strcmp(act, "gelu_new") != 0 && strcmp(act, "gelu_pytorch_tanh") != 0)
    import_wrong(reader, "activation_function", "the family has \"gelu_new\", \"gelu_pytorch_tanh\" and \"gelu\"",
                 BY_HAND_GPT2);
  if (model->inner == 0) model->inner = 4 * model->d;
  if (model->d % model->heads == 0) model->head_dim = model->d / model->heads;
  check_heads(reader, "n_head");
  note_dropout(reader);
}
