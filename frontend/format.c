/* Owns: canonical layout. It works on tokens and the gaps between them, so that comments and the user's line
 * breaks stay; indentation, spaces and blank lines are ours. Formatting twice changes nothing more.
 *
 *   - two blanks for each line that opens brackets still open; one level more where a statement goes on
 *   - one blank between words; none inside parentheses; `*` and `/` are tight between plain names and numbers
 *   - in train, cluster and plan blocks two blanks may set a key apart from the one before it on its line
 *   - at most one empty line; none after '{' or before '}'
 *   - comments at the ends of neighbouring lines are aligned */
#include "frontend/graph.h"
#include "frontend/parse.h"
#include "parser.h"

#include <libgen.h>
#include <limits.h>
#include <stdlib.h>

typedef struct Line {
  uint32_t indent;
  bool blank; /* an empty line precedes it */
  Text code;
  const char *comment; /* NULL: none */
} Line;

typedef struct Bracket {
  int kind;
  uint32_t line;
} Bracket;

typedef struct Formatter {
  Arena *arena;
  const char *text;
  uint32_t length;
  const Token *tokens;
  uint32_t count;
  bool block; /* inside train, cluster or plan */
  VEC(Bracket) open;
  VEC(Line) lines;
} Formatter;

static int kind_at(const Formatter *f, int64_t i) {
  return i < 0 || i >= (int64_t)f->count ? 0 : f->tokens[i].kind;
}

static bool is_operator(int kind) {
  return kind == '+' || kind == '-' || kind == '*' || kind == '/' || kind == FLOOR;
}
static bool is_closer(int kind) {
  return kind == ')' || kind == ']' || kind == '}';
}
static bool is_opener(int kind) {
  return kind == '(' || kind == '[' || kind == '{';
}

/* A minus that belongs to the number or name after it. */
static bool is_sign(const Formatter *f, int64_t i) {
  int before = kind_at(f, i - 1);
  if (kind_at(f, i) != '-') return false;
  return f->block || !before || is_operator(before) || is_opener(before) || before == '=' || before == ',' ||
         before == RETURN || before == REPEAT || before == IN || before == SCALED;
}

static bool is_plain(int kind) {
  return kind == IDENT || kind == NUMBER;
}

/* 3*d, but silu(x) * y */
static bool is_tight(const Formatter *f, int64_t i) {
  int kind = kind_at(f, i), after = kind_at(f, i + 2);
  if (kind != '*' && kind != '/' && kind != FLOOR) return false;
  return is_plain(kind_at(f, i - 1)) && is_plain(kind_at(f, i + 1)) && after != '(' && after != '.' &&
         kind_at(f, i - 2) != '.';
}

static bool same_line(const Formatter *f, uint32_t i) {
  return i > 0 && i < f->count &&
         !memchr(f->text + f->tokens[i - 1].end, '\n', f->tokens[i].begin - f->tokens[i - 1].end);
}

/* Blanks between token i and the one after it, which stand on one line. */
static uint32_t blanks_after(const Formatter *f, int64_t i, bool wide) {
  int a = kind_at(f, i), b = kind_at(f, i + 1);
  if (a == '.' && b == NUMBER && kind_at(f, i - 1) == NUMBER) return 1; /* `0. 5` is an error, and 0.5 another number */
  if (b == ',' || b == ')' || b == ']' || b == '.' || b == ':' || a == '(' || a == '[' || a == '.') return 0;
  if ((b == '(' || b == '[') && a == IDENT) return 0;
  if (is_sign(f, i) || is_tight(f, i) || is_tight(f, i + 1) || (a == '{' && b == '}')) return 0;
  bool between_keys =
      f->block && b == WORD && i > 0 && a != '{' && kind_at(f, i - 1) != '{' && same_line(f, (uint32_t)i);
  return wide && between_keys ? 2 : 1;
}

/* --- indentation ---------------------------------------------------------------------------------------- */

static uint32_t levels(const Formatter *f, uint32_t open) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < open; i++) count += i == 0 || f->open.data[i].line != f->open.data[i - 1].line;
  return count;
}

