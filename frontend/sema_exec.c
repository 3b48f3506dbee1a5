/* Owns: statements: lets, inputs, assignments, repeats, initial values, and the bodies they stand in. */
#include "frontend/sema.h"

/* --- statements ----------------------------------------------------------------------------------------- */

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
    if (!strcmp(binding->name.text, "batch")) {
      Diag *diag = sema_error(sema, binding->name.span, "\"batch\" is how many samples an input holds, so no let can have that name");
      diag_help(diag, "the planner chooses it; `batch N` in train says how many a step takes, `micro_batch N` in plan how many at once");
      continue;
    }
    SetOption *set = settable ? find_set(sema, binding->name.text) : NULL;
    Value value = set ? set->value : eval(sema, env, binding->value);
    if (set) set->used = true;
    if (settable) vec_push(sema->arena, &sema->lets, binding->name.text);
    if (value.kind != VALUE_ERROR && value.kind != VALUE_NUMBER && value.kind != VALUE_WORD) {
      Diag *diag = sema_error(sema, binding->value->span, "let names numbers and words, this is %s",
                              value_describe(sema, value));
      diag_help(diag, value.kind == VALUE_STRING ? "numbers and words stand without quotes" : "leave out `let` to name the result of a layer");
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
        sema_error(sema, parameter->span, "argument \"%s\" is declared twice", parameter->text);
    }
  }
}

static bool input_dims(Sema *sema, Env *env, const Stmt *stmt, Shape *shape) {
  if (stmt->exprs->count > GRAPH_MAX_RANK) {
    sema_error(sema, stmt->exprs->data[GRAPH_MAX_RANK]->span, "an input has at most %d dimensions",
               GRAPH_MAX_RANK);
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
    if (!eval_integer(sema, env, stmt->exprs->data[i], "a dimension", 1, SEMA_MAX_DIM, &shape->dim[i]))
      return false;
  uint64_t numel = 0;
  if (shape_numel(shape, 1, &numel) && numel >> SEMA_MAX_NUMEL_LOG2 == 0) return true;
  sema_error(sema, stmt->span, "input \"%s\" has more than 2^%d elements a sample", stmt->name.text,
             SEMA_MAX_NUMEL_LOG2);
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
  GraphTensor tensor = {.name = stmt->name.text,
                        .shape = shape,
                        .is_index = is_index,
                        .op = -1,
                        .view_of = -1,
                        .span = stmt->span};
  vec_push(sema->arena, &sema->graph->tensors, tensor);
  GraphInput input = {stmt->name.text, id};
  vec_push(sema->arena, &sema->graph->inputs, input);
}

static void assign(Sema *sema, Env *env, Name name, Value value) {
  Var *var = env_find_own(sema, env, name.text);
  if (var && (var->kind == VAR_INPUT || var->kind == VAR_INDEX || var->kind == VAR_LET)) {
    const char *kind = var->kind == VAR_INPUT ? "input" : var->kind == VAR_LET ? "let" : "index";
    Diag *diag = sema_error(sema, name.span, "%s \"%s\" cannot be assigned", kind, name.text);
    diag_note(diag, var->span, "it is declared here");
    diag_help(diag, "choose another name for the %s", strcmp(name.text, "loss") ? "result" : kind);
    return;
  }
  bool assignable = value.kind == VALUE_TENSOR || value.kind == VALUE_NUMBER || value.kind == VALUE_ERROR;
  if (!assignable) {
    sema_error(sema, name.span, "a variable holds a tensor or a number, this is %s",
               value_describe(sema, value));
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
    sema_error(sema, stmt->exprs->data[0]->span, "this gives %u value%s, but %u name%s %s on the left", got,
               text_plural(got), count, text_plural(count), count == 1 ? "stands" : "stand");
    value = value_error();
  }
  for (uint32_t i = 0; i < count; i++) {
    Value item = value.kind == VALUE_TUPLE ? value.items[i] : value;
    assign(sema, env, stmt->names->data[i], item);
  }
}

/* --- repeats -------------------------------------------------------------------------------------------- */

/* The path "h" of a repeat; a name is found when it has none. NULL after an error. */
static const char *repeat_path(Sema *sema, Name label, Span span) {
  const char *path = path_join(sema, sema->scope, label.text ? label.text : "repeat");
  if (label.text) return label_take(sema, path, ENTITY_SCOPE, -1, label.span) ? path : NULL;
  const char *base = path;
  for (int n = 1; map_get(&sema->taken, path) != MAP_NONE; n++)
    path = arena_printf(sema->arena, "%s_%d", base, n);
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
    sema_error(sema, call->span,
               "\"%s\" returns %u value%s, but only %u of its arguments can take them for the next round",
               call->name.text, count, text_plural(count), positional);
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
      Diag *diag = sema_error(sema, call->name.span, "only a module can be repeated, \"%s\" is a layer",
                              call->name.text);
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
  if (value.kind == VALUE_ERROR) label_fail(sema, call->label);
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
    Instance instance =
        instance_open(sema, name, stmt->label.text ? stmt->label.text : "repeat", (int32_t)i, stmt->span);
    Value unused = value_error();
    exec_body(sema, inner, stmt->body, &unused);
    if (i > 0 && sema->sink->errors > errors && sema->last && !sema->stop)
      diag_note(sema->last, stmt->name.span, "\"%s\" is %lld in this round", stmt->name.text, (long long)i);
    instance_close(sema, instance);
    env_close(sema, inner);
  }
}

/* --- the rest ------------------------------------------------------------------------------------------- */

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
      sema_error(sema, stmt->value->span, "%s needs a number that is not negative, this is %s",
                 stmt->type.text, value_describe(sema, value));
      return;
    }
    a = value.real;
  }
  InitRule rule = {
      sema->scope, stmt->name.text, {(InitKind)kind, a}, stmt->name.span, sema->calls.count == 0};
  vec_push(sema->arena, &sema->inits, rule);
}

static void exec_freeze(Sema *sema, const Stmt *stmt) {
  FreezeRule rule = {sema->scope, stmt->name.text, stmt->name.span};
  vec_push(sema->arena, &sema->freezes, rule);
}

static Value exec_return(Sema *sema, Env *env, const Stmt *stmt) {
  if (stmt->exprs->count == 1) return eval(sema, env, stmt->exprs->data[0]);
  return eval_list(sema, env, stmt->exprs);
}

static void exec_stmt(Sema *sema, Env *env, const Stmt *stmt) {
  switch (stmt->kind) {
  case STMT_LET:
    exec_let(sema, env, stmt, sema->calls.count == 0 && sema->instance == 0);
    break;
  case STMT_INPUT:
    exec_input(sema, env, stmt);
    break;
  case STMT_ASSIGN:
    assign_all(sema, env, stmt, eval(sema, env, stmt->exprs->data[0]));
    break;
  case STMT_REPEAT_CALL:
    exec_repeat_call(sema, env, stmt);
    break;
  case STMT_REPEAT:
    exec_repeat(sema, env, stmt);
    break;
  case STMT_INIT:
    exec_init(sema, env, stmt);
    break;
  case STMT_FREEZE:
    exec_freeze(sema, stmt);
    break;
  default:
    break; /* modules are declared beforehand */
  }
}

bool exec_body(Sema *sema, Env *env, const StmtList *body, Value *result) {
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
    if (i + 1 < body->count)
      sema_error(sema, body->data[i + 1]->span, "nothing after a return is ever computed");
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
