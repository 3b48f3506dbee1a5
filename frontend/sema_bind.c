/* Owns: the arguments of layer calls. layers.def says what each layer takes; one binder reads that for all of
 * them. */
#include "frontend/sema.h"

#include <math.h>

/* --- the table ------------------------------------------------------------------------------------------ */

static ArgType type_of(const char *text, size_t length) {
  static const char *const names[] = {"tensor", "index", "int", "real", "bool", "sizes", "word", "layer"};
  for (int i = 0; i < 8; i++)
    if (strlen(names[i]) == length && !strncmp(names[i], text, length)) return (ArgType)i;
  return ARG_TENSOR;
}

/* One "name:type{a|b}=default" of layers.def. */
static ArgSpec parse_arg(Arena *arena, Map *words, const char *text) {
  ArgSpec spec = {0};
  size_t name = strcspn(text, ":"), type = strcspn(text + name + 1, "{=");
  spec.name = arena_strndup(arena, text, name);
  spec.type = type_of(text + name + 1, type);
  const char *at = text + name + 1 + type;
  if (*at == '{') {
    while (*at != '}') {
      size_t length = strcspn(++at, "|}");
      spec.words[spec.word_count++] = arena_strndup(arena, at, length);
      map_put(arena, words, spec.words[spec.word_count - 1], 0);
      at += length;
    }
    at++;
  }
  if (*at == '=') spec.fallback = at + 1;
  Quantity quantity;
  const char *why;
  if (spec.fallback && quantity_parse(spec.fallback, &quantity, &why))
    spec.value = spec.type == ARG_INT ? value_integer(quantity.integer) : value_real(quantity.value);
  return spec;
}

static void parse_args(Arena *arena, Map *words, LayerSpec *spec, const char *text) {
  while (*text) {
    size_t length = strcspn(text, " ");
    spec->args[spec->arg_count++] = parse_arg(arena, words, arena_strndup(arena, text, length));
    text += length + strspn(text + length, " ");
  }
}

LayerSpec *layer_specs(Arena *arena, Map *layers, Map *words) {
  static const char *const arguments[] = {
#define LAYER(id, name, arguments, meaning) arguments,
#include "frontend/layers.def"
#undef LAYER
  };
  static const char *const plain[] = {"true", "false", "yes", "no", "none", "auto"};
  for (int i = 0; i < 6; i++) map_put(arena, words, plain[i], 0);
  LayerSpec *specs = ARENA_ARRAY(arena, LayerSpec, LAYER_COUNT);
  for (int i = 0; i < LAYER_COUNT; i++) {
    specs[i].kind = (LayerKind)i;
    specs[i].name = layer_name((LayerKind)i);
    parse_args(arena, words, &specs[i], arguments[i]);
    map_put(arena, layers, specs[i].name, i);
  }
  return specs;
}

const LayerSpec *layer_find(const Sema *sema, const char *name) {
  int32_t index = map_get(&sema->layers, name);
  return index == MAP_NONE ? NULL : &sema->specs[index];
}

static const char *layer_signature(Arena *arena, const LayerSpec *spec) {
  Text text = {.arena = arena};
  text_printf(&text, "%s(", spec->name);
  for (uint32_t i = 0; i < spec->arg_count; i++) {
    const ArgSpec *arg = &spec->args[i];
    text_printf(&text, "%s%s", i ? ", " : "", arg->name);
    if (arg->fallback) text_printf(&text, " = %s", arg->fallback);
  }
  text_printf(&text, ")");
  return text.data;
}

/* --- one argument --------------------------------------------------------------------------------------- */

/* Where a layer got integers and takes none. */
static const char *instead_of_integers(LayerKind kind) {
  switch (kind) {
  case LAYER_CROSS_ENTROPY: return "the logits come first, as in `cross_entropy(logits, targets)`";
  case LAYER_MSE: return "what it compares is real numbers: declare the input as `float[...]`";
  default: return "embedding turns ids into vectors";
  }
}

static bool mismatch(LayerCall *call, const ArgSpec *arg, const Bound *bound, const char *wanted) {
  Sema *sema = call->sema;
  Diag *diag = sema_error(sema, bound->span, "\"%s\" of %s must be %s, this is %s", arg->name,
                          call->spec->name, wanted, value_describe(sema, bound->value));
  if (bound->value.kind == VALUE_TENSOR) note_tensor(sema, diag, bound->value.id, "it");
  if (arg->type == ARG_TENSOR && bound->value.kind == VALUE_LAYER)
    diag_help(diag, "`as` names the layer; assign its result to a variable and use that");
  if (arg->type == ARG_TENSOR && bound->value.kind == VALUE_TENSOR)
    diag_help(diag, "%s", instead_of_integers(call->spec->kind));
  if (arg->type == ARG_LAYER && bound->value.kind == VALUE_TENSOR)
    diag_help(diag, "name the layer with `as`, and give that name here");
  return false;
}

