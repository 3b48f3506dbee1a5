/* Owns: init and freeze: what a model says about parameters by name pattern, applied once all names are known.
 *
 * Rules stated in a module see names from there. A rule in a module that is expanded several times is one rule: it
 * must match something in one of its expansions. */
#include "frontend/sema.h"

#include <stdlib.h>

/* A name that a parameter goes by; a tied weight has one for each layer that uses it. */
typedef struct Alias {
  const char *name;
  int32_t param;
} Alias;

typedef VEC(Alias) Aliases;

/* As path_matches; a leading "*." stands for any number of components. */
static bool pattern_matches(const char *pattern, const char *name) {
  if (path_matches(pattern, name)) return true;
  if (strncmp(pattern, "*.", 2)) return false;
  for (const char *rest = name; rest; rest = strchr(rest, '.')) {
    if (*rest == '.') rest++;
    if (path_matches(pattern + 2, rest)) return true;
  }
  return false;
}

/* The name as seen from a scope, or NULL when it lies outside. */
static const char *inside(const char *scope, const char *name) {
  size_t length = strlen(scope);
  if (!length) return name;
  return !strncmp(scope, name, length) && name[length] == '.' ? name + length + 1 : NULL;
}

static bool in_scope(const char *scope, const char *pattern, const char *name) {
  const char *seen = inside(scope, name);
  return seen && pattern_matches(pattern, seen);
}

/* Which rules matched, by their place in the text. */
static void note_match(Sema *sema, Map *matched, Span span, bool hit) {
  const char *place = arena_printf(sema->arena, "%d:%u", span.file, span.begin);
  map_put(sema->arena, matched, place, hit || map_get(matched, place) == 1);
}

typedef VEC(const char *) Paths;

/* What a pattern could have meant: the parameter, its layer, the modules around it. */
static void add_paths(Arena *arena, const char *name, Paths *out) {
  vec_push(arena, out, name);
  for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
    vec_push(arena, out, arena_strndup(arena, name, (size_t)(dot - name)));
}

const char *shared_weight(Sema *sema, const char *scope, const char *pattern) {
  const Graph *graph = sema->graph;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const GraphOp *op = &graph->ops.data[i];
    if (op->weight >= 0 && in_scope(scope, pattern, path_join(sema, op->name, "weight"))) return graph->params.data[op->weight].name;
  }
  return NULL;
}

/* Whether the pattern is the name of something that was left out, or of a layer without parameters; says so. */
static bool help_bare(Sema *sema, Diag *diag, const char *scope, const char *pattern) {
  const char *path = path_join(sema, scope, pattern), *last = strrchr(path, '.');
  if (last && (!strcmp(last, ".weight") || !strcmp(last, ".bias"))) path = arena_strndup(sema->arena, path, (size_t)(last - path));
  if (map_get(&sema->taken, path) == MAP_NONE) return false;
  for (uint32_t i = 0; i < sema->graph->ops.count; i++)
    if (path_matches(path, sema->graph->ops.data[i].name)) return diag_help(diag, "it has none: leave it out"), true;
  diag_help(diag, "what it names does not reach the loss, so it is left out");
  return true;
}

/* What is tried is as many paths as the model has names: none of them stays. */
static bool help_near(Diag *diag, const Aliases *names, const char *scope, const char *pattern) {
  Arena *scratch = arena_new();
  Paths paths = {0};
  for (uint32_t i = 0; i < names->count; i++) {
    const char *name = inside(scope, names->data[i].name);
    if (name) add_paths(scratch, name, &paths);
  }
  const char *near = text_nearest(pattern, paths.data, paths.count);
  if (near) diag_help(diag, "did you mean \"%s\"?", near);
  arena_free(scratch);
  return near != NULL;
}

static void check_match(Sema *sema, const Map *matched, const Aliases *names, const char *what, const char *scope,
                        const char *pattern, Span span) {
  if (map_get(matched, arena_printf(sema->arena, "%d:%u", span.file, span.begin))) return;
  Diag *diag = sema_error(sema, span, "%s pattern \"%s\" matches no parameter", what, pattern);
  if (sema->sink->errors > DIAG_LIMIT) return; /* not shown: what was meant need not be known */
  const char *shared = shared_weight(sema, scope, pattern);
  if (shared)
    diag_help(diag, "name the weight that it shares, \"%s\"", shared);
  else if (!help_bare(sema, diag, scope, pattern) && !help_near(diag, names, scope, pattern))
    diag_help(diag, "a leading \"*.\" matches at any depth; without this line `fsdpc plan %s --dump=graph` lists the parameters",
              sema->graph->path);
}

/* --- rules of a scope: those in modules are as many as the modules' expansions, and each looks at its own names only */

static int compare_names(const void *a, const void *b) {
  return strcmp(((const Alias *)a)->name, ((const Alias *)b)->name);
}

