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
                 "original_max_position_embeddings, all above 0 and at most 1e18",
                 "correct it");
}

static const char *const rope_entries[] = {"rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
                                           "partial_rotary_factor", "rope_type", "type"};
enum { ROPE_NUMBERS = 6, ROPE_ENTRIES = 8 };

/* What is not known includes entries by type of layer, each with rotary positions of its own. */
static void check_rope_entries(Reader *reader, const char *key) {
  const char *name;
  json_t *value;
  json_object_foreach(key_of(reader, key), name, value) {
    bool is_known = import_absent(value);
    for (size_t i = 0; i < ROPE_ENTRIES; i++) is_known |= strcmp(rope_entries[i], name) == 0;
    if (!is_known)
      import_wrong(reader, key, arena_printf(reader->arena, "its %s is not known", import_shown(reader, name)), "remove what has no effect");
  }
}

/* Else what stands beside the rotary parameters. */
static const json_t *rope_entry(const Reader *reader, const json_t *from, const char *name) {
  const json_t *value = json_object_get(from, name);
  return import_absent(value) ? key_of(reader, name) : value;
}

static const char *rope_type(const Reader *reader, const json_t *from) {
  return import_word(reader, from, "rope_type", import_word(reader, from, "type", "default"));
}

static bool says_nothing(const Reader *reader, const json_t *from) {
  bool nothing = import_absent(from) || (json_is_object(from) && strcmp(rope_type(reader, from), "default") == 0);
  for (size_t i = 0; i < ROPE_NUMBERS; i++) nothing &= import_absent(json_object_get(from, rope_entries[i]));
  return nothing;
}

static bool say_the_same(const Reader *reader, const json_t *a, const json_t *b) {
  bool same = strcmp(rope_type(reader, a), rope_type(reader, b)) == 0;
  for (size_t i = 0; i < ROPE_NUMBERS; i++) {
    double x = json_number_value(rope_entry(reader, a, rope_entries[i])), y = json_number_value(rope_entry(reader, b, rope_entries[i]));
    same &= x <= y && x >= y;
  }
  return same;
}

/* The key that holds the rotary parameters; an error where both do, and differ. */
static const char *rope_key(Reader *reader) {
  const json_t *scaling = key_of(reader, "rope_scaling"), *parameters = key_of(reader, "rope_parameters");
  if (says_nothing(reader, scaling)) return "rope_parameters";
  if (!says_nothing(reader, parameters) && !say_the_same(reader, scaling, parameters))
    import_wrong(reader, "rope_scaling", "\"rope_parameters\" say otherwise", "remove the one that does not hold");
  return "rope_scaling";
}

/* As many dims of a head as transformers makes of a share, or an error at the key that holds it. */
static void take_share(Reader *reader, const char *key, double share) {
  Imported *model = reader->model;
  model->rotary = share <= 1 ? (int64_t)((double)model->head_dim * share) : 0;
  if (model->rotary >= 2 && model->rotary % 2 == 0) return;
  const char *reason = arena_printf(reader->arena, "a share of %g of a head's %lld dims is no even number from 2 to %lld", share,
                                    (long long)model->head_dim, (long long)model->head_dim);
  import_wrong(reader, key, reason, "correct it");
}

/* How much of each head turns: what "rope_parameters" say counts before what stands beside them. */
static void read_share(Reader *reader, const json_t *from, const char *key) {
  const json_t *inside = json_object_get(from, "partial_rotary_factor");
  double share = json_number_value(inside);
  bool partial = reader->model->rotary_share > 0;
  if (import_absent(inside) && partial)
    take_share(reader, "partial_rotary_factor", reader->model->rotary_share);
  else if (!import_absent(inside) && partial)
    take_share(reader, key, share);
  else if (!import_absent(inside) && (share < 1 || share > 1))
    import_wrong(reader, key, "by its partial_rotary_factor rotary positions turn a part of each head, and the family's all of it",
                 "choose another model");
}

static void read_rope(Reader *reader) {
  const char *key = rope_key(reader);
  const json_t *from = key_of(reader, key), *theta = rope_entry(reader, from, "rope_theta");
  bool inside = !import_absent(json_object_get(from, "rope_theta"));
  ImportedRope *rope = &reader->model->rope;
  rope->theta = 10000;
  if (!import_absent(theta) && !import_real(theta, &rope->theta))
    import_wrong(reader, inside ? key : "rope_theta", inside ? "its rope_theta " IMPORT_REAL : "it " IMPORT_REAL, "correct it");
  const char *type = rope_type(reader, from);
  bool plain = strcmp(type, "default") == 0 && (import_absent(from) || json_is_object(from));
  if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) {
    import_wrong(reader, key, "its factors count in short sequences too", ANOTHER_MODEL);
  } else if (strcmp(type, "llama3") != 0 && !plain) {
    import_wrong(reader, key, "only the types \"llama3\" and \"default\" are supported", TRAINED_WITHOUT);
  } else {
    check_rope_entries(reader, "rope_scaling");
    check_rope_entries(reader, "rope_parameters");
  }
  if (strcmp(type, "llama3") == 0) read_llama3(reader, from, key);
  if (reader->errors == 0) read_share(reader, from, key);
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

/* All but the activation. */
static void finish_decoder(Reader *reader) {
  Imported *model = reader->model;
  check_decoder_heads(reader);
  read_rope(reader);
  check_layer_types(reader);
  if (reader->errors > 0) return;
  read_window(reader);
  /* What the weights were trained on first; longer sequences are a matter of --set ctx=N. */
  if (model->rope.original > 0 && model->rope.original < model->ctx) model->ctx = model->rope.original;
}

void import_finish_decoder(Reader *reader) {
  const char *act = import_word(reader, reader->root, "hidden_act", "silu");
  if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
    import_wrong(reader, "hidden_act", "the family's gate is \"silu\"", BY_HAND);
  finish_decoder(reader);
}

/* absent: its probability where the key is not there. */
static void note_dropout(const Reader *reader, const char *key, double absent) {
  const json_t *value = key_of(reader, key);
  double p = value != NULL ? json_number_value(value) : absent;
  if (p > 0) fprintf(stderr, "note: %s: \"%s\" is left out: the model trains without dropout\n", reader->path, key);
}

static void read_gelu(Reader *reader, const char *key, const char *remedy) {
  const char *act = import_word(reader, reader->root, key, "gelu_new");
  reader->model->erf = strcmp(act, "gelu") == 0;
  if (!reader->model->erf && strcmp(act, "gelu_new") != 0 && strcmp(act, "gelu_pytorch_tanh") != 0)
    import_wrong(reader, key, "the family has \"gelu_new\", \"gelu_pytorch_tanh\" and \"gelu\"", remedy);
}

void import_finish_phi(Reader *reader) {
  read_gelu(reader, "hidden_act", BY_HAND_PHI);
  finish_decoder(reader);
  note_dropout(reader, "resid_pdrop", 0);
  note_dropout(reader, "embd_pdrop", 0);
  note_dropout(reader, "attention_dropout", 0);
}

void import_finish_gpt2(Reader *reader) {
  Imported *model = reader->model;
  read_gelu(reader, "activation_function", BY_HAND_GPT2);
  if (model->inner == 0) model->inner = 4 * model->d;
  if (model->d % model->heads == 0) model->head_dim = model->d / model->heads;
  check_heads(reader, "n_head");
  note_dropout(reader, "resid_pdrop", 0.1);
  note_dropout(reader, "embd_pdrop", 0.1);
  note_dropout(reader, "attn_pdrop", 0.1);
}
