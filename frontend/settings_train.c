/* Owns: the train block -> Recipe. */
#include "frontend/settings.h"

static const double default_min_lr_share = 0.1, lion_beta2 = 0.99;
/* As torch.optim.Adafactor for f32 parameters. */
static const double adafactor_beta2_decay = -0.8, adafactor_eps1 = 0x1p-23, adafactor_eps2 = 1e-3, adafactor_threshold = 1;

void settings_defaults(Graph *graph) {
  graph->recipe = (Recipe){.optimizer = OPTIMIZER_ADAMW,
                           .schedule = SCHEDULE_CONSTANT,
                           .lr = 1e-3,
                           .min_lr = 1e-4,
                           .beta1 = 0.9,
                           .beta2 = 0.999,
                           .eps = 1e-8,
                           .steps = 100,
                           .seed = 1337,
                           .compute = DTYPE_F32,
                           .reduce = DTYPE_F32,
                           .master = DTYPE_F32};
  graph->loss_scaling = (LossScaling){.init = 65536, .growth = 2, .backoff = 0.5, .interval = 2000};
  graph->plan =
      (PlanSettings){.prefetch = SETTING_AUTO, .micro_batch = SETTING_AUTO, .reshard = SETTING_AUTO, .offload = SETTING_AUTO, .span = SPAN_NONE};
  graph->cluster = (Cluster){
      .name = "", .node_devices = 1, .nodes = 1, .node = {.efficiency = 1}, .network = {.efficiency = 1}};
}

/* --- optimizer ------------------------------------------------------------------------------------------ */

/* lr 6e-4 cosine */
static bool read_lr(Reader *reader, const Key *key) {
  static const char *const schedules[] = {SCHEDULE_NAMES NULL};
  Recipe *recipe = reader->target;
  Quantity quantity;
  int32_t schedule = SCHEDULE_CONSTANT;
  if (!read_number(reader, key, QUANTITY_NUMBER, 0, 0, &quantity)) return false;
  const Item *item = next_item(reader);
  bool follows = !next_is_key(reader) && item->kind == ITEM_WORD &&
                 text_nearest(item->text, schedules, SCHEDULE_WSD + 1);
  if (follows && !read_word(reader, key, schedules, &schedule)) return false;
  recipe->lr = quantity.value;
  recipe->schedule = (ScheduleKind)schedule;
  return true;
}

static bool read_betas(Reader *reader, const Key *key) {
  Recipe *recipe = reader->target;
  double *betas[] = {&recipe->beta1, &recipe->beta2};
  for (int i = 0; i < 2; i++) {
    Quantity quantity;
    if (!read_number(reader, key, QUANTITY_NUMBER, 0, 0, &quantity)) return false;
    if (quantity.value >= 1)
      return key_error(reader, key, reader->items->data[reader->at - 1].span,
                       "a beta must lie between 0 and 1, 1 excluded");
    *betas[i] = quantity.value;
  }
  return true;
}

/* eps 1e-8 */
static bool read_eps(Reader *reader, const Key *key) {
  Recipe *recipe = reader->target;
  const double least = recipe_least_eps(recipe->optimizer);
  const Item *item = next_item(reader);
  Quantity quantity;
  if (!read_number(reader, key, QUANTITY_NUMBER, 0, 0, &quantity)) return false;
  recipe->eps = quantity.value;
  if (quantity.value >= least) return true;
  const char *squared = recipe->optimizer == OPTIMIZER_ADAFACTOR ? ", squared" : "";
  return key_error(reader, key, item->span,
                   arena_printf(reader->sema->arena, "\"eps\" must be above 0 in f32%s, so at least %g, this is %s", squared, least, item->text));
}

/* beta2_decay -0.8 */
static bool read_beta2_decay(Reader *reader, const Key *key) {
  Quantity quantity;
  if (!read_number(reader, key, QUANTITY_NUMBER, -1e9, 0, &quantity)) return false;
  if (quantity.value > 0)
    return key_error(reader, key, reader->items->data[reader->at - 1].span, "\"beta2_decay\" is an exponent of at most 0");
  ((Recipe *)reader->target)->beta2_decay = quantity.value;
  return true;
}

