/* Owns: completion: keys inside settings blocks, and behind some what they may be; elsewhere layers, keywords and the names that are
 * visible. */
#include "cli/lsp.h"

#include "base/text.h"
#include "frontend/settings.h"

#include <ctype.h>

enum { KIND_FUNCTION = 3, KIND_VARIABLE = 6, KIND_MODULE = 9, KIND_PROPERTY = 10, KIND_VALUE = 12, KIND_KEYWORD = 14, DEPTH_MOST = 16 };

/* Blocks that begin with one of several words; settings_table knows them by the key before it. */
static const char *const device_kinds[] = {"cpu", "gpu", NULL};

/* What may stand behind a key that is more than one word; tests/view/lsp.sh has all of that accepted. */
static const char *const key_values[][3] = {{"train", "optimizer", "adamw sgd lion adafactor"}, {"cluster", "device", "cpu gpu"}};

/* In any block: names and patterns, of which none are offered. */
static const char *const pattern_keys[] = {"unit", "save", "recompute", "host", "no_decay"};

static const char *const keywords[] = {"use", "model", "module", "let", "input", "repeat", "return", "as", "in", "init", "freeze", "train", "cluster", "plan"};

static void add(json_t *items, const char *label, int kind, const char *detail) {
  json_t *item = json_pack("{s:s, s:i}", "label", label, "kind", kind);
  if (detail) json_object_set_new(item, "detail", json_string(detail));
  json_array_append_new(items, item);
}

