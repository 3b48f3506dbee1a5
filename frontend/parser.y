/* Owns: the grammar. Actions only build the raw tree; nothing is looked up here.
 *
 * Line breaks separate nothing: a statement ends where the next one begins. After an error parse_tokens.c skips to the next
 * statement and hands over SYNC, so that one run reports several errors. */
%require "3.8"
%define api.pure full
%define api.prefix {fsdp_}
%define api.value.type {union FsdpValue}
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%locations
%expect 0 /* instead of raising this, find a way to use precedence */
%param {Parser *parser}

%code requires {
#include "frontend/parse.h"

union FsdpValue {
  const char *text;
  Name name;
  Expr *expr;
  Stmt *stmt;
  Arg arg;
  Item item;
  Binding binding;
  NameList *names;
  ExprList *exprs;
  ArgList *args;
  BindingList *bindings;
  StmtList *stmts;
  ItemList *items;
};
}

%code {
#define YYLLOC_DEFAULT(current, rhs, n)                                                                      \
  ((current) = (n) ? span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))                                           \
                   : (Span){YYRHSLOC(rhs, 0).file, YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end})

static Name name_of(const char *text, Span span) { return (Name){text, span}; }

#define LIST(type) ARENA_NEW(parser->arena, type)
#define PUSH(list, value) vec_push(parser->arena, list, value)
}

%token USE "'use'" LET "'let'" MODULE "'module'" MODEL "'model'" TRAIN "'train'" CLUSTER "'cluster'" PLAN "'plan'"
%token INPUT "'input'" INIT "'init'" FREEZE "'freeze'" RETURN "'return'" REPEAT "'repeat'" IN "'in'" AS "'as'"
%token <text> IDENT "a name" NUMBER "a number" STRING "a string" WORD "a word"
%token <text> PLAIN "zeros or ones" SCALED "normal or uniform"
%token FLOOR "'//'" SYNC BAD_STRING JUNK

%type <stmts> statements tops
%type <stmt> statement top module let
%type <bindings> bindings parameters parameter_list
%type <binding> binding parameter
%type <names> targets
%type <exprs> exprs
%type <expr> expr call labelled
%type <args> args arg_list
%type <arg> arg
%type <items> items
%type <item> item
%type <name> label optional_string

%precedence CALL /* `f(x) as h` labels the call, also where a repeat might take the label */
%precedence AS
%left '+' '-'
%left '*' '/' FLOOR
%precedence NEGATE
%precedence '.'

%%

file: tops { parser->ast->statements = $1; }

tops: %empty { $$ = LIST(StmtList); }
    | tops top { $$ = $1; if ($2) PUSH($$, $2); }

top: USE STRING { $$ = stmt_new(parser, STMT_USE, @$); $$->name = name_of($2, @2); }
   | let
   | module
   | MODEL IDENT '{' statements '}' {
       $$ = stmt_new(parser, STMT_MODEL, span_join(@1, @2));
       $$->name = name_of($2, @2);
       $$->body = $4;
     }
   | TRAIN '{' items '}' {
       $$ = stmt_new(parser, STMT_BLOCK, @1);
       $$->type = name_of("train", @1);
       $$->items = $3;
     }
   | CLUSTER optional_string '{' items '}' {
       $$ = stmt_new(parser, STMT_BLOCK, @1);
       $$->type = name_of("cluster", @1);
       $$->name = $2;
       $$->items = $4;
     }
   | PLAN '{' items '}' {
       $$ = stmt_new(parser, STMT_BLOCK, @1);
       $$->type = name_of("plan", @1);
       $$->items = $3;
     }
   | error SYNC { $$ = NULL; yyerrok; }

optional_string: %empty { $$ = name_of(NULL, @$); }
               | STRING { $$ = name_of($1, @1); }

let: LET bindings { $$ = stmt_new(parser, STMT_LET, @$); $$->bindings = $2; }

bindings: binding { $$ = LIST(BindingList); PUSH($$, $1); }
        | bindings ',' binding { $$ = $1; PUSH($$, $3); }

binding: IDENT '=' expr { $$ = (Binding){name_of($1, @1), $3}; }

module: MODULE IDENT '(' parameters ')' '{' statements '}' {
          $$ = stmt_new(parser, STMT_MODULE, span_join(@1, @5));
          $$->name = name_of($2, @2);
          $$->bindings = $4;
          $$->body = $7;
        }

parameters: %empty { $$ = LIST(BindingList); }
          | parameter_list
          | parameter_list ','

parameter_list: parameter { $$ = LIST(BindingList); PUSH($$, $1); }
              | parameter_list ',' parameter { $$ = $1; PUSH($$, $3); }

parameter: IDENT { $$ = (Binding){name_of($1, @1), NULL}; }
         | binding

statements: %empty { $$ = LIST(StmtList); }
          | statements statement { $$ = $1; if ($2) PUSH($$, $2); }

