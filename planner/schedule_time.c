/* Owns: the time of a micro-batch before anything is emitted: clocks of compute, collectives and copies, as close to the simulator as
 * can be without addresses. */
#include "planner/schedule_build.h"

/* A communicator: busy until `before`, and from `from` until `until`. What is fetched first begins later than it is issued. */
typedef struct Busy {
  uint64_t before, from, until;
} Busy;

/* When each queue is free. Figures count collectives as slow as they are beside compute, so these clocks run too long while
 * compute waits for them: by the share of it that `exposed` is taken back at the end. */
typedef struct Clocks {
  uint64_t compute, in, out;
  Busy gather, reduce;
  uint64_t exposed;
} Clocks;

/* Returns when work that is issued at `begin` has been done. */
static uint64_t occupy(Busy *busy, uint64_t begin, uint64_t ns) {
  if (begin > busy->until) {
    busy->before = busy->until;
    busy->from = busy->until = begin;
  }
  return busy->until += ns;
}

static bool is_busy(const Busy *busy, uint64_t now) { return now < busy->before || (now >= busy->from && now < busy->until); }

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* When it next begins or ends to be busy. */
static uint64_t next_change(const Busy *busy, uint64_t now) {
  if (now < busy->before) return busy->before;
  return now < busy->from ? busy->from : now < busy->until ? busy->until : UINT64_MAX;
}

/* Time that work takes from now on, slowed while communication runs. */
static uint64_t beside(const Clocks *c, uint64_t work, double contention) {
  uint64_t now = c->compute;
  double left = (double)work;
  if (contention <= 0 || work == 0) return work;
  for (;;) {
    bool slowed = is_busy(&c->gather, now) || is_busy(&c->reduce, now);
    uint64_t change = sooner(next_change(&c->gather, now), next_change(&c->reduce, now));
    double rate = slowed ? 1 - contention : 1, done = change == UINT64_MAX ? left : (double)(change - now) * rate;
    if (done >= left) return now - c->compute + (uint64_t)(left / rate);
    left -= done;
    now = change;
  }
}

static void wait_for(Clocks *c, uint64_t until) {
  uint64_t busy = later(c->gather.until, c->reduce.until);
  if (until <= c->compute) return;
  if (busy > c->compute) c->exposed += sooner(busy, until) - c->compute;
  c->compute = until;
}

static uint64_t end_of(const Builder *b, Clocks *c) {
  double slowdown = b->decisions->comm_slowdown;
  wait_for(c, later(c->gather.until, c->reduce.until));
  return later(c->compute, c->out) - (uint64_t)(slowdown / (1 + slowdown) * (double)c->exposed);
}

/* Returns when the unit is there. */
static uint64_t gather_unit(const Builder *b, Clocks *c, const UnitFigures *of) {
  uint64_t begin = c->compute;
  if (of->fetch_ns) begin = c->in = later(c->in, c->compute) + of->fetch_ns;
  if (of->fetch_ns && !b->skeleton->copies_beside) c->compute = c->in;
  if (b->decisions->shard > 1) begin = occupy(b->skeleton->shared_queue ? &c->reduce : &c->gather, begin, of->gather_ns);
  return begin;
}

/* Returns when its gradient is. */
static uint64_t reduce_unit(const Builder *b, Clocks *c, const UnitFigures *of) {
  bool adds = of->image_ns && decisions_adds_up(b->decisions);
  if (adds) c->in = later(c->in, c->compute) + of->image_ns;
  uint64_t end = later(c->compute, adds ? c->in : 0);
  if (b->decisions->ranks > 1) end = occupy(&c->reduce, end, of->reduce_ns);
  if (of->image_ns) end = c->out = later(c->out, end) + of->image_ns;
  if (of->image_ns && !b->skeleton->copies_beside) c->compute += (adds ? 2 : 1) * of->image_ns;
  return end;
}

static void meet_trips(const Builder *b, Clocks *c, Travel *travel, int32_t s) {
  uint64_t met = trips_meet(b, travel, s, c->compute, &c->in);
  if (b->skeleton->copies_beside)
    wait_for(c, met);
  else
    c->compute = met;
}

uint64_t schedule_time(Builder *b, bool gathers, bool reduces) {
  Schedule *schedule = b->schedule;
  const UnitFigures *figures = b->skeleton->figures;
  const Decisions *decisions = b->decisions;
  const Use *uses = schedule->uses;
  const Reduction *reductions = schedule->reductions;
  uint32_t next_use = 0, next_freed = 0, next_arrived = 0, next_reduction = 0, next_release = 0, next_done = 0;
  uint32_t use_count = decisions_gather(decisions) && gathers ? schedule->use_count : 0;
  uint32_t reduction_count = decisions_reduce(decisions) && reduces ? schedule->reduction_count : 0;
  Clocks c = {0};
  uint64_t *ready = ARENA_ARRAY(schedule->arena, uint64_t, b->skeleton->units->units.count); /* by unit: gathered */
  uint64_t *gathered = ARENA_ARRAY(schedule->arena, uint64_t, use_count);
  uint64_t *reduced = ARENA_ARRAY(schedule->arena, uint64_t, reduction_count);
  Travel travel = {.stored = ARENA_ARRAY(schedule->arena, uint64_t, schedule->trip_count),
                   .fetched = ARENA_ARRAY(schedule->arena, uint64_t, schedule->trip_count)};
  for (int32_t s = 0; s < schedule->step_count; s++) {
    int32_t op = schedule->steps[s].op;
    for (; next_use < use_count && uses[next_use].issue <= s; next_use++)
      ready[uses[next_use].unit] = gathered[next_use] = gather_unit(b, &c, &figures[uses[next_use].unit]);
    if (schedule->trip_count) meet_trips(b, &c, &travel, s);
    for (; next_freed < next_use && later_step(uses[next_freed].held, uses[next_freed].issue) < s; next_freed++)
      if (figures[uses[next_freed].unit].shard_bytes && b->timed) wait_for(&c, gathered[next_freed]);
    while (next_release < next_reduction && reductions[next_release].release < s) wait_for(&c, reduced[next_release++]);
    for EACH_UNIT(b->skeleton, op, at) wait_for(&c, ready[b->skeleton->touched[at]]);
    b->start[s] = c.compute;
    while (next_arrived < next_use && gathered[next_arrived] <= c.compute) b->arrived[next_arrived++] = s;
    while (next_done < next_reduction && reduced[next_done] <= c.compute) b->done[next_done++] = s;
    while (travel.gone < travel.next_store && travel.stored[travel.gone] <= c.compute) b->gone[travel.gone++] = s;
    c.compute += beside(&c, b->skeleton->op_ns[op], decisions->contention);
    for (; next_reduction < reduction_count && reductions[next_reduction].after == s; next_reduction++)
      reduced[next_reduction] = reduce_unit(b, &c, &figures[reductions[next_reduction].unit]);
    if (schedule->trip_count) c.compute = trips_leave(b, &travel, s, c.compute, &c.out);
  }
  while (next_done < schedule->reduction_count) b->done[next_done++] = schedule->step_count;
  while (travel.gone < schedule->trip_count) b->gone[travel.gone++] = schedule->step_count;
  return end_of(b, &c);
}
