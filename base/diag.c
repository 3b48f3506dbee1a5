/* Owns: collecting, ordering and printing diagnostics. */
#include "base/diag.h"

#include "base/text.h"
#include <jansson.h>

/* Behind the others; where there is no more room, an error in the place of the last warning. */
static void keep(DiagSink *sink, Diag *diag) {
  if (sink->list.count < DIAG_LIMIT) {
    vec_push(sink->arena, &sink->list, diag);
    return;
  }
  uint32_t i = DIAG_LIMIT;
  while (i > 0 && sink->list.data[i - 1]->level == DIAG_ERROR) i--;
  if (i > 0 && diag->level == DIAG_ERROR) sink->list.data[i - 1] = diag;
}

static Diag *add(DiagSink *sink, DiagLevel level, Span span, const char *format, va_list args) {
  Diag *diag = ARENA_NEW(sink->arena, Diag);
  diag->arena = sink->arena;
  diag->level = level;
  diag->span = span;
  diag->text = arena_vprintf(sink->arena, format, args);
  keep(sink, diag);
  return diag;
}

Diag *diag_error(DiagSink *sink, Span span, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Diag *diag = add(sink, DIAG_ERROR, span, format, args);
  va_end(args);
  sink->errors++;
  return diag;
}

Diag *diag_warning(DiagSink *sink, Span span, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Diag *diag = add(sink, DIAG_WARNING, span, format, args);
  va_end(args);
  sink->warnings++;
  return diag;
}

void diag_note(Diag *diag, Span span, const char *format, ...) {
  va_list args;
  va_start(args, format);
  DiagNote note = {span, arena_vprintf(diag->arena, format, args)};
  va_end(args);
  vec_push(diag->arena, &diag->notes, note);
}

void diag_help(Diag *diag, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(diag->arena, format, args);
  va_end(args);
  vec_push(diag->arena, &diag->helps, text);
}

static int compare(const void *a, const void *b) {
  Span x = (*(Diag *const *)a)->span, y = (*(Diag *const *)b)->span;
  if (x.file != y.file) return x.file < y.file ? -1 : 1;
  return (x.begin > y.begin) - (x.begin < y.begin);
}

/* Insertion sort: at most DIAG_LIMIT entries, and stable. */
static void sort(DiagSink *sink) {
  for (uint32_t i = 1; i < sink->list.count; i++)
    for (uint32_t j = i; j > 0 && compare(&sink->list.data[j - 1], &sink->list.data[j]) > 0; j--) {
      Diag *swap = sink->list.data[j];
      sink->list.data[j] = sink->list.data[j - 1];
      sink->list.data[j - 1] = swap;
    }
}

enum { CONTEXT_BYTES = 100 }; /* of a source line shown around the caret */

typedef struct Line {
  const char *start;
  uint32_t length, caret; /* caret: bytes from start */
} Line;

/* The source line that holds offset, cut to CONTEXT_BYTES around it. */
static Line line_around(const SourceFile *file, uint32_t offset) {
  if (offset > file->length) offset = (uint32_t)file->length;
  const char *begin = file->text + offset, *end = begin;
  while (begin > file->text && begin[-1] != '\n') begin--;
  while (*end && *end != '\n' && end - begin < (1 << 20)) end++;
  const char *at = file->text + offset;
  if (end - begin > CONTEXT_BYTES) {
    if (at - begin > CONTEXT_BYTES / 2) begin = at - CONTEXT_BYTES / 2;
    while (begin < at && ((unsigned char)*begin & 0xc0) == 0x80) begin++; /* not inside a UTF-8 sequence */
    if (end - begin > CONTEXT_BYTES) end = begin + CONTEXT_BYTES;
  }
  if (end > begin && end[-1] == '\r') end--;
  return (Line){begin, (uint32_t)(end - begin), (uint32_t)(at - begin)};
}

static void print_source(const DiagSink *sink, FILE *out, Span span) {
  const SourceFile *file = &sink->sources->files.data[span.file];
  Line line = line_around(file, span.begin);
  int gutter = fprintf(out, "%u", source_position(sink->sources, span.file, span.begin).line);
  fputs(" | ", out);
  fputs(text_mask(arena_strndup(sink->arena, line.start, line.length), line.length), out);
  fprintf(out, "\n%*s | ", gutter, "");
  for (uint32_t i = 0; i < line.caret && i < line.length; i++) fputc(line.start[i] == '\t' ? '\t' : ' ', out);
  fputc('^', out);
  for (uint32_t i = 1; i < span.end - span.begin && line.caret + i < line.length; i++) fputc('~', out);
  fputc('\n', out);
}

