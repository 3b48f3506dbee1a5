/* Owns: predictions under other executors against three published configurations worked out by hand (the test
 * vectors of the cost model), and properties: a longer step for more work, less memory for more recompute,
 * equal results for equal input. */
#include "tests/cost/executor_run.h"

static void open_run(Run *run, const char *path, uint32_t ranks) {
  run_open(run, path, ranks, 1);
  run->world.micro_batch = run->settings.micro_batch;
  run->world.accumulation = (int64_t)run->graph->recipe.samples_per_step / (ranks * run->settings.micro_batch);
}

static void within(const char *what, double value, double expected, double percent) {
  if (fabs(value / expected - 1) > percent / 100)
    fprintf(stderr, "%s: %g, expected %g within %g %%\n", what, value, expected, percent);
  assert_true(fabs(value / expected - 1) <= percent / 100);
}

/* ms of one block and of the head, by the formulas of docs/cost-model.md, and the tokens/s that follow. */
typedef struct Vector {
  const char *path;
  double forward, backward, recompute, reduce, head, update, speed;
} Vector;

static void test_vectors(void **state) {
  (void)state;
  static const Vector vectors[] = {
      {"tests/cost/llmf-h100-021.fsdp", 9.91, 21.8, 0, 2.43, 31.2, 27.3, 10680},
      {"tests/cost/tt-pr165-fsdp2-sac.fsdp", 19.9, 41.7, 9.95, 2.45, 35.5, 32.2, 6700},
      {"tests/cost/llmf-a100-80-005.fsdp", 33.1, 69.7, 23.0, 10.2, 58.8, 200, 921}}; /* again: all but the last product */
  for (int i = 0; i < 3; i++) {
    const Vector *v = &vectors[i];
    Run run;
    open_run(&run, v->path, 8);
    predict(&run);
    within("forward", run.out.block_forward_ns / 1e6, v->forward, 2);
    within("backward", run.out.block_backward_ns / 1e6, v->backward, 2);
    if (v->recompute > 0) within("recompute", run.out.block_recompute_ns / 1e6, v->recompute, 3);
    within("reduce", run.out.reduce_ns / 1e6, v->reduce, 2);
    within("head", run.out.head_ns / 1e6, v->head, 2);
    within("update", run.out.update_ns / 1e6, v->update, 2);
    within("speed", run.out.tokens_per_s_per_rank, v->speed, 2);
    assert_true(run.out.fits);
    arena_free(run.arena);
  }
}

static void test_save_sets(void **state) {
  (void)state;
  Run run;
  open_run(&run, "tests/cost/llmf-h100-021.fsdp",
           8); /* 32 d bytes a token and layer, 4 a head; T = 12,288, d = 4,096 */
  predict(&run);
  double tokens = 6 * 2048, d = 4096, layers = 32,
         root = (2 + 2) * d * tokens; /* last norm's input and the head's */
  within("saved", run.out.saved_bytes, layers * tokens * (32 * d + 4 * 32) + root, 0.5);
  run.settings.checkpoint = CHECKPOINT_FULL;
  predict(&run);
  within("checkpointed", run.out.saved_bytes, layers * tokens * 2 * d + root, 0.5);
  assert_true(run.out.block_recompute_ns < 0.8 * run.out.block_forward_ns); /* the last product is not needed again */
  run.settings.executor.id = EXECUTOR_FSDP1_FOUNDRY_2022;
  predict(&run);
  within("recompute of whole blocks", run.out.block_recompute_ns, run.out.block_forward_ns, 1e-6);
  arena_free(run.arena);
}

