/* Owns: the clocks of a simulated step. What it leaves out: launching costs nothing, and repetitions of a
 * segment are alike because all queues join between them.
 *
 * Two ways through a segment. Where streams do not slow each other, one pass over the list: an instruction
 * starts at the latest of its queue and its events. Where they do, time advances from one end of an
 * instruction to the next, all running ones progressing at the rates of that interval.
 *
 * The interval around the step: without contention, longer durations never make a step shorter (it is a
 * longest path), so all durations at their least and no contention give `fast`. Contention adds to compute at
 * most its share of the time that communication is busy, and delays that sum to D lengthen a longest path by
 * at most D: `slow`. */
#include "planner/plan/sim.h"

#include <math.h>

enum { SEGMENTS_MAX = 8 };

static uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static bool is_communication(StreamId stream) {
  return stream == STREAM_GATHER || stream == STREAM_REDUCE || stream == STREAM_REPLICATE;
}

/* Plan files are untrusted: a share is one from 0 to 1. */
static double share(double value) {
  return value > 0 ? fmin(value, 1) : 0;
}

/* --- one pass ------------------------------------------------------------------------------------------- */

typedef struct Clocks {
  double queue[STREAM_COUNT]; /* when it is free */
  double *event;              /* when it was recorded */
  double compute, comm;       /* factors of durations */
} Clocks;

static double duration(const Clocks *clocks, const PlanInstr *instr) {
  return (double)instr->ns * (is_communication(instr->stream) ? clocks->comm : clocks->compute);
}

/* Instructions of a segment that begins at `begin`; returns when it ends. spans may be NULL. */
static double pass(Clocks *clocks, const Plan *plan, const PlanSegment *segment, double begin,
                   SimSpan *spans) {
  double end = begin;
  for (int q = 0; q < STREAM_COUNT; q++) clocks->queue[q] = begin;
  for (int32_t i = segment->first; i < segment->end; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    double *queue = &clocks->queue[plan->queue[instr->stream]], start = *queue;
    for (uint32_t w = 0; w < instr->wait_count; w++)
      start = fmax(start, clocks->event[plan->waits.data[instr->waits + w]]);
    *queue = start + duration(clocks, instr);
    if (instr->record != PLAN_NONE) clocks->event[instr->record] = *queue;
    if (spans) spans[i] = (SimSpan){(uint64_t)(start + 0.5), (uint64_t)(*queue + 0.5)};
    end = fmax(end, *queue);
  }
  return end;
}

/* --- streams that slow each other ----------------------------------------------------------------------- */

typedef struct Machine {
  const Plan *plan;
  int32_t *follows;           /* by instruction: the next of its queue */
  bool *recorded;             /* by event */
  int32_t next[STREAM_COUNT]; /* by queue: not started, PLAN_NONE at the end */
  int32_t running[STREAM_COUNT];
  uint32_t waited[STREAM_COUNT]; /* events of `next` that have been recorded */
  double left[STREAM_COUNT];     /* ns of work */
  double now;
} Machine;

static void load_segment(Machine *m, const PlanSegment *segment) {
  for (int q = 0; q < STREAM_COUNT; q++) m->next[q] = m->running[q] = PLAN_NONE, m->waited[q] = 0;
  for (int32_t i = segment->end; i-- > segment->first;) {
    uint32_t queue = m->plan->queue[m->plan->instrs.data[i].stream];
    m->follows[i] = m->next[queue];
    m->next[queue] = i;
  }
}

/* Starts what a queue can start; true when it did. */
static bool start_next(Machine *m, int q, SimSpan *spans) {
  int32_t i = m->next[q];
  if (i == PLAN_NONE || m->running[q] != PLAN_NONE) return false;
  const PlanInstr *instr = &m->plan->instrs.data[i];
  while (m->waited[q] < instr->wait_count && m->recorded[m->plan->waits.data[instr->waits + m->waited[q]]])
    m->waited[q]++;
  if (m->waited[q] < instr->wait_count) return false;
  m->running[q] = i;
  m->left[q] = (double)instr->ns;
  m->next[q] = m->follows[i];
  m->waited[q] = 0;
  spans[i].start = (uint64_t)(m->now + 0.5);
  return true;
}

