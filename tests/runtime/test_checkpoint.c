/* Owns: tests of checkpoints: a resumed run has the bits of one that never stopped, other worlds go on within rounding,
 * signals save, and whatever is damaged or does not fit is refused with a reason. */
#include "training.h"

#include "runtime/files/checkpoint.h"
#include "runtime/files/crc32c.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 24 };

static void train(Scratch *scratch, const Plan *plan, const char *dir, uint64_t steps, const char *resume) {
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, dir);
  options.steps = steps;
  options.resume = resume;
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  assert_no_children();
  assert_clean(scratch, dir);
}

static void the_checksum_is_crc32c(void **state) {
  (void)state;
  unsigned char zeros[32] = {0};
  assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
  assert_int_equal(crc32c(crc32c(0, "12345", 5), "6789", 4), 0xe3069283u);
  assert_int_equal(crc32c(0, zeros, sizeof zeros), 0x8a9136aau); /* RFC 3720, B.4 */
  assert_int_equal(crc32c(0, zeros, 0), 0);
}

static void resuming_changes_no_bit(void **state) {
  static const uint32_t worlds[][2] = {{1, 1}, {3, 1}, {2, 2}, {1, 2}};
  Scratch *scratch = *state;
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
    const Plan *plan = plan_for(scratch->arena, worlds[i][0], worlds[i][1], STEPS);
    const char *whole = arena_printf(scratch->arena, "whole%zu", i),
               *parts = arena_printf(scratch->arena, "parts%zu", i);
    train(scratch, plan, whole, STEPS, NULL);
    train(scratch, plan, parts, 7, "auto");
    train(scratch, plan, parts, 15, "auto");
    train(scratch, plan, parts, STEPS, "auto");
    assert_same_weights(scratch, whole, parts);
    assert_memory_equal(losses_of(scratch, whole, STEPS), losses_of(scratch, parts, STEPS),
                        (STEPS + 1) * sizeof(double));
    train(scratch, plan, parts, STEPS, "auto"); /* nothing is left to do */
    assert_same_weights(scratch, whole, parts);
  }
}

static void other_worlds_go_on(void **state) {
  static const uint32_t worlds[][2] = {{1, 1}, {2, 1}, {3, 1}, {1, 3}, {4, 1}};
  Scratch *scratch = *state;
  train(scratch, plan_for(scratch->arena, 1, 1, 50), "whole", 50, NULL);
  train(scratch, plan_for(scratch->arena, 2, 2, 50), "hybrid", 10, NULL);
  const double *whole = losses_of(scratch, "whole", 50);
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
    const char *dir = arena_printf(scratch->arena, "other%zu", i);
    train(scratch, plan_for(scratch->arena, worlds[i][0], worlds[i][1], 50), dir, 50, scratch_path(scratch, "hybrid"));
    const double *losses = losses_of(scratch, dir, 50);
    for (int step = 11; step <= 50; step++) assert_near(losses[step] / whole[step], 1, 1e-5);
  }
}

static uint32_t checkpoints_in(const char *dir) {
  return folder_entries(dir);
}

static void only_the_newest_are_kept(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, STEPS);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  options.save_every = 3;
  options.keep = 2;
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  assert_int_equal(checkpoints_in(options.save_dir), 3); /* and the weights */
  struct stat info;
  assert_int_equal(stat(scratch_path(scratch, "out/step-00000024/checkpoint.json"), &info), 0);
  assert_int_equal(stat(scratch_path(scratch, "out/step-00000021"), &info), 0);
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

/* Pruning removes the link to a checkpoint that was moved to another disk, and not what is there. A file in the place of an unfinished
 * checkpoint is in nobody's way. */
static void what_was_moved_away_is_kept(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, STEPS);
  const char *data = corpus(scratch), *moved = scratch_path(scratch, "moved"), *first = scratch_path(scratch, "out/step-00000004");
  TrainOptions options = options_for(scratch, &data, "out");
  train(scratch, plan, "out", 4, NULL);
  assert_int_equal(rename(first, moved), 0);
  assert_int_equal(symlink(moved, first), 0);
  scratch_file(scratch, "out/.step-00000008.tmp", "", 0);
  options.steps = 8;
  options.resume = "auto";
  options.keep = 1;
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  assert_int_equal(folder_entries(scratch_path(scratch, "out")), 2); /* a checkpoint and the weights */
  assert_int_equal(access(scratch_path(scratch, "moved/checkpoint.json"), F_OK), 0);
  assert_int_equal(access(scratch_path(scratch, "moved/rank-00001-of-00002.safetensors"), F_OK), 0);
}

