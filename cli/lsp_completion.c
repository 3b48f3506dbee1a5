/* Owns: completion: keys inside settings blocks, and behind some what they may be; elsewhere layers, keywords and the names that are
 * visible. */
#include "cli/lsp.h"

#include <ctype.h>

enum { KIND_FUNCTION = 3, KIND_VARIABLE = 6, KIND_MODULE = 9, KIND_PROPERTY = 10, KIND_VALUE = 12, KIND_KEYWORD = 14, DEPTH_MOST = 16 };

/* Keys of each block, as docs/language.md lists them; tests/view/lsp.sh has every one accepted by the frontend. */
static const char *const block_keys[][2] = {
    {"train", "optimizer tokens_per_step batch steps precision loss_scale clip seed order"},
    {"adamw", "lr min_lr warmup cooldown no_decay betas eps decay"},
    {"sgd", "lr min_lr warmup cooldown no_decay momentum decay"},
    {"lion", "lr min_lr warmup cooldown no_decay betas decay"},
    {"adafactor", "lr min_lr warmup cooldown no_decay beta2_decay eps eps2 threshold decay"},
    {"loss_scale", "init growth backoff interval"},
    {"cluster", "use device node network nodes contention network_contention comm_slowdown compute_spread comm_spread price"},
    {"device", "generation allocator clock attention_tokens name memory bandwidth bandwidth_share peak gemm_share gemm_prologue attention_share attention_backward tile_units launch host_link host_memory product attention moves shared_queue"},
    {"cpu", "generation allocator clock attention_tokens name memory bandwidth bandwidth_share peak gemm_share gemm_prologue attention_share attention_backward tile_units launch host_link host_memory product attention moves shared_queue"},
    {"gpu", "generation allocator clock attention_tokens name memory bandwidth bandwidth_share peak gemm_share gemm_prologue attention_share attention_backward tile_units launch host_link host_memory product attention moves shared_queue"},
    {"node", "devices bandwidth reduce_bandwidth latency gather reduce all_reduce efficiency"},
    {"network", "bandwidth latency efficiency"},
    {"plan", "memory strategy wrap unit reshard gather reduce checkpoint offload save recompute host executor prefetch micro_batch"},
    {"executor", "states loss attention loss_chunks reduce selective update packed reentrant fused_norms fused_layers fused_sums expandable_segments owners update_in_backward offload"}};

/* What may stand behind a key, where the block's keys are no options of the command line that say it (words.c); tests/view/lsp.sh has all of
 * that accepted too. Behind other keys are numbers, and then the next key. */
static const char *const key_values[][3] = {
    {"train", "optimizer", "adamw sgd lion adafactor"}, {"train", "order", "sequential shuffled"}, {"cluster", "device", "cpu gpu"}};

/* In any block: names and patterns, of which none are offered. */
static const char *const pattern_keys[] = {"unit", "save", "recompute", "host", "no_decay"};

static const char *const keywords[] = {"use", "model", "module", "let", "input", "repeat", "return", "as", "in", "init", "freeze", "train", "cluster", "plan"};

static void add(json_t *items, const char *label, int kind, const char *detail) {
  json_t *item = json_pack("{s:s, s:i}", "label", label, "kind", kind);
  if (detail) json_object_set_new(item, "detail", json_string(detail));
  json_array_append_new(items, item);
}

static bool is_letter(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The word before a '{', or before the string before it: cluster "x" {. Names of executors have dashes. */
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
  snprintf(out, 32, "%.*s", (int)(end - begin), text + begin);
}

/* The word on the same line before the one that is being written. */
static void word_before(const char *text, uint32_t offset, char out[32]) {
  uint32_t end = offset;
  while (end && !isspace((unsigned char)text[end - 1]) && text[end - 1] != '{') end--;
  while (end && (text[end - 1] == ' ' || text[end - 1] == '\t')) end--;
  uint32_t begin = end;
  while (begin && is_letter(text[begin - 1])) begin--;
  snprintf(out, 32, "%.*s", (int)(end - begin), text + begin);
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

/* What may stand behind a key, with spaces between; NULL: nothing is known, or no key stands there. */
static const char *values_of(Arena *arena, const char *models, const char *block, const char *key) {
  for (size_t k = 0; k < sizeof pattern_keys / sizeof *pattern_keys; k++)
    if (!strcmp(pattern_keys[k], key)) return "";
  for (size_t k = 0; k < sizeof key_values / sizeof *key_values; k++)
    if (!strcmp(key_values[k][0], block) && !strcmp(key_values[k][1], key)) return key_values[k][2];
  return !strcmp(block, "plan") || !strcmp(block, "train") ? words_of_option(arena, models, key) : NULL;
}

/* Or what may stand behind the key before it. */
static bool add_keys(Arena *arena, const char *models, json_t *items, const char *head, const char *before) {
  const char *block = is_executor(head) ? "executor" : head;
  for (size_t k = 0; k < sizeof block_keys / sizeof *block_keys; k++) {
    if (strcmp(block_keys[k][0], block)) continue;
    const char *values = values_of(arena, models, block, before);
    add_words(arena, items, values ? values : block_keys[k][1], values ? KIND_VALUE : KIND_PROPERTY, values ? before : block);
    return true;
  }
  return false;
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
