/* Owns: tests of what a run says of itself: the last step as it was measured, TensorBoard's records, the table of
 * predicted and measured times, and evaluation that leaves training as it was. */
#include "training.h"

#include "runtime/backend.h"
#include "runtime/files/crc32c.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 6 };

/* Lives in the process of rank 0: what it sees is written to a file. */
typedef struct Watcher {
  StepObserver observer;
  const char *path;
} Watcher;

/* Repetitions follow each other, and instructions of one stream too. */
static bool in_order(const Plan *plan, const MeasuredStep *step) {
  uint64_t end[STREAM_COUNT] = {0}, last = 0;
  for (uint64_t r = 0; r < step->run_count; r++) {
    const PlanSegment *segment = &plan->segments.data[step->runs[r].segment];
    uint64_t until = last;
    for (int32_t i = segment->first; i < segment->end; i++) {
      const InstrTime *time = &step->runs[r].times[i - segment->first];
      StreamId stream = plan->instrs.data[i].stream;
      if (time->start_ns < last || time->start_ns < end[stream] || time->end_ns < time->start_ns) return false;
      end[stream] = time->end_ns;
      if (time->end_ns > until) until = time->end_ns;
    }
    last = until;
  }
  return true;
}

static const char *watch(StepObserver *observer, const Plan *plan, const MeasuredStep *step) {
  FILE *file = fopen(((Watcher *)observer)->path, "w");
  if (file == NULL) return "cannot write";
  fprintf(file, "step %llu, %llu runs, %s", (unsigned long long)step->number, (unsigned long long)step->run_count,
          in_order(plan, step) ? "in order" : "out of order");
  fclose(file);
  return NULL;
}

static void the_last_step_is_shown_with_every_instruction(void **state) {
  Scratch *scratch = *state;
  BigramOptions bigram = {.shard = 2, .replicas = 1, .micro_batch = 3, .accumulation = 2, .steps = STEPS};
  const Plan *plan = bigram_plan(scratch->arena, &bigram);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  Watcher watcher = {{watch}, scratch_path(scratch, "seen")};
  options.observer = &watcher.observer;
  options.save_dir = NULL;
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  uint64_t runs = 0;
  size_t bytes;
  for (uint32_t s = 0; s < plan->segments.count; s++) runs += plan->segments.data[s].count;
  assert_string_equal(read_text(scratch->arena, watcher.path, &bytes),
                      arena_printf(scratch->arena, "step %d, %llu runs, in order", STEPS, (unsigned long long)runs));
}

static const char *refuse(StepObserver *observer, const Plan *plan, const MeasuredStep *step) {
  (void)observer;
  (void)plan;
  (void)step;
  return "no room for the trace";
}

static void a_step_that_cannot_be_shown_is_an_error(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 1, 1, STEPS);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  StepObserver observer = {refuse};
  options.observer = &observer;
  options.save_dir = NULL;
  assert_int_equal(runtime_train(plan, &options), RUN_INVALID);
}

static uint32_t unmask(uint32_t masked) {
  uint32_t rotated = masked - 0xa282ead8u;
  return rotated << 15 | rotated >> 17;
}

static void event_files_have_whole_records(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 1, 1, STEPS);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  options.tensorboard = scratch_path(scratch, "board");
  options.save_dir = NULL;
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  struct dirent *entry;
  DIR *folder = opendir(options.tensorboard);
  const char *name = NULL;
  while ((entry = readdir(folder)) != NULL)
    if (strstr(entry->d_name, "tfevents") != NULL) name = arena_printf(scratch->arena, "board/%s", entry->d_name);
  closedir(folder);
  assert_non_null(name);
  size_t bytes, records = 0;
  char *file = read_text(scratch->arena, scratch_path(scratch, name), &bytes);
  for (size_t at = 0; at < bytes; records++) {
    uint64_t length;
    uint32_t of_length, of_data;
    memcpy(&length, file + at, 8);
    memcpy(&of_length, file + at + 8, 4);
    assert_int_equal(unmask(of_length), crc32c(0, &length, 8));
    assert_true(at + 16 + length <= bytes);
    memcpy(&of_data, file + at + 12 + length, 4);
    assert_int_equal(unmask(of_data), crc32c(0, file + at + 12, length));
    at += 16 + length;
  }
  assert_int_equal(records, STEPS + 1); /* the version first */
  assert_memory_equal(file + 12 + 9 + 2,
                      "\x1a\x0d"
                      "brain.Event:2",
                      15);
}

static void analysis_prints_a_table(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, STEPS);
  const char *data = corpus(scratch), *path = scratch_path(scratch, "table");
  TrainOptions options = options_for(scratch, &data, "out");
  options.analyze = true;
  fflush(stdout);
  int kept = dup(STDOUT_FILENO), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  dup2(file, STDOUT_FILENO);
  int code = runtime_train(plan, &options);
  fflush(stdout);
  dup2(kept, STDOUT_FILENO);
  close(kept);
  close(file);
  assert_int_equal(code, RUN_OK);
  const char *text = read_text(scratch->arena, path, NULL);
  assert_said(text, "mean of 4 steps");
  assert_said(text, "  compute ");
  assert_said(text, "of communication is exposed");
}

static double eval_loss(Scratch *scratch, const char *dir, int step) {
  char line[8192];
  double loss = -1;
  FILE *file = fopen(arena_printf(scratch->arena, "%s/%s.jsonl", scratch->dir, dir), "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL) {
    int at;
    double found;
    if (sscanf(line, "{\"reason\":\"eval\",\"step\":%d,\"loss\":%lf", &at, &found) == 2 && at == step) loss = found;
  }
  fclose(file);
  return loss;
}

static void evaluation_leaves_training_alone(void **state) {
  static const char held_out[] =
      "the dog sat on the mat and the hen jumps over the quick brown fox. the lazy dog then sat. "
      "the fox and the hen and the dog jumps. the mat the mat the mat the mat. "
      "on and over and on and over and then on and over the brown hen.";
  Scratch *scratch = *state;
  const char *data = corpus(scratch), *other = scratch_file(scratch, "other.txt", held_out, sizeof held_out - 1);
  TrainOptions options = options_for(scratch, &data, "plain");
  assert_int_equal(runtime_train(plan_for(scratch->arena, 2, 1, STEPS), &options), RUN_OK);
  double losses[3];
  static const uint32_t worlds[3] = {1, 2, 3};
  for (int i = 0; i < 3; i++) {
    const char *dir = arena_printf(scratch->arena, "eval%d", i);
    options = options_for(scratch, &data, dir);
    options.eval_data = &other;
    options.eval_count = 1;
    options.eval_every = 2;
    assert_int_equal(runtime_train(plan_for(scratch->arena, worlds[i], 1, STEPS), &options), RUN_OK);
    losses[i] = eval_loss(scratch, dir, 4);
    assert_true(eval_loss(scratch, dir, 2) > losses[i] && losses[i] > eval_loss(scratch, dir, STEPS));
  }
  assert_same_weights(scratch, "plain", "eval1");
  assert_near(losses[1] / losses[0], 1, 1e-6);
  assert_near(losses[2] / losses[0], 1, 1e-6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(the_last_step_is_shown_with_every_instruction),
      SCRATCH_TEST(a_step_that_cannot_be_shown_is_an_error),
      SCRATCH_TEST(event_files_have_whole_records),
      SCRATCH_TEST(analysis_prints_a_table),
      SCRATCH_TEST(evaluation_leaves_training_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