/* no_decay wte wpe */
static bool read_no_decay(Reader *reader, const Key *key) {
  Graph *graph = reader->sema->graph;
  uint32_t before = graph->no_decay.count;
  while (!next_is_key(reader) && is_pattern(next_item(reader)))
    vec_push(reader->sema->arena, &graph->no_decay, read_pattern(reader, key->name));
  return graph->no_decay.count > before ||
         key_error(reader, key, reader->key_span, "\"no_decay\" needs the name of a parameter, layer or module");
}

bool graph_scales_loss(const Graph *graph) {
  return graph->recipe.compute == DTYPE_F16 || graph->recipe.reduce == DTYPE_F16;
}

bool graph_excepts_decay(const Graph *graph, const char *param) {
  for (uint32_t i = 0; i < graph->no_decay.count; i++)
    if (path_matches(graph->no_decay.data[i], param)) return true;
  return false;
}

#define FIELD(member) offsetof(Recipe, member)

/* What every optimizer has. */
#define COMMON_KEYS                                                                                          \
  {"lr", KEY_CUSTOM, .read = read_lr, .usage = "lr RATE [constant|linear|cosine|wsd]"},                      \
      {"min_lr", KEY_REAL, FIELD(min_lr), .usage = "min_lr RATE"},                                           \
      {"warmup", KEY_COUNT, FIELD(warmup_steps), .usage = "warmup STEPS"},                                   \
      {"cooldown", KEY_COUNT, FIELD(cooldown_steps), .least = 1, .usage = "cooldown STEPS"},                 \
      {"no_decay", KEY_CUSTOM, .read = read_no_decay, .usage = "no_decay PATTERN ..."}

static const Key adamw_keys[] = {
    COMMON_KEYS,
    {"betas", KEY_CUSTOM, .read = read_betas, .usage = "betas BETA1 BETA2"},
    {"eps", KEY_CUSTOM, .read = read_eps, .usage = "eps NUMBER"},
    {"decay", KEY_REAL, FIELD(decay), .usage = "decay NUMBER"},
};
static const Key lion_keys[] = {
    COMMON_KEYS,
    {"betas", KEY_CUSTOM, .read = read_betas, .usage = "betas BETA1 BETA2"},
    {"decay", KEY_REAL, FIELD(decay), .usage = "decay NUMBER"},
};
static const Key sgd_keys[] = {
    COMMON_KEYS,
    {"momentum", KEY_REAL, FIELD(momentum), .most = 1, .usage = "momentum NUMBER"},
    {"decay", KEY_REAL, FIELD(decay), .usage = "decay NUMBER"},
};

static const Key adafactor_keys[] = {
    COMMON_KEYS,
    {"beta2_decay", KEY_CUSTOM, .read = read_beta2_decay, .usage = "beta2_decay -0.8"},
    {"eps", KEY_CUSTOM, .read = read_eps, .usage = "eps NUMBER"},
    {"eps2", KEY_REAL, FIELD(eps2), .usage = "eps2 NUMBER"},
    {"threshold", KEY_REAL, FIELD(threshold), .least = 1, .usage = "threshold NUMBER"},
    {"decay", KEY_REAL, FIELD(decay), .usage = "decay NUMBER"},
};

static void set_adafactor_defaults(Recipe *recipe) {
  recipe->beta2_decay = adafactor_beta2_decay;
  recipe->eps = adafactor_eps1;
  recipe->eps2 = adafactor_eps2;
  recipe->threshold = adafactor_threshold;
}

