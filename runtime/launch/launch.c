/* Owns: forking, watching and stopping ranks. The parent has no signal handlers: it blocks the signals it cares about and
 * waits for them. */
#include "runtime/launch/launch.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/remedy.h"
#include "base/text.h"
#include "runtime/runtime.h"
#include "runtime/launch/pass_on.h"
#include "runtime/launch/watch.h"

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
  LOOK_MS = 200,  /* between two looks at how the ranks get on */
  SETTLE_MS = 100, /* a rank killed by Ctrl-C may be seen before our own signal is */
  AGAIN_MS = 1000, /* a signal may come twice: `timeout` sends one to its command and one to the whole group */
  CAUSE_MS = 500   /* and a launcher's signal, which ends what is left of a broken job, before who broke it */
};

/* --- in the child ------------------------------------------------------------------------------------------------- */

static _Noreturn void be_rank(const Watch *watch, uint32_t rank, pid_t parent) {
  char name[24]; /* the kernel keeps 15 characters */
  if (!child_ends_with(parent)) _exit(RUN_PEER_FAILED);
  snprintf(name, sizeof name, "fsdpc-rank%u", rank);
  prctl(PR_SET_NAME, name);
  /* A full file system, a file-size limit or a closed pipe are errors of write, not ends of the world. */
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGBUS, SIG_DFL); /* the parent names the rank and its place */
  if (watch->job->saves) { /* sent to the whole group, they are the parent's to answer */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
  }
  sigaction(SIGCHLD, &watch->old_child, NULL);
  sigprocmask(SIG_SETMASK, &watch->old_mask, NULL);
  if (watch->job->saves) signal_pass_on(SIGUSR1); /* sent to the whole group, it comes several times, which may save twice */
  const SharedMemory *memory = &watch->memory;
  RankEnv env = {.rank = rank,
                 .ranks = watch->job->ranks,
                 .local_ranks = watch->job->join != NULL ? watch->job->join->local_ranks : watch->job->ranks,
                 .arenas = memory->arenas,
                 .lanes = memory->lanes,
                 .status = &memory->statuses[rank],
                 .statuses = memory->statuses,
                 .control = memory->control};
  int code = watch->job->rank_main(watch->job->user, &env);
  fflush(NULL);
  _exit(code); /* not exit: the parent's atexit handlers are not ours to run */
}

/* --- in the parent ------------------------------------------------------------------------------------------------ */

