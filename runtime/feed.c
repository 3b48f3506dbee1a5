/* Owns: the order of samples. */
#include "runtime/feed.h"

#include "runtime/runtime.h"

enum { FEISTEL_ROUNDS = 6 };

/* Finaliser of MurmurHash3 as used by splitmix64: every input bit reaches every output bit. */
static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t feistel(uint64_t key, uint32_t half_bits, uint64_t x) {
  uint64_t mask = ((uint64_t)1 << half_bits) - 1, left = x >> half_bits, right = x & mask;
  for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
    uint64_t next = left ^ (mix(key + mix(right + (round << 56))) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

uint64_t permute(uint64_t n, uint64_t key, uint64_t i) {
  uint32_t half_bits = 1;
  while (half_bits < 31 && ((uint64_t)1 << 2 * half_bits) < n) half_bits++;
  do
    i = feistel(key, half_bits, i);
  while (i >= n); /* the domain is below 4 n (n > 1), so about four rounds at worst on average */
  return i;
}

uint64_t feed_samples_per_step(const Plan *plan) {
  return plan->world.accumulation * plan->world.ranks * plan->world.micro_batch;
}

uint64_t feed_sample(const TokenFeed *feed, uint64_t i) {
  uint64_t pass = i / feed->samples, within = i % feed->samples;
  if (feed->in_order || feed->plan->recipe.order != ORDER_SHUFFLED) return within;
  return permute(feed->samples, mix(feed->plan->recipe.seed) + mix(~pass), within);
}

static uint64_t first_of(const TokenFeed *feed, const StepState *state, uint64_t repetition) {
  const PlanWorld *world = &feed->plan->world;
  return state->first_sample + (repetition * world->ranks + feed->rank) * world->micro_batch;
}

static void fill(Feed *base, const StepState *state, int32_t input, int32_t *out, uint64_t count) {
  TokenFeed *feed = (TokenFeed *)base;
  const PlanInput *spec = &feed->plan->inputs.data[input];
  uint64_t first = first_of(feed, state, state->micro_batch), shift = spec->feed == FEED_TARGETS ? 1 : 0;
  for (uint64_t j = 0; j < count / feed->ctx; j++) {
    uint64_t position = feed_sample(feed, first + j) * feed->ctx + shift;
    uint64_t bad = data_copy(feed->data, position, feed->ctx, spec->vocab, out + j * feed->ctx);
    if (bad != UINT64_MAX) atomic_store(&feed->bad, bad);
  }
}

static uint64_t count_equal(const TokenFeed *feed, uint64_t position, int64_t vocab, int64_t ignore) {
  uint64_t equal = 0;
  int32_t id;
  for (uint64_t i = 0; i < feed->ctx; i++) {
    data_copy(feed->data, position + i, 1, vocab, &id);
    equal += id == ignore;
  }
  return equal;
}

static uint64_t count_valid(Feed *base, const StepState *state, int32_t input, int64_t ignore) {
  const TokenFeed *feed = (const TokenFeed *)base;
  const PlanInput *spec = &feed->plan->inputs.data[input];
  const PlanWorld *world = &feed->plan->world;
  uint64_t valid = world->accumulation * world->micro_batch * feed->ctx, shift = spec->feed == FEED_TARGETS ? 1 : 0;
  if (ignore < 0 || ignore >= spec->vocab) return valid; /* the usual -100: data holds no such id */
  for (uint64_t repetition = 0; repetition < world->accumulation; repetition++)
    for (uint64_t j = 0; j < world->micro_batch; j++) {
      uint64_t sample = feed_sample(feed, first_of(feed, state, repetition) + j);
      valid -= count_equal(feed, sample * feed->ctx + shift, spec->vocab, ignore);
    }
  return valid;
}

bool feed_shape(const Plan *plan, int64_t *vocab, uint64_t *ctx, Failure *failure) {
  *vocab = INT64_MAX;
  *ctx = 0;
  for (uint32_t i = 0; i < plan->inputs.count; i++) {
    const PlanInput *input = &plan->inputs.data[i];
    if (input->vocab < *vocab) *vocab = input->vocab;
    if (*ctx != 0 && *ctx != (uint64_t)input->sample_numel)
      return fail(failure, RUN_INVALID,
                  "model: input \"%s\" takes %lld values a sample and \"%s\" %llu; token data feeds inputs of one length; "
                  "give both the same, or only plan such a model",
                  plan_str(plan, input->name), (long long)input->sample_numel, plan_str(plan, plan->inputs.data[0].name),
                  (unsigned long long)*ctx);
    *ctx = (uint64_t)input->sample_numel;
  }
  if (*ctx != 0) return true;
  return fail(failure, RUN_INVALID, "model: it has no inputs, so there is nothing to feed it");
}

void feed_open(TokenFeed *feed, const Plan *plan, const TokenData *data, uint64_t ctx, uint32_t rank) {
  *feed = (TokenFeed){.feed = {.fill = fill, .count = count_valid},
                      .plan = plan,
                      .data = data,
                      .rank = rank,
                      .ctx = ctx,
                      .samples = (data->count - 1) / ctx};
  atomic_init(&feed->bad, UINT64_MAX);
}

void feed_switch(TokenFeed *feed, const TokenData *data, bool in_order) {
  feed->data = data;
  feed->samples = (data->count - 1) / feed->ctx;
  feed->in_order = in_order;
}
