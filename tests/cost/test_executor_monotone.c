/* Owns: predictions around the published runs behave as such runs do: more work takes longer and needs more, faster devices and
 * leaner executors win, in every dtype, for several models, devices and executors. A constant that fits its rows by accident
 * shows here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/executor/executor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One configuration; what is 0 or NULL is the default. */
typedef struct Case {
  const char *model;   /* under models/ */
  const char *cluster; /* under models/clusters */
  const char *sets[2]; /* name=value */
  ExecutorId executor;
  DType compute, reduce;
  CheckpointKind checkpoint;
  SelectiveKind selective;
  Strategy strategy;
  int32_t reshard; /* -1 auto */
  int64_t prefetch;
  uint32_t ranks, shard;
  int64_t micro, accumulation;
} Case;

static const Case base = {.model = "llama3-8b",
                          .cluster = "dgx-h100",
                          .executor = EXECUTOR_FSDP2_COMPILED,
                          .compute = DTYPE_BF16,
                          .reduce = DTYPE_F32,
                          .checkpoint = CHECKPOINT_NONE,
                          .strategy = STRATEGY_FULL_SHARD,
                          .reshard = SETTING_AUTO,
                          .prefetch = 1,
                          .ranks = 8,
                          .micro = 2,
                          .accumulation = 1};

static ExecutorPrediction predict(const Case *c) {
  Arena *arena = arena_new();
  SourceSet sources = {.arena = arena};
  DiagSink sink = {.arena = arena, .sources = &sources};
  char cluster[64];
  snprintf(cluster, sizeof cluster, "models/clusters/%s.fsdp", c->cluster);
  FrontendOptions options = {.sets = c->sets, .set_count = c->sets[1] ? 2 : c->sets[0] ? 1 : 0, .cluster_path = cluster};
  Graph *graph = frontend_compile(arena, &sources, &sink, arena_printf(arena, "models/%s.fsdp", c->model), &options);
  assert_non_null(graph);
  graph->recipe.compute = c->compute;
  graph->recipe.reduce = c->reduce;
  PlanSettings settings = graph->plan;
  settings.executor.id = c->executor;
  settings.executor.selective = c->selective;
  settings.checkpoint = c->checkpoint;
  settings.strategy = c->strategy;
  settings.reshard = c->reshard;
  settings.prefetch = c->prefetch;
  int64_t node = graph->cluster.node_devices;
  ExecutorWorld world = {.ranks = c->ranks,
                         .shard = c->shard ? c->shard : c->ranks,
                         .ranks_per_node = c->ranks < node ? c->ranks : (uint32_t)node,
                         .micro_batch = c->micro,
                         .accumulation = c->accumulation};
  ExecutorPrediction out;
  assert_true(executor_predict(arena, &sink, graph, &settings, &world, &out));
  out.peak_at = NULL; /* of the arena */
  arena_free(arena);
  return out;
}

/* --- relations -------------------------------------------------------------------------------------------- */

static void name(const Case *c, const char *what) {
  fprintf(stderr, "%s: %s on %s, %s, %s, %s, ranks %u, micro-batch %lld\n", what, c->model, c->cluster, executor_name(c->executor),
          dtype_name(c->compute), c->sets[0] ? c->sets[0] : "", c->ranks, (long long)c->micro);
}

