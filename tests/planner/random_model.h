/* Owns: random small models as .fsdp text, a pure function of the seed. */
#ifndef FSDPC_TESTS_PLANNER_RANDOM_MODEL_H
#define FSDPC_TESTS_PLANNER_RANDOM_MODEL_H

#include "base/text.h"

typedef struct Random {
  uint64_t state;
} Random;

/* Uniform in [0, n), n >= 1 (SplitMix64). */
uint64_t random_below(Random *random, uint64_t n);

enum { RANDOM_HEAD_NORMS = 1 << 20 }; /* models of seeds from here on have norms of each head of queries and keys */

/* A transformer with random sizes, norms, heads, rotary positions of all or a part of a head, tying, dropout, factors, chunked loss; clusters with random rates. */
const char *random_model(Arena *arena, uint64_t seed);

#endif
