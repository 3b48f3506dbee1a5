/* Owns: values and what messages say of them, environments, labels, errors with the calls around them. */
#include "frontend/sema.h"

#include <math.h>

/* --- values --------------------------------------------------------------------------------------------- */

Value value_error(void) {
  return (Value){.kind = VALUE_ERROR};
}
Value value_integer(int64_t integer) {
  return (Value){.kind = VALUE_NUMBER, .exact = true, .integer = integer, .real = (double)integer};
}
Value value_real(double real) {
  return (Value){.kind = VALUE_NUMBER, .real = real};
}
Value value_text(ValueKind kind, const char *text) {
  return (Value){.kind = kind, .text = text};
}
Value value_tensor(int32_t tensor) {
  return (Value){.kind = VALUE_TENSOR, .id = tensor};
}

const char *shape_text(Sema *sema, const Shape *shape) {
  Text text = {.arena = sema->arena};
  shape_print(&text, shape);
  return text.data;
}

/* A real number that %g prints as it prints whole ones. */
static bool looks_whole(double real) {
  return fabs(real) < 1e6 && real >= floor(real) && real <= floor(real);
}

const char *value_describe(Sema *sema, Value value) {
  switch (value.kind) {
  case VALUE_ERROR:
    return "an error";
  case VALUE_NUMBER:
    return value.exact ? arena_printf(sema->arena, "the number %lld", (long long)value.integer)
                       : arena_printf(sema->arena, "the number %g%s", value.real, looks_whole(value.real) ? ".0" : "");
  case VALUE_TENSOR: {
    const GraphTensor *tensor = &sema->graph->tensors.data[value.id];
    return arena_printf(sema->arena, "%s of shape %s", tensor->is_index ? "an input of integers" : "a tensor",
                        shape_text(sema, &tensor->shape));
  }
  case VALUE_TUPLE:
    return arena_printf(sema->arena, "a list of %u values", value.count);
  case VALUE_LAYER:
    return arena_printf(sema->arena, "the layer \"%s\"", value.text);
  case VALUE_SCOPE:
    return arena_printf(sema->arena, "the name \"%s\" of a module's call", value.text);
  case VALUE_WORD:
    return arena_printf(sema->arena, "the word \"%s\"", value.text);
  case VALUE_STRING:
    return "a string";
  }
  return "";
}

/* --- errors --------------------------------------------------------------------------------------------- */

static bool noted(const Diag *diag, Span span) {
  for (uint32_t i = 0; i < diag->notes.count; i++)
    if (!memcmp(&diag->notes.data[i].span, &span, sizeof span)) return true;
  return false;
}

void sema_flush(Sema *sema) {
  if (sema->last && sema->last_calls.count) {
    uint32_t count = sema->last_calls.count;
    const PendingCall *inner = &sema->last_calls.data[count - 1], *outer = &sema->last_calls.data[0];
    if (!noted(sema->last, inner->span))
      diag_note(sema->last, inner->span, "in module \"%s\", called here", inner->module);
    if (count > 1 && !noted(sema->last, outer->span))
      diag_note(sema->last, outer->span, "%sin module \"%s\", called here", count > 2 ? "... " : "",
                outer->module);
  }
  sema->last = NULL;
}

static void remember_calls(Sema *sema, Diag *diag) {
  sema->last = diag;
  sema->last_calls.count = 0;
  for (uint32_t i = 0; i < sema->calls.count; i++)
    vec_push(sema->arena, &sema->last_calls, sema->calls.data[i]);
}

/* True the first time that something is said of this place. */
static bool fresh(Sema *sema, Span span, char level) {
  const char *key = arena_printf(sema->arena, "%c%d:%u:%u", level, span.file, span.begin, span.end);
  if (map_get(&sema->reported, key) != MAP_NONE) return false;
  map_put(sema->arena, &sema->reported, key, 0);
  return true;
}

static Diag *unseen(Sema *sema, Span span) {
  Diag *diag = ARENA_NEW(sema->arena, Diag);
  diag->arena = sema->arena;
  diag->span = span;
  return diag;
}

Diag *sema_error(Sema *sema, Span span, const char *format, ...) {
  sema_flush(sema);
  if (sema->stop || !fresh(sema, span, 'e')) return unseen(sema, span);
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(sema->arena, format, args);
  va_end(args);
  Diag *diag = diag_error(sema->sink, span, "%s", text);
  remember_calls(sema, diag);
  return diag;
}

