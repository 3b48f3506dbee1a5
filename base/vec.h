/* Owns: the one growable array. Storage comes from one Arena for all of its life. Growth moves it: keep indices, not pointers,
 * and let only one copy of the struct grow. */
#ifndef FSDPC_BASE_VEC_H
#define FSDPC_BASE_VEC_H

#include "base/arena.h"
#include <stdint.h>
#include <string.h>

/* A struct with fields `data`, `count`, `capacity`; zero-initialised it is empty. */
#define VEC(T)                                                                                               \
  struct {                                                                                                   \
    T *data;                                                                                                 \
    uint32_t count, capacity;                                                                                \
  }

/* Appends a zeroed element and yields its address (valid until the next growth). */
#define vec_add(arena, v)                                                                                    \
  ((v)->count < (v)->capacity ? (void)0 : vec_reserve((arena), (v), (v)->count + 1),                         \
   memset(&(v)->data[(v)->count], 0, sizeof *(v)->data), &(v)->data[(v)->count++])
#define vec_push(arena, v, value) (*vec_add((arena), (v)) = (value))

/* Makes room for `least` elements in all, where it is known how many there will be. */
#define vec_reserve(arena, v, least)                                                                         \
  ((void)((v)->data = vec_reserve_((arena), (v)->data, (v)->count, &(v)->capacity, sizeof *(v)->data, (least))))

/* The elements of `size` bytes, with room for `least`. What is beyond `count` is not zeroed. */
void *vec_reserve_(Arena *arena, void *data, uint32_t count, uint32_t *capacity, size_t size, uint32_t least);

#endif
