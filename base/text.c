/* Owns: text building, quantities, spelling distance, human units. */
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(Text *text, size_t extra) {
  size_t need = text->length + extra + 1;
  if (need <= text->capacity) return;
  size_t grown = text->capacity ? text->capacity : 256;
  while (grown < need) grown *= 2;
  char *data = arena_alloc(text->arena, grown);
  if (text->length) memcpy(data, text->data, text->length);
  text->data = data;
  text->capacity = grown;
}

void text_add(Text *text, const char *bytes, size_t length) {
  reserve(text, length);
  memcpy(text->data + text->length, bytes, length);
  text->length += length;
  text->data[text->length] = 0;
}

void text_printf(Text *text, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  reserve(text, (size_t)length);
  vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
  va_end(again);
  text->length += (size_t)length;
}

bool text_ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

void text_wrap(Text *text, const char *words, int indent, int width) {
  int column = indent;
  for (const char *word = words; *word; word += strspn(word, " ")) {
    int length = (int)strcspn(word, " ");
    if (*word >= '0' && *word <= '9' && word[length]) length += 1 + (int)strcspn(word + length + 1, " "); /* "12.3 GiB" */
    bool first = column == indent, breaks = !first && column + 1 + length > width;
    if (breaks) text_printf(text, "\n%*s", indent, "");
    text_printf(text, "%s%.*s", first || breaks ? "" : " ", length, word);
    column = breaks ? indent + length : column + !first + length;
    word += length;
  }
}

