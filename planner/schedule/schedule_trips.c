/* Owns: values that lie in host memory from forward to backward: when they are stored and fetched. */
#include "planner/schedule/schedule_build.h"

static int32_t turn_step(const Builder *b) { return b->program->turn; } /* forward runs every op once */

/* Trip t is read again first by step s. Of those of one step the last one comes first. */
static void add_return(Schedule *schedule, uint32_t count, uint32_t t, int32_t s) {
  uint32_t at = count;
  schedule->trips[t].first = s;
  for (; at > 0 && schedule->trips[schedule->returns[at - 1]].first == s && schedule->returns[at - 1] < t; at--)
    schedule->returns[at] = schedule->returns[at - 1];
  schedule->returns[at] = t;
}

/* Where backward, or what it runs again, first reads what was moved. */
static void find_returns(Builder *b) {
  Schedule *schedule = b->schedule;
  uint32_t found = 0;
  for (int32_t s = turn_step(b); s < schedule->step_count && found < schedule->trip_count; s++)
    for EACH_REF(b->flow, schedule->steps[s].op, ref) {
      int32_t t = b->trip_of[ref->value] - 1;
      if (t >= 0 && schedule->trips[t].first < 0) add_return(schedule, found++, (uint32_t)t, s);
    }
}

/* Copies take compute something of the device's memory bandwidth and of its power while they last. It counts with the step that a store follows and
 * with that which waits for a fetch, so that it does not depend on when the link gets to them. Rounded up: bounds count no more. */
static void slow_steps(Builder *b) {
  Schedule *schedule = b->schedule;
  if (b->skeleton->host_contention <= 0) return;
  schedule->copying_ns = ARENA_ARRAY(schedule->arena, uint64_t, schedule->step_count);
  for (uint32_t t = 0; t < schedule->trip_count; t++) {
    const Trip *trip = &schedule->trips[t];
    const uint64_t lost = (uint64_t)ceil(b->skeleton->host_contention * (double)b->flow->moved_ns[trip->op]);
    schedule->copying_ns[trip->after] += lost;
    schedule->copying_ns[trip->first] += lost;
  }
}

void trips_list(Builder *b) {
  Schedule *schedule = b->schedule;
  const bool *away = b->decisions->away;
  uint32_t count = 0;
  for (int32_t i = 0; away && i < b->program->turn; i++) count += away[i] && b->flow->moved[i] >= 0;
  if (!count) return;
  schedule->trips = ARENA_ARRAY(schedule->arena, Trip, count);
  schedule->returns = ARENA_ARRAY(schedule->arena, uint32_t, count);
  b->trip_of = ARENA_ARRAY(schedule->arena, int32_t, b->program->values.count);
  b->gone = ARENA_ARRAY(schedule->arena, int32_t, count);
  b->wanted = ARENA_ARRAY(schedule->arena, int32_t, count);
  b->ends.stored = ARENA_ARRAY(schedule->arena, uint64_t, count);
  b->ends.fetched = ARENA_ARRAY(schedule->arena, uint64_t, count);
  for (int32_t i = 0; i < b->program->turn; i++) {
    if (!away[i] || b->flow->moved[i] < 0) continue;
    schedule->trips[schedule->trip_count++] = (Trip){i, b->flow->moved[i], b->step_of[i], b->step_of[i], PLAN_NONE, PLAN_NONE};
    b->trip_of[b->flow->moved[i]] = (int32_t)schedule->trip_count;
    schedule->host_bytes += b->flow->value_bytes[b->flow->moved[i]];
  }
  find_returns(b);
  slow_steps(b);
  for (uint32_t t = 0; t < count; t++) schedule->trips[t].issue = schedule->trips[t].first;
}

/* The first step that the k-th fetch may begin at. */
static int32_t fetch_floor(const Builder *b, uint32_t k) {
  const Schedule *schedule = b->schedule;
  return k < FETCHES_AHEAD ? turn_step(b) : schedule->trips[schedule->returns[k - FETCHES_AHEAD]].first;
}

void trips_hold_first(Builder *b) {
  Schedule *schedule = b->schedule;
  for (uint32_t t = 0; t < schedule->trip_count; t++)
    schedule->trips[t].release = t + 1 < schedule->trip_count ? schedule->trips[t + 1].after : turn_step(b);
  for (uint32_t k = 0; k < schedule->trip_count; k++) schedule->trips[schedule->returns[k]].issue = fetch_floor(b, k);
}

/* Shards that are fetched take turns with what returns: how much earlier than `latest` a copy of `ns` must begin for those that are issued
 * meanwhile. next: of the uses, last to first, the one that comes next. */
static uint64_t make_way(const Builder *b, uint64_t latest, uint64_t ns, uint32_t *next) {
  for (; *next > 0; --*next) {
    const Use *use = &b->schedule->uses[*next - 1];
    uint64_t issue = b->start[use->issue], fetch = b->skeleton->figures[use->unit].fetch_ns;
    if (issue >= latest) continue;
    if (issue + fetch + ns <= latest) break;
    latest = before(latest, fetch);
  }
  return latest;
}

