/* Owns: placing a segment's buffers from where memory is tightest. What is live throughout a window of
 * instructions around that stacks from the bottom, lowest what lives longest; what else the window holds is
 * placed above, in ever other orders, which takes little time since the window is small. The rest then goes
 * where there is room, and what ends above the goal is placed again together with what lives nearby, the
 * others staying where they are.
 *
 * Within a window lifetimes are cut to it, which loses nothing: of intervals on a line, two that meet and
 * both meet a third meet inside it. */
#include "planner/place/memory_core.h"
#include "planner/place/memory_levels.h"
#include "planner/place/memory_repair.h"

#include "base/checked.h"

#include <stdlib.h>

/* Buffers that a window is to hold, by turns. */
static const uint32_t cores[] = {150, 40, 80, 300, 600};
enum { CORES = sizeof cores / sizeof *cores };
/* One core's share of the effort that is left. */
enum { EFFORT_SHARE = 16 };

typedef struct Core {
  Placing *whole;
  Placing part;
  PlanBuf **through; /* live throughout the window */
  uint32_t through_count;
} Core;

/* The first instruction at which most bytes are live. */
static int32_t find_tightest(const Placing *p) {
  Arena *scratch = arena_new();
  int64_t *change = ARENA_ARRAY(scratch, int64_t, (size_t)(p->last - p->first) + 2), live = 0, most = 0;
  int32_t at = p->first;
  for (uint32_t i = 0; i < p->count; i++) {
    int64_t bytes = (int64_t)round_up(p->all[i]->bytes, PLAN_ALIGN_BYTES);
    change[p->all[i]->first - p->first] += bytes;
    change[p->all[i]->last - p->first + 1] -= bytes;
  }
  for (int32_t i = p->first; i <= p->last; i++) {
    live += change[i - p->first];
    if (live > most) most = live, at = i;
  }
  arena_free(scratch);
  return at;
}

/* --- the core ------------------------------------------------------------------------------------------ */

static int by_end(const void *a, const void *b) {
  const PlanBuf *x = *(PlanBuf *const *)a, *y = *(PlanBuf *const *)b;
  if (x->last != y->last) return x->last > y->last ? -1 : 1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x > y) - (x < y);
}

/* Returns where they end. */
static uint64_t stack_through(Core *c) {
  uint64_t top = c->whole->base;
  if (c->through_count) qsort(c->through, c->through_count, sizeof *c->through, by_end);
  for (uint32_t i = 0; i < c->through_count; i++) {
    c->through[i]->offset = top;
    top = placed_end(c->through[i]);
  }
  return top;
}

/* Level by level, upon what is live throughout. That takes at most a twelfth of the window's effort, and is not charged for: where it was, one of 136 long
 * plans had too little left, and was 0.44 % slower. */
static void place_upon(Placing *part, uint64_t top, uint64_t effort) {
  const uint64_t base = part->base;
  part->base = top;
  memory_levels(part, &effort);
  part->base = base;
}

/* What meets [first, last]. Returns where it ends. */
static uint64_t place_core(Core *c, int32_t first, int32_t last, uint64_t effort) {
  const Placing *p = c->whole;
  c->through_count = 0;
  placing_aim(&c->part, first, last);
  for (uint32_t i = 0; i < p->count; i++) {
    if (!placing_meets(p->all[i], first, last)) continue;
    if (p->all[i]->first <= first && p->all[i]->last >= last)
      c->through[c->through_count++] = p->all[i];
    else
      placing_add(&c->part, p->all[i]);
  }
  uint64_t top = stack_through(c);
  if (c->through_count) c->part.fixed[c->part.fixed_count++] = (Taken){p->base, top, first, last};
  if (c->part.count == 0) return top;
  place_by_blame(&c->part, effort);
  if (!placing_done(&c->part)) place_upon(&c->part, top, effort);
  placing_restore(&c->part);
  return c->part.bytes > top ? c->part.bytes : top;
}

/* What does not, in the gaps that are left. Returns where it ends. */
static uint64_t place_rest(Core *c, int32_t first, int32_t last) {
  const Placing *p = c->whole;
  placing_aim(&c->part, p->first, p->last);
  for (uint32_t i = 0; i < p->count; i++) {
    if (placing_meets(p->all[i], first, last))
      placing_fix(&c->part, p->all[i]);
    else
      placing_add(&c->part, p->all[i]);
  }
  place_once(&c->part);
  return c->part.bytes;
}

void memory_core(Placing *p, uint64_t *effort) {
  Arena *scratch = arena_new();
  Core c = {.whole = p, .through = ARENA_ARRAY(scratch, PlanBuf *, p->count)};
  placing_open(scratch, &c.part, p->count, p->base, p->goal);
  placing_prepare(scratch, &c.part, p->count, p->gaps);
  int32_t at = find_tightest(p);
  for (uint32_t i = 0; i < CORES && !placing_done(p) && *effort; i++) {
    uint64_t before = p->gaps->looked;
    int32_t first = at, last = at;
    placing_widen(p, cores[i], &first, &last);
    uint64_t end = place_core(&c, first, last, *effort / EFFORT_SHARE), rest = place_rest(&c, first, last);
    if (end <= p->goal && rest > p->goal) memory_repair(p, &c.part);
    placing_keep(p, placing_end(p));
    uint64_t spent = p->gaps->looked - before;
    *effort = spent < *effort ? *effort - spent : 0;
    if (cores[i] >= p->count) break;
  }
  arena_free(scratch);
}
