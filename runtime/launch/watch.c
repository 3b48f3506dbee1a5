/* Owns: noticing, from outside, ranks that live but do not get on, and processes and hosts that are gone. */
#include "runtime/launch/watch.h"

#include "base/hash.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <string.h>

enum {
  NOTE_MS = 20000,     /* without progress, and twice what has been seen: the first note; the next when it is twice as long */
  NOTE_HELD_MS = 5000, /* the same, where a rank cannot run */
  STALL_MARGIN_S = 5,  /* rank 0's host is the first to say that nobody gets on */
  SUSPENDED_MS = 2000  /* between two looks, which are 200 ms apart: this process did not run, nor perhaps did the ranks */
};

void watch_place(const Watch *watch, uint32_t rank, char *out, size_t bytes) {
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

/* Changes whenever any rank does anything. */
static uint64_t progress_mark(const Watch *watch) {
  uint64_t mark = 0;
  for (uint32_t rank = 0; rank < watch->job->ranks; rank++) {
    const RankStatus *status = &watch->memory.statuses[rank];
    const CommLane *lane = &watch->memory.lanes[rank];
    uint64_t parts[] = {atomic_load(&status->step), (uint64_t)atomic_load(&status->instr), atomic_load(&status->beats),
                        counter_get(&lane->arrived), counter_get(&lane->departed)};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) mark = hash_word(mark, parts[i]);
  }
  return mark;
}

static void note_polls(Watch *watch) {
  for (uint32_t rank = 0; rank < watch->job->ranks; rank++)
    watch->polls[rank] = atomic_load(&watch->memory.lanes[rank].polls);
}

static bool polls_on(const Watch *watch, uint32_t rank) {
  return atomic_load(&watch->memory.lanes[rank].polls) != watch->polls[rank];
}

/* Whether `rank` has met the others less often than `other`, or as often without waiting for them now. */
static bool lags(const Watch *watch, uint32_t rank, uint32_t other) {
  const CommLane *lanes = watch->memory.lanes;
  int32_t arrived = (int32_t)(counter_get(&lanes[other].arrived) - counter_get(&lanes[rank].arrived));
  int32_t departed = (int32_t)(counter_get(&lanes[other].departed) - counter_get(&lanes[rank].departed));
  if (arrived != 0) return arrived > 0;
  if (departed != 0) return departed > 0;
  return !polls_on(watch, rank) && polls_on(watch, other);
}

/* The first that is held so; -1: none. */
static int64_t rank_held(const Watch *watch, uint32_t how) {
  for (uint32_t rank = 0; rank < watch->job->ranks; rank++)
    if (atomic_load(&watch->memory.statuses[rank].held) == how) return rank;
  return -1;
}

/* Whom the others wait for. */
static uint32_t laggard(const Watch *watch) {
  int64_t held = rank_held(watch, HELD_BY_SIGNAL);
  uint32_t found = 0;
  if (held >= 0) return (uint32_t)held;
  for (uint32_t rank = 1; rank < watch->job->ranks; rank++)
    if (lags(watch, rank, found)) found = rank;
  return found;
}

/* "rank 1 is stuck in step 7 at ...; rank 0 waits in step 7 at ..." */
static void describe_stall(const Watch *watch, const char *how, char *out, size_t bytes) {
  char place[320], others[400] = "";
  uint32_t rank = laggard(watch), other = rank == 0 ? 1 : 0;
  bool held = atomic_load(&watch->memory.statuses[rank].held) == HELD_BY_SIGNAL;
  watch_place(watch, rank, place, sizeof place);
  if (watch->job->ranks > 1) {
    char where[320];
    watch_place(watch, other, where, sizeof where);
    snprintf(others, sizeof others, "; rank %u waits %s", other, where);
  }
  snprintf(out, bytes, "rank %u is %s %s%s", rank, held ? "stopped by a signal (SIGCONT lets it go on)" : how, place, others);
}

static void fail_stalled(Watch *watch) {
  char stall[800];
  Failure failure = {0};
  describe_stall(watch, "stuck", stall, sizeof stall);
  fail(&failure, RUN_PEER_FAILED, "no rank has got on for %u s: %s", watch->job->timeout_s, stall);
  control_fail(watch->memory.control, watch->first_own, &failure);
}

static void note_stalled(Watch *watch, uint64_t silent_ms) {
  char stall[800], end[64] = "";
  describe_stall(watch, "still", stall, sizeof stall);
  if (watch->job->timeout_s != 0) snprintf(end, sizeof end, "; the run ends after %u s (--timeout)", watch->job->timeout_s);
  control_end_line(watch->memory.control);
  fprintf(stderr, "note: no rank has got on for %llu s: %s%s\n", (unsigned long long)silent_ms / 1000, stall, end);
  watch->noted_ms = silent_ms;
}

/* What became of a rank that another host has, when that host falls silent, nobody here can know. */
static void fail_unheard(Watch *watch, uint32_t rank, uint64_t silent_s) {
  Failure failure = {0};
  char there[320], here[320];
  watch_place(watch, rank, there, sizeof there);
  watch_place(watch, watch->first_own, here, sizeof here);
  fail(&failure, RUN_PEER_FAILED, "nothing has been heard from the host of rank %u for %llu s; it was last %s; rank %u waits %s",
       rank, (unsigned long long)silent_s, there, watch->first_own, here);
  control_fail(watch->memory.control, watch->first_own, &failure);
}

