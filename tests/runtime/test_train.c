/* Owns: tests of training from end to end with a hand-built plan: the loss falls, ranks agree, threads and queues change
 * no bit, memory is what the plan says, files come out right, and every mishap has its message and exit code. */
#include "training.h"

#include "planner/plan/verify.h"
#include "runtime/runtime.h"
#include "runtime/safetensors.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const BigramOptions base = {.shard = 1, .replicas = 1, .micro_batch = 12, .accumulation = 1, .steps = 30};

static void print_violations(const VerifyResult *result) {
  for (uint32_t i = 0; i < result->violations.count; i++)
    print_error("%s: %s\n", verify_rule_name(result->violations.data[i].rule), result->violations.data[i].text);
}

static Plan *verified(Arena *arena, const BigramOptions *options) {
  VerifyResult result = {0};
  Plan *plan = bigram_plan(arena, options);
  bool good = plan_verify(arena, plan, &result);
  if (!good) print_violations(&result);
  assert_true(good);
  return plan;
}

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

static json_t *read_metrics(const char *path) {
  json_t *records = json_array();
  char line[8192];
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL) {
    json_error_t error;
    json_t *record = json_loads(line, 0, &error);
    if (record == NULL) fail_msg("metrics are not JSON: %s in %s", error.text, line);
    json_array_append_new(records, record);
  }
  fclose(file);
  return records;
}

static TrainOptions options_of(Scratch *scratch, const char *const *data) {
  return (TrainOptions){.backend = "cpu",
                        .data = data,
                        .data_count = 1,
                        .metrics_path = scratch_path(scratch, "metrics.jsonl"),
                        .save_dir = scratch_path(scratch, "out"),
                        .threads = 1,
                        .gemm = "builtin",
                        .quiet = true};
}