static bool read_optimizer(Reader *reader, const Key *key) {
  static const char *const names[] = {OPTIMIZER_NAMES NULL};
  static const double unset = -1;
  Recipe *recipe = reader->target;
  int32_t kind;
  if (!read_word(reader, key, names, &kind)) return false;
  const Item *block = read_block_item(reader, key);
  if (!block) return false;
  uint32_t errors = reader->sema->sink->errors;
  recipe->optimizer = (OptimizerKind)kind;
  recipe->lr = recipe->min_lr = unset;
  if (kind == OPTIMIZER_LION) recipe->beta2 = lion_beta2;
  if (kind == OPTIMIZER_ADAFACTOR) set_adafactor_defaults(recipe);
  if (kind == OPTIMIZER_ADAMW)
    READ_BLOCK(reader->sema, "optimizer adamw", adamw_keys, block->items, recipe);
  else if (kind == OPTIMIZER_LION)
    READ_BLOCK(reader->sema, "optimizer lion", lion_keys, block->items, recipe);
  else if (kind == OPTIMIZER_ADAFACTOR)
    READ_BLOCK(reader->sema, "optimizer adafactor", adafactor_keys, block->items, recipe);
  else
    READ_BLOCK(reader->sema, "optimizer sgd", sgd_keys, block->items, recipe);
  if (recipe->lr < 0 && reader->sema->sink->errors == errors)
    key_error(reader, &adamw_keys[0], reader->key_span, "the optimizer has no learning rate");
  if (recipe->min_lr < 0) recipe->min_lr = default_min_lr_share * recipe->lr;
  if (recipe->min_lr > recipe->lr && reader->sema->sink->errors == errors)
    sema_error(reader->sema, reader->key_span, "min_lr %g exceeds lr %g", recipe->min_lr, recipe->lr);
  return true;
}

/* --- train ---------------------------------------------------------------------------------------------- */

static const char *const float_names[] = {"f32", "bf16", "f16", NULL};
static const DType float_dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

/* Whether `word` stands next; it is then passed over. */
static bool take_word(Reader *reader, const char *word) {
  const Item *item = next_item(reader);
  bool stands = item && item->kind == ITEM_WORD && !strcmp(item->text, word);
  if (stands) reader->at++;
  return stands;
}

/* master bf16 rounding stochastic, or nothing */
static bool read_master(Reader *reader, const Key *key, Recipe *recipe) {
  static const char *const roundings[] = {ROUNDING_NAMES NULL};
  int32_t master = 0, rounding = ROUNDING_STOCHASTIC;
  if (take_word(reader, "master") && !read_word(reader, key, float_names, &master)) return false;
  recipe->master = float_dtypes[master];
  recipe->rounding = ROUNDING_NEAREST;
  Span span = reader->items->data[reader->at - 1].span;
  if (recipe->master == DTYPE_F16 || (recipe->master != DTYPE_F32 && recipe->master != recipe->compute))
    return key_error(reader, key, span, "parameters are kept in f32, or in bf16 with precision bf16");
  bool stated = take_word(reader, "rounding");
  if (stated && recipe->master == DTYPE_F32)
    return key_error(reader, key, reader->items->data[reader->at - 1].span, "parameters kept in f32 are not rounded");
  if (stated && !read_word(reader, key, roundings, &rounding)) return false;
  if (recipe->master != DTYPE_F32) recipe->rounding = (Rounding)rounding;
  return true;
}

/* precision bf16 reduce f32 master bf16 rounding stochastic */
static bool read_precision(Reader *reader, const Key *key) {
  Recipe *recipe = reader->target;
  int32_t compute, reduce = 0;
  if (!read_word(reader, key, float_names, &compute)) return false;
  if (take_word(reader, "reduce") && !read_word(reader, key, float_names, &reduce)) return false;
  recipe->compute = float_dtypes[compute];
  recipe->reduce = float_dtypes[reduce];
  return read_master(reader, key, recipe);
}

#define SCALING(member) offsetof(LossScaling, member)

static const Key loss_scale_keys[] = {
    {"init", KEY_REAL, SCALING(init), .least = 1, .usage = "init SCALE"},
    {"growth", KEY_REAL, SCALING(growth), .least = 1, .usage = "growth FACTOR"},
    {"backoff", KEY_REAL, SCALING(backoff), .least = 1e-3, .most = 0.999, .usage = "backoff FACTOR"},
    {"interval", KEY_COUNT, SCALING(interval), .least = 1, .usage = "interval STEPS"},
};

/* loss_scale { init 65536 growth 2 backoff 0.5 interval 2000 } */
static bool read_loss_scale(Reader *reader, const Key *key) {
  const Item *block = read_block_item(reader, key);
  if (!block) return false;
  READ_BLOCK(reader->sema, "loss_scale", loss_scale_keys, block->items, &reader->sema->graph->loss_scaling);
  return true;
}

