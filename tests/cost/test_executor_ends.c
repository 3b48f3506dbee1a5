/* Owns: what lies outside of blocks as units of its own, worked out by hand: what is gathered while the loss is computed, what stays for
 * backward, what the ends of a step wait for; and which units are none. */
#include "tests/cost/executor_run.h"

/* Llama 2 7B in bf16, reduced in f32, on 8 ranks. */
static const double D = 4096, V = 32000, BLOCK = 4 * 4096.0 * 4096 + 3 * 4096.0 * 11008 + 2 * 4096;
enum { RANKS = 8, GATHERED = 2, WIRE = 4 };

static void open_run(Run *run) { run_open(run, "tests/cost/tt-pr165-fsdp2-sac.fsdp", RANKS, 8); }

static void add_unit(Run *run, const char *first, const char *second, const char *third, int32_t reshard) {
  UnitRule rule = {.name = "by hand", .reshard = reshard, .span = SPAN_NONE};
  const char *patterns[] = {first, second, third};
  for (int i = 0; i < 3; i++)
    if (patterns[i]) vec_push(run->arena, &rule.patterns, patterns[i]);
  vec_push(run->arena, &run->settings.units, rule);
}

/* With no other units. */
static ExecutorPrediction with_ends(Run *run, bool whole_head, int32_t reshard) {
  run->settings.units.count = 0;
  add_unit(run, "wte", NULL, NULL, SETTING_AUTO);
  add_unit(run, "head", whole_head ? "norm" : NULL, NULL, reshard);
  return predict(run);
}

static ExecutorPrediction with_root(Run *run, int32_t reshard) {
  run->settings.units.count = 0;
  add_unit(run, "wte", "norm", "head", reshard);
  return predict(run);
}

/* --- memory ---------------------------------------------------------------------------------------------------- */

static void less_at_loss(const char *what, const ExecutorPrediction *than, const ExecutorPrediction *out, double numel) {
  assert_string_equal(than->peak_at, "end of forward");
  assert_string_equal(out->peak_at, "end of forward");
  near(what, than->active_bytes - out->active_bytes, GATHERED * numel, 1e-9);
}

/* Nothing is gathered while the loss is computed but what stays of the root; where the last block stays, it and the buffers of three. */
static void test_root_let_go(void **state) {
  (void)state;
  Run run;
  double root = 2 * V * D + D;
  open_run(&run);
  ExecutorPrediction block = predict(&run);
  run.settings.reshard = 1;
  ExecutorPrediction kept = predict(&run), named = with_root(&run, SETTING_AUTO);
  assert_memory_equal(&kept, &named, sizeof kept);
  ExecutorPrediction gone = with_root(&run, 1), groups = with_root(&run, 2);
  less_at_loss("blocks", &block, &kept, 3 * BLOCK);
  less_at_loss("all", &kept, &gone, root);
  less_at_loss("half", &kept, &groups, root / 2);
  assert_true(gone.exposed_ns > groups.exposed_ns && groups.exposed_ns > kept.exposed_ns);
  arena_free(run.arena);
}

/* By PyTorch's habit the last unit stays, and that is the head then. */
static void test_sides_let_go(void **state) {
  (void)state;
  Run run;
  open_run(&run);
  ExecutorPrediction root = predict(&run);
  ExecutorPrediction kept = with_ends(&run, true, SETTING_AUTO), gone = with_ends(&run, true, 1), norm = with_ends(&run, false, 1);
  less_at_loss("head kept", &root, &kept, 3 * BLOCK + V * D);
  less_at_loss("head gone", &root, &gone, 3 * BLOCK + 2 * V * D + D);
  less_at_loss("norm is the root", &root, &norm, 3 * BLOCK + 2 * V * D);
  assert_true(gone.exposed_ns > kept.exposed_ns);
  arena_free(run.arena);
}

/* With little kept for backward the peak is in a block's: the one above it is being reduced, of its own parameters and those fetched ahead one
 * copy is there, and when its gradients are copied, or the root's, these and the block above are gone. The head's gradient waits for the
 * root's others; apart from it, only its shard is left, in f32. */
