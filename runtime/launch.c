/* Owns: forking, watching and stopping ranks. No signal handlers: the parent blocks the signals it cares about and
 * waits for them. */
#include "runtime/launch.h"

#include "runtime/runtime.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  GRACE_MS = 300, /* for ranks to end by themselves after stop was set; then they are killed */
  STALL_LOOK_MS = 200,
  SETTLE_MS = 100 /* a rank killed by Ctrl-C may be seen before our own signal is */
};

typedef struct Watch {
  const LaunchJob *job;
  SharedMemory memory;
  pid_t *pids;                 /* 0: not started, or reaped */
  uint32_t first_own, end_own; /* the ranks that are started here */
  uint32_t alive;
  sigset_t signals, old_mask;
  struct sigaction old_child;
  int signal;     /* that asked us to stop at once, or 0 */
  int asked;      /* that asked the ranks to save and stop, or 0 */
  bool died;      /* a rank ended other than well */
  uint32_t first; /* which */
  int first_status;
  uint64_t mark, mark_ms; /* the ranks' progress, and since when it is that */
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
  if (watch->job->saves) { /* sent to the whole group, they are the parent's to answer */
    signal(SIGTERM, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
  }
  sigaction(SIGCHLD, &watch->old_child, NULL);
  sigprocmask(SIG_SETMASK, &watch->old_mask, NULL);
  const SharedMemory *memory = &watch->memory;
  RankEnv env = {.rank = rank,
                 .ranks = watch->job->ranks,
                 .arenas = memory->arenas,
                 .lanes = memory->lanes,
                 .status = &memory->statuses[rank],
                 .statuses = memory->statuses,
                 .control = memory->control};
  int code = watch->job->rank_main(watch->job->user, &env);
  fflush(NULL);
  _exit(code); /* not exit: the parent's atexit handlers are not ours to run */
}

/* --- in the parent -------------------------------------------------------------------------------------------------
 */

static bool start_ranks(Watch *watch, Failure *failure) {
  pid_t parent = getpid();
  fflush(NULL); /* or every child would print what is buffered once more */
  for (uint32_t rank = watch->first_own; rank < watch->end_own; rank++) {
    pid_t pid = fork();
    if (pid == 0) be_rank(watch, rank, parent);
    if (pid < 0)
      return fail(failure, RUN_INVALID, "rank %u cannot be started: %s; use fewer ranks", rank, strerror(errno));
    watch->pids[rank] = pid;
    watch->alive++;
  }
  return true;
}

static bool clean(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void note_end(Watch *watch, uint32_t rank, int status) {
  watch->pids[rank] = 0;
  watch->alive--;
  if (clean(status)) atomic_store(&watch->memory.statuses[rank].finished, 1);
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
    do pid = waitpid(watch->pids[rank], &status, wait ? 0 : WNOHANG);
    while (pid < 0 && errno == EINTR);
    if (pid != 0) note_end(watch, rank, pid < 0 ? RUN_PEER_FAILED << 8 : status);
  }
}

static void take_signal(Watch *watch, int number) {
  Control *control = watch->memory.control;
  if (number == SIGUSR1) {
    if (watch->job->saves) atomic_fetch_or(&control->request, REQUEST_SAVE);
  } else if (number == SIGTERM && watch->job->saves && watch->asked == 0) {
    watch->asked = number;
    atomic_fetch_or(&control->request, REQUEST_SAVE | REQUEST_STOP);
  } else if (number != SIGCHLD && watch->signal == 0) {
    watch->signal = number;
  }
}

/* Sleeps until a child ends or a signal comes, at most timeout_ms (negative: for ever). */
static void sleep_for_signal(Watch *watch, int64_t timeout_ms) {
  struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000};
  int number = timeout_ms < 0 ? sigwaitinfo(&watch->signals, NULL) : sigtimedwait(&watch->signals, NULL, &timeout);
  if (number > 0) take_signal(watch, number);
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

/* --- ranks that live but do not get on ------------------------------------------------------------------------------
 */

/* Changes whenever any rank does anything. */
static uint64_t progress_mark(const Watch *watch) {
  uint64_t mark = 0;
  for (uint32_t rank = 0; rank < watch->job->ranks; rank++) {
    const RankStatus *status = &watch->memory.statuses[rank];
    const CommLane *lane = &watch->memory.lanes[rank];
    uint64_t parts[] = {atomic_load(&status->step), (uint64_t)atomic_load(&status->instr), atomic_load(&status->beats),
                        counter_get(&lane->arrived), counter_get(&lane->departed)};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) mark = (mark ^ parts[i]) * 0x100000001b3u;
  }
  return mark;
}

