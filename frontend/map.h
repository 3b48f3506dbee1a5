/* Owns: a hash map from text to a small integer, for names. Zero-initialised it is empty; single keys
 * are never removed. */
#ifndef FSDPC_FRONTEND_MAP_H
#define FSDPC_FRONTEND_MAP_H

#include "base/arena.h"
#include <stdint.h>

typedef struct MapSlot {
  const char *key; /* borrowed; NULL: empty */
  int32_t value;
  uint32_t hash; /* of the key */
} MapSlot;

typedef struct Map {
  MapSlot *slots;
  uint32_t count, capacity; /* capacity: 0 or a power of two */
} Map;

enum { MAP_NONE = -1 };

int32_t map_get(const Map *map, const char *key); /* MAP_NONE when absent; values are >= 0 */
/* The value that the key has already; else gives it this one and returns MAP_NONE. */
int32_t map_add(Arena *arena, Map *map, const char *key, int32_t value);
void map_clear(Map *map); /* keeps its memory */
void map_put(Arena *arena, Map *map, const char *key, int32_t value); /* replaces */

#endif
