/* Owns: the time of a micro-batch before anything is emitted: clocks of compute, collectives and copies, as close to the simulator as
 * can be without addresses. */
#include "planner/schedule/schedule_build.h"

/* A communicator: busy until `before`, and from `from` until `until`. What is fetched first begins later than it is issued. */
typedef struct Busy {
  uint64_t before, from, until;
} Busy;

/* When each queue is free. Figures count collectives as slow as they are beside compute, so these clocks run too long while
 * compute waits for them: by the share of it that `exposed` is taken back at the end. */
typedef struct Clocks {
  uint64_t compute, in, out;
  Busy gather, reduce, replicate;
  uint64_t change; /* until then compute is slowed, or is not; 0: look again */
  bool slowed;
  uint64_t exposed;
} Clocks;

/* Returns when work that is issued at `begin` has been done. */
static uint64_t occupy(Clocks *c, Busy *busy, uint64_t begin, uint64_t ns) {
  c->change = 0;
  if (begin > busy->until) {
    busy->before = busy->until;
    busy->from = busy->until = begin;
  }
  return busy->until += ns;
}

static bool is_busy(const Busy *busy, uint64_t now) { return now < busy->before || (now >= busy->from && now < busy->until); }

/* When it next begins or ends to be busy. */
static uint64_t next_change(const Busy *busy, uint64_t now) {
  if (now < busy->before) return busy->before;
  return now < busy->from ? busy->from : now < busy->until ? busy->until : UINT64_MAX;
}

static void look_ahead(Clocks *c, uint64_t now) {
  c->slowed = is_busy(&c->gather, now) || is_busy(&c->reduce, now) || is_busy(&c->replicate, now);
  c->change = sooner(next_change(&c->gather, now), sooner(next_change(&c->reduce, now), next_change(&c->replicate, now)));
}

/* Time that work takes from now on, slowed while communication runs. */
static uint64_t beside(Clocks *c, uint64_t work, double contention) {
  uint64_t now = c->compute;
  double left = (double)work;
  if (contention <= 0 || work == 0) return work;
  for (;;) {
    if (now >= c->change) look_ahead(c, now);
    double rate = c->slowed ? 1 - contention : 1, done = (double)(c->change - now) * rate;
    if (done >= left) return now - c->compute + (uint64_t)(left / rate);
    left -= done;
    now = c->change;
  }
}

/* Likewise for step s; most operators end well before anything changes, and what they take then is known. */
static uint64_t compute_beside(Clocks *c, const Builder *b, int32_t s) {
  const Skeleton *skeleton = b->skeleton;
  const int32_t op = b->schedule->steps[s].op;
  const double contention = b->decisions->overlap.contention;
  const uint64_t copying = b->schedule->copying_ns ? b->schedule->copying_ns[s] : 0;
  if (copying) return beside(c, skeleton->op_ns[op] + copying, contention);
  const uint64_t ns = c->slowed ? skeleton->slowed_ns[op] : skeleton->op_ns[op];
  return c->compute + ns + 1 < c->change ? ns : beside(c, skeleton->op_ns[op], contention);
}

/* When all communicators are free. */
static uint64_t all_done(const Clocks *c) { return later(c->gather.until, later(c->reduce.until, c->replicate.until)); }

static void wait_for(Clocks *c, uint64_t until) {
  uint64_t busy = all_done(c);
  if (until <= c->compute) return;
  if (busy > c->compute) c->exposed += sooner(busy, until) - c->compute;
  c->compute = until;
}

static uint64_t end_of(const Builder *b, Clocks *c) {
  double slowdown = b->decisions->overlap.comm_slowdown;
  wait_for(c, all_done(c));
  return later(c->compute, c->out) - (uint64_t)(slowdown / (1 + slowdown) * (double)c->exposed);
}

/* Returns when the unit is there. */
static uint64_t gather_unit(const Builder *b, Clocks *c, const UnitFigures *of) {
  uint64_t begin = c->compute;
  if (of->fetch_ns) begin = c->in = later(c->in, c->compute) + of->fetch_ns;
  if (of->fetch_ns && !b->skeleton->copies_beside) c->compute = c->in;
  if (b->decisions->shard > 1) begin = occupy(c, b->skeleton->shared_queue ? &c->reduce : &c->gather, begin, of->gather_ns);
  return begin;
}

/* What reduction r adds to. */
static void bring(const Builder *b, Clocks *c, uint32_t r) {
  const uint64_t ns = b->skeleton->figures[b->schedule->reductions[r].unit].image_ns;
  b->ends.brought[r] = c->in = later(c->in, c->compute) + ns;
  if (!b->skeleton->copies_beside) c->compute = c->in;
}