static bool start_ranks(Watch *watch, Failure *failure) {
  pid_t parent = getpid();
  fflush(NULL); /* or every child would print what is buffered once more */
  for (uint32_t rank = watch->first_own; rank < watch->end_own; rank++) {
    pid_t pid = fork();
    if (pid == 0) be_rank(watch, rank, parent);
    if (pid < 0)
      return fail(failure, RUN_INVALID, "rank %u cannot be started: %s%s", rank, strerror(errno), remedy_of(errno));
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

/* A terminal that closes hangs up more than once: through its shell, and through the system when that ends. It may come beside a
 * SIGTERM, too, as at the end of a session. So only a second SIGTERM is in a hurry, some time after the first. */
static bool asks_to_save(const Watch *watch, int number) {
  if (number == SIGHUP || (number == SIGTERM && watch->asked != SIGTERM)) return watch->job->saves;
  return number == SIGTERM && clock_ms() - watch->asked_ms < AGAIN_MS;
}

static void take_signal(Watch *watch, int number) {
  Control *control = watch->memory.control;
  if (number == SIGUSR1) {
    if (watch->job->saves) atomic_fetch_or(&control->request, REQUEST_SAVE);
  } else if (asks_to_save(watch, number)) {
    if (watch->asked != SIGTERM) {
      watch->asked = number;
      watch->asked_ms = clock_ms();
    }
    atomic_fetch_or(&control->request, REQUEST_SAVE | REQUEST_STOP);
  } else if (number != SIGCHLD && watch->signal == 0) {
    watch->signal = number;
  }
}

/* Nobody would end what a launcher that was killed no longer can: it would train on for ever and keep its folders from the next. */
static void heed_starter(Watch *watch) {
  const Join *join = watch->job->join;
  if (join == NULL || join->starter == 0 || watch->orphaned || getppid() == join->starter) return;
  watch->orphaned = true;
  if (atomic_exchange(&watch->memory.control->orphaned, 1) == 0) { /* whoever notices it first: the others may have ended before they do */
    control_end_line(watch->memory.control);
    fprintf(stderr, "note: what started this run is gone (was mpirun killed?); the run ends, as after a hangup\n");
  }
  take_signal(watch, SIGHUP);
}

/* Sleeps until a child ends or a signal comes, at most timeout_ms. */
static void sleep_for_signal(Watch *watch, int64_t timeout_ms) {
  struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000};
  int number = sigtimedwait(&watch->signals, NULL, &timeout);
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
  watch_hosts(watch); /* they learn it before their launcher acts on it */
  uint64_t deadline = clock_ms() + GRACE_MS;
  for (uint64_t now; watch->alive > 0 && (now = clock_ms()) < deadline;) {
    reap(watch, false);
    if (watch->alive > 0) sleep_for_signal(watch, (int64_t)(deadline - now));
  }
  kill_ranks(watch);
  reap(watch, true);
}

static bool ends_by_keyboard(int number) {
  return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}

/* What is seen first need not be the cause. */
static void settle(Watch *watch) {
  bool killed = watch->died && WIFSIGNALED(watch->first_status) && ends_by_keyboard(WTERMSIG(watch->first_status));
  bool joined = watch->job->join != NULL;
  uint64_t deadline = clock_ms() + (joined ? CAUSE_MS : SETTLE_MS);
  if (watch->peer_failed || (!killed && (watch->signal == 0 || !joined))) return;
  for (uint64_t now; (now = clock_ms()) < deadline && !watch->peer_failed && (joined || watch->signal == 0);) {
    sleep_for_signal(watch, joined ? BRIDGE_TICK_MS : (int64_t)(deadline - now));
    watch_hosts(watch);
    watch->peer_failed = joined && atomic_load(&watch->memory.control->stop) != 0;
  }
}

/* Who speaks for this host to others stays until all its ranks have ended. */
static bool all_ended(const Watch *watch) {
  const Join *join = watch->job->join;
  for (uint32_t i = 0; watch->bridge != NULL && i < join->local_ranks; i++)
    if (atomic_load(&watch->memory.statuses[join->locals[i]].finished) == 0) return false;
  return watch->alive == 0;
}

static void watch_ranks(Watch *watch) {
  int64_t look_ms = watch->bridge != NULL ? BRIDGE_TICK_MS : LOOK_MS;
  for (;;) {
    reap(watch, false);
    watch_hosts(watch);
    watch_progress(watch, clock_ms());
    watch_peers(watch);
    heed_starter(watch);
    if (all_ended(watch) || stopping(watch)) break;
    sleep_for_signal(watch, look_ms);
  }
  watch->peer_failed = watch->signal == 0 && !watch->died && watch->job->join != NULL && stopping(watch);
  settle(watch);
  if (watch->alive > 0 || watch->died) stop_ranks(watch); /* else ranks elsewhere may still be busy, and well */
}

/* torchrun shows the earliest of its workers' error files as the root cause. */
static void tell_torchrun(const char *text) {
  const char *path = getenv("TORCHELASTIC_ERROR_FILE");
  Arena *arena = arena_new();
  json_t *root = path == NULL || *path == '\0'
                     ? NULL
                     : json_pack("{s{ss s{ss so}}}", "message", "message", text_utf8(arena, text), "extraInfo", "py_callstack", "",
                                 "timestamp", json_sprintf("%lld", (long long)time(NULL)));
  if (root != NULL) json_dump_file(root, path, JSON_COMPACT);
  json_decref(root);
  arena_free(arena);
}

static void say_failure(const Watch *watch, const char *text) {
  control_end_line(watch->memory.control);
  failure_say(text);
  tell_torchrun(text);
}

static int report_death(const Watch *watch) {
  char place[320], text[600];
  int status = watch->first_status;
  watch_place(watch, watch->first, place, sizeof place);
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
  say_failure(watch, text);
  return RUN_PEER_FAILED;
}

static int report_asked(const Watch *watch) {
  if (watch->first_own != 0) return LAUNCH_INTERRUPTED + watch->asked; /* rank 0's process says it */
  control_end_line(watch->memory.control);
  fprintf(stderr, "stopped by signal %d (%s) after step %llu, which is saved; --resume auto goes on from there\n",
          watch->asked, strsignal(watch->asked), (unsigned long long)atomic_load(&watch->memory.control->saved_step));
  return LAUNCH_INTERRUPTED + watch->asked;
}

/* At once: an interrupt, or a second SIGTERM. What that costs is said to who could have saved. */
static int report_stopped(const Watch *watch) {
  char text[160], saved[40] = "nothing is saved";
  unsigned long long step = atomic_load(&watch->memory.control->saved_step);
  bool loses = watch->job->saves;
  if (step > 0) snprintf(saved, sizeof saved, "step %llu is saved", step);
  snprintf(text, sizeof text, "stopped by signal %d (%s)%s%s%s", watch->signal, strsignal(watch->signal), loses ? "; " : "", loses ? saved : "",
           loses && watch->asked == 0 ? ", SIGTERM saves before it stops" : "");
  control_end_line(watch->memory.control);
  failure_say(text);
  return LAUNCH_INTERRUPTED + watch->signal;
}

static bool own_finished(const Watch *watch) {
  return atomic_load(&watch->memory.statuses[watch->first_own].finished) != 0;
}

static int report(const Watch *watch) {
  const Control *control = watch->memory.control;
  if (watch->signal != 0 && !watch->peer_failed) return report_stopped(watch);
  if (atomic_load(&control->failed) == CONTROL_SAID) {
    if (watch->first_own <= control->failed_rank && control->failed_rank < watch->end_own)
      say_failure(watch, control->failure.text);
    return control->failure.code;
  }
  if (watch->peer_failed && !own_finished(watch)) return RUN_PEER_FAILED; /* whose process says it */
  if (watch->died) return report_death(watch);
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

static bool open_bridge(Arena *arena, Watch *watch, Failure *failure) {
  const Join *join = watch->job->join;
  if (join == NULL || !join_spans_hosts(join) || !join_leads(join)) return true;
  watch->bridge = bridge_open(arena, join, &watch->memory, failure);
  return watch->bridge != NULL;
}

int launch_run(const LaunchJob *job) {
  Arena *arena = arena_new();
  Watch watch = {.job = job, .end_own = job->ranks};
  Failure failure = {0};
  watch.pids = ARENA_ARRAY(arena, pid_t, job->ranks);
  watch.polls = ARENA_ARRAY(arena, uint32_t, job->ranks);
  int code;
  if (job->join != NULL) {
    watch.first_own = job->join->rank;
    watch.end_own = watch.first_own + 1;
  }
  if (!shared_open_joined(arena, &watch.memory, job->ranks, job->arena_bytes, job->join, &failure)) {
    failure_say(failure.text);
    code = failure.code;
  } else {
    block_signals(&watch);
    if (!open_bridge(arena, &watch, &failure) || !start_ranks(&watch, &failure)) control_fail(watch.memory.control, watch.first_own, &failure);
    watch_ranks(&watch);
    bridge_close(watch.bridge);
    restore_signals(&watch);
    code = report(&watch);
    if (watch.first_own == 0 && watch.memory.control->save_temp[0] != '\0') unlink(watch.memory.control->save_temp);
    shared_close(&watch.memory);
  }
  arena_free(arena);
  return code;
}
