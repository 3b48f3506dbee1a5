/* Owns: reading a Hugging Face config.json by the tables of import_keys.c. Whatever changes what the model computes is
 * taken over or is an error; what only concerns training or generation is passed over, aloud where it would be missed. */
#include "cli/import_read.h"

#include "cli/cli.h"
#include "frontend/ast.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_SIZE = 1 << 30 };
static const double most_real = 1e18; /* what the language takes for a number goes little further */

/* --- messages ----------------------------------------------------------------------------------------------------- */

void import_wrong(Reader *reader, const char *key, const char *reason, const char *remedy) {
  const json_t *value = json_object_get(reader->root, key);
  char *text =
      value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  reader->errors++;
  if (text != NULL)
    cli_error("%s: \"%s\" is %.200s: %s; %s", reader->path, key, text, reason, remedy);
  else
    cli_error("%s: \"%s\" is absent, so its default holds: %s; %s", reader->path, key, reason, remedy);
  free(text);
}

static void say_missing(Reader *reader, const char *key, const char *remedy) {
  reader->errors++;
  cli_error("%s: \"%s\" is %s; %s", reader->path, key, json_object_get(reader->root, key) != NULL ? "null" : "missing", remedy);
}

const char *import_shown(const Reader *reader, const char *key) {
  json_t *value = json_string(key);
  char *text = json_dumps(value, JSON_ENCODE_ANY);
  const char *shown = arena_printf(reader->arena, "%.100s", text != NULL ? text : "");
  free(text);
  json_decref(value);
  return shown;
}

/* --- one key ------------------------------------------------------------------------------------------------------ */

bool import_absent(const json_t *value) {
  return value == NULL || json_is_null(value);
}

bool import_size(const json_t *value, int64_t *out) {
  *out = json_integer_value(value);
  return json_is_integer(value) && *out >= 1 && *out <= MOST_SIZE;
}

bool import_real(const json_t *value, double *out) {
  *out = json_number_value(value);
  return json_is_number(value) && *out > 0 && *out <= most_real;
}

static double absent_value(const Architecture *architecture, const Key *key) {
  return key->absent[architecture->column];
}

static void set_field(Reader *reader, const Key *key, double value) {
  void *field = (char *)reader->model + key->field;
  if (key->kind == KEY_REAL)
    *(double *)field = value;
  else if (key->kind == KEY_FLAG)
    *(bool *)field = value > 0;
  else
    *(int64_t *)field = (int64_t)value;
}

static void take_absent(Reader *reader, const Key *key, double absent, bool null) {
  if (absent <= MUST)
    say_missing(reader, key->name, "is this the config.json of a whole model?");
  else
    set_field(reader, key, null && key->kind == KEY_DERIVED ? 0 : absent);
}

static void take_value(Reader *reader, const Key *key, const json_t *value) {
  int64_t size;
  double real;
  const char *reason = NULL;
  if (key->kind == KEY_FLAG && !json_is_boolean(value))
    reason = "it must be true or false";
  else if (key->kind == KEY_REAL && !import_real(value, &real))
    reason = "it " IMPORT_REAL;
  else if (key->kind != KEY_FLAG && key->kind != KEY_REAL && !import_size(value, &size))
    reason = "it must be a whole number from 1 to 1073741824";
  if (reason != NULL)
    import_wrong(reader, key->name, reason, "correct it");
  else
    set_field(reader, key, key->kind == KEY_FLAG ? json_is_true(value) : json_number_value(value));
}

static void take_key(Reader *reader, const Key *key, double absent) {
  const json_t *value = json_object_get(reader->root, key->name);
  if (import_absent(value))
    take_absent(reader, key, absent, value != NULL);
  else
    take_value(reader, key, value);
}

static void check_only(Reader *reader, const Only *only) {
  const json_t *value = json_object_get(reader->root, only->name);
  json_t *allowed = json_loads(only->value, JSON_DECODE_ANY, NULL);
  bool number = json_is_number(value) && json_is_number(allowed);
  double difference = number ? json_number_value(value) - json_number_value(allowed) : 1;
  if (!import_absent(value) && !json_equal(value, allowed) && !(difference <= 0 && difference >= 0))
    import_wrong(reader, only->name, "this is not supported", only->remedy);
  json_decref(allowed);
}

const char *import_word(const Reader *reader, const json_t *object, const char *key, const char *otherwise) {
  const json_t *value = json_object_get(object, key);
  if (import_absent(value)) return otherwise;
  return json_is_string(value) ? arena_strdup(reader->arena, json_string_value(value)) : "";
}

/* --- architectures ------------------------------------------------------------------------------------------------ */

