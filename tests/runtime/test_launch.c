/* Owns: tests of starting, watching and stopping ranks. */
#include "testing.h"

#include "runtime/launch/launch.h"
#include "runtime/runtime.h"
#include "runtime/launch/shared.h"
#include "runtime/launch/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARENA_BYTES = 10000, BEGIN_MS = 1000000 };

typedef struct Case {
  uint32_t victim;
  int number;      /* signal it dies of, or exit code */
  int pipe_end;    /* held open by every rank */
} Case;

static void describe(void *user, int32_t instr, char *out, size_t bytes) {
  (void)user;
  snprintf(out, bytes, "instruction %d", (int)instr);
}

static LaunchJob job_of(uint32_t ranks, int (*rank_main)(void *, const RankEnv *), void *user) {
  return (LaunchJob){.ranks = ranks, .arena_bytes = ARENA_BYTES, .rank_main = rank_main, .describe = describe, .user = user};
}

/* Waits for something that never comes, as a rank does whose peer died in a collective. */
static int wait_for_stop(const RankEnv *env) {
  Counter never = {0};
  counter_wait(&never, 1, SPIN_SHORT, &env->control->stop);
  return RUN_PEER_FAILED;
}

static int write_to_peers(void *user, const RankEnv *env) {
  (void)user;
  for (uint64_t i = 0; i < ARENA_BYTES; i++)
    if (env->arenas[env->rank][i] != 0) return 9;
  env->arenas[env->rank][0] = 1;
  counter_set(&env->lanes[env->rank].arrived, 1);
  for (uint32_t i = 0; i < env->ranks; i++) counter_wait(&env->lanes[i].arrived, 1, SPIN_SHORT, NULL);
  env->arenas[(env->rank + 1) % env->ranks][ARENA_BYTES - 1] = (unsigned char)(10 + env->rank);
  counter_set(&env->lanes[env->rank].departed, 1);
  for (uint32_t i = 0; i < env->ranks; i++) counter_wait(&env->lanes[i].departed, 1, SPIN_SHORT, NULL);
  return env->arenas[env->rank][ARENA_BYTES - 1] == 10 + (env->rank + env->ranks - 1) % env->ranks ? 0 : 8;
}

static void ranks_share_their_arenas(void **state) {
  (void)state;
  for (uint32_t ranks = 1; ranks <= 4; ranks++) {
    LaunchJob job = job_of(ranks, write_to_peers, NULL);
    assert_int_equal(launch_run(&job), RUN_OK);
    assert_no_children();
  }
}

static int die(void *user, const RankEnv *env) {
  const Case *c = user;
  atomic_store(&env->status->step, 7);
  atomic_store(&env->status->instr, 42 + 1);
  if (env->rank != c->victim) return wait_for_stop(env);
  usleep(20000);
  if (c->number < 0) _exit(-c->number);
  signal(c->number, SIG_DFL); /* cmocka has handlers of its own */
  kill(getpid(), c->number);
  pause();
  return 0;
}

static const char *run_case(Scratch *scratch, int (*rank_main)(void *, const RankEnv *), Case *c, int code) {
  double begin = clock_seconds();
  LaunchJob job = job_of(3, rank_main, c);
  capture_stderr(scratch);
  int got = launch_run(&job);
  const char *text = captured_stderr(scratch);
  assert_int_equal(got, code);
  assert_soon(begin);
  assert_no_children();
  assert_string_equal(strchr(text, '\n'), "\n"); /* one message */
  return text;
}