/* As where it was moved to another disk. */
static void a_run_goes_on_from_a_link(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, STEPS);
  const char *moved = scratch_path(scratch, "moved"), *first = scratch_path(scratch, "out/step-00000004");
  train(scratch, plan, "out", 4, NULL);
  assert_int_equal(rename(first, moved), 0);
  assert_int_equal(symlink(moved, first), 0);
  train(scratch, plan, "out", 6, "auto");
  assert_int_equal(access(scratch_path(scratch, "out/step-00000006/checkpoint.json"), F_OK), 0);
}

static void signals_save(void **state) {
  Scratch *scratch = *state;
  const uint64_t steps = 1000;
  const Plan *plan = plan_for(scratch->arena, 2, 1, steps);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "signalled");
  train(scratch, plan, "whole", steps, NULL);
  pid_t job = start_training(scratch, plan, &options, "log");
  wait_for_bytes(options.metrics_path, 3000);
  kill(job, SIGUSR1);
  wait_for_entries(options.save_dir, 1);
  kill(job, SIGTERM);
  int code = end_training(job);
  const char *said = read_text(scratch->arena, scratch_path(scratch, "log"), NULL);
  if (code == 128 + SIGTERM) assert_said(said, "stopped by signal 15 (Terminated) after step ");
  assert_true(code == 128 + SIGTERM || code == RUN_OK); /* a machine so fast that it was done */
  assert_true(folder_entries(options.save_dir) >= 2);
  assert_clean(scratch, "signalled");
  options.resume = "auto";
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  assert_same_weights(scratch, "whole", "signalled");
}

/* Trains for some steps, then stops rank 0, so that no step ends. */
static pid_t start_stopped(Scratch *scratch, const TrainOptions *options, pid_t *rank) {
  pid_t job = start_training(scratch, plan_for(scratch->arena, 2, 1, 1 << 30), options, "log");
  wait_for_bytes(options->metrics_path, 3000);
  *rank = child_of(job, 0);
  kill(*rank, SIGSTOP);
  return job;
}

static void a_second_signal_ends_at_once(void **state) {
  Scratch *scratch = *state;
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  pid_t rank, job = start_stopped(scratch, &options, &rank);
  kill(job, SIGTERM);
  wait_until_taken(job);
  sleep(2); /* within a second two are one */
  kill(job, SIGTERM);
  assert_int_equal(end_training(job), 128 + SIGTERM);
  assert_said(read_text(scratch->arena, scratch_path(scratch, "log"), NULL), "fsdpc: error: stopped by signal 15");
  assert_clean(scratch, "out");
}

/* All processes are hung up on, by the shell and by the system; where a session ends, SIGTERM may come with it. */
static void a_closed_terminal_saves(void **state) {
  static const struct {
    int first, second, reported;
  } closings[] = {{SIGHUP, SIGHUP, SIGHUP}, {SIGTERM, SIGHUP, SIGTERM}, {SIGHUP, SIGTERM, SIGTERM}};
  Scratch *scratch = *state;
  const char *data = corpus(scratch);
  for (int i = 0; i < 3; i++) {
    TrainOptions options = options_for(scratch, &data, arena_printf(scratch->arena, "closed%d", i));
    pid_t rank, job = start_stopped(scratch, &options, &rank);
    kill(-job, closings[i].first);
    wait_until_taken(job);
    kill(-job, closings[i].second);
    wait_until_taken(job);
    kill(rank, SIGCONT);
    assert_int_equal(end_training(job), 128 + closings[i].reported);
    assert_int_equal(folder_entries(options.save_dir), 1);
    assert_said(read_text(scratch->arena, scratch_path(scratch, "log"), NULL), ", which is saved; --resume auto goes on from there");
  }
}

