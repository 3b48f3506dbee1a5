/* Owns: the door of the parser: a file must be text, and no plan. Also making nodes of the tree. */
#include "frontend/parse.h"
#include "base/text.h"
#include "parser.h"
#include "lexer.h"
#include <ctype.h>

/* --- what is no model --------------------------------------------------------------------------------- */

static bool is_text(const SourceFile *file, int32_t index, DiagSink *sink) {
  const unsigned char *text = (const unsigned char *)file->text;
  for (uint32_t i = 0; i < file->length;) {
    uint32_t length = text_utf8_length(file->text + i);
    Span at = {index, i, i + 1};
    if (!length) {
      diag_error(sink, at, "this file is not UTF-8 text: byte 0x%02x cannot stand here", text[i]);
      return false;
    }
    if ((text[i] < 0x20 && !strchr("\t\n\r", text[i])) || text[i] == 0x7f) {
      diag_error(sink, at, "this file is not text: it holds the control character 0x%02x", text[i]);
      return false;
    }
    i += length;
  }
  return true;
}

/* The model that it was planned from, as its third line names it, or NULL. */
static const char *source_of_plan(Arena *arena, const char *text) {
  const char *line = strstr(text, "\nsource \""), *path = line ? line + 9 : "";
  size_t length = strcspn(path, "\"\n");
  return length && path[length] == '"' ? arena_strndup(arena, path, length) : NULL;
}

/* Begins as planner/plan/plan_read.c wants it: each line would be an error. */
static bool is_plan(Arena *arena, const SourceFile *file, int32_t index, DiagSink *sink) {
  static const char first[] = "fsdpc-plan ";
  uint32_t at = strncmp(file->text, "\xef\xbb\xbf", 3) ? 0 : 3; /* behind a byte order mark */
  if (strncmp(file->text + at, first, sizeof first - 1)) return false;
  Diag *diag = diag_error(sink, (Span){index, at, at + sizeof first - 2}, "this is a finished plan; a model is wanted here");
  const char *source = source_of_plan(arena, file->text);
  diag_help(diag, "%s; explain, verify, draw, diff, run and export read plans",
            source ? arena_printf(arena, "it was planned from %s: give that", source) : "give the model that it was planned from");
  return true;
}

/* --- nodes of the tree ---------------------------------------------------------------------------------- */

Expr *expr_new(Parser *parser, ExprKind kind, Span span) {
  Expr *expr = ARENA_NEW(parser->arena, Expr);
  expr->kind = kind;
  expr->span = span;
  expr->depth = 1;
  return expr;
}

Stmt *stmt_new(Parser *parser, StmtKind kind, Span span) {
  Stmt *stmt = ARENA_NEW(parser->arena, Stmt);
  stmt->kind = kind;
  stmt->span = span;
  return stmt;
}

Expr *expr_number(Parser *parser, const char *text, Span span) {
  Expr *expr = expr_new(parser, EXPR_NUMBER, span);
  expr->number = text;
  const char *why = "it has too many digits";
  if (strlen(text) > 60 || !quantity_parse(text, &expr->quantity, &why)) {
    Diag *diag = diag_error(parser->sink, span, "\"%s\" is not a number: %s", parse_shown(parser, span), why);
    size_t digits = strspn(text, "0123456789._");
    if (isalpha((unsigned char)text[digits]) && strlen(text) <= 60 && !strpbrk(text + digits, "0123456789"))
      diag_help(diag, "a product is written %.*s*%s", (int)digits, text, text + digits);
  } else if (expr->quantity.kind != QUANTITY_NUMBER)
    diag_error(parser->sink, span, "\"%s\" has a unit, but a model is computed with plain numbers", text);
  return expr;
}

/* expr holds part: recursive passes go one level deeper there. */
static void deepen(Parser *parser, Expr *expr, const Expr *part) {
  if (part->depth + 1 > expr->depth) expr->depth = part->depth + 1;
  if (expr->depth <= AST_MAX_DEPTH || parser->fatal) return;
  Span after = {part->span.file, part->span.end, part->span.end + 1};
  parse_give_up(parser, diag_error(parser->sink, after, "this expression has more than %d terms", AST_MAX_DEPTH),
                "give names to parts of the expression");
}

Expr *expr_binary(Parser *parser, Operator op, Expr *left, Expr *right) {
  Expr *expr = expr_new(parser, EXPR_BINARY, span_join(left->span, right->span));
  expr->op = op;
  expr->left = left;
  expr->right = right;
  deepen(parser, expr, left);
  deepen(parser, expr, right);
  return expr;
}

Expr *expr_around(Parser *parser, ExprKind kind, Expr *inner, Span span) {
  Expr *expr = expr_new(parser, kind, span);
  expr->left = inner;
  deepen(parser, expr, inner);
  return expr;
}

/* --- the door ------------------------------------------------------------------------------------------- */

Ast *parse_file(Arena *arena, const SourceSet *sources, DiagSink *sink, int32_t file) {
  const SourceFile *source = &sources->files.data[file];
  uint32_t errors = sink->errors;
  if (!is_text(source, file, sink) || is_plan(arena, source, file, sink)) return NULL;
  Parser parser = {.arena = arena,
                   .sink = sink,
                   .file = file,
                   .text = source->text,
                   .ast = ARENA_NEW(arena, Ast),
                   .synced_at = -1,
                   .reported_at = -1};
  parser.ast->file = file;
  parser.ast->statements = ARENA_NEW(arena, StmtList);
  if (lexer_lex_init_extra(&parser, &parser.scanner)) abort();
  lexer__scan_bytes(source->text, (int)source->length, parser.scanner);
  fsdp_parse(&parser);
  lexer_lex_destroy(parser.scanner);
  return sink->errors > errors ? NULL : parser.ast;
}
