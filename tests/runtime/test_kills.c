/* Owns: the fault table of processes: a rank is killed, or the job told to stop, at a random moment, saving included.
 * The job says who died and where, leaves nothing behind, and goes on to the bits of an undisturbed run. Argument: how
 * many moments (default 20). The moments come from a fixed seed. */
#include "training.h"

#include "runtime/checkpoint.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 120, RANKS = 3, MOMENTS = 20 };

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

typedef struct Table {
  Scratch *scratch;
  const Plan *plan;
  const char *data;
  double run_seconds; /* of an undisturbed run */
  uint64_t random;
} Table;

static TrainOptions options_at(const Table *table, const char *dir) {
  TrainOptions options = options_for(table->scratch, &table->data, dir);
  options.save_every = 2;
  options.keep = 2;
  options.resume = "auto";
  return options;
}

static void go_on(const Table *table, const TrainOptions *options, const char *dir) {
  assert_clean(table->scratch, dir);
  assert_int_equal(runtime_train(table->plan, options), RUN_OK);
  assert_same_weights(table->scratch, "whole", dir);
  assert_no_children();
}

static void one_moment(Table *table, uint32_t moment) {
  const char *dir = arena_printf(table->scratch->arena, "moment%u", moment);
  TrainOptions options = options_at(table, dir);
  bool term = next_random(&table->random) % 4 == 0;
  uint32_t victim = (uint32_t)(next_random(&table->random) % RANKS);
  double wait = table->run_seconds * (double)(next_random(&table->random) % 1200) / 1000;
  pid_t job = start_training(table->scratch, table->plan, &options, "log");
  usleep((useconds_t)(wait * 1e6));
  pid_t rank = child_of(job, victim);
  if (term)
    kill(job, SIGTERM);
  else if (rank != 0)
    kill(rank, SIGKILL);
  double begin = seconds_now();
  int code = end_training(job);
  const char *said = read_text(table->scratch->arena, scratch_path(table->scratch, "log"), NULL);
  if (seconds_now() - begin > 10) fail_msg("moment %u: it took %.1f s to end", moment, seconds_now() - begin);
  if (code == RUN_PEER_FAILED)
    assert_said(said, "was killed by signal 9 (Killed) ");
  else if (code == 128 + SIGTERM)
    assert_said(said, "stopped by signal 15");
  else if (code != RUN_OK && code != -1) /* -1: SIGTERM came before the job watched for it */
    fail_msg("moment %u: exit code %d, and it says: %s", moment, code, said);
  if (code == -1 && !term) fail_msg("moment %u: the job was killed", moment);
  go_on(table, &options, dir);
  scratch_remove(table->scratch, dir);
}

static void kills_cost_no_bit(void **state) {
  const char *text = getenv("FSDPC_TEST_MOMENTS");
  uint32_t moments = text != NULL ? (uint32_t)atoi(text) : MOMENTS;
  Table table = {.scratch = *state, .random = 20240611};
  table.data = corpus(table.scratch);
  table.plan = plan_for(table.scratch->arena, RANKS, 1, STEPS);
  TrainOptions options = options_at(&table, "whole");
  double begin = seconds_now();
  assert_int_equal(runtime_train(table.plan, &options), RUN_OK);
  table.run_seconds = seconds_now() - begin;
  for (uint32_t moment = 0; moment < moments; moment++) one_moment(&table, moment);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {SCRATCH_TEST(kills_cost_no_bit)};
  if (argc > 1) setenv("FSDPC_TEST_MOMENTS", argv[1], 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