static void a_folder_that_was_moved_is_made_again(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, 1 << 30);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  pid_t job = start_training(scratch, plan, &options, "log");
  wait_for_bytes(options.metrics_path, 3000);
  assert_int_equal(rename(options.save_dir, scratch_path(scratch, "elsewhere")), 0);
  kill(job, SIGTERM);
  assert_int_equal(end_training(job), 128 + SIGTERM);
  assert_int_equal(folder_entries(options.save_dir), 1);
}

static void a_stuck_rank_is_named(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 3, 1, 1 << 30);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  options.timeout_s = 4; /* busy machines too get on within that */
  pid_t job = start_training(scratch, plan, &options, "log");
  wait_for_bytes(options.metrics_path, 3000);
  kill(child_of(job, 1), SIGSTOP);
  assert_int_equal(end_training(job), RUN_PEER_FAILED);
  const char *said = read_text(scratch->arena, scratch_path(scratch, "log"), NULL);
  assert_said(said, "no rank has got on for 4 s: rank 1 is stopped by a signal (SIGCONT lets it go on) in step ");
  assert_said(said, "(instruction ");
  assert_said(said, "rank 0 waits in step ");
}

/* --- what does not fit -------------------------------------------------------------------------------------------- */

static void refused(Scratch *scratch, const Plan *plan, const char *resume, const char *said) {
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "refused");
  options.resume = resume;
  options.save_dir = NULL;
  capture_stderr(scratch);
  int code = runtime_train(plan, &options);
  const char *text = captured_stderr(scratch);
  assert_said(text, said);
  assert_int_equal(code, RUN_INVALID);
  assert_no_children();
}

static void other_runs_are_refused(void **state) {
  Scratch *scratch = *state;
  BigramOptions sgd = {.shard = 2, .replicas = 1, .micro_batch = 6, .accumulation = 1, .steps = STEPS, .sgd = true};
  train(scratch, plan_for(scratch->arena, 2, 1, STEPS), "out", 4, NULL);
  const char *out = scratch_path(scratch, "out");
  Plan *plan = bigram_plan(scratch->arena, &sgd);
  refused(scratch, plan, out, "its moments are of optimizer adamw, and the recipe's is sgd");
  plan = bigram_plan(scratch->arena, &(BigramOptions){2, 1, 6, 1, STEPS, false, false, false});
  plan->recipe.seed += 1;
  refused(scratch, plan, out, "it was trained with seed ");
  plan->recipe.seed -= 1;
  plan->recipe.order = plan->recipe.order == ORDER_SHUFFLED ? ORDER_SEQUENTIAL : ORDER_SHUFFLED;
  refused(scratch, plan, out, "its samples were drawn `order ");
  plan = bigram_plan(scratch->arena, &(BigramOptions){2, 1, 6, 1, STEPS, false, false, false});
  plan->params.data[0].name = plan_intern(scratch->arena, plan, "other.weight");
  refused(scratch, plan, out, "parameter \"other.weight\" of the model is not in it");
  refused(scratch, plan, scratch_path(scratch, "nowhere"), "cannot be found: No such file or directory");
  refused(scratch, plan, "auto", "add --save DIR");
  mkdir(scratch_path(scratch, "empty"), 0700);
  refused(scratch, plan, scratch_path(scratch, "empty"), "there is no checkpoint in it");
}

static void one_run_saves_in_a_folder(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 1, 1, STEPS);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  Failure failure = {0};
  int lock = -1;
  mkdir(options.save_dir, 0700);
  assert_true(folder_lock(options.save_dir, &lock, &failure));
  capture_stderr(scratch);
  assert_int_equal(runtime_train(plan, &options), RUN_INVALID);
  assert_said(captured_stderr(scratch), "another run is saving here");
  close(lock);
}

/* Only what this program names so is a checkpoint: no other folder is looked for in vain, or keeps old ones from going. */
static void other_folders_are_no_checkpoints(void **state) {
  static const char *const others[] = {"step-9", "step-+0000099", "step- 0000098", "step-00000097 ", "step-00000096-copy"};
  Scratch *scratch = *state;
  Failure failure = {0};
  const char *newest = NULL, *out = scratch_path(scratch, "out");
  mkdir(out, 0700);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) mkdir(arena_printf(scratch->arena, "%s/%s", out, others[i]), 0700);
  assert_true(folder_latest(scratch->arena, out, UINT64_MAX, &newest, &failure));
  assert_null(newest);
  mkdir(arena_printf(scratch->arena, "%s/step-00000007", out), 0700);
  mkdir(arena_printf(scratch->arena, "%s/step-123456789", out), 0700); /* more digits than the least */
  assert_true(folder_latest(scratch->arena, out, UINT64_MAX, &newest, &failure));
  assert_said(newest, "/step-123456789");
}