static void test_gradients_leave_apart(void **state) {
  (void)state;
  Run run;
  open_run(&run);
  run.world.micro_batch = 1;
  run.settings.executor.selective = SELECTIVE_NONE;
  run.settings.executor.update = UPDATE_FUSED; /* no temporaries */
  run.settings.checkpoint = CHECKPOINT_FULL;
  ExecutorPrediction root = predict(&run), apart = with_ends(&run, true, 1);
  assert_string_equal(root.peak_at, "backward");
  assert_string_equal(apart.peak_at, "backward");
  near("reduced", root.peak.gradients, GATHERED * V * D + WIRE * BLOCK + 4 * 31 * BLOCK / RANKS, 1e-9);
  near("two units", root.peak.gathered, GATHERED * (2 * V * D + D + 2 * BLOCK), 1e-9);
  near("states", apart.states_bytes, root.states_bytes, 1e-9);
  near("gradients", root.peak.gradients - apart.peak.gradients, GATHERED * V * D - 4 * (V * D + D) / RANKS, 1e-9);
  near("gathered", root.peak.gathered - apart.peak.gathered, GATHERED * (2 * V * D + D), 1e-9);
  arena_free(run.arena);
}

/* --- time ------------------------------------------------------------------------------------------------------ */

/* A gather and a reduction. */
static double ends_ns(const Run *run, double numel) {
  const Cluster *cluster = &run->graph->cluster;
  double gather = cost_flat_ns(cluster, COLLECTIVE_GATHER, GATHERED * numel, RANKS, 1, RANKS),
         reduce = cost_flat_ns(cluster, COLLECTIVE_REDUCE, WIRE * numel, RANKS, 1, RANKS);
  return (1 + cluster->comm_slowdown) * (gather + reduce);
}

/* A step begins with a gather and ends with a reduction that nothing hides: of the root, or of the embedding alone. */
static void test_ends_of_a_step(void **state) {
  (void)state;
  Run run;
  open_run(&run);
  double root = predict(&run).exposed_ns, apart = with_ends(&run, true, SETTING_AUTO).exposed_ns;
  double of_root = ends_ns(&run, 2 * V * D + D), of_embedding = ends_ns(&run, V * D);
  assert_true(root >= of_root);
  assert_true(apart >= of_embedding && apart < of_root);
  arena_free(run.arena);
}

/* --- what is no unit ------------------------------------------------------------------------------------------- */

static void refused(Run *run, ExecutorId id) {
  ExecutorPrediction out;
  run->sink.errors = 0;
  run->settings.executor.id = id;
  assert_false(executor_predict(run->arena, &run->sink, run->graph, &run->settings, &run->world, &out));
  assert_int_equal(run->sink.errors, 1);
  run->settings.units.count = 0;
}

static void test_no_units(void **state) {
  (void)state;
  Run run;
  open_run(&run);
  add_unit(&run, "wte", "head", NULL, SETTING_AUTO); /* both sides, but not all */
  refused(&run, EXECUTOR_FSDP2_EAGER);
  add_unit(&run, "head", "layers.31", NULL, SETTING_AUTO);
  refused(&run, EXECUTOR_FSDP2_EAGER);
  add_unit(&run, "head", NULL, NULL, SETTING_AUTO);
  add_unit(&run, "norm", NULL, NULL, SETTING_AUTO); /* a second one on this side */
  refused(&run, EXECUTOR_FSDP2_EAGER);
  add_unit(&run, "head", NULL, NULL, SETTING_AUTO);
  refused(&run, EXECUTOR_FSDP1_EAGER);
  add_unit(&run, "wte", "norm", "head", 3); /* no group of 8 ranks */
  refused(&run, EXECUTOR_FSDP2_EAGER);
  arena_free(run.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_root_let_go), cmocka_unit_test(test_sides_let_go),
                                     cmocka_unit_test(test_gradients_leave_apart), cmocka_unit_test(test_ends_of_a_step),
                                     cmocka_unit_test(test_no_units)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
