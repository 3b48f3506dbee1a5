/* Owns: what other executors do for parameters that never learn, and for parameters kept in 16 bits, worked out by hand: states, kept
 * tensors, products and reductions that fall away. */
#include "tests/cost/executor_run.h"

/* The model of llmf-h100-021: 32 blocks of d = 4,096 with four products and two norms, biases; one sample is 2,048 tokens. */
static const double D = 4096, F = 16384, V = 50368, LENGTH = 2048, LAYERS = 32;

static void open_run(Run *run, ExecutorId executor, uint32_t ranks) {
  run_open(run, "tests/cost/llmf-h100-021.fsdp", ranks, 6);
  run->settings.executor.id = executor;
}

/* Freezes what matches; returns how many elements still learn. */
static double freeze(Run *run, const char *pattern) {
  double learn = 0;
  for (uint32_t p = 0; p < run->graph->params.count; p++) {
    GraphParam *param = &run->graph->params.data[p];
    uint64_t numel = 0;
    assert_true(shape_numel(&param->shape, 1, &numel));
    param->frozen |= path_matches(pattern, param->name);
    learn += param->frozen ? 0 : (double)numel;
  }
  return learn;
}

static double block_numel(void) { return 4 * D * D + 2 * D * F + 3 * D + D + F + D + 4 * D; }
static double all_numel(void) { return LAYERS * block_numel() + V * D + LENGTH * D + 2 * D; }

/* --- dtypes ------------------------------------------------------------------------------------------------ */

static void test_kept_in_16_bits(void **state) {
  (void)state;
  Run run;
  open_run(&run, EXECUTOR_FSDP2_EAGER, 8);
  predict(&run);
  near("f32 states", run.out.states_bytes, 12 * all_numel() / 8, 1e-9);
  run.graph->recipe.master = DTYPE_BF16;
  predict(&run);
  ExecutorPrediction recipe = run.out;
  near("bf16 states", recipe.states_bytes, 6 * all_numel() / 8, 1e-9);
  run.graph->recipe.master = DTYPE_F32;
  run.settings.executor.states = STATES_BF16; /* the same, told to the trainer */
  predict(&run);
  assert_memory_equal(&recipe, &run.out, sizeof recipe);
  run.graph->recipe.master = DTYPE_BF16;
  run.settings.executor.states = STATES_F32; /* the trainer has the last word */
  predict(&run);
  near("told f32", run.out.states_bytes, 12 * all_numel() / 8, 1e-9);
  arena_free(run.arena);
}

/* SGD keeps a moment only where it has momentum, Lion one, Adafactor none of a parameter's size; what is not there is not moved. */
static void test_moments(void **state) {
  (void)state;
  static const struct { OptimizerKind kind; double momentum, moments; } rows[] = {
      {OPTIMIZER_ADAMW, 0, 2}, {OPTIMIZER_LION, 0, 1}, {OPTIMIZER_SGD, 0.9, 1}, {OPTIMIZER_SGD, 0, 0}, {OPTIMIZER_ADAFACTOR, 0, 0}};
  Run run;
  open_run(&run, EXECUTOR_FSDP2_EAGER, 8);
  predict(&run);
  double adamw = run.out.update_ns;
  Rates rates = executor_rates(&run.graph->cluster, &run.settings.executor, DTYPE_BF16);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    run.graph->recipe.optimizer = rows[i].kind;
    run.graph->recipe.momentum = rows[i].momentum;
    predict(&run);
    near("states", run.out.states_bytes, (4 + 4 * rows[i].moments) * all_numel() / 8, 1e-9);
    near("update", adamw - run.out.update_ns, 1e9 * 8 * (2 - rows[i].moments) * all_numel() / 8 / rates.memory, 1e-6);
  }
  arena_free(run.arena);
}

/* --- frozen blocks ------------------------------------------------------------------------------------------- */

