/* Owns: the tokens that the parser gets: keywords by context, brackets, and recovery after a syntax error.
 *
 * Recovery: after an error tokens are skipped up to the next statement, that is to the first token of a line
 * outside the bracket where the error stood, or to the closing brace around it. There SYNC is handed to the
 * parser, which resumes. A whole block in braces is skipped with the head that was wrong. */
#include "frontend/parse.h"
#include "parser.h"
#include "lexer.h"

enum { MAX_TOKENS = 500000, MAX_JUNK = 3 };

static const char *token_text(Parser *parser) {
  return arena_strndup(parser->arena, parser->text + parser->begin, parser->end - parser->begin);
}

static Span here(const Parser *parser) {
  return (Span){parser->file, parser->begin, parser->end};
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

uint32_t parse_keywords(const Parser *parser, const char *words[PARSE_MOST_KEYWORDS]) {
  uint32_t count = parser->braces ? sizeof body_words / sizeof *body_words : sizeof top_words / sizeof *top_words;
  for (uint32_t i = 0; i < count; i++) words[i] = parser->braces ? body_words[i].text : top_words[i].text;
  return count;
}

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
    return !strcmp(text, "normal") || !strcmp(text, "uniform") ? SCALED : KEYWORD(body_words, text, PLAIN);
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
  parse_give_up(parser, diag_error(parser->sink, here(parser), "brackets nest deeper than %d levels", AST_MAX_DEPTH),
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
  } else if (parser->text[parser->begin] == '\r') {
    parse_give_up(parser, diag_error(parser->sink, here(parser), "a carriage return alone ends this line"),
                  "end lines with a line feed: `tr '\\r' '\\n' <FILE >NEW`");
  } else if (parser->junk++ < MAX_JUNK) {
    const char *character = parse_shown(parser, here(parser));
    Diag *diag = diag_error(parser->sink, here(parser), "unexpected character '%s'", character);
    if (!strcmp(character, ";")) diag_help(diag, "nothing separates statements");
    if (strpbrk(character, "%^<>!&|")) diag_help(diag, "the operators are + - * / and //");
    if (*character & 0x80 && parser->junk == 1) diag_help(diag, "names are of the letters a to z, digits and '_'; comments may hold anything");
  }
}

static void check_length(Parser *parser, int kind) {
  uint32_t length = parser->end - parser->begin, limit = kind == STRING ? AST_MAX_STRING : AST_MAX_NAME;
  if (length <= limit) return;
  const char *what = kind == STRING ? "string" : kind == NUMBER ? "number" : "name";
  parse_give_up(parser, diag_error(parser->sink, here(parser), "this %s is longer than %u characters", what, limit), NULL);
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
    parse_give_up(parser,
                  diag_error(parser->sink, here(parser),
                             "this file holds more than %d tokens, so it is hardly a model description", MAX_TOKENS),
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
