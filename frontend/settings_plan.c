/* Owns: the plan block -> PlanSettings. */
#include "frontend/settings.h"

#define FIELD(member) offsetof(PlanSettings, member)

enum { MOST_RESHARD = 1 << 20 };

const char *const settings_strategy[] = {"auto", "full_shard", "shard_grad_op", "no_shard", "shard_optim", "hybrid_shard", NULL};
const char *const settings_wrap[] = {"auto", "block", "size", "whole", NULL};
const char *const settings_checkpoint[] = {"auto", "none", "full", NULL};
const char *const settings_cadence[] = {"auto", "micro_batch", "step", NULL};
const char *const settings_states[] = {"default", "f32", "bf16", NULL};
const char *const settings_loss[] = {"default", "eager", "compiled", "upcast", "chunked", "fused", "narrow", "joint", "shifted", "shifted_fused", "shifted_narrow", "shifted_narrow_fused", NULL};
const char *const settings_attention[] = {"default", "flash1", "flash2", "cudnn", "unfused", NULL};
const char *const settings_reduce[] = {"default", "micro_batch", "step", NULL};
const char *const settings_selective[] = {"none", "operators", "blocks", "modules", NULL};
const char *const settings_update[] = {"default", "unfused", "foreach", "fused", NULL};
const char *const settings_trainer_offload[] = {"m", "v", "master", "residual", NULL};
const char *const settings_offload[] = {"parameters", "gradients", "optimizer", "activations", "auto", "none", NULL};

static bool read_memory(Reader *reader, const Key *key) {
  PlanSettings *plan = reader->target;
  Quantity quantity;
  if (!read_number(reader, key, QUANTITY_BYTES, 1, 0, &quantity)) return false;
  plan->memory_bytes = (uint64_t)quantity.value;
  return true;
}

/* A word "name:rest"; rest is NULL when there is no colon. The word is consumed when it begins with `name`.
 */
static bool take_prefix(Reader *reader, const char *name, const char **rest) {
  const Item *item = next_item(reader);
  size_t length = strlen(name);
  *rest = NULL;
  if (!item || item->kind != ITEM_WORD || strncmp(item->text, name, length)) return false;
  if (item->text[length] && item->text[length] != ':') return false;
  if (item->text[length]) *rest = item->text + length + 1;
  reader->at++;
  return true;
}

/* The count after "name:" or in the next item; lacks: what is said where there is none. */
static bool read_suffix(Reader *reader, const Key *key, const char *rest, const char *lacks, int64_t *out) {
  Quantity quantity;
  const char *why = NULL;
  Span span = reader->items->data[reader->at - 1].span;
  if (!rest && next_is_key(reader)) {
    return key_error(reader, key, span, lacks);
  } else if (!rest) {
    if (!read_number(reader, key, QUANTITY_NUMBER, 1, 0, &quantity)) return false;
  } else if (!quantity_parse(rest, &quantity, &why) || quantity.kind != QUANTITY_NUMBER ||
             quantity.value < 1) {
    return key_error(reader, key, span,
                     arena_printf(reader->sema->arena, "\"%s\" must be a number from 1 on%s%s", rest, why ? ": " : "", why ? why : ""));
  }
  *out = quantity.integer;
  return quantity.is_integer || key_error(reader, key, span, "this must be a whole number");
}

/* strategy full_shard | hybrid_shard:8 */
static bool read_strategy(Reader *reader, const Key *key) {
  PlanSettings *plan = reader->target;
  const char *rest;
  int32_t strategy;
  if (take_prefix(reader, "hybrid_shard", &rest)) {
    plan->strategy = STRATEGY_HYBRID_SHARD;
    return read_suffix(reader, key, rest, "hybrid_shard needs the number of ranks that share a shard's parameters, as in hybrid_shard:8", &plan->shard);
  }
  if (!read_word(reader, key, settings_strategy, &strategy)) return false;
  plan->strategy = (Strategy)strategy;
  return true;
}

