/* Owns: expressions. */
#include "frontend/sema.h"

#include <math.h>

/* --- numbers -------------------------------------------------------------------------------------------- */

static Value overflow(Sema *sema, const Expr *expr) {
  sema_error(sema, expr->span, "this number exceeds 64 bits");
  return value_error();
}

static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static Value divide_exact(Sema *sema, const Expr *expr, int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1) return overflow(sema, expr);
  if (expr->op == OP_FLOOR) return value_integer(floor_div(a, b));
  if (a % b == 0) return value_integer(a / b);
  Diag *diag = sema_error(sema, expr->span, "%lld / %lld is not a whole number", (long long)a, (long long)b);
  diag_help(diag, "write // to round down, or %lld.0 for a fraction", (long long)a);
  return value_error();
}

static Value division_by_zero(Sema *sema, const Expr *expr) {
  sema_error(sema, expr->span, "division by zero");
  return value_error();
}

static Value arithmetic(Sema *sema, const Expr *expr, Value a, Value b) {
  bool division = expr->op == OP_DIV || expr->op == OP_FLOOR;
  if (division && b.real == 0) return division_by_zero(sema, expr);
  if (a.exact && b.exact) {
    int64_t out = 0;
    if (division) return divide_exact(sema, expr, a.integer, b.integer);
    bool bad = expr->op == OP_ADD   ? __builtin_add_overflow(a.integer, b.integer, &out)
               : expr->op == OP_SUB ? __builtin_sub_overflow(a.integer, b.integer, &out)
                                    : __builtin_mul_overflow(a.integer, b.integer, &out);
    return bad ? overflow(sema, expr) : value_integer(out);
  }
  double out = expr->op == OP_ADD   ? a.real + b.real
               : expr->op == OP_SUB ? a.real - b.real
               : expr->op == OP_MUL ? a.real * b.real
                                    : a.real / b.real;
  if (!isfinite(out)) return overflow(sema, expr);
  return value_real(expr->op == OP_FLOOR ? floor(out) : out);
}

static Value eval_number(const Expr *expr) {
  bool exact = expr->quantity.is_integer && !strchr(expr->number, '.');
  return exact ? value_integer(expr->quantity.integer) : value_real(expr->quantity.value);
}

static Value eval_negate(Sema *sema, Env *env, const Expr *expr) {
  Value value = eval(sema, env, expr->left);
  if (value.kind == VALUE_ERROR) return value;
  if (value.kind != VALUE_NUMBER) {
    Diag *diag = sema_error(sema, expr->span, "only a number can be negated, this is %s", value_describe(sema, value));
    if (value.kind == VALUE_TENSOR) diag_help(diag, "multiply it by -1");
    return value_error();
  }
  if (!value.exact) return value_real(-value.real);
  return value.integer == INT64_MIN ? overflow(sema, expr) : value_integer(-value.integer);
}

/* A tensor times a number, in either order, or over one. */
static bool is_scaling(const Expr *expr, Value a, Value b) {
  bool over = a.kind == VALUE_TENSOR && b.kind == VALUE_NUMBER, times = over || (a.kind == VALUE_NUMBER && b.kind == VALUE_TENSOR);
  return (expr->op == OP_DIV && over) || (expr->op == OP_MUL && times);
}

static Value eval_scaling(Sema *sema, const Expr *expr, const char *sign, Value a, Value b) {
  if (expr->op == OP_DIV && b.real == 0) return division_by_zero(sema, expr);
  if (expr->op == OP_DIV) b = value_real(1 / b.real);
  const Value *tensor = a.kind == VALUE_TENSOR ? &a : &b, *by = a.kind == VALUE_TENSOR ? &b : &a;
  if ((float)by->real == 1) return *tensor; /* so that a family with multipliers costs nothing where they are 1 */
  return layer_binary(sema, expr, LAYER_SCALE, sign, a, b);
}

