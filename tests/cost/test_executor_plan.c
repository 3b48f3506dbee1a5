/* Owns: promises of planning for other executors: a larger budget is never slower, nothing of the space is faster than the choice,
 * pins hold, the written policy predicts what was planned, equal input gives equal output, and what would fit does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/executor/executor_search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Run {
  Arena *arena;
  SourceSet sources;
  DiagSink sink;
  Graph *graph;
  PlannerOptions options;
  ExecutorPlan plan;
} Run;

typedef struct Job {
  const char *model, *sets[3];
  ExecutorId executor;
  int64_t ranks;
} Job;

static const Job jobs[] = {{"models/llama3-8b.fsdp", {"layers=6", "ctx=2048"}, EXECUTOR_FSDP2_COMPILED, 16},
                           {"models/gpt2-large.fsdp", {"layers=7"}, EXECUTOR_FSDP2_EAGER, 8},
                           {"models/llama3.2-1b.fsdp", {"layers=5"}, EXECUTOR_FSDP1_EAGER, 32},
                           {"models/gpt2-xl.fsdp", {"layers=9"}, EXECUTOR_FSDP1_FOUNDRY, 4},
                           {"models/gpt2.fsdp", {NULL}, EXECUTOR_FSDP1_AUTOCAST, 1},
                           {"models/llama3.2-1b.fsdp", {"layers=6"}, EXECUTOR_FSDP2_COMPILED, 1}};
enum { JOBS = sizeof jobs / sizeof *jobs };

static void open_file(Run *run, const char *path, const Job *job) {
  memset(run, 0, sizeof *run);
  run->arena = arena_new();
  run->sources.arena = run->arena;
  run->sink = (DiagSink){.arena = run->arena, .sources = &run->sources};
  FrontendOptions options = {.sets = job->sets, .cluster_path = "models/clusters/dgx-a100-80.fsdp"};
  while (options.set_count < 3 && job->sets[options.set_count]) options.set_count++;
  run->graph = frontend_compile(run->arena, &run->sources, &run->sink, path, &options);
  assert_non_null(run->graph);
  run->options = (PlannerOptions){.ranks = job->ranks, .settings = run->graph->plan};
}

static void open_job(Run *run, const Job *job) {
  open_file(run, job->model, job);
  run->options.settings.executor.id = job->executor;
}

static void plan(Run *run) {
  assert_true(executor_plan(run->arena, &run->sink, run->graph, &run->options, &run->plan));
}

static double per_sample(const ExecutorPlan *plan) {
  return plan->prediction.step_ns / ((double)plan->world.micro_batch * (double)plan->world.accumulation * plan->world.ranks);
}

/* --- budgets ------------------------------------------------------------------------------------------------ */

/* Bytes that the smallest policy reserves. */
static uint64_t smallest(Run *run) {
  run->options.settings.memory_bytes = 1;
  plan(run);
  assert_false(run->plan.fits);
  return (uint64_t)run->plan.prediction.reserved_bytes + 1;
}

static void test_budgets(void **state) {
  (void)state;
  for (int j = 0; j < JOBS; j++) {
    Run run;
    open_job(&run, &jobs[j]);
    uint64_t least = smallest(&run);
    double before = 0;
    for (int step = 0; step <= 12; step++) {
      run.options.settings.memory_bytes = least + least / 5 * (uint64_t)step;
      plan(&run);
      assert_true(run.plan.fits);
      assert_true(run.plan.prediction.reserved_bytes <= (double)run.options.settings.memory_bytes);
      if (step) assert_true(per_sample(&run.plan) <= before);
      before = per_sample(&run.plan);
    }
    arena_free(run.arena);
  }
}

