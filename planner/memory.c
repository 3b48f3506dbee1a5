/* Owns: addresses. Persistent buffers lie at the bottom of the arena, the others above: as a stack with the brief ones hung
 * from the top (memory_stack.c), and where that does not reach the goal by offline best fit, each into the tightest gap
 * left by those that are live at the same time, in several orders, the last of them with what lies highest put earlier again
 * and again. The best is kept.
 *
 * requires: first and last of every buffer. provides: offsets, arena_bytes. The excess over max_live_bytes is what
 * fragmentation costs. */
#include "base/checked.h"
#include "planner/emit.h"
#include "planner/memory_stack.h"

#include <stdlib.h>

typedef struct Placed {
  uint64_t offset, end;
  int32_t first, last;
} Placed;

static int by_id(const PlanBuf *x, const PlanBuf *y) { return (x > y) - (x < y); }

static int by_size(const void *a, const void *b) {
  const PlanBuf *x = *(PlanBuf *const *)a, *y = *(PlanBuf *const *)b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return by_id(x, y);
}

static int by_lifetime(const void *a, const void *b) {
  const PlanBuf *x = *(PlanBuf *const *)a, *y = *(PlanBuf *const *)b;
  int32_t p = x->last - x->first, q = y->last - y->first;
  return p != q ? (p > q ? -1 : 1) : by_size(a, b);
}

static int by_area(const void *a, const void *b) {
  const PlanBuf *x = *(PlanBuf *const *)a, *y = *(PlanBuf *const *)b;
  double p = (double)x->bytes * (x->last - x->first + 1), q = (double)y->bytes * (y->last - y->first + 1);
  return p != q ? (p > q ? -1 : 1) : by_size(a, b);
}

static bool is_unit_sized(const PlanBuf *buf) { return buf->class == BUF_GATHERED || buf->class == BUF_GRADFULL; }

/* The few large buffers that come and go lie together; saved tensors stack above them. */
static int by_class_then_lifetime(const void *a, const void *b) {
  const PlanBuf *x = *(PlanBuf *const *)a, *y = *(PlanBuf *const *)b;
  if (is_unit_sized(x) != is_unit_sized(y)) return is_unit_sized(x) ? -1 : 1;
  return is_unit_sized(x) ? by_size(a, b) : by_lifetime(a, b);
}

static int by_lifetime_then_class(const void *a, const void *b) {
  const PlanBuf *x = *(PlanBuf *const *)a, *y = *(PlanBuf *const *)b;
  if (is_unit_sized(x) != is_unit_sized(y)) return is_unit_sized(x) ? 1 : -1;
  return is_unit_sized(x) ? by_size(a, b) : by_lifetime(a, b);
}

static uint64_t find_gap(const Placed *placed, uint32_t count, uint64_t base, const PlanBuf *buf, uint64_t size) {
  uint64_t cursor = base, best = UINT64_MAX, best_waste = UINT64_MAX;
  for (uint32_t i = 0; i < count; i++) {
    const Placed *p = &placed[i];
    if (p->first > buf->last || p->last < buf->first) continue;
    if (p->offset >= cursor + size && p->offset - cursor - size < best_waste) {
      best = cursor;
      best_waste = p->offset - cursor - size;
    }
    if (p->end > cursor) cursor = p->end;
  }
  return best == UINT64_MAX ? cursor : best;
}

static void insert(Placed *placed, uint32_t count, Placed entry) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (placed[middle].offset <= entry.offset)
      low = middle + 1;
    else
      high = middle;
  }
  memmove(placed + low + 1, placed + low, (count - low) * sizeof *placed);
  placed[low] = entry;
}

typedef int (*Order)(const void *, const void *);

static const Order orders[] = {by_size, by_class_then_lifetime, by_lifetime, by_area, by_lifetime_then_class};

/* With many buffers the last two never won. */
enum { MANY_BUFFERS = 3000, ORDERS_OF_MANY = 3 };

/* Beyond this many buffers only the fast way is tried, in two orders: the others are quadratic. */
enum { QUADRATIC_BUFFERS = 4000 };

/* Pairs of buffers that promotions may look at, for one segment. */
enum { PROMOTION_PAIRS = 4000000, MOST_PROMOTIONS = 200 };

/* Bytes of arena that buffers need in this order; offsets are set. UINT64_MAX: `limit` at least. */
static uint64_t place_listed(PlanBuf **bufs, uint32_t count, uint64_t base, uint64_t limit, Placed *placed) {
  uint64_t most = base;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t size = round_up(bufs[i]->bytes, PLAN_ALIGN_BYTES);
    bufs[i]->offset = find_gap(placed, i, base, bufs[i], size);
    uint64_t end = bufs[i]->offset + size;
    insert(placed, i, (Placed){bufs[i]->offset, end, bufs[i]->first, bufs[i]->last});
    if (end > most) most = end;
    if (most >= limit) return UINT64_MAX;
  }
  return most;
}

static uint64_t place_in_order(PlanBuf **bufs, uint32_t count, uint64_t base, uint64_t limit, Order order, Placed *placed) {
  qsort(bufs, count, sizeof *bufs, order);
  return place_listed(bufs, count, base, limit, placed);
}

