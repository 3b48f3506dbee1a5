/* Owns: everything around the generated parser: checking that a file is text, keywords by context, brackets,
 * and recovery after a syntax error.
 *
 * Recovery: after an error tokens are skipped up to the next statement, that is to the first token of a line
 * outside the bracket where the error stood, or to the closing brace around it. There SYNC is handed to the
 * parser, which resumes. A whole block in braces is skipped with the head that was wrong. */
#include "frontend/parse.h"
#include "base/text.h"
#include "parser.h"
#include "lexer.h"

#include <ctype.h>

enum { MAX_TOKENS = 500000, MAX_JUNK = 3, SHOWN_BYTES = 40 };

void lexer_block(void *scanner, bool block);
int fsdp_lex(union FsdpValue *value, Span *span, Parser *parser);
void fsdp_error(const Span *span, Parser *parser, const char *text);
void parse_report(Parser *parser, Span span, bool at_end, const char *const *expected, int count);

/* --- text or not ---------------------------------------------------------------------------------------- */

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

/* --- tokens --------------------------------------------------------------------------------------------- */

static const char *token_text(Parser *parser) {
  return arena_strndup(parser->arena, parser->text + parser->begin, parser->end - parser->begin);
}

/* A short copy for messages, cut between characters. */
static const char *shown(Parser *parser, Span span) {
  uint32_t length = span.end - span.begin;
  if (length <= SHOWN_BYTES) return arena_strndup(parser->arena, parser->text + span.begin, length);
  length = SHOWN_BYTES;
  while (((unsigned char)parser->text[span.begin + length] & 0xc0) == 0x80) length--;
  return arena_printf(parser->arena, "%.*s...", (int)length, parser->text + span.begin);
}

static Span here(const Parser *parser) {
  return (Span){parser->file, parser->begin, parser->end};
}

static void give_up(Parser *parser, Diag *diag, const char *help) {
  if (help) diag_help(diag, "%s", help);
  parser->fatal = true;
}

typedef struct Keyword {
  const char *text;
  int kind;
} Keyword;

static int keyword(const Keyword *words, int count, const char *text, int otherwise) {
  for (int i = 0; i < count; i++)
    if (!strcmp(words[i].text, text)) return words[i].kind;
  return otherwise;
}

static const Keyword top_words[] = {{"use", USE},       {"let", LET},     {"model", MODEL},
                                    {"module", MODULE}, {"train", TRAIN}, {"cluster", CLUSTER},
                                    {"plan", PLAN}};
static const Keyword body_words[] = {{"let", LET},       {"module", MODULE}, {"input", INPUT}, {"init", INIT},
                                     {"freeze", FREEZE}, {"return", RETURN}, {"repeat", REPEAT}, {"as", AS}};

#define KEYWORD(words, text, otherwise) keyword(words, sizeof words / sizeof *words, text, otherwise)

/* The kind of a word, which depends on where it stands: names such as `model` or `plan` stay usable inside a
 * model. */
static int word_kind(Parser *parser, int kind, const char *text) {
  int last = parser->before[0];
  if (parser->braces == 0) {
    if (parser->parens || last == MODEL || last == MODULE) return kind;
    int found = KEYWORD(top_words, text, kind);
    if (found != kind) lexer_block(parser->scanner, found == TRAIN || found == CLUSTER || found == PLAN);
    return found;
  }
  if (kind == WORD || last == AS || last == '.' || last == MODULE) return kind;
  if (last == STRING && parser->before[1] == INIT)
    return !strcmp(text, "normal") || !strcmp(text, "uniform") ? SCALED : PLAIN;
  if (last == IDENT && parser->before[1] == REPEAT && !strcmp(text, "in")) return IN;
  return KEYWORD(body_words, text, kind);
}

static void open_bracket(Parser *parser, int kind) {
  Opener opener = {kind, here(parser)};
  vec_push(parser->arena, &parser->open, opener);
  if (kind == '{') {
    parser->braces++;
    parser->parens = 0;
  } else {
    parser->parens++;
  }
  if (parser->open.count <= AST_MAX_DEPTH) return;
  if (parser->recovering) {
    parser->fatal = true;
    return;
  }
  give_up(parser,
          diag_error(parser->sink, here(parser), "brackets nest deeper than %d levels", AST_MAX_DEPTH),
          "give names to parts of the expression, or split it into modules");
}

