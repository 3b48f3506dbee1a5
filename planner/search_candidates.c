/* Owns: search_candidates.h. */
#include "planner/search_candidates.h"

#include "planner/inner.h"

#include <math.h>
#include <stdlib.h>

/* State goes to the host unasked only where that promises so much: more than the best plan that leaves it where it is, and,
 * where looking takes long (plans of so many instructions) and that plan is near its own bound, by bounds alone. */
static const double WORTH_OFFLOADING = 1.003, PROMISED_BY_BOUNDS = 1.005;
enum { OFFLOADED_PLAN = 6000 };

/* --- which there are -------------------------------------------------------------------------------------------------------------- */

enum { MAX_WIDTHS = 3, MAX_OFFLOADS = 3, MAX_CADENCES = 4 };

/* Shard widths that the strategy allows, widest first: all ranks, one node's, or what is pinned; 1 replicates. */
static uint32_t list_widths(const Search *s, uint32_t out[MAX_WIDTHS]) {
  uint32_t count = 0;
  switch (s->settings->strategy) {
  case STRATEGY_NO_SHARD: out[count++] = 1; break;
  case STRATEGY_HYBRID_SHARD: out[count++] = (uint32_t)s->settings->shard; break;
  case STRATEGY_AUTO:
    out[count++] = s->ranks;
    if (s->ranks_per_node > 1 && s->ranks_per_node < s->ranks) out[count++] = s->ranks_per_node;
    if (s->ranks > 1) out[count++] = 1;
    break;
  default: out[count++] = s->ranks; break;
  }
  return count;
}

/* Whether a step gathers, or reduces, once (2), every micro-batch (1), or either (3). */
static int cadences(const Search *s, Cadence pinned, bool matters, uint64_t accumulation) {
  if (!matters) return 1;
  if (s->settings->strategy == STRATEGY_SHARD_OPTIM) return 2;
  if (accumulation == 1 || pinned == CADENCE_MICRO_BATCH) return 1;
  return pinned == CADENCE_STEP ? 2 : 3;
}

/* What of the state may lie in host memory: what is pinned; unasked nothing, or more and more of it. Adafactor's update is not made for it. */
static uint32_t list_offloads(const Search *s, uint32_t out[MAX_OFFLOADS]) {
  static const uint32_t levels[MAX_OFFLOADS] = {0, OFFLOAD_OPTIMIZER, OFFLOAD_STATES};
  bool open = s->settings->offload == SETTING_AUTO && search_offers_host(s) && s->graph->recipe.optimizer != OPTIMIZER_ADAFACTOR;
  out[0] = s->settings->offload == SETTING_AUTO ? 0 : (uint32_t)s->settings->offload;
  for (uint32_t i = 0; open && i < MAX_OFFLOADS; i++) out[i] = levels[i];
  return open ? MAX_OFFLOADS : 1;
}

static bool offloads_unasked(const Search *s, const Outer *outer) {
  return s->settings->offload == SETTING_AUTO && outer->offload != 0;
}

/* With every cadence of gathers and reductions that is open. */
static void add_cadences(const Search *s, Outer outer, Candidates *out) {
  uint64_t accumulation = search_world(s, &outer).accumulation;
  int gathers = cadences(s, s->settings->gather, outer.shard > 1, accumulation);
  int reduces = cadences(s, s->settings->reduce, s->ranks > 1, accumulation);
  for (int k = 0; k < MAX_CADENCES; k++) {
    outer.gather_once = k & 1;
    outer.reduce_once = k & 2;
    if (!(gathers & (outer.gather_once ? 2 : 1)) || !(reduces & (outer.reduce_once ? 2 : 1))) continue;
    out->data[out->count] = (Candidate){.outer = outer, .order = out->count};
    out->count++;
  }
}

Candidates candidates_list(Search *s, const int64_t *micro, uint32_t count) {
  uint32_t widths[MAX_WIDTHS], width_count = list_widths(s, widths), offloads[MAX_OFFLOADS], offload_count = list_offloads(s, offloads);
  Candidates out = {ARENA_ARRAY(s->arena, Candidate, (size_t)MAX_WIDTHS * MAX_OFFLOADS * MAX_CADENCES * count), 0};
  for (uint32_t m = 0; m < count; m++)
    for (uint32_t w = 0; w < width_count; w++)
      for (uint32_t o = 0; o < offload_count; o++)
        add_cadences(s, (Outer){.micro_batch = micro[m], .shard = widths[w], .offload = offloads[o]}, &out);
  return out;
}

/* --- bounds ------------------------------------------------------------------------------------------------------------------------ */

static int compare_candidates(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  if (x->bound.ns != y->bound.ns) return x->bound.ns < y->bound.ns ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

static bool bound_outer(Search *s, const Outer *outer, Bound *least) {
  Groupings groupings;
  Arena *scratch = arena_new();
  bool good = search_groupings(s, outer, &groupings);
  *least = (Bound){UINT64_MAX, "memory"};
  for (uint32_t g = 0; good && g < groupings.count; g++) {
    Inner in;
    good = inner_open(s, scratch, outer, groupings.data[g], &in);
    if (good && in.bound.ns < least->ns) *least = in.bound;
  }
  arena_free(scratch);
  return good;
}

bool candidates_bound(Search *s, Candidates *candidates) {
  for (uint32_t i = 0; i < candidates->count; i++) {
    Candidate *candidate = &candidates->data[i];
    candidate->bound = (Bound){0};
    candidate->grouping = (Grouping){0};
    search_tell(s);
    if ((candidates->count > 1 || s->thorough) && !bound_outer(s, &candidate->outer, &candidate->bound)) return false;
  }
  qsort(candidates->data, candidates->count, sizeof *candidates->data, compare_candidates);
  return true;
}

/* --- plans ------------------------------------------------------------------------------------------------------------------------- */

/* State goes to host memory unasked only for a gain; where plans are long, for one that bounds promise. */
static bool is_hopeful(const Search *s, const Candidate *candidate, const Found *found, bool unasked) {
  if (!found->plan) return true;
  double ns = (double)found->sim.step_ns, bound = (double)candidate->bound.ns;
  if (!unasked || offloads_unasked(s, &found->outer)) return bound < ns;
  if (found->plan->instrs.count < OFFLOADED_PLAN || search_is_far(found, &candidate->bound)) return bound < ns / WORTH_OFFLOADING;
  return bound < fmin(ns / WORTH_OFFLOADING, (double)found->bound.ns / PROMISED_BY_BOUNDS);
}

/* Tries candidates, those that offload state or the others, best bound first. */
static bool try_some(Search *s, Candidates *candidates, bool unasked, Found *found) {
  for (uint32_t i = 0; i < candidates->count && candidates->data[i].bound.ns != UINT64_MAX; i++) {
    Candidate *candidate = &candidates->data[i];
    if (offloads_unasked(s, &candidate->outer) != unasked) continue;
    if (!is_hopeful(s, candidate, found, unasked)) break;
    Tried tried;
    search_tell(s);
    if (!search_outer(s, &candidate->outer, found, &tried)) return false;
    if (!candidate->bound.ns) candidate->bound = tried.least;
    if (candidate->grouping.wrap == WRAP_AUTO) candidate->grouping = tried.grouping;
  }
  return true;
}

bool candidates_try(Search *s, Candidates *candidates, Found *found) {
  return try_some(s, candidates, false, found) && try_some(s, candidates, true, found);
}
