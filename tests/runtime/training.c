/* Owns: the helpers of training.h. */
#include "training.h"

#include "planner/plan/verify.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

const char *corpus(Scratch *scratch) {
  static const char line[] = "the quick brown fox jumps over the lazy dog and then the hen sat on the mat. ";
  size_t length = sizeof line - 1, copies = 200;
  char *text = arena_alloc(scratch->arena, length * copies);
  for (size_t i = 0; i < copies; i++) memcpy(text + i * length, line, length);
  return scratch_file(scratch, "corpus.txt", text, length * copies);
}

static void print_violations(const VerifyResult *result) {
  for (uint32_t i = 0; i < result->violations.count; i++)
    print_error("%s: %s\n", verify_rule_name(result->violations.data[i].rule), result->violations.data[i].text);
}

Plan *verified_plan(Arena *arena, const BigramOptions *options) {
  VerifyResult result = {0};
  Plan *plan = bigram_plan(arena, options);
  bool good = plan_verify(arena, plan, &result);
  if (!good) print_violations(&result);
  assert_true(good);
  return plan;
}

const Plan *plan_for(Arena *arena, uint32_t shard, uint32_t replicas, uint64_t steps) {
  BigramOptions options = {
      .shard = shard, .replicas = replicas, .micro_batch = 12 / (shard * replicas), .accumulation = 1, .steps = steps};
  return verified_plan(arena, &options);
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

json_t *read_metrics(const char *path) {
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

/* What a step's record says of the arithmetic: its text from "step" to the end of "lr". */
static bool parse_step(const char *line, unsigned long long *step, const char **text, size_t *length) {
  static const char begin[] = "{\"reason\":\"step\",";
  const char *end = strstr(line, ",\"tokens\"");
  if (strncmp(line, begin, sizeof begin - 1) != 0 || end == NULL) return false;
  *text = line + sizeof begin - 1;
  *length = (size_t)(end - *text);
  return sscanf(*text, "\"step\":%llu", step) == 1;
}

/* Texts by step, in the lines of NAME.jsonl; those of `same` must be equal, where it is given. */
static const char **steps_of(Scratch *scratch, const char *name, uint64_t steps, const char *const *same) {
  const char **texts = ARENA_ARRAY(scratch->arena, const char *, steps + 1), *text;
  char line[8192];
  size_t length;
  unsigned long long step;
  FILE *file = fopen(arena_printf(scratch->arena, "%s/%s.jsonl", scratch->dir, name), "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL) {
    if (!parse_step(line, &step, &text, &length) || step > steps) continue;
    texts[step] = arena_strndup(scratch->arena, text, length);
    if (same != NULL && strcmp(texts[step], same[step]) != 0)
      fail_msg("%s: %s; undisturbed: %s", name, texts[step], same[step]);
  }
  fclose(file);
  for (uint64_t i = 1; i <= steps; i++)
    if (texts[i] == NULL) fail_msg("%s: step %llu is not in its metrics", name, (unsigned long long)i);
  return texts;
}

void assert_same_steps(Scratch *scratch, const char *a, const char *b, uint64_t steps) {
  steps_of(scratch, b, steps, steps_of(scratch, a, steps, NULL));
}

pid_t start_training(Scratch *scratch, const Plan *plan, const TrainOptions *options, const char *log) {
  const char *path = scratch_path(scratch, log);
  fflush(NULL);
  pid_t job = fork();
  if (job != 0) return job;
  setsid();
  int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
  dup2(file, STDERR_FILENO);
  close(file);
  _exit(runtime_train(plan, options));
}

int end_training(pid_t job) {
  int status;
  assert_int_equal(waitpid(job, &status, 0), job);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
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

/* --- waiting ------------------------------------------------------------------------------------------------------ */

enum { LOOK_US = 5000, LOOKS = 4 * SOON_S * (1000000 / LOOK_US) };

long file_bytes(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 ? (long)info.st_size : 0;
}

void wait_for_bytes(const char *path, long bytes) {
  for (int look = 0; look < LOOKS; look++) {
    if (file_bytes(path) > bytes) return;
    usleep(LOOK_US);
  }
  fail_msg("%s does not grow", path);
}

static uint32_t visible_entries(const char *dir) {
  uint32_t count = 0;
  struct dirent *entry;
  DIR *folder = opendir(dir);
  while (folder != NULL && (entry = readdir(folder)) != NULL) count += entry->d_name[0] != '.';
  if (folder != NULL) closedir(folder);
  return count;
}

void wait_for_entries(const char *dir, uint32_t count) {
  for (int look = 0; look < LOOKS; look++) {
    if (visible_entries(dir) >= count) return;
    usleep(LOOK_US);
  }
  fail_msg("%s does not get %u entries", dir, count);
}

/* Signals to a process as a whole that wait for it, as /proc has them: a mask in hexadecimal digits. */
static bool signals_wait(pid_t job) {
  char line[256];
  unsigned long long pending = 0;
  snprintf(line, sizeof line, "/proc/%ld/status", (long)job);
  FILE *file = fopen(line, "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "ShdPnd: %llx", &pending) == 1) break;
  if (file != NULL) fclose(file);
  return pending != 0;
}

void wait_until_taken(pid_t job) {
  for (int look = 0; look < LOOKS; look++) {
    if (!signals_wait(job)) return;
    usleep(LOOK_US);
  }
  fail_msg("process %ld takes no signals", (long)job);
}

/* /proc/PID/stat: the command in parentheses may hold anything, so fields are counted after it: state, parent, group,
 * session. */
static bool lives_in(const char *pid, long session) {
  char path[300], text[1024], state;
  long parent, group, of;
  snprintf(path, sizeof path, "/proc/%s/stat", pid);
  FILE *file = fopen(path, "r");
  if (file == NULL) return false;
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[length] = '\0';
  const char *after = strrchr(text, ')');
  return after != NULL && sscanf(after, ") %c %ld %ld %ld", &state, &parent, &group, &of) == 4 && of == session &&
         state != 'Z';
}

void assert_session_ends(pid_t job) {
  char left[300];
  for (int look = 0; look < LOOKS; look++) {
    struct dirent *entry;
    DIR *processes = opendir("/proc");
    left[0] = '\0';
    while (processes != NULL && (entry = readdir(processes)) != NULL)
      if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && lives_in(entry->d_name, job))
        snprintf(left, sizeof left, "%s", entry->d_name);
    if (processes != NULL) closedir(processes);
    if (left[0] == '\0') return;
    usleep(LOOK_US);
  }
  fail_msg("process %s is left behind", left);
}