/* '}' also closes parentheses left open inside; their error was or will be reported. */
static void close_bracket(Parser *parser, int kind) {
  int wanted = kind == ')' ? '(' : kind == ']' ? '[' : '{';
  parser->cut_short = (Opener){0};
  while (wanted == '{' && parser->open.count && parser->open.data[parser->open.count - 1].kind != '{')
    parser->cut_short = parser->open.data[--parser->open.count];
  if (!parser->open.count || parser->open.data[parser->open.count - 1].kind != wanted) return;
  parser->open.count--;
  if (wanted == '{') {
    parser->braces--;
    parser->parens = 0;
    for (uint32_t i = parser->open.count; i > 0 && parser->open.data[i - 1].kind != '{'; i--)
      parser->parens++;
    if (parser->braces == 0) lexer_block(parser->scanner, false);
  } else {
    parser->parens--;
  }
}

static void bad_token(Parser *parser, int kind) {
  if (kind == BAD_STRING) {
    diag_error(parser->sink, here(parser), "this string is not closed on its line");
    parser->fatal = true;
  } else if (parser->junk++ < MAX_JUNK) {
    const char *character = shown(parser, here(parser));
    Diag *diag = diag_error(parser->sink, here(parser), "unexpected character '%s'", character);
    if (!strcmp(character, ";")) diag_help(diag, "nothing separates statements");
  }
}

static void check_length(Parser *parser, int kind) {
  uint32_t length = parser->end - parser->begin, limit = kind == STRING ? AST_MAX_STRING : AST_MAX_NAME;
  if (length <= limit) return;
  give_up(parser,
          diag_error(parser->sink, here(parser), "this %s is longer than %u characters",
                     kind == STRING   ? "string"
                     : kind == NUMBER ? "number"
                                      : "name",
                     limit),
          NULL);
}

/* The next token of the file, brackets and keywords settled. 0 at the end. */
static int scan(Parser *parser, const char **text) {
  parser->line_start = parser->before[0] == 0;
  int kind;
  do {
    kind = parser->fatal || parser->ended ? 0 : lexer_lex(parser->scanner);
    if (kind == JUNK || kind == BAD_STRING) bad_token(parser, kind);
  } while (kind == JUNK || kind == BAD_STRING);
  *text = "";
  if (!kind) {
    parser->ended = true;
    if (parser->fatal) parser->begin = parser->end;
    return 0;
  }
  if (kind == IDENT || kind == WORD || kind == NUMBER) *text = token_text(parser);
  if (kind == STRING)
    *text = arena_strndup(parser->arena, parser->text + parser->begin + 1, parser->end - parser->begin - 2);
  if (kind == IDENT || kind == WORD) kind = word_kind(parser, kind, *text);
  check_length(parser, kind);
  if (kind == '(' || kind == '[' || kind == '{') open_bracket(parser, kind);
  if (kind == ')' || kind == ']' || kind == '}') close_bracket(parser, kind);
  Token token = {kind, parser->begin, parser->end};
  if (parser->ast->tokens.count >= MAX_TOKENS)
    give_up(parser,
            diag_error(parser->sink, here(parser),
                       "this file holds more than %d tokens, so it is hardly a model description",
                       MAX_TOKENS),
            NULL);
  vec_push(parser->arena, &parser->ast->tokens, token);
  parser->before[1] = parser->before[0];
  parser->before[0] = kind;
  return parser->fatal ? 0 : kind;
}

static void hold(Parser *parser, int kind, const char *text) {
  parser->pending = true;
  parser->held_kind = kind;
  parser->held_text = text;
  parser->held_span = here(parser);
  parser->held_line_start = parser->line_start;
}

static int next(Parser *parser, const char **text) {
  if (!parser->pending) return scan(parser, text);
  parser->pending = false;
  *text = parser->held_text;
  parser->line_start = parser->held_line_start;
  return parser->held_kind;
}

static bool starts_statement(int kind) {
  return kind == LET || kind == MODULE || kind == INPUT || kind == RETURN || kind == REPEAT || kind == INIT ||
         kind == FREEZE ||
         kind == MODEL || kind == TRAIN || kind == CLUSTER || kind == PLAN || kind == USE;
}

/* Parentheses left open before the point of resumption stay out of the way. */
static void forget_parens(Parser *parser) {
  while (parser->open.count && parser->open.data[parser->open.count - 1].kind != '{') parser->open.count--;
  parser->parens = 0;
}

/* Skips to where parsing can resume, holds the token there, and yields SYNC (or the end of the file). */
static int resync(Parser *parser) {
  uint32_t depth = 0;
  const char *text = "";
  for (;;) {
    int kind = next(parser, &text);
    bool fresh = (int64_t)parser->begin != parser->synced_at;
    bool outside = parser->parens == 0 || starts_statement(kind) || kind == '(' || kind == '[';
    if (!kind || (depth == 0 && fresh && (kind == '}' || (parser->line_start && outside)))) {
      parser->recovering = false;
      parser->synced_at = kind ? (int64_t)parser->begin : parser->synced_at;
      hold(parser, kind, text);
      if (kind != '(' && kind != '[') forget_parens(parser);
      return SYNC;
    }
    if (kind == '{') depth++;
    if (kind == '}' && depth > 0 && --depth == 0) {
      parser->recovering = false;
      forget_parens(parser);
      return SYNC;
    }
  }
}

