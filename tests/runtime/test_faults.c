/* Owns: the fault table of files. Every call that opens, reads, writes or renames fails once, the n-th over
 * all ranks for n = 1, 2, ... until none is left: the run ends with one message, which names the file, and
 * exit code 1, leaves whole checkpoints only, and goes on from the newest to the bits of an undisturbed run.
 * With --resume auto a checkpoint that cannot be read gives way to the one before. What is only done in
 * part, as by signals, is no fault at all. The linker wraps the calls; their count lies in shared memory. */
#include "training.h"

#include "runtime/files/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum { CALLS_WRITE, CALLS_READ } CallKind;

/* What befalls a call: an error, or, where it is 0, half of what was asked for. */
typedef struct FaultKind {
  CallKind calls; /* which count */
  int error;
  const char *said;
} FaultKind;

typedef struct Fault {
  _Atomic long calls; /* so far, in all processes */
  long fails;         /* the number of the call that fails; 0: none */
  bool lasts;         /* from there on, calls that move bytes all fail, and no other does */
  FaultKind kind;
  _Atomic long placed, lost; /* files and folders that got their name; of these what was not yet on disk when the next did */
  _Atomic uint64_t unsynced; /* the folder that the last of them lies in, until it is on disk */
} Fault;

/* Wrappers have no argument to carry it. */
static Fault *fault;

static bool strikes(CallKind call, bool divisible) {
  if (fault == NULL || fault->kind.calls != call || (fault->kind.error == 0 && !divisible)) return false;
  long call_number = atomic_fetch_add(&fault->calls, 1) + 1;
  if (fault->lasts ? !divisible || call_number < fault->fails : call_number != fault->fails) return false;
  errno = fault->kind.error;
  return true;
}

#define WRAP(call, result, name, parameters, arguments)                                                      \
  result __real_##name parameters;                                                                           \
  result __wrap_##name parameters;                                                                           \
  result __wrap_##name parameters {                                                                          \
    return strikes(call, false) ? (result)-1 : __real_##name arguments;                                      \
  }
/* Of `bytes` that are to be moved, half are. */
#define WRAP_BYTES(call, name, parameters, arguments, arguments_half)                                        \
  ssize_t __real_##name parameters;                                                                          \
  ssize_t __wrap_##name parameters;                                                                          \
  ssize_t __wrap_##name parameters {                                                                         \
    if (!strikes(call, true)) return __real_##name arguments;                                                \
    return fault->kind.error != 0 ? -1 : __real_##name arguments_half;                                       \
  }

WRAP_BYTES(CALLS_WRITE, pwrite, (int fd, const void *data, size_t bytes, off_t at), (fd, data, bytes, at),
           (fd, data, (bytes + 1) / 2, at))
WRAP_BYTES(CALLS_WRITE, write, (int fd, const void *data, size_t bytes), (fd, data, bytes),
           (fd, data, (bytes + 1) / 2))
WRAP_BYTES(CALLS_READ, pread, (int fd, void *data, size_t bytes, off_t at), (fd, data, bytes, at),
           (fd, data, (bytes + 1) / 2, at))
WRAP(CALLS_WRITE, int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes))
WRAP(CALLS_WRITE, int, mkdir, (const char *path, mode_t mode), (path, mode))

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
  struct stat file;
  int result = strikes(CALLS_WRITE, false) ? -1 : __real_fsync(fd);
  if (result == 0 && fault != NULL && fstat(fd, &file) == 0 && file.st_ino == atomic_load(&fault->unsynced)) atomic_store(&fault->unsynced, 0);
  return result;
}

/* Checkpoints and weights: what begins with a point is nobody's yet, or nobody's any more. */
static void note_placed(const char *path) {
  const char *name = strrchr(path, '/');
  char folder[PATH_MAX];
  struct stat info;
  if (fault == NULL || name == NULL || (strncmp(name, "/step-", 6) != 0 && strncmp(name, "/model", 6) != 0)) return;
  snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
  assert_int_equal(stat(folder, &info), 0);
  atomic_fetch_add(&fault->placed, 1);
  if (atomic_exchange(&fault->unsynced, info.st_ino) != 0) atomic_fetch_add(&fault->lost, 1);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to) {
  int result = strikes(CALLS_WRITE, false) ? -1 : __real_rename(from, to);
  if (result == 0) note_placed(to);
  return result;
}

