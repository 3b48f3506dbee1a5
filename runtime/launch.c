/* Owns: forking, watching and stopping ranks. No signal handlers: the parent blocks the signals it cares about and
 * waits for them. */
#include "runtime/launch.h"

#include "runtime/runtime.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  GRACE_MS = 300, /* for ranks to end by themselves after stop was set; then they are killed */
  SETTLE_MS = 100 /* a rank killed by Ctrl-C may be seen before our own signal is */
};

typedef struct Watch {
  const LaunchJob *job;
  SharedMemory memory;
  pid_t *pids; /* 0: not started, or reaped */
  uint32_t alive;
  sigset_t signals, old_mask;
  struct sigaction old_child;
  int signal;      /* that asked us to stop, or 0 */
  bool died;       /* a rank ended other than well */
  uint32_t first;  /* which */
  int first_status;
} Watch;

static uint64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* --- in the child ------------------------------------------------------------------------------------------------- */

static _Noreturn void be_rank(const Watch *watch, uint32_t rank, pid_t parent) {
  char name[24]; /* the kernel keeps 15 characters */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(RUN_PEER_FAILED); /* it died before we asked to be told */
  snprintf(name, sizeof name, "fsdpc-rank%u", rank);
  prctl(PR_SET_NAME, name);
  /* A full file system, a file-size limit or a closed pipe are errors of write, not ends of the world. */
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  sigaction(SIGCHLD, &watch->old_child, NULL);
  sigprocmask(SIG_SETMASK, &watch->old_mask, NULL);
  const SharedMemory *memory = &watch->memory;
  RankEnv env = {.rank = rank,
                 .ranks = watch->job->ranks,
                 .arenas = memory->arenas,
                 .lanes = memory->lanes,
                 .status = &memory->statuses[rank],
                 .control = memory->control};
  int code = watch->job->rank_main(watch->job->user, &env);
  fflush(NULL);
  _exit(code); /* not exit: the parent's atexit handlers are not ours to run */
}

/* --- in the parent ------------------------------------------------------------------------------------------------- */

static bool start_ranks(Watch *watch, Failure *failure) {
  pid_t parent = getpid();
  fflush(NULL); /* or every child would print what is buffered once more */
  for (uint32_t rank = 0; rank < watch->job->ranks; rank++) {
    pid_t pid = fork();
    if (pid == 0) be_rank(watch, rank, parent);
    if (pid < 0)
      return fail(failure, RUN_INVALID, "rank %u cannot be started: %s; use fewer ranks", rank, strerror(errno));
    watch->pids[rank] = pid;
    watch->alive++;
  }
  return true;
}

static bool clean(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

static void note_end(Watch *watch, uint32_t rank, int status) {
  watch->pids[rank] = 0;
  watch->alive--;
  if (clean(status) || watch->died) return;
  /* Ranks that stop because another failed also end badly; whoever set `stop` has already said why. */
  if (atomic_load(&watch->memory.control->stop) != 0 && WIFEXITED(status) && WEXITSTATUS(status) == RUN_PEER_FAILED)
    return;
  watch->died = true;
  watch->first = rank;
  watch->first_status = status;
}

/* wait: false only looks. */
static void reap(Watch *watch, bool wait) {
  for (uint32_t rank = 0; rank < watch->job->ranks; rank++) {
    int status = 0;
    if (watch->pids[rank] == 0) continue;
    pid_t pid;
    do
      pid = waitpid(watch->pids[rank], &status, wait ? 0 : WNOHANG);
    while (pid < 0 && errno == EINTR);
    if (pid != 0) note_end(watch, rank, pid < 0 ? RUN_PEER_FAILED << 8 : status);
  }
}

/* Sleeps until a child ends or a signal comes, at most timeout_ms (negative: for ever). */
static void sleep_for_signal(Watch *watch, int64_t timeout_ms) {
  struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000};
  int number = timeout_ms < 0 ? sigwaitinfo(&watch->signals, NULL) : sigtimedwait(&watch->signals, NULL, &timeout);
  if (number > 0 && number != SIGCHLD && watch->signal == 0) watch->signal = number;
}

static bool stopping(const Watch *watch) {
  return watch->signal != 0 || watch->died || atomic_load(&watch->memory.control->stop) != 0;
}

static void kill_ranks(const Watch *watch) {
  for (uint32_t rank = 0; rank < watch->job->ranks; rank++)
    if (watch->pids[rank] != 0) kill(watch->pids[rank], SIGKILL);
}