statement: let
         | module
         | INPUT IDENT ':' IDENT '[' exprs ']' {
             $$ = stmt_new(parser, STMT_INPUT, @$);
             $$->name = name_of($2, @2);
             $$->type = name_of($4, @4);
             $$->exprs = $6;
           }
         | targets '=' expr {
             $$ = stmt_new(parser, STMT_ASSIGN, @$);
             $$->names = $1;
             $$->exprs = LIST(ExprList);
             PUSH($$->exprs, $3);
           }
         | targets '=' REPEAT expr labelled {
             $$ = stmt_new(parser, STMT_REPEAT_CALL, @$);
             $$->names = $1;
             $$->count = $4;
             $$->exprs = LIST(ExprList);
             PUSH($$->exprs, $5);
           }
         | REPEAT IDENT IN expr label '{' statements '}' {
             $$ = stmt_new(parser, STMT_REPEAT, span_join(@1, @5));
             $$->name = name_of($2, @2);
             $$->count = $4;
             $$->label = $5;
             $$->body = $7;
           }
         | RETURN exprs { $$ = stmt_new(parser, STMT_RETURN, @$); $$->exprs = $2; }
         | INIT STRING SCALED expr {
             $$ = stmt_new(parser, STMT_INIT, @$);
             $$->name = name_of($2, @2);
             $$->type = name_of($3, @3);
             $$->value = $4;
           }
         | INIT STRING PLAIN {
             $$ = stmt_new(parser, STMT_INIT, @$);
             $$->name = name_of($2, @2);
             $$->type = name_of($3, @3);
           }
         | INIT STRING PLAIN NUMBER { /* a misspelt distribution: sema says so */
             $$ = stmt_new(parser, STMT_INIT, @$);
             $$->name = name_of($2, @2);
             $$->type = name_of($3, @3);
             $$->value = expr_number(parser, $4, @4);
           }
         | FREEZE STRING {
             $$ = stmt_new(parser, STMT_FREEZE, @$);
             $$->name = name_of($2, @2);
           }
         | error SYNC { $$ = NULL; yyerrok; }

label: %empty { $$ = name_of(NULL, @$); }
     | AS IDENT { $$ = name_of($2, @2); }

targets: IDENT { $$ = LIST(NameList); PUSH($$, name_of($1, @1)); }
       | targets ',' IDENT { $$ = $1; PUSH($$, name_of($3, @3)); }

exprs: expr { $$ = LIST(ExprList); PUSH($$, $1); }
     | exprs ',' expr { $$ = $1; PUSH($$, $3); }

expr: expr '+' expr { $$ = expr_binary(parser, OP_ADD, $1, $3); }
    | expr '-' expr { $$ = expr_binary(parser, OP_SUB, $1, $3); }
    | expr '*' expr { $$ = expr_binary(parser, OP_MUL, $1, $3); }
    | expr '/' expr { $$ = expr_binary(parser, OP_DIV, $1, $3); }
    | expr FLOOR expr { $$ = expr_binary(parser, OP_FLOOR, $1, $3); }
    | '-' expr %prec NEGATE { $$ = expr_around(parser, EXPR_NEGATE, $2, @$); }
    | NUMBER { $$ = expr_number(parser, $1, @1); }
    | STRING { $$ = expr_new(parser, EXPR_STRING, @$); $$->name = name_of($1, @1); }
    | IDENT { $$ = expr_new(parser, EXPR_NAME, @$); $$->name = name_of($1, @1); }
    | labelled
    | '(' expr ')' { $$ = $2; $$->span = @$; }
    | '[' exprs ']' { $$ = expr_new(parser, EXPR_LIST, @$); $$->items = $2; }
    | expr '.' IDENT {
        $$ = expr_around(parser, EXPR_MEMBER, $1, @$);
        $$->name = name_of($3, @3);
      }
    | expr '.' NUMBER { /* h.0 */
        $$ = expr_around(parser, EXPR_MEMBER, $1, @$);
        $$->name = name_of($3, @3);
      }

labelled: call %prec CALL
        | call AS IDENT { $$ = $1; $$->label = name_of($3, @3); $$->span = @$; }

call: IDENT '(' args ')' {
        $$ = expr_new(parser, EXPR_CALL, @$);
        $$->name = name_of($1, @1);
        $$->args = $3;
        for (uint32_t i = 0; i < $3->count; i++)
          if ($3->data[i].value->depth >= $$->depth) $$->depth = $3->data[i].value->depth + 1;
      }

args: %empty { $$ = LIST(ArgList); }
    | arg_list
    | arg_list ','

arg_list: arg { $$ = LIST(ArgList); PUSH($$, $1); }
        | arg_list ',' arg { $$ = $1; PUSH($$, $3); }

arg: expr { $$ = (Arg){name_of(NULL, @$), $1}; }
   | IDENT '=' expr { $$ = (Arg){name_of($1, @1), $3}; }

items: %empty { $$ = LIST(ItemList); }
     | items item { $$ = $1; PUSH($$, $2); }
     | items error SYNC { $$ = $1; yyerrok; }

item: WORD { $$ = (Item){ITEM_WORD, $1, @1, NULL}; }
    | NUMBER { $$ = (Item){ITEM_NUMBER, $1, @1, NULL}; }
    | '-' NUMBER { $$ = (Item){ITEM_NUMBER, arena_printf(parser->arena, "-%s", $2), @$, NULL}; }
    | STRING { $$ = (Item){ITEM_STRING, $1, @1, NULL}; }
    | '{' items '}' { $$ = (Item){ITEM_BLOCK, "", @1, $2}; }

%%

static int yyreport_syntax_error(const yypcontext_t *context, Parser *parser) {
  yysymbol_kind_t kinds[YYNTOKENS];
  const char *names[YYNTOKENS];
  int count = yypcontext_expected_tokens(context, kinds, YYNTOKENS);
  for (int i = 0; i < count; i++) names[i] = yysymbol_name(kinds[i]);
  parse_report(parser, *yypcontext_location(context), yypcontext_token(context) == YYSYMBOL_YYEOF, names,
               count < 0 ? 0 : count);
  return 0;
}
