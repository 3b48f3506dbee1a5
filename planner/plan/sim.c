/* Owns: the clocks of a simulated step. Simplified on purpose: an instruction takes its predicted ns whatever
 * runs beside it, launching costs nothing, and repetitions of a segment are alike because all queues join
 * between them. */
#include "planner/plan/sim.h"

enum { SEGMENTS_MAX = 8 };

typedef struct Clocks {
  uint64_t queue[STREAM_COUNT]; /* when it is free */
  uint64_t *event;              /* when it was recorded */
} Clocks;

static uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static SimSpan run(Clocks *clocks, const Plan *plan, const PlanInstr *instr) {
  uint64_t *queue = &clocks->queue[plan->queue[instr->stream]];
  uint64_t start = *queue;
  for (uint32_t i = 0; i < instr->wait_count; i++)
    start = larger(start, clocks->event[plan->waits.data[instr->waits + i]]);
  *queue = start + instr->ns;
  if (instr->record != PLAN_NONE) clocks->event[instr->record] = *queue;
  return (SimSpan){start, *queue};
}

/* All queues wait for each other; returns when. */
static uint64_t join(Clocks *clocks) {
  uint64_t latest = 0;
  for (int q = 0; q < STREAM_COUNT; q++) latest = larger(latest, clocks->queue[q]);
  for (int q = 0; q < STREAM_COUNT; q++) clocks->queue[q] = latest;
  return latest;
}

/* --- exposed communication --------------------------------------------------------------------------- */

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

/* --- a step ------------------------------------------------------------------------------------------ */

static void account(SimResult *result, const PlanInstr *instr, uint64_t count) {
  result->busy_ns[instr->stream] += instr->ns * count;
  if (instr->stream == STREAM_COMPUTE) result->phase_ns[instr->phase] += instr->ns * count;
}

void plan_simulate(Arena *arena, const Plan *plan, SimResult *result) {
  memset(result, 0, sizeof *result);
  result->spans = ARENA_ARRAY(arena, SimSpan, plan->instrs.count);
  Clocks clocks = {.event = ARENA_ARRAY(arena, uint64_t, plan->event_count)};
  for (uint32_t s = 0; s < plan->segments.count && s < SEGMENTS_MAX; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    for (int q = 0; q < STREAM_COUNT; q++) clocks.queue[q] = result->step_ns;
    for (int32_t i = segment->first; i < segment->end; i++) {
      result->spans[i] = run(&clocks, plan, &plan->instrs.data[i]);
      account(result, &plan->instrs.data[i], segment->count);
    }
    result->segment_ns[s] = join(&clocks) - result->step_ns;
    result->step_ns += result->segment_ns[s] * segment->count;
    result->exposed_comm_ns += exposed(plan, result->spans, segment) * segment->count;
  }
}
