/* Owns: sort.h: by one digit after the other, the last first; digits that are alike in all keys are skipped. */
#include "base/sort.h"

#include "base/arena.h"

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

/* The bits in which keys differ. */
static uint64_t differing(const Keyed *items, uint32_t count) {
  uint64_t bits = 0;
  for (uint32_t i = 1; i < count; i++) bits |= items[i].key ^ items[0].key;
  return bits;
}

static void sort_by_digit(const Keyed *from, Keyed *to, uint32_t count, int d) {
  uint32_t counts[VALUES] = {0};
  for (uint32_t i = 0; i < count; i++) counts[digit(from[i].key, d)]++;
  begin_values(counts);
  for (uint32_t i = 0; i < count; i++) to[counts[digit(from[i].key, d)]++] = from[i];
}

void sort_by_key(Keyed *items, Keyed *spare, uint32_t count) {
  uint64_t bits = differing(items, count);
  Keyed *from = items, *to = spare;
  for (int d = 0; d < DIGITS; d++) {
    if (!digit(bits, d)) continue;
    sort_by_digit(from, to, count, d);
    Keyed *swap = from;
    from = to;
    to = swap;
  }
  if (from != items) memcpy(items, from, count * sizeof *items);
}

void sort_elements(void *elements, size_t bytes, uint32_t count, const SortKey *keys, uint32_t key_count) {
  if (count < 2) return;
  Arena *scratch = arena_new();
  char *data = elements, *before = ARENA_ARRAY(scratch, char, count * bytes);
  Keyed *order = ARENA_ARRAY(scratch, Keyed, count), *spare = ARENA_ARRAY(scratch, Keyed, count);
  for (uint32_t i = 0; i < count; i++) order[i].id = (int32_t)i;
  for (uint32_t k = 0; k < key_count; k++) {
    for (uint32_t i = 0; i < count; i++) order[i].key = keys[k](data + (size_t)order[i].id * bytes);
    sort_by_key(order, spare, count);
  }
  memcpy(before, data, count * bytes);
  for (uint32_t i = 0; i < count; i++) memcpy(data + i * bytes, before + (size_t)order[i].id * bytes, bytes);
  arena_free(scratch);
}
