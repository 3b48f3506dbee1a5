/* Owns: the smallest plan: everything run again that may be, nothing prefetched, of the groupings that take the least. */
#include "planner/search/inner.h"
#include "planner/search/search_candidates.h"

#include <stdlib.h>

enum { PLACED_SMALL = 3 };

typedef struct Small {
  Outer outer;
  Grouping grouping;
  uint64_t bytes; /* before placement */
} Small;

static int compare_small(const void *a, const void *b) {
  const Small *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  if (x->outer.micro_batch != y->outer.micro_batch) return x->outer.micro_batch < y->outer.micro_batch ? -1 : 1;
  if (x->outer.shard != y->outer.shard) return x->outer.shard > y->outer.shard ? -1 : 1;
  if (x->outer.offload != y->outer.offload) return x->outer.offload < y->outer.offload ? -1 : 1;
  if (x->outer.gather_once != y->outer.gather_once) return x->outer.gather_once - y->outer.gather_once;
  if (x->outer.reduce_once != y->outer.reduce_once) return x->outer.reduce_once - y->outer.reduce_once;
  if (x->grouping.wrap != y->grouping.wrap) return x->grouping.wrap < y->grouping.wrap ? -1 : 1;
  return (x->grouping.numel > y->grouping.numel) - (x->grouping.numel < y->grouping.numel);
}

/* Appends one entry a grouping. False after diagnostics. */
static bool list_small(Search *s, const Outer *outer, Small *out, uint32_t *count) {
  Groupings groupings;
  bool good = search_groupings(s, outer, &groupings);
  Arena *scratch = arena_new();
  for (uint32_t g = 0; good && g < groupings.count; g++) {
    Inner in;
    good = inner_open(s, scratch, outer, groupings.data[g], &in);
    if (good) out[(*count)++] = (Small){*outer, groupings.data[g], inner_smallest_bytes(&in)};
  }
  arena_free(scratch);
  return good;
}

/* The smallest placed plan of the entries that look smallest. */
static void place_small(Search *s, Arena *arena, Small *entries, uint32_t count, Found *found) {
  qsort(entries, count, sizeof *entries, compare_small);
  *found = (Found){0};
  for (uint32_t i = 0; i < count && i < PLACED_SMALL; i++) {
    Found next;
    Inner in;
    if (!inner_open(s, arena, &entries[i].outer, entries[i].grouping, &in)) return;
    Decisions smallest = inner_smallest(&in);
    search_emit(s, arena, &in, &smallest, &s->placing, &next);
    if (!found->plan || next.plan->arena_bytes < found->plan->arena_bytes) *found = next;
  }
}

Plan *search_smallest(Search *s, Arena *arena, const Outer *outer, Found *found) {
  Small entries[MAX_GROUPINGS];
  uint32_t count = 0;
  *found = (Found){0};
  if (list_small(s, outer, entries, &count)) place_small(s, arena, entries, count, found);
  return found->plan;
}

bool search_find_smallest(Search *s, const Candidates *candidates, Found *found) {
  Small *entries = ARENA_ARRAY(s->arena, Small, (size_t)candidates->count * MAX_GROUPINGS);
  uint32_t count = 0;
  for (uint32_t i = 0; i < candidates->count; i++)
    if (!list_small(s, &candidates->data[i].outer, entries, &count)) return false;
  place_small(s, s->arena, entries, count, found);
  plan_simulate(s->arena, found->plan, &found->sim);
  return true;
}