/* wrap block | size 100M | size:100M */
static bool read_wrap(Reader *reader, const Key *key) {
  PlanSettings *plan = reader->target;
  const char *rest;
  int64_t numel = 0;
  int32_t wrap;
  if (take_prefix(reader, "size", &rest)) {
    plan->wrap = WRAP_SIZE;
    bool good = read_suffix(reader, key, rest, "size needs the number of parameters of a unit, as in size 100M", &numel);
    plan->wrap_numel = (uint64_t)numel;
    return good;
  }
  if (!read_word(reader, key, settings_wrap, &wrap)) return false;
  plan->wrap = (WrapKind)wrap;
  return true;
}

/* reshard yes | no | auto | RANKS */
static bool read_reshard_into(Reader *reader, const Key *key, int32_t *out) {
  static const char *const words[] = {"no", "yes", "auto", NULL};
  const Item *item = next_item(reader);
  Quantity ranks;
  if (item && item->kind == ITEM_NUMBER) {
    if (!read_number(reader, key, QUANTITY_NUMBER, 2, MOST_RESHARD, &ranks)) return false;
    *out = (int32_t)ranks.integer;
    return ranks.is_integer || key_error(reader, key, item->span, "this must be a whole number");
  }
  if (!read_word(reader, key, words, out)) return false;
  if (*out == 2) *out = SETTING_AUTO;
  return true;
}

static bool read_reshard(Reader *reader, const Key *key) {
  return read_reshard_into(reader, key, &((PlanSettings *)reader->target)->reshard);
}

const char *read_pattern(Reader *reader, const char *key) {
  const Item *item = &reader->items->data[reader->at++];
  PatternUse use = {item->text, key, item->span};
  vec_push(reader->sema->arena, &reader->sema->patterns, use);
  return item->text;
}

bool is_pattern(const Item *item) {
  return item && (item->kind == ITEM_WORD || item->kind == ITEM_STRING);
}

/* The inside of a unit: patterns, and `reshard yes|no`. */
static void read_unit_items(Reader *outer, const Key *key, const ItemList *items, UnitRule *rule) {
  Reader reader = {.sema = outer->sema, .block = "unit", .items = items, .key_span = outer->key_span};
  while (next_item(&reader)) {
    const Item *item = next_item(&reader);
    if (item->kind == ITEM_WORD && !strcmp(item->text, "reshard")) {
      reader.at++;
      reader.key_span = item->span;
      state_once(&reader, "reshard", item->span);
      if (!read_reshard_into(&reader, &(Key){.name = "reshard"}, &rule->reshard)) return;
    } else if (is_pattern(item)) {
      vec_push(reader.sema->arena, &rule->patterns, read_pattern(&reader, "unit"));
    } else {
      key_error(&reader, key, item->span, "a unit lists names of modules, layers or parameters");
      return;
    }
  }
}

/* unit NAME { pattern ... } */
static bool read_unit(Reader *reader, const Key *key) {
  PlanSettings *plan = reader->target;
  const Item *name = next_item(reader);
  if (!is_pattern(name) || !*name->text)
    return key_error(reader, key, name ? name->span : reader->key_span, "a unit needs a name");
  reader->at++;
  const Item *block = read_block_item(reader, key);
  if (!block) return false;
  for (uint32_t i = 0; i < plan->units.count; i++) {
    if (strcmp(plan->units.data[i].name, name->text)) continue;
    Diag *diag = sema_error(reader->sema, name->span, "unit \"%s\" is stated twice", name->text);
    diag_note(diag, plan->units.data[i].span, "it is stated here first");
    return true;
  }
  UnitRule rule = {.name = name->text, .reshard = SETTING_AUTO, .span = name->span};
  read_unit_items(reader, key, block->items, &rule);
  if (!rule.patterns.count)
    key_error(reader, key, name->span,
              arena_printf(reader->sema->arena, "unit \"%s\" names no parameters", name->text));
  vec_push(reader->sema->arena, &plan->units, rule);
  return true;
}

/* save PATTERN ..., recompute PATTERN ..., host PATTERN ... */
static bool read_checkpoints(Reader *reader, const Key *key) {
  PlanSettings *plan = reader->target;
  bool any = false;
  while (!next_is_key(reader) && is_pattern(next_item(reader))) {
    CheckpointRule rule = {.recompute = *key->name == 'r', .host = *key->name == 'h', .span = next_item(reader)->span};
    rule.pattern = read_pattern(reader, key->name);
    vec_push(reader->sema->arena, &plan->checkpoints, rule);
    any = true;
  }
  return any || key_error(reader, key, reader->key_span,
                          arena_printf(reader->sema->arena, "\"%s\" needs the name of a layer or module",
                                       key->name));
}

