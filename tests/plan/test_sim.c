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

/* Between replicas it is communication as any other: to clocks, to contention and to what is uncertain. */
static void test_replicas(void **state) {
  (void)state;
  Arena *arena = arena_new();
  SimResult reduced, replicated;
  for (int contention = 0; contention < 2; contention++) {
    Plan *plan = by_hand(arena).plan;
    plan->overlap = (PlanOverlap){.contention = 0.5 * contention, .comm_slowdown = 0.25 * contention, .comm_spread = 0.3};
    plan_simulate(arena, plan, &reduced);
    for (uint32_t i = 0; i < plan->instrs.count; i++)
      if (plan->instrs.data[i].stream == STREAM_REDUCE) plan->instrs.data[i].stream = STREAM_REPLICATE;
    plan->queue[STREAM_REPLICATE] = plan->queue[STREAM_REDUCE];
    plan_simulate(arena, plan, &replicated);
    assert_int_equal(replicated.step_ns, reduced.step_ns);
    assert_int_equal(replicated.fast_ns, reduced.fast_ns);
    assert_int_equal(replicated.slow_ns, reduced.slow_ns);
    assert_int_equal(replicated.exposed_comm_ns, reduced.exposed_comm_ns);
  }
  arena_free(arena);
}

static void test_good_plan(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  SimResult sim;
  plan_simulate(arena, plan, &sim);
  uint64_t compute = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++)
    for (int32_t i = plan->segments.data[s].first; i < plan->segments.data[s].end; i++)
      if (plan->instrs.data[i].stream == STREAM_COMPUTE) compute += plan->instrs.data[i].ns * plan->segments.data[s].count;
  assert_true(compute > 0 && sim.step_ns >= compute);
  assert_int_equal(sim.step_ns, sim.segment_ns[0] + 2 * sim.segment_ns[1] + sim.segment_ns[2]);
  assert_int_equal(sim.segment_ns[0], 50); /* four zeros and a count; the all-reduce hides beside them */
  arena_free(arena);
}

/* The same plan, compute losing half beside communication and communication a quarter: worked out by hand below. */
static void test_contention(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = by_hand(arena).plan;
  SimResult alone, sim;
  plan_simulate(arena, plan, &alone);
  plan->overlap = (PlanOverlap){.contention = 0.5};
  plan_simulate(arena, plan, &sim);
  /* i3 (50 ns of compute) runs wholly beside a gather: 100 ns; i4 (100 ns) beside it and then beside the reduction. */
  span_is(&sim, 2, 200, 300);
  span_is(&sim, 3, 200, 300);
  assert_true(sim.step_ns > alone.step_ns && sim.step_ns <= sim.slow_ns);
  assert_true(sim.fast_ns <= alone.step_ns);
  plan->overlap = (PlanOverlap){.comm_slowdown = 0.25};
  plan_simulate(arena, plan, &sim);
  span_is(&sim, 2, 200, 310); /* 50 ns at 4/5, then 60 alone */
  assert_true(sim.step_ns >= alone.step_ns && sim.step_ns <= sim.slow_ns);
  arena_free(arena);
}

/* A share that a plan file cannot mean is the nearest one that it can. */
static void test_shares(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = by_hand(arena).plan;
  const double stated[] = {7, 1, -7, 0};
  uint64_t step_ns[4];
  for (int i = 0; i < 4; i++) {
    SimResult sim;
    plan->overlap = (PlanOverlap){.contention = stated[i], .comm_slowdown = stated[i]};
    plan_simulate(arena, plan, &sim);
    step_ns[i] = sim.step_ns;
  }
  assert_int_equal(step_ns[0], step_ns[1]);
  assert_int_equal(step_ns[2], step_ns[3]);
  assert_true(step_ns[1] > step_ns[3]);
  arena_free(arena);
}

/* Durations drawn within their spreads, contention at most as stated: never outside of the interval. */
static void test_interval(void **state) {
  (void)state;
  Arena *arena = arena_new();
  uint64_t seed = 1;
  for (int round = 0; round < 300; round++) {
    Plan *plan = round % 2 ? good_plan(arena) : by_hand(arena).plan;
    SimResult stated, drawn;
    for (uint32_t i = 0; i < plan->instrs.count; i++) plan->instrs.data[i].ns = 1000 + (seed = seed * 6364136223846793005u + 1442695040888963407u) / (UINT64_MAX / 9000);
    plan->overlap = (PlanOverlap){.contention = (round % 5) / 4.0, .comm_slowdown = 0.1, .compute_spread = 0.2, .comm_spread = 0.3};
    plan_simulate(arena, plan, &stated);
    assert_true(stated.fast_ns <= stated.step_ns && stated.step_ns <= stated.slow_ns);
    for (uint32_t i = 0; i < plan->instrs.count; i++) {
      PlanInstr *instr = &plan->instrs.data[i];
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      double most = instr->stream == STREAM_COMPUTE ? 0.2 : instr->stream >= STREAM_COPY_IN ? 0 : 0.3;
      instr->ns = (uint64_t)((double)instr->ns * (1 + most * (2.0 * (double)(seed >> 11) / 9007199254740992.0 - 1)));
    }
    plan->overlap.contention *= (round % 3) / 2.0;
    plan_simulate(arena, plan, &drawn);
    assert_true(stated.fast_ns <= drawn.step_ns && drawn.step_ns <= stated.slow_ns);
  }
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_hand), cmocka_unit_test(test_one_queue),
                                     cmocka_unit_test(test_replicas),
                                     cmocka_unit_test(test_good_plan),
                                     cmocka_unit_test(test_contention),
                                     cmocka_unit_test(test_shares),
                                     cmocka_unit_test(test_interval)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