static const char *shown(const DiagSink *sink, const char *text) {
  return text_mask(arena_strdup(sink->arena, text), strlen(text));
}

static void print_head(const DiagSink *sink, FILE *out, Span span, const char *level, const char *color,
                       const char *text) {
  if (span.file >= 0) {
    Position at = source_position(sink->sources, span.file, span.begin);
    fprintf(out, "%s:%u:%u: ", shown(sink, sink->sources->files.data[span.file].path), at.line, at.column);
  } else {
    fputs("fsdpc: ", out);
  }
  fprintf(out, "%s%s:%s %s\n", color, level, *color ? "\033[0m" : "", shown(sink, text));
  if (span.file >= 0) print_source(sink, out, span);
}

static const char *const level_names[] = {"error", "warning"};

void diag_print(DiagSink *sink, FILE *out, bool color) {
  static const char *const colors[] = {"\033[1;31m", "\033[1;35m"};
  sort(sink);
  for (uint32_t i = 0; i < sink->list.count; i++) {
    const Diag *diag = sink->list.data[i];
    print_head(sink, out, diag->span, level_names[diag->level], color ? colors[diag->level] : "", diag->text);
    for (uint32_t n = 0; n < diag->notes.count; n++)
      print_head(sink, out, diag->notes.data[n].span, "note", color ? "\033[1;36m" : "", diag->notes.data[n].text);
    for (uint32_t h = 0; h < diag->helps.count; h++) fprintf(out, "help: %s\n", shown(sink, diag->helps.data[h]));
  }
  uint32_t hidden = sink->errors + sink->warnings - sink->list.count;
  if (hidden) fprintf(out, "fsdpc: %u more not shown\n", hidden);
}

static void set_place(const DiagSink *sink, json_t *object, Span span) {
  if (span.file < 0) return;
  Position begin = source_position(sink->sources, span.file, span.begin);
  Position end = source_position(sink->sources, span.file, span.end);
  json_object_set_new(object, "file", json_string(text_utf8(sink->arena, sink->sources->files.data[span.file].path)));
  json_object_set_new(object, "line", json_integer(begin.line));
  json_object_set_new(object, "column", json_integer(begin.column));
  json_object_set_new(object, "end_line", json_integer(end.line));
  json_object_set_new(object, "end_column", json_integer(end.column));
}

static json_t *diag_json(const DiagSink *sink, const Diag *diag) {
  json_t *object = json_object(), *notes = json_array(), *helps = json_array();
  json_object_set_new(object, "level", json_string(level_names[diag->level]));
  set_place(sink, object, diag->span);
  json_object_set_new(object, "message", json_string(text_utf8(sink->arena, diag->text)));
  for (uint32_t i = 0; i < diag->notes.count; i++) {
    json_t *note = json_object();
    set_place(sink, note, diag->notes.data[i].span);
    json_object_set_new(note, "message", json_string(text_utf8(sink->arena, diag->notes.data[i].text)));
    json_array_append_new(notes, note);
  }
  for (uint32_t i = 0; i < diag->helps.count; i++) json_array_append_new(helps, json_string(text_utf8(sink->arena, diag->helps.data[i])));
  json_object_set_new(object, "notes", notes);
  json_object_set_new(object, "helps", helps);
  return object;
}

void diag_print_json(DiagSink *sink, FILE *out) {
  sort(sink);
  json_t *root = json_object(), *list = json_array();
  json_object_set_new(root, "schema_version", json_integer(1));
  json_object_set_new(root, "errors", json_integer(sink->errors));
  json_object_set_new(root, "warnings", json_integer(sink->warnings));
  for (uint32_t i = 0; i < sink->list.count; i++) json_array_append_new(list, diag_json(sink, sink->list.data[i]));
  json_object_set_new(root, "diagnostics", list);
  json_dumpf(root, out, JSON_INDENT(2));
  fputc('\n', out);
  json_decref(root);
}
