/* Owns: the helpers of training.h. */
#include "training.h"

#include "planner/plan/verify.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *corpus(Scratch *scratch) {
  static const char line[] = "the quick brown fox jumps over the lazy dog and then the hen sat on the mat. ";
  size_t length = sizeof line - 1, copies = 200;
  char *text = arena_alloc(scratch->arena, length * copies);
  for (size_t i = 0; i < copies; i++) memcpy(text + i * length, line, length);
  return scratch_file(scratch, "corpus.txt", text, length * copies);
}

const Plan *plan_for(Arena *arena, uint32_t shard, uint32_t replicas, uint64_t steps) {
  BigramOptions options = {
      .shard = shard, .replicas = replicas, .micro_batch = 12 / (shard * replicas), .accumulation = 1, .steps = steps};
  VerifyResult result = {0};
  Plan *plan = bigram_plan(arena, &options);
  assert_true(plan_verify(arena, plan, &result));
  return plan;
}

TrainOptions options_for(Scratch *scratch, const char *const *data, const char *dir) {
  return (TrainOptions){.backend = "cpu",
                        .data = data,
                        .data_count = 1,
                        .metrics_path = arena_printf(scratch->arena, "%s/%s.jsonl", scratch->dir, dir),
                        .save_dir = scratch_path(scratch, dir),
                        .threads = 1,
                        .gemm = "builtin",
                        .quiet = true};
}

char *weights_of(Scratch *scratch, const char *dir, size_t *bytes) {
  return read_text(scratch->arena, arena_printf(scratch->arena, "%s/%s/model.safetensors", scratch->dir, dir), bytes);
}

void assert_same_weights(Scratch *scratch, const char *a, const char *b) {
  size_t a_bytes, b_bytes;
  char *first = weights_of(scratch, a, &a_bytes), *second = weights_of(scratch, b, &b_bytes);
  assert_int_equal(a_bytes, b_bytes);
  assert_memory_equal(first, second, a_bytes);
}

double *losses_of(Scratch *scratch, const char *dir, uint64_t steps) {
  double *losses = ARENA_ARRAY(scratch->arena, double, steps + 1);
  char line[8192];
  FILE *file = fopen(arena_printf(scratch->arena, "%s/%s.jsonl", scratch->dir, dir), "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL) {
    unsigned long long step;
    double loss;
    if (sscanf(line, "{\"reason\":\"step\",\"step\":%llu,\"loss\":%lf", &step, &loss) == 2 && step <= steps)
      losses[step] = loss;
  }
  fclose(file);
  return losses;
}

pid_t start_training(Scratch *scratch, const Plan *plan, const TrainOptions *options, const char *log) {
  const char *path = scratch_path(scratch, log);
  fflush(NULL);
  pid_t job = fork();
  if (job != 0) return job;
  int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
  dup2(file, STDERR_FILENO);
  close(file);
  _exit(runtime_train(plan, options));
}

int end_training(pid_t job) {
  int status;
  assert_int_equal(waitpid(job, &status, 0), job);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

pid_t child_of(pid_t parent, uint32_t n) {
  char path[64];
  long pid = 0;
  snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)parent, (long)parent);
  FILE *children = fopen(path, "r");
  if (children == NULL) return 0;
  for (uint32_t i = 0; i <= n; i++)
    if (fscanf(children, "%ld", &pid) != 1) pid = 0;
  fclose(children);
  return (pid_t)pid;
}

void assert_clean(Scratch *scratch, const char *dir) {
  struct dirent *entry;
  DIR *folder = opendir(scratch_path(scratch, dir));
  if (folder == NULL) return;
  while ((entry = readdir(folder)) != NULL)
    if (entry->d_name[0] == '.' && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      fail_msg("%s is left in %s", entry->d_name, dir);
  closedir(folder);
}
