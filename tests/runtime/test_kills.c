/* Owns: the fault table of processes: at a random moment, saving included, a rank or the whole job's parent
 * is killed, or the job told to save or to stop. It says who died and where, leaves nothing behind, and goes
 * on to the losses, norms and weights of an undisturbed run. Argument: how many moments (default 20). The
 * moments come from a fixed seed. */
#include "training.h"

#include "runtime/files/checkpoint.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 120, RANKS = 3, MOMENTS = 20 };

typedef enum { KILL_RANK, KILL_PARENT, TELL_TERM, TELL_USR1, ACTIONS } Action;

/* How often which, in eighths. */
static const Action actions[] = {KILL_RANK,   KILL_RANK, KILL_RANK, KILL_RANK,
                                 KILL_PARENT, TELL_TERM, TELL_TERM, TELL_USR1};

/* splitmix64 */
static uint64_t next_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

typedef struct Table {
  Scratch *scratch;
  const Plan *plan;
  const char *data;
  double run_seconds; /* of an undisturbed run */
  uint64_t random;
  uint32_t hits[ACTIONS]; /* that came while ranks ran */
} Table;

static TrainOptions options_at(const Table *table, const char *dir) {
  TrainOptions options = options_for(table->scratch, &table->data, dir);
  options.save_every = 2;
  options.keep = 2;
  options.resume = "auto";
  return options;
}

/* Also over what a parent that was killed could not remove. */
static void go_on(const Table *table, const TrainOptions *options, const char *dir) {
  assert_int_equal(runtime_train(table->plan, options), RUN_OK);
  assert_clean(table->scratch, dir);
  assert_same_weights(table->scratch, "whole", dir);
  assert_same_steps(table->scratch, "whole", dir, STEPS);
  assert_no_children();
  assert_no_shared_memory();
}

static void strike(Table *table, Action action, pid_t job) {
  pid_t rank = child_of(job, (uint32_t)(next_random(&table->random) % RANKS));
  if (action == KILL_RANK && rank != 0) kill(rank, SIGKILL);
  if (action == KILL_PARENT) kill(job, SIGKILL);
  if (action == TELL_TERM) kill(job, SIGTERM);
  if (action == TELL_USR1) kill(job, SIGUSR1);
}

/* Whether a run that a signal ended, or that ended by itself, says what it should. */
static bool fits(Action action, int code, const char *said) {
  if (code == RUN_OK) return true; /* it was through already, or told to save and went on */
  switch (action) {
  case KILL_RANK:
    return code == RUN_PEER_FAILED && strstr(said, "was killed by signal 9 (Killed) ") != NULL;
  case TELL_TERM:
    return code == -SIGTERM || (code == 128 + SIGTERM && strstr(said, "stopped by signal 15") != NULL);
  case TELL_USR1:
    return code == -SIGUSR1;
  default:
    return code == -SIGKILL;
  }
}

static bool saved(const TrainOptions *options) {
  const char *newest = NULL;
  Failure failure = {0};
  Arena *arena = arena_new();
  bool found = folder_latest(arena, options->save_dir, UINT64_MAX, &newest, &failure) && newest != NULL;
  arena_free(arena);
  return found;
}

static void one_moment(Table *table, uint32_t moment) {
  Scratch *scratch = table->scratch;
  const char *dir = arena_printf(scratch->arena, "moment%u", moment);
  TrainOptions options = options_at(table, dir);
  Action action = actions[next_random(&table->random) % (sizeof actions / sizeof *actions)];
  if (action == TELL_TERM || action == TELL_USR1)
    options.save_every = 0; /* so that what is saved was asked for */
  double wait = table->run_seconds * (double)(next_random(&table->random) % 1200) / 1000;
  pid_t job = start_training(scratch, table->plan, &options, "log");
  usleep((useconds_t)(wait * 1e6));
  strike(table, action, job);
  double begin = clock_seconds();
  int code = end_training(job);
  const char *said = read_text(scratch->arena, scratch_path(scratch, "log"), NULL);
  if (clock_seconds() - begin > SOON_S)
    fail_msg("moment %u: it took %.1f s to end", moment, clock_seconds() - begin);
  if (!fits(action, code, said))
    fail_msg("moment %u, action %d: exit code %d, and it says: %s", moment, action, code, said);
  if (code < 0 && action != KILL_PARENT &&
      file_bytes(options.metrics_path) > 0) /* before anybody watched, it may die */
    fail_msg("moment %u: signal %d ended a run that was on its way", moment, -code);
  if (code > 0 && action == TELL_TERM && !saved(&options))
    fail_msg("moment %u: it says it saved, but: %s", moment, said);
  assert_session_ends(job);
  if (code >= 0) assert_clean(scratch, dir);
  table->hits[action] += code != RUN_OK && file_bytes(options.metrics_path) > 0;
  go_on(table, &options, dir);
  scratch_remove(scratch, dir);
  scratch_remove(scratch, arena_printf(scratch->arena, "%s.jsonl", dir));
}

static void kills_cost_no_bit(void **state) {
  const char *text = getenv("FSDPC_TEST_MOMENTS");
  uint32_t moments = text != NULL ? (uint32_t)atoi(text) : MOMENTS;
  Table table = {.scratch = *state, .random = 20240611};
  table.data = corpus(table.scratch);
  table.plan = plan_for(table.scratch->arena, RANKS, 1, STEPS);
  TrainOptions options = options_at(&table, "whole");
  double begin = clock_seconds();
  assert_int_equal(runtime_train(table.plan, &options), RUN_OK);
  table.run_seconds = clock_seconds() - begin;
  for (uint32_t moment = 0; moment < moments; moment++) one_moment(&table, moment);
  printf("%u moments; while ranks ran: %u ranks killed, %u parents killed, %u told to stop\n", moments,
         table.hits[KILL_RANK], table.hits[KILL_PARENT], table.hits[TELL_TERM]);
  assert_true(table.hits[KILL_RANK] + table.hits[KILL_PARENT] + table.hits[TELL_TERM] > 0);
}

/* --- told to save, once a run is on its way: the only checkpoint before the last is the one asked for ------------- */

static void told_to_save_it_saves(void **state) {
  Table table = {.scratch = *state, .random = 7};
  const uint64_t steps = 1 << 30; /* more than are done before it is told to stop */
  TrainOptions options;
  table.data = corpus(table.scratch);
  table.plan = plan_for(table.scratch->arena, RANKS, 1, steps);
  options = options_for(table.scratch, &table.data, "told");
  pid_t job = start_training(table.scratch, table.plan, &options, "log");
  for (uint32_t times = 0; times < 3; times++) {
    long bytes = file_bytes(options.metrics_path);
    wait_for_bytes(options.metrics_path, bytes + 2000 + (long)(next_random(&table.random) % 5000));
    uint32_t before = access(options.save_dir, F_OK) == 0 ? folder_entries(options.save_dir) : 0;
    kill(job, SIGUSR1);
    wait_for_entries(options.save_dir, before + 1);
  }
  kill(job, SIGTERM);
  assert_int_equal(end_training(job), 128 + SIGTERM);
  assert_session_ends(job);
  assert_clean(table.scratch, "told");
  assert_true(folder_entries(options.save_dir) >= 4);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {SCRATCH_TEST(kills_cost_no_bit), SCRATCH_TEST(told_to_save_it_saves)};
  if (argc > 1) setenv("FSDPC_TEST_MOMENTS", argv[1], 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
