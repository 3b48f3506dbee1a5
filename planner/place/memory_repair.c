/* Owns: memory_repair.h. Within a window lifetimes are cut to it; memory_core.c says why that loses nothing. */
#include "planner/place/memory_repair.h"

#include <stdlib.h>
#include <string.h>

/* Buffers that a window is to hold, by turns. */
static const uint32_t nearby[] = {60, 240};
enum { NEARBY = sizeof nearby / sizeof *nearby };
/* Entries for placing again once; how many may be left above the goal before giving up. */
enum { NEARBY_EFFORT = 1000000, MOST_FAILED = 3 };

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
static void place_again(const Placing *p, Placing *part, int32_t first, int32_t last) {
  uint64_t end = p->base;
  placing_aim(part, first, last);
  for (uint32_t i = 0; i < p->count; i++) {
    PlanBuf *buf = p->all[i];
    if (!placing_meets(buf, first, last)) continue;
    if (buf->first < first || buf->last > last) {
      placing_fix(part, buf);
      continue;
    }
    placing_add(part, buf);
    if (placed_end(buf) > end) end = placed_end(buf);
  }
  merge_fixed(part);
  placing_keep(part, end);
  place_by_blame(part, NEARBY_EFFORT);
  placing_restore(part);
}

void memory_repair(const Placing *p, Placing *part) {
  for (uint32_t i = 0, failed = 0; i < p->count && failed < MOST_FAILED; i++) {
    const PlanBuf *buf = p->all[i];
    for (uint32_t k = 0; k < NEARBY && placed_end(buf) > p->goal; k++) {
      int32_t first = buf->first, last = buf->last;
      placing_widen(p, nearby[k], &first, &last);
      place_again(p, part, first, last);
    }
    failed += placed_end(buf) > p->goal;
  }
}
