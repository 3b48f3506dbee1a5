/* Owns: the pieces of a line. Every function is linear in what it takes, and takes no more than the line. */
#include "planner/plan/scan.h"
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

enum { QUOTE_MOST = 40, REAL_MOST = 64 };

/* --- errors ------------------------------------------------------------------------------------------ */

Diag *scan_error(Scan *scan, const char *begin, const char *end, const char *format, ...) {
  if (scan->failed) return NULL;
  scan->failed = true;
  Span span = {scan->file, (uint32_t)(begin - scan->text), (uint32_t)(end - scan->text)};
  va_list args;
  va_start(args, format);
  Diag *diag = diag_error(scan->sink, span, "%s", arena_vprintf(scan->arena, format, args));
  va_end(args);
  return diag;
}

const char *scan_quote(Scan *scan, Word word) {
  if (!word.length) return "the end of the line";
  size_t length = word.length < QUOTE_MOST ? word.length : QUOTE_MOST;
  char *copy = arena_strndup(scan->arena, word.at, length);
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)copy[i] < 0x20 || (unsigned char)copy[i] >= 0x7f) copy[i] = '?';
  return arena_printf(scan->arena, "\"%s%s\"", copy, length < word.length ? "..." : "");
}

/* Up to the next blank: what a message calls the thing that stands here. */
static Word here(const Scan *scan) {
  const char *end = scan->at;
  while (end < scan->end && *end != ' ' && *end != '\t') end++;
  return (Word){scan->at, (size_t)(end - scan->at)};
}

static Diag *expected(Scan *scan, const char *what) {
  Word word = here(scan);
  if (scan->failed) return NULL;
  return scan_error(scan, word.at, word.at + word.length, "expected %s, saw %s", what,
                    scan_quote(scan, word));
}

static void suggest(Diag *diag, Scan *scan, Word word, const char *const *names, uint32_t count) {
  if (!diag || word.length > 32) return;
  const char *nearest = text_nearest(arena_strndup(scan->arena, word.at, word.length), names, count);
  if (nearest) diag_help(diag, "did you mean \"%s\"?", nearest);
}

void scan_unknown(Scan *scan, Word word, const char *what, const char *const *names, uint32_t count) {
  if (scan->failed) return;
  suggest(scan_error(scan, word.at, word.at + word.length, "%s is not %s", scan_quote(scan, word), what),
          scan, word, names, count);
}

/* --- words ------------------------------------------------------------------------------------------- */

void scan_blanks(Scan *scan) {
  while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t')) scan->at++;
}

bool scan_at_end(Scan *scan) {
  scan_blanks(scan);
  return scan->failed || scan->at == scan->end;
}

Word scan_word(Scan *scan) {
  scan_blanks(scan);
  Word word = {scan->at, 0};
  if (scan->failed) return word;
  while (scan->at < scan->end && (isalnum((unsigned char)*scan->at) || *scan->at == '_' || *scan->at == '-'))
    scan->at++;
  word.length = (size_t)(scan->at - word.at);
  return word;
}

bool word_is(Word word, const char *text) {
  return strlen(text) == word.length && !memcmp(word.at, text, word.length);
}

bool scan_accept(Scan *scan, const char *text) {
  size_t length = strlen(text);
  if (scan->failed || (size_t)(scan->end - scan->at) < length || memcmp(scan->at, text, length)) return false;
  scan->at += length;
  return true;
}

void scan_expect(Scan *scan, const char *text) {
  if (!scan_accept(scan, text)) expected(scan, arena_printf(scan->arena, "\"%s\"", text));
}

void scan_finish(Scan *scan) {
  if (!scan_at_end(scan)) expected(scan, "the end of the line");
}

/* --- numbers ----------------------------------------------------------------------------------------- */

static int digit(char c, unsigned base) {
  int value = isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10 : 99;
  return value < (int)base ? value : -1;
}

static uint64_t digits(Scan *scan, unsigned base, uint64_t most) {
  const char *begin = scan->at;
  uint64_t value = 0;
  bool large = false;
  if (scan->failed) return 0;
  for (int d; scan->at < scan->end && (d = digit(*scan->at, base)) >= 0; scan->at++)
    if (!large)
      large =
          __builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, (uint64_t)d, &value);
  if (scan->at == begin) {
    expected(scan, "a number");
  } else if (large || value > most) {
    scan_error(scan, begin, scan->at, "%s is too large, at most %llu is possible here",
               scan_quote(scan, (Word){begin, (size_t)(scan->at - begin)}), (unsigned long long)most);
    return 0;
  }
  return value;
}