/* Told to be reentrant, a newer executor repeats whole blocks too, and gathers them for it; what is kept is the same. */
static void test_reentrant(void **state) {
  (void)state;
  Run run;
  open_run(&run, "models/llama3-8b.fsdp", 8);
  run.settings.checkpoint = CHECKPOINT_FULL;
  run.settings.executor.id = EXECUTOR_FSDP2_EAGER;
  run.world.micro_batch = run.world.accumulation = 1;
  ExecutorPrediction early = predict(&run);
  run.settings.executor.reentrant = true;
  predict(&run);
  within("recompute of whole blocks", run.out.block_recompute_ns, run.out.block_forward_ns, 1e-6);
  double product = 2 * 8192.0 * 14336 * 4096 / (989e12 * 0.74) * 1e9; /* the last, which stopping early leaves out */
  within("what stopping early saves", run.out.block_recompute_ns - early.block_recompute_ns, product, 15);
  assert_true(run.out.saved_bytes == early.saved_bytes && run.out.step_ns > early.step_ns);
  /* One that repeats them anyway is told only that each gathers once more for it, which slows what runs beside. */
  run.settings.executor.id = EXECUTOR_FSDP1_AUTOCAST;
  ExecutorPrediction thrice = predict(&run);
  run.settings.executor.reentrant = false;
  predict(&run);
  assert_true(thrice.block_recompute_ns == run.out.block_recompute_ns && thrice.active_bytes == run.out.active_bytes);
  double added = (thrice.step_ns - run.out.step_ns) / (32 * run.out.gather_ns);
  assert_true(added > 0.2 && added < 1);
  arena_free(run.arena);
}

/* What a group of ranks updates in whole tensors: its owners keep masters and moments of them, every rank a copy in the compute dtype. The
 * wider the group, the longer its broadcasts' rings. */
static void test_owners(void **state) {
  (void)state;
  Run run;
  open_run(&run, "models/llama3-8b.fsdp", 1024);
  run.settings.executor.id = EXECUTOR_FSDP2_EAGER;
  run.settings.strategy = STRATEGY_NO_SHARD;
  run.world.ranks_per_node = 8;
  run.world.micro_batch = run.world.accumulation = 1;
  double numel = 8030261248.0, largest = 128256.0 * 4096;
  run.settings.executor.owners = 8;
  ExecutorPrediction narrow = predict(&run);
  near("states of eight owners", narrow.states_bytes, numel * (2 + 12 / 8.0), 1e-6);
  run.settings.executor.owners = 1024;
  predict(&run);
  near("states of the owner of the largest tensor", run.out.states_bytes, 2 * numel + 12 * largest, 1e-6);
  double tensors = 32 * 9 + 3;
  within("hops of rings", run.out.update_ns - narrow.update_ns, tensors * 1024 * 8e3, 15);
  run.settings.executor.owners = 3;
  assert_false(executor_predict(run.arena, &run.sink, run.graph, &run.settings, &run.world, &run.out));
  run.settings.executor.owners = 8;
  run.settings.strategy = STRATEGY_FULL_SHARD;
  assert_false(executor_predict(run.arena, &run.sink, run.graph, &run.settings, &run.world, &run.out));
  arena_free(run.arena);
}

/* Heads that share keys: what eager kernels copy for them is kept, unless checkpointing makes it again. */
static void test_shared_heads(void **state) {
  (void)state;
  Run run;
  open_run(&run, "models/llama3-8b.fsdp", 8);
  run.settings.executor.id = EXECUTOR_FSDP2_EAGER;
  run.settings.checkpoint = CHECKPOINT_NONE;
  run.world.micro_batch = 1;
  run.world.accumulation = 1;
  double expanded = 32 * 8192.0 * 2 * 2 * (4096 - 1024), saved[2];
  for (int selective = 0; selective < 2; selective++) {
    run.settings.executor.selective = selective ? SELECTIVE_OPERATORS : SELECTIVE_NONE;
    double both[2];
    for (int eager = 0; eager < 2; eager++) {
      run.settings.executor.id = eager ? EXECUTOR_FSDP2_EAGER : EXECUTOR_FSDP2_COMPILED;
      predict(&run);
      both[eager] = run.out.saved_bytes;
    }
    saved[selective] = both[1] - both[0];
  }
  double unread = 32 * 8192.0 * 2 * 4096;
  assert_true(saved[0] > expanded); /* beside what else eager kernels keep */
  assert_true(saved[1] > unread && saved[1] < unread + 0.1 * expanded); /* made again; a policy's output that nobody reads is kept */
  arena_free(run.arena);
}