Diag *sema_warning(Sema *sema, Span span, const char *format, ...) {
  if (!fresh(sema, span, 'w')) return unseen(sema, span);
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(sema->arena, format, args);
  va_end(args);
  return diag_warning(sema->sink, span, "%s", text);
}

void sema_stop(Sema *sema, Span span, const char *reason, const char *help) {
  Diag *diag = sema_error(sema, span, "%s", reason);
  if (help) diag_help(diag, "%s", help);
  sema->stop = true;
}

void note_tensor(Sema *sema, Diag *diag, int32_t id, const char *what) {
  const GraphTensor *tensor = &sema->graph->tensors.data[id];
  if (!memcmp(&tensor->span, &diag->span, sizeof diag->span)) return;
  if (tensor->op < 0 && tensor->view_of < 0)
    diag_note(diag, tensor->span, "input \"%s\" is declared here with shape %s", tensor->name,
              shape_text(sema, &tensor->shape));
  else
    diag_note(diag, tensor->span, "%s is computed here with shape %s", what,
              shape_text(sema, &tensor->shape));
}

/* --- environments --------------------------------------------------------------------------------------- */

Env *env_new(Sema *sema, Env *parent, bool barrier, bool quiet) {
  Env *env = sema->spare.count ? sema->spare.data[--sema->spare.count] : ARENA_NEW(sema->arena, Env);
  env->parent = parent;
  env->barrier = barrier;
  env->quiet = quiet;
  return env;
}

Var *env_find_here(Env *env, const char *name) {
  int32_t index = map_get(&env->names, name);
  return index == MAP_NONE ? NULL : &env->vars.data[index];
}

static Var *find(Env *env, const char *name, bool hidden) {
  bool beyond = false;
  for (; env; beyond |= env->barrier, env = env->parent) {
    Var *var = env_find_here(env, name);
    if (!var) continue;
    bool open = !beyond || var->kind == VAR_LET || var->kind == VAR_INPUT;
    if (open != hidden) return var;
  }
  return NULL;
}

Var *env_find(Env *env, const char *name) {
  return find(env, name, false);
}
Var *env_hidden(Env *env, const char *name) {
  return find(env, name, true);
}

/* Within the body of one module or of the model, repeats in it included. */
Var *env_find_own(const Sema *sema, Env *env, const char *name) {
  for (; env && env != sema->file_env; env = env->parent) {
    Var *var = env_find_here(env, name);
    if (var || env->barrier) return var;
  }
  return NULL;
}

Var *env_add(Sema *sema, Env *env, Name name, VarKind kind, Value value) {
  Var var = {name.text, kind, value, name.span, false};
  vec_push(sema->arena, &env->vars, var);
  map_put(sema->arena, &env->names, name.text, (int32_t)env->vars.count - 1);
  return &env->vars.data[env->vars.count - 1];
}

void env_finish(Sema *sema, Env *env) {
  static const char *const kinds[] = {"let", "input", "argument", "variable", "index"};
  if (env->quiet || sema->sink->errors) return;
  for (uint32_t i = 0; i < env->vars.count; i++) {
    const Var *var = &env->vars.data[i];
    if (var->used || var->kind == VAR_INDEX || var->value.kind == VALUE_ERROR) continue;
    if (var->value.kind == VALUE_TENSOR) vec_push(sema->arena, &sema->unused, var->value.id);
    if (var->name[0] == '_') {
      if (var->value.kind == VALUE_TENSOR) vec_push(sema->arena, &sema->set_aside, var->value.id);
      continue;
    }
    if (var->value.kind == VALUE_TENSOR && is_own_loss(sema, var->value.id)) continue; /* finish_graph says that it is one too many */
    Diag *diag = sema_warning(sema, var->span, "%s \"%s\" is never used", kinds[var->kind], var->name);
    if (var->kind == VAR_LOCAL) diag_help(diag, "a name that starts with '_' may stay unused");
  }
}

/* Modules that were declared in it look back at it. */
void env_close(Sema *sema, Env *env) {
  env_finish(sema, env);
  if (env->modules.count) return;
  env->vars.count = 0;
  map_clear(&env->names);
  vec_push(sema->arena, &sema->spare, env);
}

