/* Owns: noticing, from outside, ranks that live but do not get on, and processes and hosts that are gone. */
#include "runtime/launch/watch.h"

#include "base/clock.h"
#include "base/hash.h"
#include "runtime/runtime.h"

#include <stdio.h>

enum {
  STALL_MARGIN_S = 5, /* rank 0's host is the first to say that nobody gets on */
  SUSPENDED_MS = 5000 /* between two looks, which are 200 ms apart: this process did not run, nor perhaps did the ranks */
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

/* Whom the others wait for. */
static uint32_t laggard(const Watch *watch) {
  uint32_t found = 0;
  for (uint32_t rank = 1; rank < watch->job->ranks; rank++)
    if (lags(watch, rank, found)) found = rank;
  return found;
}

static void fail_stalled(Watch *watch) {
  char place[320], others[400] = "";
  Failure failure = {0};
  uint32_t rank = laggard(watch), other = rank == 0 ? 1 : 0;
  watch_place(watch, rank, place, sizeof place);
  if (watch->job->ranks > 1) {
    char where[320];
    watch_place(watch, other, where, sizeof where);
    snprintf(others, sizeof others, "; rank %u waits %s", other, where);
  }
  fail(&failure, RUN_PEER_FAILED, "no rank has got on for %u s: rank %u is stuck %s%s", watch->job->timeout_s, rank,
       place, others);
  control_fail(watch->memory.control, watch->first_own, &failure);
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

void watch_progress(Watch *watch) {
  uint64_t mark = progress_mark(watch), now = clock_ms();
  uint64_t patience_s = watch->job->timeout_s + (watch->first_own != 0 ? STALL_MARGIN_S : 0);
  if (watch->job->timeout_s == 0 || (watch->first_own != 0 && watch->bridge == NULL)) return;
  if (mark != watch->mark || watch->mark_ms == 0) {
    watch->mark = mark;
    watch->mark_ms = now;
  }
  if (watch->looked_ms != 0 && now - watch->looked_ms > SUSPENDED_MS) watch->mark_ms = now;
  watch->looked_ms = now;
  if (now - watch->mark_ms <= patience_s * 500) {
    note_polls(watch);
  } else if (now - watch->mark_ms > patience_s * 1000) {
    uint64_t silent_s = 0;
    int32_t unheard = watch->bridge != NULL ? bridge_silent(watch->bridge, &silent_s) : -1;
    if (unheard >= 0) fail_unheard(watch, (uint32_t)unheard, silent_s);
    else fail_stalled(watch);
  }
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
