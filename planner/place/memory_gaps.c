/* Owns: memory_gaps.h. */
#include "planner/place/memory_gaps.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* What is taken for each window: what is entered in many, and looked for among few, takes longer than the other way round. */
enum { TAKEN_A_WINDOW = 24 };
/* Looking takes at least as long as so many entries do. */
enum { LEAST_LOOKED = 60 };

void gaps_open(Gaps *gaps, Arena *arena, uint32_t count) {
  *gaps = (Gaps){0};
  for (int w = 0; w <= GAP_WINDOWS; w++) gaps->taken[w] = ARENA_ARRAY(arena, Taken, count);
  gaps->spare = ARENA_ARRAY(arena, Taken, count);
}

void gaps_aim(Gaps *gaps, int32_t first, int32_t end, uint32_t count) {
  gaps->first = first;
  gaps->windows = count < TAKEN_A_WINDOW * GAP_WINDOWS ? (int32_t)count / TAKEN_A_WINDOW : GAP_WINDOWS;
  gaps->step = (end - first) / (gaps->windows > 0 ? gaps->windows : 1) + 1;
  memset(gaps->count, 0, sizeof gaps->count);
  memset(gaps->sorted, 0, sizeof gaps->sorted);
}

static int window_of(const Gaps *gaps, int32_t first, int32_t last) {
  int w = (first - gaps->first) / gaps->step;
  return w < gaps->windows && last < gaps->first + (w + 2) * gaps->step ? w : GAP_WINDOWS;
}

/* By offset, by insertion: few are fresh at a time, or they come nearly in order. */
static void sort_fresh(Taken *fresh, uint32_t count) {
  for (uint32_t i = 1; i < count; i++) {
    Taken entry = fresh[i];
    uint32_t at = i;
    for (; at > 0 && fresh[at - 1].offset > entry.offset; at--) fresh[at] = fresh[at - 1];
    fresh[at] = entry;
  }
}

/* How many of them lie at `offset` or below. */
static uint32_t find_above(const Taken *taken, uint32_t count, uint64_t offset) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (taken[middle].offset <= offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* What was taken since the window was last looked at goes where it belongs: long-lived buffers lie in many windows, and are placed
 * one after the other. */
static const Taken *sort_window(Gaps *gaps, int window) {
  Taken *taken = gaps->taken[window];
  uint32_t sorted = gaps->sorted[window], fresh = gaps->count[window] - sorted;
  memcpy(gaps->spare, taken + sorted, fresh * sizeof *taken);
  sort_fresh(gaps->spare, fresh);
  for (; fresh > 0; fresh--) {
    uint32_t at = find_above(taken, sorted, gaps->spare[fresh - 1].offset);
    memmove(taken + at + fresh, taken + at, (sorted - at) * sizeof *taken);
    taken[at + fresh - 1] = gaps->spare[fresh - 1];
    sorted = at;
  }
  gaps->sorted[window] = gaps->count[window];
  return taken;
}

uint64_t gaps_find(Gaps *gaps, uint64_t base, uint64_t size, int32_t first, int32_t last, Fit fit) {
  int window = window_of(gaps, first, last);
  const Taken *taken = sort_window(gaps, window);
  uint64_t cursor = base, best = UINT64_MAX, best_waste = UINT64_MAX;
  gaps->looked += gaps->count[window] + LEAST_LOOKED;
  for (uint32_t i = 0; i < gaps->count[window]; i++) {
    const Taken *t = &taken[i];
    const bool meets = (t->first <= last) & (t->last >= first); /* no branch: they come in no order, and guessing took a fifth of the time here */
    if (meets & (t->offset >= cursor + size)) {
      if (fit == FIRST_FIT) return cursor;
      if (t->offset - cursor - size < best_waste) {
        best = cursor;
        best_waste = t->offset - cursor - size;
      }
    }
    cursor = meets & (t->end > cursor) ? t->end : cursor;
  }
  return best == UINT64_MAX ? cursor : best;
}

uint64_t gaps_find_last(Gaps *gaps, uint64_t base, uint64_t top, uint64_t size, int32_t first, int32_t last) {
  int window = window_of(gaps, first, last);
  const Taken *taken = sort_window(gaps, window);
  uint64_t cursor = base, best = UINT64_MAX;
  gaps->looked += gaps->count[window] + LEAST_LOOKED;
  for (uint32_t i = 0; i < gaps->count[window]; i++) {
    const Taken *t = &taken[i];
    if (t->first > last || t->last < first) continue;
    uint64_t end = t->offset < top ? t->offset : top;
    if (end >= cursor + size) best = end - size;
    if (t->end > cursor) cursor = t->end;
  }
  if (top >= cursor + size) return top - size;
  return best == UINT64_MAX ? cursor : best;
}

void gaps_take(Gaps *gaps, Taken entry) {
  int from = (entry.first - gaps->first) / gaps->step - 1, to = (entry.last - gaps->first) / gaps->step;
  for (int w = from < 0 ? 0 : from; w <= to && w < gaps->windows; w++) gaps->taken[w][gaps->count[w]++] = entry;
  gaps->taken[GAP_WINDOWS][gaps->count[GAP_WINDOWS]++] = entry;
}
