/* Owns: which samples a step consumes, and handing them to the backend.
 *
 * Sample i of the stream is tokens [i ctx, i ctx + ctx]; there are (tokens - 1) / ctx. Sample k of a step goes to
 * micro-batch and rank in order of k: k = (repetition * ranks + rank) * micro_batch + j, so any number of ranks sees
 * the same samples in a step. After the last sample comes the first again; `order shuffled` draws each pass from a
 * permutation seeded by the recipe's seed and the pass. */
#ifndef FSDPC_RUNTIME_FEED_H
#define FSDPC_RUNTIME_FEED_H

#include "planner/plan/plan.h"
#include "runtime/backend.h"
#include "runtime/data.h"

#include <stdatomic.h>

typedef struct TokenFeed {
  Feed feed; /* first: the backend is given &token_feed->feed */
  const Plan *plan;
  const TokenData *data;
  uint32_t rank;
  uint64_t ctx, samples; /* of the stream */
  bool in_order;         /* whatever the recipe says: of data to evaluate on */
  _Atomic uint64_t bad;  /* stream position of an id beyond the vocabulary, UINT64_MAX: none yet */
} TokenFeed;

/* Smallest vocabulary and common sample length of the plan's inputs; false when the lengths differ or none is fed. */
bool feed_shape(const Plan *plan, int64_t *vocab, uint64_t *ctx, Failure *failure);
void feed_open(TokenFeed *feed, const Plan *plan, const TokenData *data, uint64_t ctx, uint32_t rank);
/* Other data from now on; between segments only. */
void feed_switch(TokenFeed *feed, const TokenData *data, bool in_order);
/* How many samples a step consumes, over all ranks and micro-batches. */
uint64_t feed_samples_per_step(const Plan *plan);
/* Number in the stream of the sample that is globally the i-th. */
uint64_t feed_sample(const TokenFeed *feed, uint64_t i);

/* A bijection of [0, n), different for every key: a Feistel network over the next even number of bits, walked until it
 * lands below n. */
uint64_t permute(uint64_t n, uint64_t key, uint64_t i);

#endif
