/* Owns: reading a Hugging Face config.json. Whatever changes what the model computes is taken over or is an
 * error; what only concerns training or generation is passed over, aloud where it would be missed. Keys are
 * checked against transformers' LlamaConfig, Qwen3Config and GPT2Config, whose defaults these are. */
#include "cli/import.h"

#include "cli/cli.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MOST_SIZE = 1 << 30 };

typedef enum { KEY_SIZE, KEY_REAL, KEY_FLAG } KeyKind;

typedef struct Key {
  const char *name;
  KeyKind kind;
  size_t field;     /* in Imported: int64_t, double or bool */
  double otherwise; /* where it is absent or null; 0: follows from the others, or stays 0. NAN: it must be
                       there */
} Key;

/* A key that must be absent, null, or this JSON value. */
typedef struct Only {
  const char *name, *value, *remedy;
} Only;

typedef struct Reader {
  Arena *arena;
  const char *path;
  json_t *root;
  Imported *model;
  uint32_t errors;
} Reader;

typedef struct Architecture {
  const char *model_type, *class, *activation; /* the key of the activation */
  const Key *keys;
  const Only *only;
  void (*finish)(Reader *);
  void (*write)(Text *, const Imported *);
} Architecture;

#define OF(field)    offsetof(Imported, field)
#define BY_HAND      "write the model by hand, from a copy of models/families/llama.fsdp"
#define BY_HAND_GPT2 "write the model by hand, from a copy of models/families/gpt2.fsdp"

#define LLAMA_KEYS(kv_heads_else, head_dim_else, ctx_else)                      \
    {"vocab_size", KEY_SIZE, OF(vocab), NAN},                                   \
    {"hidden_size", KEY_SIZE, OF(d), NAN},                                      \
    {"intermediate_size", KEY_SIZE, OF(inner), NAN},                            \
    {"num_hidden_layers", KEY_SIZE, OF(layers), NAN},                           \
    {"num_attention_heads", KEY_SIZE, OF(heads), NAN},                          \
    {"num_key_value_heads", KEY_SIZE, OF(kv_heads), kv_heads_else},             \
    {"head_dim", KEY_SIZE, OF(head_dim), head_dim_else},                        \
    {"max_position_embeddings", KEY_SIZE, OF(ctx), ctx_else},                   \
    {"rms_norm_eps", KEY_REAL, OF(eps), 1e-6},                                  \
    {"tie_word_embeddings", KEY_FLAG, OF(tied), 0},                             \
    {0},

static const Key llama_keys[] = {LLAMA_KEYS(0, 0, 2048)};
static const Key qwen3_keys[] = {LLAMA_KEYS(32, 128, 32768)};

static const Only llama_only[] = {
    {"attention_bias", "false", "the family's projections have no bias: " BY_HAND " with bias = true"},
    {"mlp_bias", "false", "the family's MLP has no bias: " BY_HAND " with bias = true"},
    {"attention_dropout", "0", "attention without dropout is all there is: set it to 0"},
    {"sliding_window", "null",
     "attention sees the whole sequence: choose a model without a window, or set it to null and train "
     "on sequences no longer than the window"},
    {"use_sliding_window", "false",
     "attention sees the whole sequence: choose a model without a window, or set it to false and train "
     "on sequences no longer than the window"},
    {"partial_rotary_factor", "1", "rotary positions turn whole heads: " BY_HAND},
    {"quantization_config", "null",
     "weights are trained in f32, bf16 or f16: import the model that was quantized"},
    {0},
};

static const Key gpt2_keys[] = {
    {"vocab_size", KEY_SIZE, OF(vocab), 50257},
    {"n_positions", KEY_SIZE, OF(ctx), 1024},
    {"n_embd", KEY_SIZE, OF(d), 768},
    {"n_layer", KEY_SIZE, OF(layers), 12},
    {"n_head", KEY_SIZE, OF(heads), 12},
    {"n_inner", KEY_SIZE, OF(inner), 0},
    {"layer_norm_epsilon", KEY_REAL, OF(eps), 1e-5},
    {"tie_word_embeddings", KEY_FLAG, OF(tied), 1},
    {0},
};

static const Only gpt2_only[] = {
    {"scale_attn_weights", "true", "attention divides by the root of the head's width: " BY_HAND_GPT2},
    {"scale_attn_by_inverse_layer_idx", "false", "attention is scaled alike in all layers: " BY_HAND_GPT2},
    {"add_cross_attention", "false", "the family is a decoder alone: " BY_HAND_GPT2},
    {"tie_word_embeddings", "true", "the family's head is its embedding: " BY_HAND_GPT2},
    {"quantization_config", "null",
     "weights are trained in f32, bf16 or f16: import the model that was quantized"},
    {0},
};