static void a_dead_rank_is_named(void **state) {
  Scratch *scratch = *state;
  static const struct {
    Case c;
    const char *said[3];
  } cases[] = {
      {{1, SIGKILL, 0}, {"fsdpc: error: rank 1 was killed by signal 9", "in step 7 at instruction 42", "memory"}},
      {{0, SIGSEGV, 0}, {"fsdpc: error: rank 0 was killed by signal 11", "in step 7", "(Segmentation fault)"}},
      {{2, SIGTERM, 0}, {"fsdpc: error: rank 2 was killed by signal 15", "in step 7", "(Terminated)"}},
      {{2, -9, 0}, {"fsdpc: error: rank 2 ended with exit code 9", "in step 7", "instruction 42"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Case c = cases[i].c;
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const char *text = run_case(scratch, die, &c, RUN_PEER_FAILED);
    for (int k = 0; k < 3; k++) assert_said(text, cases[i].said[k]);
  }
}

static int fall_silent(void *user, const RankEnv *env) {
  const Case *c = user;
  if (env->rank == c->victim) kill(getpid(), SIGKILL);
  for (;;) pause(); /* never looks at the stop flag: must be killed */
  return 0;
}

static void deaf_ranks_are_killed(void **state) {
  Case c = {.victim = 2};
  assert_said(run_case(*state, fall_silent, &c, RUN_PEER_FAILED), "rank 2 was killed by signal 9 (Killed) before the first step");
}

static int complain(void *user, const RankEnv *env) {
  const Case *c = user;
  Failure failure = {0};
  if (env->rank != c->victim) return wait_for_stop(env);
  fail(&failure, RUN_INVALID, "rank %u: the disk is full", env->rank);
  control_fail(env->control, env->rank, &failure);
  return failure.code;
}

static void failures_are_said_once(void **state) {
  Case c = {.victim = 2};
  assert_string_equal(run_case(*state, complain, &c, RUN_INVALID), "fsdpc: error: rank 2: the disk is full\n");
}

static int complain_all(void *user, const RankEnv *env) {
  Failure failure = {0};
  (void)user;
  fail(&failure, RUN_INVALID, "all of us");
  control_fail(env->control, env->rank, &failure);
  return failure.code;
}

static void simultaneous_failures_are_one(void **state) {
  Case c = {0};
  for (int i = 0; i < 20; i++) assert_string_equal(run_case(*state, complain_all, &c, RUN_INVALID), "fsdpc: error: all of us\n");
}

static int die_amid_a_line(void *user, const RankEnv *env) {
  atomic_store(&env->control->line_open, 1);
  return die(user, env);
}

static void what_is_said_begins_a_line(void **state) {
  Scratch *scratch = *state;
  Case c = {0, SIGKILL, 0};
  LaunchJob job = job_of(1, die_amid_a_line, &c);
  capture_stderr(scratch);
  int code = launch_run(&job);
  const char *text = captured_stderr(scratch);
  assert_int_equal(code, RUN_PEER_FAILED);
  assert_int_equal(strncmp(text, "\nfsdpc: error: rank 0 was killed", 32), 0);
}

static int overrun(void *user, const RankEnv *env) {
  const Case *c = user;
  if (env->rank != c->victim) return wait_for_stop(env);
  volatile unsigned char *end = env->arenas[env->rank] + (ARENA_BYTES + 4095) / 4096 * 4096;
  signal(SIGSEGV, SIG_DFL);
  *end = 1;
  return 0;
}

static void a_guard_page_follows_every_arena(void **state) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const char *said = "rank"; /* the sanitizer turns the signal into its own report and exit code */
#else
  const char *said = "killed by signal 11";
#endif
  for (uint32_t victim = 0; victim < 3; victim++) {
    Case c = {.victim = victim};
    assert_said(run_case(*state, overrun, &c, RUN_PEER_FAILED), said);
  }
}

/* Two ranks of which this process has started the first, and what is said of them. */
typedef struct Watched {
  Arena *arena;
  Scratch *scratch;
  LaunchJob job;
  Watch watch;
  pid_t pids[2];
  uint32_t polls[2];
} Watched;

static void begin_watch(Watched *watched, Scratch *scratch, uint32_t timeout_s) {
  Failure failure = {0};
  *watched = (Watched){.arena = arena_new(), .scratch = scratch, .job = job_of(2, write_to_peers, NULL)};
  watched->job.timeout_s = timeout_s;
  watched->watch = (Watch){.job = &watched->job, .pids = watched->pids, .polls = watched->polls, .end_own = 1};
  assert_true(shared_open(watched->arena, &watched->watch.memory, 2, ARENA_BYTES, &failure));
  watch_progress(&watched->watch, BEGIN_MS); /* sets the mark, and the time of the look */
}

/* A look after_ms after the one before, when nothing has moved for silent_s. Returns what it said. */
static const char *look(Watched *watched, uint64_t silent_s, uint64_t after_ms) {
  uint64_t now_ms = watched->watch.mark_ms + silent_s * 1000;
  watched->watch.looked_ms = now_ms - after_ms;
  capture_stderr(watched->scratch);
  watch_progress(&watched->watch, now_ms);
  return captured_stderr(watched->scratch);
}

static void hold(Watched *watched, uint32_t how) { atomic_store(&watched->watch.memory.statuses[1].held, how); }

static void get_on(Watched *watched) {
  atomic_fetch_add(&watched->watch.memory.statuses[1].beats, 1);
}

/* Whether the job was given up. */
static bool end_watch(Watched *watched) {
  bool stopped = atomic_load(&watched->watch.memory.control->stop) != 0;
  shared_close(&watched->watch.memory);
  arena_free(watched->arena);
  return stopped;
}

/* A whole job is stopped and goes on later, as by Slurm or Ctrl-Z. */
static void suspended_jobs_have_their_patience_anew(void **state) {
  static const struct {
    uint64_t after_ms;
    bool ends;
  } cases[] = {{10000, false}, {3000, false}, {200, true}};
  for (int i = 0; i < 3; i++) {
    Watched watched;
    begin_watch(&watched, *state, 9);
    assert_string_equal(look(&watched, 10, cases[i].after_ms), "");
    assert_int_equal(end_watch(&watched), cases[i].ends);
  }
}

static void who_does_not_get_on_is_noted_and_noted_again(void **state) {
  Watched watched;
  begin_watch(&watched, *state, 600);
  counter_set(&watched.watch.memory.lanes[0].arrived, 1);
  get_on(&watched);
  assert_string_equal(look(&watched, 0, 200), "");
  assert_string_equal(look(&watched, 19, 200), "");
  assert_string_equal(look(&watched, 20, 200),
                      "note: no rank has got on for 20 s: rank 1 is still before the first step; rank 0 waits before the first step; "
                      "the run ends after 600 s (--timeout)\n");
  assert_string_equal(look(&watched, 39, 200), "");
  assert_said(look(&watched, 41, 200), "note: no rank has got on for 41 s: rank 1");
  get_on(&watched);
  assert_string_equal(look(&watched, 50, 200), "note: the ranks get on again, after 50 s\n");
  assert_string_equal(look(&watched, 99, 200), ""); /* it has taken 50 s before */
  assert_said(look(&watched, 100, 200), "note: no rank has got on for 100 s");
  assert_false(end_watch(&watched));
}

static void a_stopped_rank_is_noted_sooner(void **state) {
  Watched watched;
  begin_watch(&watched, *state, 0);
  hold(&watched, HELD_BY_SIGNAL);
  assert_string_equal(look(&watched, 4, 200), "");
  assert_string_equal(look(&watched, 5, 200),
                      "note: no rank has got on for 5 s: rank 1 is stopped by a signal (SIGCONT lets it go on) before the first step; "
                      "rank 0 waits before the first step\n");
  assert_said(look(&watched, 5000000, 200), "note: ");
  assert_false(end_watch(&watched)); /* never, as was asked for */
}

static void a_rank_in_a_debugger_may_take_its_time(void **state) {
  Watched watched;
  begin_watch(&watched, *state, 9);
  hold(&watched, HELD_BY_DEBUGGER);
  assert_string_equal(look(&watched, 5000, 200), "");
  assert_false(end_watch(&watched));
}

/* A child that stops at once, as by a signal, or as a debugger has it, which we then are. -1: that is not allowed here. */
static pid_t stopped_child(bool traced) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    if (traced && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(1);
    raise(SIGSTOP);
    for (;;) pause();
  }
  assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
  return WIFSTOPPED(status) ? pid : -1;
}

