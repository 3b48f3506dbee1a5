/* Owns: tests of what a run measures of itself, on times made by hand. */
#include "testing.h"

#include "runtime/profile.h"

#include <stdlib.h>

enum { RUNS = 4, OPERANDS = 16 };

/* A step of one segment whose instructions, in the order of the list, ran on these streams at these times. */
static char *measure(const StreamId stream[RUNS], const InstrTime time[RUNS]) {
  Arena *arena = arena_new();
  Plan plan = {0};
  char *text = NULL;
  size_t bytes = 0;
  for (int i = 0; i < OPERANDS; i++) vec_add(arena, &plan.operands)->buf = PLAN_NONE;
  for (int i = 0; i < RUNS; i++) {
    PlanInstr *instr = vec_add(arena, &plan.instrs);
    instr->op = INSTR_ZERO, instr->stream = stream[i], instr->ns = 1;
  }
  *vec_add(arena, &plan.segments) = (PlanSegment){.end = RUNS, .count = 1};
  Profile *profile = profile_open(arena, &plan, 1);
  memcpy(profile_times(profile, 1), time, RUNS * sizeof *time);
  profile_take(profile, 0);
  profile_end_step(profile, 200);
  FILE *out = open_memstream(&text, &bytes);
  profile_print(profile, out);
  fclose(out);
  arena_free(arena);
  return text;
}

/* Two thirds of a reduction have computation beside them, and all of a gather that is issued later but has run before. */
static void communication_of_two_queues_is_exposed_apart(void **state) {
  (void)state;
  static const StreamId stream[RUNS] = {STREAM_COMPUTE, STREAM_REDUCE, STREAM_GATHER, STREAM_COMPUTE};
  static const InstrTime time[RUNS] = {{0, 100}, {100, 190}, {50, 80}, {130, 200}};
  char *text = measure(stream, time);
  assert_said(text, " 25 % of communication is exposed");
  free(text);
}

/* Nothing computes before, between and after. */
static void communication_is_exposed_on_both_sides(void **state) {
  (void)state;
  static const StreamId stream[RUNS] = {STREAM_COMPUTE, STREAM_GATHER, STREAM_COMPUTE, STREAM_COMPUTE};
  static const InstrTime time[RUNS] = {{20, 40}, {10, 110}, {60, 80}, {90, 100}};
  char *text = measure(stream, time);
  assert_said(text, " 50 % of communication is exposed");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(communication_of_two_queues_is_exposed_apart),
      cmocka_unit_test(communication_is_exposed_on_both_sides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
