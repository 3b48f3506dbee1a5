/* Owns: the reader behind train, cluster and plan blocks. The blocks are flat: a key, its values, the next
 * key; what follows a key is said in its row of a table, so that every mistake gets the same quality of
 * message. */
#include "frontend/settings.h"

#include <ctype.h>
#include <math.h>

const Item *next_item(const Reader *reader) {
  return reader->at < reader->items->count ? &reader->items->data[reader->at] : NULL;
}

static const Key *find_key(const Reader *reader, const Item *item) {
  for (uint32_t i = 0; item->kind == ITEM_WORD && i < reader->key_count; i++)
    if (!strcmp(reader->keys[i].name, item->text)) return &reader->keys[i];
  return NULL;
}

bool next_is_key(const Reader *reader) {
  const Item *item = next_item(reader);
  return !item || find_key(reader, item);
}

static const char *saw(Reader *reader, const Item *item) {
  if (!item) return "nothing";
  if (item->kind == ITEM_BLOCK) return "a block";
  return arena_printf(reader->sema->arena, item->kind == ITEM_STRING ? "the string \"%s\"" : "\"%s\"",
                      item->text);
}

bool key_error(Reader *reader, const Key *key, Span span, const char *text) {
  Diag *diag = sema_error(reader->sema, span, "%s", text);
  if (key->usage) diag_help(diag, "it is written `%s`", key->usage);
  return false;
}

void state_once(Reader *reader, const char *what, Span span) {
  for (uint32_t i = 0; i < reader->stated.count; i++) {
    if (strcmp(reader->stated.data[i].what, what)) continue;
    Diag *diag = sema_error(reader->sema, span, "\"%s\" is stated twice", what);
    diag_note(diag, reader->stated.data[i].span, "it is stated here first");
    return;
  }
  vec_push(reader->sema->arena, &reader->stated, ((Stated){what, span}));
}

static bool expected(Reader *reader, const Key *key, const char *what) {
  const Item *item = next_item(reader);
  if (next_is_key(reader))
    return key_error(reader, key, span_join(reader->key_span, reader->items->data[reader->at - 1].span),
                     arena_printf(reader->sema->arena, "\"%s\" needs %s", key->name, what));
  return key_error(
      reader, key, item ? item->span : reader->key_span,
      arena_printf(reader->sema->arena, "\"%s\" needs %s, saw %s", key->name, what, saw(reader, item)));
}

static const char *kind_name(QuantityKind kind) {
  static const char *const names[] = {[QUANTITY_NUMBER] = "a number",
                                      [QUANTITY_BYTES] = "a size such as 72GiB",
                                      [QUANTITY_RATE] = "a rate such as 900GB/s",
                                      [QUANTITY_FLOPS] = "a speed such as 989TFLOPS",
                                      [QUANTITY_SECONDS] = "a time such as 5us",
                                      [QUANTITY_MONEY_RATE] = "a price such as 2.5USD/h"};
  return names[kind];
}

/* "16 GiB": what it would be without the space, or NULL. */
static const char *joined(Reader *reader, const Item *number, QuantityKind kind) {
  const Item *unit = reader->at + 1 < reader->items->count ? &reader->items->data[reader->at + 1] : NULL;
  const char *why;
  Quantity quantity;
  if (!unit || unit->kind != ITEM_WORD || strlen(number->text) > 60 || strlen(unit->text) > 20) return NULL;
  const char *text = arena_printf(reader->sema->arena, "%s%s", number->text, unit->text);
  return quantity_parse(text, &quantity, &why) && quantity.kind == kind ? text : NULL;
}

static bool other_kind(Reader *reader, const Key *key, const Item *item, QuantityKind kind) {
  const char *meant = joined(reader, item, kind);
  if (!meant) return expected(reader, key, kind_name(kind));
  Diag *diag = sema_error(reader->sema, item->span, "\"%s\" needs %s, saw \"%s %s\"", key->name, kind_name(kind), item->text,
                          item[1].text);
  diag_help(diag, "write %s: no space between number and unit", meant);
  return false;
}

static void help_unit(Reader *reader, Diag *diag, const char *text) {
  const char *meant = quantity_meant(reader->sema->arena, text);
  if (meant && !strcmp(meant, text)) return; /* the unit is right */
  if (meant)
    diag_help(diag, "did you mean \"%s\"?", meant);
  else
    diag_help(diag, "the units are %s", quantity_units(reader->sema->arena));
}