uint32_t text_utf8_length(const char *text) {
  const unsigned char *s = (const unsigned char *)text;
  uint32_t length = s[0] < 0x80                   ? 1
                    : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                    : s[0] >= 0xe0                ? 3
                    : s[0] >= 0xc2                ? 2
                                                  : 0;
  if (s[0] >= 0xf5) return 0;
  for (uint32_t i = 1; i < length; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if (s[0] == 0xe0 && s[1] < 0xa0) return 0; /* overlong */
  if (s[0] == 0xed && s[1] > 0x9f) return 0; /* surrogate */
  if (s[0] == 0xf0 && s[1] < 0x90) return 0;
  if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
  return length;
}

const char *text_utf8(Arena *arena, const char *text) {
  Text whole = {.arena = arena};
  for (const char *at = text; text && *at;) {
    uint32_t length = text_utf8_length(at);
    text_add(&whole, length ? at : "\uFFFD", length ? length : 3);
    at += length ? length : 1;
  }
  return whole.length ? whole.data : text;
}

/* Of ASCII, and U+0080 to U+009F, with which terminals begin the same commands. */
static bool is_control(const unsigned char *c, uint32_t length) {
  return length == 1 ? (*c < 0x20 && *c != '\t' && *c != '\n') || *c == 0x7f : length == 2 && c[0] == 0xc2 && c[1] < 0xa0;
}

char *text_mask(char *text, size_t length) {
  for (size_t i = 0, step; i < length; i += step) {
    uint32_t character = text_utf8_length(text + i);
    step = character ? character : 1;
    if (!character || step > length - i || is_control((const unsigned char *)text + i, character)) text[i] = '?', step = 1;
  }
  return text;
}

void text_uri(Text *text, const char *path) {
  for (; *path; path++) {
    if (isalnum((unsigned char)*path) || strchr("/._-~", *path))
      text_add(text, path, 1);
    else
      text_printf(text, "%%%02X", (unsigned char)*path);
  }
}

static const struct {
  const char *suffix;
  QuantityKind kind;
  double scale;
} units[] = {
    {"", QUANTITY_NUMBER, 1},
    {"K", QUANTITY_NUMBER, 1e3},
    {"M", QUANTITY_NUMBER, 1e6},
    {"G", QUANTITY_NUMBER, 1e9},
    {"T", QUANTITY_NUMBER, 1e12},
    {"B", QUANTITY_BYTES, 1},
    {"KB", QUANTITY_BYTES, 1e3},
    {"MB", QUANTITY_BYTES, 1e6},
    {"GB", QUANTITY_BYTES, 1e9},
    {"TB", QUANTITY_BYTES, 1e12},
    {"KiB", QUANTITY_BYTES, 1024.0},
    {"MiB", QUANTITY_BYTES, 1048576.0},
    {"GiB", QUANTITY_BYTES, 1073741824.0},
    {"TiB", QUANTITY_BYTES, 1099511627776.0},
    {"MB/s", QUANTITY_RATE, 1e6},
    {"GB/s", QUANTITY_RATE, 1e9},
    {"TB/s", QUANTITY_RATE, 1e12},
    {"GiB/s", QUANTITY_RATE, 1073741824.0},
    {"Mb/s", QUANTITY_RATE, 1e6 / 8},
    {"Gb/s", QUANTITY_RATE, 1e9 / 8},
    {"GFLOPS", QUANTITY_FLOPS, 1e9},
    {"TFLOPS", QUANTITY_FLOPS, 1e12},
    {"PFLOPS", QUANTITY_FLOPS, 1e15},
    {"ns", QUANTITY_SECONDS, 1e-9},
    {"us", QUANTITY_SECONDS, 1e-6},
    {"ms", QUANTITY_SECONDS, 1e-3},
    {"s", QUANTITY_SECONDS, 1},
    {"USD/h", QUANTITY_MONEY_RATE, 1},
};

enum { UNIT_COUNT = sizeof units / sizeof *units, NUMBER_MAX = 64 };

/* Copies the digits of a number without the underscores between them; returns the length consumed, 0 when there is none. */
static size_t scan_number(const char *text, char digits[NUMBER_MAX]) {
  size_t in = 0, out = 0;
  bool seen_digit = false;
  for (; out < NUMBER_MAX - 1; in++) {
    char c = text[in];
    bool digit = c >= '0' && c <= '9';
    bool exponent = (c == 'e' || c == 'E') && seen_digit &&
                    (strchr("0123456789", text[in + 1]) || strchr("+-", text[in + 1])) && text[in + 1];
    bool sign = (c == '-' || c == '+') && (in == 0 || text[in - 1] == 'e' || text[in - 1] == 'E');
    if (c == '_' && in > 0 && isdigit((unsigned char)text[in - 1]) && isdigit((unsigned char)text[in + 1])) continue;
    if (!c || !(digit || c == '.' || exponent || sign)) break;
    seen_digit |= digit;
    digits[out++] = c;
  }
  digits[out] = 0;
  return seen_digit ? in : 0;
}

/* Up to INT64_MAX, digit by digit where they are all given; -INT64_MAX at least, so that it can be negated. False: too large. */
static bool take_whole(const char *digits, double scale, Quantity *out) {
  char *end;
  errno = 0;
  long long exact = strtoll(digits, &end, 10);
  bool given = !*end && scale == 1;
  if (given ? errno != 0 || exact == LLONG_MIN : fabs(out->value) >= 0x1p63) return false;
  out->is_integer = out->value == floor(out->value);
  if (out->is_integer) out->integer = given ? exact : (int64_t)out->value;
  return true;
}

bool quantity_parse(const char *text, Quantity *out, const char **why) {
  char digits[NUMBER_MAX];
  size_t used = scan_number(text, digits);
  *why = "it is not a number";
  if (!used) return false;
  char *end;
  double number = strtod(digits, &end);
  if (*end) return false;
  *why = "it is too large";
  if (!isfinite(number)) return false;
  *why = "its unit is not known";
  for (int i = 0; i < UNIT_COUNT; i++) {
    if (strcmp(text + used, units[i].suffix)) continue;
    out->kind = units[i].kind;
    out->value = number * units[i].scale;
    out->is_integer = false;
    out->integer = 0;
    bool whole = out->kind == QUANTITY_NUMBER || out->kind == QUANTITY_BYTES;
    *why = "it is too large";
    return !whole || take_whole(digits, units[i].scale, out);
  }
  return false;
}

enum { WORD_MAX = 48 };

/* Damerau-Levenshtein (adjacent transpositions), words cut at WORD_MAX. */
static int distance(const char *a, const char *b) {
  int n = (int)strnlen(a, WORD_MAX), m = (int)strnlen(b, WORD_MAX);
  int row[3][WORD_MAX + 1];
  for (int j = 0; j <= m; j++) row[0][j] = j;
  for (int i = 1; i <= n; i++) {
    int *now = row[i % 3], *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
    now[0] = i;
    for (int j = 1; j <= m; j++) {
      int best = before[j - 1] + (a[i - 1] != b[j - 1]);
      if (before[j] + 1 < best) best = before[j] + 1;
      if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && earlier[j - 2] + 1 < best)
        best = earlier[j - 2] + 1;
      now[j] = best;
    }
  }
  return row[n % 3][m];
}