/* --- the best of the space ---------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t *seed, uint32_t below) {
  *seed = *seed * 1664525u + 1013904223u;
  return (*seed >> 8) % below;
}

/* A policy drawn by hand, not by way of the grid. */
static void draw_policy(uint32_t *seed, Run *run, PlanSettings *s, ExecutorWorld *w) {
  static const Strategy strategies[] = {STRATEGY_FULL_SHARD, STRATEGY_SHARD_GRAD_OP, STRATEGY_HYBRID_SHARD, STRATEGY_NO_SHARD};
  *s = run->options.settings;
  assert_true(executor_world(&run->sink, run->graph, &run->options, w));
  bool fsdp1 = s->executor.id >= EXECUTOR_FSDP1_EAGER;
  s->wrap = WRAP_BLOCK;
  s->strategy = w->ranks > 1 ? strategies[draw(seed, 4)] : STRATEGY_NO_SHARD;
  if (s->strategy == STRATEGY_HYBRID_SHARD) s->shard = w->ranks >> 1;
  w->shard = s->strategy == STRATEGY_HYBRID_SHARD ? w->ranks >> 1 : s->strategy == STRATEGY_NO_SHARD ? 1 : w->ranks;
  s->reshard = s->strategy == STRATEGY_SHARD_GRAD_OP ? SETTING_AUTO : (int32_t)draw(seed, 2);
  s->prefetch = fsdp1 ? 1 : 1 + draw(seed, 3);
  s->checkpoint = draw(seed, 2) ? CHECKPOINT_FULL : CHECKPOINT_NONE;
  if (s->checkpoint == CHECKPOINT_NONE && draw(seed, 2)) s->executor.selective = SELECTIVE_OPERATORS;
  s->offload = fsdp1 || draw(seed, 2) ? 0 : OFFLOAD_STATES;
  s->executor.reduce = draw(seed, 2) ? REDUCE_STEP : REDUCE_MICRO_BATCH;
  int64_t share = (int64_t)(run->graph->recipe.samples_per_step / w->ranks);
  do w->micro_batch = 1 + draw(seed, share < 32 ? (uint32_t)share : 32);
  while (share % w->micro_batch);
  w->accumulation = share / w->micro_batch;
  s->micro_batch = w->micro_batch;
}

/* Policies that fit this job's plan, which takes `percent` of the memory that the smallest needs. */
static uint32_t compare_drawn(uint32_t *seed, const Job *job, uint32_t percent) {
  uint32_t fitting = 0;
  Run run;
  open_job(&run, job);
  run.options.settings.memory_bytes = smallest(&run) / 100 * percent;
  plan(&run);
  assert_true(run.plan.fits && run.plan.prediction.reserved_bytes <= (double)run.options.settings.memory_bytes);
  for (int i = 0; i < 200; i++) {
    PlanSettings settings;
    ExecutorWorld world;
    ExecutorPrediction other;
    draw_policy(seed, &run, &settings, &world);
    assert_true(executor_predict(run.arena, &run.sink, run.graph, &settings, &world, &other));
    if (other.reserved_bytes > (double)run.options.settings.memory_bytes || !other.host_fits) continue;
    double each = other.step_ns / ((double)world.micro_batch * (double)world.accumulation * world.ranks);
    assert_true(per_sample(&run.plan) <= each * (1 + 1e-12));
    fitting++;
  }
  arena_free(run.arena);
  return fitting;
}

static void test_nothing_is_faster(void **state) {
  (void)state;
  static const uint32_t percents[] = {110, 130, 160, 200};
  uint32_t seed = 1, fitting = 0;
  for (int j = 0; j < JOBS; j++)
    for (size_t p = 0; p < sizeof percents / sizeof *percents; p++) fitting += compare_drawn(&seed, &jobs[j], percents[p]);
  assert_true(fitting > 100);
}