/* Whom the others wait for: who has met them least often. */
static uint32_t laggard(const Watch *watch) {
  const CommLane *lanes = watch->memory.lanes;
  uint32_t found = 0;
  for (uint32_t rank = 1; rank < watch->job->ranks; rank++) {
    uint32_t behind = counter_get(&lanes[found].arrived) - counter_get(&lanes[rank].arrived);
    uint32_t same = counter_get(&lanes[found].departed) - counter_get(&lanes[rank].departed);
    if ((behind != 0 && behind < 0x80000000u) || (behind == 0 && same != 0 && same < 0x80000000u)) found = rank;
  }
  return found;
}

static void describe_place(const Watch *watch, uint32_t rank, char *out, size_t bytes);

static void fail_stalled(Watch *watch) {
  char place[320], others[400] = "";
  Failure failure = {0};
  uint32_t rank = laggard(watch), other = rank == 0 ? 1 : 0;
  describe_place(watch, rank, place, sizeof place);
  if (watch->job->ranks > 1) {
    char where[320];
    describe_place(watch, other, where, sizeof where);
    snprintf(others, sizeof others, "; rank %u waits %s", other, where);
  }
  fail(&failure, RUN_PEER_FAILED, "no rank has got on for %u s: rank %u is stuck %s%s", watch->job->timeout_s, rank,
       place, others);
  control_fail(watch->memory.control, watch->first_own, &failure);
}

static void look_for_stall(Watch *watch) {
  uint64_t mark = progress_mark(watch), now = now_ms();
  if (watch->job->timeout_s == 0 || watch->first_own != 0) return;
  if (mark != watch->mark || watch->mark_ms == 0) {
    watch->mark = mark;
    watch->mark_ms = now;
  } else if (now - watch->mark_ms > (uint64_t)watch->job->timeout_s * 1000) {
    fail_stalled(watch);
  }
}

/* Another process of the job ended though its rank had not. */
static void look_for_peers(Watch *watch) {
  Failure failure = {0};
  int32_t gone = watch->job->join != NULL ? join_gone(watch->job->join) : -1;
  if (gone < 0 || atomic_load(&watch->memory.statuses[gone].finished) != 0) return;
  fail(&failure, RUN_PEER_FAILED, "the process of rank %d is gone", (int)gone);
  control_fail(watch->memory.control, watch->first_own, &failure);
}

