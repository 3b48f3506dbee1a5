/* Owns: the wording of syntax errors: what was expected, what else it may have been meant to be. */
#include "frontend/parse.h"
#include "base/text.h"
#include "parser.h"

enum { SHOWN_BYTES = 40 };

const char *parse_shown(Parser *parser, Span span) {
  uint32_t length = span.end - span.begin;
  if (length <= SHOWN_BYTES) return arena_strndup(parser->arena, parser->text + span.begin, length);
  length = SHOWN_BYTES;
  while (((unsigned char)parser->text[span.begin + length] & 0xc0) == 0x80) length--;
  return arena_printf(parser->arena, "%.*s...", (int)length, parser->text + span.begin);
}

void parse_give_up(Parser *parser, Diag *diag, const char *help) {
  if (help) diag_help(diag, "%s", help);
  parser->fatal = true;
}

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

/* The keyword that is meant: the nearest, else the one that the word goes on from, as "training" does. */
static const char *meant_keyword(const char *word, const char *const *words, uint32_t count) {
  const char *near = text_nearest(word, words, count);
  for (uint32_t i = 0; !near && i < count; i++)
    if (strlen(words[i]) > 3 && !strncmp(word, words[i], strlen(words[i]))) near = words[i];
  return near;
}

/* Where something in parentheses cannot stand behind this word: a call for its own sake, `h.f(x)`, `int(batch, 8)`. */
static void help_parentheses(Parser *parser, Diag *diag, const Token *word, bool names_result) {
  const char *shown = parse_shown(parser, (Span){parser->file, word->begin, word->end}), *inside = parser->text + parser->held_span.end;
  int length = (int)strcspn(inside, ")\n");
  bool is_type = word > parser->ast->tokens.data && word[-1].kind == ':';
  if (word > parser->ast->tokens.data && word[-1].kind == '.') diag_help(diag, "layers and modules have plain names: `%s(...)`", shown);
  else if (is_type && inside[length] == ')' && length <= SHOWN_BYTES) diag_help(diag, "dimensions stand in brackets: `%s[%.*s]`", shown, length, inside);
  else if (is_type) diag_help(diag, "dimensions stand in brackets: `%s[...]`", shown);
  else if (names_result) diag_help(diag, "a result needs a name: `x = ...`");
}

/* A misspelt keyword shows at itself outside braces, and at the word after it inside. */
static void suggest_keyword(Parser *parser, Diag *diag, Span span, bool at_end, bool names_result) {
  const char *words[PARSE_MOST_KEYWORDS];
  uint32_t count = parse_keywords(parser, words), tokens = parser->ast->tokens.count, index = parser->braces ? tokens - 2 : tokens - 1;
  if (at_end || tokens < 2 || parser->ast->tokens.data[index].kind != IDENT) return;
  const Token *token = &parser->ast->tokens.data[index];
  const char *word = parse_shown(parser, (Span){span.file, token->begin, token->end}), *instead = foreign(word);
  if (instead) {
    diag_help(diag, "%s", instead);
    return;
  }
  if (parser->braces && parser->held_kind != IDENT) {
    if (parser->held_kind == '(') help_parentheses(parser, diag, token, names_result);
    return;
  }
  const char *near = meant_keyword(word, words, count);
  if (near) diag_help(diag, "did you mean \"%s\"?", near);
}

/* Where a name was expected and a word of the language stands. */
static void help_reserved(Parser *parser, Diag *diag, Span span) {
  const char *words[PARSE_MOST_KEYWORDS];
  uint32_t count = parse_keywords(parser, words);
  Text all = {.arena = parser->arena};
  if (!expects(words, (int)count, parse_shown(parser, span))) return;
  for (uint32_t i = 0; i < count; i++) text_printf(&all, "%s%s", i == 0 ? "" : i + 1 == count ? " and " : ", ", words[i]);
  diag_help(diag, "%s are words of the language and name nothing else", all.data);
}

static bool is_one_of(int kind, const char *characters) {
  return kind > 0 && kind < 128 && strchr(characters, kind);
}

/* Whether slashes stand before this on its line, outside of brackets that the line opens: as other languages begin a comment. */
static bool behind_slashes(const Parser *parser, Span span) {
  const Token *tokens = parser->ast->tokens.data;
  for (uint32_t i = parser->ast->tokens.count; i-- > 0 && !is_one_of(tokens[i].kind, "([");) {
    if (memchr(parser->text + tokens[i].begin, '\n', span.begin - tokens[i].begin)) return false;
    if (tokens[i].kind == FLOOR || (tokens[i].kind == '/' && parser->text[tokens[i].end] == '*')) return true;
  }
  return false;
}

