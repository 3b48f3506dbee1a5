/* Owns: the fault table of files. Every call that writes to disk fails once, the n-th over all ranks for n = 1, 2, ...
 * until none is left: the run ends with one message and exit code 1, leaves whole checkpoints only, and goes on from
 * the newest to the bits of an undisturbed run. The linker wraps the calls; their count lies in shared memory. */
#include "training.h"

#include "runtime/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Fault {
  _Atomic long calls; /* so far, in all processes */
  long fails;         /* the number of the call that fails; 0: none */
} Fault;

/* Wrappers have no argument to carry it. */
static Fault *fault;

static bool strikes(void) {
  if (fault == NULL || atomic_fetch_add(&fault->calls, 1) + 1 != fault->fails) return false;
  errno = ENOSPC;
  return true;
}

#define WRAP(result, name, parameters, arguments)                                                                      \
  result __real_##name parameters;                                                                                     \
  result __wrap_##name parameters;                                                                                     \
  result __wrap_##name parameters {                                                                                    \
    return strikes() ? (result)-1 : __real_##name arguments;                                                           \
  }

WRAP(ssize_t, pwrite, (int fd, const void *data, size_t bytes, off_t offset), (fd, data, bytes, offset))
WRAP(ssize_t, write, (int fd, const void *data, size_t bytes), (fd, data, bytes))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))

WRAP(ssize_t, pread, (int fd, void *data, size_t bytes, off_t offset), (fd, data, bytes, offset))

enum { STEPS = 6, RANKS = 2, MOST_FAULTS = 400 };

static void check_one(Scratch *scratch, const Plan *plan, TrainOptions *options, long n, const char *dir) {
  Failure failure = {0};
  const char *newest;
  assert_clean(scratch, dir);
  assert_true(folder_latest(scratch->arena, options->save_dir, &newest, &failure));
  Checkpoint checkpoint;
  if (newest != NULL && !checkpoint_open(scratch->arena, &checkpoint, plan, newest, true, &failure))
    fail_msg("after fault %ld: %s", n, failure.text);
  if (newest != NULL) checkpoint_close(&checkpoint);
  options->resume = "auto";
  assert_int_equal(runtime_train(plan, options), RUN_OK);
  assert_same_weights(scratch, "whole", dir);
}

/* False when the run has fewer calls than n. */
static bool fault_at(Scratch *scratch, const Plan *plan, const char *const *data, long n) {
  const char *dir = arena_printf(scratch->arena, "fault%ld", n);
  TrainOptions options = options_for(scratch, data, dir);
  options.save_every = 2;
  options.keep = 1;
  atomic_store(&fault->calls, 0);
  fault->fails = n;
  capture_stderr(scratch);
  int code = runtime_train(plan, &options);
  const char *said = captured_stderr(scratch);
  bool struck = atomic_load(&fault->calls) >= n;
  fault->fails = 0;
  assert_no_children();
  if (code == RUN_OK && (!struck || said[0] == '\0')) {
    assert_same_weights(scratch, "whole", dir); /* a fault in what may fail, such as removing an old checkpoint */
    return struck;
  }
  if (code != RUN_INVALID || strstr(said, "No space left on device") == NULL || strchr(said, '\n')[1] != '\0')
    fail_msg("fault %ld: exit code %d, and it says: %s", n, code, said);
  check_one(scratch, plan, &options, n, dir);
  return true;
}

/* --- reading: every open and every read fails once; the reason is said ----------------------------------------------
 */

static bool sink_write(Backend *backend, int32_t buf, uint64_t first, const void *data, uint64_t bytes) {
  (void)backend, (void)buf, (void)first, (void)data, (void)bytes;
  return true;
}

static bool loads(const Plan *plan, const char *path, Failure *failure) {
  Arena *arena = arena_new();
  Checkpoint checkpoint;
  Backend sink = {.write = sink_write};
  bool ok = checkpoint_open(arena, &checkpoint, plan, path, true, failure);
  for (uint32_t rank = 0; ok && rank < RANKS; rank++)
    ok = checkpoint_load(&checkpoint, plan, unit_ranges(arena, plan, rank), &sink, failure);
  checkpoint_close(&checkpoint);
  arena_free(arena);
  return ok;
}

static void every_read_may_fail(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, RANKS, 1, STEPS);
  const char *data = corpus(scratch), *path = scratch_path(scratch, "whole/step-00000006");
  TrainOptions options = options_for(scratch, &data, "whole");
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  Fault here = {0};
  fault = &here;
  long n = 1;
  for (bool ok = false; !ok; n++) {
    Failure failure = {0};
    atomic_store(&here.calls, 0);
    here.fails = n;
    ok = loads(plan, path, &failure);
    if (!ok && (strstr(failure.text, "No space left on device") == NULL || strstr(failure.text, scratch->dir) == NULL))
      fail_msg("fault %ld: it says: %s", n, failure.text);
    assert_true(ok == (atomic_load(&here.calls) < n));
  }
  fault = NULL;
  assert_true(n > 20);
}

static void every_write_may_fail(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, RANKS, 1, STEPS);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "whole");
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  fault = mmap(NULL, sizeof *fault, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(fault != MAP_FAILED);
  long n = 1;
  while (n < MOST_FAULTS && fault_at(scratch, plan, &data, n)) n++;
  assert_true(n > 20 && n < MOST_FAULTS);
  munmap(fault, sizeof *fault);
  fault = NULL;
}

int main(void) {
  const struct CMUnitTest tests[] = {SCRATCH_TEST(every_write_may_fail), SCRATCH_TEST(every_read_may_fail)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
