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

static int32_t read_open_file(SourceSet *set, FILE *in, const char *path, size_t size, const char **why) {
  char *text = arena_alloc(set->arena, size + 1);
  size_t got = fread(text, 1, size, in);
  if (ferror(in) || got != size) {
    *why = "it could not be read whole";
    return -1;
  }
  if (memchr(text, 0, size)) {
    *why = "it holds NUL bytes, so it is not text";
    return -1;
  }
  SourceFile file = {arena_strdup(set->arena, path), text, size};
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
    *why = most == SOURCE_MAX_BYTES ? "it is larger than 64 MiB, so it is hardly a model description"
                                    : arena_printf(set->arena, "it is larger than %zu MiB", most >> 20);
  } else {
    file = read_open_file(set, in, path, (size_t)info.st_size, why);
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
