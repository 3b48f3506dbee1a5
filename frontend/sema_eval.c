/* Owns: running statements and expressions; calls of modules and repeats, which are inlined here. */
#include "frontend/sema.h"

#include <math.h>

static bool exec_body(Sema *sema, Env *env, const StmtList *body, Value *result);

/* --- numbers -------------------------------------------------------------------------------------------------- */

static Value overflow(Sema *sema, const Expr *expr) {
  sema_error(sema, expr->span, "this number exceeds 64 bits");
  return value_error();
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

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
  Diag *diag = sema_error(sema, expr->span, "'%s' cannot combine %s with %s", signs[expr->op], value_describe(sema, a),
                          value_describe(sema, b));
  if (tensors) diag_help(diag, "tensors can be added and multiplied, element by element");
  return value_error();
}

/* --- names ---------------------------------------------------------------------------------------------------- */

static Value entity_value(const Entity *entity, const char *path) {
  if (entity->kind == ENTITY_LAYER) return (Value){.kind = VALUE_LAYER, .id = entity->op, .text = path};
  return value_text(VALUE_SCOPE, path);
}

static void undefined(Sema *sema, Env *env, const Expr *expr) {
  const char *name = expr->name.text;
  Diag *diag = sema_error(sema, expr->span, "\"%s\" is not defined", name);
  Var *hidden = env_hidden(env, name);
  if (hidden) {
    diag_note(diag, hidden->span, "a module's body does not see this \"%s\" outside it, only lets and inputs", name);
    diag_help(diag, "pass it to the module as an argument");
    return;
  }
  if (!strcmp(name, "batch")) {
    diag_help(diag, "the batch size is chosen by the planner; it can stand only as the first dimension of an input");
    return;
  }
  const char *near = env_nearest(sema, env, name, false);
  if (env_module(env, name) != MAP_NONE || layer_find(sema, name))
    diag_help(diag, "\"%s\" is a %s; call it with arguments in parentheses", name, layer_find(sema, name) ? "layer" : "module");
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

static Value eval_list(Sema *sema, Env *env, const ExprList *list) {
  Value *items = ARENA_ARRAY(sema->arena, Value, list->count);
  bool bad = false;
  for (uint32_t i = 0; i < list->count; i++) {
    items[i] = eval(sema, env, list->data[i]);
    bad |= items[i].kind == VALUE_ERROR;
  }
  if (bad) return value_error();
  return (Value){.kind = VALUE_TUPLE, .items = items, .count = list->count};
}

/* --- calls of modules ----------------------------------------------------------------------------------------- */

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

static int32_t parameter_index(const Stmt *module, const char *name) {
  for (uint32_t i = 0; i < module->bindings->count; i++)
    if (!strcmp(module->bindings->data[i].name.text, name)) return (int32_t)i;
  return -1;
}

static void unknown_parameter(Sema *sema, const Stmt *module, const Arg *arg) {
  VEC(const char *) names = {0};
  for (uint32_t i = 0; i < module->bindings->count; i++) vec_push(sema->arena, &names, module->bindings->data[i].name.text);
  const char *near = text_nearest(arg->name.text, names.data, names.count);
  Diag *diag = sema_error(sema, arg->name.span, "module \"%s\" has no parameter \"%s\"", module->name.text, arg->name.text);
  if (near) diag_help(diag, "did you mean \"%s\"?", near);
  diag_note(diag, module->span, "it is declared here");
}

/* The values of a call's arguments, in the order written. */
static Value *eval_args(Sema *sema, Env *env, const Expr *call) {
  Value *values = ARENA_ARRAY(sema->arena, Value, call->args->count);
  for (uint32_t i = 0; i < call->args->count; i++) values[i] = eval(sema, env, call->args->data[i].value);
  return values;
}

/* Arguments by parameter. */
static bool bind_module(Sema *sema, const Expr *call, const Stmt *module, const Value *args, Value *out, bool *given) {
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
      Diag *diag = sema_error(sema, arg->value->span, "module \"%s\" takes %u argument%s, but %u are given", module->name.text,
                              module->bindings->count, module->bindings->count == 1 ? "" : "s", call->args->count);
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
static bool add_parameters(Sema *sema, Env *inner, const Expr *call, const Stmt *module, const Value *values, const bool *given) {
  bool good = true;
  for (uint32_t i = 0; i < module->bindings->count; i++) {
    const Binding *parameter = &module->bindings->data[i];
    Value value = values[i];
    if (!given[i] && !parameter->value) {
      Diag *diag = sema_error(sema, call->span, "module \"%s\" needs an argument for \"%s\"", module->name.text, parameter->name.text);
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
  Diag *diag = sema_error(sema, call->name.span, "module \"%s\" calls itself, so it would never end", module->stmt->name.text);
  diag_note(diag, module->called_at, "it is first called here");
  diag_help(diag, "use `repeat` for a fixed number of times");
  sema->stop = true;
}

/* An instance of a module in the hierarchy, or its caller's when the call has no name. */
typedef struct Instance {
  const char *outer_scope;
  int32_t outer, self; /* GraphModules; self -1: none was opened */
} Instance;

static Instance instance_open(Sema *sema, const char *path, const char *kind, int32_t repeat, Span span) {
  Instance instance = {sema->scope, sema->instance, (int32_t)sema->graph->modules.count};
  GraphModule module = {.name = path, .kind = kind, .parent = sema->instance, .repeat = repeat,
                        .first_op = (int32_t)sema->graph->ops.count, .span = span};
  vec_push(sema->arena, &sema->graph->modules, module);
  sema->scope = path;
  sema->instance = instance.self;
  return instance;
}

static void instance_close(Sema *sema, Instance instance) {
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
  env_finish(sema, inner);
  return returned ? result : value_error();
}

/* Calls modules[index]; path is the instance's full name or NULL when it has none. */
static Value call_module(Sema *sema, const Expr *call, int32_t index, const char *path, int32_t repeat, const Value *args) {
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
  Env *inner = env_new(sema, module->env, true, module->stmt->span.file != sema->graph->modules.data[0].span.file);
  if (!add_parameters(sema, inner, call, module->stmt, values, given)) return value_error();
  if (!path) return run_module(sema, inner, index, call);
  Instance instance = instance_open(sema, path, sema->modules.data[index].stmt->name.text, repeat, call->span);
  Value result = run_module(sema, inner, index, call);
  instance_close(sema, instance);
  return result;
}

/* --- calls ---------------------------------------------------------------------------------------------------- */

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

static void undefined_call(Sema *sema, Env *env, const Expr *expr) {
  const char *name = expr->name.text;
  Diag *diag = sema_error(sema, expr->name.span, "there is no layer or module \"%s\"", name);
  const char *near = env_nearest(sema, env, name, true);
  if (near) diag_help(diag, "did you mean \"%s\"?", near);
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
    if (!sema->modules.data[module].active && !label_take(sema, path, ENTITY_SCOPE, -1, expr->label.span)) return value_error();
  }
  return call_module(sema, expr, module, path, -1, args);
}

static bool within_limits(Sema *sema, Span span) {
  if (sema->stop) return false;
  if (++sema->steps > SEMA_MAX_STEPS) {
    sema_stop(sema, span, "the model expands without end: more than 2,000,000 steps were taken",
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
  case EXPR_NUMBER: value = eval_number(expr); break;
  case EXPR_STRING: value = value_text(VALUE_STRING, expr->name.text); break;
  case EXPR_NAME: value = eval_name(sema, env, expr); break;
  case EXPR_NEGATE: value = eval_negate(sema, env, expr); break;
  case EXPR_BINARY: value = eval_binary(sema, env, expr); break;
  case EXPR_CALL: value = eval_call(sema, env, expr); break;
  case EXPR_MEMBER: value = eval_member(sema, env, expr); break;
  case EXPR_LIST: value = eval_list(sema, env, expr->items); break;
  }
  sema->depth--;
  return value;
}

bool eval_integer(Sema *sema, Env *env, const Expr *expr, const char *what, int64_t least, int64_t most, int64_t *out) {
  Value value = eval(sema, env, expr);
  if (value.kind == VALUE_ERROR) return false;
  if (value.kind != VALUE_NUMBER || !value.exact)
    sema_error(sema, expr->span, "%s must be a whole number, this is %s", what, value_describe(sema, value));
  else if (value.integer < least)
    sema_error(sema, expr->span, "%s must be at least %lld, this is %lld", what, (long long)least, (long long)value.integer);
  else if (value.integer > most)
    sema_error(sema, expr->span, "%s must be at most %lld, this is %lld", what, (long long)most, (long long)value.integer);
  *out = value.integer;
  return value.kind == VALUE_NUMBER && value.exact && value.integer >= least && value.integer <= most;
}

/* --- statements ----------------------------------------------------------------------------------------------- */

static SetOption *find_set(Sema *sema, const char *name) {
  for (uint32_t i = sema->sets.count; i > 0; i--) /* the last one given wins */
    if (!strcmp(sema->sets.data[i - 1].name, name)) return &sema->sets.data[i - 1];
  return NULL;
}

void exec_let(Sema *sema, Env *env, const Stmt *stmt, bool settable) {
  for (uint32_t i = 0; i < stmt->bindings->count; i++) {
    const Binding *binding = &stmt->bindings->data[i];
    Var *known = env_find_here(env, binding->name.text);
    if (known) {
      Diag *diag = sema_error(sema, binding->name.span, "\"%s\" is defined twice", binding->name.text);
      diag_note(diag, known->span, "it is defined here first");
      continue;
    }
    SetOption *set = settable ? find_set(sema, binding->name.text) : NULL;
    Value value = set ? set->value : eval(sema, env, binding->value);
    if (set) set->used = true;
    if (settable) vec_push(sema->arena, &sema->lets, binding->name.text);
    if (value.kind != VALUE_ERROR && value.kind != VALUE_NUMBER && value.kind != VALUE_WORD) {
      Diag *diag = sema_error(sema, binding->value->span, "let names numbers and words, this is %s", value_describe(sema, value));
      diag_help(diag, "leave out `let` to name the result of a layer");
      value = value_error();
    }
    env_add(sema, env, binding->name, VAR_LET, value);
  }
}

void declare_modules(Sema *sema, Env *env, const StmtList *body) {
  for (uint32_t i = 0; i < body->count; i++) {
    const Stmt *stmt = body->data[i];
    if (stmt->kind != STMT_MODULE) continue;
    const char *name = stmt->name.text;
    int32_t known = map_get(&env->modules, name);
    if (layer_find(sema, name) || !strcmp(name, "sqrt")) {
      sema_error(sema, stmt->name.span, "\"%s\" is the name of a %s, so no module can have it", name,
                 layer_find(sema, name) ? "layer" : "function");
    } else if (known != MAP_NONE) {
      Diag *diag = sema_error(sema, stmt->name.span, "module \"%s\" is defined twice", name);
      diag_note(diag, sema->modules.data[known].stmt->name.span, "it is defined here first");
    } else {
      Module module = {.stmt = stmt, .env = env};
      vec_push(sema->arena, &sema->modules, module);
      map_put(sema->arena, &env->modules, name, (int32_t)sema->modules.count - 1);
    }
    for (uint32_t p = 0; p < stmt->bindings->count; p++) {
      const Name *parameter = &stmt->bindings->data[p].name;
      if (parameter_index(stmt, parameter->text) < (int32_t)p)
        sema_error(sema, parameter->span, "parameter \"%s\" is declared twice", parameter->text);
    }
  }
}

static bool input_dims(Sema *sema, Env *env, const Stmt *stmt, Shape *shape) {
  if (stmt->exprs->count > GRAPH_MAX_RANK) {
    sema_error(sema, stmt->exprs->data[GRAPH_MAX_RANK]->span, "an input has at most %d dimensions", GRAPH_MAX_RANK);
    return false;
  }
  const Expr *first = stmt->exprs->data[0];
  if (first->kind != EXPR_NAME || strcmp(first->name.text, "batch")) {
    Diag *diag = sema_error(sema, first->span, "the first dimension of an input must be `batch`");
    diag_help(diag, "an input holds one row for each sample; how many the planner decides");
    return false;
  }
  shape->rank = (int32_t)stmt->exprs->count;
  shape->dim[0] = DIM_BATCH;
  for (int32_t i = 1; i < shape->rank; i++)
    if (!eval_integer(sema, env, stmt->exprs->data[i], "a dimension", 1, SEMA_MAX_DIM, &shape->dim[i])) return false;
  uint64_t numel = 0;
  if (shape_numel(shape, 1, &numel) && numel >> SEMA_MAX_NUMEL_LOG2 == 0) return true;
  sema_error(sema, stmt->span, "input \"%s\" has more than 2^%d elements a sample", stmt->name.text, SEMA_MAX_NUMEL_LOG2);
  return false;
}

static void exec_input(Sema *sema, Env *env, const Stmt *stmt) {
  Shape shape = {0};
  bool is_index = !strcmp(stmt->type.text, "int");
  const Var *known = env_find_here(env, stmt->name.text);
  if (sema->calls.count || sema->instance || env->barrier) {
    sema_error(sema, stmt->span, "inputs belong to the model, not to a module or a repeat");
    if (!known) env_add(sema, env, stmt->name, VAR_INPUT, value_error());
    return;
  }
  if (known) {
    Diag *diag = sema_error(sema, stmt->name.span, "\"%s\" is defined twice", stmt->name.text);
    diag_note(diag, known->span, "it is defined here first");
    return;
  }
  bool good = is_index || !strcmp(stmt->type.text, "float");
  if (!good) {
    Diag *diag = sema_error(sema, stmt->type.span, "\"%s\" is not a type of inputs", stmt->type.text);
    diag_help(diag, "int for token ids and classes, float for values");
  }
  good &= input_dims(sema, env, stmt, &shape);
  good = good && label_take(sema, stmt->name.text, ENTITY_OTHER, -1, stmt->name.span);
  int32_t id = (int32_t)sema->graph->tensors.count;
  env_add(sema, env, stmt->name, VAR_INPUT, good ? value_tensor(id) : value_error());
  if (!good) return;
  GraphTensor tensor = {.name = stmt->name.text, .shape = shape, .is_index = is_index, .op = -1, .view_of = -1, .span = stmt->span};
  vec_push(sema->arena, &sema->graph->tensors, tensor);
  GraphInput input = {stmt->name.text, id};
  vec_push(sema->arena, &sema->graph->inputs, input);
}

static void assign(Sema *sema, Env *env, Name name, Value value) {
  Var *var = env_find_own(sema, env, name.text);
  if (var && (var->kind == VAR_INPUT || var->kind == VAR_INDEX || var->kind == VAR_LET)) {
    Diag *diag = sema_error(sema, name.span, "%s \"%s\" cannot be assigned",
                            var->kind == VAR_INPUT ? "input" : var->kind == VAR_LET ? "let" : "index", name.text);
    diag_note(diag, var->span, "it is declared here");
    diag_help(diag, "choose another name for the result");
    return;
  }
  bool assignable = value.kind == VALUE_TENSOR || value.kind == VALUE_NUMBER || value.kind == VALUE_ERROR;
  if (!assignable) {
    sema_error(sema, name.span, "a variable holds a tensor or a number, this is %s", value_describe(sema, value));
    value = value_error();
  }
  if (var)
    var->value = value;
  else
    env_add(sema, env, name, VAR_LOCAL, value);
}

static void assign_all(Sema *sema, Env *env, const Stmt *stmt, Value value) {
  uint32_t count = stmt->names->count;
  uint32_t got = value.kind == VALUE_TUPLE ? value.count : 1;
  if (value.kind != VALUE_ERROR && got != count) {
    sema_error(sema, stmt->exprs->data[0]->span, "this gives %u value%s, but %u name%s %s on the left", got, got == 1 ? "" : "s",
               count, count == 1 ? "" : "s", count == 1 ? "stands" : "stand");
    value = value_error();
  }
  for (uint32_t i = 0; i < count; i++) {
    Value item = value.kind == VALUE_TUPLE ? value.items[i] : value;
    assign(sema, env, stmt->names->data[i], item);
  }
}

/* --- repeats -------------------------------------------------------------------------------------------------- */

/* The path "h" of a repeat; a name is found when it has none. NULL after an error. */
static const char *repeat_path(Sema *sema, Name label, Span span) {
  const char *path = path_join(sema, sema->scope, label.text ? label.text : "repeat");
  if (label.text) return label_take(sema, path, ENTITY_SCOPE, -1, label.span) ? path : NULL;
  const char *base = path;
  for (int n = 1; map_get(&sema->taken, path) != MAP_NONE; n++) path = arena_printf(sema->arena, "%s_%d", base, n);
  return label_take(sema, path, ENTITY_SCOPE, -1, span) ? path : NULL;
}

static const char *iteration_path(Sema *sema, const char *path, int64_t i, Span span) {
  const char *name = arena_printf(sema->arena, "%s.%lld", path, (long long)i);
  return label_take(sema, name, ENTITY_SCOPE, -1, span) ? name : NULL;
}

/* The results become the first arguments of the next round. */
static bool feed_back(Sema *sema, const Expr *call, Value value, Value *args) {
  uint32_t count = value.kind == VALUE_TUPLE ? value.count : 1, positional = 0;
  while (positional < call->args->count && !call->args->data[positional].name.text) positional++;
  if (count > positional) {
    sema_error(sema, call->span, "\"%s\" returns %u value%s, but only %u of its arguments can take them for the next round",
               call->name.text, count, count == 1 ? "" : "s", positional);
    return false;
  }
  for (uint32_t k = 0; k < count; k++) args[k] = value.kind == VALUE_TUPLE ? value.items[k] : value;
  return true;
}

static void exec_repeat_call(Sema *sema, Env *env, const Stmt *stmt) {
  const Expr *call = stmt->exprs->data[0];
  int64_t count = 0;
  Value value = value_error();
  int32_t module = env_module(env, call->name.text);
  bool counted = eval_integer(sema, env, stmt->count, "the count of a repeat", 1, SEMA_MAX_REPEAT, &count);
  if (module == MAP_NONE) {
    if (layer_find(sema, call->name.text)) {
      Diag *diag = sema_error(sema, call->name.span, "only a module can be repeated, \"%s\" is a layer", call->name.text);
      diag_help(diag, "write a module around it");
    } else {
      undefined_call(sema, env, call);
    }
  }
  Value *args = module != MAP_NONE ? eval_args(sema, env, call) : NULL;
  const char *path = counted && args ? repeat_path(sema, call->label, call->span) : NULL;
  for (int64_t i = 0; path && i < count; i++) {
    const char *name = iteration_path(sema, path, i, call->span);
    value = name ? call_module(sema, call, module, name, (int32_t)i, args) : value_error();
    if (value.kind == VALUE_ERROR || (i + 1 < count && !feed_back(sema, call, value, args))) break;
  }
  assign_all(sema, env, stmt, value);
}

static void exec_repeat(Sema *sema, Env *env, const Stmt *stmt) {
  int64_t count = 0;
  if (!eval_integer(sema, env, stmt->count, "the count of a repeat", 1, SEMA_MAX_REPEAT, &count)) {
    sema->stop = true; /* what the body assigns stays unknown: silence what follows from that */
    return;
  }
  const char *path = repeat_path(sema, stmt->label, stmt->span);
  uint32_t errors = sema->sink->errors;
  for (int64_t i = 0; path && i < count && sema->sink->errors == errors && !sema->stop; i++) {
    const char *name = iteration_path(sema, path, i, stmt->span);
    sema->steps += SEMA_CALL_STEPS;
    if (!name || !within_limits(sema, stmt->span)) return;
    Env *inner = env_new(sema, env, false, env->quiet);
    env_add(sema, inner, stmt->name, VAR_INDEX, value_integer(i));
    Instance instance = instance_open(sema, name, stmt->label.text ? stmt->label.text : "repeat", (int32_t)i, stmt->span);
    Value unused = value_error();
    exec_body(sema, inner, stmt->body, &unused);
    instance_close(sema, instance);
    env_finish(sema, inner);
  }
}

/* --- the rest --------------------------------------------------------------------------------------------------- */

static void exec_init(Sema *sema, Env *env, const Stmt *stmt) {
  static const char *const names[] = {"zeros", "ones", "normal", "uniform"};
  int kind = -1;
  for (int i = 0; i < 4; i++)
    if (!strcmp(names[i], stmt->type.text)) kind = i;
  if (kind < 0) {
    Diag *diag = sema_error(sema, stmt->type.span, "\"%s\" is not a distribution", stmt->type.text);
    const char *near = text_nearest(stmt->type.text, names, 4);
    if (near)
      diag_help(diag, "did you mean \"%s\"?", near);
    else
      diag_help(diag, "zeros, ones, normal DEVIATION or uniform BOUND");
    return;
  }
  if (stmt->value && kind < 2) {
    sema_error(sema, stmt->value->span, "%s takes no value", stmt->type.text);
    return;
  }
  double a = 0;
  if (stmt->value) {
    Value value = eval(sema, env, stmt->value);
    if (value.kind == VALUE_ERROR) return;
    if (value.kind != VALUE_NUMBER || value.real < 0) {
      sema_error(sema, stmt->value->span, "%s needs a number that is not negative, this is %s", stmt->type.text, value_describe(sema, value));
      return;
    }
    a = value.real;
  }
  InitRule rule = {sema->scope, stmt->name.text, {(InitKind)kind, a}, stmt->name.span, sema->calls.count == 0};
  vec_push(sema->arena, &sema->inits, rule);
}

static Value exec_return(Sema *sema, Env *env, const Stmt *stmt) {
  if (stmt->exprs->count == 1) return eval(sema, env, stmt->exprs->data[0]);
  return eval_list(sema, env, stmt->exprs);
}

static void exec_stmt(Sema *sema, Env *env, const Stmt *stmt) {
  switch (stmt->kind) {
  case STMT_LET: exec_let(sema, env, stmt, sema->calls.count == 0 && sema->instance == 0); break;
  case STMT_INPUT: exec_input(sema, env, stmt); break;
  case STMT_ASSIGN: assign_all(sema, env, stmt, eval(sema, env, stmt->exprs->data[0])); break;
  case STMT_REPEAT_CALL: exec_repeat_call(sema, env, stmt); break;
  case STMT_REPEAT: exec_repeat(sema, env, stmt); break;
  case STMT_INIT: exec_init(sema, env, stmt); break;
  default: break; /* modules are declared beforehand */
  }
}

/* Runs statements in order; true when a return gave *result. */
static bool exec_body(Sema *sema, Env *env, const StmtList *body, Value *result) {
  declare_modules(sema, env, body);
  for (uint32_t i = 0; i < body->count && !sema->stop; i++) {
    const Stmt *stmt = body->data[i];
    if (stmt->kind != STMT_RETURN) {
      exec_stmt(sema, env, stmt);
      continue;
    }
    if (!env->barrier) {
      Diag *diag = sema_error(sema, stmt->span, "return can stand only at the end of a module");
      if (sema->calls.count == 0) diag_help(diag, "a model ends with `loss = cross_entropy(...)`");
      return false;
    }
    if (i + 1 < body->count) sema_error(sema, body->data[i + 1]->span, "nothing after a return is ever computed");
    *result = exec_return(sema, env, stmt);
    return true;
  }
  return false;
}

void exec_model(Sema *sema, Env *env, const Stmt *model) {
  GraphModule root = {.name = "", .kind = model->name.text, .parent = -1, .repeat = -1, .span = model->span};
  vec_push(sema->arena, &sema->graph->modules, root);
  sema->scope = "";
  Value unused = value_error();
  exec_body(sema, env, model->body, &unused);
  sema->graph->modules.data[0].end_op = (int32_t)sema->graph->ops.count;
}