/* As /proc has it; where that is not there, nothing is known to be held. */
static uint32_t hold_of(pid_t pid) {
  char path[32], line[128] = "";
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
  FILE *file = fopen(path, "r");
  if (file == NULL) return HELD_NOT;
  const char *name_end = fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL; /* "7 (fsdpc-rank0) T ..." */
  fclose(file);
  if (name_end == NULL || name_end[1] != ' ') return HELD_NOT;
  return name_end[2] == 'T' ? HELD_BY_SIGNAL : name_end[2] == 't' ? HELD_BY_DEBUGGER : HELD_NOT;
}

static void look_for_holds(const Watch *watch) {
  for (uint32_t rank = watch->first_own; rank < watch->end_own; rank++)
    atomic_store(&watch->memory.statuses[rank].held, watch->pids[rank] != 0 ? hold_of(watch->pids[rank]) : HELD_NOT);
}

static void begin_anew(Watch *watch, uint64_t mark, uint64_t now_ms) {
  watch->mark = mark;
  watch->mark_ms = now_ms;
  watch->noted_ms = 0;
}

static void note_progress(const Watch *watch, uint64_t silent_ms) {
  if (watch->noted_ms == 0) return;
  control_end_line(watch->memory.control);
  fprintf(stderr, "note: the ranks get on again, after %llu s\n", (unsigned long long)silent_ms / 1000);
}

/* Twice as long as the last time, or, the first time, longer than can be usual here. */
static bool note_due(const Watch *watch, uint64_t silent_ms) {
  if (watch->first_own != 0) return false; /* rank 0's process says it */
  if (watch->noted_ms != 0) return silent_ms >= 2 * watch->noted_ms;
  if (rank_held(watch, HELD_BY_SIGNAL) >= 0) return silent_ms >= NOTE_HELD_MS;
  return silent_ms >= NOTE_MS && silent_ms >= 2 * watch->longest_ms;
}

static void judge_silence(Watch *watch, uint64_t silent_ms) {
  uint64_t patience_ms = 1000 * (uint64_t)(watch->job->timeout_s + (watch->first_own != 0 ? STALL_MARGIN_S : 0));
  bool ends = watch->job->timeout_s != 0 && (watch->first_own == 0 || watch->bridge != NULL);
  if (silent_ms <= (ends && patience_ms < NOTE_MS ? patience_ms : NOTE_MS) / 2) note_polls(watch);
  if (ends && silent_ms > patience_ms) {
    uint64_t unheard_s = 0;
    int32_t unheard = watch->bridge != NULL ? bridge_silent(watch->bridge, &unheard_s) : -1;
    if (unheard >= 0) fail_unheard(watch, (uint32_t)unheard, unheard_s);
    else fail_stalled(watch);
  } else if (note_due(watch, silent_ms)) {
    note_stalled(watch, silent_ms);
  }
}

/* Time in which the job as a whole is suspended, or one of its ranks stands in a debugger, does not count. */
void watch_progress(Watch *watch, uint64_t now_ms) {
  uint64_t mark = progress_mark(watch), silent_ms = now_ms - watch->mark_ms;
  bool was_held = rank_held(watch, HELD_BY_SIGNAL) >= 0;
  look_for_holds(watch);
  if (watch->mark_ms == 0 || (watch->looked_ms != 0 && now_ms - watch->looked_ms > SUSPENDED_MS) || rank_held(watch, HELD_BY_DEBUGGER) >= 0) {
    begin_anew(watch, mark, now_ms);
  } else if (mark != watch->mark) {
    note_progress(watch, silent_ms);
    if (!was_held && silent_ms > watch->longest_ms) watch->longest_ms = silent_ms;
    begin_anew(watch, mark, now_ms);
  } else {
    judge_silence(watch, silent_ms);
  }
  watch->looked_ms = now_ms;
}

static void fail_gone(Watch *watch, uint32_t rank) {
  Failure failure = {0};
  char place[320];
  watch_place(watch, rank, place, sizeof place);
  fail(&failure, RUN_PEER_FAILED, "the process of rank %u is gone, %s", rank, place);
  control_fail(watch->memory.control, watch->first_own, &failure);
}

void watch_peers(Watch *watch) {
  int32_t gone = watch->job->join != NULL ? join_gone(watch->job->join) : -1;
  if (gone >= 0 && atomic_load(&watch->memory.statuses[gone].finished) == 0) fail_gone(watch, (uint32_t)gone);
}

void watch_hosts(Watch *watch) {
  Failure failure = {0};
  if (watch->bridge == NULL) return;
  if (!bridge_tick(watch->bridge, &failure)) control_fail(watch->memory.control, watch->first_own, &failure);
  int32_t gone = bridge_gone(watch->bridge);
  if (gone >= 0 && atomic_load(&watch->memory.control->stop) == 0) fail_gone(watch, (uint32_t)gone);
}