static bool is_letter(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The word on the same line before the one that is being written. */
static void word_before(const char *text, uint32_t offset, char out[32]) {
  uint32_t end = offset;
  while (end && !isspace((unsigned char)text[end - 1]) && text[end - 1] != '{') end--;
  while (end && (text[end - 1] == ' ' || text[end - 1] == '\t')) end--;
  uint32_t begin = end;
  while (begin && is_letter(text[begin - 1])) begin--;
  snprintf(out, 32, "%.*s", (int)(end - begin), text + begin);
}

/* The word before a '{', or before the string before it: cluster "x" {. Names of executors have dashes. A model may be called like any
 * block of settings. */
static void head_of(const char *text, uint32_t brace, char out[32]) {
  uint32_t end = brace;
  while (end && isspace((unsigned char)text[end - 1])) end--;
  if (end && text[end - 1] == '"') {
    for (end--; end && text[end - 1] != '"' && text[end - 1] != '\n'; end--) {
    }
    if (end) end--;
    while (end && isspace((unsigned char)text[end - 1])) end--;
  }
  uint32_t begin = end;
  while (begin && (is_letter(text[begin - 1]) || text[begin - 1] == '-')) begin--;
  word_before(text, begin, out);
  if (strcmp(out, "model")) snprintf(out, 32, "%.*s", (int)(end - begin), text + begin);
}

/* Whether the line of a '{' is a unit's, whose block lists patterns. */
static bool is_unit(const char *text, uint32_t brace) {
  uint32_t begin = brace;
  while (begin && text[begin - 1] != '\n' && text[begin - 1] != '{') begin--;
  while (isspace((unsigned char)text[begin])) begin++;
  return !strncmp(text + begin, "unit ", strlen("unit "));
}

/* The head of the innermost block that is open at the offset. False where no word of the language stands: in strings, comments and patterns. */
static bool block_at(const char *text, uint32_t offset, char out[32]) {
  uint32_t open[DEPTH_MOST], depth = 0;
  for (uint32_t at = 0; at < offset && text[at]; at++) {
    const char closer = text[at] == '#' ? '\n' : text[at] == '"' ? '"' : '\0';
    if (closer) {
      for (at++; at < offset && text[at] && text[at] != closer && text[at] != '\n'; at++) continue;
      if (at >= offset || !text[at]) return false;
    } else if (text[at] == '{' && depth < DEPTH_MOST) {
      open[depth++] = at;
    } else if (text[at] == '}' && depth) {
      depth--;
    }
  }
  *out = 0;
  if (depth) head_of(text, open[depth - 1], out);
  return !depth || !is_unit(text, open[depth - 1]);
}

/* executor pytorch-fsdp2 eager {: its block is not called by what stands before it. */
static bool is_executor(const char *head) {
  return executor_find(head) >= 0 || !strcmp(head, "eager") || !strcmp(head, "compiled");
}

static void add_words(Arena *arena, json_t *items, const char *words, int kind, const char *detail) {
  char *rest = arena_strdup(arena, words);
  for (char *word = strsep(&rest, " "); word; word = strsep(&rest, " "))
    if (*word) add(items, word, kind, detail);
}

/* Of the option that is called as a key of the plan or train block, less the dashes; NULL: there is none, or none are known. */
static const char *words_of_option(Arena *arena, const char *models, const char *key) {
  char *name = arena_strdup(arena, key);
  for (char *c = name; *c; c++)
    if (*c == '_') *c = '-';
  for (int id = 0; id < OPTION_COUNT; id++)
    if (!strcmp(option_info((OptionId)id)->name, name)) return option_words(arena, models, (OptionId)id);
  return NULL;
}

static const char *join_words(Arena *arena, const char *const *words) {
  Text text = {.arena = arena};
  for (; *words; words++) text_printf(&text, "%s%s", text.length ? " " : "", *words);
  return text.data;
}

/* What may stand behind a key, with spaces between; NULL: nothing is known. */
static const char *values_of(Arena *arena, const char *models, const char *block, const Key *key) {
  for (size_t k = 0; k < sizeof pattern_keys / sizeof *pattern_keys; k++)
    if (!strcmp(pattern_keys[k], key->name)) return "";
  for (size_t k = 0; k < sizeof key_values / sizeof *key_values; k++)
    if (!strcmp(key_values[k][0], block) && !strcmp(key_values[k][1], key->name)) return key_values[k][2];
  if (key->type == KEY_WORD) return join_words(arena, key->words);
  if (key->type == KEY_YES_NO) return "yes no";
  return !strcmp(block, "plan") || !strcmp(block, "train") ? words_of_option(arena, models, key->name) : NULL;
}

static bool is_one_of(const char *head, const char *const *words) {
  while (*words && strcmp(*words, head)) words++;
  return *words;
}

static const char *block_of(const char *head) {
  if (is_one_of(head, device_kinds)) return "device";
  if (is_one_of(head, cluster_products)) return "product";
  if (is_one_of(head, cluster_attention)) return "attention";
  return is_executor(head) ? "executor" : head;
}

static const Key *find_key(const KeyTable *table, const char *name) {
  for (size_t k = 0; k < table->count; k++)
    if (!strcmp(table->keys[k].name, name)) return &table->keys[k];
  return NULL;
}

/* Or what may stand behind the key before it. */
static bool add_keys(Arena *arena, const char *models, json_t *items, const char *head, const char *before) {
  const char *block = block_of(head);
  const KeyTable *table = settings_table(block);
  if (!table) return false;
  const Key *key = find_key(table, before);
  const char *values = key ? values_of(arena, models, block, key) : NULL;
  if (values) add_words(arena, items, values, KIND_VALUE, before);
  for (size_t k = 0; k < table->count && !values; k++) add(items, table->keys[k].name, KIND_PROPERTY, block);
  return true;
}

static void add_layers(json_t *items) {
#define LAYER(id, name, arguments, meaning) add(items, name, KIND_FUNCTION, arguments);
#include "frontend/layers.def"
#undef LAYER
}

/* Each name once, the nearest definition's kind. */
static void add_names(const Analysis *a, json_t *items, uint32_t offset) {
  Definitions all = lsp_definitions(a);
  for (uint32_t i = 0; i < all.count; i++) {
    const Definition *d = &all.data[i];
    if (lsp_resolve(&all, d->name.text, strlen(d->name.text), offset) == d)
      add(items, d->name.text, !strcmp(d->kind, "module") ? KIND_MODULE : KIND_VARIABLE, d->kind);
  }
}

json_t *lsp_completion(const Lsp *lsp, const Document *document, uint32_t offset) {
  Analysis *a = lsp_analyse(lsp, document);
  json_t *items = json_array();
  char block[32], before[32];
  bool words = block_at(document->text, offset, block);
  word_before(document->text, offset, before);
  if (words && !add_keys(a->arena, lsp->cli->models, items, block, before)) {
    add_layers(items);
    add_names(a, items, offset);
    for (size_t k = 0; k < sizeof keywords / sizeof *keywords; k++) add(items, keywords[k], KIND_KEYWORD, NULL);
  }
  lsp_analysis_free(a);
  return items;
}
