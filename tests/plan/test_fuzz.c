/* Owns: random damage to a good plan's text. The reader refuses it or the verifier judges it; neither may
 * crash, hang or read out of bounds (the sanitizers watch). Deterministic: a failure names its round. */
#include "planner/plan/plan_text.h"
#include "planner/plan/sim.h"
#include "planner/plan/verify.h"
#include "tests/plan/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROUNDS = 20000, MUTATIONS_MOST = 4 };

typedef struct Random {
  uint64_t state;
} Random;

static uint32_t below(Random *random, uint32_t n) {
  random->state = random->state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX constants */
  return (uint32_t)(random->state >> 33) % n;
}

static void remove_range(Text *text, size_t at, size_t length) {
  memmove(text->data + at, text->data + at + length, text->length - at - length);
  text->length -= length;
}

/* A number becomes another: most likely to get past the reader. */
static void change_digit(Random *random, Text *text) {
  size_t at = below(random, (uint32_t)text->length);
  for (size_t tries = 0; tries < text->length; tries++, at = (at + 1) % text->length)
    if (text->data[at] >= '0' && text->data[at] <= '9') break;
  text->data[at] = (char)('0' + below(random, 10));
}

static void swap_words(Random *random, Text *text) {
  size_t a = below(random, (uint32_t)text->length - 8), b = below(random, (uint32_t)text->length - 8);
  for (size_t i = 0; i < 1 + below(random, 6); i++) {
    char c = text->data[a + i];
    text->data[a + i] = text->data[b + i];
    text->data[b + i] = c;
  }
}

static void mutate(Random *random, Text *text) {
  size_t at = below(random, (uint32_t)text->length - 64);
  switch (below(random, 8)) {
  case 0:
    text->data[at] = (char)below(random, 256);
    break;
  case 1:
    remove_range(text, at, 1 + below(random, 40));
    break;
  case 2:
    text->data[at] = " -+:>[]{}\"\\#\n.="[below(random, 15)];
    break;
  case 3:
    swap_words(random, text);
    break;
  default:
    change_digit(random, text);
  }
}

static void judge(Arena *arena, const char *path, uint32_t *read, uint32_t *good) {
  SourceSet sources = {.arena = arena};
  DiagSink sink = {.arena = arena, .sources = &sources};
  Plan *plan = plan_read(arena, &sources, &sink, path);
  assert_true((plan == NULL) == (sink.errors > 0));
  if (!plan) return;
  VerifyResult result;
  ++*read;
  if (!plan_verify(arena, plan, &result)) return;
  SimResult sim;
  ++*good;
  plan_simulate(arena, plan, &sim);
}

static void test_damage(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text good = {.arena = arena};
  plan_write(&good, good_plan(arena));
  char *path = arena_printf(arena, "/tmp/fsdpc-test-plan-fuzz-%d.plan", (int)getpid());
  char *copy = arena_alloc(arena, good.length);
  const char *rounds = getenv("FSDPC_FUZZ_ROUNDS");
  Random random = {2024};
  uint32_t read = 0, accepted = 0;
  for (int round = 0; round < (rounds ? atoi(rounds) : ROUNDS); round++) {
    Text text = {.data = copy, .length = good.length};
    memcpy(copy, good.data, good.length);
    for (uint32_t i = 0, n = 1 + below(&random, MUTATIONS_MOST); i < n; i++) mutate(&random, &text);
    unlink(path); /* a new file: one that is cut and written again waits for the disk on some file systems */
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    fwrite(text.data, 1, text.length, out);
    fclose(out);
    Arena *round_arena = arena_new();
    judge(round_arena, path, &read, &accepted);
    arena_free(round_arena);
  }
  unlink(path);
  print_message("%u were read, %u of them are good plans\n", read, accepted);
  assert_true(read > 100 && accepted < read);
  arena_free(arena);
}

/* Damage to the plan in memory, which no reader looked at: structure alone stands between it and the rest. */
static void test_damage_in_memory(void **state) {
  (void)state;
  Random random = {7};
  static const uint32_t odd[] = {
      0, 1, 2, 3, 40, 255, 1u << 16, 1u << 30, INT32_MAX, 1u << 31, UINT32_MAX - 1, UINT32_MAX};
  for (int round = 0; round < ROUNDS / 4; round++) {
    Arena *arena = arena_new();
    Plan *plan = good_plan(arena);
    struct {
      void *data;
      size_t bytes;
    } arrays[] = {{plan->bufs.data, plan->bufs.count * sizeof *plan->bufs.data},
                  {plan->instrs.data, plan->instrs.count * sizeof *plan->instrs.data},
                  {plan->waits.data, plan->waits.count * sizeof *plan->waits.data},
                  {plan->ints.data, plan->ints.count * sizeof *plan->ints.data},
                  {plan->segments.data, plan->segments.count * sizeof *plan->segments.data}};
    for (uint32_t i = 0, n = 1 + below(&random, 3); i < n; i++) {
      uint32_t which = below(&random, sizeof arrays / sizeof arrays[0]);
      size_t words = arrays[which].bytes / sizeof(uint32_t);
      uint32_t value = odd[below(&random, sizeof odd / sizeof odd[0])];
      size_t at = below(&random, (uint32_t)words);
      size_t word = at % (sizeof(PlanBuf) / sizeof(uint32_t));
      if (which == 0 && (word == offsetof(PlanBuf, persistent) / sizeof(uint32_t) || word == offsetof(PlanBuf, host) / sizeof(uint32_t)))
        continue; /* a bool that is neither has no meaning */
      memcpy((char *)arrays[which].data + 4 * at, &value, sizeof value);
    }
    VerifyResult result;
    plan_verify(arena, plan, &result);
    arena_free(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_damage), cmocka_unit_test(test_damage_in_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