static bool read_tokens(Reader *reader, const Key *key) {
  Quantity quantity;
  if (!read_number(reader, key, QUANTITY_NUMBER, 1, 0, &quantity)) return false;
  reader->sema->tokens_span = reader->items->data[reader->at - 1].span;
  reader->sema->tokens_per_step = quantity.integer;
  if (quantity.is_integer) return true;
  return key_error(reader, key, reader->sema->tokens_span, "\"tokens_per_step\" must be a whole number");
}

static const char *const orders[] = {"sequential", "shuffled", NULL};

static const Key train_keys[] = {
    {"optimizer", KEY_CUSTOM, .read = read_optimizer,
     .usage = "optimizer adamw { lr 6e-4 cosine warmup 200 betas 0.9 0.95 decay 0.1 }"},
    {"tokens_per_step", KEY_CUSTOM, .read = read_tokens, .usage = "tokens_per_step TOKENS"},
    {"batch", KEY_COUNT, FIELD(samples_per_step), .least = 1, .usage = "batch SAMPLES"},
    {"precision", KEY_CUSTOM, .read = read_precision,
     .usage = "precision f32|bf16|f16 [reduce f32|bf16|f16] [master f32|bf16 [rounding stochastic|nearest]]"},
    {"loss_scale", KEY_CUSTOM, .read = read_loss_scale,
     .usage = "loss_scale { init 65536 growth 2 backoff 0.5 interval 2000 }"},
    {"clip", KEY_REAL, FIELD(clip), .usage = "clip NORM"},
    {"seed", KEY_COUNT, FIELD(seed), .usage = "seed NUMBER"},
    {"steps", KEY_COUNT, FIELD(steps), .least = 1, .usage = "steps NUMBER"},
    {"order", KEY_WORD, FIELD(order), .words = orders, .usage = "order sequential|shuffled"},
};

const KeyTable settings_train_tables[] = {
    KEY_TABLE("train", train_keys),
    KEY_TABLE("optimizer adamw", adamw_keys),
    KEY_TABLE("optimizer sgd", sgd_keys),
    KEY_TABLE("optimizer lion", lion_keys),
    KEY_TABLE("optimizer adafactor", adafactor_keys),
    KEY_TABLE("loss_scale", loss_scale_keys),
    {0}};

/* --- what is stated in vain ----------------------------------------------------------------------------- */

static bool keeps_lr(const Graph *graph) {
  return graph->recipe.schedule == SCHEDULE_CONSTANT;
}

static bool has_no_cooldown(const Graph *graph) {
  return graph->recipe.schedule != SCHEDULE_WSD;
}

static bool has_no_decay(const Graph *graph) {
  return graph->recipe.decay == 0;
}

static bool keeps_loss(const Graph *graph) {
  return !graph_scales_loss(graph);
}

typedef struct Vain {
  const char *key;
  bool (*in_vain)(const Graph *);
  const char *why, *help;
} Vain;

static const Vain vain_of_optimizer[] = {
    {"min_lr", keeps_lr, "lr stays what it is", "state how it falls, as in `lr 6e-4 cosine`"},
    {"cooldown", has_no_cooldown, "it is of the schedule wsd", "state that schedule, as in `lr 6e-4 wsd`"},
    {"no_decay", has_no_decay, "nothing decays", "state how much does, as in `decay 0.1`"}};
static const Vain vain_of_train[] = {
    {"loss_scale", keeps_loss, "only in f16 the loss is scaled", "leave it out, or state `precision f16`"}};

static void warn_vain(Sema *sema, const ItemList *items, const Vain *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const Item *key = key_stated(items, rows[i].key);
    if (!key || !rows[i].in_vain(sema->graph)) continue;
    diag_help(sema_warning(sema, key->span, "\"%s\" has no effect: %s", rows[i].key, rows[i].why), "%s", rows[i].help);
  }
}
#define WARN_VAIN(sema, items, rows) warn_vain((sema), (items), (rows), sizeof(rows) / sizeof *(rows))