int __real_linkat(int a, const char *from, int b, const char *to, int flags);
int __wrap_linkat(int a, const char *from, int b, const char *to, int flags);
int __wrap_linkat(int a, const char *from, int b, const char *to, int flags) {
  int result = strikes(CALLS_WRITE, false) ? -1 : __real_linkat(a, from, b, to, flags);
  if (result == 0) note_placed(to);
  return result;
}

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path) {
  return strikes(CALLS_READ, false) ? NULL : __real_opendir(path);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  mode_t mode = creates ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return strikes(creates ? CALLS_WRITE : CALLS_READ, false) ? -1 : __real_open(path, flags, mode);
}

static const FaultKind full = {CALLS_WRITE, ENOSPC, "No space left on device; free some space there"};
static const FaultKind broken = {CALLS_WRITE, EIO, "Input/output error; the disk or its file system is in"};
static const FaultKind short_write = {CALLS_WRITE, 0, NULL};
static const FaultKind unreadable = {CALLS_READ, EIO,
                                     "Input/output error; the disk or its file system is in"};
static const FaultKind exhausted = {CALLS_READ, EMFILE, "Too many open files; raise the limit of open files"};
static const FaultKind short_read = {CALLS_READ, 0, NULL};

enum { STEPS = 4, RANKS = 2, MOST_FAULTS = 400 };

typedef struct Table {
  Scratch *scratch;
  const Plan *plan;
  const char *data;
} Table;