static Aliases sort_names(Arena *arena, const Aliases *names) {
  Aliases sorted = {ARENA_ARRAY(arena, Alias, names->count), names->count, names->count};
  memcpy(sorted.data, names->data, names->count * sizeof(Alias));
  qsort(sorted.data, sorted.count, sizeof(Alias), compare_names);
  return sorted;
}

/* The first of the names in the scope, which stand together when sorted. */
static uint32_t scope_begin(const Aliases *sorted, const char *scope) {
  size_t length = strlen(scope);
  uint32_t low = 0, high = sorted->count;
  while (low < high && length) {
    uint32_t middle = (low + high) / 2;
    int order = strncmp(sorted->data[middle].name, scope, length);
    if (order < 0 || (order == 0 && sorted->data[middle].name[length] < '.'))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* --- initial values ------------------------------------------------------------------------------------- */

static bool apply_init(Graph *graph, const Aliases *sorted, const InitRule *rule) {
  bool matched = false;
  for (uint32_t i = scope_begin(sorted, rule->scope); i < sorted->count && inside(rule->scope, sorted->data[i].name); i++) {
    if (!in_scope(rule->scope, rule->pattern, sorted->data[i].name)) continue;
    graph->params.data[sorted->data[i].param].init = rule->init;
    matched = true;
  }
  return matched;
}

/* Modules first, the model last: what the user of a module says wins. */
static void apply_inits(Sema *sema, const Aliases *names) {
  Map matched = {0};
  Aliases sorted = sort_names(sema->arena, names);
  for (int model = 0; model < 2; model++)
    for (uint32_t i = 0; i < sema->inits.count; i++) {
      const InitRule *rule = &sema->inits.data[i];
      if (rule->model == (model == 1)) note_match(sema, &matched, rule->span, apply_init(sema->graph, &sorted, rule));
    }
  for (uint32_t i = 0; i < sema->inits.count; i++) {
    const InitRule *rule = &sema->inits.data[i];
    check_match(sema, &matched, names, "init", rule->scope, rule->pattern, rule->span);
  }
}

/* --- frozen parameters ---------------------------------------------------------------------------------- */

static void check_something_learns(Sema *sema) {
  const Graph *graph = sema->graph;
  for (uint32_t i = 0; i < graph->params.count; i++)
    if (!graph->params.data[i].frozen) return;
  const FreezeRule *last = &sema->freezes.data[sema->freezes.count - 1];
  Diag *diag = sema_error(sema, last->span, "every parameter is frozen, so there is nothing to train");
  diag_help(diag, "freeze less: a pattern such as \"h.0\" freezes that module alone");
}

static bool apply_freeze(Graph *graph, const Aliases *sorted, const FreezeRule *rule) {
  bool matched = false;
  for (uint32_t i = scope_begin(sorted, rule->scope); i < sorted->count && inside(rule->scope, sorted->data[i].name); i++) {
    if (!in_scope(rule->scope, rule->pattern, sorted->data[i].name)) continue;
    graph->params.data[sorted->data[i].param].frozen = matched = true;
  }
  return matched;
}

/* A parameter is frozen when any of its names matches any of the patterns. */
static void apply_freezes(Sema *sema, const Aliases *names) {
  Map matched = {0};
  Aliases sorted = sort_names(sema->arena, names);
  for (uint32_t i = 0; i < sema->freezes.count; i++) {
    const FreezeRule *rule = &sema->freezes.data[i];
    note_match(sema, &matched, rule->span, apply_freeze(sema->graph, &sorted, rule));
  }
  for (uint32_t i = 0; i < sema->freezes.count; i++) {
    const FreezeRule *rule = &sema->freezes.data[i];
    check_match(sema, &matched, names, "freeze", rule->scope, rule->pattern, rule->span);
  }
  if (sema->freezes.count) check_something_learns(sema);
}

/* --- both ----------------------------------------------------------------------------------------------- */

static Aliases own_names(Sema *sema) {
  Aliases names = {0};
  for (uint32_t i = 0; i < sema->graph->params.count; i++)
    vec_push(sema->arena, &names, ((Alias){sema->graph->params.data[i].name, (int32_t)i}));
  return names;
}

/* A layer that shares another's weight gives it a second name. */
static void add_tied_names(Sema *sema, Aliases *names) {
  const Graph *graph = sema->graph;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const GraphOp *op = &graph->ops.data[i];
    if (op->weight < 0) continue;
    const char *name = path_join(sema, op->name, "weight");
    if (strcmp(name, graph->params.data[op->weight].name)) vec_push(sema->arena, names, ((Alias){name, op->weight}));
  }
}

void apply_rules(Sema *sema) {
  if (!sema->inits.count && !sema->freezes.count) return;
  Aliases names = own_names(sema);
  apply_inits(sema, &names);
  if (!sema->freezes.count) return;
  add_tied_names(sema, &names);
  apply_freezes(sema, &names);
}