/* Only the last norm learns: no block has a backward, keeps anything or reduces. */
static void test_backward_ends_above_frozen_blocks(void **state) {
  (void)state;
  Run run;
  open_run(&run, EXECUTOR_FSDP2_EAGER, 8);
  predict(&run);
  ExecutorPrediction all = run.out;
  freeze(&run, "layers");
  freeze(&run, "wpe");
  double learn = freeze(&run, "wte"), tokens = 6 * LENGTH;
  near("what learns", learn, 2 * D, 1e-9);
  predict(&run);
  near("states", run.out.states_bytes, (4 * all_numel() + 8 * learn) / 8, 1e-9);
  near("kept", run.out.saved_bytes, 2 * D * tokens, 1e-9); /* the last norm's input; the head's is not read: its weight is frozen */
  assert_true(run.out.block_backward_ns == 0 && run.out.reduce_ns == 0);
  assert_true(run.out.block_forward_ns == all.block_forward_ns && run.out.gather_ns == all.gather_ns);
  assert_true(run.out.step_ns < 0.45 * all.step_ns); /* a third of the flops, and the head's */
  arena_free(run.arena);
}

/* The lower half is frozen: a step on one rank is shorter by the backward of 16 blocks, of the embeddings, and their updates. */
static void test_half_of_the_blocks(void **state) {
  (void)state;
  Run run;
  open_run(&run, EXECUTOR_FSDP2_EAGER, 1);
  run.world.micro_batch = 6;
  predict(&run);
  ExecutorPrediction all = run.out;
  freeze(&run, "wpe");
  freeze(&run, "wte");
  char name[32];
  double learn = 0, tokens = 6 * LENGTH;
  for (int i = 0; i < 16; i++) {
    snprintf(name, sizeof name, "layers.%d", i);
    learn = freeze(&run, name);
  }
  near("what learns", learn, 16 * block_numel() + 2 * D, 1e-9);
  predict(&run);
  Rates rates = executor_rates(&run.graph->cluster, &run.settings.executor, DTYPE_BF16);
  /* wte is the head's weight too, whose product falls away; embedding 8, positions 4, their sum 6 bytes an element. */
  double head = cost_product_ns(&rates, V, D, tokens, 2);
  double embeddings = cost_move_ns(&rates, 8 * D * tokens) + cost_move_ns(&rates, 4 * D * LENGTH) + cost_move_ns(&rates, 6 * D * tokens);
  double update = all.update_ns - run.out.update_ns;
  near("update", update, cost_move_ns(&rates, 80 * (all_numel() - learn)) - rates.launch_ns, 1e-6);
  near("step", all.step_ns - run.out.step_ns, 16 * all.block_backward_ns + embeddings + head + update, 1e-3);
  near("kept", run.out.saved_bytes, 16 * tokens * (32 * D + 4 * 32) + 2 * D * tokens, 1e-3);
  arena_free(run.arena);
}

/* --- frozen weights beside what learns ------------------------------------------------------------------------ */

static void freeze_products(Run *run) {
  freeze(run, "layers.*.attn.c_attn.weight");
  freeze(run, "layers.*.attn.c_proj.weight");
  freeze(run, "layers.*.mlp.up.weight");
  freeze(run, "layers.*.mlp.down.weight");
}

/* Each product's second backward product, the input it would have kept, its gradient and its reduction are gone. */
static void test_frozen_weights(void **state) {
  (void)state;
  Run run;
  open_run(&run, EXECUTOR_FSDP2_EAGER, 8);
  predict(&run);
  ExecutorPrediction all = run.out;
  freeze_products(&run);
  predict(&run);
  Rates rates = executor_rates(&run.graph->cluster, &run.settings.executor, DTYPE_BF16);
  double tokens = 6 * LENGTH;
  double products = cost_product_ns(&rates, 3 * D, D, tokens, 2) + cost_product_ns(&rates, D, D, tokens, 2) +
                    cost_product_ns(&rates, F, D, tokens, 2) + cost_product_ns(&rates, D, F, tokens, 2);
  near("backward", all.block_backward_ns - run.out.block_backward_ns, products, 1e-9);
  near("kept", all.saved_bytes - run.out.saved_bytes, LAYERS * tokens * (2 * D + 2 * D + 2 * F), 1e-9);
  double learn = block_numel() - 4 * D * D - 2 * D * F;
  double reduce = cost_flat_ns(&run.graph->cluster, COLLECTIVE_REDUCE, 4 * learn, 8, 1, 8) * (1 + run.graph->cluster.comm_slowdown);
  near("reduction", run.out.reduce_ns, reduce, 1e-9);
  assert_true(run.out.gather_ns == all.gather_ns); /* frozen or not, it is used */
  arena_free(run.arena);
}

