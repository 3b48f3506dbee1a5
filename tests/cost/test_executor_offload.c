/* Owns: FSDP2's CPUOffloadPolicy, worked out by hand: what leaves the device, what crosses the link, the optimizer on the host; when a
 * search considers it, that FSDP1's is predicted too, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/executor/executor_search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The model of llmf-h100-021: d = 4,096, 32 blocks. */
static const double D = 4096, F = 16384, V = 50368, LENGTH = 2048, LAYERS = 32;

typedef struct Run {
  Arena *arena;
  SourceSet sources;
  DiagSink sink;
  Graph *graph;
  PlannerOptions options;
  ExecutorWorld world;
  ExecutorPrediction out;
  ExecutorPlan plan;
} Run;

static void open_run(Run *run, uint32_t ranks) {
  memset(run, 0, sizeof *run);
  run->arena = arena_new();
  run->sources.arena = run->arena;
  run->sink = (DiagSink){.arena = run->arena, .sources = &run->sources};
  run->graph = frontend_compile(run->arena, &run->sources, &run->sink, "tests/cost/llmf-h100-021.fsdp", &(FrontendOptions){0});
  assert_non_null(run->graph);
  run->options = (PlannerOptions){.ranks = ranks, .settings = run->graph->plan};
  run->options.settings.executor = (ExecutorSettings){.id = EXECUTOR_FSDP2_EAGER};
  run->options.settings.micro_batch = 6;
  run->world = (ExecutorWorld){.ranks = ranks, .shard = ranks, .ranks_per_node = ranks, .micro_batch = 6, .accumulation = 1};
}

static void predict(Run *run, int32_t offload) {
  run->options.settings.offload = offload;
  assert_true(executor_predict(run->arena, &run->sink, run->graph, &run->options.settings, &run->world, &run->out));
}

static void near(const char *what, double value, double expected, double relative) {
  if (fabs(value - expected) > relative * fabs(expected)) fprintf(stderr, "%s: %.9g, expected %.9g\n", what, value, expected);
  assert_true(fabs(value - expected) <= relative * fabs(expected));
}

static double block_numel(void) { return 4 * D * D + 2 * D * F + 9 * D + F; }
static double root_numel(void) { return V * D + LENGTH * D + 2 * D; }
static double all_numel(void) { return LAYERS * block_numel() + root_numel(); }

/* --- one policy ---------------------------------------------------------------------------------------------- */

/* At the end of forward 12 bytes a local parameter are gone; shards of three units are on their way. */
static void test_states_leave_the_device(void **state) {
  (void)state;
  Run run;
  open_run(&run, 8);
  predict(&run, 0);
  ExecutorPrediction kept = run.out;
  assert_true(kept.host_bytes == 0 && kept.host_fits);
  predict(&run, OFFLOAD_STATES);
  assert_string_equal(kept.peak_at, "end of forward");
  assert_string_equal(run.out.peak_at, "end of forward");
  assert_true(run.out.states_bytes == 0);
  near("host", run.out.host_bytes, 16 * all_numel() / 8, 1e-9);
  near("active", kept.active_bytes - run.out.active_bytes, 12 * all_numel() / 8 - 3 * 4 * block_numel() / 8, 1e-9);
  arena_free(run.arena);
}

/* 187 bytes a parameter where the optimizer is not fused, 36 where it is, at the host's pace; and 1 ms, as on the device. */
static void test_optimizer_on_the_host(void **state) {
  (void)state;
  Run run;
  open_run(&run, 8);
  predict(&run, OFFLOAD_STATES);
  near("loop", run.out.update_ns, 1e6 + 1e9 * 187 * all_numel() / 8 / 36e9, 1e-9);
  run.options.settings.executor.update = UPDATE_FUSED;
  predict(&run, OFFLOAD_STATES);
  near("fused", run.out.update_ns, 1e6 + 1e9 * 36 * all_numel() / 8 / 36e9, 1e-9);
  arena_free(run.arena);
}

/* Over a link that is never waited for a step differs by the optimizer; over a slow one it is what crosses the link: all shards in
 * forward, again those of units that were not kept, and the gradients of the last unit after everything. */
