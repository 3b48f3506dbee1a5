/* Owns: the name map: open addressing, linear probing, at most three quarters full. */
#include "frontend/map.h"

#include <string.h>

static uint32_t hash(const char *key) {
  uint32_t h = 2166136261u;
  for (; *key; key++) h = (h ^ (unsigned char)*key) * 16777619u;
  return h;
}

/* key NULL: a free slot, for what is not in the map. */
static MapSlot *slot(const Map *map, uint32_t hashed, const char *key) {
  for (uint32_t i = hashed;; i++) {
    MapSlot *s = &map->slots[i & (map->capacity - 1)];
    if (!s->key || (key && s->hash == hashed && !strcmp(s->key, key))) return s;
  }
}

int32_t map_get(const Map *map, const char *key) {
  if (!map->capacity) return MAP_NONE;
  MapSlot *s = slot(map, hash(key), key);
  return s->key ? s->value : MAP_NONE;
}

static void grow(Arena *arena, Map *map) {
  Map larger = {.capacity = map->capacity ? 2 * map->capacity : 8, .count = map->count};
  larger.slots = ARENA_ARRAY(arena, MapSlot, larger.capacity);
  for (uint32_t i = 0; i < map->capacity; i++)
    if (map->slots[i].key) *slot(&larger, map->slots[i].hash, NULL) = map->slots[i];
  *map = larger;
}

/* The key's slot, with room for it to be new. */
static MapSlot *slot_for(Arena *arena, Map *map, uint32_t hashed, const char *key) {
  if (4 * (map->count + 1) > 3 * map->capacity) grow(arena, map);
  return slot(map, hashed, key);
}

void map_put(Arena *arena, Map *map, const char *key, int32_t value) {
  uint32_t hashed = hash(key);
  MapSlot *s = slot_for(arena, map, hashed, key);
  map->count += !s->key;
  *s = (MapSlot){key, value, hashed};
}

int32_t map_add(Arena *arena, Map *map, const char *key, int32_t value) {
  uint32_t hashed = hash(key);
  MapSlot *s = slot_for(arena, map, hashed, key);
  if (s->key) return s->value;
  map->count++;
  *s = (MapSlot){key, value, hashed};
  return MAP_NONE;
}

void map_clear(Map *map) {
  if (map->count) memset(map->slots, 0, map->capacity * sizeof *map->slots);
  map->count = 0;
}
