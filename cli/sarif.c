/* Owns: diagnostics as SARIF 2.1.0, which code hosts show beside the lines of a change. Columns count code points. */
#include "cli/cli.h"

#include "base/hash.h"

#include <jansson.h>
#include <string.h>

/* Code points of the line before `offset`, and one: SARIF columns begin at 1. */
static json_int_t column_of(const SourceFile *file, uint32_t offset) {
  uint32_t begin = offset;
  json_int_t column = 1;
  while (begin && file->text[begin - 1] != '\n') begin--;
  for (uint32_t i = begin; i < offset; i++) column += ((unsigned char)file->text[i] & 0xc0) != 0x80;
  return column;
}

static json_t *location(const DiagSink *sink, Span span) {
  const SourceFile *file = &sink->sources->files.data[span.file];
  Text uri = {.arena = sink->arena};
  text_uri(&uri, file->path);
  uint32_t end_offset = span.end > span.begin ? span.end : span.begin;
  Position begin = source_position(sink->sources, span.file, span.begin), end = source_position(sink->sources, span.file, end_offset);
  json_t *region = json_pack("{s:I, s:I, s:I, s:I}", "startLine", (json_int_t)begin.line, "startColumn", column_of(file, span.begin), "endLine",
                             (json_int_t)end.line, "endColumn", column_of(file, end_offset));
  return json_pack("{s:{s:{s:s}, s:o}}", "physicalLocation", "artifactLocation", "uri", uri.data, "region", region);
}

/* Stays the same while the message and the line's text do, wherever the line moves. */
static char *fingerprint(const DiagSink *sink, const Diag *diag) {
  uint64_t hash = hash_bytes(HASH_START, diag->text, strlen(diag->text));
  if (diag->span.file >= 0) {
    const SourceFile *file = &sink->sources->files.data[diag->span.file];
    uint32_t begin = diag->span.begin;
    while (begin && file->text[begin - 1] != '\n') begin--;
    hash = hash_bytes(hash, file->text + begin, strcspn(file->text + begin, "\n"));
  }
  return arena_printf(sink->arena, "%016llx", (unsigned long long)hash);
}

static json_t *result(const DiagSink *sink, const Diag *diag) {
  Text text = {.arena = sink->arena};
  text_printf(&text, "%s", diag->text);
  for (uint32_t h = 0; h < diag->helps.count; h++) text_printf(&text, "\nhelp: %s", diag->helps.data[h]);
  bool error = diag->level == DIAG_ERROR;
  json_t *object = json_pack("{s:s, s:i, s:s, s:{s:s}, s:{s:s}}", "ruleId", error ? "error" : "warning", "ruleIndex", error ? 0 : 1, "level",
                             error ? "error" : "warning", "message", "text", text_utf8(sink->arena, text.data), "partialFingerprints", "fsdpc/v1",
                             fingerprint(sink, diag));
  json_t *places = json_array(), *notes = json_array();
  if (diag->span.file >= 0) json_array_append_new(places, location(sink, diag->span));
  for (uint32_t n = 0; n < diag->notes.count; n++) {
    const DiagNote *note = &diag->notes.data[n];
    if (note->span.file < 0) continue;
    json_t *place = location(sink, note->span);
    json_object_set_new(place, "message", json_pack("{s:s}", "text", text_utf8(sink->arena, note->text)));
    json_array_append_new(notes, place);
  }
  json_object_set_new(object, "locations", places);
  json_object_set_new(object, "relatedLocations", notes);
  return object;
}

void sarif_print(const DiagSink *sink, FILE *out) {
  json_t *results = json_array();
  for (uint32_t d = 0; d < sink->list.count; d++) json_array_append_new(results, result(sink, sink->list.data[d]));
  json_t *rules = json_pack("[{s:s, s:{s:s}}, {s:s, s:{s:s}}]", "id", "error", "shortDescription", "text", "the file cannot be compiled", "id",
                            "warning", "shortDescription", "text", "the file may not mean what it says");
  json_t *driver = json_pack("{s:s, s:s, s:o}", "name", "fsdpc", "version", FSDPC_VERSION, "rules", rules);
  json_t *run = json_pack("{s:{s:o}, s:s, s:o}", "tool", "driver", driver, "columnKind", "unicodeCodePoints", "results", results);
  json_t *log = json_pack("{s:s, s:s, s:[o]}", "$schema", "https://json.schemastore.org/sarif-2.1.0.json", "version", "2.1.0", "runs", run);
  json_dumpf(log, out, JSON_INDENT(2));
  fprintf(out, "\n");
  json_decref(log);
}
