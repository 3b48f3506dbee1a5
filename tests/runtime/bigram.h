/* Owns: a hand-built plan: a bigram model, embedding -> linear -> cross entropy over bytes, two units, one of them with
 * two parameters. Small enough to check by eye, real enough to train. Buffers never share addresses. */
#ifndef FSDPC_TESTS_RUNTIME_BIGRAM_H
#define FSDPC_TESTS_RUNTIME_BIGRAM_H

#include "planner/plan/plan.h"

enum { BIGRAM_VOCAB = 256, BIGRAM_WIDTH = 12, BIGRAM_CTX = 16 };

typedef struct BigramOptions {
  uint32_t shard, replicas;
  uint64_t micro_batch, accumulation, steps;
  bool sgd, inference;
  bool one_queue; /* everything in list order */
} BigramOptions;

Plan *bigram_plan(Arena *arena, const BigramOptions *options);

#endif
