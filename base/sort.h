/* Owns: sorting many things by one number, where qsort's calls to compare would take most of the time. */
#ifndef FSDPC_BASE_SORT_H
#define FSDPC_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct Keyed {
  uint64_t key;
  int32_t id;
} Keyed;

/* A key by which the largest of numbers comes first, all of them 0 or more: they are in the order of their bits. */
static inline uint64_t sort_largest_first(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return ~bits;
}

/* Ascending by key; equal keys stay in order, so that sorting by a second key first breaks ties. Linear in count.
 * spare: room for as many. */
void sort_by_key(Keyed *items, Keyed *spare, uint32_t count);

typedef uint64_t (*SortKey)(const void *element);

/* An array of elements of so many bytes, by each key in turn: what decides first comes last. */
void sort_elements(void *elements, size_t bytes, uint32_t count, const SortKey *keys, uint32_t key_count);

#endif
