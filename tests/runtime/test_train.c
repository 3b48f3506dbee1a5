/* Owns: tests of training from end to end with a hand-built plan: the loss falls, ranks agree, threads and queues change
 * no bit, memory is what the plan says, files come out right. */
#include "training.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const BigramOptions base = {.shard = 1, .replicas = 1, .micro_batch = 12, .accumulation = 1, .steps = 30};

typedef struct Run {
  json_t *records; /* of the metrics file */
  char *weights;
  size_t weight_bytes;
} Run;

static double number(const Run *run, size_t record, const char *key) {
  json_t *value = json_object_get(json_array_get(run->records, record), key);
  if (!json_is_number(value)) fail_msg("record %zu has no number \"%s\"", record, key);
  return json_number_value(value);
}

static Run train(Scratch *scratch, const BigramOptions *bigram, uint32_t threads) {
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  const Plan *plan = verified_plan(scratch->arena, bigram);
  Run run;
  options.threads = threads;
  scratch_remove(scratch, "out");
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  assert_no_children();
  run.records = read_metrics(options.metrics_path);
  run.weights = read_text(scratch->arena, scratch_path(scratch, "out/model.safetensors"), &run.weight_bytes);
  assert_int_equal(folder_entries(options.save_dir), 2); /* and the last checkpoint */
  assert_int_equal(json_array_size(run.records), bigram->steps + 2);
  for (uint64_t step = 1; step <= bigram->steps; step++) {
    assert_int_equal(number(&run, step, "step"), step);
    assert_int_equal(number(&run, step, "peak_bytes"), plan->arena_bytes);
    assert_int_equal(number(&run, step, "tokens"), bigram->shard * bigram->replicas * bigram->micro_batch *
                                                       bigram->accumulation * BIGRAM_CTX);
  }
  return run;
}

static void assert_same(const Run *a, const Run *b, uint64_t steps) {
  for (uint64_t step = 1; step <= steps; step++) {
    assert_true(number(a, step, "loss") == number(b, step, "loss"));
    assert_true(number(a, step, "grad_norm") == number(b, step, "grad_norm"));
  }
  assert_int_equal(a->weight_bytes, b->weight_bytes);
  assert_memory_equal(a->weights, b->weights, a->weight_bytes);
}

static void assert_close(const Run *a, const Run *b, uint64_t steps) {
  for (uint64_t step = 1; step <= steps; step++)
    assert_near(number(a, step, "loss") / number(b, step, "loss"), 1, 1e-5);
}

static void the_loss_falls(void **state) {
  Run run = train(*state, &base, 1);
  assert_near(number(&run, 1, "loss"), log(256), 0.5);
  assert_true(number(&run, 30, "loss") < 0.6 * number(&run, 1, "loss"));
  assert_string_equal(json_string_value(json_object_get(json_array_get(run.records, 0), "reason")), "start");
  assert_string_equal(json_string_value(json_object_get(json_array_get(run.records, 31), "reason")), "end");
  assert_near(number(&run, 1, "lr"), 0.01, 1e-12);
  json_decref(run.records);
}

static void rank_counts_agree(void **state) {
  Run one = train(*state, &base, 1);
  static const uint32_t worlds[][4] = {{2, 1, 6, 1}, {3, 1, 4, 1}, {4, 1, 3, 1}, {1, 1, 3, 4}, {2, 1, 2, 3}, {1, 4, 3, 1}};
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
    BigramOptions options = base;
    options.shard = worlds[i][0], options.replicas = worlds[i][1];
    options.micro_batch = worlds[i][2], options.accumulation = worlds[i][3];
    Run run = train(*state, &options, 1);
    assert_close(&run, &one, base.steps);
    json_decref(run.records);
  }
  json_decref(one.records);
}

/* At a fixed number of ranks: sharding, queues and threads change no bit. */
static void plans_change_no_bit(void **state) {
  BigramOptions options = base;
  options.shard = 4, options.micro_batch = 3;
  Run sharded = train(*state, &options, 1);
  static const uint32_t worlds[][2] = {{2, 2}, {1, 4}};
  for (int i = 0; i < 2; i++) {
    options.shard = worlds[i][0], options.replicas = worlds[i][1];
    Run hybrid = train(*state, &options, 1);
    assert_same(&hybrid, &sharded, base.steps);
    json_decref(hybrid.records);
  }
  options.shard = 4, options.replicas = 1, options.one_queue = true;
  Run serial = train(*state, &options, 3);
  assert_same(&serial, &sharded, base.steps);
  json_decref(serial.records);
  json_decref(sharded.records);
}

static void sgd_trains_too(void **state) {
  BigramOptions options = base;
  options.sgd = true, options.shard = 2, options.micro_batch = 6;
  Run run = train(*state, &options, 2);
  assert_true(number(&run, 30, "loss") < 0.9 * number(&run, 1, "loss"));
  json_decref(run.records);
}

