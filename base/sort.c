/* Owns: sort.h: by one digit after the other, the last first; digits that are alike in all keys are skipped. */
#include "base/sort.h"

#include <string.h>

enum { DIGIT_BITS = 8, DIGITS = 64 / DIGIT_BITS, VALUES = 1 << DIGIT_BITS };

static uint32_t digit(uint64_t key, int which) { return (uint32_t)(key >> (which * DIGIT_BITS)) & (VALUES - 1); }

/* Counts become the places where the items of each value begin. */
static void begin_values(uint32_t counts[VALUES]) {
  uint32_t at = 0;
  for (int v = 0; v < VALUES; v++) {
    uint32_t count = counts[v];
    counts[v] = at;
    at += count;
  }
}

void sort_by_key(Keyed *items, Keyed *spare, uint32_t count) {
  uint32_t counts[DIGITS][VALUES] = {0};
  Keyed *from = items, *to = spare;
  for (uint32_t i = 0; i < count; i++)
    for (int d = 0; d < DIGITS; d++) counts[d][digit(items[i].key, d)]++;
  for (int d = 0; d < DIGITS && count; d++) {
    if (counts[d][digit(from[0].key, d)] == count) continue;
    begin_values(counts[d]);
    for (uint32_t i = 0; i < count; i++) to[counts[d][digit(from[i].key, d)]++] = from[i];
    Keyed *swap = from;
    from = to;
    to = swap;
  }
  if (from != items) memcpy(items, from, count * sizeof *items);
}