static Run train(Scratch *scratch, const BigramOptions *bigram, uint32_t threads) {
  const char *data = corpus(scratch);
  TrainOptions options = options_of(scratch, &data);
  const Plan *plan = verified(scratch->arena, bigram);
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
  TrainOptions train_options = options_of(scratch, &data);
  train_options.init_path = kept;
  train_options.steps = 2;
  options.shard = 2, options.micro_batch = 6;
  Plan *plan = verified(scratch->arena, &options);
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
  char *text = read_text(scratch->arena, scratch_path(scratch, "metrics.jsonl"), &bytes);
  char written[64];
  snprintf(written, sizeof written, "\"loss\":%.17g,", number(&run, 5, "loss"));
  assert_said(text, written);
  static const char *const keys[] = {"model", "plan_hash", "ranks",   "seed", "gemm",    "threads",
                                     "devices", "steps",   "data",    "arena_bytes", "schema_version"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    assert_non_null(json_object_get(json_array_get(run.records, 0), keys[i]));
  json_decref(run.records);
}

/* --- mishaps --------------------------------------------------------------------------------------------------------- */

static void refused(Scratch *scratch, const Plan *plan, const TrainOptions *options, const char *said) {
  capture_stderr(scratch);
  int code = runtime_train(plan, options);
  const char *text = captured_stderr(scratch);
  assert_said(text, said);
  assert_int_equal(code, RUN_INVALID);
  assert_string_equal(strchr(text, '\n'), "\n"); /* one message */
  assert_no_children();
}

static void options_are_checked_first(void **state) {
  Scratch *scratch = *state;
  BigramOptions two = base;
  two.shard = 2, two.micro_batch = 6;
  Plan *plan = verified(scratch->arena, &two);
  const char *data = corpus(scratch), *none = scratch_path(scratch, "none");
  TrainOptions options = options_of(scratch, &data);
  options.backend = "abacus";
  refused(scratch, plan, &options, "backend \"abacus\"");
  options = options_of(scratch, &none);
  refused(scratch, plan, &options, "No such file");
  options = options_of(scratch, &data);
  options.gemm = "abacus";
  refused(scratch, plan, &options, "gemm \"abacus\"");
  options = options_of(scratch, &data);
  options.metrics_path = scratch_path(scratch, "no/such/folder");
  refused(scratch, plan, &options, "metrics: ");
  options = options_of(scratch, &data);
  options.save_dir = scratch_path(scratch, "corpus.txt/x");
  refused(scratch, plan, &options, "save: ");
  options = options_of(scratch, &data);
  options.init_path = data;
  refused(scratch, plan, &options, "not a safetensors file");
  options = options_of(scratch, &data);
  plan->recipe.steps = 0;
  refused(scratch, plan, &options, "--steps N");
}

static void weights_must_fit_the_model(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = verified(scratch->arena, &base);
  const char *data = corpus(scratch);
  TrainOptions options = options_of(scratch, &data);
  static const struct {
    SafeTensor tensors[4];
    uint32_t count;
    const char *said;
  } cases[] = {
      {{{.name = "wte.weight", .rank = 2, .dim = {256, 12}, .numel = 3072}}, 1, "tensor \"head.weight\" of the model is missing"},
      {{{.name = "wte.weight", .rank = 2, .dim = {12, 256}, .numel = 3072},
        {.name = "head.weight", .rank = 2, .dim = {256, 12}, .numel = 3072},
        {.name = "head.bias", .rank = 1, .dim = {256}, .numel = 256}}, 3,
       "tensor \"wte.weight\" has shape [12, 256], but the model's has [256, 12]"},
      {{{.name = "wte.weight", .rank = 2, .dim = {256, 12}, .numel = 3072},
        {.name = "head.weight", .rank = 2, .dim = {256, 12}, .numel = 3072},
        {.name = "head.bias", .rank = 1, .dim = {256}, .numel = 256},
        {.name = "lm_head.bias", .rank = 1, .dim = {1}, .numel = 1}}, 4, "tensor \"lm_head.bias\" is not a parameter"},
  };
  for (size_t i = 0; i < 3; i++) {
    SafeTensor tensors[4];
    uint64_t header_bytes;
    memcpy(tensors, cases[i].tensors, sizeof tensors);
    const char *header = safetensors_layout(scratch->arena, tensors, cases[i].count, &header_bytes);
    uint64_t total = header_bytes + tensors[cases[i].count - 1].end;
    char *file = arena_alloc(scratch->arena, total);
    memcpy(file, header, header_bytes);
    options.init_path = scratch_file(scratch, "init.safetensors", file, total);
    refused(scratch, plan, &options, cases[i].said);
  }
}

static void other_dtypes_are_refused(void **state) {
  Scratch *scratch = *state;
  Plan *plan = verified(scratch->arena, &base);
  const char *data = corpus(scratch);
  TrainOptions options = options_of(scratch, &data);
  for (uint32_t b = 0; b < plan->bufs.count; b++)
    if (strcmp(plan_str(plan, plan->bufs.data[b].name), "logits") == 0) plan->bufs.data[b].dtype = DTYPE_BF16;
  refused(scratch, plan, &options, "is bf16, and the CPU backend needs it in f32");
}

static void divergence_is_said(void **state) {
  Scratch *scratch = *state;
  BigramOptions options = base;
  options.shard = 2, options.micro_batch = 6, options.sgd = true;
  Plan *plan = verified(scratch->arena, &options);
  const char *data = corpus(scratch);
  TrainOptions train_options = options_of(scratch, &data);
  plan->recipe.lr = plan->recipe.min_lr = 1e38;
  refused(scratch, plan, &train_options, "training has diverged");
  json_t *records = read_metrics(train_options.metrics_path); /* still JSON */
  json_decref(records);
}

static void a_full_disk_is_said(void **state) {
  Scratch *scratch = *state;
  BigramOptions two = base;
  two.shard = 2, two.micro_batch = 6;
  const Plan *plan = verified(scratch->arena, &two);
  const char *data = corpus(scratch);
  TrainOptions options = options_of(scratch, &data);
  struct rlimit kept, small = {10000, 0};
  options.metrics_path = NULL;
  getrlimit(RLIMIT_FSIZE, &kept);
  small.rlim_max = kept.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  capture_stderr(scratch);
  int code = runtime_train(plan, &options);
  const char *text = captured_stderr(scratch);
  setrlimit(RLIMIT_FSIZE, &kept);
  assert_said(text, "checkpoint: ");
  assert_said(text, "cannot be written: File too large");
  assert_int_equal(code, RUN_INVALID);
  assert_int_equal(folder_entries(options.save_dir), 0);
}

static void saving_replaces_the_old_file(void **state) {
  Scratch *scratch = *state;
  const char *data = corpus(scratch);
  TrainOptions options = options_of(scratch, &data);
  options.steps = 2;
  options.save_every = 1;
  options.keep = 2;
  options.resume = "auto";
  BigramOptions three = base;
  three.shard = 3, three.micro_batch = 4;
  const Plan *plan = verified(scratch->arena, &three);
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

/* Kills one rank of a running job; the job runs in a process of its own. */
static void a_killed_rank_ends_the_run(void **state) {
  Scratch *scratch = *state;
  BigramOptions three = base;
  three.shard = 3, three.micro_batch = 4;
  const Plan *plan = verified(scratch->arena, &three);
  const char *data = corpus(scratch);
  TrainOptions options = options_of(scratch, &data);
  options.steps = (uint64_t)1 << 40;
  options.save_every = 1;
  options.keep = 1;
  capture_stderr(scratch);
  pid_t job = fork();
  if (job == 0) _exit(runtime_train(plan, &options));
  long victim = 0;
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)job, (long)job);
  for (int tries = 0; tries < 500; tries++) { /* until the metrics show steps */
    struct stat info;
    usleep(10000);
    if (stat(options.metrics_path, &info) == 0 && info.st_size > 3000) break;
  }
  FILE *children = fopen(path, "r");
  long first;
  assert_non_null(children);
  assert_int_equal(fscanf(children, "%ld %ld", &first, &victim), 2);
  fclose(children);
  double begin = clock_seconds();
  kill((pid_t)victim, SIGKILL);
  int status;
  assert_int_equal(waitpid(job, &status, 0), job);
  const char *text = captured_stderr(scratch);
  assert_true(clock_seconds() - begin < 2);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), RUN_PEER_FAILED);
  assert_said(text, "fsdpc: error: rank 1 was killed by signal 9 (Killed) in step ");
  assert_int_equal(kill((pid_t)first, 0), -1); /* its peers are gone */
  assert_int_equal(folder_entries(options.save_dir), 1); /* and so is what it was saving; a checkpoint stays */
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
      SCRATCH_TEST(the_loss_falls),          SCRATCH_TEST(rank_counts_agree),
      SCRATCH_TEST(plans_change_no_bit),     SCRATCH_TEST(sgd_trains_too),
      SCRATCH_TEST(saved_weights_load),      SCRATCH_TEST(metrics_are_numbers_to_the_last_bit),
      SCRATCH_TEST(options_are_checked_first), SCRATCH_TEST(weights_must_fit_the_model),
      SCRATCH_TEST(other_dtypes_are_refused), SCRATCH_TEST(divergence_is_said),
      SCRATCH_TEST(a_full_disk_is_said),     SCRATCH_TEST(saving_replaces_the_old_file),
      SCRATCH_TEST(a_killed_rank_ends_the_run), SCRATCH_TEST(saved_weights_generate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