static void runs_are_not_mixed(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, STEPS);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  options.save_every = 6;
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  capture_stderr(scratch);
  assert_int_equal(runtime_train(plan, &options), RUN_INVALID);
  assert_said(captured_stderr(scratch), "step-00000024 is of an earlier run; go on from it with --resume auto");
  /* Back to an older one: the newer ones no longer count, but stay. */
  options.resume = scratch_path(scratch, "out/step-00000012");
  options.steps = 14;
  options.save_every = 0;
  capture_stderr(scratch);
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  assert_said(captured_stderr(scratch), "is now called superseded-step-00000018");
  Failure failure = {0};
  const char *newest;
  assert_true(folder_latest(scratch->arena, options.save_dir, UINT64_MAX, &newest, &failure));
  assert_string_equal(newest, scratch_path(scratch, "out/step-00000014"));
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

static bool sink_write(Backend *backend, int32_t buf, uint64_t first, const void *data, uint64_t bytes) {
  (void)backend, (void)buf, (void)first, (void)data, (void)bytes;
  return true;
}

/* Loads as each of 3 ranks would; false with the reason when any is refused. */
static bool loads(const Plan *plan, const char *path, Failure *failure) {
  Arena *arena = arena_new();
  Checkpoint checkpoint;
  Backend sink = {.write = sink_write};
  bool ok = checkpoint_open(arena, &checkpoint, plan, path, true, failure);
  for (uint32_t rank = 0; ok && rank < plan->world.shard; rank++)
    ok = checkpoint_load(&checkpoint, plan, unit_ranges(arena, plan, rank), &sink, STATE_V, failure);
  checkpoint_close(&checkpoint);
  arena_free(arena);
  return ok;
}

/* Refused, named, and known as damage, so that an older one may do. */
static void expect_refusal(const Plan *plan, const char *path, const char *file, const char *what, size_t at) {
  Failure failure = {0};
  if (loads(plan, path, &failure)) fail_msg("%s of %s at byte %zu was not noticed", what, file, at);
  if (strncmp(failure.text, "checkpoint: ", 12) != 0 || strstr(failure.text, file) == NULL || !failure.damaged ||
      strstr(failure.text, "damaged: use an older one") == NULL)
    fail_msg("%s of %s at byte %zu: %s", what, file, at, failure.text);
}

static void every_damage_is_noticed(void **state) {
  static const char *const names[] = {"checkpoint.json", "rank-00001-of-00002.safetensors",
                                      "rank-00002-of-00002.safetensors"};
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 3, 1, STEPS);
  train(scratch, plan_for(scratch->arena, 2, 1, STEPS), "out", 2, NULL);
  const char *path = scratch_path(scratch, "out/step-00000002");
  Failure failure = {0};
  assert_true(loads(plan, path, &failure));
  for (int i = 0; i < 3; i++) {
    const char *file = arena_printf(scratch->arena, "out/step-00000002/%s", names[i]);
    size_t bytes;
    char *whole = read_text(scratch->arena, scratch_path(scratch, file), &bytes);
    for (size_t cut = 0; cut < bytes; cut += bytes / 20 + 1) {
      scratch_file(scratch, file, whole, cut);
      expect_refusal(plan, path, names[i], "a cut", cut);
    }
    for (size_t k = 0; k < 300; k++) { /* every byte of the beginning, then here and there */
      size_t at = k < 150 ? k * (bytes < 1500 ? bytes : 1500) / 150 : (k * 7919 + 13) % bytes;
      whole[at] ^= (char)(1 << k % 8);
      scratch_file(scratch, file, whole, bytes);
      expect_refusal(plan, path, names[i], "a flipped bit", at);
      whole[at] ^= (char)(1 << k % 8);
    }
    remove(scratch_path(scratch, file));
    expect_refusal(plan, path, names[i], "a missing file", 0);
    scratch_file(scratch, file, whole, bytes);
  }
  failure = (Failure){0};
  assert_true(loads(plan, path, &failure));
}