static void watch_ranks(Watch *watch) {
  bool looks = watch->job->timeout_s != 0 || watch->job->join != NULL;
  for (;;) {
    reap(watch, false);
    look_for_stall(watch);
    look_for_peers(watch);
    if (watch->alive == 0 || stopping(watch)) break;
    sleep_for_signal(watch, looks ? STALL_LOOK_MS : -1);
  }
  settle(watch);
  if (watch->alive > 0 || watch->died) stop_ranks(watch); /* else ranks elsewhere may still be busy, and well */
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

/* torchrun shows the earliest of its workers' error files as the root cause. */
static void tell_torchrun(const char *text) {
  const char *path = getenv("TORCHELASTIC_ERROR_FILE");
  json_t *root = path == NULL || *path == '\0'
                     ? NULL
                     : json_pack("{s{ss s{ss so}}}", "message", "message", text, "extraInfo", "py_callstack", "",
                                 "timestamp", json_sprintf("%lld", (long long)time(NULL)));
  if (root != NULL) json_dump_file(root, path, JSON_COMPACT);
  json_decref(root);
}

static void say_failure(const char *text) {
  fprintf(stderr, "error: %s\n", text);
  tell_torchrun(text);
}

static int report_death(const Watch *watch) {
  char place[320], text[600];
  int status = watch->first_status;
  describe_place(watch, watch->first, place, sizeof place);
  if (WIFSIGNALED(status)) {
    int number = WTERMSIG(status);
    const char *hint = number == SIGKILL  ? "; was it killed by hand, or by the system for want of memory?"
                       : number == SIGBUS ? "; is a data file being changed, or memory exhausted?"
                                          : "";
    snprintf(text, sizeof text, "rank %u was killed by signal %d (%s) %s%s", watch->first, number, strsignal(number),
             place, hint);
  } else {
    snprintf(text, sizeof text, "rank %u ended with exit code %d %s", watch->first, WEXITSTATUS(status), place);
  }
  say_failure(text);
  return RUN_PEER_FAILED;
}

static int report_asked(const Watch *watch) {
  if (watch->first_own != 0) return LAUNCH_INTERRUPTED + watch->asked; /* rank 0's process says it */
  fprintf(stderr, "stopped by signal %d (%s) after step %llu, which is saved; --resume auto goes on from there\n",
          watch->asked, strsignal(watch->asked), (unsigned long long)atomic_load(&watch->memory.control->saved_step));
  return LAUNCH_INTERRUPTED + watch->asked;
}

static bool own_finished(const Watch *watch) {
  return atomic_load(&watch->memory.statuses[watch->first_own].finished) != 0;
}

static int report(const Watch *watch) {
  const Control *control = watch->memory.control;
  if (watch->signal != 0) {
    fprintf(stderr, "error: stopped by signal %d (%s)\n", watch->signal, strsignal(watch->signal));
    return LAUNCH_INTERRUPTED + watch->signal;
  }
  if (atomic_load(&control->failed) == CONTROL_SAID) {
    if (watch->first_own <= control->failed_rank && control->failed_rank < watch->end_own)
      say_failure(control->failure.text);
    return control->failure.code;
  }
  if (watch->died) return report_death(watch);
  if (atomic_load(&control->stop) != 0 && watch->job->join != NULL && !own_finished(watch)) return RUN_PEER_FAILED;
  return watch->asked != 0 ? report_asked(watch) : RUN_OK;
}

static void block_signals(Watch *watch) {
  static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1};
  sigemptyset(&watch->signals);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    struct sigaction now;
    sigaction(numbers[i], NULL, &now);
    if (numbers[i] == SIGUSR1 && !watch->job->saves) continue;
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
  Watch watch = {.job = job, .end_own = job->ranks};
  int file = -1;
  Failure failure = {0};
  watch.pids = ARENA_ARRAY(arena, pid_t, job->ranks);
  int code;
  if (job->join != NULL) {
    watch.first_own = job->join->rank;
    watch.end_own = watch.first_own + 1;
    file = job->join->memory;
  }
  if (!shared_open_file(arena, &watch.memory, job->ranks, job->arena_bytes, file, &failure)) {
    fprintf(stderr, "error: %s\n", failure.text);
    code = failure.code;
  } else {
    block_signals(&watch);
    if (!start_ranks(&watch, &failure)) control_fail(watch.memory.control, watch.first_own, &failure);
    watch_ranks(&watch);
    restore_signals(&watch);
    code = report(&watch);
    if (watch.first_own == 0 && watch.memory.control->save_temp[0] != '\0') unlink(watch.memory.control->save_temp);
    shared_close(&watch.memory);
  }
  arena_free(arena);
  return code;
}