/* A rate that only rises, or that jumps, is what nobody asks for. */
static void warn_schedule(Sema *sema, const Item *warmup) {
  const Recipe *recipe = &sema->graph->recipe;
  uint64_t cooldown = recipe->schedule != SCHEDULE_WSD ? 0 : recipe->cooldown_steps ? recipe->cooldown_steps : recipe->steps / 5;
  if (recipe->warmup_steps >= recipe->steps)
    diag_help(sema_warning(sema, warmup->span, "the warmup takes %llu steps, and all of training %llu: lr rises to %g, and no further",
                           (unsigned long long)recipe->warmup_steps, (unsigned long long)recipe->steps,
                           recipe->lr * (double)recipe->steps / (double)recipe->warmup_steps),
              "make it shorter, or state more steps");
  else if (cooldown > recipe->steps - recipe->warmup_steps)
    diag_help(sema_warning(sema, warmup->span, "warmup and cooldown take %llu and %llu of %llu steps: lr jumps where they meet",
                           (unsigned long long)recipe->warmup_steps, (unsigned long long)cooldown, (unsigned long long)recipe->steps),
              "make one of them shorter, or state more steps");
}

/* The same without a warmup. */
static void warn_cooldown(Sema *sema, const Item *cooldown) {
  const Recipe *recipe = &sema->graph->recipe;
  if (recipe->schedule != SCHEDULE_WSD || recipe->cooldown_steps <= recipe->steps) return;
  double share = (double)(recipe->steps - 1) / (double)recipe->cooldown_steps;
  diag_help(sema_warning(sema, cooldown->span, "the cooldown takes %llu steps, and all of training %llu: lr begins at %g, and only falls",
                         (unsigned long long)recipe->cooldown_steps, (unsigned long long)recipe->steps,
                         recipe->min_lr + (recipe->lr - recipe->min_lr) * share),
            "make it shorter, or state more steps");
}

static void warn_stated(Sema *sema, const ItemList *items) {
  WARN_VAIN(sema, items, vain_of_train);
  for (uint32_t i = 0; i < items->count; i++) {
    if (items->data[i].kind != ITEM_BLOCK) continue; /* the optimizer's, or another that has none of its keys */
    const Item *warmup = key_stated(items->data[i].items, "warmup"), *cooldown = key_stated(items->data[i].items, "cooldown");
    WARN_VAIN(sema, items->data[i].items, vain_of_optimizer);
    /* At a constant rate run --steps may be meant to say how many; other schedules are as long as is said here, or by default. */
    if (cooldown && !sema->graph->recipe.warmup_steps)
      warn_cooldown(sema, cooldown);
    else if (warmup && (key_stated(items, "steps") || sema->graph->recipe.schedule != SCHEDULE_CONSTANT)) warn_schedule(sema, warmup);
  }
}

void settings_train(Sema *sema, const Stmt *block) {
  Recipe *recipe = &sema->graph->recipe;
  uint32_t errors = sema->sink->errors;
  READ_BLOCK(sema, "train", train_keys, block->items, recipe);
  if (sema->sink->errors == errors) warn_stated(sema, block->items);
  if (sema->tokens_per_step && recipe->samples_per_step)
    sema_error(sema, sema->tokens_span,
               "\"tokens_per_step\" and \"batch\" state the same thing; keep one of them");
}

void settings_train_finish(Sema *sema) {
  uint64_t sample = graph_sample_tokens(sema->graph);
  if (!sema->tokens_per_step) return;
  if (!sample) {
    Diag *diag = sema_error(sema, sema->tokens_span,
                            "\"tokens_per_step\" counts tokens, but the model has no input of integers");
    diag_help(diag, "state the samples of a step: batch SAMPLES");
    return;
  }
  uint64_t tokens = (uint64_t)sema->tokens_per_step;
  if (tokens % sample) {
    Diag *diag = sema_error(sema, sema->tokens_span,
                            "tokens_per_step %llu is no multiple of the %llu tokens of a sample",
                            (unsigned long long)tokens, (unsigned long long)sample);
    uint64_t near = tokens < sample ? sample : tokens / sample * sample;
    diag_help(diag, "the nearest are %llu and %llu", (unsigned long long)near,
              (unsigned long long)(near + sample));
    return;
  }
  sema->graph->recipe.samples_per_step = tokens / sample;
}