static bool on_one_line(const Parser *parser, const Token *a, const Token *b) {
  return !memchr(parser->text + a->end, '\n', b->begin - a->end);
}

/* Whether a `let` stands before this binding on its line, as in `let a = 1 b = 2, c = 3`. */
static bool goes_on_from_let(const Parser *parser, uint32_t binding) {
  const Token *tokens = parser->ast->tokens.data;
  for (uint32_t i = binding; i-- > 0 && on_one_line(parser, &tokens[i], &tokens[i + 1]);)
    if (tokens[i].kind == LET) return true;
  return false;
}

static void help_let(Parser *parser, Diag *diag, uint32_t binding) {
  const Token *token = &parser->ast->tokens.data[binding];
  const char *name = parse_shown(parser, (Span){parser->file, token->begin, token->end});
  if (goes_on_from_let(parser, binding)) diag_help(diag, "a comma is missing before \"%s\"", name);
  else diag_help(diag, "constants are stated with `let`, as in `let %s = ...`", name);
}

/* What stands before this was meant to be: a comment, `repeat i in 4 as h { ... }`, a name with a dash, `let a = 1, b = 2`. */
static void help_before(Parser *parser, Diag *diag, Span span) {
  const Token *tokens = parser->ast->tokens.data;
  uint32_t count = parser->ast->tokens.count;
  if (behind_slashes(parser, span)) diag_help(diag, "a comment begins with '#'");
  if (count < 2) return;
  if (tokens[count - 2].kind == REPEAT)
    diag_help(diag, "what is repeated is written `repeat i in N as h { ... }` or `x = repeat N f(x) as h`");
  if (parser->held_kind == '-' && count > 2 && (tokens[count - 3].kind == MODEL || tokens[count - 3].kind == MODULE))
    diag_help(diag, "names are of the letters a to z, digits and '_'");
  if (parser->held_kind == ',' && count > 3 && tokens[count - 2].kind == NUMBER && tokens[count - 3].kind == '=')
    help_let(parser, diag, count - 4);
}

static void explain(Parser *parser, Diag *diag, Span span, bool at_end, const char *const *expected, int expected_count) {
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
  suggest_keyword(parser, diag, span, at_end, expects(expected, expected_count, "'='"));
  if (!at_end) help_before(parser, diag, span);
  bool in_settings = expects(expected, expected_count, "a word"); /* of a train, cluster or plan block */
  if (in_settings && count > 1 && is_one_of(parser->held_kind, "=:,("))
    diag_help(diag, "here a key is followed by its values alone, as in `lr 6e-4`");
}

/* A line that ends before the value that it needs: wrong is that line, though it shows at the next statement, whose first name
 * may have been taken for the value. The token after which the value is missing, or NULL. */
static const Token *cut_line(const Parser *parser, bool at_end) {
  const Token *tokens = parser->ast->tokens.data;
  uint32_t next = parser->ast->tokens.count - !at_end;
  if (!at_end && next && is_one_of(tokens[next].kind, "=,") && (tokens[next - 1].kind == IDENT || tokens[next - 1].kind == PLAIN)) next--;
  if (!next) return NULL;
  const Token *last = &tokens[next - 1];
  uint32_t begin = next < parser->ast->tokens.count ? tokens[next].begin : last->end;
  bool needs = last->kind == SCALED || last->kind == FLOOR || is_one_of(last->kind, "=+-*/") ||
               (last->kind == STRING && next > 1 && tokens[next - 2].kind == INIT);
  return needs && (at_end || memchr(parser->text + last->end, '\n', begin - last->end)) ? last : NULL;
}

static void report_cut_line(Parser *parser, Span span, const Token *token) {
  Span place = {span.file, token->begin, token->end};
  const char *word = parse_shown(parser, place);
  if (token->kind == STRING) {
    diag_help(diag_error(parser->sink, place, "expected initial values after %s", word), "say which: zeros, ones, normal DEVIATION or uniform BOUND");
    return;
  }
  Diag *diag = diag_error(parser->sink, place, "expected %s after \"%s\"", token->kind == SCALED ? "a number" : "an expression", word);
  if (token->kind == SCALED) diag_help(diag, "say how much, as in `init \"*.weight\" %s 0.02`", word);
}

