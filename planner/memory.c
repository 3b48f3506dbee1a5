/* Owns: addresses. Persistent buffers lie at the bottom of the arena, the others above: as a stack with the brief ones hung
 * from the top (memory_stack.c), and where that does not reach the goal by offline best fit, each into the tightest gap
 * left by those that are live at the same time, in several orders, then by first fit with what ends above the goal placed earlier,
 * again and again: squeaky wheel optimization (Joslin and Clements, JAIR 10, 1999). The best is kept.
 *
 * requires: first and last of every buffer. provides: offsets, arena_bytes. The excess over max_live_bytes is what
 * fragmentation costs. */
#include "base/checked.h"
#include "planner/emit.h"
#include "planner/memory_gaps.h"
#include "planner/memory_stack.h"

#include <stdlib.h>

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

/* The large ones as they come, which lets them take turns in the same places. */
static int by_turns_then_area(const void *a, const void *b) {
  const PlanBuf *x = *(PlanBuf *const *)a, *y = *(PlanBuf *const *)b;
  if (is_unit_sized(x) != is_unit_sized(y)) return is_unit_sized(x) ? -1 : 1;
  if (!is_unit_sized(x)) return by_area(a, b);
  return x->first != y->first ? (x->first < y->first ? -1 : 1) : by_size(a, b);
}

typedef int (*Order)(const void *, const void *);

static const Order orders[] = {by_size, by_class_then_lifetime, by_lifetime, by_area, by_lifetime_then_class};

/* With many buffers the last two never won. */
enum { MANY_BUFFERS = 3000, ORDERS_OF_MANY = 3 };

/* Beyond this many buffers only the fast way is tried, in two orders: the others are quadratic. */
enum { QUADRATIC_BUFFERS = 4000 };

/* Where blame begins, how far ahead, in parts of its place, it puts a buffer, and whether every second large one hangs from the goal:
 * large ones of unlike sizes that take turns in pairs then leave the middle to the others. */
typedef struct Blame {
  Order order;
  double ahead;
  bool hangs;
} Blame;

static const Blame blames[] = {
    {by_turns_then_area, 0.25, true}, {by_lifetime, 0.25, false}, {by_lifetime, 0.5, false}, {by_turns_then_area, 0.25, false}};
/* One way's share of the effort that is left. */
enum { BLAMES = sizeof blames / sizeof *blames, EFFORT_SHARE = 8, MOST_ROUNDS = 150 };
/* A way that still ends this far above the goal after so many rounds never reached it. */
enum { EARLY_ROUNDS = 12 };
static const double OUT_OF_REACH = 1.02;

/* The ways of placing a segment's buffers, and the best one so far. */
typedef struct Placing {
  PlanBuf **bufs; /* in the order of the way tried last */
  PlanBuf **all;  /* as they are listed */
  uint32_t count;
  uint64_t base, goal;
  uint64_t bytes;    /* where the best way ends; UINT64_MAX: none yet */
  uint64_t *offsets; /* of all, by it */
  bool *hangs;       /* by the plan's buffer: it takes the highest gap */
  const PlanBuf *plan_bufs;
  Gaps gaps;
} Placing;

static void keep_better(Placing *p, uint64_t bytes) {
  if (bytes >= p->bytes) return;
  p->bytes = bytes;
  for (uint32_t i = 0; i < p->count; i++) p->offsets[i] = p->all[i]->offset;
}

static bool is_done(const Placing *p) { return p->bytes <= p->goal; }

/* Bytes of arena that buffers need in this order; offsets are set. UINT64_MAX: `limit` at least. */
static uint64_t place_listed(Placing *p, uint64_t limit, Fit fit) {
  uint64_t most = p->base;
  gaps_clear(&p->gaps);
  for (uint32_t i = 0; i < p->count; i++) {
    PlanBuf *buf = p->bufs[i];
    uint64_t size = round_up(buf->bytes, PLAN_ALIGN_BYTES), end;
    buf->offset = p->hangs[buf - p->plan_bufs] ? gaps_find_last(&p->gaps, p->base, p->goal, size, buf->first, buf->last)
                                               : gaps_find(&p->gaps, p->base, size, buf->first, buf->last, fit);
    end = buf->offset + size;
    gaps_take(&p->gaps, (Taken){buf->offset, end, buf->first, buf->last});
    if (end > most) most = end;
    if (most >= limit) return UINT64_MAX;
  }
  return most;
}

static void place_by_orders(Placing *p) {
  uint32_t all = p->count > MANY_BUFFERS ? ORDERS_OF_MANY : sizeof orders / sizeof *orders;
  for (uint32_t i = 0; i < all && !is_done(p); i++) {
    qsort(p->bufs, p->count, sizeof *p->bufs, orders[i]);
    keep_better(p, place_listed(p, p->bytes, BEST_FIT));
  }
}