int fsdp_lex(union FsdpValue *value, Span *span, Parser *parser) {
  const char *text = "";
  int kind = parser->recovering ? resync(parser) : next(parser, &text);
  if (parser->pending && kind == SYNC) {
    *span = parser->held_span;
    return SYNC;
  }
  if (!parser->recovering && kind != SYNC) { /* kept in case the parser rejects it */
    hold(parser, kind, text);
    parser->pending = false;
  }
  value->text = text;
  *span = here(parser);
  return kind;
}

/* --- messages ------------------------------------------------------------------------------------------- */

static bool expects(const char *const *names, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

typedef VEC(const char *) Names;

static void drop(Names *names, const char *const *unwanted) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < names->count; i++) {
    bool found = false;
    for (int k = 0; unwanted[k]; k++) found |= !strcmp(names->data[i], unwanted[k]);
    if (!found) names->data[kept++] = names->data[i];
  }
  names->count = kept;
}

/* Replaces long lists by the notion behind them: "an expression", "a statement". */
static void summarise(Parser *parser, Names *names) {
  static const char *const internal[] = {"SYNC", "BAD_STRING", "JUNK", "error", "end of file", NULL};
  static const char *const call[] = {"'('", "'='", NULL}; /* what else could follow a name among arguments */
  static const char *const operators[] = {"'+'", "'-'", "'*'", "'/'", "'//'", "'.'", "'as'", NULL};
  static const char *const expression[] = {"a name", "a number", "a string", "'('", "'['", "'-'", NULL};
  static const char *const statement[] = {"'let'",    "'module'", "'input'", "'init'", "'freeze'",
                                          "'return'", "'repeat'", "a name",  NULL};
  static const char *const declaration[] = {"'use'",   "'let'",     "'module'", "'model'",
                                            "'train'", "'cluster'", "'plan'",   NULL};
  static const char *const item[] = {"a word", "a number", "a string", "'-'", "'{'", NULL};
  drop(names, internal);
  const char *notion = NULL;
  const char *const *parts = NULL;
  if (expects(names->data, (int)names->count, "'model'")) {
    notion = "a declaration (model, module, let, use, train, cluster or plan)";
    parts = declaration;
  } else if (expects(names->data, (int)names->count, "'input'")) {
    notion = "a statement";
    parts = statement;
  } else if (expects(names->data, (int)names->count, "a word")) {
    notion = "a key or a value";
    parts = item;
  } else if (expects(names->data, (int)names->count, "'['") &&
             expects(names->data, (int)names->count, "a number")) {
    notion = "an expression";
    parts = expression;
  }
  static const char *const repeat[] = {"'repeat'", NULL};
  if (parts) drop(names, parts);
  if (parts == expression) drop(names, repeat);
  if (!parts &&
      (expects(names->data, (int)names->count, "')'") || expects(names->data, (int)names->count, "']'")))
    drop(names, call);
  if (!parts || names->count) {
    uint32_t all = names->count;
    drop(names, operators);
    if (!names->count && !parts) names->count = all;
  }
  if (!notion) return;
  vec_push(parser->arena, names, notion);
  const char *last = names->data[names->count - 1];
  memmove(names->data + 1, names->data, (names->count - 1) * sizeof *names->data);
  names->data[0] = last;
}

/* "')' or ','" */
static const char *either(Parser *parser, const Names *names) {
  Text text = {.arena = parser->arena};
  for (uint32_t i = 0; i < names->count; i++)
    text_printf(&text, "%s%s", i == 0 ? "" : i + 1 == names->count ? " or " : ", ", names->data[i]);
  return text.data;
}

