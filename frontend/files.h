/* Owns: finding, reading and parsing the files that a compile touches: the main file, those it uses, a
 * cluster file.
 *
 * A path in `use` is relative to the using file, then to the models folder. A file is read once however often
 * it is used; a file that uses itself, directly or not, is an error. */
#ifndef FSDPC_FRONTEND_FILES_H
#define FSDPC_FRONTEND_FILES_H

#include "base/diag.h"
#include "frontend/ast.h"

enum { FILES_MAX = 100 };

typedef struct File {
  const char *real; /* canonical path: two spellings of one file are one */
  const Ast *ast;   /* NULL: it does not parse */
  Span used_at;
  bool open; /* its own uses are being read */
} File;

typedef struct Files {
  Arena *arena; /* borrowed, as are the next three */
  SourceSet *sources;
  DiagSink *sink;
  const char *models; /* the models folder */
  VEC(File) list;
  VEC(int32_t) order; /* files that parse, each after those it uses */
  uint64_t hash;      /* FNV-1a over the contents, in order of reading */
} Files;

void files_init(Files *files, Arena *arena, SourceSet *sources, DiagSink *sink, const char *models);
/* The file that `path` names at `at` (SPAN_NONE: the command line). -1 after an error. */
int32_t files_open(Files *files, const char *path, Span at);
void files_hash(Files *files, const void *bytes, size_t length);

#endif
