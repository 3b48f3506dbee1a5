/* Owns: relaxations.h. */
#include "planner/relaxations.h"

#include "base/text.h"

void relaxations_add_memory(Arena *arena, uint64_t bytes, Relaxations *out) {
  char size[32];
  Relaxation more = {arena_printf(arena, "memory %s", text_bytes_enough(size, bytes)), true};
  vec_push(arena, out, more);
}

void relaxations_add(Arena *arena, const char *what, const char *measure, uint64_t bytes, uint64_t budget,
                     Relaxations *out) {
  char size[32];
  bool fits = bytes <= budget;
  Relaxation relaxation = {arena_printf(arena, "%s: %s %s, %s", what, measure, text_bytes(size, bytes),
                                        fits ? "fits" : "still too much"),
                           fits};
  vec_push(arena, out, relaxation);
}
