/* Owns: the frontend's door: files in, checked graph out. */
#include "frontend/sema.h"

/* --- --set ---------------------------------------------------------------------------------------------- */

static bool set_value(Sema *sema, const char *text, Value *out, const char **why) {
  Quantity quantity;
  bool parsed = quantity_parse(text, &quantity, why);
  if (parsed && quantity.kind == QUANTITY_NUMBER) {
    bool exact = quantity.is_integer && !strchr(text, '.');
    *out = exact ? value_integer(quantity.integer) : value_real(quantity.value);
    return true;
  }
  if (parsed) *why = "it is a number with a unit";
  *out = value_text(VALUE_WORD, text);
  return map_get(&sema->words, text) != MAP_NONE;
}

static void read_sets(Sema *sema, const FrontendOptions *options) {
  for (uint32_t i = 0; options && i < options->set_count; i++) {
    const char *text = options->sets[i], *equal = strchr(text, '=');
    files_hash(&sema->files, text, strlen(text) + 1);
    if (!equal || equal == text) {
      Diag *diag = diag_error(sema->sink, SPAN_NONE, "--set %s is not of the form name=value", text);
      diag_help(diag, "as in --set layers=24");
      continue;
    }
    SetOption set = {.name = arena_strndup(sema->arena, text, (size_t)(equal - text))};
    const char *why;
    if (!set_value(sema, equal + 1, &set.value, &why)) {
      diag_error(sema->sink, SPAN_NONE, "--set %s: \"%s\" cannot be its value: %s", text, equal + 1, why);
      continue;
    }
    vec_push(sema->arena, &sema->sets, set);
  }
}

static void check_sets(Sema *sema) {
  for (uint32_t i = 0; i < sema->sets.count; i++) {
    const SetOption *set = &sema->sets.data[i];
    bool known = false;
    for (uint32_t k = 0; k < sema->lets.count; k++) known |= !strcmp(sema->lets.data[k], set->name);
    if (known) continue;
    const char *whose = sema->graph->name ? arena_printf(sema->arena, "model \"%s\"", sema->graph->name) : "this file, which states no model,";
    Diag *diag = diag_error(sema->sink, SPAN_NONE, "%s has no let named \"%s\"", whose, set->name);
    const char *near = text_nearest(set->name, sema->lets.data, sema->lets.count);
    const Var *used = env_find_here(sema->file_env, set->name);
    Text all = {.arena = sema->arena};
    if (used && used->kind == VAR_LET)
      diag_note(diag, used->span, "this is a let of a file that is used; --set takes the place of the model's own");
    for (uint32_t k = 0; k < sema->lets.count; k++)
      text_printf(&all, "%s%s", k ? ", " : "", sema->lets.data[k]);
    if (near)
      diag_help(diag, "did you mean \"%s\"?", near);
    else if (sema->lets.count)
      diag_help(diag, "it has %s", all.data);
  }
}

/* --- declarations --------------------------------------------------------------------------------------- */

typedef struct Blocks {
  const Stmt *model, *train, *cluster, *plan;
} Blocks;

static void take_block(Sema *sema, const Stmt **slot, const Stmt *stmt) {
  if (*slot) {
    Diag *diag = sema_error(sema, stmt->span, "a file has at most one %s%s",
                            stmt->kind == STMT_MODEL ? "model" : stmt->type.text,
                            stmt->kind == STMT_MODEL ? "" : " block");
    diag_note(diag, (*slot)->span, "the first one is here");
    return;
  }
  *slot = stmt;
}

static void collect(Sema *sema, const Ast *ast, Blocks *blocks) {
  for (uint32_t i = 0; i < ast->statements->count; i++) {
    const Stmt *stmt = ast->statements->data[i];
    if (stmt->kind == STMT_MODEL) take_block(sema, &blocks->model, stmt);
    if (stmt->kind != STMT_BLOCK) continue;
    take_block(sema,
               *stmt->type.text == 't'   ? &blocks->train
               : *stmt->type.text == 'c' ? &blocks->cluster
                                         : &blocks->plan,
               stmt);
  }
}

/* A used file gives its modules and lets and nothing else. */
static void refuse_blocks(Sema *sema, const Ast *ast, Span used_at) {
  for (uint32_t i = 0; i < ast->statements->count; i++) {
    const Stmt *stmt = ast->statements->data[i];
    if (stmt->kind != STMT_MODEL && stmt->kind != STMT_BLOCK) continue;
    Diag *diag = sema_error(sema, used_at, "this file states a %s, but only modules and lets can be used",
                            stmt->kind == STMT_MODEL ? "model" : stmt->type.text);
    diag_note(diag, stmt->span, "it is stated here");
    if (stmt->kind == STMT_BLOCK && *stmt->type.text == 'c')
      diag_help(diag, "write it inside the block: cluster { use \"...\" }");
    return;
  }
}

