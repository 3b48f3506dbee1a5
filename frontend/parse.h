/* Owns: the door of the parser, and the state that scanner, parser and error recovery share. */
#ifndef FSDPC_FRONTEND_PARSE_H
#define FSDPC_FRONTEND_PARSE_H

#include "base/diag.h"
#include "frontend/ast.h"

/* Parses a file that is already in sources. NULL when an error was reported. */
Ast *parse_file(Arena *arena, const SourceSet *sources, DiagSink *sink, int32_t file);

/* --- shared by lexer.l, parser.y and parse*.c ----------------------------------------------------------- */

typedef struct Opener {
  int kind; /* '(', '[' or '{' */
  Span span;
} Opener;

typedef struct Parser {
  Arena *arena;
  DiagSink *sink;
  int32_t file;
  const char *text;
  Ast *ast;
  void *scanner;

  uint32_t begin, end;     /* of the token just scanned */
  bool line_start;         /* a line break precedes it */
  VEC(Opener) open;        /* brackets now open, outermost first */
  uint32_t braces, parens; /* of them: '{' in all, '(' and '[' since the last '{' */
  Opener cut_short;        /* outermost bracket that the last '}' left open inside, kind 0: none */
  int before[2];           /* kinds of the last and last but one token */

  bool ended;
  bool recovering, fatal; /* skipping to the next statement; nothing more to say */
  uint32_t junk;          /* stray characters reported */
  bool pending;           /* held_* is to be read again */
  int held_kind;
  Span held_span;
  const char *held_text;
  bool held_line_start;
  int64_t synced_at;   /* where recovery last resumed: it never resumes there twice */
  int64_t reported_at; /* where the last syntax error was */
} Parser;

/* lexer.l: blocks of settings have words of their own. */
void lexer_block(void *scanner, bool block);

/* parse_tokens.c. The next token, 0 at the end. */
union FsdpValue;
int fsdp_lex(union FsdpValue *value, Span *span, Parser *parser);
enum { PARSE_MOST_KEYWORDS = 10 };
/* Where the parser is; returns how many. */
uint32_t parse_keywords(const Parser *parser, const char *words[PARSE_MOST_KEYWORDS]);

/* parse_errors.c. An error of syntax, after which fsdp_lex recovers. */
void parse_report(Parser *parser, Span span, bool at_end, const char *const *expected, int count);
void fsdp_error(const Span *span, Parser *parser, const char *text);
/* The last word on this file; help: NULL or what to do. */
void parse_give_up(Parser *parser, Diag *diag, const char *help);
/* A short copy for messages, cut between characters. */
const char *parse_shown(Parser *parser, Span span);

/* parse.c. Nodes of the tree. */
Expr *expr_number(Parser *parser, const char *text, Span span);
Expr *expr_binary(Parser *parser, Operator op, Expr *left, Expr *right);
Expr *expr_around(Parser *parser, ExprKind kind, Expr *inner, Span span); /* -inner, inner.name */
Expr *expr_new(Parser *parser, ExprKind kind, Span span);
Stmt *stmt_new(Parser *parser, StmtKind kind, Span span);

#endif