static void a_rank_in_a_debugger_is_seen(void **state) {
  Watched watched;
  int status;
  begin_watch(&watched, *state, 600);
  pid_t pid = stopped_child(true);
  if (pid > 0) {
    watched.pids[0] = pid;
    look(&watched, 0, 200);
    assert_int_equal(atomic_load(&watched.watch.memory.statuses[0].held), HELD_BY_DEBUGGER);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
  }
  assert_false(end_watch(&watched));
}

/* As /proc has it, of a process that is really stopped. */
static void a_stopped_rank_is_seen(void **state) {
  Watched watched;
  int status;
  begin_watch(&watched, *state, 600);
  pid_t pid = stopped_child(false);
  watched.pids[0] = pid;
  look(&watched, 0, 200);
  assert_int_equal(atomic_load(&watched.watch.memory.statuses[0].held), HELD_BY_SIGNAL);
  kill(pid, SIGCONT);
  assert_int_equal(waitpid(pid, &status, WCONTINUED), pid);
  look(&watched, 0, 200);
  assert_int_equal(atomic_load(&watched.watch.memory.statuses[0].held), HELD_NOT);
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_false(end_watch(&watched));
}

static void memory_that_is_not_there_is_said(void **state) {
  Scratch *scratch = *state;
  LaunchJob job = job_of(2, write_to_peers, NULL);
  job.arena_bytes = (uint64_t)1 << 49;
  capture_stderr(scratch);
  int code = launch_run(&job);
  assert_said(captured_stderr(scratch), "do not fit into this machine's");
  assert_int_equal(code, RUN_INVALID);
}