/* A line that begins with token i. Closing brackets at its beginning belong outside. */
static uint32_t indent_of(const Formatter *f, uint32_t i) {
  uint32_t open = f->open.count;
  for (uint32_t k = i; open && is_closer(kind_at(f, k)) && (k == i || same_line(f, k)); k++) open--;
  bool goes_on =
      i > 0 && (is_operator(kind_at(f, i - 1)) || kind_at(f, i - 1) == '=' || kind_at(f, i - 1) == ',' ||
                (is_operator(kind_at(f, i)) && !f->block) || kind_at(f, i) == AS);
  bool in_list = f->open.count && f->open.data[f->open.count - 1].kind != '{';
  return levels(f, open) + (goes_on && !in_list);
}

static Line *new_line(Formatter *f, uint32_t indent, bool blank) {
  Line *line = vec_add(f->arena, &f->lines);
  line->indent = indent;
  line->blank = blank && f->lines.count > 1;
  line->code.arena = f->arena;
  return line;
}

/* --- gaps ----------------------------------------------------------------------------------------------- */

/* What lies between two tokens. */
typedef struct Gap {
  uint32_t breaks; /* line breaks since the last comment or token */
  bool wide;       /* at least two blanks on one line */
} Gap;

static const char *comment_text(const Formatter *f, uint32_t begin, uint32_t end) {
  while (end > begin && strchr(" \t\r", f->text[end - 1])) end--;
  return arena_strndup(f->arena, f->text + begin, end - begin);
}

static void place_comment(Formatter *f, const Gap *gap, const char *comment, uint32_t next) {
  bool trailing = !gap->breaks && f->lines.count && !f->lines.data[f->lines.count - 1].comment;
  if (trailing) {
    f->lines.data[f->lines.count - 1].comment = comment;
    return;
  }
  bool after_brace =
      next > 0 && kind_at(f, (int64_t)next - 1) == '{' && !f->lines.data[f->lines.count - 1].comment;
  after_brace = after_brace && f->lines.data[f->lines.count - 1].code.length;
  uint32_t indent = is_closer(kind_at(f, next)) ? levels(f, f->open.count) : indent_of(f, next);
  new_line(f, indent, gap->breaks > 1 && !after_brace)->comment = comment;
}

/* Places the comments in front of token `next` and says how the rest of the gap looks. */
static Gap read_gap(Formatter *f, uint32_t begin, uint32_t end, uint32_t next) {
  Gap gap = {0};
  uint32_t blanks = 0;
  for (uint32_t i = begin; i < end; i++) {
    if (f->text[i] == '\n') gap.breaks++;
    blanks = f->text[i] == ' ' || f->text[i] == '\t' ? blanks + 1 : 0;
    gap.wide |= blanks > 1;
    if (f->text[i] != '#') continue;
    uint32_t stop = i;
    while (stop < end && f->text[stop] != '\n') stop++;
    place_comment(f, &gap, comment_text(f, i, stop), next);
    gap.breaks = 0;
    i = stop - 1;
  }
  return gap;
}

/* --- tokens --------------------------------------------------------------------------------------------- */

static void track(Formatter *f, int kind) {
  if (f->open.count == 0 && (kind == TRAIN || kind == CLUSTER || kind == PLAN)) f->block = true;
  if (is_opener(kind)) {
    Bracket bracket = {kind, f->lines.count - 1};
    vec_push(f->arena, &f->open, bracket);
  }
  if (is_closer(kind) && f->open.count) f->open.count--;
  if (is_closer(kind) && !f->open.count) f->block = false;
}