/* The gradient of reduction r, which is whole. */
static void reduce_unit(const Builder *b, Clocks *c, uint32_t r) {
  const UnitFigures *of = &b->skeleton->figures[b->schedule->reductions[r].unit];
  uint64_t end = later(c->compute, schedule_adds_from_host(b->decisions) ? b->ends.brought[r] : 0);
  if (b->decisions->shard > 1) end = b->ends.taken[r] = occupy(c, &c->reduce, end, of->reduce_ns);
  if (b->decisions->replicas > 1) end = occupy(c, b->skeleton->shared_sums ? &c->reduce : &c->replicate, end, of->replicate_ns);
  if (of->image_ns) end = c->out = later(c->out, end) + of->image_ns;
  if (of->image_ns && !b->skeleton->copies_beside) wait_for(c, end);
  b->ends.reduced[r] = end;
  if (b->decisions->shard == 1) b->ends.taken[r] = end; /* it is its own image, or there is but one sum */
}

static void meet_trips(const Builder *b, Clocks *c, Travel *travel, int32_t s) {
  uint64_t met = trips_meet(b, travel, s, c->compute, &c->in);
  if (b->skeleton->copies_beside)
    wait_for(c, met);
  else
    c->compute = met;
}

/* One pass under way. Most steps neither issue nor release anything, nor wait for a gather, nor does anything end before them: `due` and
 * `ends` say when to look. */
typedef struct Run {
  Builder *b;
  Clocks clocks;
  Travel travel;
  uint32_t use_count, reduction_count, bring_count, need_count;
  uint32_t next_bring, next_need, next_use, next_read, next_freed, next_arrived, next_reduction, next_release, next_landing, next_taken, next_done;
  int32_t due;   /* the next step with something before or after it */
  uint64_t ends; /* when the next of what is under way does */
} Run;

static int32_t freed_after(const Use *use) { return later_step(use->held, use->issue); }

static void look_for_work(Run *run) {
  const Schedule *schedule = run->b->schedule;
  int32_t due = schedule->trip_count ? trips_due(run->b, &run->travel) : INT32_MAX;
  if (run->next_use < run->use_count) due = sooner_step(due, schedule->uses[run->next_use].issue);
  if (run->next_read < run->use_count) due = sooner_step(due, schedule->uses[run->next_read].first);
  if (run->next_freed < run->next_use) due = sooner_step(due, freed_after(&schedule->uses[run->next_freed]) + 1);
  if (run->next_bring < run->bring_count) due = sooner_step(due, schedule->reductions[schedule->brought[run->next_bring]].issue);
  if (run->next_need < run->need_count) due = sooner_step(due, schedule->reductions[schedule->brought[run->next_need]].first);
  if (run->next_reduction < run->reduction_count) due = sooner_step(due, schedule->reductions[run->next_reduction].after);
  if (run->next_release < run->next_reduction) due = sooner_step(due, schedule->reductions[run->next_release].release + 1);
  if (run->next_landing < run->next_reduction) due = sooner_step(due, schedule->reductions[run->next_landing].landed + 1);
  run->due = due;
}

static void look_for_ends(Run *run) {
  const Builder *b = run->b;
  uint64_t ends = UINT64_MAX;
  if (run->next_arrived < run->next_use) ends = sooner(ends, b->ends.gathered[run->next_arrived]);
  if (run->next_taken < run->next_reduction) ends = sooner(ends, b->ends.taken[run->next_taken]);
  if (run->next_done < run->next_reduction) ends = sooner(ends, b->ends.reduced[run->next_done]);
  if (run->travel.gone < run->travel.next_store) ends = sooner(ends, b->ends.stored[run->travel.gone]);
  run->ends = ends;
}

/* Whether the shard that a gather reads, where it was fetched, is still in use. */
static bool is_gathering(const Run *run, uint32_t use) {
  const Builder *b = run->b;
  const UnitFigures *of = &b->skeleton->figures[b->schedule->uses[use].unit];
  return b->timed && of->shard_bytes && b->ends.gathered[use] > run->clocks.compute;
}

/* In step s too, if there is room. */
static bool hold_shard(Builder *b, Use *use, int32_t s) {
  const int64_t shard = (int64_t)b->skeleton->figures[use->unit].shard_bytes;
  if (b->schedule->live[s] + shard > (int64_t)b->decisions->room) return false;
  b->schedule->live[s] += shard;
  use->held = s;
  return true;
}

/* Fetched shards that were to be let go of before step s: those that are still being gathered stay, or are waited for. */
static void free_shards(Run *run, int32_t s) {
  Use *uses = run->b->schedule->uses;
  for (uint32_t i = run->next_freed; i < run->next_use && freed_after(&uses[i]) < s; i++) {
    if (is_gathering(run, i) && !hold_shard(run->b, &uses[i], s)) wait_for(&run->clocks, run->b->ends.gathered[i]);
    if (i == run->next_freed && !is_gathering(run, i)) run->next_freed++;
  }
}