const char *const *offload_names(void) { return settings_offload; }

static bool offload_apart(Reader *reader, const Key *key, int32_t which) {
  return key_error(reader, key, reader->items->data[reader->at - 1].span,
                   arena_printf(reader->sema->arena, "\"%s\" stands alone", settings_offload[which]));
}

static bool is_offload(const Item *item) {
  for (int i = 0; item && item->kind == ITEM_WORD && settings_offload[i]; i++)
    if (!strcmp(item->text, settings_offload[i])) return true;
  return false;
}

/* offload auto | none | parameters gradients optimizer activations */
static bool read_offload(Reader *reader, const Key *key) {
  PlanSettings *plan = reader->target;
  int32_t which;
  if (!read_word(reader, key, settings_offload, &which)) return false;
  if (which >= OFFLOAD_KINDS) {
    plan->offload = which == OFFLOAD_KINDS ? SETTING_AUTO : 0;
    return !is_offload(next_item(reader)) || offload_apart(reader, key, which);
  }
  for (plan->offload = 1 << which; !next_is_key(reader); plan->offload |= 1 << which) {
    if (!read_word(reader, key, settings_offload, &which)) return false;
    if (which >= OFFLOAD_KINDS) return offload_apart(reader, key, which);
  }
  return true;
}

static bool read_prefetch(Reader *reader, const Key *key) {
  return read_auto_count(reader, key, 0, SETTING_MOST_PREFETCH, &((PlanSettings *)reader->target)->prefetch);
}

static bool read_micro_batch(Reader *reader, const Key *key) {
  return read_auto_count(reader, key, 1, SETTING_MOST_SAMPLES, &((PlanSettings *)reader->target)->micro_batch);
}

/* --- executor ------------------------------------------------------------------------------------------------------ */

static const char *const executor_words[] = { /* by id, then the short ones */
#define EXECUTOR(id, name, meaning) name,
#define EXECUTOR_SHORT(id, name) name,
#include "frontend/executors.def"
#undef EXECUTOR
    NULL};
static const char *const executor_meanings[] = {
#define EXECUTOR(id, name, meaning) meaning,
#include "frontend/executors.def"
#undef EXECUTOR
};
static const ExecutorId executor_short[] = {
#define EXECUTOR(id, name, meaning)
#define EXECUTOR_SHORT(id, name) EXECUTOR_##id,
#include "frontend/executors.def"
#undef EXECUTOR
};

const char *executor_name(ExecutorId id) { return executor_words[id]; }
const char *const *executor_names(void) { return executor_words; }

int executor_find(const char *name) {
  for (int i = 0; executor_words[i]; i++)
    if (!strcmp(name, executor_words[i])) return i < EXECUTOR_COUNT ? i : (int)executor_short[i - EXECUTOR_COUNT];
  return -1;
}

const char *executor_meaning(const char *name) {
  for (int i = 0; executor_words[i]; i++)
    if (!strcmp(name, executor_words[i]))
      return i < EXECUTOR_COUNT ? executor_meanings[i] : executor_words[executor_short[i - EXECUTOR_COUNT]];
  return "";
}

const char *executor_nearest(const char *name) {
  uint32_t count = 0;
  while (executor_words[count]) count++;
  for (uint32_t i = EXECUTOR_COUNT; strlen(name) > 2 && i < count; i++)
    if (strstr(executor_words[i], name)) return executor_words[i];
  return text_nearest(name, executor_words, count);
}

static bool read_trainer_offload(Reader *reader, const Key *key) {
  ExecutorSettings *executor = reader->target;
  int32_t which;
  do {
    if (!read_word(reader, key, settings_trainer_offload, &which)) return false;
    executor->offload |= 1u << which;
  } while (!next_is_key(reader));
  return true;
}

#define EXECUTOR_FIELD(member) offsetof(ExecutorSettings, member)