/* One file of a checkpoint, spoilt: cut at a place, or a bit flipped there (from the end where it is negative). */
typedef struct Damage {
  const char *file;
  long at;
  bool cut;
} Damage;

static void spoil(Scratch *scratch, const char *dir, uint64_t step, const Damage *damage) {
  const char *name =
      arena_printf(scratch->arena, "%s/step-%08llu/%s", dir, (unsigned long long)step, damage->file);
  size_t bytes;
  char *whole = read_text(scratch->arena, scratch_path(scratch, name), &bytes);
  size_t at = damage->at < 0 ? bytes - (size_t)-damage->at : (size_t)damage->at;
  whole[at] ^= 16;
  scratch_file(scratch, name, whole, damage->cut ? at : bytes);
}

static void an_older_checkpoint_takes_a_damaged_ones_place(void **state) {
  static const Damage damages[] = {{"checkpoint.json", 200, false},
                                   {"checkpoint.json", 0, true},
                                   {"rank-00001-of-00002.safetensors", 40, false},
                                   {"rank-00002-of-00002.safetensors", -1, true},
                                   {"rank-00001-of-00002.safetensors", -1, false}, /* values: only ranks notice */
                                   {"rank-00002-of-00002.safetensors", -1, false}};
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, STEPS);
  train(scratch, plan, "whole", STEPS, NULL);
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
    const char *dir = arena_printf(scratch->arena, "out%zu", i), *data = corpus(scratch);
    TrainOptions options = options_for(scratch, &data, dir);
    options.steps = 12;
    options.save_every = 4;
    assert_int_equal(runtime_train(plan, &options), RUN_OK);
    spoil(scratch, dir, 12, &damages[i]);
    spoil(scratch, dir, 8, &damages[(i + 3) % (sizeof damages / sizeof *damages)]);
    options.steps = STEPS;
    options.resume = options.save_dir; /* named, it is not replaced by another */
    capture_stderr(scratch);
    assert_int_equal(runtime_train(plan, &options), RUN_INVALID);
    assert_said(captured_stderr(scratch), arena_printf(scratch->arena, "step-00000012/%s: ", damages[i].file));
    options.resume = "auto";
    capture_stderr(scratch);
    int code = runtime_train(plan, &options);
    const char *said = captured_stderr(scratch);
    assert_said(said, arena_printf(scratch->arena, "step-00000012/%s: ", damages[i].file));
    assert_said(said, "step-00000008/");
    assert_int_equal(code, RUN_OK);
    assert_no_children();
    assert_same_weights(scratch, "whole", dir);
    assert_same_steps(scratch, "whole", dir, STEPS);
    assert_clean(scratch, dir);
  }
}

/* Pipes are not waited for, and a file of any size costs no memory. */
static void something_else_in_a_checkpoints_place_is_damage(void **state) {
  static const char *const names[] = {"checkpoint.json", "rank-00001-of-00002.safetensors"};
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, STEPS);
  const char *data = corpus(scratch), *dir = scratch_path(scratch, "out");
  TrainOptions options = options_for(scratch, &data, "out");
  train(scratch, plan, "out", 4, NULL);
  for (int i = 0; i < 2; i++)
    for (int what = 0; what < 4; what++) {
      const char *file = arena_printf(scratch->arena, "%s/step-00000004/%s", dir, names[i]), *kept = scratch_path(scratch, "kept");
      Failure failure = {0};
      assert_int_equal(rename(file, kept), 0);
      assert_int_equal(what == 0   ? mkdir(file, 0777)
                       : what == 1 ? mkfifo(file, 0666)
                       : what == 2 ? symlink(file, file) /* leads to itself */
                                   : truncate(scratch_file(scratch, arena_printf(scratch->arena, "out/step-00000004/%s", names[i]), "", 0), 1L << 34),
                       0);
      assert_false(loads(plan, arena_printf(scratch->arena, "%s/step-00000004", dir), &failure));
      assert_said(failure.text, names[i]);
      assert_true(failure.damaged);
      assert_int_equal(remove(file), 0);
      assert_int_equal(rename(kept, file), 0);
    }
  scratch_file(scratch, "out/step-00000008", "", 0);
  options.resume = "auto";
  capture_stderr(scratch);
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  assert_said(captured_stderr(scratch), "step-00000008/checkpoint.json: it is missing; the checkpoint is damaged");
}