/* Known, and without effect on what is computed in training here. A '*' at the end stands for any rest. */
static const char *const inert[] = {
    "architectures",   "model_type",   "_name_or_path",     "transformers_version",
    "torch_dtype",     "dtype",        "use_cache",         "bos_token_id",
    "eos_token_id",    "pad_token_id", "pretraining_tp",    "n_ctx",
    "summary_*",       "task_*",       "initializer_range", "reorder_and_upcast_attn",
    "rope_theta",      "rope_scaling", "rope_parameters",   "resid_pdrop",
    "embd_pdrop",      "attn_pdrop",   "return_*",          "output_*",
    "id2label",        "label2id",     "_attn_*",           "auto_map",
    "tokenizer_class", "layer_types",  "max_window_layers",
};

/* --- messages ----------------------------------------------------------------------------------------------------- */

static bool wrong(Reader *reader, const char *key, const char *reason, const char *remedy) {
  const json_t *value = json_object_get(reader->root, key);
  char *text =
      value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  reader->errors++;
  if (text != NULL)
    cli_error("%s: \"%s\" is %.200s: %s; %s", reader->path, key, text, reason, remedy);
  else
    cli_error("%s: \"%s\" %s; %s", reader->path, key, reason, remedy);
  free(text);
  return false;
}

/* --- one key ------------------------------------------------------------------------------------------------------ */

static bool absent(const json_t *value) {
  return value == NULL || json_is_null(value);
}

/* A size of the model: whole, and small enough that products of two do not overflow. */
static bool read_size(const json_t *value, int64_t *out) {
  *out = json_integer_value(value);
  return json_is_integer(value) && *out >= 1 && *out <= MOST_SIZE;
}

static bool read_real(const json_t *value, double *out) {
  *out = json_number_value(value);
  return json_is_number(value) && isfinite(*out) && *out > 0;
}

static void take_default(Reader *reader, const Key *key) {
  char *field = (char *)reader->model + key->field;
  if (isnan(key->otherwise)) {
    wrong(reader, key->name, "is missing", "is this the config.json of a whole model?");
  } else if (key->kind == KEY_SIZE) {
    *(int64_t *)(void *)field = (int64_t)key->otherwise;
  } else if (key->kind == KEY_REAL) {
    *(double *)(void *)field = key->otherwise;
  } else {
    *(bool *)field = key->otherwise != 0;
  }
}

static void take_key(Reader *reader, const Key *key) {
  const json_t *value = json_object_get(reader->root, key->name);
  char *field = (char *)reader->model + key->field;
  if (absent(value)) {
    take_default(reader, key);
  } else if (key->kind == KEY_SIZE && !read_size(value, (int64_t *)(void *)field)) {
    wrong(reader, key->name, "it must be a whole number from 1 to 1073741824", "correct it");
  } else if (key->kind == KEY_REAL && !read_real(value, (double *)(void *)field)) {
    wrong(reader, key->name, "it must be a number above 0", "correct it");
  } else if (key->kind == KEY_FLAG) {
    *(bool *)field = json_is_true(value);
    if (!json_is_boolean(value)) wrong(reader, key->name, "it must be true or false", "correct it");
  }
}

static void check_only(Reader *reader, const Only *only) {
  const json_t *value = json_object_get(reader->root, only->name);
  json_t *allowed = json_loads(only->value, JSON_DECODE_ANY, NULL);
  bool number = json_is_number(value) && json_is_number(allowed);
  double difference = number ? json_number_value(value) - json_number_value(allowed) : 1;
  if (!absent(value) && !json_equal(value, allowed) && !(difference <= 0 && difference >= 0))
    wrong(reader, only->name, "this is not supported", only->remedy);
  json_decref(allowed);
}

static const char *read_word(const Reader *reader, const json_t *object, const char *key,
                             const char *otherwise) {
  const json_t *value = json_object_get(object, key);
  if (absent(value)) return otherwise;
  return json_is_string(value) ? arena_strdup(reader->arena, json_string_value(value)) : "";
}

/* --- rotary positions: "rope_parameters" of transformers 5, "rope_theta" and "rope_scaling" before ---------------- */

