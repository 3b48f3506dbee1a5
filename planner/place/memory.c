/* Owns: addresses. Persistent buffers lie at the bottom of the arena, the others above: as a stack with the brief ones hung
 * from the top (memory_stack.c), of which what ends too high is placed again (memory_repair.c), and where that does not reach the
 * goal by offline best fit, each into the tightest gap left by those that are live at the same time, in several orders
 * (memory_order.c), from where memory is tightest (memory_core.c), and level by level (memory_levels.c). The best is kept.
 *
 * requires: first and last of every buffer. provides: offsets, arena_bytes. The excess over max_live_bytes is what
 * fragmentation costs. */
#include "base/checked.h"
#include "planner/place/memory_core.h"
#include "planner/place/memory_levels.h"
#include "planner/place/memory_repair.h"
#include "planner/place/memory_stack.h"
#include "planner/place/place.h"

#include <string.h>

/* Beyond so many buffers the orders come last, and looking from where memory is tightest has a share of the effort that is left, since each
 * takes long: what that reaches, it nearly always reaches soon. Beyond so many more only the fast way is tried: both are quadratic. */
enum { FEW_BUFFERS = 4000, ORDER_BUFFERS = 8000, SHARE_FOR_MANY = 32 };
/* Where no more end above the goal, they are placed again. */
enum { FEW_ABOVE = 6 };

/* The segment's first instruction of backward; its end when there is none. */
static int32_t find_turn(const Plan *plan, const PlanSegment *segment) {
  int32_t i = segment->first;
  while (i < segment->end && (plan->instrs.data[i].phase != PHASE_BACKWARD || plan->instrs.data[i].stream != STREAM_COMPUTE)) i++;
  return i;
}

static bool is_in(const PlanBuf *buf, const PlanSegment *segment) {
  return buf->first >= segment->first && buf->first < segment->end;
}

static bool lives_in(const PlanBuf *buf, const PlanSegment *segment) {
  return !buf->persistent && !buf->host && is_in(buf, segment);
}

static uint64_t place_persistent(Plan *plan) {
  uint64_t base = 0;
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    PlanBuf *buf = &plan->bufs.data[b];
    if (!buf->persistent || buf->host) continue;
    buf->offset = base;
    base += round_up(buf->bytes, PLAN_ALIGN_BYTES);
  }
  return base;
}

static void list_buffers(Plan *plan, const PlanSegment *segment, Placing *p) {
  placing_aim(p, segment->first, segment->end - 1);
  for (uint32_t b = 0; b < plan->bufs.count; b++)
    if (lives_in(&plan->bufs.data[b], segment)) placing_add(p, &plan->bufs.data[b]);
}

/* Only the fast way does without gaps. */
static void need_gaps(Placing *p, Arena *scratch) {
  if (p->gaps) return;
  Gaps *gaps = ARENA_NEW(scratch, Gaps);
  gaps_open(gaps, scratch, p->count);
  placing_prepare(scratch, p, p->count, gaps);
}

/* Places the few again that end above the goal, of buffers that have addresses. */
static void mend(Placing *p, Arena *scratch) {
  if (p->count > ORDER_BUFFERS || placing_above(p) > FEW_ABOVE) return;
  Placing part;
  need_gaps(p, scratch);
  placing_open(scratch, &part, p->count, p->base, p->goal);
  placing_prepare(scratch, &part, p->count, p->gaps);
  memory_repair(p, &part);
  placing_keep(p, placing_end(p));
}

/* The fast way in either order; then in both, hung from as much lower as they ended too high, if all that is live at once still
 * fits there: what finds no gap, and lies above the rest, then ends below the goal. */
static void place_fast(Plan *plan, StackInput input, uint64_t least, Placing *p, Arena *scratch) {
  static const StackOrder orders[] = {STACK_BY_AREA, STACK_BY_SIZE}; /* the first one reaches the goal more often */
  enum { ORDERS = sizeof orders / sizeof *orders };
  for (uint32_t i = 0; i < 2 * ORDERS && !placing_done(p); i++) {
    uint64_t excess = p->bytes - p->goal;
    if (i == ORDERS && (p->goal < least || excess > p->goal - least)) return;
    if (i == ORDERS) input.top -= excess;
    input.order = orders[i % ORDERS];
    placing_keep(p, memory_stack(plan, &input));
    if (!placing_done(p) && p->goal >= least) mend(p, scratch);
  }
}

