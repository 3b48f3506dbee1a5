/* Owns: addresses. Persistent buffers lie at the bottom of the arena; the others are placed above by size, largest
 * first, each into the tightest gap left by those that are live at the same time (offline best fit).
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

static int compare_size(const void *a, const void *b) {
  const PlanBuf *x = *(PlanBuf *const *)a, *y = *(PlanBuf *const *)b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x > y) - (x < y);
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

void memory_place(Plan *plan) {
  Arena *scratch = arena_new();
  PlanBuf **order = ARENA_ARRAY(scratch, PlanBuf *, plan->bufs.count);
  Placed *placed = ARENA_ARRAY(scratch, Placed, plan->bufs.count);
  uint32_t count = 0;
  uint64_t base = 0;
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    PlanBuf *buf = &plan->bufs.data[b];
    if (!buf->persistent) {
      order[count++] = buf;
      continue;
    }
    buf->offset = base;
    base += round_up(buf->bytes, PLAN_ALIGN_BYTES);
  }
  plan->arena_bytes = base;
  qsort(order, count, sizeof *order, compare_size);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t size = round_up(order[i]->bytes, PLAN_ALIGN_BYTES);
    order[i]->offset = find_gap(placed, i, base, order[i], size);
    uint64_t end = order[i]->offset + size;
    insert(placed, i, (Placed){order[i]->offset, end, order[i]->first, order[i]->last});
    if (end > plan->arena_bytes) plan->arena_bytes = end;
  }
  arena_free(scratch);
}
