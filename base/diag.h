/* Owns: user-facing diagnostics. Errors are collected (to a limit), sorted by position and printed together:
 *
 *   gpt.fsdp:14:17: error: "proj" expects 1024 input features, but "ffn" gives 768
 *   14 |   proj = linear(ffn, 1024)
 *      |                 ^~~
 *   gpt.fsdp:12:3: note: "ffn" is declared here with shape [batch, 1024, 768]
 *   help: change the input size of "proj" to 768
 *
 * The error says what is wrong (lower case, no full stop, with the reason); only help proposes a change. */
#ifndef FSDPC_BASE_DIAG_H
#define FSDPC_BASE_DIAG_H

#include "base/source.h"
#include <stdbool.h>
#include <stdio.h>

enum { DIAG_LIMIT = 20 }; /* further ones are counted, not kept, but that warnings make room for errors */

typedef enum { DIAG_ERROR, DIAG_WARNING } DiagLevel;

typedef struct DiagNote {
  Span span;
  const char *text;
} DiagNote;

typedef struct Diag {
  Arena *arena; /* borrowed; so that notes can be added */
  DiagLevel level;
  Span span;
  const char *text;
  VEC(DiagNote) notes;
  VEC(const char *) helps;
} Diag;

typedef struct DiagSink {
  Arena *arena;              /* borrowed */
  const SourceSet *sources;  /* borrowed */
  VEC(Diag *) list;
  uint32_t errors, warnings; /* all, also those beyond the limit */
} DiagSink;

/* Never NULL; a diagnostic beyond the limit is returned but not kept. Texts are copied into the arena. */
Diag *diag_error(DiagSink *sink, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
Diag *diag_warning(DiagSink *sink, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_note(Diag *diag, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_help(Diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sorts by file and position (stable) and prints all. Long lines are cut around the caret. */
void diag_print(DiagSink *sink, FILE *out, bool color);
/* One JSON object: {"schema_version":1,"errors":n,"warnings":n,"diagnostics":[{level,file,line,column,
 * end_line,end_column,message,notes[],helps[]}]}. */
void diag_print_json(DiagSink *sink, FILE *out);

#endif