/* --- signals to the parent: the parent is then a child of the test ------------------------------------------------- */

static int hold_pipe(void *user, const RankEnv *env) {
  (void)env;
  char ready = 'r';
  if (write(((Case *)user)->pipe_end, &ready, 1) != 1) return 1;
  for (;;) pause();
  return 0;
}

/* Starts a job of 3 ranks in a process of its own and returns when they run. *end reads end-of-file when all are gone. */
static pid_t start_job(Scratch *scratch, int *end) {
  int ends[2];
  char ready;
  assert_int_equal(pipe(ends), 0);
  pid_t pid = fork();
  if (pid == 0) {
    Case c = {.pipe_end = ends[1]};
    LaunchJob job = job_of(3, hold_pipe, &c);
    close(ends[0]);
    int log = open(scratch_path(scratch, "stderr"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(log, STDERR_FILENO);
    _exit(launch_run(&job));
  }
  close(ends[1]);
  for (int i = 0; i < 3; i++) assert_int_equal(read(ends[0], &ready, 1), 1);
  *end = ends[0];
  return pid;
}

static void assert_all_gone(int end) {
  struct pollfd poll_end = {.fd = end, .events = POLLIN};
  char byte;
  assert_int_equal(poll(&poll_end, 1, SOON_S * 1000), 1);
  assert_int_equal(read(end, &byte, 1), 0);
  close(end);
}

static void signals_stop_the_job(void **state) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  for (int i = 0; i < 3; i++) {
    int end, status;
    pid_t pid = start_job(*state, &end);
    kill(pid, numbers[i]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + numbers[i]);
    assert_all_gone(end);
    assert_said(read_text(((Scratch *)*state)->arena, scratch_path(*state, "stderr"), NULL), "stopped by signal");
  }
}

static void ranks_die_with_a_killed_parent(void **state) {
  int end, status;
  pid_t pid = start_job(*state, &end);
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_all_gone(end);
}

static void signal_state_is_restored(void **state) {
  (void)state;
  sigset_t before = {0}, after = {0}; /* sigprocmask writes only a part */
  sigprocmask(SIG_SETMASK, NULL, &before);
  LaunchJob job = job_of(2, write_to_peers, NULL);
  assert_int_equal(launch_run(&job), RUN_OK);
  sigprocmask(SIG_SETMASK, NULL, &after);
  assert_memory_equal(&before, &after, sizeof before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_share_their_arenas), SCRATCH_TEST(a_dead_rank_is_named),
      SCRATCH_TEST(deaf_ranks_are_killed),        SCRATCH_TEST(failures_are_said_once),
      SCRATCH_TEST(simultaneous_failures_are_one), SCRATCH_TEST(a_guard_page_follows_every_arena),
      SCRATCH_TEST(suspended_jobs_have_their_patience_anew), SCRATCH_TEST(who_does_not_get_on_is_noted_and_noted_again),
      SCRATCH_TEST(what_is_said_begins_a_line),
      SCRATCH_TEST(a_stopped_rank_is_noted_sooner), SCRATCH_TEST(a_rank_in_a_debugger_may_take_its_time),
      SCRATCH_TEST(a_stopped_rank_is_seen), SCRATCH_TEST(a_rank_in_a_debugger_is_seen),
      SCRATCH_TEST(memory_that_is_not_there_is_said), SCRATCH_TEST(signals_stop_the_job),
      SCRATCH_TEST(ranks_die_with_a_killed_parent), cmocka_unit_test(signal_state_is_restored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