static void open_table(Table *table, Scratch *scratch) {
  *table =
      (Table){.scratch = scratch, .plan = plan_for(scratch->arena, RANKS, 1, STEPS), .data = corpus(scratch)};
  fault = mmap(NULL, sizeof *fault, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(fault != MAP_FAILED);
  TrainOptions options = options_for(scratch, &table->data, "whole");
  options.save_every = 2;
  assert_int_equal(runtime_train(table->plan, &options), RUN_OK);
}

static void close_table(void) {
  munmap(fault, sizeof *fault);
  fault = NULL;
}

/* What is there is whole, and the run goes on from it. */
static void go_on(const Table *table, TrainOptions *options, const char *what, const char *dir) {
  Failure failure = {0};
  const char *newest;
  Scratch *scratch = table->scratch;
  assert_clean(scratch, dir);
  assert_true(folder_latest(scratch->arena, options->save_dir, UINT64_MAX, &newest, &failure));
  Checkpoint checkpoint;
  if (newest != NULL && !checkpoint_open(scratch->arena, &checkpoint, table->plan, newest, true, &failure))
    fail_msg("after %s: %s", what, failure.text);
  if (newest != NULL) checkpoint_close(&checkpoint);
  options->resume = "auto";
  assert_int_equal(runtime_train(table->plan, options), RUN_OK);
  assert_same_weights(scratch, "whole", dir);
}

/* A run whose n-th call is struck; false when it has fewer. */
static bool fault_at(const Table *table, TrainOptions *options, const FaultKind *kind, long n,
                     const char *dir) {
  Scratch *scratch = table->scratch;
  const char *what =
      arena_printf(scratch->arena, "%s at call %ld", kind->error != 0 ? strerror(kind->error) : "half", n);
  capture_stderr(scratch);
  *fault = (Fault){.fails = n, .kind = *kind};
  int code = runtime_train(table->plan, options);
  bool struck = atomic_load(&fault->calls) >= n;
  *fault = (Fault){0};
  const char *said = captured_stderr(scratch);
  assert_no_children();
  assert_no_shared_memory();
  if (code == RUN_OK && (!struck || strstr(said, "error: ") == NULL)) {
    assert_same_weights(scratch, "whole", dir); /* in what may fail, such as removing an old checkpoint */
    return struck;
  }
  bool file =
      strstr(said, scratch->dir) != NULL || strstr(said, ": /tmp: ") != NULL; /* what the folder is made in */
  bool named = file && kind->said != NULL && strstr(said, kind->said) != NULL;
  const char *error = strstr(said, "error: "); /* the one message, after notes if any */
  bool later = strstr(said, "/.step-00000004.tmp") != NULL; /* than one that was saved before */
  if (later && strstr(said, "; the checkpoint of step 2 is whole") == NULL) fail_msg("%s: what stays is not said: %s", what, said);
  if (code != RUN_INVALID || !named || error == NULL || strchr(error, '\n')[1] != '\0')
    fail_msg("%s: exit code %d, and it says: %s", what, code, said);
  go_on(table, options, what, dir);
  return true;
}

/* stride: only every so many calls fail. */
static long saving_with(const Table *table, const FaultKind *kind, long stride) {
  long n = 1;
  for (bool struck = true; struck && n < MOST_FAULTS; n += stride) {
    TrainOptions options = options_for(table->scratch, &table->data, "out");
    options.save_every = 2;
    options.keep = 1;
    options.metrics_path = NULL; /* what reports write is theirs */
    struck = fault_at(table, &options, kind, n, "out");
    scratch_remove(table->scratch, "out");
  }
  assert_true(n < MOST_FAULTS);
  return n;
}

/* Back to an older checkpoint in the same folder, which sets the newer one aside. */
static long going_back_with(const Table *table, const FaultKind *kind) {
  long n = 1;
  for (bool struck = true; struck && n < MOST_FAULTS; n++) {
    TrainOptions options = options_for(table->scratch, &table->data, "out");
    options.save_every = 2;
    options.metrics_path = NULL;
    assert_int_equal(runtime_train(table->plan, &options), RUN_OK);
    const char *back = options.resume = scratch_path(table->scratch, "out/step-00000002");
    struck = fault_at(table, &options, kind, n, "out");
    bool went = options.resume == back; /* and had not to go on */
    if (went && access(scratch_path(table->scratch, "out/superseded-step-00000004"), F_OK) != 0)
      fail_msg("call %ld, which failed, leaves a newer checkpoint of what was gone back from", n);
    scratch_remove(table->scratch, "out");
  }
  assert_true(n < MOST_FAULTS);
  return n;
}

static void every_write_may_fail(void **state) {
  Table table;
  open_table(&table, *state);
  assert_true(saving_with(&table, &full, 1) > 30);
  assert_true(saving_with(&table, &broken, 5) > 30); /* another errno: other words at the same places */
  assert_true(saving_with(&table, &short_write, 1) > 15);
  assert_true(going_back_with(&table, &full) > 15);
  close_table();
}

/* What got its name keeps it when the power goes. */
static void names_are_written_to_disk(void **state) {
  Table table;
  open_table(&table, *state);
  for (uint64_t steps = 2; steps <= 4; steps += 2) { /* the second time over weights that are there */
    TrainOptions options = options_for(table.scratch, &table.data, "out");
    options.save_every = steps == 4 ? 0 : 2;
    options.steps = steps;
    options.resume = "auto";
    *fault = (Fault){0};
    assert_int_equal(runtime_train(table.plan, &options), RUN_OK);
    assert_true(atomic_load(&fault->placed) >= 1);
    if (atomic_load(&fault->lost) + (atomic_load(&fault->unsynced) != 0) > 0) fail_msg("after step %d a folder is not written to disk", (int)steps);
  }
  close_table();
}

static long loading_with(const Table *table, const FaultKind *kind) {
  long n = 1;
  Scratch *scratch = table->scratch;
  for (bool struck = true; struck && n < MOST_FAULTS; n++) {
    TrainOptions options = options_for(scratch, &table->data, "out");
    options.metrics_path = NULL;
    options.resume = scratch_path(scratch, "whole/step-00000002");
    struck = fault_at(table, &options, kind, n, "out");
    scratch_remove(scratch, "out");
  }
  assert_true(n < MOST_FAULTS);
  return n;
}

static void every_read_may_fail(void **state) {
  Table table;
  open_table(&table, *state);
  assert_true(loading_with(&table, &unreadable) > 30);
  assert_true(loading_with(&table, &short_read) > 20);
  assert_true(going_back_with(&table, &unreadable) > 30);
  close_table();
}

/* A folder with the checkpoints of steps 2 and 3, to go on from with --resume auto. */
static TrainOptions begun(const Table *table) {
  TrainOptions options = options_for(table->scratch, &table->data, "out");
  options.metrics_path = NULL;
  options.save_every = 2;
  options.steps = STEPS - 1;
  assert_int_equal(runtime_train(table->plan, &options), RUN_OK);
  options.steps = 0;
  options.resume = "auto";
  return options;
}

/* The n-th read fails, as of a bad sector. True: of a checkpoint, whose elder took its place. */
static bool fell_back_at(const Table *table, long n, bool *struck) {
  Scratch *scratch = table->scratch;
  TrainOptions options = begun(table);
  capture_stderr(scratch);
  *fault = (Fault){.fails = n, .kind = unreadable};
  int code = runtime_train(table->plan, &options);
  *struck = atomic_load(&fault->calls) >= n;
  *fault = (Fault){0};
  const char *said = captured_stderr(scratch), *warning = strstr(said, "warning: ");
  assert_no_children();
  if (code != RUN_OK) { /* of other files, and of the folder itself */
    assert_int_equal(code, RUN_INVALID);
    if (strstr(said, "/out/step-") != NULL) fail_msg("read %ld of a checkpoint stops the run: %s", n, said);
    assert_said(said, unreadable.said);
    go_on(table, &options, "a read error", "out");
  }
  assert_same_weights(scratch, "whole", "out");
  if (warning == NULL) return false;
  assert_int_equal(code, RUN_OK);
  assert_said(warning, "/out/step-00000003/");
  assert_said(warning, unreadable.said);
  return true;
}

static void an_unreadable_checkpoint_is_passed_over(void **state) {
  Table table;
  long n = 1, passed = 0;
  open_table(&table, *state);
  for (bool struck = true; struck && n < MOST_FAULTS; n++) {
    passed += fell_back_at(&table, n, &struck);
    scratch_remove(table.scratch, "out");
  }
  assert_true(n < MOST_FAULTS);
  assert_true(passed > 20); /* the index, and of each file header, checksums and tensors */
  close_table();
}

/* Files that cannot be opened for want of descriptors are not damaged: the run stops, passes over no checkpoint and takes none for absent. */
static void a_checkpoint_that_could_be_read_later_is_not_passed_over(void **state) {
  Table table;
  long n = 1, stopped = 0;
  open_table(&table, *state);
  Scratch *scratch = table.scratch;
  for (bool struck = true; struck && n < MOST_FAULTS; n++) {
    TrainOptions options = begun(&table);
    capture_stderr(scratch);
    *fault = (Fault){.fails = n, .kind = exhausted};
    int code = runtime_train(table.plan, &options);
    struck = atomic_load(&fault->calls) >= n;
    *fault = (Fault){0};
    const char *said = captured_stderr(scratch);
    if (strstr(said, "warning: ") != NULL) fail_msg("file %ld, not opened, is passed over: %s", n, said);
    if (code != RUN_OK) {
      stopped++;
      assert_int_equal(code, RUN_INVALID);
      assert_said(said, exhausted.said);
      go_on(&table, &options, "want of descriptors", "out");
    }
    assert_same_weights(scratch, "whole", "out");
    if (access(scratch_path(scratch, "out/superseded-step-00000003"), F_OK) == 0) fail_msg("file %ld, not opened, makes the run start anew", n);
    scratch_remove(scratch, "out");
  }
  assert_true(n < MOST_FAULTS);
  assert_true(stopped > 5);
  close_table();
}

/* Every read fails: the run stops and says why, and what is there stays as it was. */
static void where_none_can_be_read_the_run_stops(void **state) {
  Table table;
  open_table(&table, *state);
  TrainOptions options = begun(&table);
  capture_stderr(table.scratch);
  *fault = (Fault){.fails = 1, .lasts = true, .kind = unreadable};
  int code = runtime_train(table.plan, &options);
  *fault = (Fault){0};
  const char *said = captured_stderr(table.scratch);
  assert_int_equal(code, RUN_INVALID);
  assert_said(said, "none of its checkpoints is whole and can be read");
  assert_said(said, "/out/step-00000003/");
  assert_said(said, "/out/step-00000002/");
  assert_no_children();
  go_on(&table, &options, "read errors", "out");
  close_table();
}

int main(void) {
  const struct CMUnitTest tests[] = {SCRATCH_TEST(every_write_may_fail), SCRATCH_TEST(names_are_written_to_disk), SCRATCH_TEST(every_read_may_fail),
                                     SCRATCH_TEST(an_unreadable_checkpoint_is_passed_over),
                                     SCRATCH_TEST(a_checkpoint_that_could_be_read_later_is_not_passed_over),
                                     SCRATCH_TEST(where_none_can_be_read_the_run_stops)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