static void test_link(void **state) {
  (void)state;
  Run run;
  open_run(&run, 8);
  predict(&run, 0);
  ExecutorPrediction kept = run.out;
  run.graph->cluster.device.host_link = 1e18;
  predict(&run, OFFLOAD_STATES);
  near("fast", run.out.step_ns - kept.step_ns, run.out.update_ns - kept.update_ns, 1e-6);
  double link = 1e8, in = 4 * (all_numel() + 31 * block_numel()) / 8, out = 4 * all_numel() / 8;
  run.graph->cluster.device.host_link = link;
  predict(&run, OFFLOAD_STATES);
  double step = run.out.step_ns - run.out.update_ns;
  assert_true(step > 1e9 * in / link && step < 1e9 * (in + out) / link);
  assert_true(run.out.exposed_ns > 0.9 * step);
  arena_free(run.arena);
}

/* Gradients that are already on the host are added to by its thread, which issues nothing meanwhile. */
static void test_accumulating_on_the_host(void **state) {
  (void)state;
  Run run;
  open_run(&run, 8);
  run.world.accumulation = 3;
  run.options.settings.executor.reduce = REDUCE_STEP;
  predict(&run, OFFLOAD_STATES);
  ExecutorPrediction once = run.out;
  run.options.settings.executor.reduce = REDUCE_MICRO_BATCH;
  predict(&run, OFFLOAD_STATES);
  double copy = 4 * all_numel() / 8 / run.graph->cluster.device.host_link, add = 12 * all_numel() / 8 / 36e9;
  assert_true(run.out.exposed_ns - once.exposed_ns > 0.9 * 2e9 * (copy + add));
  assert_true(run.out.active_bytes < once.active_bytes);
  arena_free(run.arena);
}

/* One rank has nobody to gather from, and still fetches unit by unit. */
static void test_one_rank(void **state) {
  (void)state;
  Run run;
  open_run(&run, 1);
  predict(&run, 0);
  ExecutorPrediction kept = run.out;
  predict(&run, OFFLOAD_STATES);
  near("host", run.out.host_bytes, 16 * all_numel(), 1e-9);
  assert_true(run.out.active_bytes < kept.active_bytes - 8 * all_numel() && run.out.step_ns > kept.step_ns);
  assert_true(run.out.gather_ns == 0 && run.out.reduce_ns == 0);
  run.world.accumulation = 2; /* what adds up unreduced stays on the device: 4 bytes a parameter */
  run.options.settings.executor.reduce = REDUCE_STEP;
  predict(&run, OFFLOAD_STATES);
  assert_true(run.out.peak.gradients >= 4 * all_numel() * (1 - 1e-9));
  arena_free(run.arena);
}

/* --- the search ------------------------------------------------------------------------------------------------ */

static void plan(Run *run, double gib) {
  run->options.settings.memory_bytes = (uint64_t)(gib * 1073741824.0);
  assert_true(executor_plan(run->arena, &run->sink, run->graph, &run->options, &run->plan));
}

/* GiB that the smallest policy reserves. */
static double smallest(Run *run, int32_t offload) {
  run->options.settings.offload = offload;
  run->options.settings.memory_bytes = 1;
  assert_true(executor_plan(run->arena, &run->sink, run->graph, &run->options, &run->plan) && !run->plan.fits);
  return run->plan.prediction.reserved_bytes / 1073741824.0;
}

/* Not where states fit; where nothing else does; and no more than the host's memory holds. */
static void test_only_where_it_pays(void **state) {
  (void)state;
  Run run;
  open_run(&run, 8);
  run.options.settings.offload = SETTING_AUTO;
  run.options.settings.checkpoint = CHECKPOINT_FULL;
  plan(&run, 70);
  assert_true(run.plan.fits && run.plan.settings.offload == 0);
  double fast = run.plan.prediction.step_ns, between = (smallest(&run, 0) + smallest(&run, OFFLOAD_STATES)) / 2;
  run.options.settings.offload = SETTING_AUTO;
  plan(&run, between);
  assert_true(run.plan.fits && run.plan.settings.offload == OFFLOAD_STATES && run.plan.prediction.step_ns > fast);
  run.options.settings.offload = 0;
  plan(&run, between);
  assert_false(run.plan.fits);
  run.options.settings.offload = SETTING_AUTO;
  run.graph->cluster.device.host_memory = (uint64_t)(15.9 * all_numel() / 8);
  plan(&run, between);
  assert_false(run.plan.fits);
  run.graph->cluster.device.host_memory = 0; /* not stated: only when asked for */
  plan(&run, between);
  assert_false(run.plan.fits);
  run.options.settings.offload = OFFLOAD_STATES;
  plan(&run, between);
  assert_true(run.plan.fits);
  arena_free(run.arena);
}

