/* Owns: tests of which samples a step consumes. */
#include "testing.h"

#include "runtime/feed.h"

#include <string.h>

enum { CTX = 4, TOKENS = 4 * 23 + 3, SAMPLES = 23 };

/* A stream that counts 0, 1, 2, ...: a token is its own position. */
static const char *counting_file(Scratch *scratch) {
  uint16_t tokens[TOKENS];
  for (int i = 0; i < TOKENS; i++) tokens[i] = (uint16_t)i;
  return scratch_file(scratch, "count.bin", tokens, sizeof tokens);
}

static Plan *plan_of(Arena *arena, uint32_t ranks, uint64_t micro_batch, uint64_t accumulation, SampleOrder order) {
  Plan *plan = plan_new(arena);
  plan->world = (PlanWorld){ranks, ranks, 1, ranks, micro_batch, accumulation};
  plan->recipe.order = order;
  plan->recipe.seed = 7;
  vec_push(arena, &plan->inputs, ((PlanInput){.feed = FEED_TOKENS, .sample_numel = CTX, .vocab = 1000}));
  vec_push(arena, &plan->inputs, ((PlanInput){.feed = FEED_TARGETS, .sample_numel = CTX, .vocab = 1000}));
  return plan;
}

/* The first tokens of the samples of a step, in order of k, collected from all ranks. */
static void step_samples(const Plan *plan, const TokenData *data, uint64_t step, int32_t *firsts) {
  const PlanWorld *world = &plan->world;
  for (uint32_t rank = 0; rank < world->ranks; rank++) {
    TokenFeed feed;
    feed_open(&feed, plan, data, CTX, rank);
    StepState state = {.step = step, .first_sample = (step - 1) * feed_samples_per_step(plan)};
    for (; state.micro_batch < world->accumulation; state.micro_batch++) {
      int32_t tokens[64], targets[64];
      feed.feed.fill(&feed.feed, &state, 0, tokens, world->micro_batch * CTX);
      feed.feed.fill(&feed.feed, &state, 1, targets, world->micro_batch * CTX);
      for (uint64_t j = 0; j < world->micro_batch; j++) {
        uint64_t k = (state.micro_batch * world->ranks + rank) * world->micro_batch + j;
        firsts[k] = tokens[j * CTX];
        for (int t = 0; t < CTX; t++) {
          assert_int_equal(tokens[j * CTX + (uint64_t)t], firsts[k] + t);
          assert_int_equal(targets[j * CTX + (uint64_t)t], firsts[k] + t + 1);
        }
      }
    }
    assert_int_equal(feed.bad, UINT64_MAX);
  }
}

static void sequential_steps_are_runs_of_the_stream(void **state) {
  Scratch *scratch = *state;
  const char *path = counting_file(scratch);
  TokenData data;
  Failure failure = {0};
  int32_t firsts[12];
  assert_true(data_open(scratch->arena, &data, &path, 1, 1000, CTX + 1, &failure));
  const Plan *plan = plan_of(scratch->arena, 2, 3, 2, ORDER_SEQUENTIAL);
  for (uint64_t step = 1; step < 6; step++) {
    step_samples(plan, &data, step, firsts);
    for (uint64_t k = 0; k < 12; k++) /* wraps around after the last whole sample */
      assert_int_equal(firsts[k], ((step - 1) * 12 + k) % SAMPLES * CTX);
  }
  data_close(&data);
}

static void all_rank_counts_see_the_same_samples(void **state) {
  Scratch *scratch = *state;
  const char *path = counting_file(scratch);
  TokenData data;
  Failure failure = {0};
  assert_true(data_open(scratch->arena, &data, &path, 1, 1000, CTX + 1, &failure));
  for (int order = ORDER_SEQUENTIAL; order <= ORDER_SHUFFLED; order++)
    for (uint64_t step = 1; step < 8; step++) {
      static const uint32_t worlds[][3] = {{1, 12, 1}, {1, 3, 4}, {2, 3, 2}, {3, 2, 2}, {4, 3, 1}, {6, 1, 2}, {12, 1, 1}};
      int32_t expected[12], firsts[12];
      step_samples(plan_of(scratch->arena, 1, 12, 1, (SampleOrder)order), &data, step, expected);
      for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        step_samples(plan_of(scratch->arena, worlds[w][0], worlds[w][1], worlds[w][2], (SampleOrder)order), &data, step,
                     firsts);
        assert_memory_equal(firsts, expected, sizeof expected);
      }
    }
  data_close(&data);
}

