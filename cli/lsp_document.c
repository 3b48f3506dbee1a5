/* Owns: open documents, positions in them, and their compiles. */
#include "cli/lsp.h"

#include "frontend/parse.h"

#include <ctype.h>
#include <stdlib.h>

/* --- documents ----------------------------------------------------------------------------------------- */

static char *copy(const char *text) {
  char *own = strdup(text);
  if (!own) abort();
  return own;
}

static int hex(char c) {
  return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

/* file:///a%20b -> /a b; what is no file URI stays as it is. */
static char *path_of(const char *uri) {
  char *path = copy(strncmp(uri, "file://", 7) ? uri : uri + 7), *to = path;
  for (const char *from = path; *from; from++) {
    if (*from == '%' && hex(from[1]) >= 0 && hex(from[2]) >= 0) {
      *to++ = (char)(hex(from[1]) * 16 + hex(from[2]));
      from += 2;
    } else {
      *to++ = *from;
    }
  }
  *to = 0;
  return path;
}

char *lsp_uri(Arena *arena, const char *path) {
  Text uri = {.arena = arena};
  text_printf(&uri, "file://");
  text_uri(&uri, path);
  return uri.data;
}

Document *lsp_find(const Lsp *lsp, const char *uri) {
  for (uint32_t d = 0; d < lsp->count; d++)
    if (!strcmp(lsp->documents[d].uri, uri)) return &lsp->documents[d];
  return NULL;
}

Document *lsp_open(Lsp *lsp, const char *uri, const char *text) {
  Document *document = lsp_find(lsp, uri);
  if (!document) {
    Document *more = realloc(lsp->documents, (lsp->count + 1) * sizeof *more);
    if (!more) abort();
    lsp->documents = more;
    document = &lsp->documents[lsp->count++];
    *document = (Document){.uri = copy(uri), .path = path_of(uri)};
  }
  free(document->text);
  document->text = copy(text);
  document->length = strlen(text);
  return document;
}

void lsp_close(Lsp *lsp, const char *uri) {
  Document *document = lsp_find(lsp, uri);
  if (!document) return;
  free(document->uri);
  free(document->path);
  free(document->text);
  *document = lsp->documents[--lsp->count];
}

/* --- positions ----------------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 sequence that begins with c. */
static uint32_t sequence(unsigned char c) {
  return c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* Units that it takes in a position: bytes, or UTF-16 words. */
static uint32_t units(const Lsp *lsp, unsigned char c) {
  return lsp->utf8 ? sequence(c) : sequence(c) == 4 ? 2 : 1;
}

uint32_t lsp_offset(const Lsp *lsp, const Document *document, const json_t *position) {
  json_int_t line = json_integer_value(json_object_get(position, "line")),
             character = json_integer_value(json_object_get(position, "character"));
  const char *text = document->text;
  uint32_t at = 0, end = (uint32_t)document->length;
  for (; line > 0 && at < end; at++) line -= text[at] == '\n';
  while (character > 0 && at < end && text[at] != '\n') {
    character -= units(lsp, (unsigned char)text[at]);
    at += sequence((unsigned char)text[at]);
  }
  return at < end ? at : end;
}

static json_t *position_of(const Lsp *lsp, const SourceFile *file, uint32_t offset) {
  json_int_t line = 0, character = 0;
  for (uint32_t at = 0; at < offset && at < file->length;) {
    bool ends = file->text[at] == '\n';
    character = ends ? 0 : character + units(lsp, (unsigned char)file->text[at]);
    line += ends;
    at += sequence((unsigned char)file->text[at]);
  }
  return json_pack("{s:I, s:I}", "line", line, "character", character);
}

json_t *lsp_range(const Lsp *lsp, const SourceFile *file, uint32_t begin, uint32_t end) {
  return json_pack("{s:o, s:o}", "start", position_of(lsp, file, begin), "end", position_of(lsp, file, end));
}

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

size_t lsp_word(const char *text, uint32_t offset, uint32_t *begin) {
  uint32_t end = offset;
  *begin = offset;
  while (*begin && is_word(text[*begin - 1])) --*begin;
  while (is_word(text[end])) end++;
  return end - *begin;
}

/* --- compiles ------------------------------------------------------------------------------------------ */

static void parse_all(Analysis *a) {
  for (uint32_t f = 0; f < a->sources.files.count; f++) {
    DiagSink quiet = {.arena = a->arena, .sources = &a->sources};
    vec_push(a->arena, &a->files, parse_file(a->arena, &a->sources, &quiet, (int32_t)f));
  }
}

/* A second compile, for the graph: a check accepts files without a model. Spans of both count files alike. */
static void compile(Analysis *a, const Document *document, const FrontendOptions *options) {
  SourceSet sources = {.arena = a->arena, .overlays = {a->sources.overlays.data, a->sources.overlays.count, a->sources.overlays.capacity}};
  DiagSink quiet = {.arena = a->arena, .sources = &sources};
  a->graph = frontend_compile(a->arena, &sources, &quiet, document->path, options);
}

Analysis *lsp_analyse(const Lsp *lsp, const Document *document) {
  Arena *arena = arena_new();
  Analysis *a = ARENA_NEW(arena, Analysis);
  FrontendOptions options = compile_options(lsp->cli);
  a->arena = a->sources.arena = a->sink.arena = arena;
  a->sink.sources = &a->sources;
  for (uint32_t d = 0; d < lsp->count; d++) {
    SourceFile overlay = {lsp->documents[d].path, lsp->documents[d].text, lsp->documents[d].length};
    vec_push(arena, &a->sources.overlays, overlay);
  }
  frontend_check(arena, &a->sources, &a->sink, document->path, &options);
  parse_all(a);
  if (!a->sink.errors) compile(a, document, &options);
  return a;
}

void lsp_analysis_free(Analysis *analysis) {
  arena_free(analysis->arena);
}