/* Those that end above the goal, each put ahead by a part of its place among the others. Both keep their order: a merge. */
static void put_ahead(Placing *p, double ahead, PlanBuf **next) {
  PlanBuf **bufs = p->bufs;
  uint32_t calm = 0, blamed = 0;
  for (uint32_t i = 0; i < p->count; i++) {
    while (blamed < p->count && bufs[blamed]->offset + bufs[blamed]->bytes <= p->goal) blamed++;
    while (calm < p->count && bufs[calm]->offset + bufs[calm]->bytes > p->goal) calm++;
    bool take_blamed = blamed < p->count && (calm == p->count || (1 - ahead) * blamed <= calm);
    next[i] = bufs[take_blamed ? blamed++ : calm++];
  }
  memcpy(bufs, next, p->count * sizeof *bufs);
}

static void hang_every_second(Placing *p, bool hangs) {
  bool second = false;
  for (uint32_t i = 0; i < p->count; i++) {
    if (!is_unit_sized(p->bufs[i])) continue;
    p->hangs[p->bufs[i] - p->plan_bufs] = second && hangs;
    second = !second;
  }
}

/* effort: entries that may be looked at. */
static void place_by_blame(Placing *p, const Blame *way, uint64_t effort) {
  Arena *scratch = arena_new();
  PlanBuf **next = ARENA_ARRAY(scratch, PlanBuf *, p->count);
  uint64_t before = p->gaps.looked;
  qsort(p->bufs, p->count, sizeof *p->bufs, way->order);
  hang_every_second(p, way->hangs);
  uint64_t least = UINT64_MAX;
  for (int r = 0; r < MOST_ROUNDS && !is_done(p) && p->gaps.looked - before < effort; r++) {
    if (r >= EARLY_ROUNDS && (double)least > OUT_OF_REACH * (double)p->goal) break;
    if (r) put_ahead(p, way->ahead, next);
    uint64_t bytes = place_listed(p, UINT64_MAX, FIRST_FIT);
    if (bytes < least) least = bytes;
    keep_better(p, bytes);
  }
  arena_free(scratch);
}

static void place_by_blames(Placing *p, uint64_t *effort) {
  for (uint32_t i = 0; i < BLAMES && !is_done(p); i++) {
    uint64_t before = p->gaps.looked;
    place_by_blame(p, &blames[i], *effort / EFFORT_SHARE);
    uint64_t spent = p->gaps.looked - before;
    *effort = spent < *effort ? *effort - spent : 0;
  }
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

static void open_placing(Arena *arena, Plan *plan, const PlanSegment *segment, uint64_t base, uint64_t goal, Placing *p) {
  uint32_t all = plan->bufs.count;
  *p = (Placing){.bufs = ARENA_ARRAY(arena, PlanBuf *, all),
                 .all = ARENA_ARRAY(arena, PlanBuf *, all),
                 .base = base,
                 .goal = goal / PLAN_ALIGN_BYTES * PLAN_ALIGN_BYTES, /* everything else is a multiple */
                 .bytes = UINT64_MAX,
                 .offsets = ARENA_ARRAY(arena, uint64_t, all),
                 .hangs = ARENA_ARRAY(arena, bool, all),
                 .plan_bufs = plan->bufs.data};
  for (uint32_t b = 0; b < all; b++)
    if (lives_in(&plan->bufs.data[b], segment)) p->bufs[p->count] = p->all[p->count] = &plan->bufs.data[b], p->count++;
}

/* Buffers live within one segment, so each segment has the arena above `base` to itself. least: what is live there at most, with
 * what persists. Returns where it ends. */
static uint64_t place_segment(Plan *plan, const PlanSegment *segment, uint64_t base, uint64_t goal, uint64_t least, uint64_t *effort) {
  uint64_t top = (goal > least && goal < 2 * least ? goal : least) / PLAN_ALIGN_BYTES * PLAN_ALIGN_BYTES;
  StackInput input = {segment->first, segment->end, find_turn(plan, segment), base, top, STACK_BY_SIZE};
  Arena *scratch = arena_new();
  Placing p;
  open_placing(scratch, plan, segment, base, goal, &p);
  if (p.count == 0) p.bytes = base;
  if (!is_done(&p)) keep_better(&p, memory_stack(plan, &input));
  if (!is_done(&p) && p.count > QUADRATIC_BUFFERS && p.bytes != UINT64_MAX) {
    input.order = STACK_BY_AREA;
    keep_better(&p, memory_stack(plan, &input));
  } else if (!is_done(&p)) {
    gaps_open(&p.gaps, scratch, p.count, segment->first, segment->end);
    place_by_orders(&p);
    if (goal >= least && !is_done(&p)) place_by_blames(&p, effort);
  }
  for (uint32_t i = 0; i < p.count; i++) p.all[i]->offset = p.offsets[i];
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
    uint64_t end = place_segment(plan, &plan->segments.data[s], base, goal, least, effort);
    if (end > plan->arena_bytes) plan->arena_bytes = end;
  }
}