static void open_shuffled(Scratch *scratch, TokenData *data, TokenFeed *feed) {
  const char *path = counting_file(scratch);
  Failure failure = {0};
  assert_true(data_open(scratch->arena, data, &path, 1, 1000, CTX + 1, &failure));
  feed_open(feed, plan_of(scratch->arena, 1, 1, 1, ORDER_SHUFFLED), data, CTX, 0);
}

static void a_shuffled_pass_takes_every_sample_once(void **state) {
  TokenData data;
  TokenFeed feed;
  uint64_t orders[2][SAMPLES];
  open_shuffled(*state, &data, &feed);
  for (uint64_t pass = 0; pass < 2; pass++) {
    bool seen[SAMPLES] = {false};
    for (uint64_t i = 0; i < SAMPLES; i++) {
      uint64_t sample = orders[pass][i] = feed_sample(&feed, pass * SAMPLES + i);
      assert_true(sample < SAMPLES && !seen[sample]);
      seen[sample] = true;
    }
  }
  assert_memory_not_equal(orders[0], orders[1], sizeof orders[0]);
  data_close(&data);
}

/* As data to evaluate on are read, in a run that shuffles. */
static void in_order_means_unshuffled(void **state) {
  TokenData data;
  TokenFeed feed;
  open_shuffled(*state, &data, &feed);
  feed_switch(&feed, &data, true);
  for (uint64_t i = 0; i < 2 * SAMPLES; i++) assert_int_equal(feed_sample(&feed, i), i % SAMPLES);
  data_close(&data);
}

static void permutations_are_bijective(void **state) {
  Scratch *scratch = *state;
  static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000, 65537, 100000};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (uint64_t key = 0; key < 5; key++) {
      bool *seen = ARENA_ARRAY(scratch->arena, bool, sizes[s]);
      uint64_t fixed = 0;
      for (uint64_t i = 0; i < sizes[s]; i++) {
        uint64_t to = permute(sizes[s], key, i);
        assert_true(to < sizes[s] && !seen[to]);
        seen[to] = true;
        fixed += to == i;
      }
      if (sizes[s] >= 255) assert_true(fixed < 12); /* one is expected of a random permutation */
    }
}

static void permutations_of_huge_ranges_stay_inside(void **state) {
  (void)state;
  uint64_t n = ((uint64_t)1 << 40) + 12345;
  for (uint64_t i = 0; i < 1000; i++) assert_true(permute(n, 99, n - 1 - i) < n);
}

static void valid_targets_are_counted(void **state) {
  Scratch *scratch = *state;
  const char *path = scratch_file(scratch, "text", "abcXdefXghijX", 13); /* 3 samples; targets bcXd efXg hijX */
  TokenData data;
  Failure failure = {0};
  TokenFeed feed;
  assert_true(data_open(scratch->arena, &data, &path, 1, 256, CTX + 1, &failure));
  const Plan *plan = plan_of(scratch->arena, 1, 3, 1, ORDER_SEQUENTIAL);
  feed_open(&feed, plan, &data, CTX, 0);
  StepState step = {.step = 1};
  assert_int_equal(feed.feed.count(&feed.feed, &step, 1, -100), 12);
  assert_int_equal(feed.feed.count(&feed.feed, &step, 1, 'X'), 9);
  assert_int_equal(feed.feed.count(&feed.feed, &step, 1, 'a'), 12); /* only ever an input */
  data_close(&data);
}

static void large_ids_are_noticed(void **state) {
  Scratch *scratch = *state;
  const char *path = counting_file(scratch);
  TokenData data;
  Failure failure = {0};
  TokenFeed feed;
  int32_t out[CTX];
  assert_true(data_open(scratch->arena, &data, &path, 1, 1000, CTX + 1, &failure));
  Plan *plan = plan_of(scratch->arena, 1, 1, 1, ORDER_SEQUENTIAL);
  plan->inputs.data[0].vocab = 6;
  feed_open(&feed, plan, &data, CTX, 0);
  feed.feed.fill(&feed.feed, &(StepState){.step = 2, .first_sample = 1}, 0, out, CTX);
  assert_int_equal(feed.bad, 6);
  data_fail_id(&data, feed.bad, 6, &failure);
  assert_said(failure.text, "token 6 is 6");
  data_close(&data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(sequential_steps_are_runs_of_the_stream), SCRATCH_TEST(all_rank_counts_see_the_same_samples),
      SCRATCH_TEST(a_shuffled_pass_takes_every_sample_once), SCRATCH_TEST(in_order_means_unshuffled), SCRATCH_TEST(permutations_are_bijective),
      SCRATCH_TEST(permutations_of_huge_ranges_stay_inside), SCRATCH_TEST(valid_targets_are_counted),
      SCRATCH_TEST(large_ids_are_noticed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
