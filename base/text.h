/* Owns: building text, reading quantities, spelling suggestions, human units. */
#ifndef FSDPC_BASE_TEXT_H
#define FSDPC_BASE_TEXT_H

#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>

/* Growable text in an arena, always NUL-terminated once something was added. */
typedef struct Text {
  Arena *arena; /* borrowed */
  char *data;
  size_t length, capacity;
} Text;

void text_add(Text *text, const char *bytes, size_t length);
void text_printf(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Words that begin at column `indent`: broken at spaces where a line would reach beyond `width`, later lines indented alike.
 * A number and the word after it stay together. */
void text_wrap(Text *text, const char *words, int indent, int width);

/* Bytes of the UTF-8 sequence that a NUL-terminated text begins with; 0: there is none. */
uint32_t text_utf8_length(const char *text);
/* The text with U+FFFD for each byte that is not UTF-8, as names of files may hold: JSON takes no others. NULL stays NULL. */
const char *text_utf8(Arena *arena, const char *text);

/* As what may be a terminal should get it: '?' in place of bytes that are no characters, and of control characters but tabs and line
 * feeds. */
char *text_mask(char *text, size_t length);

/* Adds a path as URIs hold it (RFC 3986): other than letters, digits, "-._~" and the slashes, each byte is percent-encoded. */
void text_uri(Text *text, const char *path);

/* Kinds of quantity; the unit decides. */
typedef enum {
  QUANTITY_NUMBER,    /* 12, 1e-4, 100M (M = 10^6, K, G, T likewise) */
  QUANTITY_BYTES,     /* KiB MiB GiB TiB, KB MB GB TB, B */
  QUANTITY_RATE,      /* bytes/s: GB/s MB/s GiB/s TB/s Gb/s (bits) */
  QUANTITY_FLOPS,     /* GFLOPS TFLOPS PFLOPS */
  QUANTITY_SECONDS,   /* ns us ms s */
  QUANTITY_MONEY_RATE /* USD/h */
} QuantityKind;

typedef struct Quantity {
  QuantityKind kind;
  double value;     /* in base units: bytes, bytes/s, flop/s, seconds */
  int64_t integer;  /* exact value when is_integer (numbers and bytes) */
  bool is_integer;
} Quantity;

/* Parses "72GiB", "989TFLOPS", "5us", "1e-4", "50_000". False with *why (static text) when malformed or too large. */
bool quantity_parse(const char *text, Quantity *out, const char **why);

/* "72gb", "72 GB" -> "72GB": the same number with the unit that is meant, or NULL where that is not sure. */
const char *quantity_meant(Arena *arena, const char *text);
/* All units: "K, M, ..., USD/h". */
const char *quantity_units(Arena *arena);

/* The entry of names[count] that differs from word in case only, else the nearest (Damerau-Levenshtein), or NULL when none is near
 * enough to offer. */
const char *text_nearest(const char *word, const char *const *names, uint32_t count);

bool text_ends_with(const char *text, const char *end);

/* "1 unit", "2 units". */
static inline const char *text_plural(uint64_t count) {
  return count == 1 ? "" : "s";
}
/* "61.2 GiB", "512 B"; "412 ms", "3.2 us"; "124.4 M". Written into buffer (at least 32 bytes), which is returned. */
char *text_bytes(char buffer[32], uint64_t bytes);
/* "61.2GiB": as sizes are read back (quantity_parse), and at least `bytes`, so that asking for so much suffices. Three digits, or four
 * below the next unit. */
char *text_bytes_enough(char buffer[32], uint64_t bytes);
char *text_time(char buffer[32], double ns);
char *text_count(char buffer[32], double count);

#endif
