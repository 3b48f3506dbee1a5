/* Owns: reading source files, and byte offset -> line and column. */
#include "base/source.h"

#include "base/file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

int32_t source_add(SourceSet *set, const char *path, const char *text, size_t length) {
  SourceFile file = {arena_strdup(set->arena, path), arena_strndup(set->arena, text, length), length};
  vec_push(set->arena, &set->files, file);
  return (int32_t)set->files.count - 1;
}

/* Beyond what the file is said to hold: it may grow, and those of /proc are said to hold nothing. */
static char *read_to_end(Arena *arena, FILE *in, size_t said, size_t most, size_t *length) {
  size_t room = said + 1;
  char *text = arena_alloc(arena, room + 1);
  *length = 0;
  while ((*length += fread(text + *length, 1, room - *length, in)) == room && room <= most) {
    text = memcpy(arena_alloc(arena, 2 * room + 1), text, room);
    room *= 2;
  }
  return text;
}

static const char *too_large(Arena *arena, size_t most) {
  return most == SOURCE_MAX_BYTES ? "it is larger than 64 MiB, so it is hardly a model description"
                                  : arena_printf(arena, "it is larger than %zu MiB", most >> 20);
}

static const char *not_text(Arena *arena, const char *text, size_t length) {
  uint32_t line = 1, column = 1;
  for (const char *c = text; *c; c++) column = *c == '\n' ? line++, 1 : column + 1;
  bool wide = length >= 2 && (!memcmp(text, "\xff\xfe", 2) || !memcmp(text, "\xfe\xff", 2));
  return arena_printf(arena, "it holds a NUL byte (line %u, column %u), so it is not text%s", line, column, wide ? "; it begins as UTF-16: save it as UTF-8" : "");
}

static int32_t read_open_file(SourceSet *set, FILE *in, const char *path, size_t said, size_t most, const char **why) {
  size_t length;
  char *text = read_to_end(set->arena, in, said, most, &length);
  *why = ferror(in)                ? "it could not be read whole"
         : length > most           ? too_large(set->arena, most)
         : memchr(text, 0, length) ? not_text(set->arena, text, length)
                                  : NULL;
  if (*why) return -1;
  SourceFile file = {arena_strdup(set->arena, path), text, length};
  vec_push(set->arena, &set->files, file);
  return (int32_t)set->files.count - 1;
}

int32_t source_read(SourceSet *set, const char *path, const char **why) {
  return source_read_most(set, path, SOURCE_MAX_BYTES, why);
}

/* Two spellings of one path are one file. */
static bool same_file(const char *a, const char *b) {
  struct stat x, y;
  if (strcmp(a, b) == 0) return true;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

const SourceFile *source_overlay(const SourceSet *set, const char *path) {
  for (uint32_t i = 0; i < set->overlays.count; i++)
    if (same_file(set->overlays.data[i].path, path)) return &set->overlays.data[i];
  return NULL;
}

int32_t source_read_most(SourceSet *set, const char *path, size_t most, const char **why) {
  struct stat info;
  const SourceFile *overlay = source_overlay(set, path);
  if (overlay) return source_add(set, path, overlay->text, overlay->length);
  FILE *in = file_open(path, why);
  if (!in) return -1;
  int32_t file = -1;
  if (fstat(fileno(in), &info) != 0) {
    *why = strerror(errno);
  } else if ((uint64_t)info.st_size > most) {
    *why = too_large(set->arena, most);
  } else {
    file = read_open_file(set, in, path, (size_t)info.st_size, most, why);
  }
  fclose(in);
  return file;
}

Position source_position(const SourceSet *set, int32_t file, uint32_t offset) {
  const SourceFile *source = &set->files.data[file];
  Position at = {1, 1};
  if (offset > source->length) offset = (uint32_t)source->length;
  for (uint32_t i = 0; i < offset; i++) {
    at.column++;
    if (source->text[i] == '\n') at = (Position){at.line + 1, 1};
  }
  return at;
}

Span span_join(Span a, Span b) {
  if (a.file != b.file) return a;
  return (Span){a.file, a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}