int32_t env_module(const Env *env, const char *name) {
  for (; env; env = env->parent) {
    int32_t module = map_get(&env->modules, name);
    if (module != MAP_NONE) return module;
  }
  return MAP_NONE;
}

typedef VEC(const char *) Candidates;

static void add_keys(Sema *sema, Candidates *names, const Map *map) {
  for (uint32_t i = 0; i < map->capacity; i++)
    if (map->slots[i].key) vec_push(sema->arena, names, map->slots[i].key);
}

const char *env_nearest(Sema *sema, Env *env, const char *name, bool callable) {
  Candidates names = {0};
  bool beyond = false;
  for (; env; beyond |= env->barrier, env = env->parent) {
    if (callable) add_keys(sema, &names, &env->modules);
    for (uint32_t i = 0; !callable && i < env->vars.count; i++) {
      const Var *var = &env->vars.data[i];
      if (!beyond || var->kind == VAR_LET || var->kind == VAR_INPUT) vec_push(sema->arena, &names, var->name);
    }
  }
  for (int i = 0; callable && i < LAYER_COUNT; i++) vec_push(sema->arena, &names, layer_name((LayerKind)i));
  if (!callable) add_keys(sema, &names, &sema->words);
  for (uint32_t i = 0; !callable && i < sema->taken.capacity; i++) /* labels of the model itself */
    if (sema->taken.slots[i].key && !strchr(sema->taken.slots[i].key, '.'))
      vec_push(sema->arena, &names, sema->taken.slots[i].key);
  return text_nearest(name, names.data, names.count);
}

/* --- labels --------------------------------------------------------------------------------------------- */

const char *path_join(Sema *sema, const char *scope, const char *name) {
  return *scope ? arena_join(sema->arena, scope, name) : name;
}

Entity *label_find(Sema *sema, const char *name, const char **path) {
  size_t outer = strlen(sema->scope), own = strlen(name);
  vec_reserve(sema->arena, &sema->probe, (uint32_t)(outer + own + 2));
  char *probe = sema->probe.data;
  memcpy(probe, sema->scope, outer);
  for (;;) { /* probe[0, outer) is the scope to look in */
    size_t at = outer ? outer + 1 : 0;
    if (outer) probe[outer] = '.';
    memcpy(probe + at, name, own + 1);
    int32_t index = map_get(&sema->taken, probe);
    if (index != MAP_NONE) {
      *path = arena_strdup(sema->arena, probe);
      return &sema->entities.data[index];
    }
    if (!outer) return NULL;
    while (outer && probe[--outer] != '.') continue;
  }
}

static bool is_span(Span a, Span b) {
  return a.file == b.file && a.begin == b.begin;
}

bool label_take(Sema *sema, const char *path, int kind, int32_t op, Span span) {
  int32_t known = map_add(sema->arena, &sema->taken, path, (int32_t)sema->entities.count);
  Entity entity = {.kind = kind, .op = op, .span = span, .call = sema->calls.count ? sema->calls.data[sema->calls.count - 1].span : SPAN_NONE};
  if (known != MAP_NONE && sema->entities.data[known].kind == ENTITY_FAILED) {
    sema->entities.data[known] = entity;
    return true;
  }
  if (known != MAP_NONE) {
    Diag *diag = sema_error(sema, span, "the name \"%s\" is taken already", path);
    const Entity *first = &sema->entities.data[known];
    diag_note(diag, first->span, "it is given here first");
    if (is_span(first->call, entity.call) && !is_span(first->span, span))
      diag_help(diag, "choose another name for one of the two");
    else if (sema->calls.count)
      diag_help(diag, "when a module is called twice, give each call a name: `%s(...) as name`",
                sema->calls.data[sema->calls.count - 1].module);
    return false;
  }
  vec_push(sema->arena, &sema->entities, entity);
  return true;
}

void label_fail(Sema *sema, Name label) {
  if (!label.text) return;
  int32_t next = (int32_t)sema->entities.count, known = map_add(sema->arena, &sema->taken, path_join(sema, sema->scope, label.text), next);
  if (known == MAP_NONE) {
    vec_push(sema->arena, &sema->entities, ((Entity){.kind = ENTITY_FAILED, .op = -1, .span = label.span}));
  } else if (sema->entities.data[known].kind == ENTITY_SCOPE) { /* a module's call: nothing can be said of what it holds */
    sema->entities.data[known].kind = ENTITY_FAILED;
  }
}