static void place_many(Plan *plan, const StackInput *input, uint64_t least, uint64_t *effort, Placing *p, Arena *scratch) {
  place_fast(plan, *input, least, p, scratch);
  if (placing_done(p) || p->goal < least || p->count > ORDER_BUFFERS) return;
  const uint64_t most = *effort / SHARE_FOR_MANY;
  uint64_t left = most;
  need_gaps(p, scratch);
  memory_core(p, &left);
  *effort -= most - left;
  if (!placing_done(p)) place_by_orders(p);
}

/* Mending the stack comes after what places all anew, which waits less often for addresses. */
static void place_few(Plan *plan, const StackInput *input, uint64_t least, uint64_t *effort, Placing *p, Arena *scratch) {
  placing_keep(p, memory_stack(plan, input));
  if (placing_done(p)) return;
  const uint64_t stacked = p->bytes;
  uint64_t *stack = ARENA_ARRAY(scratch, uint64_t, p->count);
  memcpy(stack, p->offsets, p->count * sizeof *stack);
  need_gaps(p, scratch);
  place_by_orders(p);
  if (placing_done(p) || p->goal < least) return;
  memory_core(p, effort);
  if (!placing_done(p) && *effort && stacked != UINT64_MAX) {
    placing_set(p, stack);
    mend(p, scratch);
  }
  if (!placing_done(p)) memory_levels(p, effort);
}

/* Buffers live within one segment, so each segment has the arena above `base` to itself. least: what is live there at most, with
 * what persists. Returns where it ends. */
static uint64_t place_segment(Plan *plan, const PlanSegment *segment, uint64_t base, uint64_t goal, uint64_t least, uint64_t *effort) {
  uint64_t top = (goal > least && goal < 2 * least ? goal : least) / PLAN_ALIGN_BYTES * PLAN_ALIGN_BYTES;
  StackInput input = {segment->first, segment->end, find_turn(plan, segment), base, top, STACK_BY_SIZE};
  Arena *scratch = arena_new();
  Placing p;
  placing_open(scratch, &p, plan->bufs.count, base, goal / PLAN_ALIGN_BYTES * PLAN_ALIGN_BYTES);
  list_buffers(plan, segment, &p);
  if (p.count == 0)
    p.bytes = base;
  else if (p.count > FEW_BUFFERS && input.turn < input.end)
    place_many(plan, &input, least, effort, &p, scratch);
  else
    place_few(plan, &input, least, effort, &p, scratch);
  placing_restore(&p);
  arena_free(scratch);
  return p.bytes;
}

/* Buffers of the host arena: there is room, and what is offloaded in one segment is away at the same time, so that they simply
 * follow each other, each segment's above those that persist. */
static void place_host(Plan *plan) {
  uint64_t base = 0;
  for (int32_t s = PLAN_NONE; s < (int32_t)plan->segments.count; s++) {
    uint64_t at = s == PLAN_NONE ? 0 : base;
    for (uint32_t b = 0; b < plan->bufs.count; b++) {
      PlanBuf *buf = &plan->bufs.data[b];
      bool here = s == PLAN_NONE ? buf->persistent : !buf->persistent && is_in(buf, &plan->segments.data[s]);
      if (!buf->host || !here) continue;
      buf->offset = at;
      at += round_up(buf->bytes, PLAN_ALIGN_BYTES);
    }
    if (s == PLAN_NONE) base = at;
    if (at > plan->host_bytes) plan->host_bytes = at;
  }
}

void memory_place(Plan *plan, uint64_t goal, uint64_t *effort) {
  place_host(plan);
  uint64_t base = place_persistent(plan), least = round_up(plan->max_live_bytes, PLAN_ALIGN_BYTES);
  plan->arena_bytes = base;
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    uint64_t none = 0, *left = plan->arena_bytes > goal ? &none : effort; /* once one segment has failed, others need not fit */
    uint64_t end = place_segment(plan, &plan->segments.data[s], base, goal, least, left);
    if (end > plan->arena_bytes) plan->arena_bytes = end;
  }
}