static void place_token(Formatter *f, uint32_t i) {
  const Token *token = &f->tokens[i];
  Gap gap = read_gap(f, i ? f->tokens[i - 1].end : 0, token->begin, i);
  Line *line = f->lines.count ? &f->lines.data[f->lines.count - 1] : NULL;
  if (!line || gap.breaks || line->comment) {
    bool tight = kind_at(f, i) == '}' || (kind_at(f, (int64_t)i - 1) == '{' && line && line->code.length);
    line = new_line(f, indent_of(f, i), gap.breaks > 1 && !tight);
  } else {
    uint32_t blanks = blanks_after(f, (int64_t)i - 1, gap.wide);
    text_add(&line->code, "  ", blanks);
  }
  text_add(&line->code, f->text + token->begin, token->end - token->begin);
  track(f, token->kind);
}

/* --- output --------------------------------------------------------------------------------------------- */

static size_t width(const Line *line) {
  return 2 * line->indent + line->code.length;
}

/* Neighbouring lines with code and a comment: the comments start in one column. */
static size_t comment_column(const Formatter *f, uint32_t i) {
  uint32_t first = i, last = i;
  size_t column = 0;
  while (first > 0 && !f->lines.data[first].blank && f->lines.data[first - 1].comment &&
         f->lines.data[first - 1].code.length)
    first--;
  while (last + 1 < f->lines.count && !f->lines.data[last + 1].blank && f->lines.data[last + 1].comment &&
         f->lines.data[last + 1].code.length)
    last++;
  for (uint32_t k = first; k <= last; k++)
    if (width(&f->lines.data[k]) > column) column = width(&f->lines.data[k]);
  return column + 2;
}

static void write_line(Text *out, const Formatter *f, uint32_t i, size_t column) {
  const Line *line = &f->lines.data[i];
  if (line->blank) text_add(out, "\n", 1);
  text_printf(out, "%*s", (int)(2 * line->indent), "");
  if (line->code.length) text_add(out, line->code.data, line->code.length);
  if (line->comment && line->code.length) text_printf(out, "%*s", (int)(column - width(line)), "");
  if (line->comment) text_add(out, line->comment, strlen(line->comment));
  text_add(out, "\n", 1);
}

static const char *write_all(const Formatter *f) {
  Text out = {.arena = f->arena};
  size_t column = 0;
  for (uint32_t i = 0; i < f->lines.count; i++) {
    const Line *line = &f->lines.data[i];
    bool runs_on = i > 0 && !line->blank && f->lines.data[i - 1].comment && f->lines.data[i - 1].code.length;
    if (line->comment && line->code.length && !runs_on) column = comment_column(f, i);
    write_line(&out, f, i, column);
  }
  return out.data ? out.data : "";
}

static const char *format_ast(Arena *arena, const SourceSet *sources, const Ast *ast) {
  const SourceFile *source = &sources->files.data[ast->file];
  Formatter f = {.arena = arena,
                 .text = source->text,
                 .length = (uint32_t)source->length,
                 .tokens = ast->tokens.data,
                 .count = ast->tokens.count};
  for (uint32_t i = 0; i < f.count; i++) place_token(&f, i);
  read_gap(&f, f.count ? f.tokens[f.count - 1].end : 0, f.length, f.count);
  return write_all(&f);
}

static Ast *read_ast(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path) {
  const char *why;
  int32_t file = source_read(sources, path, &why);
  if (file >= 0) return parse_file(arena, sources, sink, file);
  diag_error(sink, SPAN_NONE, "cannot read \"%s\": %s", path, why);
  return NULL;
}

const char *frontend_format(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path) {
  const Ast *ast = read_ast(arena, sources, sink, path);
  return ast ? format_ast(arena, sources, ast) : NULL;
}

const char *frontend_format_text(Arena *arena, SourceSet *sources, DiagSink *sink, const char *name, const char *text) {
  const Ast *ast = parse_file(arena, sources, sink, source_add(sources, name, text, strlen(text)));
  return ast ? format_ast(arena, sources, ast) : NULL;
}

/* --- another plan block ------------------------------------------------------------------------------------ */

/* The byte after the brace that closes the block which begins here. */
static uint32_t block_end(const Ast *ast, uint32_t begin) {
  uint32_t depth = 0;
  for (uint32_t i = 0; i < ast->tokens.count; i++) {
    const Token *token = &ast->tokens.data[i];
    if (token->begin < begin) continue;
    if (token->kind == '{') depth++;
    if (token->kind == '}' && --depth == 0) return token->end;
  }
  return begin;
}

