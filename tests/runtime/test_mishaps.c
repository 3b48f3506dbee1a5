/* Owns: tests of training that goes wrong: every mishap has its message and exit code, and nothing is left behind. */
#include "training.h"

#include "runtime/files/safetensors.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const BigramOptions base = {.shard = 1, .replicas = 1, .micro_batch = 12, .accumulation = 1, .steps = 30};

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
  Plan *plan = verified_plan(scratch->arena, &two);
  const char *data = corpus(scratch), *none = scratch_path(scratch, "none");
  TrainOptions options = options_for(scratch, &data, "out");
  options.backend = "abacus";
  refused(scratch, plan, &options, "backend \"abacus\"");
  options = options_for(scratch, &none, "out");
  refused(scratch, plan, &options, "No such file");
  options = options_for(scratch, &data, "out");
  options.gemm = "abacus";
  refused(scratch, plan, &options, "gemm \"abacus\"");
  options = options_for(scratch, &data, "out");
  options.metrics_path = scratch_path(scratch, "no/such/folder");
  refused(scratch, plan, &options, "metrics: ");
  options = options_for(scratch, &data, "out");
  options.save_dir = scratch_path(scratch, "corpus.txt/x");
  refused(scratch, plan, &options, "save: ");
  options = options_for(scratch, &data, "out");
  options.init_path = data;
  refused(scratch, plan, &options, "not a safetensors file");
  options = options_for(scratch, &data, "out");
  plan->recipe.steps = 0;
  refused(scratch, plan, &options, "--steps N");
}

static void weights_must_fit_the_model(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = verified_plan(scratch->arena, &base);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
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
  Plan *plan = verified_plan(scratch->arena, &base);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  for (uint32_t b = 0; b < plan->bufs.count; b++)
    if (strcmp(plan_str(plan, plan->bufs.data[b].name), "logits") == 0) plan->bufs.data[b].dtype = DTYPE_BF16;
  refused(scratch, plan, &options, "is bf16, and the CPU backend needs it in f32");
}

static Plan *diverging_plan(Scratch *scratch) {
  BigramOptions options = base;
  options.shard = 2, options.micro_batch = 6, options.sgd = true;
  Plan *plan = verified_plan(scratch->arena, &options);
  plan->recipe.lr = plan->recipe.min_lr = 1e38;
  return plan;
}

static void divergence_is_said(void **state) {
  Scratch *scratch = *state;
  Plan *plan = diverging_plan(scratch);
  const char *data = corpus(scratch);
  TrainOptions train_options = options_for(scratch, &data, "out");
  refused(scratch, plan, &train_options, "training has diverged");
  json_t *records = read_metrics(train_options.metrics_path); /* still JSON, and whichever rank was first: the step is there */
  const json_t *last = json_array_get(records, json_array_size(records) - 1);
  assert_int_equal(json_integer_value(json_object_get(last, "step")), 2);
  json_decref(records);
}

/* All ranks are well, so what was being written then is finished. */
static void a_checkpoint_outlives_divergence(void **state) {
  Scratch *scratch = *state;
  Plan *plan = diverging_plan(scratch);
  const char *data = corpus(scratch);
  TrainOptions train_options = options_for(scratch, &data, "out");
  train_options.save_every = 1;
  refused(scratch, plan, &train_options,
          "training has diverged; lower the learning rate, warm up longer, or clip; the checkpoint of step 1 is whole");
  assert_int_equal(access(scratch_path(scratch, "out/step-00000001/checkpoint.json"), F_OK), 0);
  assert_int_equal(folder_entries(train_options.save_dir), 1);
}

static void a_full_disk_is_said(void **state) {
  Scratch *scratch = *state;
  BigramOptions two = base;
  two.shard = 2, two.micro_batch = 6;
  const Plan *plan = verified_plan(scratch->arena, &two);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
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

/* Kills one rank of a running job; the job runs in a process of its own. */
static void a_killed_rank_ends_the_run(void **state) {
  Scratch *scratch = *state;
  BigramOptions three = base;
  three.shard = 3, three.micro_batch = 4;
  const Plan *plan = verified_plan(scratch->arena, &three);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  options.steps = (uint64_t)1 << 40;
  options.save_every = 1;
  options.keep = 1;
  capture_stderr(scratch);
  pid_t job = fork();
  if (job == 0) _exit(runtime_train(plan, &options));
  wait_for_bytes(options.metrics_path, 3000);
  pid_t first = child_of(job, 0), victim = child_of(job, 1);
  assert_true(first > 0 && victim > 0);
  double begin = clock_seconds();
  kill(victim, SIGKILL);
  int status;
  assert_int_equal(waitpid(job, &status, 0), job);
  const char *text = captured_stderr(scratch);
  assert_soon(begin);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), RUN_PEER_FAILED);
  assert_said(text, "fsdpc: error: rank 1 was killed by signal 9 (Killed) in step ");
  assert_int_equal(kill(first, 0), -1); /* its peers are gone */
  assert_int_equal(folder_entries(options.save_dir), 1); /* and so is what it was saving; a checkpoint stays */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(options_are_checked_first), SCRATCH_TEST(weights_must_fit_the_model),
      SCRATCH_TEST(other_dtypes_are_refused), SCRATCH_TEST(divergence_is_said), SCRATCH_TEST(a_checkpoint_outlives_divergence),
      SCRATCH_TEST(a_full_disk_is_said), SCRATCH_TEST(a_killed_rank_ends_the_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
