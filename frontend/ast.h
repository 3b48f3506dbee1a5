/* Owns: the syntax tree of one .fsdp file. Syntax only: no name is resolved and no shape known here. All
 * nodes live in the compile's arena. */
#ifndef FSDPC_FRONTEND_AST_H
#define FSDPC_FRONTEND_AST_H

#include "base/source.h"
#include "base/text.h"
#include <stdbool.h>

/* Deeper expressions, brackets or blocks are refused, so that recursive passes need little stack. */
enum { AST_MAX_DEPTH = 200, AST_MAX_NAME = 200, AST_MAX_STRING = 1000 };

typedef struct Expr Expr;
typedef struct Stmt Stmt;
typedef struct Item Item;

typedef struct Name {
  const char *text; /* NULL: absent */
  Span span;
} Name;

/* One argument of a call: positional when name.text is NULL. */
typedef struct Arg {
  Name name;
  Expr *value;
} Arg;

/* `name = value` of a let; a module's parameter, whose value may be NULL. */
typedef struct Binding {
  Name name;
  Expr *value;
} Binding;

typedef VEC(Name) NameList;
typedef VEC(Expr *) ExprList;
typedef VEC(Arg) ArgList;
typedef VEC(Binding) BindingList;
typedef VEC(Stmt *) StmtList;
typedef VEC(Item) ItemList;

typedef enum {
  EXPR_NUMBER,
  EXPR_STRING,
  EXPR_NAME,
  EXPR_NEGATE, /* -left */
  EXPR_BINARY, /* left op right */
  EXPR_CALL,   /* name(args) as label */
  EXPR_MEMBER, /* left.name */
  EXPR_LIST    /* [items] */
} ExprKind;

typedef enum { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOOR } Operator;

struct Expr {
  ExprKind kind;
  Operator op;
  uint32_t depth; /* of the tree below, 1 for a leaf */
  Span span;
  Name name;          /* NAME, CALL, MEMBER; STRING: its contents */
  const char *number; /* NUMBER: as spelled */
  Quantity quantity;  /* NUMBER */
  Expr *left, *right;
  ArgList *args;   /* CALL */
  Name label;      /* CALL: after `as` */
  ExprList *items; /* LIST */
};

typedef enum {
  STMT_USE,         /* use "name" */
  STMT_LET,         /* let bindings */
  STMT_INPUT,       /* input name : type[exprs] */
  STMT_MODULE,      /* module name(bindings) { body } */
  STMT_MODEL,       /* model name { body } */
  STMT_ASSIGN,      /* names = exprs[0] */
  STMT_REPEAT_CALL, /* names = repeat count exprs[0], a call */
  STMT_REPEAT,      /* repeat name in count as label { body } */
  STMT_RETURN,      /* return exprs */
  STMT_INIT,        /* init "name" type value */
  STMT_FREEZE,      /* freeze "name" */
  STMT_BLOCK        /* train, cluster or plan: type "name" { items } */
} StmtKind;

struct Stmt {
  StmtKind kind;
  Span span; /* of the head: what a message about the statement points at */
  Name name, type, label;
  NameList *names;
  BindingList *bindings;
  ExprList *exprs;
  Expr *count, *value;
  StmtList *body;
  ItemList *items;
};

typedef enum { ITEM_WORD, ITEM_NUMBER, ITEM_STRING, ITEM_BLOCK } ItemKind;

/* One element of a train, cluster or plan block. */
struct Item {
  ItemKind kind;
  const char *text; /* word, number as spelled (with its sign), contents of a string */
  Span span;
  ItemList *items; /* BLOCK */
};

/* A token with its place; comments and blank space are the gaps between tokens. */
typedef struct Token {
  int kind; /* of parser.h */
  uint32_t begin, end;
} Token;

typedef struct Ast {
  int32_t file;
  StmtList *statements;
  VEC(Token) tokens; /* all of the file, for the formatter */
} Ast;

#endif