/* The folder of a path as it really is, or NULL. */
static const char *real_folder(Arena *arena, const char *path) {
  char real[PATH_MAX];
  return realpath(dirname(arena_strdup(arena, path)), real) ? arena_strdup(arena, real) : NULL;
}

/* To a file from a folder, both real paths. */
static const char *path_from(Arena *arena, const char *folder, const char *file) {
  size_t shared = 0;
  for (size_t i = 0; folder[i] == file[i] && file[i]; i++)
    if (file[i] == '/' || (folder[i + 1] == '\0' && file[i + 1] == '/')) shared = i + 1;
  Text out = {.arena = arena};
  for (const char *up = folder + (shared < strlen(folder) ? shared : strlen(folder)); *up; up = strchr(up, '/') ? strchr(up, '/') + 1 : "")
    text_printf(&out, "../");
  text_printf(&out, "%s", file + shared + (file[shared] == '/'));
  return out.data;
}

/* How a file that lies in another folder names what this one uses; NULL: by the same name, as of what the models folder has. */
static const char *used_from(Arena *arena, const char *path, const char *name, const char *place, const char *folder) {
  char real[PATH_MAX], models[PATH_MAX];
  const char *own = real_folder(arena, path), *other = real_folder(arena, place);
  if (*name == '/' || !own || !other || !strcmp(own, other)) return NULL;
  if (!realpath(arena_printf(arena, "%s/%s", own, name), real)) return NULL;
  if (realpath(arena_printf(arena, "%s/%s", folder, name), models) && !strcmp(real, models)) return NULL;
  return path_from(arena, other, real);
}

/* Another text of a file, being made. */
typedef struct Rewrite {
  const Ast *ast;
  const char *path, *text, *place, *models;
  uint32_t at; /* up to here it is done */
  Text out;
} Rewrite;

static void copy_until(Rewrite *r, uint32_t end) {
  text_add(&r->out, r->text + r->at, end - r->at);
  r->at = end;
}

/* In blocks it is a word like others. */
static bool is_use(const Rewrite *r, const Token *token) {
  return token->end - token->begin == 3 && !strncmp(r->text + token->begin, "use", 3);
}

/* Up to there; what it uses is named as from its new place. */
static void rewrite_uses(Rewrite *r, uint32_t end) {
  for (uint32_t i = 1; i < r->ast->tokens.count; i++) {
    const Token *token = &r->ast->tokens.data[i];
    if (token->kind != STRING || !is_use(r, token - 1) || token->begin < r->at || token->end > end) continue;
    const char *name = arena_strndup(r->out.arena, r->text + token->begin + 1, token->end - token->begin - 2);
    const char *moved = used_from(r->out.arena, r->path, name, r->place, r->models);
    if (!moved) continue;
    copy_until(r, token->begin);
    text_printf(&r->out, "\"%s\"", moved);
    r->at = token->end;
  }
  copy_until(r, end);
}

const char *frontend_with_plan(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path, const char *block, const char *place,
                               const char *models) {
  const Ast *ast = read_ast(arena, sources, sink, path);
  if (!ast) return NULL;
  const char *text = sources->files.data[ast->file].text;
  Rewrite r = {.ast = ast, .path = path, .text = text, .place = place, .models = models, .out = {.arena = arena}};
  for (uint32_t i = 0; i < ast->statements->count; i++) {
    const Stmt *stmt = ast->statements->data[i];
    if (stmt->kind != STMT_BLOCK || strcmp(stmt->type.text, "plan")) continue;
    rewrite_uses(&r, stmt->span.begin);
    r.at = block_end(ast, stmt->span.begin);
  }
  rewrite_uses(&r, (uint32_t)sources->files.data[ast->file].length);
  text_printf(&r.out, "\n%s", block);
  return frontend_format_text(arena, sources, sink, path, r.out.data);
}