/* The word that begins a declaration of the top level where a statement is being read, or NULL. */
static const Token *head_inside(Parser *parser) {
  static const struct {
    const char *word;
    int next[2];
  } heads[] = {{"train", {'{'}}, {"plan", {'{'}}, {"cluster", {'{', STRING}}, {"model", {IDENT}}, {"use", {STRING}}};
  uint32_t count = parser->ast->tokens.count;
  if (count < 2 || parser->ast->tokens.data[count - 2].kind != IDENT) return NULL;
  const Token *word = &parser->ast->tokens.data[count - 2];
  const char *text = parse_shown(parser, (Span){parser->file, word->begin, word->end});
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    if (!strcmp(text, heads[i].word) && (parser->held_kind == heads[i].next[0] || parser->held_kind == heads[i].next[1])) return word;
  return NULL;
}

/* `train {` in a model: a brace before it is not closed, and what follows would be read as the model's. */
static bool report_unclosed(Parser *parser, const char *const *expected, int count) {
  const Token *word = expects(expected, count, "'='") ? head_inside(parser) : NULL;
  uint32_t open = parser->open.count - (parser->held_kind == '{');
  if (!word || !open || parser->open.data[open - 1].kind != '{') return false;
  Span place = {parser->file, word->begin, word->end};
  Diag *diag = diag_error(parser->sink, place, "a '}' is missing before \"%s\"", parse_shown(parser, place));
  diag_note(diag, parser->open.data[open - 1].span, "this '{' is not closed yet");
  parse_give_up(parser, diag, NULL);
  return true;
}

/* `f(x) h` at the end of a line: the label lacks its `as`, and shows where the next statement begins. */
static bool report_label(Parser *parser, bool at_end, const char *const *expected, int count) {
  const Token *tokens = parser->ast->tokens.data;
  uint32_t next = parser->ast->tokens.count - !at_end;
  if (!expects(expected, count, "'='") || next < 2 || tokens[next - 1].kind != IDENT || tokens[next - 2].kind != ')') return false;
  if (!on_one_line(parser, &tokens[next - 2], &tokens[next - 1])) return false;
  if (!at_end && parser->held_kind != '}' && on_one_line(parser, &tokens[next - 1], &tokens[next])) return false;
  Span place = {parser->file, tokens[next - 1].begin, tokens[next - 1].end};
  Diag *diag = diag_error(parser->sink, place, "\"%s\" stands behind a call, and begins no statement", parse_shown(parser, place));
  diag_help(diag, "a label is written with `as`: `... as %s`", parse_shown(parser, place));
  return true;
}

void parse_report(Parser *parser, Span span, bool at_end, const char *const *expected, int count) {
  parser->recovering = true;
  if (!at_end) parser->pending = true; /* look at the rejected token again: it may begin the next statement */
  bool again =
      parser->reported_at == (int64_t)span.begin; /* where recovery resumed at the token that was wrong */
  if (parser->fatal || parser->junk || again) return;
  parser->reported_at = span.begin;
  const Token *cut = cut_line(parser, at_end);
  if (cut) {
    report_cut_line(parser, span, cut);
    return;
  }
  if (!at_end && report_unclosed(parser, expected, count)) return;
  if (report_label(parser, at_end, expected, count)) return;
  Names names = {0};
  for (int i = 0; i < count; i++) vec_push(parser->arena, &names, expected[i]);
  summarise(parser, &names);
  const char *saw =
      at_end ? "the end of the file" : arena_printf(parser->arena, "\"%s\"", parse_shown(parser, span));
  if (parser->text[span.begin] == '"')
    saw = arena_printf(parser->arena, "the string %s", parse_shown(parser, span));
  Diag *diag = names.count && names.count <= 4
                   ? diag_error(parser->sink, span, "expected %s, saw %s", either(parser, &names), saw)
                   : diag_error(parser->sink, span, "unexpected %s", saw);
  explain(parser, diag, span, at_end, expected, count);
  if (names.count == 1 && !strcmp(names.data[0], "a name")) help_reserved(parser, diag, span);
  if (names.count == 1 && !strcmp(names.data[0], "a string")) diag_help(diag, "patterns and paths of files stand in quotes");
  if (!at_end && parser->ast->tokens.count == 1 && parser->text[span.begin] == '{')
    diag_help(diag, "'fsdpc import' makes a model of the config.json of a Hugging Face model");
}

void fsdp_error(const Span *span, Parser *parser, const char *text) {
  (void)text; /* only when the parser's stack is full, which brackets cannot do */
  if (!parser->fatal) parse_give_up(parser, diag_error(parser->sink, *span, "this expression nests too deeply"), "give names to parts of the expression");
}