static void saved_weights_load(void **state) {
  Scratch *scratch = *state;
  BigramOptions options = base;
  options.shard = 3, options.micro_batch = 4;
  Run first = train(scratch, &options, 1);
  const char *kept = scratch_file(scratch, "kept.safetensors", first.weights, first.weight_bytes);
  /* With a rate of nothing, what was loaded by 2 ranks is saved again as it was. */
  const char *data = corpus(scratch);
  TrainOptions train_options = options_for(scratch, &data, "out");
  train_options.init_path = kept;
  train_options.steps = 2;
  options.shard = 2, options.micro_batch = 6;
  Plan *plan = verified_plan(scratch->arena, &options);
  scratch_remove(scratch, "out");
  plan->recipe.lr = plan->recipe.min_lr = 0;
  assert_int_equal(runtime_train(plan, &train_options), RUN_OK);
  size_t bytes;
  char *again = read_text(scratch->arena, scratch_path(scratch, "out/model.safetensors"), &bytes);
  uint64_t header; /* names the step */
  memcpy(&header, again, sizeof header);
  header += sizeof header;
  assert_int_equal(bytes, first.weight_bytes);
  assert_memory_equal(again + header, (const char *)first.weights + header, bytes - header);
  json_decref(first.records);
}

static void metrics_are_numbers_to_the_last_bit(void **state) {
  Scratch *scratch = *state;
  Run run = train(scratch, &base, 1);
  size_t bytes;
  char *text = read_text(scratch->arena, scratch_path(scratch, "out.jsonl"), &bytes);
  char written[64];
  snprintf(written, sizeof written, "\"loss\":%.17g,", number(&run, 5, "loss"));
  assert_said(text, written);
  static const char *const keys[] = {"model", "plan_hash", "ranks",   "seed", "gemm",    "threads",
                                     "devices", "steps",   "data",    "arena_bytes", "schema_version"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    assert_non_null(json_object_get(json_array_get(run.records, 0), keys[i]));
  json_decref(run.records);
}

static void saving_replaces_the_old_file(void **state) {
  Scratch *scratch = *state;
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  options.steps = 2;
  options.save_every = 1;
  options.keep = 2;
  options.resume = "auto";
  BigramOptions three = base;
  three.shard = 3, three.micro_batch = 4;
  const Plan *plan = verified_plan(scratch->arena, &three);
  mkdir(options.save_dir, 0700);
  const char *foreign = scratch_file(scratch, "out/model.safetensors", "old", 3);
  assert_int_equal(runtime_train(plan, &options), RUN_INVALID); /* somebody else's */
  assert_int_equal(folder_entries(options.save_dir), 1);
  unlink(foreign);
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  scratch_file(scratch, "out/model.safetensors", "old", 3);
  options.steps = 4;
  assert_int_equal(runtime_train(plan, &options), RUN_OK); /* its own */
  assert_int_equal(folder_entries(options.save_dir), 3); /* with two checkpoints */
  size_t bytes;
  read_text(scratch->arena, scratch_path(scratch, "out/model.safetensors"), &bytes);
  assert_true(bytes > 25000);
}

static void saved_weights_generate(void **state) {
  Scratch *scratch = *state;
  Run run = train(scratch, &base, 1);
  BigramOptions forward = {.shard = 1, .replicas = 1, .micro_batch = 1, .accumulation = 1, .inference = true};
  const Plan *plan = bigram_plan(scratch->arena, &forward);
  GenerateOptions options = {.weights = scratch_path(scratch, "out"),
                             .prompt = "the q",
                             .tokens = 40, /* more than the context */
                             .temperature = 0.5,
                             .top_k = 3,
                             .seed = 5,
                             .gemm = "builtin",
                             .threads = 1};
  char *texts[3];
  for (int i = 0; i < 3; i++) {
    const char *path = scratch_path(scratch, "sample");
    int kept = dup(STDOUT_FILENO), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    size_t bytes;
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    options.seed = i == 2 ? 6 : 5;
    int code = runtime_generate(plan, &options);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(file);
    assert_int_equal(code, RUN_OK);
    texts[i] = read_text(scratch->arena, path, &bytes);
    assert_int_equal(bytes, 45);
  }
  assert_memory_equal(texts[0], "the qu", 6); /* u follows q */
  assert_string_equal(texts[0], texts[1]);
  assert_string_not_equal(texts[0], texts[2]);
  json_decref(run.records);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(the_loss_falls), SCRATCH_TEST(rank_counts_agree),
      SCRATCH_TEST(plans_change_no_bit), SCRATCH_TEST(sgd_trains_too),
      SCRATCH_TEST(saved_weights_load), SCRATCH_TEST(metrics_are_numbers_to_the_last_bit),
      SCRATCH_TEST(saving_replaces_the_old_file), SCRATCH_TEST(saved_weights_generate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
