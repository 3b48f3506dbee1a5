/* Owns: see exposed.h. */
#include "planner/view/exposed.h"

enum { LANES = 3 };
static const StreamId lanes[LANES] = {STREAM_GATHER, STREAM_REDUCE, STREAM_REPLICATE};

/* Instructions of one communication stream in one segment, in order of time. */
typedef struct Lane {
  int32_t *instrs;
  uint32_t count, at; /* at: the first that may still matter */
} Lane;

typedef struct Sweep {
  const Facts *facts;
  uint64_t *exposed;
  Lane lane[LANES];
} Sweep;

static SimSpan span_of(const Sweep *sweep, int32_t i) {
  return sweep->facts->sim->spans[i];
}

static void fill_lanes(Sweep *sweep, const PlanSegment *segment) {
  for (int l = 0; l < LANES; l++) sweep->lane[l].count = sweep->lane[l].at = 0;
  for (int32_t i = segment->first; i < segment->end; i++)
    for (int l = 0; l < LANES; l++)
      if (sweep->facts->plan->instrs.data[i].stream == lanes[l] && span_of(sweep, i).end > span_of(sweep, i).start)
        sweep->lane[l].instrs[sweep->lane[l].count++] = i;
}

/* The stream whose instruction holds up `next`, or that ends last when compute is done (next PLAN_NONE). */
static int blocker(const Sweep *sweep, int32_t next) {
  const Plan *plan = sweep->facts->plan;
  uint64_t latest = 0;
  int best = 0;
  if (next == PLAN_NONE) {
    for (int l = 0; l < LANES; l++) {
      const Lane *lane = &sweep->lane[l];
      uint64_t end = lane->count ? span_of(sweep, lane->instrs[lane->count - 1]).end : 0;
      if (end > latest) latest = end, best = l;
    }
    return best;
  }
  const PlanInstr *instr = &plan->instrs.data[next];
  for (uint32_t w = 0; w < instr->wait_count; w++) {
    int32_t recorder = sweep->facts->recorder[plan->waits.data[instr->waits + w]];
    if (recorder == PLAN_NONE) continue;
    for (int l = 0; l < LANES; l++)
      if (plan->instrs.data[recorder].stream == lanes[l] && span_of(sweep, recorder).end > latest)
        latest = span_of(sweep, recorder).end, best = l;
  }
  return best;
}

/* Charges [begin, end), in which compute is idle. */
static void charge(Sweep *sweep, uint64_t begin, uint64_t end, int32_t next) {
  int guilty = blocker(sweep, next);
  while (begin < end) {
    uint64_t until = end;
    int32_t charged = PLAN_NONE;
    for (int k = 0; k < LANES; k++) {
      Lane *lane = &sweep->lane[(guilty + k) % LANES];
      while (lane->at < lane->count && span_of(sweep, lane->instrs[lane->at]).end <= begin) lane->at++;
      if (lane->at == lane->count) continue;
      SimSpan span = span_of(sweep, lane->instrs[lane->at]);
      uint64_t change = span.start > begin ? span.start : span.end;
      if (change < until) until = change;
      if (span.start <= begin && charged == PLAN_NONE) charged = lane->instrs[lane->at];
    }
    if (charged != PLAN_NONE) sweep->exposed[charged] += until - begin;
    begin = until;
  }
}

uint64_t *exposed_by_instr(const Facts *facts) {
  const Plan *plan = facts->plan;
  Arena *scratch = arena_new();
  Sweep sweep = {.facts = facts, .exposed = ARENA_ARRAY(facts->arena, uint64_t, plan->instrs.count)};
  for (int l = 0; l < LANES; l++) sweep.lane[l].instrs = ARENA_ARRAY(scratch, int32_t, plan->instrs.count);
  for (uint32_t s = 0; s < plan->segments.count && s < 8; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    uint64_t at = facts->segment_begin[s], end = at + facts->sim->segment_ns[s];
    fill_lanes(&sweep, segment);
    for (int32_t i = segment->first; i < segment->end; i++) {
      SimSpan span = span_of(&sweep, i);
      if (plan->instrs.data[i].stream != STREAM_COMPUTE || span.end == span.start) continue;
      if (span.start > at) charge(&sweep, at, span.start, i);
      if (span.end > at) at = span.end;
    }
    if (at < end) charge(&sweep, at, end, PLAN_NONE);
  }
  arena_free(scratch);
  return sweep.exposed;
}
