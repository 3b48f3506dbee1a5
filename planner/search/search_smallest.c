/* Owns: the smallest plan: everything run again that may be, nothing prefetched, of the groupings that take the least. */
#include "planner/search/inner.h"
#include "planner/search/search_candidates.h"

#include <stdlib.h>

enum { PLACED_SMALL = 6 };
/* What takes little more before placement may have a plan that fits: not everything need be run again. */
static const double COMES_NEAR = 1.05;

typedef struct Small {
  Outer outer;
  Grouping grouping;
  uint64_t bytes; /* before placement; UINT64_MAX: host memory is too small */
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

/* The first of its micro-batch. */
static bool is_first(const Small *entries, uint32_t at) {
  for (uint32_t i = 0; i < at; i++)
    if (entries[i].outer.micro_batch == entries[at].outer.micro_batch) return false;
  return true;
}

/* As low as it could be, whatever the budget: the same is found under all of them. */
static void emit_small(Search *s, Arena *arena, const Inner *in, uint64_t bytes, Found *found) {
  const uint64_t budget = s->budget;
  Decisions smallest = inner_smallest(in);
  s->budget = bytes;
  search_emit(s, arena, in, &smallest, &s->placing, found);
  s->budget = budget;
  found->fits = found->plan->arena_bytes <= budget && !search_lacks_host(s, found->plan);
}

/* The smallest placed plan of the entries that look smallest, of all and of each micro-batch. */
static void place_small(Search *s, Arena *arena, Small *entries, uint32_t count, Found *found) {
  qsort(entries, count, sizeof *entries, compare_small);
  *found = (Found){0};
  for (uint32_t i = 0; i < count; i++) {
    Found next;
    Inner in;
    if (i >= PLACED_SMALL && !is_first(entries, i)) continue;
    if (i && entries[i].bytes == UINT64_MAX) break;
    if (!inner_open(s, arena, &entries[i].outer, entries[i].grouping, &in)) return;
    emit_small(s, arena, &in, entries[i].bytes, &next);
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

/* Alone, with all the effort there is for placing: among others it got a share of that. */
static bool search_alone(Search *s, const Small *entry, Found *found) {
  Candidate candidate = {.outer = entry->outer};
  Candidates alone = {.data = &candidate, .count = 1};
  search_renew(s);
  return candidates_bound(s, &alone) && candidates_try(s, &alone, found);
}

/* The first plan that fits of those that look smallest, if any comes near the budget. */
static bool try_alone(Search *s, const Small *entries, uint32_t count, Found *found) {
  for (uint32_t i = 0; i < count && (double)entries[i].bytes <= COMES_NEAR * (double)s->budget; i++) {
    Found next = {0};
    if (!is_first(entries, i)) continue;
    if (!search_alone(s, &entries[i], &next)) return false;
    if (!next.plan) continue;
    *found = next;
    break;
  }
  return true;
}

/* Of all candidates. False after diagnostics. */
static bool place_smallest(Search *s, const Candidates *candidates, Small **entries, uint32_t *count, Found *found) {
  *entries = ARENA_ARRAY(s->arena, Small, (size_t)candidates->count * MAX_GROUPINGS);
  *count = 0;
  for (uint32_t i = 0; i < candidates->count; i++)
    if (!list_small(s, &candidates->data[i].outer, *entries, count)) return false;
  place_small(s, s->arena, *entries, *count, found);
  plan_simulate(s->arena, found->plan, &found->sim);
  return true;
}

bool search_place_smallest(Search *s, const Candidates *candidates, Found *found) {
  Small *entries;
  uint32_t count;
  return place_smallest(s, candidates, &entries, &count, found);
}

bool search_find_smallest(Search *s, const Candidates *candidates, Found *found) {
  Small *entries;
  uint32_t count;
  if (!place_smallest(s, candidates, &entries, &count, found)) return false;
  return found->fits || s->brief || try_alone(s, entries, count, found);
}