void trips_time(Builder *b) {
  Schedule *schedule = b->schedule;
  const double safe = safe_share(&b->decisions->overlap);
  uint64_t latest = UINT64_MAX;
  uint32_t next_use = schedule->use_count;
  int32_t cap = INT32_MAX;
  for (uint32_t t = 0; t < schedule->trip_count; t++) schedule->trips[t].release = schedule->trips[t].after;
  for (uint32_t k = schedule->trip_count; k-- > 0;) {
    Trip *trip = &schedule->trips[schedule->returns[k]];
    int32_t floor = fetch_floor(b, k);
    uint64_t ns = (uint64_t)(safe * (double)b->flow->moved_ns[trip->op]);
    if (b->start[trip->first] < latest) latest = b->start[trip->first];
    latest = before(make_way(b, latest, ns, &next_use), ns);
    if (trip->first < cap) cap = trip->first;
    while (cap > floor && b->start[cap] > latest) cap--;
    b->wanted[schedule->returns[k]] = cap;
    trip->issue = trip->first;
  }
}

static int32_t held_until(const Builder *b, const Trip *trip) { return later_step(trip->release, b->flow->last_forward[trip->value]); }

static void hold_stored(Builder *b) {
  Schedule *schedule = b->schedule;
  for (uint32_t t = 0; t < schedule->trip_count; t++) {
    Trip *trip = &schedule->trips[t];
    int64_t bytes = (int64_t)b->flow->value_bytes[trip->value];
    int32_t until = held_until(b, trip), last = b->gone[t] < schedule->step_count ? b->gone[t] : schedule->step_count - 1;
    while (until < last && schedule->live[until + 1] + bytes <= (int64_t)b->decisions->room) schedule->live[++until] += bytes;
    trip->release = until;
  }
  for (uint32_t t = schedule->trip_count; t-- > 1;) { /* what is waited for later is no use before */
    Trip *trip = &schedule->trips[t - 1];
    int32_t least = later_step(later_step(trip->after, b->flow->last_forward[trip->value]), schedule->trips[t].release);
    for (; trip->release > least; trip->release--) schedule->live[trip->release] -= (int64_t)b->flow->value_bytes[trip->value];
  }
}

static void fetch_early(Builder *b) {
  Schedule *schedule = b->schedule;
  int32_t floor = 0;
  for (uint32_t k = 0; k < schedule->trip_count; k++) {
    Trip *trip = &schedule->trips[schedule->returns[k]];
    int64_t bytes = (int64_t)b->flow->value_bytes[trip->value];
    int32_t least = later_step(b->wanted[schedule->returns[k]], floor);
    while (trip->issue > least && schedule->live[trip->issue - 1] + bytes <= (int64_t)b->decisions->room) schedule->live[--trip->issue] += bytes;
    floor = trip->issue;
  }
}

void trips_hold(Builder *b) {
  hold_stored(b);
  fetch_early(b);
}

int32_t trips_due(const Builder *b, const Travel *travel) {
  const Schedule *schedule = b->schedule;
  const Trip *trips = schedule->trips;
  int32_t due = INT32_MAX;
  if (travel->next_fetch < schedule->trip_count) due = sooner_step(due, trips[schedule->returns[travel->next_fetch]].issue);
  if (travel->next_return < schedule->trip_count) due = sooner_step(due, trips[schedule->returns[travel->next_return]].first);
  if (travel->next_store < schedule->trip_count) due = sooner_step(due, trips[travel->next_store].after);
  if (b->timed && travel->next_release < travel->next_store) due = sooner_step(due, trips[travel->next_release].release + 1);
  return due;
}

uint64_t trips_meet(const Builder *b, Travel *travel, int32_t s, uint64_t compute, uint64_t *in) {
  const Schedule *schedule = b->schedule;
  for (; travel->next_fetch < schedule->trip_count; travel->next_fetch++) {
    uint32_t t = schedule->returns[travel->next_fetch];
    if (schedule->trips[t].issue > s) break;
    *in = later(*in, later(compute, b->ends.stored[t])) + b->flow->moved_ns[schedule->trips[t].op];
    b->ends.fetched[t] = *in;
  }
  for (; travel->next_return < schedule->trip_count; travel->next_return++) {
    uint32_t t = schedule->returns[travel->next_return];
    if (schedule->trips[t].first > s) break;
    compute = b->skeleton->copies_beside ? later(compute, b->ends.fetched[t]) : compute + b->flow->moved_ns[schedule->trips[t].op];
  }
  while (b->timed && travel->next_release < travel->next_store && schedule->trips[travel->next_release].release < s)
    compute = later(compute, b->ends.stored[travel->next_release++]);
  return compute;
}

uint64_t trips_leave(const Builder *b, Travel *travel, int32_t s, uint64_t compute, uint64_t *out) {
  const Schedule *schedule = b->schedule;
  for (; travel->next_store < schedule->trip_count && schedule->trips[travel->next_store].after == s; travel->next_store++) {
    *out = later(*out, compute) + b->flow->moved_ns[schedule->trips[travel->next_store].op];
    if (!b->skeleton->copies_beside) compute = *out;
    b->ends.stored[travel->next_store] = *out;
  }
  return compute;
}