uint64_t scan_number(Scan *scan, uint64_t most) {
  scan_blanks(scan);
  return digits(scan, 10, most);
}

uint64_t scan_hex(Scan *scan, uint64_t most) {
  scan_blanks(scan);
  scan_expect(scan, "0x");
  return digits(scan, 16, most);
}

int64_t scan_integer(Scan *scan) {
  scan_blanks(scan);
  if (!scan_accept(scan, "-")) return (int64_t)digits(scan, 10, INT64_MAX);
  uint64_t value = digits(scan, 10, (uint64_t)INT64_MAX + 1);
  return value > INT64_MAX ? INT64_MIN : -(int64_t)value;
}

static bool is_real_char(char c) {
  return isdigit((unsigned char)c) || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-';
}

double scan_real(Scan *scan) {
  scan_blanks(scan);
  const char *begin = scan->at;
  char copy[REAL_MOST + 1], *rest;
  size_t length = 0;
  if (scan->failed) return 0;
  while (scan->at < scan->end && is_real_char(*scan->at)) scan->at++;
  Word word = {begin, (size_t)(scan->at - begin)};
  for (; length < word.length && length < REAL_MOST; length++) copy[length] = begin[length];
  copy[length] = 0;
  double value = strtod(copy, &rest);
  if (!length || *rest || word.length > REAL_MOST || !isfinite(value)) {
    scan->at = begin;
    expected(scan, "a finite number");
    return 0;
  }
  return value;
}

int32_t scan_id(Scan *scan, char letter, uint32_t count, const char *what) {
  scan_blanks(scan);
  const char *begin = scan->at;
  if (!scan_accept(scan, (char[]){letter, 0})) {
    expected(scan, arena_printf(scan->arena, "%c and a number", letter));
    return 0;
  }
  uint64_t id = digits(scan, 10, INT32_MAX);
  if (id >= count) {
    scan_error(scan, begin, scan->at, "%c%llu is not there: the plan has %u %s", letter,
               (unsigned long long)id, count, what);
    return 0;
  }
  return (int32_t)id;
}

/* --- texts and names --------------------------------------------------------------------------------- */

/* \" \\ \xNN; the backslash is already taken. */
static char escape(Scan *scan) {
  const char *begin = scan->at - 1;
  if (scan_accept(scan, "\"")) return '"';
  if (scan_accept(scan, "\\")) return '\\';
  if (scan_accept(scan, "x") && scan->end - scan->at >= 2) {
    int high = digit(scan->at[0], 16), low = digit(scan->at[1], 16);
    scan->at += 2;
    if (high >= 0 && low >= 0 && (high || low)) return (char)(high * 16 + low);
  }
  scan_error(scan, begin, scan->at, "unknown escape: \\\", \\\\ and \\xNN are possible");
  return 0;
}

const char *scan_quoted(Scan *scan) {
  scan_blanks(scan);
  const char *begin = scan->at;
  if (!scan_accept(scan, "\"")) {
    expected(scan, "a quoted text");
    return "";
  }
  const char *close = scan->at; /* an upper bound of the length, for the copy */
  while (close < scan->end && *close != '"') close += 1 + (*close == '\\' && close + 1 < scan->end);
  char *out = arena_alloc(scan->arena, (size_t)(close - scan->at) + 1);
  size_t length = 0;
  while (!scan->failed && scan->at < scan->end && *scan->at != '"') {
    char c = *scan->at++;
    out[length++] = c == '\\' ? escape(scan) : c;
  }
  out[length] = 0;
  if (!scan_accept(scan, "\"")) scan_error(scan, begin, scan->at, "the text is not closed with a '\"'");
  return out;
}

uint32_t scan_name(Scan *scan, const char *const *names, const char *what) {
  Word word = scan_word(scan);
  uint32_t count = 0;
  for (; names[count]; count++)
    if (word_is(word, names[count])) return count;
  if (!word.length)
    expected(scan, what);
  else
    scan_unknown(scan, word, what, names, count);
  return 0;
}