static bool bind_word(LayerCall *call, const ArgSpec *arg, Bound *bound) {
  Sema *sema = call->sema;
  if (bound->value.kind == VALUE_WORD)
    for (uint32_t i = 0; i < arg->word_count; i++)
      if (!strcmp(arg->words[i], bound->value.text)) {
        bound->word = (int32_t)i;
        return true;
      }
  Text wanted = {.arena = sema->arena};
  for (uint32_t i = 0; i < arg->word_count; i++) text_printf(&wanted, "%s%s", i ? " or " : "", arg->words[i]);
  const char *near =
      bound->value.kind == VALUE_WORD ? text_nearest(bound->value.text, arg->words, arg->word_count) : NULL;
  mismatch(call, arg, bound, wanted.data);
  if (near && sema->last) diag_help(sema->last, "did you mean \"%s\"?", near);
  return false;
}

static bool bind_bool(LayerCall *call, const ArgSpec *arg, Bound *bound) {
  static const char *const words[] = {"false", "true", "no", "yes"};
  if (bound->value.kind == VALUE_WORD)
    for (int i = 0; i < 4; i++)
      if (!strcmp(words[i], bound->value.text)) {
        bound->value = value_integer(i & 1);
        return true;
      }
  return mismatch(call, arg, bound, "true or false");
}

/* One int is kept as a list of one. */
static bool bind_sizes(LayerCall *call, const ArgSpec *arg, Bound *bound) {
  Sema *sema = call->sema;
  if (bound->value.kind == VALUE_NUMBER) {
    Value *one = ARENA_NEW(sema->arena, Value);
    *one = bound->value;
    bound->value = (Value){.kind = VALUE_TUPLE, .items = one, .count = 1};
  }
  if (bound->value.kind != VALUE_TUPLE)
    return mismatch(call, arg, bound, "a number of parts or a list of widths");
  for (uint32_t i = 0; i < bound->value.count; i++) {
    const Value *item = &bound->value.items[i];
    bool good =
        item->kind == VALUE_NUMBER && item->exact && item->integer >= 1 && item->integer <= SEMA_MAX_DIM;
    if (good) continue;
    sema_error(sema, bound->span, "\"%s\" of %s must hold whole numbers from 1 on, but one is %s", arg->name,
               call->spec->name, value_describe(sema, *item));
    return false;
  }
  return true;
}

static bool is_tensor(const Sema *sema, Value value, bool index) {
  return value.kind == VALUE_TENSOR && sema->graph->tensors.data[value.id].is_index == index;
}

/* Checks the value against the type. */
static bool bind_value(LayerCall *call, const ArgSpec *arg, Bound *bound) {
  Value value = bound->value;
  if (value.kind == VALUE_ERROR) return false;
  bool optional = arg->fallback && (!strcmp(arg->fallback, "none") || !strcmp(arg->fallback, "auto"));
  if (optional && arg->type != ARG_WORD && value.kind == VALUE_WORD && !strcmp(value.text, arg->fallback)) {
    bound->given = false;
    return true;
  }
  switch (arg->type) {
  case ARG_TENSOR:
    return is_tensor(call->sema, value, false) || mismatch(call, arg, bound, "a tensor of floats");
  case ARG_INDEX:
    return is_tensor(call->sema, value, true) || mismatch(call, arg, bound, "an input of integers");
  case ARG_INT:
    return (value.kind == VALUE_NUMBER && value.exact) || mismatch(call, arg, bound, "a whole number");
  case ARG_REAL:
    return value.kind == VALUE_NUMBER || mismatch(call, arg, bound, "a number");
  case ARG_BOOL:
    return bind_bool(call, arg, bound);
  case ARG_SIZES:
    return bind_sizes(call, arg, bound);
  case ARG_WORD:
    return bind_word(call, arg, bound);
  case ARG_LAYER:
    return value.kind == VALUE_LAYER || mismatch(call, arg, bound, "a layer named with `as`");
  }
  return false;
}

/* A default as layers.def spells it. */
static void bind_default(LayerCall *call, const ArgSpec *arg, Bound *bound) {
  bound->span = call->span;
  bound->given = strcmp(arg->fallback, "none") && strcmp(arg->fallback, "auto");
  if (arg->type == ARG_WORD) {
    bound->given = true;
    bound->value = value_text(VALUE_WORD, arg->fallback);
    bind_word(call, arg, bound);
  } else if (arg->type == ARG_BOOL) {
    bound->value = value_integer(!strcmp(arg->fallback, "true"));
  } else if (bound->given) {
    bound->value = arg->value;
  }
}

