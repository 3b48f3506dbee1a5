/* Owns: source files and positions in them. A Span is a byte range; line and column are computed only when a
 * diagnostic is printed. Columns count bytes, 1-based, as clang's do. */
#ifndef FSDPC_BASE_SOURCE_H
#define FSDPC_BASE_SOURCE_H

#include "base/vec.h"
#include <stdint.h>

typedef struct Span {
  int32_t file;        /* index in SourceSet, -1: no position (command line, built in) */
  uint32_t begin, end; /* byte offsets, half open */
} Span;

#define SPAN_NONE ((Span){-1, 0, 0})

typedef struct SourceFile {
  const char *path; /* as the user wrote it */
  const char *text; /* NUL-terminated, `length` bytes before the NUL */
  size_t length;
} SourceFile;

typedef struct SourceSet {
  Arena *arena; /* borrowed */
  VEC(SourceFile) files;
  VEC(SourceFile) overlays; /* texts of an editor or of the program: read instead of the file that path names, if there is one */
} SourceSet;

enum { SOURCE_MAX_BYTES = 64 << 20 };

typedef struct Position {
  uint32_t line, column; /* 1-based; column in bytes */
} Position;

/* Reads a file whole. Returns its index, or -1 with a reason in *why (static or arena text). Directories, files
 * above SOURCE_MAX_BYTES and files with NUL bytes are refused. */
int32_t source_read(SourceSet *set, const char *path, const char **why);
/* The same with another limit (below 4 GiB: spans are 32 bits): plans grow larger than models. */
int32_t source_read_most(SourceSet *set, const char *path, size_t most, const char **why);
/* What is read instead of this file, or NULL. */
const SourceFile *source_overlay(const SourceSet *set, const char *path);
/* Adds text that is already in memory (copied). */
int32_t source_add(SourceSet *set, const char *path, const char *text, size_t length);
Position source_position(const SourceSet *set, int32_t file, uint32_t offset);
/* From the first byte of a to the last of b (same file; else a). */
Span span_join(Span a, Span b);

#endif