/* Slow links between nodes and a fast one to the host: with the states away, fewer micro-batches, and so fewer gathers, are a step. */
static void test_where_it_is_faster(void **state) {
  (void)state;
  Run run;
  open_run(&run, 8);
  PlanSettings *s = &run.options.settings;
  s->offload = SETTING_AUTO;
  s->micro_batch = SETTING_AUTO;
  s->executor.update = UPDATE_FUSED;
  s->checkpoint = CHECKPOINT_FULL;
  run.graph->recipe.samples_per_step = 8 * 64;
  run.graph->cluster.device.host_link = 1e12;
  run.graph->cluster.tables.count = 0;
  run.graph->cluster.node.bandwidth = run.graph->cluster.node.reduce_bandwidth = 4e9;
  plan(&run, 22);
  assert_true(run.plan.fits && run.plan.settings.offload == OFFLOAD_STATES);
  double away = run.plan.prediction.step_ns;
  s->offload = 0;
  plan(&run, 22);
  assert_true(run.plan.fits && run.plan.prediction.step_ns > away);
  arena_free(run.arena);
}

/* FSDP1's CPUOffload: predicted alike. Its plans are not searched for. */
static void test_flat_units(void **state) {
  (void)state;
  Run run;
  open_run(&run, 8);
  run.options.settings.executor.id = EXECUTOR_FSDP1_EAGER;
  predict(&run, 0);
  double kept = run.out.active_bytes, held = run.out.states_bytes;
  predict(&run, OFFLOAD_STATES);
  assert_true(run.out.states_bytes == 0 && held > 0);
  assert_true(run.out.active_bytes < kept && run.out.reserved_bytes >= run.out.active_bytes);
  near("the host's", run.out.host_bytes, 16 * all_numel() / 8, 1e-9);
  uint32_t before = run.sink.errors;
  assert_false(executor_plan(run.arena, &run.sink, run.graph, &run.options, &run.plan));
  assert_int_equal(run.sink.errors, before + 1);
  assert_non_null(strstr(run.sink.list.data[run.sink.list.count - 1]->text, "is predicted, not planned"));
  run.options.settings.offload = OFFLOAD_OPTIMIZER;
  assert_false(executor_predict(run.arena, &run.sink, run.graph, &run.options.settings, &run.world, &run.out));
  assert_non_null(strstr(run.sink.list.data[run.sink.list.count - 1]->text, "together (CPUOffload)"));
  arena_free(run.arena);
}

/* --- what is refused --------------------------------------------------------------------------------------------- */

static void refused(Run *run, ExecutorId id, int32_t offload, const char *why) {
  run->options.settings.executor.id = id;
  run->options.settings.offload = offload;
  uint32_t before = run->sink.errors;
  assert_false(executor_predict(run->arena, &run->sink, run->graph, &run->options.settings, &run->world, &run->out));
  assert_false(executor_plan(run->arena, &run->sink, run->graph, &run->options, &run->plan));
  assert_int_equal(run->sink.errors, before + 2);
  const Diag *last = run->sink.list.data[run->sink.list.count - 1];
  assert_non_null(strstr(last->text, why));
  assert_true(last->helps.count > 0);
}

static void test_refusals(void **state) {
  (void)state;
  Run run;
  open_run(&run, 8);
  refused(&run, EXECUTOR_FSDP2_EAGER, OFFLOAD_OPTIMIZER, "offloads parameters, gradients and optimizer together");
  refused(&run, EXECUTOR_FSDP2_EAGER, OFFLOAD_STATES | OFFLOAD_ACTIVATIONS, "and no activations");
  run.options.settings.executor.offload = TRAINER_OFFLOADS_M;
  refused(&run, EXECUTOR_FSDP2_EAGER, OFFLOAD_STATES, "the executor's block some of them");
  run.options.settings.executor.offload = 0;
  run.graph->cluster.device.host_link = 0;
  refused(&run, EXECUTOR_FSDP2_EAGER, OFFLOAD_STATES, "states no link to host memory");
  arena_free(run.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_states_leave_the_device), cmocka_unit_test(test_optimizer_on_the_host),
                                     cmocka_unit_test(test_link),                    cmocka_unit_test(test_accumulating_on_the_host),
                                     cmocka_unit_test(test_one_rank),                cmocka_unit_test(test_only_where_it_pays),
                                     cmocka_unit_test(test_where_it_is_faster),      cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_flat_units)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