/* What is issued before step s, and what it waits for because it reads it, or because memory is released before it. */
static void before_step(Run *run, int32_t s) {
  Builder *b = run->b;
  Clocks *c = &run->clocks;
  const UnitFigures *figures = b->skeleton->figures;
  const Use *uses = b->schedule->uses;
  const Reduction *reductions = b->schedule->reductions;
  const uint32_t *brought = b->schedule->brought;
  for (; run->next_bring < run->bring_count && reductions[brought[run->next_bring]].issue <= s; run->next_bring++) bring(b, c, brought[run->next_bring]);
  for (; run->next_use < run->use_count && uses[run->next_use].issue <= s; run->next_use++)
    b->ends.gathered[run->next_use] = gather_unit(b, c, &figures[uses[run->next_use].unit]);
  if (b->schedule->trip_count) meet_trips(b, c, &run->travel, s);
  while (run->next_need < run->need_count && reductions[brought[run->next_need]].first <= s) wait_for(c, b->ends.brought[brought[run->next_need++]]);
  free_shards(run, s);
  while (run->next_release < run->next_reduction && reductions[run->next_release].release < s) wait_for(c, b->ends.taken[run->next_release++]);
  while (run->next_landing < run->next_reduction && reductions[run->next_landing].landed < s) wait_for(c, b->ends.reduced[run->next_landing++]);
  while (run->next_read < run->use_count && uses[run->next_read].first <= s) wait_for(c, b->ends.gathered[run->next_read++]);
}

/* What has ended when step s starts. */
static void note_ends(Run *run, int32_t s) {
  Builder *b = run->b;
  uint64_t now = run->clocks.compute;
  while (run->next_arrived < run->next_use && b->ends.gathered[run->next_arrived] <= now) b->arrived[run->next_arrived++] = s;
  while (run->next_taken < run->next_reduction && b->ends.taken[run->next_taken] <= now) b->taken[run->next_taken++] = s;
  while (run->next_done < run->next_reduction && b->ends.reduced[run->next_done] <= now) b->done[run->next_done++] = s;
  while (run->travel.gone < run->travel.next_store && b->ends.stored[run->travel.gone] <= now) b->gone[run->travel.gone++] = s;
}

static void after_step(Run *run, int32_t s) {
  Builder *b = run->b;
  Clocks *c = &run->clocks;
  const Reduction *reductions = b->schedule->reductions;
  for (; run->next_reduction < run->reduction_count && reductions[run->next_reduction].after == s; run->next_reduction++)
    reduce_unit(b, c, run->next_reduction);
  if (b->schedule->trip_count) c->compute = trips_leave(b, &run->travel, s, c->compute, &c->out);
  look_for_work(run);
}

static void open_run(Run *run, Builder *b, bool gathers, bool reduces) {
  *run = (Run){.b = b, .ends = UINT64_MAX};
  if (!b->lands) run->next_landing = run->next_done = UINT32_MAX;
  run->use_count = decisions_gather(b->decisions) && gathers ? b->schedule->use_count : 0;
  run->reduction_count = decisions_reduce(b->decisions) && reduces ? b->schedule->reduction_count : 0;
  run->bring_count = schedule_adds_from_host(b->decisions) ? run->reduction_count : 0;
  run->need_count = b->decisions->ranks == 1 ? run->bring_count : 0; /* others' operators do not wait: the collective does */
  look_for_work(run);
}

static void note_rest(Run *run) {
  Builder *b = run->b;
  while (run->next_taken < b->schedule->reduction_count) b->taken[run->next_taken++] = b->schedule->step_count;
  while (run->next_done < b->schedule->reduction_count) b->done[run->next_done++] = b->schedule->step_count;
  while (run->travel.gone < b->schedule->trip_count) b->gone[run->travel.gone++] = b->schedule->step_count;
}

static void time_step(Run *run, int32_t s) {
  Clocks *c = &run->clocks;
  const bool due = run->due <= s;
  if (due) before_step(run, s);
  const bool changes = due || run->ends <= c->compute;
  run->b->start[s] = c->compute;
  if (changes) note_ends(run, s);
  c->compute += compute_beside(c, run->b, s);
  if (due) after_step(run, s);
  if (changes) look_for_ends(run);
}

/* From step s on, those that nothing is due at and nothing changes in: nearly all. Returns the next one. */
static int32_t time_freely(Run *run, int32_t s) {
  const Schedule *schedule = run->b->schedule;
  const Skeleton *skeleton = run->b->skeleton;
  const uint64_t *ns = run->clocks.slowed ? skeleton->slowed_ns : skeleton->op_ns, *copying = schedule->copying_ns;
  const uint64_t change = run->b->decisions->overlap.contention > 0 ? run->clocks.change : UINT64_MAX, ends = run->ends;
  const int32_t end = sooner_step(run->due, schedule->step_count);
  uint64_t *start = run->b->start, now = run->clocks.compute;
  for (; s < end && now < ends && !(copying && copying[s]); s++) {
    const uint64_t after = now + ns[schedule->steps[s].op];
    if (after + 1 >= change) break;
    start[s] = now;
    now = after;
  }
  run->clocks.compute = now;
  return s;
}

uint64_t schedule_time(Builder *b, bool gathers, bool reduces) {
  Run run;
  open_run(&run, b, gathers, reduces);
  for (int32_t s = 0; s < b->schedule->step_count; s = time_freely(&run, s + 1)) time_step(&run, s);
  note_rest(&run);
  return end_of(b, &run.clocks);
}