/* FSDP1 keeps one gradient for a unit's flat parameter: freezing a part of it saves moments only. */
static void test_flat_units(void **state) {
  (void)state;
  Run run;
  open_run(&run, EXECUTOR_FSDP1_EAGER, 8);
  predict(&run);
  ExecutorPrediction all = run.out;
  freeze_products(&run);
  double learn = freeze(&run, "nothing");
  predict(&run);
  near("states", run.out.states_bytes, (4 * all_numel() + 8 * learn) / 8, 1e-9);
  assert_true(run.out.block_backward_ns == all.block_backward_ns && run.out.reduce_ns == all.reduce_ns);
  assert_true(run.out.saved_bytes == all.saved_bytes);
  freeze(&run, "layers.0"); /* as a whole it has no gradient at all */
  predict(&run);
  assert_true(run.out.block_backward_ns < all.block_backward_ns && run.out.reduce_ns == 0);
  arena_free(run.arena);
}

/* Gradients that add up over micro-batches exist for what learns only: four bytes unsharded, or their shards. */
static void test_accumulated_gradients(void **state) {
  (void)state;
  double learn = 0, bytes[2][2];
  for (int frozen = 0; frozen < 2; frozen++)
    for (int each = 0; each < 2; each++) {
      Run run;
      open_run(&run, EXECUTOR_FSDP2_EAGER, 8);
      run.world.accumulation = 4;
      run.settings.executor.reduce = each ? REDUCE_MICRO_BATCH : REDUCE_STEP;
      run.settings.checkpoint = CHECKPOINT_FULL;
      run.settings.executor.loss_chunks = 64; /* so that the peak is in backward */
      if (frozen) freeze_products(&run);
      learn = freeze(&run, "nothing");
      predict(&run);
      assert_string_equal(run.out.peak_at, "backward");
      bytes[frozen][each] = run.out.peak.gradients;
      arena_free(run.arena);
    }
  double unit = block_numel(), rest = unit - 4 * D * D - 2 * D * F, head = V * D; /* as a block begins: the head's, and what the block after it
                                                                              sends; as the last one does where that is little */
  near("unsharded", bytes[0][0], 4 * all_numel() + 6 * unit, 1e-9);
  near("unsharded, frozen", bytes[1][0], 4 * learn + 6 * rest, 1e-9);
  near("shards", bytes[0][1], 4 * all_numel() / 8 + 4 * unit + 2 * head, 1e-9);
  near("shards, frozen", bytes[1][1], 4 * learn / 8 + 2 * head, 1e-9);
}

/* Freezing more never takes longer or needs more, whatever the executor. */
static void test_more_frozen_is_less(void **state) {
  (void)state;
  static const char *const steps[] = {"nothing", "layers.*.mlp.up.weight", "layers.*.mlp", "layers.0", "wte", "wpe", "layers"};
  for (int executor = 0; executor < EXECUTOR_COUNT; executor++)
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
      Run run;
      open_run(&run, (ExecutorId)executor, 8);
      run.settings.checkpoint = checkpoint ? CHECKPOINT_FULL : CHECKPOINT_NONE;
      ExecutorPrediction before = {0};
      for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        freeze(&run, steps[i]);
        predict(&run);
        assert_true(run.out.reserved_bytes >= run.out.active_bytes && run.out.mfu > 0 && run.out.mfu < 1);
        if (i) assert_true(run.out.step_ns <= before.step_ns && run.out.active_bytes <= before.active_bytes);
        if (i) assert_true(run.out.saved_bytes <= before.saved_bytes && run.out.recompute_ns <= before.recompute_ns);
        before = run.out;
      }
      arena_free(run.arena);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept_in_16_bits), cmocka_unit_test(test_moments), cmocka_unit_test(test_backward_ends_above_frozen_blocks),
                                     cmocka_unit_test(test_half_of_the_blocks), cmocka_unit_test(test_frozen_weights),
                                     cmocka_unit_test(test_flat_units), cmocka_unit_test(test_accumulated_gradients),
                                     cmocka_unit_test(test_more_frozen_is_less)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