/* One product for q, k and v: its output stays beside what attention reads, keys and values at the width of q. */
static void test_packed(void **state) {
  (void)state;
  Run run;
  open_run(&run, "models/llama3-8b.fsdp", 8);
  run.settings.executor.id = EXECUTOR_FSDP2_COMPILED;
  run.settings.checkpoint = CHECKPOINT_NONE;
  run.world.micro_batch = run.world.accumulation = 1;
  double apart = predict(&run).saved_bytes;
  run.settings.executor.packed = true;
  near("packed", predict(&run).saved_bytes - apart, 32 * 8192.0 * 2 * (4096 + 2 * 1024 + 2 * (4096 - 1024)), 1e-6);
  arena_free(run.arena);
}

/* Each module of a block checkpointed by itself keeps what it reads: the stream before both norms, and what they yield. The products
 * that end attention and MLP are not repeated. */
static void test_modules(void **state) {
  (void)state;
  Run run;
  open_run(&run, "models/llama3-8b.fsdp", 8);
  run.world.micro_batch = run.world.accumulation = 1;
  for (int eager = 0; eager < 2; eager++) {
    run.settings.executor.id = eager ? EXECUTOR_FSDP2_EAGER : EXECUTOR_FSDP2_COMPILED;
    run.settings.executor.selective = SELECTIVE_NONE;
    run.settings.checkpoint = CHECKPOINT_FULL;
    ExecutorPrediction whole = predict(&run);
    run.settings.checkpoint = CHECKPOINT_NONE;
    run.settings.executor.selective = SELECTIVE_MODULES;
    predict(&run);
    near("modules", run.out.saved_bytes - whole.saved_bytes, 32 * 3 * 8192.0 * 2 * 4096, 1e-6);
    assert_true(run.out.block_recompute_ns < whole.block_recompute_ns && run.out.block_recompute_ns > 0.8 * whole.block_recompute_ns);
    run.settings.executor.reentrant = true; /* all but the two sums */
    predict(&run);
    assert_true(run.out.block_recompute_ns > whole.block_recompute_ns && run.out.block_recompute_ns < run.out.block_forward_ns);
    run.settings.executor.reentrant = false;
  }
  arena_free(run.arena);
}

/* A fused norm keeps its input in place of 6 bytes an element, and moves 12 bytes in place of 128. */
static void test_fused_norms(void **state) {
  (void)state;
  Run run;
  open_run(&run, "models/llama3-8b.fsdp", 8);
  run.settings.executor.id = EXECUTOR_FSDP2_EAGER;
  run.settings.checkpoint = CHECKPOINT_NONE;
  run.world.micro_batch = run.world.accumulation = 1;
  ExecutorPrediction apart = predict(&run);
  run.settings.executor.fused_norms = true;
  predict(&run);
  near("fused norms", apart.saved_bytes - run.out.saved_bytes, 65 * 8192.0 * 4096 * 4, 1e-6);
  double moved = (36 + 92 - 4 - 8) * 8192.0 * 4096, bandwidth = 3.35e12 * 0.755;
  near("their time", apart.block_forward_ns + apart.block_backward_ns - run.out.block_forward_ns - run.out.block_backward_ns,
       2 * moved / bandwidth * 1e9, 0.02);
  /* A fused gate does not keep silu's output, 2 bytes an element; fused positions move 4 bytes in place of 20. */
  ExecutorPrediction norms = run.out;
  run.settings.executor.fused_layers = true;
  predict(&run);
  near("a fused gate", norms.saved_bytes - run.out.saved_bytes, 32 * 8192.0 * 14336 * 2, 1e-6);
  moved = 2 * 16 * 8192.0 * (4096 + 1024) + (4 + 6 + 2) * 8192.0 * 14336;
  near("their time", norms.block_forward_ns + norms.block_backward_ns - run.out.block_forward_ns - run.out.block_backward_ns,
       moved / bandwidth * 1e9, 0.02);
  arena_free(run.arena);
}