const char *text_nearest(const char *word, const char *const *names, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (!strcasecmp(word, names[i])) return names[i];
  int length = (int)strnlen(word, WORD_MAX);
  int best = length <= 1 ? 1 : length <= 3 ? 2 : 1 + length / 3; /* exclusive: any letter is one away from any other */
  const char *nearest = NULL;
  for (uint32_t i = 0; i < count; i++) {
    int d = distance(word, names[i]);
    if (d < best) {
      best = d;
      nearest = names[i];
    }
  }
  return nearest;
}

/* The only unit that is spelled so but for its case, or what others call one. A guess between bits and bytes would be worse than none. */
static const char *unit_meant(const char *word) {
  static const char *const elsewhere[][2] = {{"Gbit/s", "Gb/s"}, {"Gbps", "Gb/s"},      {"Mbit/s", "Mb/s"},  {"Mbps", "Mb/s"},  {"GBps", "GB/s"},
                                             {"TFLOP", "TFLOPS"}, {"TFLOP/s", "TFLOPS"}, {"GFLOP/s", "GFLOPS"}, {"sec", "s"},
                                             {"Gb", NULL},        {"Mb", NULL}};
  const char *meant = NULL;
  for (size_t k = 0; k < sizeof elsewhere / sizeof *elsewhere; k++)
    if (!strcmp(word, elsewhere[k][0])) return elsewhere[k][1];
  for (int i = 1; i < UNIT_COUNT; i++) {
    if (strcasecmp(word, units[i].suffix)) continue;
    if (meant) return NULL;
    meant = units[i].suffix;
  }
  return meant;
}

const char *quantity_meant(Arena *arena, const char *text) {
  char digits[NUMBER_MAX];
  size_t used = scan_number(text, digits);
  const char *word = text + used + strspn(text + used, " "), *unit = used && *word ? unit_meant(word) : NULL;
  return unit ? arena_printf(arena, "%.*s%s", (int)used, text, unit) : NULL;
}

const char *quantity_units(Arena *arena) {
  Text all = {.arena = arena};
  for (int i = 1; i < UNIT_COUNT; i++) text_printf(&all, "%s%s", i == 1 ? "" : ", ", units[i].suffix);
  return all.data;
}

static char *scaled(char buffer[32], double value, double step, const char *const *names, int count) {
  int i = 0;
  while (i + 1 < count && value >= step - 0.5) { /* what would be rounded to the step has reached it */
    value /= step;
    i++;
  }
  const char *format = i == 0 && value == floor(value) ? "%.0f%s" : value < 9.995 ? "%.2f%s" : value < 99.95 ? "%.1f%s" : "%.0f%s";
  snprintf(buffer, 32, format, value, names[i]);
  return buffer;
}

char *text_bytes(char buffer[32], uint64_t bytes) {
  static const char *const names[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return scaled(buffer, (double)bytes, 1024, names, 6);
}

char *text_bytes_enough(char buffer[32], uint64_t bytes) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int i = 0;
  double value = (double)bytes;
  for (; i + 1 < 5 && value > 1023; i++) value /= 1024;
  int decimals = i == 0 || value > 99.9 ? 0 : value > 9.99 ? 1 : 2;
  double digits = pow(10, decimals);
  snprintf(buffer, 32, "%.*f%s", decimals, ceil(value * digits) / digits, names[i]);
  return buffer;
}

char *text_time(char buffer[32], double ns) {
  static const char *const names[] = {" ns", " us", " ms", " s"};
  return scaled(buffer, ns, 1000, names, 4);
}

char *text_count(char buffer[32], double count) {
  static const char *const names[] = {"", " K", " M", " B", " T"};
  return scaled(buffer, count, 1000, names, 5);
}