/* It is whole, so --resume auto does not pass it over. */
static void a_later_versions_checkpoint_is_refused(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, STEPS);
  const char *index = "out/step-00000004/checkpoint.json";
  Failure failure = {0};
  char digits[9];
  size_t bytes;
  train(scratch, plan, "out", 4, NULL);
  json_t *root = json_loads(read_text(scratch->arena, scratch_path(scratch, index), &bytes), 0, NULL);
  json_object_del(root, "crc32c");
  json_object_set_new(root, "schema_version", json_integer(CHECKPOINT_SCHEMA + 1));
  json_object_set_new(root, "version", json_string("99.1"));
  char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
  snprintf(digits, sizeof digits, "%08x", crc32c(0, text, strlen(text)));
  free(text);
  json_object_set_new(root, "crc32c", json_string(digits));
  text = json_dumps(root, 0);
  scratch_file(scratch, index, text, strlen(text));
  free(text);
  json_decref(root);
  assert_false(loads(plan, scratch_path(scratch, "out/step-00000004"), &failure));
  assert_said(failure.text, "step-00000004: fsdpc 99.1 wrote it");
  assert_said(failure.text, "go on with the one that wrote it");
  assert_false(failure.damaged);
}

static void without_a_whole_checkpoint_it_says_so(void **state) {
  static const Damage index = {"checkpoint.json", 200, false}, values = {"rank-00001-of-00002.safetensors", -1, false};
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, STEPS);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  options.steps = 8;
  options.save_every = 4;
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  spoil(scratch, "out", 8, &values);
  spoil(scratch, "out", 4, &index);
  options.resume = "auto";
  options.steps = STEPS;
  capture_stderr(scratch);
  assert_int_equal(runtime_train(plan, &options), RUN_INVALID);
  assert_said(captured_stderr(scratch), "none of its checkpoints is whole and can be read");
  assert_no_children();
}

/* A rank that dies before the first checkpoint is saved: the restart goes on from what --resume named. */
static void a_restart_without_checkpoints_begins_as_told(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 2, 1, STEPS);
  const char *data = corpus(scratch);
  train(scratch, plan, "whole", STEPS, NULL);
  train(scratch, plan, "first", 5, NULL);
  TrainOptions options = options_for(scratch, &data, "out");
  options.resume = scratch_path(scratch, "first");
  options.restarted = true;
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  assert_same_weights(scratch, "whole", "out");
  options.steps = STEPS + 1; /* and now there is one, which comes first */
  capture_stderr(scratch);
  options.quiet = false;
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  assert_said(captured_stderr(scratch), "out/step-00000024, after step 24");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_checksum_is_crc32c),
      SCRATCH_TEST(resuming_changes_no_bit),
      SCRATCH_TEST(other_worlds_go_on),
      SCRATCH_TEST(only_the_newest_are_kept),
      SCRATCH_TEST(what_was_moved_away_is_kept),
      SCRATCH_TEST(a_run_goes_on_from_a_link),
      SCRATCH_TEST(signals_save),
      SCRATCH_TEST(a_second_signal_ends_at_once),
      SCRATCH_TEST(a_closed_terminal_saves),
      SCRATCH_TEST(a_folder_that_was_moved_is_made_again),
      SCRATCH_TEST(a_stuck_rank_is_named),
      SCRATCH_TEST(other_runs_are_refused),
      SCRATCH_TEST(runs_are_not_mixed),
      SCRATCH_TEST(one_run_saves_in_a_folder),
      SCRATCH_TEST(other_folders_are_no_checkpoints),
      SCRATCH_TEST(every_damage_is_noticed),
      SCRATCH_TEST(an_older_checkpoint_takes_a_damaged_ones_place),
      SCRATCH_TEST(something_else_in_a_checkpoints_place_is_damage),
      SCRATCH_TEST(a_later_versions_checkpoint_is_refused),
      SCRATCH_TEST(without_a_whole_checkpoint_it_says_so),
      SCRATCH_TEST(a_restart_without_checkpoints_begins_as_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