bool read_number(Reader *reader, const Key *key, QuantityKind kind, double least, double most,
                 Quantity *out) {
  const Item *item = next_item(reader);
  const char *why = NULL;
  if (!item || item->kind != ITEM_NUMBER) return expected(reader, key, kind_name(kind));
  if (strlen(item->text) > 60 || !quantity_parse(item->text, out, &why)) {
    Diag *diag = sema_error(reader->sema, item->span, "\"%s\" is not a quantity: %s", item->text, why ? why : "it has too many digits");
    if (why && isalpha((unsigned char)item->text[strlen(item->text) - 1])) help_unit(reader, diag, item->text);
    return false;
  }
  if (out->kind != kind) return other_kind(reader, key, item, kind);
  const char *bound = out->value < least ? "at least" : most > 0 && out->value > most ? "at most" : NULL;
  if (bound) {
    double limit = *(bound + 3) == 'l' ? least : most;
    bool whole = limit == floor(limit) && fabs(limit) < 1e15;
    sema_error(reader->sema, item->span, whole ? "\"%s\" must be %s %.0f, this is %s" : "\"%s\" must be %s %g, this is %s", key->name,
               bound, limit, item->text);
    return false;
  }
  reader->at++;
  return true;
}

const char *setting_meant(const char *word, const char *const *words, uint32_t count) {
  static const char *const elsewhere[][2] = {
      {"fsdp", "full_shard"},  {"zero3", "full_shard"}, {"zero2", "shard_grad_op"}, {"zero1", "shard_optim"}, {"ddp", "no_shard"},
      {"hsdp", "hybrid_shard"}, {"fp16", "f16"},         {"float16", "f16"},         {"half", "f16"},          {"bfloat16", "bf16"},
      {"fp32", "f32"},          {"float32", "f32"},      {"float", "f32"},           {"adam", "adamw"},
      {"gpu", "cuda"},          {"cuda", "gpu"}};
  for (size_t k = 0; k < sizeof elsewhere / sizeof *elsewhere; k++) {
    if (strcmp(word, elsewhere[k][0])) continue;
    size_t length = strlen(elsewhere[k][1]);
    for (uint32_t i = 0; i < count; i++) /* "hybrid_shard:F" too */
      if (!strncmp(words[i], elsewhere[k][1], length) && (!words[i][length] || words[i][length] == ':')) return words[i];
  }
  return text_nearest(word, words, count);
}

bool refuse_word(Reader *reader, const Key *key, const char *const *words, const char *near) {
  const Item *item = next_item(reader);
  uint32_t count = 0;
  while (words[count]) count++;
  Text wanted = {.arena = reader->sema->arena};
  for (uint32_t i = 0; i < count; i++)
    text_printf(&wanted, "%s%s", i == 0 ? "" : i + 1 == count ? " or " : ", ", words[i]);
  Diag *diag = sema_error(reader->sema, item ? item->span : reader->key_span, "\"%s\" must be %s, saw %s",
                          key->name, wanted.data, saw(reader, item));
  if (near) diag_help(diag, "did you mean \"%s\"?", near);
  return false;
}

bool read_word(Reader *reader, const Key *key, const char *const *words, int32_t *out) {
  const Item *item = next_item(reader);
  uint32_t count = 0;
  for (; words[count]; count++)
    if (item && item->kind == ITEM_WORD && !strcmp(item->text, words[count])) {
      *out = (int32_t)count;
      reader->at++;
      return true;
    }
  return refuse_word(reader, key, words, item && item->kind == ITEM_WORD ? setting_meant(item->text, words, count) : NULL);
}

static bool whole(Reader *reader, const Key *key, const Quantity *quantity, int64_t *out) {
  *out = quantity->integer;
  if (quantity->is_integer) return true;
  sema_error(reader->sema, reader->items->data[reader->at - 1].span,
             "\"%s\" must be a whole number, this is %s", key->name,
             reader->items->data[reader->at - 1].text);
  return false;
}

bool read_auto_count(Reader *reader, const Key *key, double least, double most, int64_t *out) {
  static const char *const words[] = {"auto", NULL};
  Quantity quantity;
  int32_t word;
  const Item *item = next_item(reader);
  if (item && item->kind == ITEM_NUMBER)
    return read_number(reader, key, QUANTITY_NUMBER, least, most, &quantity) &&
           whole(reader, key, &quantity, out);
  if (!item || item->kind != ITEM_WORD || strcmp(item->text, "auto"))
    return expected(reader, key, "auto or a number");
  *out = SETTING_AUTO;
  return read_word(reader, key, words, &word);
}

const Item *read_block_item(Reader *reader, const Key *key) {
  const Item *item = next_item(reader);
  if (!item || item->kind != ITEM_BLOCK) {
    expected(reader, key, "a block in braces");
    return NULL;
  }
  reader->at++;
  return item;
}

static bool read_string(Reader *reader, const Key *key, const char **out) {
  const Item *item = next_item(reader);
  if (!item || item->kind != ITEM_STRING) return expected(reader, key, "a string in quotes");
  *out = item->text;
  reader->at++;
  return true;
}