/* A number in place of a GELU: eager keeps nothing for it and moves 2 bytes less in backward; compiled it is part of its neighbours. */
static void test_scale(void **state) {
  (void)state;
  double elements = 6 * 2048.0 * 16384, bandwidth = 3.35e12 * 0.755;
  for (int eager = 0; eager < 2; eager++) {
    Run run;
    open_run(&run, "tests/cost/llmf-h100-021.fsdp", 8);
    run.settings.executor.id = eager ? EXECUTOR_FSDP2_EAGER : EXECUTOR_FSDP2_COMPILED;
    ExecutorPrediction gelu = predict(&run);
    for (uint32_t i = 0; i < run.graph->ops.count; i++)
      if (run.graph->ops.data[i].kind == LAYER_GELU) run.graph->ops.data[i].kind = LAYER_SCALE;
    predict(&run);
    near("kept", gelu.saved_bytes - run.out.saved_bytes, 32 * 2 * elements, 1e-6);
    near("moved", gelu.block_forward_ns + gelu.block_backward_ns - run.out.block_forward_ns - run.out.block_backward_ns,
         (eager ? 2 : 10) * elements / bandwidth * 1e9, 0.02);
    arena_free(run.arena);
  }
}

/* Bytes by logit as forward ends. */
static void test_loss_held(void **state) {
  (void)state;
  static const struct {
    LossKind kind;
    double held;
  } losses[] = {{LOSS_FUSED, 2}, {LOSS_JOINT, 4}, {LOSS_NARROW, 6}, {LOSS_COMPILED, 8}, {LOSS_UPCAST, 14}, {LOSS_EAGER, 16},
                {LOSS_SHIFTED, 12}, {LOSS_SHIFTED_FUSED, 8}, {LOSS_SHIFTED_NARROW, 8}, {LOSS_SHIFTED_NARROW_FUSED, 6},
                {LOSS_DEFAULT, 8}};
  Run run;
  open_run(&run, "models/llama3-8b.fsdp", 8);
  run.settings.executor.id = EXECUTOR_FSDP2_COMPILED;
  run.settings.checkpoint = CHECKPOINT_NONE;
  run.world.micro_batch = run.world.accumulation = 1;
  run.settings.executor.loss = losses[0].kind;
  double least = predict(&run).active_bytes;
  for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
    run.settings.executor.loss = losses[i].kind;
    predict(&run);
    assert_string_equal(run.out.peak_at, "end of forward");
    assert_true(run.out.active_bytes - least == (losses[i].held - 2) * 8192 * 128256);
  }
  arena_free(run.arena);
}

/* Segments that grow serve backward as they served forward; only the reductions' stream has its own, for the gradients' shards. */
static void test_growing_segments(void **state) {
  (void)state;
  Run run;
  open_run(&run, "tests/cost/tt-pr165-fsdp2-sac.fsdp", 8);
  ExecutorPrediction fixed = predict(&run);
  run.settings.executor.expandable_segments = true;
  ExecutorPrediction growing = predict(&run);
  assert_string_equal(growing.peak_at, "end of forward");
  assert_true(growing.active_bytes == fixed.active_bytes && growing.reserved_bytes < fixed.reserved_bytes);
  near("gradients", growing.reserved_bytes - growing.active_bytes, 4 * 6738415616.0 / 8, 1e-6);
  arena_free(run.arena);
}

/* Segments of a fixed size are left for what forward had no such tensors of: gradients' shards and, where units are flat, the optimizer's
 * temporaries of all of a shard. */
static void test_fixed_segments(void **state) {
  (void)state;
  double shard = 4 * 6738415616.0 / 8;
  Run run;
  open_run(&run, "tests/cost/tt-pr165-fsdp2-sac.fsdp", 8);
  for (int flat = 0; flat < 2; flat++) {
    run.settings.executor = (ExecutorSettings){.id = flat ? EXECUTOR_FSDP1_EAGER : EXECUTOR_FSDP2_EAGER_2024, .selective = SELECTIVE_OPERATORS};
    run.settings.executor.update = UPDATE_FUSED;
    ExecutorPrediction fused = predict(&run);
    run.settings.executor.update_in_backward = true;
    near("gradients", fused.reserved_bytes - predict(&run).reserved_bytes, shard, 1e-6);
    run.settings.executor.update_in_backward = false;
    run.settings.executor.update = UPDATE_FOREACH;
    near("temporaries", predict(&run).reserved_bytes - fused.reserved_bytes, flat ? shard : 0, 1e-6);
    run.settings.executor.update = UPDATE_UNFUSED;
    near("one tensor's", predict(&run).reserved_bytes - fused.reserved_bytes, 0, 1e-6);
  }
  arena_free(run.arena);
}