/* "GPT2LMHeadModel (gpt2), ... and GraniteForCausalLM (granite) are known; ..." */
static const char *known_architectures(Arena *arena) {
  Text text = {.arena = arena};
  for (const Architecture *it = import_architectures; it->model_type != NULL; it++)
    text_printf(&text, "%s%s (%s)", it == import_architectures ? "" : it[1].model_type != NULL ? ", " : " and ",
                it->model.class, it->model_type);
  text_printf(&text, " are known; others are written by hand, see docs/language.md");
  return text.data;
}

/* By the class, where one is named: a model_type alone does not say what is on top. */
static const Architecture *find_architecture(Reader *reader) {
  const json_t *class = json_array_get(json_object_get(reader->root, "architectures"), 0);
  const json_t *word = class != NULL ? class : json_object_get(reader->root, "model_type");
  const char *text = json_is_string(word) ? json_string_value(word) : "";
  for (const Architecture *it = import_architectures; it->model_type != NULL; it++)
    if (strcmp(text, class != NULL ? it->model.class : it->model_type) == 0) return it;
  const char *key = class != NULL ? "architectures" : "model_type";
  for (const Impossible *it = import_impossible; it->model_type != NULL; it++)
    if (strcmp(text, class != NULL ? it->class : it->model_type) == 0) return import_wrong(reader, key, it->reason, ANOTHER_MODEL), NULL;
  const char *known = known_architectures(reader->arena);
  if (word != NULL)
    import_wrong(reader, key, "this is not known", known);
  else
    say_missing(reader, key, known);
  return NULL;
}

/* --- keys that nobody asked for ----------------------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *key) {
  size_t length = strcspn(pattern, "*");
  return strncmp(pattern, key, length) == 0 && (pattern[length] == '*' || key[length] == '\0');
}

static bool has_key(const Architecture *architecture, const char *key) {
  for (const Key *it = architecture->keys; it->name != NULL; it++)
    if (strcmp(it->name, key) == 0) return absent_value(architecture, it) > NOT;
  return false;
}

static bool is_known(const Architecture *architecture, const char *key) {
  if (strcmp(architecture->activation, key) == 0 || has_key(architecture, key)) return true;
  for (const Only *it = architecture->only; it->name != NULL; it++)
    if (strcmp(it->name, key) == 0) return true;
  for (const char *const *it = import_inert; *it != NULL; it++)
    if (matches(*it, key)) return true;
  return false;
}

static void note_unknown(const Reader *reader, const Architecture *architecture) {
  const char *key;
  json_t *value;
  json_object_foreach(reader->root, key, value) {
    if (is_known(architecture, key) || json_is_null(value) || json_is_false(value)) continue;
    fprintf(stderr, "note: %s: %s is not known, and is left out\n", reader->path, import_shown(reader, key));
  }
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static void read_precision(Reader *reader) {
  static const char *const words[][2] = {{"float32", "f32"}, {"bfloat16", "bf16"}, {"float16", "f16"}};
  const char *dtype =
      import_word(reader, reader->root, "dtype", import_word(reader, reader->root, "torch_dtype", "float32"));
  reader->model->precision = NULL;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i][0], dtype) == 0) reader->model->precision = words[i][1];
  if (reader->model->precision == NULL)
    import_wrong(reader, import_absent(json_object_get(reader->root, "dtype")) ? "torch_dtype" : "dtype",
                 "only float32, bfloat16 and float16 are supported", "set it to one of them");
}

static void read_model(Reader *reader) {
  const Architecture *architecture = find_architecture(reader);
  if (architecture == NULL) return;
  *reader->model = architecture->model;
  for (const Key *key = architecture->keys; key->name != NULL; key++)
    if (absent_value(architecture, key) > NOT) take_key(reader, key, absent_value(architecture, key));
  for (const Only *only = architecture->only; only->name != NULL; only++)
    if (!has_key(architecture, only->name)) check_only(reader, only);
  read_precision(reader);
  if (reader->errors == 0) architecture->finish(reader); /* what follows from sizes that are sound */
  if (reader->errors == 0) note_unknown(reader, architecture);
}

/* The folder's name as an identifier, cut where that is too long: "Llama-3.2-1B" becomes Llama_3_2_1B. */
static const char *name_of(Arena *arena, const char *path) {
  char *folder = realpath(path, NULL), *slash = folder != NULL ? strrchr(folder, '/') : NULL;
  if (slash != NULL) *slash = '\0';
  const char *last = slash != NULL && strrchr(folder, '/') != NULL ? strrchr(folder, '/') + 1 : "";
  char *name = arena_printf(arena, "%s%s", isalpha((unsigned char)*last) ? "" : "model_", last);
  name[strnlen(name, AST_MAX_NAME)] = '\0';
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
  if (json_is_object(reader.root))
    read_model(&reader);
  else
    reader.errors = 1, cli_error("%s: it is no JSON object, so no config.json of a model", path);
  json_decref(reader.root);
  model->name = name_of(arena, path);
  return reader.errors == 0;
}
