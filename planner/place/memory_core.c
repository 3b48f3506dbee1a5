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

#include "base/checked.h"

#include <stdlib.h>

/* Buffers that a window is to hold, by turns. */
static const uint32_t cores[] = {150, 40, 80, 300, 600};
/* Likewise where something is placed again. */
static const uint32_t nearby[] = {60, 240};
enum { CORES = sizeof cores / sizeof *cores, NEARBY = sizeof nearby / sizeof *nearby };
/* One core's share of the effort that is left; entries for placing again once; how many may be left above the
 * goal before giving up. */
enum { EFFORT_SHARE = 16, NEARBY_EFFORT = 1000000, MOST_FAILED = 3 };

typedef struct Core {
  Placing *whole;
  Placing part;
  PlanBuf **through; /* live throughout the window */
  uint32_t through_count;
} Core;

/* As many instructions around [first, last] as hold about `count` buffers. */
static void widen(const Placing *p, uint32_t count, int32_t *first, int32_t *last) {
  int32_t length = p->last - p->first,
          margin = p->count > count ? (int32_t)((double)length * count / p->count / 2) + 1 : length;
  *first = *first - p->first > margin ? *first - margin : p->first;
  *last = p->last - *last > margin ? *last + margin : p->last;
}

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

static bool meets(const PlanBuf *buf, int32_t first, int32_t last) {
  return buf->first <= last && buf->last >= first;
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
    if (!meets(p->all[i], first, last)) continue;
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
    if (meets(p->all[i], first, last))
      placing_fix(&c->part, p->all[i]);
    else
      placing_add(&c->part, p->all[i]);
  }
  place_once(&c->part);
  return c->part.bytes;
}

/* --- placing again ------------------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b) {
  const Taken *x = a, *y = b;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Those that stay for the whole window become one where they touch: a stack is one entry, not hundreds. */
static void merge_fixed(Placing *part) {
  uint32_t through = 0, merged = 0;
  Taken *fixed = part->fixed;
  for (uint32_t i = 0; i < part->fixed_count; i++) {
    if (fixed[i].first > part->first || fixed[i].last < part->last) continue;
    Taken entry = fixed[i];
    fixed[i] = fixed[through];
    fixed[through++] = entry;
  }
  if (!through) return;
  qsort(fixed, through, sizeof *fixed, by_offset);
  for (uint32_t i = 1; i < through; i++) {
    if (fixed[i].offset == fixed[merged].end)
      fixed[merged].end = fixed[i].end;
    else
      fixed[++merged] = fixed[i];
  }
  merged++;
  memmove(fixed + merged, fixed + through, (part->fixed_count - through) * sizeof *fixed);
  part->fixed_count -= through - merged;
}

/* What lives within [first, last] is placed again. */
static void place_again(Core *c, int32_t first, int32_t last) {
  const Placing *p = c->whole;
  uint64_t end = p->base;
  placing_aim(&c->part, first, last);
  for (uint32_t i = 0; i < p->count; i++) {
    PlanBuf *buf = p->all[i];
    if (!meets(buf, first, last)) continue;
    if (buf->first < first || buf->last > last) {
      placing_fix(&c->part, buf);
      continue;
    }
    placing_add(&c->part, buf);
    if (placed_end(buf) > end) end = placed_end(buf);
  }
  merge_fixed(&c->part);
  placing_keep(&c->part, end);
  place_by_blame(&c->part, NEARBY_EFFORT);
  placing_restore(&c->part);
}

/* Where what ends above the goal is, in the order of the list. */
static void repair(Core *c) {
  const Placing *p = c->whole;
  for (uint32_t i = 0, failed = 0; i < p->count && failed < MOST_FAILED; i++) {
    const PlanBuf *buf = p->all[i];
    for (uint32_t k = 0; k < NEARBY && placed_end(buf) > p->goal; k++) {
      int32_t first = buf->first, last = buf->last;
      widen(p, nearby[k], &first, &last);
      place_again(c, first, last);
    }
    failed += placed_end(buf) > p->goal;
  }
}

static uint64_t end_of_all(const Placing *p) {
  uint64_t end = p->base;
  for (uint32_t i = 0; i < p->count; i++)
    if (placed_end(p->all[i]) > end) end = placed_end(p->all[i]);
  return end;
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
    widen(p, cores[i], &first, &last);
    uint64_t end = place_core(&c, first, last, *effort / EFFORT_SHARE), rest = place_rest(&c, first, last);
    if (end <= p->goal && rest > p->goal) repair(&c);
    placing_keep(p, end_of_all(p));
    uint64_t spent = p->gaps->looked - before;
    *effort = spent < *effort ? *effort - spent : 0;
    if (cores[i] >= p->count) break;
  }
  arena_free(scratch);
}