static void read_llama3(Reader *reader, const json_t *from, const char *key) {
  ImportedRope *rope = &reader->model->rope;
  rope->llama3 = true;
  if (!read_real(json_object_get(from, "factor"), &rope->factor) ||
      !read_real(json_object_get(from, "low_freq_factor"), &rope->low) ||
      !read_real(json_object_get(from, "high_freq_factor"), &rope->high) ||
      !read_size(json_object_get(from, "original_max_position_embeddings"), &rope->original) ||
      rope->high <= rope->low)
    wrong(reader, key,
          "llama3 needs factor, low_freq_factor, a larger high_freq_factor and "
          "original_max_position_embeddings, all above 0",
          "correct it");
}

static void read_rope(Reader *reader) {
  const char *key =
      absent(json_object_get(reader->root, "rope_parameters")) ? "rope_scaling" : "rope_parameters";
  const json_t *from = json_object_get(reader->root, key), *theta = json_object_get(from, "rope_theta");
  ImportedRope *rope = &reader->model->rope;
  if (absent(theta)) theta = json_object_get(reader->root, "rope_theta");
  rope->theta = 10000;
  if (!absent(theta) && !read_real(theta, &rope->theta))
    wrong(reader, "rope_theta", "it must be a number above 0", "correct it");
  const char *type = read_word(reader, from, "rope_type", read_word(reader, from, "type", "default"));
  if (strcmp(type, "llama3") == 0)
    read_llama3(reader, from, key);
  else if (strcmp(type, "default") != 0 || (!absent(from) && !json_is_object(from)))
    wrong(reader, key, "only the types \"llama3\" and \"default\" are supported",
          "set it to null to train on sequences of the original length");
}

/* --- architectures ------------------------------------------------------------------------------------------------ */

static void check_heads(Reader *reader, const char *key) {
  const Imported *model = reader->model;
  if (model->head_dim == 0) wrong(reader, key, "it does not divide the width of the model", "correct it");
}

static void finish_llama(Reader *reader) {
  Imported *model = reader->model;
  const char *act = read_word(reader, reader->root, "hidden_act", "silu");
  read_rope(reader);
  if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
    wrong(reader, "hidden_act", "the family's gate is \"silu\"", BY_HAND);
  if (model->kv_heads == 0) model->kv_heads = model->heads;
  if (model->head_dim == 0 && model->d % model->heads == 0) model->head_dim = model->d / model->heads;
  check_heads(reader, "num_attention_heads");
  if (model->heads % model->kv_heads != 0)
    wrong(reader, "num_key_value_heads", "it does not divide num_attention_heads", "correct it");
  if (model->head_dim % 2 != 0)
    wrong(reader, "head_dim", "rotary positions turn pairs, so a head's width must be even", BY_HAND);
  /* What the weights were trained on first; longer sequences are a matter of --set ctx=N. */
  if (model->rope.llama3 && model->rope.original < model->ctx) model->ctx = model->rope.original;
}

static void finish_qwen3(Reader *reader) {
  finish_llama(reader);
  if (reader->model->rope.llama3)
    wrong(reader, "rope_scaling", "the family's rotary positions are not scaled",
          "set it to null to train on sequences of the original length");
}

static void note_dropout(const Reader *reader) {
  static const char *const keys[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const json_t *value = json_object_get(reader->root, keys[i]);
    if (value != NULL && !(json_number_value(value) > 0)) continue;
    fprintf(stderr, "note: %s: \"%s\" is left out: the model trains without dropout\n", reader->path,
            keys[i]);
  }
}

static void finish_gpt2(Reader *reader) {
  Imported *model = reader->model;
  const char *act = read_word(reader, reader->root, "activation_function", "gelu_new");
  model->erf = strcmp(act, "gelu") == 0;
  if (!model->erf && strcmp(act, "gelu_new") != 0 && strcmp(act, "gelu_pytorch_tanh") != 0)
    wrong(reader, "activation_function", "the family has \"gelu_new\", \"gelu_pytorch_tanh\" and \"gelu\"",
          BY_HAND_GPT2);
  if (model->inner == 0) model->inner = 4 * model->d;
  if (model->d % model->heads == 0) model->head_dim = model->d / model->heads;
  check_heads(reader, "n_head");
  note_dropout(reader);
}

