/* Owns: what a name in a document may mean: every definition of the files that a compile read. */
#include "cli/lsp.h"

typedef struct Walk {
  Arena *arena;
  Definitions *all;
  int32_t file;
} Walk;

static void define(Walk *w, Name name, const char *kind, uint32_t from) {
  if (!name.text) return;
  Definition definition = {name, kind, from, w->file};
  vec_push(w->arena, w->all, definition);
}

static void walk_expr(Walk *w, const Expr *expr) {
  if (!expr) return;
  if (expr->kind == EXPR_CALL) define(w, expr->label, "label", expr->span.end);
  walk_expr(w, expr->left);
  walk_expr(w, expr->right);
  for (uint32_t i = 0; expr->args && i < expr->args->count; i++) walk_expr(w, expr->args->data[i].value);
  for (uint32_t i = 0; expr->items && i < expr->items->count; i++) walk_expr(w, expr->items->data[i]);
}

/* A variable may stand in the expression that redefines it: there it still means the old one. */
static uint32_t end_of(const Stmt *stmt) {
  uint32_t end = stmt->span.end;
  for (uint32_t i = 0; stmt->exprs && i < stmt->exprs->count; i++)
    if (stmt->exprs->data[i]->span.end > end) end = stmt->exprs->data[i]->span.end;
  return end;
}

static void walk_statements(Walk *w, const StmtList *list);

static void walk_statement(Walk *w, const Stmt *stmt) {
  uint32_t begin = stmt->name.text ? stmt->name.span.begin : stmt->span.begin;
  if (stmt->kind == STMT_MODULE) define(w, stmt->name, "module", 0);
  if (stmt->kind == STMT_INPUT) define(w, stmt->name, "input", begin);
  if (stmt->kind == STMT_REPEAT) define(w, stmt->name, "variable", begin);
  define(w, stmt->label, "label", begin);
  for (uint32_t i = 0; stmt->bindings && i < stmt->bindings->count; i++) {
    const Binding *binding = &stmt->bindings->data[i];
    define(w, binding->name, stmt->kind == STMT_LET ? "let" : "parameter", binding->name.span.begin);
    walk_expr(w, binding->value);
  }
  bool assigns = stmt->kind == STMT_ASSIGN || stmt->kind == STMT_REPEAT_CALL;
  for (uint32_t i = 0; assigns && stmt->names && i < stmt->names->count; i++) define(w, stmt->names->data[i], "variable", end_of(stmt));
  for (uint32_t i = 0; stmt->exprs && i < stmt->exprs->count; i++) walk_expr(w, stmt->exprs->data[i]);
  if (stmt->body) walk_statements(w, stmt->body);
}

static void walk_statements(Walk *w, const StmtList *list) {
  for (uint32_t i = 0; i < list->count; i++) walk_statement(w, list->data[i]);
}

Definitions lsp_definitions(const Analysis *a) {
  Definitions all = {0};
  for (uint32_t f = 0; f < a->files.count; f++) {
    Walk walk = {a->arena, &all, (int32_t)f};
    if (a->files.data[f]) walk_statements(&walk, a->files.data[f]->statements);
  }
  return all;
}

const Definition *lsp_resolve(const Definitions *all, const char *word, size_t length, uint32_t offset) {
  const Definition *best = NULL;
  for (uint32_t i = 0; i < all->count; i++) {
    const Definition *d = &all->data[i];
    if (strlen(d->name.text) != length || strncmp(d->name.text, word, length)) continue;
    if (d->file == 0 && d->name.span.begin <= offset && offset <= d->name.span.end) return d; /* it itself */
    bool visible = d->file != 0 || d->from <= offset;
    if (d->file != 0 && strcmp(d->kind, "module") && strcmp(d->kind, "let") && strcmp(d->kind, "label")) continue;
    if (!visible) continue;
    /* The nearest one before, in this file rather than in one it uses. */
    bool nearer = !best || (d->file == 0 && (best->file != 0 || d->name.span.begin > best->name.span.begin));
    if (nearer) best = d;
  }
  return best;
}
