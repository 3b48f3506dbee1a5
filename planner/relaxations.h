/* Owns: what else could be asked for where a budget cannot be met, one line each. */
#ifndef FSDPC_PLANNER_RELAXATIONS_H
#define FSDPC_PLANNER_RELAXATIONS_H

#include "base/vec.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Relaxation {
  const char *text; /* "memory 3.10GiB", "micro_batch 2: peak 1.9 GiB, still too much" */
  bool fits;
} Relaxation;
typedef VEC(Relaxation) Relaxations;

/* The memory that the smallest plan takes; always fits. */
void relaxations_add_memory(Arena *arena, uint64_t bytes, Relaxations *out);
/* what: the changed setting. measure: what the bytes are, "peak". */
void relaxations_add(Arena *arena, const char *what, const char *measure, uint64_t bytes, uint64_t budget,
                     Relaxations *out);

#endif