static bool finish(Machine *m, int q, SimSpan *spans) {
  int32_t i = m->running[q];
  if (i == PLAN_NONE || m->left[q] > 0) return false;
  int32_t event = m->plan->instrs.data[i].record;
  if (event != PLAN_NONE) m->recorded[event] = true;
  spans[i].end = (uint64_t)(m->now + 0.5);
  m->running[q] = PLAN_NONE;
  return true;
}

/* Starts and ends everything that happens now. */
static void settle_now(Machine *m, SimSpan *spans) {
  for (bool again = true; again;) {
    again = false;
    for (int q = 0; q < STREAM_COUNT; q++) {
      again |= start_next(m, q, spans);
      again |= finish(m, q, spans);
    }
  }
}

/* How fast each queue's instruction progresses while the present set runs. */
static void set_rates(const Machine *m, double rate[STREAM_COUNT]) {
  bool computes = false, communicates = false;
  const PlanInstr *instrs = m->plan->instrs.data;
  for (int q = 0; q < STREAM_COUNT; q++) {
    if (m->running[q] == PLAN_NONE) continue;
    computes |= instrs[m->running[q]].stream == STREAM_COMPUTE;
    communicates |= is_communication(instrs[m->running[q]].stream);
  }
  for (int q = 0; q < STREAM_COUNT; q++) {
    if (m->running[q] == PLAN_NONE) continue;
    StreamId stream = instrs[m->running[q]].stream;
    rate[q] = 1;
    if (stream == STREAM_COMPUTE && communicates) rate[q] = 1 - share(m->plan->overlap.contention);
    if (is_communication(stream) && computes) rate[q] = 1 / (1 + share(m->plan->overlap.comm_slowdown));
  }
}

/* To the next end of an instruction; false when nothing runs. */
static bool advance(Machine *m) {
  double rate[STREAM_COUNT] = {0}, step = INFINITY;
  set_rates(m, rate);
  for (int q = 0; q < STREAM_COUNT; q++)
    if (m->running[q] != PLAN_NONE && rate[q] > 0) step = fmin(step, m->left[q] / rate[q]);
  if (!isfinite(step)) return false;
  for (int q = 0; q < STREAM_COUNT; q++) {
    if (m->running[q] == PLAN_NONE) continue;
    bool ends = rate[q] > 0 && m->left[q] / rate[q] <= step;
    m->left[q] = ends ? 0 : m->left[q] - step * rate[q];
  }
  m->now += step;
  return true;
}

static double slowed_pass(Machine *m, const PlanSegment *segment, double begin, SimSpan *spans) {
  m->now = begin;
  load_segment(m, segment);
  do settle_now(m, spans);
  while (advance(m));
  return m->now;
}

/* --- exposed communication ------------------------------------------------------------------------------ */

/* Walks the instructions of one stream in list order, which is also their order in time. */
typedef struct Cursor {
  StreamId stream;
  int32_t at;
} Cursor;

static bool settle(Cursor *cursor, const Plan *plan, int32_t end) {
  while (cursor->at < end && plan->instrs.data[cursor->at].stream != cursor->stream) cursor->at++;
  return cursor->at < end;
}

/* The earliest of the communication cursors, or NULL. */
static Cursor *earliest(Cursor *cursors, int count, const Plan *plan, const SimSpan *spans, int32_t end) {
  Cursor *best = NULL;
  for (int i = 0; i < count; i++)
    if (settle(&cursors[i], plan, end) && (!best || spans[cursors[i].at].start < spans[best->at].start))
      best = &cursors[i];
  return best;
}

/* Of [begin, end), what no compute instruction covers. The cursor only moves forward: calls come in order of
 * time. */