static const Key executor_keys[] = {
    {"states", KEY_WORD, EXECUTOR_FIELD(states), .words = settings_states, .usage = "states default|f32|bf16"},
    {"loss", KEY_WORD, EXECUTOR_FIELD(loss), .words = settings_loss, .usage = "loss default|eager|compiled|upcast|chunked|fused|narrow|joint|shifted|shifted_fused|shifted_narrow|shifted_narrow_fused"},
    {"attention", KEY_WORD, EXECUTOR_FIELD(attention), .words = settings_attention, .usage = "attention default|flash1|flash2|cudnn|unfused"},
    {"loss_chunks", KEY_COUNT, EXECUTOR_FIELD(loss_chunks), .least = 1, .most = 1 << 20, .usage = "loss_chunks 4"},
    {"reduce", KEY_WORD, EXECUTOR_FIELD(reduce), .words = settings_reduce, .usage = "reduce micro_batch|step"},
    {"selective", KEY_WORD, EXECUTOR_FIELD(selective), .words = settings_selective, .usage = "selective operators|blocks|modules"},
    {"update", KEY_WORD, EXECUTOR_FIELD(update), .words = settings_update, .usage = "update unfused|foreach|fused"},
    {"packed", KEY_YES_NO, EXECUTOR_FIELD(packed), .usage = "packed yes|no"},
    {"reentrant", KEY_YES_NO, EXECUTOR_FIELD(reentrant), .usage = "reentrant yes|no"},
    {"fused_norms", KEY_YES_NO, EXECUTOR_FIELD(fused_norms), .usage = "fused_norms yes|no"},
    {"fused_layers", KEY_YES_NO, EXECUTOR_FIELD(fused_layers), .usage = "fused_layers yes|no"},
    {"fused_sums", KEY_YES_NO, EXECUTOR_FIELD(fused_sums), .usage = "fused_sums yes|no"},
    {"expandable_segments", KEY_YES_NO, EXECUTOR_FIELD(expandable_segments), .usage = "expandable_segments yes|no"},
    {"owners", KEY_COUNT, EXECUTOR_FIELD(owners), .least = 1, .most = 1 << 20, .usage = "owners 8"},
    {"update_in_backward", KEY_YES_NO, EXECUTOR_FIELD(update_in_backward), .usage = "update_in_backward yes|no"},
    {"offload", KEY_CUSTOM, .read = read_trainer_offload, .usage = "offload m v master residual"},
};

/* executor pytorch-fsdp2 compiled { states bf16 } */
static bool read_executor(Reader *reader, const Key *key) {
  static const char *const modes[] = {"eager", "compiled", NULL};
  PlanSettings *plan = reader->target;
  const Item *name = next_item(reader);
  int32_t which;
  if (name && name->kind == ITEM_WORD && executor_find(name->text) >= 0) {
    const char *text = name->text;
    reader->at++;
    const Item *mode = next_item(reader);
    if (mode && mode->kind == ITEM_WORD && executor_find(arena_printf(reader->sema->arena, "%s-%s", text, mode->text)) >= 0) {
      text = arena_printf(reader->sema->arena, "%s-%s", text, mode->text);
      reader->at++;
    } else if (mode && mode->kind == ITEM_WORD && text_nearest(mode->text, modes, 2)) {
      return refuse_word(reader, &(Key){.name = text}, modes, text_nearest(mode->text, modes, 2));
    }
    which = executor_find(text);
  } else {
    return refuse_word(reader, key, executor_words, name && name->kind == ITEM_WORD ? executor_nearest(name->text) : NULL);
  }
  plan->executor.id = (ExecutorId)which;
  const Item *block = next_item(reader);
  if (!block || block->kind != ITEM_BLOCK) return true;
  reader->at++;
  READ_BLOCK(reader->sema, "executor", executor_keys, block->items, &plan->executor);
  return true;
}