/* Modules of all files, then lets, those of used files before those of their users. */
static void declare(Sema *sema, int32_t main) {
  const Files *files = &sema->files;
  sema->file_env = env_new(sema, NULL, false, true);
  for (uint32_t i = 0; i < files->order.count; i++)
    declare_modules(sema, sema->file_env, files->list.data[files->order.data[i]].ast->statements);
  for (uint32_t i = 0; i < files->order.count; i++) {
    int32_t index = files->order.data[i];
    const File *file = &files->list.data[index];
    if (index != main) refuse_blocks(sema, file->ast, file->used_at);
    for (uint32_t k = 0; k < file->ast->statements->count; k++) {
      const Stmt *stmt = file->ast->statements->data[k];
      if (stmt->kind == STMT_LET) exec_let(sema, sema->file_env, stmt, index == main);
    }
  }
}

/* A module that nobody calls is never looked into: say so where the user can do something about it. */
static void warn_uncalled(Sema *sema, const Stmt *model) {
  for (uint32_t i = 0; i < sema->modules.count; i++) {
    const Module *module = &sema->modules.data[i];
    if (module->used || module->stmt->span.file != model->span.file || module->stmt->name.text[0] == '_')
      continue;
    sema_warning(sema, module->stmt->name.span, "module \"%s\" is never called, so it is not checked",
                 module->stmt->name.text);
  }
}

static void run_model(Sema *sema, const Stmt *model) {
  Env *env = env_new(sema, sema->file_env, false, false);
  uint32_t errors = sema->sink->errors;
  sema->graph->name = model->name.text;
  exec_model(sema, env, model);
  bool ran = !sema->stop;
  sema_flush(sema);
  sema->stop = false;
  if (ran) check_sets(sema);
  if (sema->sink->errors == errors) finish_graph(sema, env);
  if (sema->sink->errors == errors) warn_uncalled(sema, model);
}

/* --- the doors ------------------------------------------------------------------------------------------ */

const char *frontend_models(void) {
  return FSDPC_MODELS_DIR;
}

static Sema *sema_new(Arena *arena, SourceSet *sources, DiagSink *sink, const FrontendOptions *options) {
  Sema *sema = ARENA_NEW(arena, Sema);
  sema->arena = arena;
  sema->sink = sink;
  sema->graph = ARENA_NEW(arena, Graph);
  sema->scope = "";
  sema->specs = layer_specs(arena, &sema->layers, &sema->words);
  const char *models = options && options->models_path ? options->models_path : frontend_models();
  files_init(&sema->files, arena, sources, sink, models);
  settings_defaults(sema->graph);
  return sema;
}

static void run_settings(Sema *sema, const Blocks *blocks, const FrontendOptions *options) {
  if (blocks->train) settings_train(sema, blocks->train);
  if (options && options->cluster_path)
    settings_cluster_file(sema, options->cluster_path);
  else if (blocks->cluster)
    settings_cluster(sema, blocks->cluster);
  if (blocks->plan) settings_plan(sema, blocks->plan);
  sema_flush(sema);
}

static Graph *compile(Sema *sema, const char *path, const FrontendOptions *options, bool need_model) {
  uint32_t errors = sema->sink->errors;
  read_sets(sema, options);
  int32_t main = files_open(&sema->files, path, SPAN_NONE);
  if (main < 0 || sema->sink->errors > errors) return NULL;
  const Ast *ast = sema->files.list.data[main].ast;
  sema->graph->path = arena_strdup(sema->arena, path);
  Blocks blocks = {0};
  collect(sema, ast, &blocks);
  declare(sema, main);
  bool declared = sema->sink->errors == errors;
  run_settings(sema, &blocks, options);
  if (!declared) return NULL;
  if (blocks.model) {
    run_model(sema, blocks.model);
  } else if (!need_model) {
    check_sets(sema);
  } else {
    Diag *diag = diag_error(sema->sink, (Span){ast->file, 0, 0}, "this file states no model");
    diag_help(diag, "a model is stated as `model NAME { ... }`; `fsdpc check` also takes families of modules and clusters");
  }
  if (blocks.model && sema->sink->errors == errors) {
    settings_train_finish(sema);
    settings_plan_finish(sema);
  }
  sema_flush(sema);
  sema->graph->source_hash = sema->files.hash;
  return sema->sink->errors > errors ? NULL : sema->graph;
}

Graph *frontend_compile(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path,
                        const FrontendOptions *options) {
  return compile(sema_new(arena, sources, sink, options), path, options, true);
}

const Graph *frontend_check(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path, const FrontendOptions *options) {
  return compile(sema_new(arena, sources, sink, options), path, options, false);
}
