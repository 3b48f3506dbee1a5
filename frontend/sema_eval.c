/* Owns: expressions; calls of modules, which are inlined here. */
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

static Value arithmetic(Sema *sema, const Expr *expr, Value a, Value b) {
  bool division = expr->op == OP_DIV || expr->op == OP_FLOOR;
  if (division && b.real == 0) {
    sema_error(sema, expr->span, "division by zero");
    return value_error();
  }
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
    sema_error(sema, expr->span, "only a number can be negated, this is %s", value_describe(sema, value));
    return value_error();
  }
  if (!value.exact) return value_real(-value.real);
  return value.integer == INT64_MIN ? overflow(sema, expr) : value_integer(-value.integer);
}

static Value eval_binary(Sema *sema, Env *env, const Expr *expr) {
  static const char *const signs[] = {"+", "-", "*", "/", "//"};
  Value a = eval(sema, env, expr->left), b = eval(sema, env, expr->right);
  if (a.kind == VALUE_ERROR || b.kind == VALUE_ERROR) return value_error();
  if (a.kind == VALUE_NUMBER && b.kind == VALUE_NUMBER) return arithmetic(sema, expr, a, b);
  bool tensors = a.kind == VALUE_TENSOR && b.kind == VALUE_TENSOR;
  if (tensors && expr->op == OP_ADD) return layer_binary(sema, expr, LAYER_ADD, a, b);
  if (tensors && expr->op == OP_MUL) return layer_binary(sema, expr, LAYER_MUL, a, b);
  Diag *diag = sema_error(sema, expr->span, "'%s' cannot combine %s with %s", signs[expr->op],
                          value_describe(sema, a), value_describe(sema, b));
  if (tensors) diag_help(diag, "tensors can be added and multiplied, element by element");
  else if (a.kind == VALUE_TENSOR || b.kind == VALUE_TENSOR) diag_help(diag, "tensors can be added and multiplied with tensors only; no layer scales by a number");
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
    if (left.kind == VALUE_LAYER) diag_help(diag, "only the weight of a layer can be shared");
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

/* --- calls of modules ----------------------------------------------------------------------------------- */

static const char *module_signature(Sema *sema, const Stmt *stmt) {
  Text text = {.arena = sema->arena};
  text_printf(&text, "%s(", stmt->name.text);
  for (uint32_t i = 0; i < stmt->bindings->count; i++) {
    const Binding *parameter = &stmt->bindings->data[i];
    text_printf(&text, "%s%s%s", i ? ", " : "", parameter->name.text, parameter->value ? " = ..." : "");
  }
  text_printf(&text, ")");
  return text.data;
}

int32_t parameter_index(const Stmt *module, const char *name) {
  for (uint32_t i = 0; i < module->bindings->count; i++)
    if (!strcmp(module->bindings->data[i].name.text, name)) return (int32_t)i;
  return -1;
}

static void unknown_parameter(Sema *sema, const Stmt *module, const Arg *arg) {
  VEC(const char *) names = {0};
  for (uint32_t i = 0; i < module->bindings->count; i++)
    vec_push(sema->arena, &names, module->bindings->data[i].name.text);
  const char *near = text_nearest(arg->name.text, names.data, names.count);
  Diag *diag = sema_error(sema, arg->name.span, "module \"%s\" has no parameter \"%s\"", module->name.text,
                          arg->name.text);
  if (near) diag_help(diag, "did you mean \"%s\"?", near);
  diag_note(diag, module->span, "it is declared here");
}

Value *eval_args(Sema *sema, Env *env, const Expr *call) {
  Value *values = ARENA_ARRAY(sema->arena, Value, call->args->count);
  for (uint32_t i = 0; i < call->args->count; i++) values[i] = eval(sema, env, call->args->data[i].value);
  return values;
}

/* Arguments by parameter. */
static bool bind_module(Sema *sema, const Expr *call, const Stmt *module, const Value *args, Value *out,
                        bool *given) {
  bool good = true, named = false;
  for (uint32_t i = 0; i < call->args->count; i++) {
    const Arg *arg = &call->args->data[i];
    int32_t index = arg->name.text ? parameter_index(module, arg->name.text) : (int32_t)i;
    named |= arg->name.text != NULL;
    good &= args[i].kind != VALUE_ERROR;
    if (index < 0) {
      unknown_parameter(sema, module, arg);
      good = false;
    } else if (named && !arg->name.text) {
      sema_error(sema, arg->value->span, "an argument without a name cannot follow one with a name");
      good = false;
    } else if ((uint32_t)index >= module->bindings->count) {
      Diag *diag = sema_error(sema, arg->value->span, "module \"%s\" takes %u argument%s, but %u are given",
                              module->name.text, module->bindings->count,
                              text_plural(module->bindings->count), call->args->count);
      diag_note(diag, module->span, "it is declared here");
      return false;
    } else if (given[index]) {
      sema_error(sema, arg->name.text ? arg->name.span : arg->value->span, "argument \"%s\" is given twice",
                 module->bindings->data[index].name.text);
      good = false;
    } else {
      out[index] = args[i];
      given[index] = true;
    }
  }
  return good;
}

/* Defaults may use parameters to their left and whatever the module's declaration sees. */
static bool add_parameters(Sema *sema, Env *inner, const Expr *call, const Stmt *module, const Value *values,
                           const bool *given) {
  bool good = true;
  for (uint32_t i = 0; i < module->bindings->count; i++) {
    const Binding *parameter = &module->bindings->data[i];
    Value value = values[i];
    if (!given[i] && !parameter->value) {
      Diag *diag = sema_error(sema, call->span, "module \"%s\" needs an argument for \"%s\"",
                              module->name.text, parameter->name.text);
      diag_note(diag, parameter->name.span, "it is declared here, without a default");
      diag_help(diag, "call it as %s", module_signature(sema, module));
      return false;
    }
    if (!given[i]) value = eval(sema, inner, parameter->value);
    good &= value.kind != VALUE_ERROR;
    env_add(sema, inner, parameter->name, VAR_PARAMETER, value);
  }
  return good;
}

static void report_recursion(Sema *sema, const Expr *call, const Module *module) {
  Diag *diag = sema_error(sema, call->name.span, "module \"%s\" calls itself, so it would never end",
                          module->stmt->name.text);
  diag_note(diag, module->called_at, "it is first called here");
  diag_help(diag, "use `repeat` for a fixed number of times");
  sema->stop = true;
}

Instance instance_open(Sema *sema, const char *path, const char *kind, int32_t repeat, Span span) {
  Instance instance = {sema->scope, sema->instance, (int32_t)sema->graph->modules.count};
  GraphModule module = {.name = path,
                        .kind = kind,
                        .parent = sema->instance,
                        .repeat = repeat,
                        .first_op = (int32_t)sema->graph->ops.count,
                        .span = span};
  vec_push(sema->arena, &sema->graph->modules, module);
  sema->scope = path;
  sema->instance = instance.self;
  return instance;
}

void instance_close(Sema *sema, Instance instance) {
  sema->graph->modules.data[instance.self].end_op = (int32_t)sema->graph->ops.count;
  sema->scope = instance.outer_scope;
  sema->instance = instance.outer;
}

static Value run_module(Sema *sema, Env *inner, int32_t index, const Expr *call) {
  const Stmt *stmt = sema->modules.data[index].stmt;
  sema->modules.data[index].active = true;
  sema->modules.data[index].called_at = call->span;
  PendingCall pending = {stmt->name.text, call->span};
  vec_push(sema->arena, &sema->calls, pending);
  Value result = value_error();
  bool returned = exec_body(sema, inner, stmt->body, &result);
  sema->calls.count--;
  sema->modules.data[index].active = false; /* the body may have declared modules: no pointer is kept */
  if (!returned && !sema->stop)
    sema_error(sema, stmt->span, "module \"%s\" returns nothing", stmt->name.text);
  env_close(sema, inner);
  return returned ? result : value_error();
}

Value call_module(Sema *sema, const Expr *call, int32_t index, const char *path, int32_t repeat,
                  const Value *args) {
  Module *module = &sema->modules.data[index];
  module->used = true;
  sema->steps += SEMA_CALL_STEPS;
  if (module->active) {
    report_recursion(sema, call, module);
    return value_error();
  }
  uint32_t count = module->stmt->bindings->count;
  Value *values = ARENA_ARRAY(sema->arena, Value, count);
  bool *given = ARENA_ARRAY(sema->arena, bool, count);
  if (!bind_module(sema, call, module->stmt, args, values, given)) return value_error();
  Env *inner =
      env_new(sema, module->env, true, module->stmt->span.file != sema->graph->modules.data[0].span.file);
  if (!add_parameters(sema, inner, call, module->stmt, values, given)) return value_error();
  if (!path) return run_module(sema, inner, index, call);
  Instance instance =
      instance_open(sema, path, sema->modules.data[index].stmt->name.text, repeat, call->span);
  Value result = run_module(sema, inner, index, call);
  instance_close(sema, instance);
  return result;
}

/* --- calls ---------------------------------------------------------------------------------------------- */

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