static const Key plan_keys[] = {
    {"memory", KEY_CUSTOM, .read = read_memory, .usage = "memory 72GiB"},
    {"strategy", KEY_CUSTOM, .read = read_strategy,
     .usage = "strategy auto|full_shard|shard_grad_op|shard_optim|no_shard|hybrid_shard:RANKS"},
    {"wrap", KEY_CUSTOM, .read = read_wrap, .usage = "wrap auto|block|whole|size 100M"},
    {"unit", KEY_CUSTOM, .read = read_unit, .repeats = true,
     .usage = "unit NAME { PATTERN ... [reshard yes|no|RANKS] }"},
    {"reshard", KEY_CUSTOM, .read = read_reshard, .usage = "reshard auto|yes|no|RANKS"},
    {"checkpoint", KEY_WORD, FIELD(checkpoint), .words = settings_checkpoint,
     .usage = "checkpoint auto|none|full"},
    {"gather", KEY_WORD, FIELD(gather), .words = settings_cadence, .usage = "gather auto|micro_batch|step"},
    {"reduce", KEY_WORD, FIELD(reduce), .words = settings_cadence, .usage = "reduce auto|micro_batch|step"},
    {"offload", KEY_CUSTOM, .read = read_offload, .usage = "offload auto|none|parameters gradients optimizer activations"},
    {"save", KEY_CUSTOM, .read = read_checkpoints, .repeats = true, .usage = "save PATTERN ..."},
    {"recompute", KEY_CUSTOM, .read = read_checkpoints, .repeats = true, .usage = "recompute PATTERN ..."},
    {"host", KEY_CUSTOM, .read = read_checkpoints, .repeats = true, .usage = "host PATTERN ..."},
    {"executor", KEY_CUSTOM, .read = read_executor, .usage = "executor native|pytorch-fsdp2 [eager|compiled]|... [{ states f32|bf16 ... }]"},
    {"prefetch", KEY_CUSTOM, .read = read_prefetch, .usage = "prefetch auto|UNITS"},
    {"micro_batch", KEY_CUSTOM, .read = read_micro_batch, .usage = "micro_batch auto|SAMPLES"},
};

const KeyTable settings_plan_tables[] = {KEY_TABLE("plan", plan_keys), KEY_TABLE("executor", executor_keys), {0}};

void settings_plan(Sema *sema, const Stmt *block) {
  sema->graph->plan.span = block->span;
  READ_BLOCK(sema, "plan", plan_keys, block->items, &sema->graph->plan);
}

/* --- patterns ------------------------------------------------------------------------------------------- */

typedef VEC(const char *) Names;

/* What a pattern may name: parameters for a unit, ops for save and recompute; modules lie above both. */
static void candidates(Sema *sema, bool unit, Names *names) {
  const Graph *graph = sema->graph;
  for (uint32_t i = 0; unit && i < graph->params.count; i++)
    vec_push(sema->arena, names, graph->params.data[i].name);
  for (uint32_t i = 0; !unit && i < graph->ops.count; i++)
    vec_push(sema->arena, names, graph->ops.data[i].name);
}

static bool matches_any(const char *pattern, const Names *names) {
  for (uint32_t k = 0; k < names->count; k++)
    if (path_matches(pattern, names->data[k])) return true;
  return false;
}

static void report_unmatched(Sema *sema, const PatternUse *use, bool unit) {
  Names names = {0};
  Diag *diag = sema_error(sema, use->span, "\"%s\" matches no %s of the model", use->pattern,
                          unit ? "parameter" : "layer");
  if (sema->sink->errors > DIAG_LIMIT) return; /* not shown: what is near need not be known */
  candidates(sema, unit, &names);
  if (unit) candidates(sema, false, &names); /* a layer's name stands for its parameters */
  for (uint32_t k = 1; k < sema->graph->modules.count; k++)
    vec_push(sema->arena, &names, sema->graph->modules.data[k].name);
  const char *near = text_nearest(use->pattern, names.data, names.count);
  const char *shared = unit ? shared_weight(sema, "", use->pattern) : NULL;
  if (shared)
    diag_help(diag, "name the weight that it shares, \"%s\"", shared);
  else if (near && !strcmp(near, use->pattern))
    diag_help(diag, "it has none: leave it out");
  else if (near)
    diag_help(diag, "did you mean \"%s\"?", near);
}

void settings_plan_finish(Sema *sema) {
  Names params = {0}, layers = {0};
  candidates(sema, true, &params);
  candidates(sema, false, &layers);
  for (uint32_t i = 0; i < sema->patterns.count; i++) {
    const PatternUse *use = &sema->patterns.data[i];
    bool unit = !strcmp(use->key, "unit") || !strcmp(use->key, "no_decay");
    if (!matches_any(use->pattern, unit ? &params : &layers)) report_unmatched(sema, use, unit);
  }
}