/* All of the model as one unit: where blocks are so small that issuing the hooks of units takes longer than what they compute. */
static void test_one_unit(void **state) {
  (void)state;
  static const WrapKind pins[] = {WRAP_BLOCK, WRAP_WHOLE, WRAP_AUTO};
  double each[3];
  for (int i = 0; i < 3; i++) {
    Run run;
    open_job(&run, &(Job){"models/gpt2-medium.fsdp", {NULL}, EXECUTOR_FSDP2_EAGER, 8});
    run.options.settings.micro_batch = 1;
    run.options.settings.wrap = pins[i];
    plan(&run);
    each[i] = per_sample(&run.plan);
    arena_free(run.arena);
  }
  assert_true(each[1] < each[0] && each[2] <= each[1]);
}

/* It has the hooks of a unit: those of all blocks in one are no slower for having theirs. */
static void test_root_hooks(void **state) {
  (void)state;
  double each[2];
  for (int i = 0; i < 2; i++) {
    Run run;
    open_job(&run, &(Job){"tests/cost/shared-weight.fsdp", {NULL}, EXECUTOR_FSDP2_EAGER, 8});
    run.options.settings.wrap = i ? WRAP_WHOLE : WRAP_SIZE;
    run.options.settings.wrap_numel = 1 << 30;
    plan(&run);
    each[i] = per_sample(&run.plan);
    arena_free(run.arena);
  }
  assert_true(each[1] < 1.1 * each[0] && each[0] < 1.1 * each[1]);
}

/* --- the written policy ------------------------------------------------------------------------------------- */

static void test_written_policy(void **state) {
  (void)state;
  for (int j = 0; j < JOBS; j++) {
    Run run, read;
    open_job(&run, &jobs[j]);
    run.options.settings.memory_bytes = smallest(&run) * 3 / 2;
    plan(&run);
    Text block = {.arena = run.arena};
    settings_write_plan(&block, &run.plan.settings);
    const char *text = frontend_with_plan(run.arena, &run.sources, &run.sink, jobs[j].model, block.data, jobs[j].model, frontend_models());
    assert_non_null(text);
    char path[] = "/tmp/fsdpc-policy-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text) && close(file) == 0);
    open_file(&read, path, &jobs[j]);
    unlink(path);
    ExecutorWorld world;
    assert_true(executor_world(&read.sink, read.graph, &read.options, &world));
    ExecutorPrediction again;
    assert_true(executor_predict(read.arena, &read.sink, read.graph, &read.options.settings, &world, &again));
    assert_true(again.step_ns == run.plan.prediction.step_ns);
    assert_true(again.active_bytes == run.plan.prediction.active_bytes && again.reserved_bytes == run.plan.prediction.reserved_bytes);
    /* Every decision is pinned: planning the file finds nothing else. */
    plan(&read);
    assert_true(read.plan.candidates == 1 && read.plan.prediction.step_ns == again.step_ns);
    arena_free(read.arena);
    arena_free(run.arena);
  }
}

static void test_deterministic(void **state) {
  (void)state;
  Run a, b;
  open_job(&a, &jobs[0]), open_job(&b, &jobs[0]);
  plan(&a), plan(&b);
  Text one = {.arena = a.arena}, other = {.arena = b.arena};
  settings_write_plan(&one, &a.plan.settings);
  settings_write_plan(&other, &b.plan.settings);
  assert_string_equal(one.data, other.data);
  assert_int_equal(a.plan.runners.count, b.plan.runners.count);
  for (uint32_t i = 0; i < a.plan.runners.count; i++) assert_string_equal(a.plan.runners.data[i].lost, b.plan.runners.data[i].lost);
  arena_free(a.arena), arena_free(b.arena);
}

/* --- pins ----------------------------------------------------------------------------------------------------- */