static void stop_ranks(Watch *watch) {
  atomic_store(&watch->memory.control->stop, 1);
  uint64_t deadline = now_ms() + GRACE_MS;
  for (uint64_t now; watch->alive > 0 && (now = now_ms()) < deadline;) {
    reap(watch, false);
    if (watch->alive > 0) sleep_for_signal(watch, (int64_t)(deadline - now));
  }
  kill_ranks(watch);
  reap(watch, true);
}

static void settle(Watch *watch) {
  int killer = watch->died && WIFSIGNALED(watch->first_status) ? WTERMSIG(watch->first_status) : 0;
  if (watch->signal != 0 || (killer != SIGINT && killer != SIGTERM && killer != SIGHUP && killer != SIGQUIT)) return;
  uint64_t deadline = now_ms() + SETTLE_MS;
  for (uint64_t now; watch->signal == 0 && (now = now_ms()) < deadline;)
    sleep_for_signal(watch, (int64_t)(deadline - now));
}

static void watch_ranks(Watch *watch) {
  for (;;) {
    reap(watch, false);
    if (watch->alive == 0 || stopping(watch)) break;
    sleep_for_signal(watch, -1);
  }
  settle(watch);
  stop_ranks(watch);
}

static void describe_place(const Watch *watch, uint32_t rank, char *out, size_t bytes) {
  const RankStatus *status = &watch->memory.statuses[rank];
  uint64_t step = atomic_load(&status->step);
  int32_t instr = atomic_load(&status->instr) - 1;
  char what[256] = "";
  if (step == 0) {
    snprintf(out, bytes, "before the first step");
    return;
  }
  if (instr >= 0 && watch->job->describe != NULL) watch->job->describe(watch->job->user, instr, what, sizeof what);
  snprintf(out, bytes, "in step %llu%s%s", (unsigned long long)step, what[0] != '\0' ? " at " : "", what);
}

static int report_death(const Watch *watch) {
  char place[320];
  int status = watch->first_status;
  describe_place(watch, watch->first, place, sizeof place);
  if (WIFSIGNALED(status)) {
    int number = WTERMSIG(status);
    const char *hint = number == SIGKILL  ? "; was it killed by hand, or by the system for want of memory?"
                       : number == SIGBUS ? "; is a data file being changed, or memory exhausted?"
                                          : "";
    fprintf(stderr, "error: rank %u was killed by signal %d (%s) %s%s\n", watch->first, number, strsignal(number),
            place, hint);
  } else {
    fprintf(stderr, "error: rank %u ended with exit code %d %s\n", watch->first, WEXITSTATUS(status), place);
  }
  return RUN_PEER_FAILED;
}

static int report(const Watch *watch) {
  const Control *control = watch->memory.control;
  if (watch->signal != 0) {
    fprintf(stderr, "error: stopped by signal %d (%s)\n", watch->signal, strsignal(watch->signal));
    return LAUNCH_INTERRUPTED + watch->signal;
  }
  if (atomic_load(&control->failed) == CONTROL_SAID) {
    fprintf(stderr, "error: %s\n", control->failure.text);
    return control->failure.code;
  }
  return watch->died ? report_death(watch) : RUN_OK;
}

static void block_signals(Watch *watch) {
  static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  sigemptyset(&watch->signals);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    struct sigaction now;
    sigaction(numbers[i], NULL, &now);
    if (numbers[i] != SIGCHLD && now.sa_handler == SIG_IGN) continue; /* nohup, or a background job: stays ignored */
    sigaddset(&watch->signals, numbers[i]);
  }
  sigprocmask(SIG_BLOCK, &watch->signals, &watch->old_mask);
  sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, &watch->old_child); /* ignored, none could be reaped */
}

static void restore_signals(const Watch *watch) {
  const struct timespec none = {0};
  while (sigtimedwait(&watch->signals, NULL, &none) > 0) {
    /* what came while we were stopping has been answered */
  }
  sigaction(SIGCHLD, &watch->old_child, NULL);
  sigprocmask(SIG_SETMASK, &watch->old_mask, NULL);
}

int launch_run(const LaunchJob *job) {
  Arena *arena = arena_new();
  Watch watch = {.job = job};
  Failure failure = {0};
  watch.pids = ARENA_ARRAY(arena, pid_t, job->ranks);
  int code;
  if (!shared_open(arena, &watch.memory, job->ranks, job->arena_bytes, &failure)) {
    fprintf(stderr, "error: %s\n", failure.text);
    code = failure.code;
  } else {
    block_signals(&watch);
    if (!start_ranks(&watch, &failure)) control_fail(watch.memory.control, 0, &failure);
    watch_ranks(&watch);
    restore_signals(&watch);
    code = report(&watch);
    if (watch.memory.control->save_temp[0] != '\0') unlink(watch.memory.control->save_temp);
    shared_close(&watch.memory);
  }
  arena_free(arena);
  return code;
}
