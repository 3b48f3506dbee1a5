/* Owns: reading one line of a plan file piece by piece. The first error of a line is reported, and the rest
 * of that line is ignored: every function below then does nothing and returns a harmless value. */
#ifndef FSDPC_PLANNER_PLAN_SCAN_H
#define FSDPC_PLANNER_PLAN_SCAN_H

#include "base/diag.h"
#include <stdbool.h>

typedef struct Scan {
  Arena *arena; /* scratch */
  DiagSink *sink;
  int32_t file;
  const char *text;     /* whole file */
  const char *at, *end; /* rest of the line, without its newline, comment and trailing blanks */
  bool failed;          /* in this line */
} Scan;

typedef struct Word {
  const char *at;
  size_t length;
} Word;

/* An error at [begin, end) of the file; NULL when this line has one already. */
Diag *scan_error(Scan *scan, const char *begin, const char *end, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The word, quoted, shortened and without control characters: for messages. */
const char *scan_quote(Scan *scan, Word word);

void scan_blanks(Scan *scan);
bool scan_at_end(Scan *scan); /* nothing but blanks is left */
/* Letters, digits, '_' and '-'; empty when there are none. Blanks before it are skipped. */
Word scan_word(Scan *scan);
bool word_is(Word word, const char *text);
/* Takes `text` when it stands here, byte for byte. */
bool scan_accept(Scan *scan, const char *text);
void scan_expect(Scan *scan, const char *text);

/* A decimal number at most `most`. */
uint64_t scan_number(Scan *scan, uint64_t most);
uint64_t scan_hex(Scan *scan, uint64_t most); /* 0x... */
int64_t scan_integer(Scan *scan);
double scan_real(Scan *scan);
/* b7: the letter and a number below count. `what` is said in the message: "buffers". */
int32_t scan_id(Scan *scan, char letter, uint32_t count, const char *what);
/* A quoted text with its escapes resolved, NUL-terminated, in the scan's arena. */
const char *scan_quoted(Scan *scan);
/* Index in a NULL-terminated list of names, or 0 after an error with a suggestion. `what`: "a dtype". */
uint32_t scan_name(Scan *scan, const char *const *names, const char *what);
/* Reports an unknown word, with the nearest of names[count] as help. */
void scan_unknown(Scan *scan, Word word, const char *what, const char *const *names, uint32_t count);
/* Reports whatever is left of the line. */
void scan_finish(Scan *scan);

#endif
