/* Owns: addresses. Persistent buffers lie at the bottom of the arena; the others are placed above, each into the tightest gap
 * left by those that are live at the same time (offline best fit): largest first, and where that does not reach the goal in
 * other ways; the best is kept.
 *
 * requires: first and last of every buffer. provides: offsets, arena_bytes. The excess over max_live_bytes is what
 * fragmentation costs. */
#include "base/checked.h"
#include "planner/emit.h"

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

/* How to fill the arena: an order, and whether tensors saved across the loss stack from the bottom while everything else
 * hangs from the top. Saved tensors come and go like a stack, so the two meet only where memory is truly full. */
typedef struct Way {
  Order order;
  bool two_ended;
} Way;

static const Way ways[] = {{by_size, false},     {by_size, true},  {by_class_then_lifetime, false}, {by_lifetime, true},
                           {by_lifetime, false}, {by_area, false}, {by_lifetime_then_class, false}};

typedef struct Filler {
  PlanBuf **bufs;
  uint32_t count;
  uint64_t base, top; /* transients lie in [base, top) if they fit */
  int32_t turn;       /* list position of the loss */
  Placed *placed;     /* by offset */
  uint32_t placed_count;
} Filler;

/* The highest place below top that holds size; UINT64_MAX when there is none. */
static uint64_t find_gap_from_top(const Filler *f, const PlanBuf *buf, uint64_t size) {
  uint64_t cursor = f->base, best = UINT64_MAX;
  for (uint32_t i = 0; i < f->placed_count; i++) {
    const Placed *p = &f->placed[i];
    if (p->first > buf->last || p->last < buf->first) continue;
    if (p->offset >= cursor + size) best = p->offset - size;
    if (p->end > cursor) cursor = p->end;
  }
  return cursor + size <= f->top ? f->top - size : best;
}

static bool is_saved(const Filler *f, const PlanBuf *buf) {
  return buf->class == BUF_ACTIVATION && buf->first < f->turn && buf->last > f->turn;
}

static uint64_t put(Filler *f, PlanBuf *buf, bool from_top) {
  uint64_t size = round_up(buf->bytes, PLAN_ALIGN_BYTES), offset = UINT64_MAX;
  if (from_top) offset = find_gap_from_top(f, buf, size);
  if (offset == UINT64_MAX) offset = find_gap(f->placed, f->placed_count, f->base, buf, size);
  buf->offset = offset;
  insert(f->placed, f->placed_count++, (Placed){offset, offset + size, buf->first, buf->last});
  return offset + size;
}

static int by_first(const void *a, const void *b) {
  const PlanBuf *x = *(PlanBuf *const *)a, *y = *(PlanBuf *const *)b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  if (x->last != y->last) return x->last > y->last ? -1 : 1;
  return by_id(x, y);
}

/* Bytes of arena needed; offsets are set. */
static uint64_t fill(Filler *f, const Way *way) {
  uint64_t most = f->base;
  f->placed_count = 0;
  if (way->two_ended) {
    qsort(f->bufs, f->count, sizeof *f->bufs, by_first);
    for (uint32_t i = 0; i < f->count; i++) {
      uint64_t end = is_saved(f, f->bufs[i]) ? put(f, f->bufs[i], false) : 0;
      if (end > most) most = end;
    }
  }
  qsort(f->bufs, f->count, sizeof *f->bufs, way->order);
  for (uint32_t i = 0; i < f->count; i++) {
    uint64_t end = way->two_ended && is_saved(f, f->bufs[i]) ? 0 : put(f, f->bufs[i], way->two_ended);
    if (end > most) most = end;
  }
  return most;
}

static int32_t find_turn(const Plan *plan) {
  int32_t i = 0;
  while (i < (int32_t)plan->instrs.count && (plan->instrs.data[i].phase != PHASE_BACKWARD || plan->instrs.data[i].stream != STREAM_COMPUTE)) i++;
  return i;
}

void memory_place(Plan *plan, uint64_t goal) {
  Arena *scratch = arena_new();
  Filler f = {.bufs = ARENA_ARRAY(scratch, PlanBuf *, plan->bufs.count),
              .placed = ARENA_ARRAY(scratch, Placed, plan->bufs.count),
              .turn = find_turn(plan)};
  uint32_t best = 0, tried = 0;
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    PlanBuf *buf = &plan->bufs.data[b];
    if (!buf->persistent) {
      f.bufs[f.count++] = buf;
      continue;
    }
    buf->offset = f.base;
    f.base += round_up(buf->bytes, PLAN_ALIGN_BYTES);
  }
  plan->arena_bytes = UINT64_MAX;
  uint64_t least = round_up(plan->max_live_bytes, PLAN_ALIGN_BYTES);
  f.top = (goal > least && goal < 2 * least ? goal : least) / PLAN_ALIGN_BYTES * PLAN_ALIGN_BYTES;
  for (; tried < sizeof ways / sizeof *ways && plan->arena_bytes > goal; tried++) {
    uint64_t bytes = fill(&f, &ways[tried]);
    if (bytes >= plan->arena_bytes) continue;
    plan->arena_bytes = bytes;
    best = tried;
  }
  if (best + 1 != tried) fill(&f, &ways[best]);
  arena_free(scratch);
}