/* DistributedDataParallel's buckets hold all gradients again, in the dtype of states. */
static void test_buckets(void **state) {
  (void)state;
  Run run;
  open_run(&run, "models/gpt2-xl.fsdp", 1);
  run.settings.executor.id = EXECUTOR_FSDP2_COMPILED;
  run.settings.strategy = STRATEGY_NO_SHARD;
  run.settings.checkpoint = CHECKPOINT_NONE;
  run.world.micro_batch = run.world.accumulation = 1;
  ExecutorPrediction alone = predict(&run);
  run.world.ranks = run.world.ranks_per_node = 2;
  near("buckets", predict(&run).active_bytes - alone.active_bytes, 4 * 1557611200.0, 1e-6);
  arena_free(run.arena);
}

/* Where each gradient is used as it appears, the optimizer never sees all of them at once. */
static void test_update_in_backward(void **state) {
  (void)state;
  Run run;
  open_run(&run, "models/llama3-8b.fsdp", 1);
  run.settings.executor = (ExecutorSettings){.id = EXECUTOR_FSDP2_COMPILED, .states = STATES_BF16, .update = UPDATE_FUSED};
  run.settings.checkpoint = CHECKPOINT_FULL;
  run.world.micro_batch = run.world.accumulation = 1;
  predict(&run);
  double together = run.out.active_bytes;
  within("gradients", run.out.peak.gradients, 2 * 8.03e9, 0.1);
  run.settings.executor.update_in_backward = true;
  predict(&run);
  assert_string_equal(run.out.peak_at, "end of forward");
  assert_true(run.out.active_bytes < together && run.out.peak.gradients == 0);
  arena_free(run.arena);
}

/* The slowest node sets the pace: beyond what links take, more nodes cost more. */
static void test_stragglers(void **state) {
  (void)state;
  Run run;
  open_run(&run, "tests/cost/tt-pr165-fsdp2-sac.fsdp", 16);
  run.world.ranks_per_node = 8;
  run.graph->cluster.network.bandwidth = 1e15;
  run.graph->cluster.network.latency_ns = 0;
  run.world.accumulation = 1;
  double speed[3];
  for (int i = 0; i < 3; i++) {
    run.world.ranks = run.world.shard = 16u << i;
    predict(&run);
    speed[i] = run.out.tokens_per_s_per_rank;
  }
  assert_true(speed[1] < 0.995 * speed[0] && speed[2] < 0.995 * speed[1]);
  assert_true(speed[2] > 0.95 * speed[0]);
  arena_free(run.arena);
}

/* Where shards lie in a node, what crosses a slow network takes most of the time of communication and moves few bytes a second of it: compute
 * loses to it by the network's share, not by that of the node's links. */
static void test_hybrid_over_a_slow_network(void **state) {
  (void)state;
  Run run;
  open_run(&run, "tests/cost/tt-pr165-fsdp2-sac.fsdp", 16);
  run.world = (ExecutorWorld){.ranks = 16, .shard = 8, .ranks_per_node = 8, .micro_batch = 8, .accumulation = 1};
  run.settings.strategy = STRATEGY_HYBRID_SHARD;
  run.graph->cluster.network.bandwidth = 50e9;
  double step[2], near[2] = {0.18, 0.44};
  for (int i = 0; i < 2; i++) {
    run.graph->cluster.contention = near[i];
    predict(&run);
    step[i] = run.out.step_ns;
  }
  double communicating = 32 * (2 * run.out.gather_ns + run.out.reduce_ns);
  assert_true(step[1] > step[0] && step[1] - step[0] < 0.5 * (near[1] - near[0]) * communicating);
  arena_free(run.arena);
}

