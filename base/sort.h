/* Owns: sorting many things by one number, where qsort's calls to compare would take most of the time. */
#ifndef FSDPC_BASE_SORT_H
#define FSDPC_BASE_SORT_H

#include <stdint.h>

typedef struct Keyed {
  uint64_t key;
  int32_t id;
} Keyed;

/* Ascending by key; equal keys stay in order, so that sorting by a second key first breaks ties. Linear in count.
 * spare: room for as many. */
void sort_by_key(Keyed *items, Keyed *spare, uint32_t count);

#endif