static Value eval_binary(Sema *sema, Env *env, const Expr *expr) {
  static const char *const signs[] = {"+", "-", "*", "/", "//"};
  Value a = eval(sema, env, expr->left), b = eval(sema, env, expr->right);
  if (a.kind == VALUE_ERROR || b.kind == VALUE_ERROR) return value_error();
  if (a.kind == VALUE_NUMBER && b.kind == VALUE_NUMBER) return arithmetic(sema, expr, a, b);
  const char *sign = signs[expr->op];
  bool tensors = a.kind == VALUE_TENSOR && b.kind == VALUE_TENSOR;
  if (tensors && expr->op == OP_ADD) return layer_binary(sema, expr, LAYER_ADD, sign, a, b);
  if (tensors && expr->op == OP_MUL) return layer_binary(sema, expr, LAYER_MUL, sign, a, b);
  if (is_scaling(expr, a, b)) return eval_scaling(sema, expr, sign, a, b);
  Diag *diag = sema_error(sema, expr->span, "'%s' cannot combine %s with %s", sign, value_describe(sema, a),
                          value_describe(sema, b));
  if (tensors) diag_help(diag, "tensors can be added and multiplied, element by element%s", expr->op == OP_SUB ? ": a - b is a + -1 * b" : "");
  else if (a.kind == VALUE_TENSOR || b.kind == VALUE_TENSOR) diag_help(diag, "a number can multiply a tensor or divide it; tensors can be added to tensors only");
  return value_error();
}

/* --- names ---------------------------------------------------------------------------------------------- */

static Value entity_value(const Entity *entity, const char *path) {
  if (entity->kind == ENTITY_FAILED) return value_error();
  if (entity->kind == ENTITY_LAYER) return (Value){.kind = VALUE_LAYER, .id = entity->op, .text = path};
  return value_text(VALUE_SCOPE, path);
}

static void undefined(Sema *sema, Env *env, const Expr *expr) {
  const char *name = expr->name.text;
  Diag *diag = sema_error(sema, expr->span, "\"%s\" is not defined", name);
  Var *hidden = env_hidden(env, name);
  if (hidden) {
    diag_note(diag, hidden->span, "a module's body does not see this \"%s\" outside it, only lets and inputs",
              name);
    diag_help(diag, "pass it to the module as an argument");
    return;
  }
  if (!strcmp(name, "batch")) {
    diag_help(
        diag,
        "the batch size is chosen by the planner; it can stand only as the first dimension of an input");
    return;
  }
  const char *near = env_nearest(sema, env, name, false);
  if (env_module(env, name) != MAP_NONE || layer_find(sema, name))
    diag_help(diag, "\"%s\" is a %s; call it with arguments in parentheses", name,
              layer_find(sema, name) ? "layer" : "module");
  else if (near)
    diag_help(diag, "did you mean \"%s\"?", near);
}

static Value eval_name(Sema *sema, Env *env, const Expr *expr) {
  const char *name = expr->name.text, *path;
  Var *var = env_find(env, name);
  if (var) {
    var->used = true;
    return var->value;
  }
  Entity *entity = label_find(sema, name, &path);
  if (entity && entity->kind != ENTITY_OTHER) return entity_value(entity, path);
  if (map_get(&sema->words, name) != MAP_NONE) return value_text(VALUE_WORD, name);
  undefined(sema, env, expr);
  return value_error();
}

/* wte.weight is wte itself: only its weight can be shared. h.0.attn follows the hierarchy. */
static Value eval_member(Sema *sema, Env *env, const Expr *expr) {
  Value left = eval(sema, env, expr->left);
  if (left.kind == VALUE_ERROR) return left;
  const char *member = expr->name.text;
  if (left.kind == VALUE_LAYER && !strcmp(member, "weight")) return left;
  if (left.kind == VALUE_SCOPE) {
    const char *path = path_join(sema, left.text, member);
    int32_t index = map_get(&sema->taken, path);
    if (index != MAP_NONE) return entity_value(&sema->entities.data[index], path);
    sema_error(sema, expr->name.span, "nothing in \"%s\" is named \"%s\" so far", left.text, member);
  } else {
    Diag *diag = sema_error(sema, expr->span, "%s has no member \"%s\"", value_describe(sema, left), member);
    if (left.kind == VALUE_LAYER)
      diag_help(diag, "only the weight of a layer can be shared");
    else if (expr->left->kind == EXPR_CALL && expr->left->label.text)
      diag_help(diag, "a name after `as` has no dots: names nest as modules do");
  }
  return value_error();
}

Value eval_list(Sema *sema, Env *env, const ExprList *list) {
  Value *items = ARENA_ARRAY(sema->arena, Value, list->count);
  bool bad = false;
  for (uint32_t i = 0; i < list->count; i++) {
    items[i] = eval(sema, env, list->data[i]);
    bad |= items[i].kind == VALUE_ERROR;
  }
  if (bad) return value_error();
  return (Value){.kind = VALUE_TUPLE, .items = items, .count = list->count};
}

/* --- calls ---------------------------------------------------------------------------------------------- */

Value *eval_args(Sema *sema, Env *env, const Expr *call) {
  Value *values = ARENA_ARRAY(sema->arena, Value, call->args->count);
  for (uint32_t i = 0; i < call->args->count; i++) values[i] = eval(sema, env, call->args->data[i].value);
  return values;
}