static uint32_t highest(PlanBuf *const *bufs, uint32_t count) {
  uint32_t most = 0;
  for (uint32_t i = 1; i < count; i++)
    if (bufs[i]->offset + bufs[i]->bytes > bufs[most]->offset + bufs[most]->bytes) most = i;
  return most;
}

/* What lies highest is placed earlier, at half its position, until nothing exceeds the goal or nothing moves. bytes: what the
 * order takes as it is. */
static uint64_t promote(PlanBuf **bufs, uint32_t count, uint64_t base, uint64_t goal, uint64_t bytes, Placed *placed) {
  Arena *scratch = arena_new();
  PlanBuf **best = ARENA_ARRAY(scratch, PlanBuf *, count);
  uint64_t tries = PROMOTION_PAIRS / ((uint64_t)count * count + 1), now = bytes;
  memcpy(best, bufs, count * sizeof *best);
  for (uint64_t t = 0; t < tries && t < MOST_PROMOTIONS && bytes > goal; t++) {
    uint32_t at = highest(bufs, count);
    if (at == 0) break;
    PlanBuf *buf = bufs[at];
    memmove(bufs + at / 2 + 1, bufs + at / 2, (at - at / 2) * sizeof *bufs);
    bufs[at / 2] = buf;
    now = place_listed(bufs, count, base, UINT64_MAX, placed);
    if (now >= bytes) continue;
    bytes = now;
    memcpy(best, bufs, count * sizeof *best);
  }
  if (now > bytes) place_listed(best, count, base, UINT64_MAX, placed);
  arena_free(scratch);
  return bytes;
}

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

/* The best of the quadratic orders, if one beats `bytes`; promotions where buffers are live that could fit the goal. */
static uint64_t place_by_orders(Plan *plan, const PlanSegment *segment, uint64_t base, uint64_t goal, uint64_t least, uint64_t bytes) {
  Arena *scratch = arena_new();
  PlanBuf **bufs = ARENA_ARRAY(scratch, PlanBuf *, plan->bufs.count);
  Placed *placed = ARENA_ARRAY(scratch, Placed, plan->bufs.count);
  uint32_t count = 0, tried = 0, last = UINT32_MAX;
  Order best = NULL;
  for (uint32_t b = 0; b < plan->bufs.count; b++)
    if (lives_in(&plan->bufs.data[b], segment)) bufs[count++] = &plan->bufs.data[b];
  uint32_t all = count > MANY_BUFFERS ? ORDERS_OF_MANY : sizeof orders / sizeof *orders;
  for (; tried < all && bytes > goal; tried++) {
    uint64_t needed = place_in_order(bufs, count, base, bytes, orders[tried], placed);
    if (needed >= bytes) continue;
    bytes = needed;
    best = orders[tried];
    last = tried;
  }
  bool promotes = bytes > goal && goal >= least && bytes != UINT64_MAX;
  if (promotes && !best) best = orders[0]; /* worse than `bytes`, but a place to start */
  if (best && (promotes || last + 1 != tried)) bytes = place_in_order(bufs, count, base, UINT64_MAX, best, placed);
  if (promotes) bytes = promote(bufs, count, base, goal, bytes, placed);
  arena_free(scratch);
  return bytes;
}

/* The better one of two orders, of which the first has been tried. */
static uint64_t stack_by_area(Plan *plan, StackInput input, uint64_t by_size) {
  Arena *scratch = arena_new();
  uint64_t *first = ARENA_ARRAY(scratch, uint64_t, plan->bufs.count);
  for (uint32_t b = 0; b < plan->bufs.count; b++) first[b] = plan->bufs.data[b].offset;
  input.order = STACK_BY_AREA;
  uint64_t by_area = memory_stack(plan, &input);
  for (uint32_t b = 0; b < plan->bufs.count && by_area > by_size; b++) plan->bufs.data[b].offset = first[b];
  arena_free(scratch);
  return by_area <= by_size ? by_area : by_size;
}

/* Buffers live within one segment, so each segment has the arena above `base` to itself. Returns where it ends. */
static uint64_t place_segment(Plan *plan, const PlanSegment *segment, uint64_t base, uint64_t goal, uint64_t least) {
  uint64_t top = (goal > least && goal < 2 * least ? goal : least) / PLAN_ALIGN_BYTES * PLAN_ALIGN_BYTES;
  uint32_t count = 0;
  for (uint32_t b = 0; b < plan->bufs.count; b++) count += lives_in(&plan->bufs.data[b], segment);
  if (!count) return base;
  StackInput input = {segment->first, segment->end, find_turn(plan, segment), base, top, STACK_BY_SIZE};
  uint64_t stacked = memory_stack(plan, &input);
  if (stacked <= goal) return stacked;
  if (count > QUADRATIC_BUFFERS && stacked != UINT64_MAX) return stack_by_area(plan, input, stacked);
  uint64_t end = place_by_orders(plan, segment, base, goal, least, stacked);
  if (end < stacked || stacked == UINT64_MAX) return end;
  return memory_stack(plan, &input);
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

void memory_place(Plan *plan, uint64_t goal) {
  place_host(plan);
  uint64_t base = place_persistent(plan), least = round_up(plan->max_live_bytes, PLAN_ALIGN_BYTES);
  plan->arena_bytes = base;
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    uint64_t end = place_segment(plan, &plan->segments.data[s], base, goal, least);
    if (end > plan->arena_bytes) plan->arena_bytes = end;
  }
}