/* --- all arguments -------------------------------------------------------------------------------------- */

static int32_t arg_index(const LayerSpec *spec, const char *name) {
  for (uint32_t i = 0; i < spec->arg_count; i++)
    if (!strcmp(spec->args[i].name, name)) return (int32_t)i;
  return -1;
}

static bool unknown_argument(LayerCall *call, const Arg *arg) {
  const char *names[SEMA_MAX_ARGS];
  for (uint32_t i = 0; i < call->spec->arg_count; i++) names[i] = call->spec->args[i].name;
  const char *near = text_nearest(arg->name.text, names, call->spec->arg_count);
  Diag *diag =
      sema_error(call->sema, arg->name.span, "%s has no argument \"%s\"", call->spec->name, arg->name.text);
  if (near) diag_help(diag, "did you mean \"%s\"?", near);
  diag_help(diag, "its arguments are %s", layer_signature(call->sema->arena, call->spec));
  return false;
}

static bool too_many(LayerCall *call, const Expr *expr, const Arg *arg) {
  Diag *diag = sema_error(call->sema, arg->value->span, "%s takes at most %u argument%s, but %u are given",
                          call->spec->name, call->spec->arg_count, text_plural(call->spec->arg_count),
                          expr->args->count);
  diag_help(diag, "its arguments are %s", layer_signature(call->sema->arena, call->spec));
  return false;
}

/* After an error about a name that is no layer's, nor nearly: it may be that of a later one. */
static void help_later(Sema *sema, Env *env, const char *name) {
  const char *near = env_nearest(sema, env, name, false), *path;
  if (sema->last && !(near && label_find(sema, near, &path)))
    diag_help(sema->last, "a weight is shared with a layer that stands before");
}

/* A bare name where a layer is wanted means the label even if a variable has the same name; where a word is
 * wanted, an unknown name is a word that the layer does not know. */
static Value eval_argument(LayerCall *call, Env *env, const ArgSpec *arg, const Expr *expr) {
  const char *path;
  if (arg->type == ARG_LAYER && expr->kind == EXPR_NAME) {
    Entity *entity = label_find(call->sema, expr->name.text, &path);
    if (entity && entity->kind == ENTITY_LAYER)
      return (Value){.kind = VALUE_LAYER, .id = entity->op, .text = path};
  }
  if (arg->type == ARG_WORD && expr->kind == EXPR_NAME && !env_find(env, expr->name.text))
    return value_text(VALUE_WORD, expr->name.text);
  uint32_t errors = call->sema->sink->errors;
  Value value = eval(call->sema, env, expr);
  if (arg->type == ARG_LAYER && expr->kind == EXPR_NAME && call->sema->sink->errors > errors) help_later(call->sema, env, expr->name.text);
  return value;
}

static bool bind_argument(LayerCall *call, Env *env, const Expr *expr, uint32_t i, bool *named) {
  const Arg *arg = &expr->args->data[i];
  *named |= arg->name.text != NULL;
  int32_t index = arg->name.text ? arg_index(call->spec, arg->name.text) : (int32_t)i;
  if (index < 0) return unknown_argument(call, arg);
  if (*named && !arg->name.text) {
    sema_error(call->sema, arg->value->span, "an argument without a name cannot follow one with a name");
    return false;
  }
  if ((uint32_t)index >= call->spec->arg_count) return too_many(call, expr, arg);
  Bound *bound = &call->args[index];
  if (bound->expr) {
    sema_error(call->sema, arg->name.text ? arg->name.span : arg->value->span,
               "argument \"%s\" is given twice", call->spec->args[index].name);
    return false;
  }
  bound->expr = arg->value;
  bound->span = arg->value->span;
  bound->given = true;
  bound->value = eval_argument(call, env, &call->spec->args[index], arg->value);
  return bind_value(call, &call->spec->args[index], bound);
}

bool bind_layer(LayerCall *call, Env *env, const Expr *expr) {
  bool good = true, named = false;
  for (uint32_t i = 0; i < expr->args->count; i++) {
    good &= bind_argument(call, env, expr, i, &named);
    if (!named && i >= call->spec->arg_count) return false;
  }
  for (uint32_t i = 0; good && i < call->spec->arg_count; i++) {
    const ArgSpec *arg = &call->spec->args[i];
    if (call->args[i].expr) continue;
    if (arg->fallback) {
      bind_default(call, arg, &call->args[i]);
      continue;
    }
    Diag *diag =
        sema_error(call->sema, call->span, "%s needs an argument for \"%s\"", call->spec->name, arg->name);
    diag_help(diag, "its arguments are %s", layer_signature(call->sema->arena, call->spec));
    good = false;
  }
  return good;
}