static const Architecture architectures[] = {
    {"gpt2", "GPT2LMHeadModel", "activation_function", gpt2_keys, gpt2_only, finish_gpt2, import_write_gpt2},
    {"llama", "LlamaForCausalLM", "hidden_act", llama_keys, llama_only, finish_llama, import_write_llama},
    {"qwen3", "Qwen3ForCausalLM", "hidden_act", qwen3_keys, llama_only, finish_qwen3, import_write_qwen3},
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

/* By the class, where one is named: a model_type alone does not say what is on top. */
static const Architecture *find_architecture(Reader *reader) {
  const json_t *class = json_array_get(json_object_get(reader->root, "architectures"), 0);
  const json_t *word = class != NULL ? class : json_object_get(reader->root, "model_type");
  const char *text = json_is_string(word) ? json_string_value(word) : "";
  for (int i = 0; i < ARCHITECTURES; i++)
    if (strcmp(text, class != NULL ? architectures[i].class : architectures[i].model_type) == 0)
      return &architectures[i];
  wrong(reader, class != NULL ? "architectures" : "model_type",
        word != NULL ? "this is not known" : "is missing",
        "GPT2LMHeadModel (gpt2), LlamaForCausalLM (llama) and Qwen3ForCausalLM (qwen3) are; others are written by "
        "hand, see docs/language.md");
  return NULL;
}

/* --- keys that nobody asked for ----------------------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *key) {
  size_t length = strcspn(pattern, "*");
  return strncmp(pattern, key, length) == 0 && (pattern[length] == '*' || key[length] == '\0');
}

static bool is_known(const Architecture *architecture, const char *key) {
  if (strcmp(architecture->activation, key) == 0) return true;
  for (const Key *it = architecture->keys; it->name != NULL; it++)
    if (strcmp(it->name, key) == 0) return true;
  for (const Only *it = architecture->only; it->name != NULL; it++)
    if (strcmp(it->name, key) == 0) return true;
  for (size_t i = 0; i < sizeof inert / sizeof *inert; i++)
    if (matches(inert[i], key)) return true;
  return false;
}

static void note_unknown(const Reader *reader, const Architecture *architecture) {
  const char *key;
  json_t *value;
  json_object_foreach(reader->root, key, value) {
    if (is_known(architecture, key) || json_is_null(value) || json_is_false(value)) continue;
    fprintf(stderr, "note: %s: \"%.100s\" is not known, and is left out\n", reader->path, key);
  }
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static void read_precision(Reader *reader) {
  static const char *const words[][2] = {{"float32", "f32"}, {"bfloat16", "bf16"}, {"float16", "f16"}};
  const char *dtype =
      read_word(reader, reader->root, "dtype", read_word(reader, reader->root, "torch_dtype", "float32"));
  reader->model->precision = NULL;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i][0], dtype) == 0) reader->model->precision = words[i][1];
  if (reader->model->precision == NULL)
    wrong(reader, json_object_get(reader->root, "dtype") != NULL ? "dtype" : "torch_dtype",
          "only float32, bfloat16 and float16 are supported", "set it to one of them");
}

static void read_model(Reader *reader) {
  const Architecture *architecture = find_architecture(reader);
  if (architecture == NULL) return;
  reader->model->class = architecture->class;
  reader->model->write = architecture->write;
  for (const Key *key = architecture->keys; key->name != NULL; key++) take_key(reader, key);
  for (const Only *only = architecture->only; only->name != NULL; only++) check_only(reader, only);
  read_precision(reader);
  if (reader->errors == 0) architecture->finish(reader); /* what follows from sizes that are sound */
  if (reader->errors == 0) note_unknown(reader, architecture);
}

/* The folder's name as an identifier: "Llama-3.2-1B" becomes Llama_3_2_1B. */
static const char *name_of(Arena *arena, const char *path) {
  char *folder = realpath(path, NULL), *slash = folder != NULL ? strrchr(folder, '/') : NULL;
  if (slash != NULL) *slash = '\0';
  const char *last = slash != NULL && strrchr(folder, '/') != NULL ? strrchr(folder, '/') + 1 : "";
  char *name = arena_printf(arena, "%s%s", isalpha((unsigned char)*last) ? "" : "model_", last);
  free(folder);
  for (char *c = name; *c != '\0'; c++)
    if (!isalnum((unsigned char)*c)) *c = '_';
  return name;
}

bool import_read(Arena *arena, const char *path, Imported *model) {
  struct stat info;
  *model = (Imported){0};
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) path = arena_printf(arena, "%s/config.json", path);
  Reader reader = {.arena = arena, .path = path, .model = model};
  reader.root = cli_read_json(path, JSON_REJECT_DUPLICATES);
  if (reader.root == NULL) return false;
  model->name = name_of(arena, path);
  if (json_is_object(reader.root))
    read_model(&reader);
  else
    reader.errors = 1, cli_error("%s: it is no JSON object, so no config.json of a model", path);
  json_decref(reader.root);
  return reader.errors == 0;
}