static bool read_value(Reader *reader, const Key *key) {
  static const char *const yes_no[] = {"no", "yes", NULL};
  void *field = (char *)reader->target + key->offset;
  Quantity quantity;
  int32_t word;
  switch (key->type) {
  case KEY_COUNT:
    return read_number(reader, key, QUANTITY_NUMBER, key->least, key->most, &quantity) &&
           whole(reader, key, &quantity, field);
  case KEY_BYTES:
    return read_number(reader, key, QUANTITY_BYTES, 1, 0, &quantity) && whole(reader, key, &quantity, field);
  case KEY_REAL:
  case KEY_RATE:
  case KEY_NS:
  case KEY_PRICE: {
    static const QuantityKind kinds[] = {[KEY_REAL] = QUANTITY_NUMBER,
                                         [KEY_RATE] = QUANTITY_RATE,
                                         [KEY_NS] = QUANTITY_SECONDS,
                                         [KEY_PRICE] = QUANTITY_MONEY_RATE};
    if (!read_number(reader, key, kinds[key->type], key->least, key->most, &quantity)) return false;
    *(double *)field = key->type == KEY_NS ? quantity.value * 1e9 : quantity.value;
    return true;
  }
  case KEY_WORD:
    return read_word(reader, key, key->words, field);
  case KEY_YES_NO:
    if (!read_word(reader, key, yes_no, &word)) return false;
    *(bool *)field = word == 1;
    return true;
  case KEY_STRING:
    return read_string(reader, key, field);
  case KEY_CUSTOM:
    return key->read(reader, key);
  }
  return false;
}

static void skip_to_key(Reader *reader) {
  while (!next_is_key(reader)) reader->at++;
}

static const KeyTable *const all_tables[] = {settings_train_tables, settings_cluster_tables, settings_plan_tables};
enum { TABLES = sizeof all_tables / sizeof *all_tables };

const KeyTable *settings_table(const char *word) {
  for (size_t f = 0; f < TABLES; f++)
    for (const KeyTable *table = all_tables[f]; table->block; table++) {
      const char *last = strrchr(table->block, ' ');
      if (!strcmp(last ? last + 1 : table->block, word)) return table;
    }
  return NULL;
}

/* "device and plan": the blocks that have this key, or NULL. */
static const char *owners(Arena *arena, const char *key) {
  const char *last = NULL;
  Text text = {.arena = arena};
  for (size_t f = 0; f < TABLES; f++)
    for (const KeyTable *table = all_tables[f]; table->block; table++)
      for (size_t i = 0; i < table->count; i++) {
        if (strcmp(table->keys[i].name, key)) continue;
        if (last) text_printf(&text, "%s%s", text.length ? ", " : "", last);
        last = table->block;
      }
  return text.length ? arena_printf(arena, "%s and %s", text.data, last) : last;
}

static void unknown_key(Reader *reader, const Item *item) {
  const char **names = ARENA_ARRAY(reader->sema->arena, const char *, reader->key_count);
  Text all = {.arena = reader->sema->arena};
  for (uint32_t i = 0; i < reader->key_count; i++) {
    names[i] = reader->keys[i].name;
    text_printf(&all, "%s%s", i ? ", " : "", names[i]);
  }
  if (item->kind != ITEM_WORD) {
    Diag *diag =
        sema_error(reader->sema, item->span, "%s belongs to no key of %s", saw(reader, item), reader->block);
    if (reader->last && reader->last->usage)
      diag_help(diag, "the key before is written `%s`", reader->last->usage);
    return;
  }
  const char *near = text_nearest(item->text, names, reader->key_count), *blocks = owners(reader->sema->arena, item->text);
  Diag *diag = sema_error(reader->sema, item->span, "%s has no key \"%s\"", reader->block, item->text);
  if (blocks)
    diag_help(diag, "it is a key of %s", blocks);
  else if (near)
    diag_help(diag, "did you mean \"%s\"?", near);
  else
    diag_help(diag, "its keys are %s", all.data);
}

const Item *key_stated(const ItemList *items, const char *key) {
  for (uint32_t i = 0; i < items->count; i++)
    if (items->data[i].kind == ITEM_WORD && !strcmp(items->data[i].text, key)) return &items->data[i];
  return NULL;
}

void read_block(Sema *sema, const char *block, const Key *keys, uint32_t key_count, const ItemList *items,
                void *target) {
  Reader reader = {
      .sema = sema, .block = block, .keys = keys, .key_count = key_count, .items = items, .target = target};
  while (reader.at < items->count) {
    const Item *item = &items->data[reader.at++];
    const Key *key = find_key(&reader, item);
    if (!key) {
      unknown_key(&reader, item);
      skip_to_key(&reader);
      continue;
    }
    if (!key->repeats) state_once(&reader, key->name, item->span);
    reader.key_span = item->span;
    reader.last = key;
    if (!read_value(&reader, key)) skip_to_key(&reader);
  }
}
