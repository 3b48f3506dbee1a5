/* Owns: modules, which are inlined where they are called: arguments by parameter, the body in a scope of its own. */
#include "frontend/sema.h"

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
  Diag *diag = sema_error(sema, arg->name.span, "module \"%s\" has no argument \"%s\"", module->name.text,
                          arg->name.text);
  if (near) diag_help(diag, "did you mean \"%s\"?", near);
  diag_note(diag, module->span, "it is declared here");
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
      diag_help(diag, "its arguments are %s", module_signature(sema, module));
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