#define HOLDS(relation, c)                                                                                                         \
  do {                                                                                                                             \
    if (!(relation)) name((c), #relation);                                                                                         \
    assert_true(relation);                                                                                                         \
  } while (0)

static void sane(const Case *c, const ExecutorPrediction *p) {
  HOLDS(p->step_ns > 0 && isfinite(p->step_ns), c);
  HOLDS(p->exposed_ns >= 0 && p->exposed_ns <= p->step_ns, c);
  HOLDS(p->active_bytes > p->states_bytes && p->reserved_bytes >= p->active_bytes, c);
  const ExecutorBytes *peak = &p->peak;
  double sum = peak->parameters + peak->gradients + peak->optimizer + peak->gathered + peak->activations + peak->workspace;
  HOLDS(fabs(sum / p->active_bytes - 1) < 1e-9, c);
  HOLDS(p->mfu > 0 && p->mfu < 1, c);
}

/* A full device reserves all that there is, whatever more is asked for. */
static bool reserves_more(const ExecutorPrediction *less, const ExecutorPrediction *more) {
  bool full = more->fits && more->reserved_bytes == more->capacity_bytes;
  return more->reserved_bytes > less->reserved_bytes || (full && less->reserved_bytes == more->reserved_bytes);
}

/* More work: longer, and needs more. */
static void more(const Case *less, const Case *more) {
  ExecutorPrediction a = predict(less), b = predict(more);
  sane(less, &a), sane(more, &b);
  HOLDS(b.step_ns > a.step_ns, more);
  HOLDS(b.active_bytes > a.active_bytes && reserves_more(&a, &b), more);
  HOLDS(b.saved_bytes > a.saved_bytes, more);
}

typedef void Visit(Case c);

/* Every executor with two models; devices and dtypes take turns. */
static void everywhere(Visit *visit) {
  static const char *const models[] = {"llama3-8b", "gpt2-xl"}, *const clusters[] = {"dgx-h100", "dgx-a100-80", "hgx-b200"};
  static const DType dtypes[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F16};
  for (int e = 0; e < EXECUTOR_COUNT; e++)
    for (int m = 0; m < 2; m++) {
      Case c = base;
      c.executor = (ExecutorId)e;
      c.model = models[m];
      c.cluster = clusters[(e + m) % 3];
      c.compute = dtypes[(e / 3 + m) % 3];
      visit(c);
    }
}

/* --- more work -------------------------------------------------------------------------------------------- */

static void visit_batch(Case c) {
  double speed = 0;
  for (int64_t micro = 1; micro <= 16; micro *= 2) {
    Case next = c;
    next.micro = micro;
    if (micro > 1) {
      Case before = next;
      before.micro = micro / 2;
      more(&before, &next);
    }
    ExecutorPrediction predicted = predict(&next);
    double now = predicted.tokens_per_s_per_rank;
    HOLDS(now > 0.995 * speed || predicted.retried_ns > 0, &next);
    speed = now;
  }
}

static void test_batch(void **state) {
  (void)state;
  everywhere(visit_batch);
}

static void visit_length(Case c) {
  static const char *const sets[] = {"ctx=512", "ctx=1024", "ctx=2048", "ctx=4096", "ctx=8192", "ctx=16384", "ctx=32768"};
  for (int i = 1; i < 7; i++) {
    Case less = c, longer = c;
    less.sets[0] = sets[i - 1];
    longer.sets[0] = sets[i];
    more(&less, &longer);
  }
}

static void test_length(void **state) {
  (void)state;
  everywhere(visit_length);
}

static void visit_size(Case c) {
  static const char *const layers[] = {"layers=4", "layers=8", "layers=9", "layers=48"};
  for (int i = 1; i < 4; i++) {
    Case less = c, deeper = c;
    less.sets[0] = layers[i - 1];
    deeper.sets[0] = layers[i];
    more(&less, &deeper);
  }
  static const char *const widths[] = {"d=1024", "d=2048", "d=4096", "d=8192"};
  for (int i = 1; i < 4; i++) {
    Case less = c, wider = c;
    less.sets[0] = widths[i - 1];
    wider.sets[0] = widths[i];
    less.sets[1] = wider.sets[1] = "heads=32";
    more(&less, &wider);
  }
}

static void test_size(void **state) {
  (void)state;
  everywhere(visit_size);
}

/* --- more ranks ------------------------------------------------------------------------------------------- */

/* States shrink and nothing grows; what is left to wait for does not fall. */
static void visit_ranks(Case c) {
  for (uint32_t ranks = 2; ranks <= 256; ranks *= 2) {
    Case before = c, next = c;
    before.ranks = ranks / 2;
    next.ranks = ranks;
    ExecutorPrediction a = predict(&before), b = predict(&next);
    sane(&next, &b);
    HOLDS(fabs(b.states_bytes / a.states_bytes - 0.5) < 1e-9, &next);
    HOLDS(b.active_bytes < a.active_bytes, &next);
    HOLDS(b.gather_ns >= 0.9 * a.gather_ns && b.reduce_ns >= 0.9 * a.reduce_ns, &next); /* measured tables waver */
    HOLDS(b.step_ns - b.update_ns >= 0.99 * (a.step_ns - a.update_ns), &next);
  }
}

static void test_ranks(void **state) {
  (void)state;
  everywhere(visit_ranks);
}

static void visit_width(Case c) {
  c.ranks = 64;
  c.strategy = STRATEGY_HYBRID_SHARD;
  for (uint32_t shard = 2; shard < 64; shard *= 2) {
    Case narrow = c, wide = c;
    narrow.shard = shard;
    wide.shard = 2 * shard;
    HOLDS(predict(&narrow).active_bytes > predict(&wide).active_bytes, &narrow);
    HOLDS(predict(&narrow).gather_ns <= predict(&wide).gather_ns, &narrow);
  }
}

static void test_width(void **state) {
  (void)state;
  everywhere(visit_width);
}

/* --- choices ---------------------------------------------------------------------------------------------- */

static void visit_checkpoint(Case c) {
  Case operators = c, blocks = c, full = c;
  operators.selective = SELECTIVE_OPERATORS;
  blocks.selective = SELECTIVE_BLOCKS;
  full.checkpoint = CHECKPOINT_FULL;
  ExecutorPrediction none = predict(&c), some = predict(&operators), half = predict(&blocks), all = predict(&full);
  HOLDS(none.step_ns < some.step_ns && some.step_ns < all.step_ns, &c);
  HOLDS(none.step_ns < half.step_ns && half.step_ns < all.step_ns, &c);
  HOLDS(none.saved_bytes > some.saved_bytes && some.saved_bytes > all.saved_bytes, &c);
  HOLDS(none.saved_bytes > half.saved_bytes && half.saved_bytes > all.saved_bytes, &c);
  HOLDS(none.active_bytes >= some.active_bytes && some.active_bytes >= all.active_bytes, &c);
  HOLDS(none.active_bytes >= half.active_bytes && half.active_bytes >= all.active_bytes, &c);
}

static void test_checkpoint(void **state) {
  (void)state;
  everywhere(visit_checkpoint);
}

/* What releases more takes less memory and longer. */
static void releases(const Case *less, const Case *more) {
  ExecutorPrediction a = predict(less), b = predict(more);
  sane(less, &a), sane(more, &b);
  HOLDS(a.active_bytes > b.active_bytes && a.step_ns <= b.step_ns, more);
}

/* Kept units cost memory and save gathers; groups, which FSDP2 alone has, lie between. */
static void visit_reshard(Case c) {
  Case kept = c, groups = c, released = c;
  kept.reshard = 0;
  groups.reshard = 4;
  released.reshard = 1;
  releases(&kept, &released);
  if (!executor_is_fsdp2(c.executor)) return;
  releases(&kept, &groups);
  releases(&groups, &released);
}

static void test_reshard(void **state) {
  (void)state;
  everywhere(visit_reshard);
}

static void visit_prefetch(Case c) {
  bool one_ahead = c.executor != EXECUTOR_NATIVE && !executor_is_fsdp2(c.executor);
  c.ranks = 64;
  for (int64_t depth = 0; depth < (one_ahead ? 1 : 3); depth++) {
    Case next = c, before = c;
    before.prefetch = depth;
    next.prefetch = depth + 1;
    ExecutorPrediction a = predict(&before), b = predict(&next);
    HOLDS(b.active_bytes >= a.active_bytes && reserves_more(&a, &b), &next);
    HOLDS(b.exposed_ns <= 1.001 * a.exposed_ns, &next);
  }
}

static void test_prefetch(void **state) {
  (void)state;
  everywhere(visit_prefetch);
}

/* Four micro-batches take about as long as one that is four times as large, and hold less. */
static void visit_accumulation(Case c) {
  Case whole = c, parts = c;
  whole.micro = 8;
  parts.micro = 2;
  parts.accumulation = 4;
  ExecutorPrediction a = predict(&whole), b = predict(&parts);
  double least = 0.995 * (a.step_ns - a.retried_ns), most = b.step_ns - b.retried_ns;
  HOLDS(b.step_ns > least && most < 4.2 * a.step_ns, &parts); /* host-bound: four times */
  HOLDS(b.saved_bytes < a.saved_bytes, &parts);
}

static void test_accumulation(void **state) {
  (void)state;
  everywhere(visit_accumulation);
}

/* --- devices, executors, dtypes --------------------------------------------------------------------------- */

static void test_devices(void **state) {
  (void)state;
  static const char *const slower_first[] = {"dgx-a100-80", "dgx-h100", "dgx-h200", "hgx-b200"};
  static const ExecutorId executors[] = {EXECUTOR_NATIVE, EXECUTOR_FSDP2_EAGER, EXECUTOR_FSDP2_COMPILED, EXECUTOR_FSDP1_EAGER,
                                         EXECUTOR_FSDP1_FOUNDRY};
  for (int e = 0; e < 5; e++)
    for (int i = 1; i < 4; i++) {
      Case a = base, b = base;
      a.executor = b.executor = executors[e];
      a.cluster = slower_first[i - 1];
      b.cluster = slower_first[i];
      ExecutorPrediction slow = predict(&a), fast = predict(&b);
      HOLDS(fast.step_ns <= slow.step_ns, &b);
      HOLDS(fast.active_bytes == slow.active_bytes, &b); /* what is live does not depend on the device */
    }
}

static void visit_dtype(Case c) {
  Case bf16 = c, f16 = c, f32 = c, narrow = c;
  bf16.compute = DTYPE_BF16;
  f16.compute = DTYPE_F16;
  f32.compute = DTYPE_F32;
  narrow.compute = narrow.reduce = DTYPE_BF16;
  ExecutorPrediction a = predict(&bf16), b = predict(&f16), d = predict(&f32), e = predict(&narrow);
  sane(&f32, &d);
  HOLDS(a.active_bytes == b.active_bytes && a.step_ns == b.step_ns, &f16); /* the shipped devices are as fast in both */
  double least = c.executor == EXECUTOR_FSDP1_AUTOCAST ? 1 : 1.2; /* whose residual stream is f32 anyway */
  HOLDS(d.step_ns > 1.3 * a.step_ns && d.saved_bytes > least * a.saved_bytes, &f32);
  HOLDS(d.active_bytes > a.active_bytes, &f32);
  HOLDS(e.reduce_ns < a.reduce_ns && e.step_ns <= a.step_ns && e.active_bytes <= a.active_bytes, &narrow);
}

static void test_dtypes(void **state) {
  (void)state;
  everywhere(visit_dtype);
}

static void test_executors(void **state) {
  (void)state;
  static const ExecutorId leaner[][2] = {{EXECUTOR_FSDP2_COMPILED, EXECUTOR_FSDP2_EAGER},
                                         {EXECUTOR_FSDP2_COMPILED_2024, EXECUTOR_FSDP2_EAGER_2024},
                                         {EXECUTOR_FSDP1_COMPILED, EXECUTOR_FSDP1_EAGER},
                                         {EXECUTOR_FSDP2_COMPILED, EXECUTOR_FSDP2_COMPILED_2024},
                                         {EXECUTOR_FSDP2_EAGER, EXECUTOR_FSDP2_EAGER_2024}};
  static const char *const models[] = {"llama3-8b", "gpt2-xl", "llama3.2-1b"};
  for (int m = 0; m < 3; m++)
    for (int i = 0; i < 5; i++) {
      Case lean = base, other = base;
      lean.model = other.model = models[m];
      lean.executor = leaner[i][0];
      other.executor = leaner[i][1];
      ExecutorPrediction a = predict(&lean), b = predict(&other);
      HOLDS(a.step_ns <= b.step_ns && a.active_bytes <= b.active_bytes, &lean);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_batch),    cmocka_unit_test(test_length),     cmocka_unit_test(test_size),
      cmocka_unit_test(test_ranks),    cmocka_unit_test(test_width),      cmocka_unit_test(test_checkpoint),
      cmocka_unit_test(test_reshard),  cmocka_unit_test(test_prefetch),   cmocka_unit_test(test_accumulation),
      cmocka_unit_test(test_devices),  cmocka_unit_test(test_dtypes),     cmocka_unit_test(test_executors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