/* What other languages begin a statement with, and what stands for it here. */
static const char *foreign(const char *word) {
  static const char *const words[][2] = {{"for", "what is repeated is written `repeat i in N as h { ... }`"},
                                         {"while", "what is repeated is written `repeat i in N as h { ... }`"},
                                         {"if", "models have no conditions: give a module an argument, or state another model"},
                                         {"def", "a module is written `module name(x) { ... return y }`"},
                                         {"class", "a module is written `module name(x) { ... return y }`"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(word, words[i][0])) return words[i][1];
  return NULL;
}

/* A misspelt keyword shows at itself outside braces, and at the word after it inside. */
static void suggest_keyword(Parser *parser, Diag *diag, Span span, bool at_end) {
  const char *words[10];
  uint32_t count =
      parser->braces ? sizeof body_words / sizeof *body_words : sizeof top_words / sizeof *top_words;
  for (uint32_t i = 0; i < count; i++) words[i] = parser->braces ? body_words[i].text : top_words[i].text;
  uint32_t tokens = parser->ast->tokens.count, index = parser->braces ? tokens - 2 : tokens - 1;
  if (at_end || tokens < 2 || parser->ast->tokens.data[index].kind != IDENT) return;
  const Token *token = &parser->ast->tokens.data[index];
  const char *word = shown(parser, (Span){span.file, token->begin, token->end}), *instead = foreign(word);
  if (instead) {
    diag_help(diag, "%s", instead);
    return;
  }
  if (parser->braces && parser->held_kind != IDENT) {
    bool dotted = index > 0 && token[-1].kind == '.';
    if (parser->held_kind == '(') diag_help(diag, dotted ? "layers and modules have plain names: `%s(...)`" : "a result needs a name: `x = ...`", word);
    return;
  }
  const char *near = text_nearest(word, words, count);
  if (near) diag_help(diag, "did you mean \"%s\"?", near);
}

static void explain(Parser *parser, Diag *diag, Span span, bool at_end) {
  if (parser->held_kind == '}' && parser->cut_short.kind && !at_end) {
    diag_note(diag, parser->cut_short.span, "this '%c' is not closed yet", parser->cut_short.kind);
  } else if (parser->open.count) {
    Opener opener = parser->open.data[parser->open.count - 1];
    bool newly = opener.span.begin == span.begin && parser->open.count > 1;
    if (newly) opener = parser->open.data[parser->open.count - 2];
    if (at_end || (opener.kind != '{' && opener.span.begin != span.begin))
      diag_note(diag, opener.span, "this '%c' is not closed yet", opener.kind);
  }
  uint32_t count = parser->ast->tokens.count;
  suggest_keyword(parser, diag, span, at_end);
  if (parser->held_kind == '=' && count > 1 && parser->ast->tokens.data[count - 2].kind == WORD)
    diag_help(diag, "here a key is followed by its values alone, as in `lr 6e-4`");
}

void parse_report(Parser *parser, Span span, bool at_end, const char *const *expected, int count) {
  parser->recovering = true;
  if (!at_end) parser->pending = true; /* look at the rejected token again: it may begin the next statement */
  bool again =
      parser->reported_at == (int64_t)span.begin; /* where recovery resumed at the token that was wrong */
  if (parser->fatal || parser->junk || again) return;
  parser->reported_at = span.begin;
  Names names = {0};
  for (int i = 0; i < count; i++) vec_push(parser->arena, &names, expected[i]);
  summarise(parser, &names);
  const char *saw =
      at_end ? "the end of the file" : arena_printf(parser->arena, "\"%s\"", shown(parser, span));
  if (parser->text[span.begin] == '"')
    saw = arena_printf(parser->arena, "the string %s", shown(parser, span));
  Diag *diag = names.count && names.count <= 4
                   ? diag_error(parser->sink, span, "expected %s, saw %s", either(parser, &names), saw)
                   : diag_error(parser->sink, span, "unexpected %s", saw);
  explain(parser, diag, span, at_end);
}

void fsdp_error(const Span *span, Parser *parser, const char *text) {
  (void)text; /* only when the parser's stack is full, which brackets cannot do */
  if (!parser->fatal) diag_error(parser->sink, *span, "this expression nests too deeply");
  parser->fatal = true;
}

/* --- building ------------------------------------------------------------------------------------------- */

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
  if (strlen(text) > 60 || !quantity_parse(text, &expr->quantity, &why))
    diag_error(parser->sink, span, "\"%s\" is not a number: %s", shown(parser, span), why);
  else if (expr->quantity.kind != QUANTITY_NUMBER)
    diag_error(parser->sink, span, "\"%s\" has a unit, but a model is computed with plain numbers", text);
  return expr;
}

/* expr holds part: recursive passes go one level deeper there. */
static void deepen(Parser *parser, Expr *expr, const Expr *part) {
  if (part->depth + 1 > expr->depth) expr->depth = part->depth + 1;
  if (expr->depth <= AST_MAX_DEPTH || parser->fatal) return;
  give_up(parser,
          diag_error(parser->sink, (Span){part->span.file, part->span.end, part->span.end + 1},
                     "this expression has more than %d terms", AST_MAX_DEPTH),
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

/* --- a plan in place of a model -------------------------------------------------------------------------- */

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
  diag_help(diag, "%s; explain, verify, draw, diff and run read plans",
            source ? arena_printf(arena, "it was planned from %s: give that", source) : "give the model that it was planned from");
  return true;
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