/* Gradients that wait to be reduced: FSDP1 adds them up in the dtype they have, FSDP2 in the one that it reduces. */
static void test_sums(void **state) {
  (void)state;
  Run run;
  open_run(&run, "models/llama3-8b.fsdp", 8);
  run.settings.checkpoint = CHECKPOINT_FULL;
  run.world.micro_batch = 1;
  run.world.accumulation = 4;
  ExecutorId ids[] = {EXECUTOR_FSDP1_EAGER, EXECUTOR_FSDP2_EAGER};
  double numel = 8030261248.0, bandwidth = 0;
  for (int i = 0; i < 2; i++) {
    run.settings.executor.id = ids[i];
    run.settings.executor.fused_sums = false;
    predict(&run);
    assert_true(run.out.peak.gradients >= numel * (i ? 4 : 2) && run.out.peak.gradients < numel * (i ? 4.5 : 2.5));
    double apart = run.out.step_ns;
    run.settings.executor.fused_sums = true;
    double moved = 3 * numel * (i ? 2 + 2 * 4 : 3 * 2) / (apart - predict(&run).step_ns);
    if (i) near("what both move a second", moved, bandwidth, 1e-6);
    bandwidth = moved;
  }
  arena_free(run.arena);
}

static void test_properties(void **state) {
  (void)state;
  Run run;
  open_run(&run, "tests/cost/tt-pr165-fsdp2-sac.fsdp", 8);
  run.settings.executor.selective = SELECTIVE_NONE;
  for (int executor = 0; executor < EXECUTOR_COUNT; executor++) {
    run.settings.executor.id = (ExecutorId)executor;
    run.settings.checkpoint = CHECKPOINT_NONE;
    run.world.micro_batch = 2;
    predict(&run);
    ExecutorPrediction small = run.out;
    predict(&run);
    assert_memory_equal(&small, &run.out, sizeof small);
    run.world.micro_batch = 4;
    predict(&run);
    assert_true(run.out.step_ns > small.step_ns && run.out.active_bytes > small.active_bytes);
    assert_true(run.out.reserved_bytes >= run.out.active_bytes);
    ExecutorPrediction kept = run.out;
    run.settings.checkpoint = CHECKPOINT_FULL;
    predict(&run);
    assert_true(run.out.step_ns > kept.step_ns && run.out.saved_bytes < kept.saved_bytes);
    run.settings.checkpoint = CHECKPOINT_NONE;
    run.world.accumulation = 2;
    predict(&run);
    assert_true(run.out.step_ns > 1.5 * kept.step_ns);
    run.world.accumulation = 1;
  }
  arena_free(run.arena);
}

/* Compiled is faster than eager and keeps less; f32 states need more than bf16; offloaded ones less. */
static void test_habits(void **state) {
  (void)state;
  Run run;
  open_run(&run, "tests/cost/tt-pr165-fsdp2-sac.fsdp", 8);
  run.settings.executor.id = EXECUTOR_FSDP2_EAGER;
  predict(&run);
  ExecutorPrediction eager = run.out;
  run.settings.executor.id = EXECUTOR_FSDP2_COMPILED;
  predict(&run);
  assert_true(run.out.step_ns < eager.step_ns && run.out.active_bytes < eager.active_bytes);
  ExecutorPrediction full = run.out;
  run.settings.executor.states = STATES_BF16;
  predict(&run);
  assert_true(run.out.states_bytes == full.states_bytes / 2);
  run.settings.executor.offload = TRAINER_OFFLOADS_M | TRAINER_OFFLOADS_V;
  predict(&run);
  assert_true(run.out.states_bytes == full.states_bytes / 6);
  arena_free(run.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors), cmocka_unit_test(test_save_sets),
                                     cmocka_unit_test(test_shared_heads), cmocka_unit_test(test_packed),
                                     cmocka_unit_test(test_modules), cmocka_unit_test(test_reentrant), cmocka_unit_test(test_owners),
                                     cmocka_unit_test(test_fused_norms), cmocka_unit_test(test_scale), cmocka_unit_test(test_sums),
                                     cmocka_unit_test(test_loss_held), cmocka_unit_test(test_growing_segments), cmocka_unit_test(test_fixed_segments),
                                     cmocka_unit_test(test_buckets), cmocka_unit_test(test_update_in_backward),
                                     cmocka_unit_test(test_stragglers), cmocka_unit_test(test_hybrid_over_a_slow_network),
                                     cmocka_unit_test(test_properties), cmocka_unit_test(test_habits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
