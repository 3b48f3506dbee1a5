/* Owns: what the files of the language server share. Each answer compiles the document anew: models compile in milliseconds,
 * and nothing can be out of date. */
#ifndef FSDPC_CLI_LSP_H
#define FSDPC_CLI_LSP_H

#include "cli/cli.h"
#include "frontend/ast.h"

#include <jansson.h>

/* An open document; everything is malloc'd. */
typedef struct Document {
  char *uri, *path, *text;
  size_t length;
} Document;

typedef struct Lsp {
  const Cli *cli;
  Document *documents;
  uint32_t count;
  bool utf8; /* positions count bytes; else UTF-16 units */
  bool initialized, shut_down;
} Lsp;

/* A compile of one document with the unsaved texts of all. */
typedef struct Analysis {
  Arena *arena;
  SourceSet sources; /* file 0 is the document */
  DiagSink sink;
  Graph *graph;           /* NULL: errors, or no model in the file */
  VEC(const Ast *) files; /* by source; NULL where one does not parse */
} Analysis;

/* lsp_document.c */
Document *lsp_open(Lsp *lsp, const char *uri, const char *text); /* or replaces the text */
void lsp_close(Lsp *lsp, const char *uri);
Document *lsp_find(const Lsp *lsp, const char *uri);
Analysis *lsp_analyse(const Lsp *lsp, const Document *document);
void lsp_analysis_free(Analysis *analysis);
uint32_t lsp_offset(const Lsp *lsp, const Document *document, const json_t *position);
json_t *lsp_range(const Lsp *lsp, const SourceFile *file, uint32_t begin, uint32_t end);
char *lsp_uri(Arena *arena, const char *path);
/* The word of letters, digits and '_' around an offset; its length, 0 where there is none. */
size_t lsp_word(const char *text, uint32_t offset, uint32_t *begin);

/* lsp_names.c */
typedef struct Definition {
  Name name;
  const char *kind;    /* "module", "let", "input", "parameter", "variable", "label" */
  uint32_t from;       /* visible behind this offset of its file */
  int32_t file;
} Definition;
typedef VEC(Definition) Definitions;
Definitions lsp_definitions(const Analysis *analysis);
/* The one that a word at `offset` of file 0 means, or NULL. */
const Definition *lsp_resolve(const Definitions *all, const char *word, size_t length, uint32_t offset);

/* lsp_features.c: results of requests; json null where there is nothing to say. */
json_t *lsp_diagnostics(const Lsp *lsp, const Document *document);
json_t *lsp_hover(const Lsp *lsp, const Document *document, uint32_t offset);
json_t *lsp_definition(const Lsp *lsp, const Document *document, uint32_t offset);
/* lsp_completion.c */
json_t *lsp_completion(const Lsp *lsp, const Document *document, uint32_t offset);

#endif