static Value eval_sqrt(Sema *sema, Env *env, const Expr *expr) {
  if (expr->args->count != 1 || expr->args->data[0].name.text) {
    sema_error(sema, expr->span, "sqrt takes one number");
    return value_error();
  }
  Value value = eval(sema, env, expr->args->data[0].value);
  if (value.kind == VALUE_ERROR) return value;
  if (value.kind != VALUE_NUMBER || value.real < 0) {
    sema_error(sema, expr->args->data[0].value->span, "sqrt takes a number that is not negative, this is %s",
               value_describe(sema, value));
    return value_error();
  }
  return value_real(sqrt(value.real));
}

void undefined_call(Sema *sema, Env *env, const Expr *expr) {
  const char *name = expr->name.text;
  Diag *diag = sema_error(sema, expr->name.span, "there is no layer or module \"%s\"", name);
  const char *near = env_nearest(sema, env, name, true);
  if (near) {
    diag_help(diag, "did you mean \"%s\"?", near);
    return;
  }
  Text all = {.arena = sema->arena};
  for (int kind = 0; kind < LAYER_COUNT; kind++) text_printf(&all, "%s%s", kind ? ", " : "", layer_name((LayerKind)kind));
  diag_help(diag, "the layers are %s", all.data);
}

static Value eval_call(Sema *sema, Env *env, const Expr *expr) {
  const char *name = expr->name.text, *path = NULL;
  const LayerSpec *spec = layer_find(sema, name);
  if (spec) return layer_call(sema, env, expr, spec);
  int32_t module = env_module(env, name);
  if (module == MAP_NONE && !strcmp(name, "sqrt")) return eval_sqrt(sema, env, expr);
  if (module == MAP_NONE) {
    undefined_call(sema, env, expr);
    return value_error();
  }
  const Value *args = eval_args(sema, env, expr);
  if (expr->label.text) {
    path = path_join(sema, sema->scope, expr->label.text);
    if (!sema->modules.data[module].active && !label_take(sema, path, ENTITY_SCOPE, -1, expr->label.span))
      return value_error();
  }
  Value value = call_module(sema, expr, module, path, -1, args);
  if (value.kind == VALUE_ERROR) label_fail(sema, expr->label);
  return value;
}

bool within_limits(Sema *sema, Span span) {
  if (sema->stop) return false;
  if (++sema->steps > SEMA_MAX_STEPS) {
    sema_stop(sema, span, "this model takes more than 2,000,000 steps to expand",
              "lower the counts of nested repeats, or call modules fewer times");
    return false;
  }
  if (sema->depth <= SEMA_MAX_DEPTH) return true;
  sema_stop(sema, span, "expressions and modules nest too deeply here", NULL);
  return false;
}

Value eval(Sema *sema, Env *env, const Expr *expr) {
  if (!within_limits(sema, expr->span)) return value_error();
  sema->depth++;
  Value value = value_error();
  switch (expr->kind) {
  case EXPR_NUMBER:
    value = eval_number(expr);
    break;
  case EXPR_STRING:
    value = value_text(VALUE_STRING, expr->name.text);
    break;
  case EXPR_NAME:
    value = eval_name(sema, env, expr);
    break;
  case EXPR_NEGATE:
    value = eval_negate(sema, env, expr);
    break;
  case EXPR_BINARY:
    value = eval_binary(sema, env, expr);
    break;
  case EXPR_CALL:
    value = eval_call(sema, env, expr);
    break;
  case EXPR_MEMBER:
    value = eval_member(sema, env, expr);
    break;
  case EXPR_LIST:
    value = eval_list(sema, env, expr->items);
    break;
  }
  sema->depth--;
  return value;
}

bool eval_integer(Sema *sema, Env *env, const Expr *expr, const char *what, int64_t least, int64_t most,
                  int64_t *out) {
  Value value = eval(sema, env, expr);
  if (value.kind == VALUE_ERROR) return false;
  if (value.kind != VALUE_NUMBER || !value.exact)
    sema_error(sema, expr->span, "%s must be a whole number, this is %s", what, value_describe(sema, value));
  else if (value.integer < least)
    sema_error(sema, expr->span, "%s must be at least %lld, this is %lld", what, (long long)least,
               (long long)value.integer);
  else if (value.integer > most)
    sema_error(sema, expr->span, "%s must be at most %lld, this is %lld", what, (long long)most,
               (long long)value.integer);
  *out = value.integer;
  return value.kind == VALUE_NUMBER && value.exact && value.integer >= least && value.integer <= most;
}