static void test_pins(void **state) {
  (void)state;
  Run run;
  open_job(&run, &jobs[0]);
  PlanSettings *asked = &run.options.settings;
  asked->strategy = STRATEGY_HYBRID_SHARD, asked->shard = 8;
  asked->wrap = WRAP_BLOCK, asked->reshard = 4, asked->checkpoint = CHECKPOINT_FULL, asked->prefetch = 2, asked->micro_batch = 2;
  asked->executor.reduce = REDUCE_MICRO_BATCH;
  plan(&run);
  const PlanSettings *got = &run.plan.settings;
  assert_int_equal(run.plan.candidates, 2); /* offload is open */
  asked->offload = 0;
  plan(&run);
  assert_int_equal(run.plan.candidates, 1);
  assert_true(got->strategy == STRATEGY_HYBRID_SHARD && got->shard == 8 && run.plan.world.shard == 8);
  assert_true(got->wrap == WRAP_BLOCK && got->reshard == 4 && got->checkpoint == CHECKPOINT_FULL && got->prefetch == 2);
  assert_true(got->micro_batch == 2 && run.plan.world.micro_batch == 2 && got->reduce == CADENCE_MICRO_BATCH);
  asked->reshard = 3; /* divides nothing */
  assert_false(executor_plan(run.arena, &run.sink, run.graph, &run.options, &run.plan));
  assert_true(run.sink.errors > 0);
  arena_free(run.arena);
}

/* --- what would fit ------------------------------------------------------------------------------------------- */

static void test_what_would_fit(void **state) {
  (void)state;
  Run run;
  open_job(&run, &jobs[0]);
  run.options.settings.memory_bytes = smallest(&run) * 9 / 10;
  plan(&run);
  assert_false(run.plan.fits);
  bool more_ranks = false;
  for (uint32_t i = 0; i < run.plan.relaxations.count; i++) {
    const char *line = run.plan.relaxations.data[i].text;
    long long ranks;
    char size[32];
    if (sscanf(line, "memory %31s", size) == 1) {
      Quantity proposed;
      const char *why;
      Run enough;
      open_job(&enough, &jobs[0]);
      assert_true(quantity_parse(size, &proposed, &why));
      enough.options.settings.memory_bytes = (uint64_t)proposed.value;
      plan(&enough);
      assert_true(enough.plan.fits);
      arena_free(enough.arena);
    }
    if (sscanf(line, "ranks %lld", &ranks) != 1) continue;
    Run larger;
    open_job(&larger, &jobs[0]);
    larger.options.ranks = ranks;
    larger.options.settings.memory_bytes = run.options.settings.memory_bytes;
    plan(&larger);
    assert_int_equal(larger.plan.fits, strstr(line, ", fits") != NULL);
    assert_int_equal(larger.plan.fits, run.plan.relaxations.data[i].fits);
    more_ranks = true;
    arena_free(larger.arena);
  }
  assert_true(more_ranks);
  arena_free(run.arena);
}

/* What a block shares with a layer outside stays in the root, however blocks are grouped. */
static void test_shared_weight(void **state) {
  (void)state;
  const Job job = {"tests/cost/shared-weight.fsdp", {NULL}, EXECUTOR_FSDP2_EAGER, 8};
  const double d = 64;
  double blocks = 0, root = 0;
  Run run;
  open_job(&run, &job);
  run.options.settings.strategy = STRATEGY_FULL_SHARD;
  run.options.settings.reshard = 2; /* of units */
  plan(&run);
  for (uint32_t u = 0; u < run.plan.units.count; u++) *(run.plan.units.data[u].blocks ? &blocks : &root) += run.plan.units.data[u].numel;
  assert_true(blocks == (2 * 4 - 1) * d * d + 4 * d);
  assert_true(root == 2 * 256 * d + d * d); /* embedding, head and the shared weight */
  arena_free(run.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_budgets),        cmocka_unit_test(test_nothing_is_faster),
                                     cmocka_unit_test(test_one_unit),       cmocka_unit_test(test_root_hooks),
                                     cmocka_unit_test(test_written_policy), cmocka_unit_test(test_deterministic),
                                     cmocka_unit_test(test_pins),           cmocka_unit_test(test_what_would_fit),
                                     cmocka_unit_test(test_shared_weight)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