static uint64_t uncovered(Cursor *compute, const Plan *plan, const SimSpan *spans, int32_t last,
                          uint64_t begin, uint64_t end) {
  uint64_t free_ns = 0;
  while (begin < end) {
    while (settle(compute, plan, last) && spans[compute->at].end <= begin) compute->at++;
    if (compute->at >= last || spans[compute->at].start >= end) return free_ns + (end - begin);
    if (spans[compute->at].start > begin) free_ns += spans[compute->at].start - begin;
    begin = spans[compute->at].end;
  }
  return free_ns;
}

static uint64_t exposed(const Plan *plan, const SimSpan *spans, const PlanSegment *segment) {
  int32_t from = segment->first;
  Cursor cursors[] = {{STREAM_GATHER, from}, {STREAM_REDUCE, from}, {STREAM_REPLICATE, from}};
  Cursor compute = {STREAM_COMPUTE, from};
  uint64_t seen = 0, total = 0; /* communication before `seen` is accounted for */
  for (Cursor *next; (next = earliest(cursors, 3, plan, spans, segment->end)); next->at++) {
    uint64_t begin = larger(spans[next->at].start, seen), end = spans[next->at].end;
    if (begin < end) total += uncovered(&compute, plan, spans, segment->end, begin, end);
    seen = larger(seen, end);
  }
  return total;
}

/* --- a step --------------------------------------------------------------------------------------------- */

static double busy_communication(const Plan *plan, const PlanSegment *segment) {
  double ns = 0;
  for (int32_t i = segment->first; i < segment->end; i++)
    if (is_communication(plan->instrs.data[i].stream)) ns += (double)plan->instrs.data[i].ns;
  return ns;
}

/* fast_ns and slow_ns; a nanosecond of each segment is given away to rounding. */
static void bound_step(Clocks *clocks, const Plan *plan, SimResult *result) {
  const PlanOverlap *overlap = &plan->overlap;
  double fast = 0, slow = 0,
         longest = (1 + share(overlap->comm_spread)) * (1 + share(overlap->comm_slowdown));
  for (uint32_t s = 0; s < plan->segments.count && s < SEGMENTS_MAX; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    clocks->compute = 1 - share(overlap->compute_spread);
    clocks->comm = 1 - share(overlap->comm_spread);
    fast += (double)segment->count * fmax(0, pass(clocks, plan, segment, 0, NULL) - 1);
    clocks->compute = 1 + share(overlap->compute_spread);
    clocks->comm = longest;
    double delay = share(overlap->contention) * longest * busy_communication(plan, segment);
    slow += (double)segment->count * (pass(clocks, plan, segment, 0, NULL) + delay + 1);
  }
  result->fast_ns = (uint64_t)fast;
  result->slow_ns = (uint64_t)ceil(slow);
}

void plan_simulate(Arena *arena, const Plan *plan, SimResult *result) {
  memset(result, 0, sizeof *result);
  result->spans = ARENA_ARRAY(arena, SimSpan, plan->instrs.count);
  Clocks clocks = {.event = ARENA_ARRAY(arena, double, plan->event_count), .compute = 1, .comm = 1};
  Machine machine = {.plan = plan};
  bool slows = share(plan->overlap.contention) > 0 || share(plan->overlap.comm_slowdown) > 0;
  if (slows) {
    machine.follows = ARENA_ARRAY(arena, int32_t, plan->instrs.count);
    machine.recorded = ARENA_ARRAY(arena, bool, plan->event_count);
  }
  for (uint32_t s = 0; s < plan->segments.count && s < SEGMENTS_MAX; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    double begin = (double)result->step_ns;
    double end = slows ? slowed_pass(&machine, segment, begin, result->spans)
                       : pass(&clocks, plan, segment, begin, result->spans);
    result->segment_ns[s] = (uint64_t)(end - begin + 0.5);
    result->step_ns += result->segment_ns[s] * segment->count;
    result->exposed_comm_ns += exposed(plan, result->spans, segment) * segment->count;
  }
  bound_step(&clocks, plan, result);
}
