/* Owns: the simulator against a plan small enough to follow by hand. */
#include "planner/plan/sim.h"
#include "tests/plan/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

/* Queue 0: compute, 1: gather, 2: reduce.
 *
 *   once     compute  [A 0..100]
 *   twice    gather   [G1 100..200][G2 200..300]
 *            compute           wait [B 200..250] wait [C 300..450]
 *            reduce                              wait [R 250..350]         of B; [S 450..600] of C
 *   so the segment takes 500, the step 100 + 2 x 500. Communication runs alone in 100..200, 250..300 and
 * 450..600. */
static Build by_hand(Arena *arena) {
  Build build = build_new(arena);
  int32_t x = build_buf(&build, "x", BUF_ACTIVATION, DTYPE_F32, 1, PLAN_NONE, false);
  PlanOperand operands[] = {B(x), B(x), B_NONE};
  int64_t ints[] = {1, 1, 1};
  build_segment(&build, "once", 1);
  build_instr(&build, INSTR_ZERO, PHASE_BEGIN, "A", operands, ints, NULL, 100);
  build_segment(&build, "twice", 2);
  int32_t g1 = build_instr(&build, INSTR_ALLGATHER, PHASE_FORWARD, "G1", operands, ints, NULL, 100);
  int32_t g2 = build_instr(&build, INSTR_ALLGATHER, PHASE_FORWARD, "G2", operands, ints, NULL, 100);
  int32_t b = build_instr(&build, INSTR_COPY, PHASE_FORWARD, "B", operands, ints, NULL, 50);
  build_edge(&build, g1, b);
  int32_t r = build_instr(&build, INSTR_REDUCE_SCATTER, PHASE_BACKWARD, "R", operands, ints, NULL, 100);
  build_edge(&build, b, r);
  int32_t c = build_instr(&build, INSTR_COPY, PHASE_BACKWARD, "C", operands, ints, NULL, 150);
  build_edge(&build, g2, c);
  int32_t s = build_instr(&build, INSTR_REDUCE_SCATTER, PHASE_BACKWARD, "S", operands, ints, NULL, 150);
  build_edge(&build, c, s);
  return build;
}

static void span_is(const SimResult *sim, int i, uint64_t start, uint64_t end) {
  assert_int_equal(sim->spans[i].start, start);
  assert_int_equal(sim->spans[i].end, end);
}

static void test_by_hand(void **state) {
  (void)state;
  Arena *arena = arena_new();
  SimResult sim;
  plan_simulate(arena, by_hand(arena).plan, &sim);
  span_is(&sim, 0, 0, 100);
  span_is(&sim, 1, 100, 200);
  span_is(&sim, 2, 200, 300);
  span_is(&sim, 3, 200, 250);
  span_is(&sim, 4, 250, 350);
  span_is(&sim, 5, 300, 450);
  span_is(&sim, 6, 450, 600);
  assert_int_equal(sim.segment_ns[0], 100);
  assert_int_equal(sim.segment_ns[1], 500);
  assert_int_equal(sim.step_ns, 1100);
  assert_int_equal(sim.exposed_comm_ns, 2 * (100 + 50 + 150));
  assert_int_equal(sim.busy_ns[STREAM_COMPUTE], 100 + 2 * 200);
  assert_int_equal(sim.busy_ns[STREAM_GATHER], 2 * 200);
  assert_int_equal(sim.busy_ns[STREAM_REDUCE], 2 * 250);
  assert_int_equal(sim.phase_ns[PHASE_BEGIN], 100);
  assert_int_equal(sim.phase_ns[PHASE_FORWARD], 2 * 50);
  assert_int_equal(sim.phase_ns[PHASE_BACKWARD], 2 * 150);
  arena_free(arena);
}

/* All on one queue: the sum of all times, and all communication is exposed. */
static void test_one_queue(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = by_hand(arena).plan;
  for (int s = 0; s < STREAM_COUNT; s++) plan->queue[s] = 0;
  SimResult sim;
  plan_simulate(arena, plan, &sim);
  assert_int_equal(sim.step_ns, 100 + 2 * 650);
  assert_int_equal(sim.exposed_comm_ns, 2 * 450);
  arena_free(arena);
}

static void test_good_plan(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  SimResult sim;
  plan_simulate(arena, plan, &sim);
  uint64_t compute = 0;
  for (int p = 0; p < PHASE_COUNT; p++) compute += sim.phase_ns[p];
  assert_int_equal(compute, sim.busy_ns[STREAM_COMPUTE]);
  assert_true(sim.step_ns >= compute);
  assert_int_equal(sim.step_ns, sim.segment_ns[0] + 2 * sim.segment_ns[1] + sim.segment_ns[2]);
  assert_int_equal(sim.segment_ns[0], 50); /* four zeros and a count; the all-reduce hides beside them */
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_hand), cmocka_unit_test(test_one_queue),
                                     cmocka_unit_test(test_good_plan)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
