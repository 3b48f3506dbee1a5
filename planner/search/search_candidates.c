/* Owns: search_candidates.h. */
#include "planner/search/search_candidates.h"

#include "planner/pins.h"
#include "planner/search/inner.h"

#include <math.h>
#include <stdlib.h>

/* State goes to the host unasked only where that promises so much: more than the best plan that leaves it where it is, and,
 * where looking takes long (plans of so many instructions) and that plan is near its own bound, by bounds alone. So must shards of widths
 * that few would set: there are many, and neighbours are much alike. */
static const double WORTH_OFFLOADING = 1.003, PROMISED_BY_BOUNDS = 1.005, NEAR_OWN_BOUND = 1.015;
enum { OFFLOADED_PLAN = 6000 };
/* Estimates so far above another choice's bound do not keep that waiting. */
static const double OUTDONE = 1.025;

/* Of the effort of placing a branch has its share of the branches in hope, but never less than one of so many. */
enum { MOST_SHARES = 8 };

/* A choice is given up where it is so much slower than the best plan, and so many times what its bound leaves to be gained: by its seeds,
 * and, with less memory or moves in another order, by what it came to in full. Where memory is tight seeds start far above what moves make of
 * them, and bounds leave much. */
typedef struct Behind {
  double share, hoped;
} Behind;
static const Behind seeded_behind = {0.05, 15}, tried_behind = {0.01, 1};

/* Of long plans so many choices one after the other are placed without any gain before the rest is left: of 45 in 136 plans of llama3 and gpt3
 * (14 clusters, 64 to 16,384 ranks, 24 GiB to no limit) that were placed after three in vain none gained anything. */
enum { MOST_IN_VAIN = 3 };
/* Of long programs so many choices are seeded before one of them is placed: the others then have a plan to promise something beside. Those 136 plans took 5 %
 * less time, three were faster, by up to 0.3 %, and neither of them nor of 494 others was any slower; with five two were, by 0.18 %. */
enum { SEEDED_FIRST = 8 };

/* So far beyond the least bound others are looked at closely at once. */
static const double LOOK_BEYOND = 1.01;
/* What a bound under a larger budget counts under a lesser one: there other rows and weights are looked at. Of 37,000 none fell. */
static const double STAYS_BOUND = 0.999;

/* --- which there are -------------------------------------------------------------------------------------------------------------- */

enum { MAX_WIDTHS = 36, MAX_OFFLOADS = 5, MAX_CADENCES = 4 };

/* All ranks, some nodes' by twos, one node's, half of one's, and one. */
static uint32_t list_all_widths(const Search *s, uint32_t out[MAX_WIDTHS]) {
  const uint32_t node = s->ranks_per_node, nodes = s->ranks / node;
  uint32_t count = 0, some = 1;
  if (s->ranks > 1) out[count++] = s->ranks;
  while (some <= nodes / 4) some *= 2;
  for (; some >= 1; some /= 2)
    if (some < nodes && nodes % some == 0 && some * node > 1) out[count++] = some * node;
  if (node > 2 && node % 2 == 0) out[count++] = node / 2;
  out[count++] = 1;
  return count;
}

/* Unless somebody set it. */
static bool is_unusual(const Search *s, uint32_t width) {
  return s->settings->strategy == STRATEGY_AUTO && width > 1 && width != s->ranks && width != s->ranks_per_node;
}

/* Shard widths that the strategy allows, widest first; 1 replicates. */
static uint32_t list_widths(const Search *s, uint32_t out[MAX_WIDTHS]) {
  switch (s->settings->strategy) {
  case STRATEGY_NO_SHARD: out[0] = 1; return 1;
  case STRATEGY_HYBRID_SHARD: out[0] = (uint32_t)s->settings->shard; return 1;
  case STRATEGY_AUTO: return list_all_widths(s, out);
  default: out[0] = s->ranks; return 1;
  }
}

/* Whether a step gathers, or reduces, once (2), every micro-batch (1), or either (3). */
static int cadences(const Search *s, Cadence pinned, bool matters, uint64_t accumulation) {
  if (!matters) return 1;
  if (s->settings->strategy == STRATEGY_SHARD_OPTIM) return 2;
  if (accumulation == 1 || pinned == CADENCE_MICRO_BATCH) return 1;
  return pinned == CADENCE_STEP ? 2 : 3;
}

/* What of the state may lie in host memory: what is pinned; unasked nothing, the optimizer's, or beside that what host memory has room for. */
static uint32_t list_offloads(const Search *s, uint32_t out[MAX_OFFLOADS]) {
  static const uint32_t levels[MAX_OFFLOADS] = {0, OFFLOAD_OPTIMIZER, OFFLOAD_OPTIMIZER | OFFLOAD_GRADIENTS, OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS,
                                                OFFLOAD_STATES};
  const bool open = search_may_offload(s, s->settings);
  out[0] = s->settings->offload == SETTING_AUTO ? 0 : (uint32_t)s->settings->offload;
  for (uint32_t i = 0; open && i < MAX_OFFLOADS; i++) out[i] = levels[i];
  return open ? MAX_OFFLOADS : 1;
}

static bool offloads_unasked(const Search *s, const Outer *outer) {
  return s->settings->offload == SETTING_AUTO && outer->offload != 0;
}

/* What is to be released after forward must be gathered before: a rank does not hold all of it, where there are others. */
static bool contradicts_pins(const Search *s, const Outer *outer) {
  return s->settings->strategy == STRATEGY_AUTO && s->ranks > 1 && outer->shard == 1 && !(outer->offload & OFFLOAD_PARAMETERS) && pins_release(s->settings);
}

/* Neither the optimizer's alone nor all of it. */
static bool parts_state(const Search *s, const Outer *outer) {
  return offloads_unasked(s, outer) && outer->offload != OFFLOAD_OPTIMIZER && outer->offload != OFFLOAD_STATES;
}

/* With every cadence of gathers and reductions that is open. */
static void add_cadences(const Search *s, Outer outer, Candidates *out) {
  if (contradicts_pins(s, &outer)) return;
  uint64_t accumulation = search_world(s, &outer).accumulation;
  int gathers = cadences(s, s->settings->gather, outer.shard > 1, accumulation);
  int reduces = cadences(s, s->settings->reduce, s->ranks > 1, accumulation);
  for (int k = 0; k < MAX_CADENCES; k++) {
    outer.gather_once = k & 1;
    outer.reduce_once = k & 2;
    if (!(gathers & (outer.gather_once ? 2 : 1)) || !(reduces & (outer.reduce_once ? 2 : 1))) continue;
    const bool leads = !out->count || out->data[out->count - 1].outer.micro_batch != outer.micro_batch;
    out->data[out->count] = (Candidate){.outer = outer, .leads = leads, .order = out->count};
    out->count++;
  }
}

Candidates candidates_list(Search *s, const int64_t *micro, uint32_t count) {
  uint32_t widths[MAX_WIDTHS], width_count = list_widths(s, widths), offloads[MAX_OFFLOADS], offload_count = list_offloads(s, offloads);
  Candidates out = {.data = ARENA_ARRAY(s->arena, Candidate, (size_t)MAX_WIDTHS * MAX_OFFLOADS * MAX_CADENCES * count)};
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

/* No further than to `enough`. */
static bool bound_outer(Search *s, Arena *scratch, Candidate *candidate, uint64_t enough) {
  Groupings groupings;
  bool good = search_groupings(s, &candidate->outer, &groupings);
  candidate->bound = (Bound){UINT64_MAX, "memory"};
  for (uint32_t g = 0; good && g < groupings.count; g++) {
    Bound bound;
    const uint64_t below = candidate->bound.ns < enough ? candidate->bound.ns : enough;
    good = inner_bound(s, scratch, &candidate->outer, groupings.data[g], below, &bound);
    if (good && bound.ns < candidate->bound.ns) candidate->bound = bound;
    arena_reset(scratch);
  }
  candidate->exact = candidate->bound.ns < enough || candidate->bound.ns == UINT64_MAX;
  return good;
}

static void sort_candidates(Candidates *candidates) {
  qsort(candidates->data, candidates->count, sizeof *candidates->data, compare_candidates);
}

/* What bounds under a larger budget holds under this one. */
static void start_bounds(const Search *s, Candidates *candidates) {
  for (uint32_t i = 0; i < candidates->count; i++) {
    Candidate *candidate = &candidates->data[i];
    if (s->budget > candidates->budget) candidate->bound = (Bound){0};
    else if (candidate->bound.ns != UINT64_MAX) candidate->bound.ns = (uint64_t)(STAYS_BOUND * (double)candidate->bound.ns);
    candidate->exact = candidate->bound.ns == UINT64_MAX;
    candidate->grouping = (Grouping){0};
    candidate->estimate_ns = 0;
  }
  candidates->budget = s->budget;
  candidates->least = (Bound){UINT64_MAX, "memory"};
}

static uint64_t scaled(uint64_t ns, double by) { return (double)ns * by < (double)UINT64_MAX ? (uint64_t)((double)ns * by) : UINT64_MAX; }

/* As far as it comes near the least so far. */
static bool bound_next(Search *s, Arena *scratch, Candidates *candidates, Candidate *candidate) {
  const uint64_t enough = scaled(candidates->least.ns, LOOK_BEYOND);
  search_tell(s);
  if (candidate->exact || candidate->bound.ns >= enough) return true;
  if (!bound_outer(s, scratch, candidate, enough)) return false;
  if (candidate->bound.ns < candidates->least.ns) candidates->least = candidate->bound;
  return true;
}

/* The first choices of each micro-batch, then all: others are much like them, or slower. */
bool candidates_bound_each(Search *s, Candidates *candidates) {
  Arena *scratch = arena_new();
  bool good = true;
  start_bounds(s, candidates);
  for (int first = 1; first >= 0; first--)
    for (uint32_t i = 0; i < candidates->count && good; i++)
      if (candidates->data[i].leads >= first) good = bound_next(s, scratch, candidates, &candidates->data[i]);
  arena_free(scratch);
  sort_candidates(candidates);
  return good;
}

/* Makes bounds below so many ns exact, under the same budget; the order stays. */
static bool bound_below(Search *s, Candidates *candidates, uint64_t ns) {
  const uint64_t budget = s->budget;
  Arena *scratch = arena_new();
  bool good = true;
  s->budget = candidates->budget;
  for (uint32_t i = 0; i < candidates->count && good; i++) {
    Candidate *candidate = &candidates->data[i];
    if (!candidate->exact && candidate->bound.ns < ns) good = bound_outer(s, scratch, candidate, scaled(ns, LOOK_BEYOND));
  }
  s->budget = budget;
  arena_free(scratch);
  return good;
}

bool candidates_bound(Search *s, Candidates *candidates) {
  if (candidates->count > 1 || s->thorough) return candidates_bound_each(s, candidates);
  start_bounds(s, candidates);
  candidates->least = candidates->data[0].bound = (Bound){0};
  candidates->data[0].exact = true;
  return true;
}

/* --- plans ------------------------------------------------------------------------------------------------------------------------- */

/* A candidate on its way to a plan. */
typedef struct Branch {
  Candidate *candidate;
  bool unasked; /* it offloads state, which nobody asked for */
  bool unusual; /* its shards are spread over neither all ranks, one node's nor one, or a part of the state is away */
  enum { BRANCH_BOUNDED, BRANCH_SEEDED, BRANCH_IMPROVED, BRANCH_PLACED } state;
  Tried tried;
} Branch;

typedef struct Branches {
  Candidates *candidates;
  Branch *data;
  uint32_t count;
} Branches;

/* Of the best plan's outer choice, in whatever units. */
static uint64_t bound_as_found(const Branches *all, const Found *found) {
  uint64_t least = found->bound.ns;
  for (uint32_t i = 0; i < all->count; i++) {
    const Candidate *candidate = all->data[i].candidate;
    if (candidate->exact && candidate->bound.ns < least && search_same_outer(&candidate->outer, &found->outer)) least = candidate->bound.ns;
  }
  return least;
}

/* Of an unusual choice, beside the best plan's bound; where its state lies as there, or on the device, beside that plan's own time, which may
 * be as far above its bound as others' would be near theirs. */
static bool promises_gain(const Branches *all, const Branch *branch, const Found *found) {
  const uint32_t offload = branch->candidate->outer.offload;
  const uint64_t other = !offload || offload == found->outer.offload ? found->sim.step_ns : bound_as_found(all, found);
  return (double)branch->candidate->bound.ns < (double)other / PROMISED_BY_BOUNDS || search_is_far(found, &branch->candidate->bound);
}

/* State goes to host memory unasked only for a gain; where plans are long, for one that bounds promise. */
static bool bound_leaves_hope(const Search *s, const Branches *all, const Branch *branch, const Found *found) {
  double ns = (double)found->sim.step_ns, bound = (double)branch->candidate->bound.ns;
  if (branch->unusual && !promises_gain(all, branch, found)) return false;
  if (!branch->unasked || offloads_unasked(s, &found->outer)) return bound < ns;
  if (found->plan->instrs.count < OFFLOADED_PLAN || ns > NEAR_OWN_BOUND * bound) return bound < ns / WORTH_OFFLOADING;
  return bound < fmin(ns / WORTH_OFFLOADING, (double)bound_as_found(all, found) / PROMISED_BY_BOUNDS);
}

static bool is_behind(const Behind *behind, uint64_t estimate_ns, const Branch *branch, const Found *found) {
  const double ns = (double)found->sim.step_ns, lost = (double)estimate_ns - ns, hoped = ns - (double)branch->candidate->bound.ns;
  return lost > behind->share * ns && lost > behind->hoped * hoped;
}

/* What led to the best plan: its seeds may have been far behind too. */
static bool is_as_found(const Branch *branch, const Found *found) { return search_same_outer(&branch->candidate->outer, &found->outer); }

static bool is_hopeful(const Search *s, const Branches *all, const Branch *branch, const Found *found) {
  if (branch->state == BRANCH_PLACED || !branch->candidate->exact || branch->candidate->bound.ns == UINT64_MAX) return false;
  if (!found->plan) return true;
  if (branch->state == BRANCH_IMPROVED) return search_may_beat(&branch->tried, found);
  if (!bound_leaves_hope(s, all, branch, found)) return false;
  if (branch->state == BRANCH_BOUNDED) return !is_behind(&tried_behind, branch->candidate->estimate_ns, branch, found);
  return branch->tried.small || is_as_found(branch, found) || !is_behind(&seeded_behind, branch->tried.estimate_ns, branch, found);
}

/* What the branch's plan takes, as far as that is known. */
static uint64_t promise(const Branch *branch) {
  return branch->state == BRANCH_BOUNDED ? branch->candidate->bound.ns : branch->tried.estimate_ns;
}

static bool is_before(const Branch *a, const Branch *b) {
  return promise(a) != promise(b) ? promise(a) < promise(b) : compare_candidates(a->candidate, b->candidate) < 0;
}

static bool is_common(const Branch *branch) { return !branch->unasked && !branch->unusual; }

/* Its trials are so far above what the bound of another one leaves that this should be looked at before a long plan of it is placed in vain. */
static bool is_outdone(const Branch *branch, const Branch *by) {
  return branch->tried.is_long && branch->tried.estimate_ns != UINT64_MAX && branch->state != BRANCH_BOUNDED &&
         (double)branch->tried.estimate_ns > OUTDONE * (double)by->candidate->bound.ns;
}

/* State stays on the device, and shards of the usual widths, for as long as bounds promise no gain from others, and something of that
 * may still be placed. */
static bool waits(const Search *s, const Branches *all, const Branch *branch, const Found *found) {
  if (is_common(branch) || branch->state != BRANCH_BOUNDED) return false;
  const double gain = PROMISED_BY_BOUNDS * (double)branch->candidate->bound.ns;
  for (uint32_t i = 0; i < all->count; i++) {
    const Branch *other = &all->data[i];
    if (is_common(other) && is_hopeful(s, all, other, found) && (double)other->candidate->bound.ns <= gain && !is_outdone(other, branch)) return true;
  }
  return false;
}

/* It has seeds, of which one fits. */
static bool has_estimate(const Branch *branch) { return branch->state != BRANCH_BOUNDED && branch->tried.estimate_ns != UINT64_MAX; }

/* Whether enough have been seeded for one of them to be placed before any other is. */
static bool seeded_enough(const Branches *all, const Found *found) {
  uint32_t seeded = 0;
  for (uint32_t i = 0; i < all->count && !found->plan; i++) seeded += has_estimate(&all->data[i]) && all->data[i].tried.is_long;
  return seeded >= SEEDED_FIRST;
}

static Branch *most_promising(const Search *s, const Branches *all, const Found *found) {
  const bool seeded = seeded_enough(all, found);
  Branch *best = NULL;
  for (uint32_t i = 0; i < all->count; i++) {
    Branch *branch = &all->data[i];
    if (!is_hopeful(s, all, branch, found) || waits(s, all, branch, found) || (seeded && !has_estimate(branch))) continue;
    if (!best || is_before(branch, best)) best = branch;
  }
  return best;
}

static bool seed_branch(Search *s, const Branches *all, Branch *branch, const Found *found) {
  Candidate *candidate = branch->candidate;
  if (!search_seed(s, &candidate->outer, found, &branch->tried)) return false;
  if (!candidate->bound.ns) all->candidates->least = candidate->bound = branch->tried.least;
  return true;
}

/* So near that another may be placed in vain for want of it. */
static uint64_t rivals_below(const Branch *branch) { return scaled(promise(branch), PROMISED_BY_BOUNDS); }

static uint32_t count_rivals(const Search *s, const Branches *all, const Branch *branch, const Found *found) {
  const uint64_t below = rivals_below(branch);
  uint32_t count = 1;
  for (uint32_t i = 0; i < all->count; i++)
    count += &all->data[i] != branch && is_hopeful(s, all, &all->data[i], found) && promise(&all->data[i]) < below;
  return count;
}

/* What is left of the effort of placing is for all branches that may need it: the first one may be hard to place. */
static void settle_branch(Search *s, const Branches *all, Branch *branch, Found *found) {
  const uint32_t rivals = count_rivals(s, all, branch, found);
  const uint64_t share = s->placing / (rivals < MOST_SHARES ? rivals : MOST_SHARES), others = s->placing - share;
  s->placing = share;
  search_settle(s, &branch->tried, found);
  s->placing += others;
}

static bool step_branch(Search *s, const Branches *all, Branch *branch, Found *found) {
  bool good = true;
  switch (branch->state) {
  case BRANCH_BOUNDED: good = seed_branch(s, all, branch, found); break;
  case BRANCH_SEEDED: search_improve(&branch->tried, found); break;
  default: settle_branch(s, all, branch, found); break;
  }
  branch->state++;
  return good;
}

static bool has_bounds(const Branches *all, uint64_t below) {
  for (uint32_t i = 0; i < all->count; i++)
    if (!all->data[i].candidate->exact && all->data[i].candidate->bound.ns < below) return false;
  return true;
}

/* The branch to be taken further, NULL: there is none. Bounds that are not exact count for nothing, so all are made exact that could lie below
 * it, or beside it. False after diagnostics. */
static bool next_branch(Search *s, const Branches *all, const Found *found, Branch **next) {
  for (;;) {
    *next = most_promising(s, all, found);
    const uint64_t below = found->plan ? found->sim.step_ns : *next ? rivals_below(*next) : UINT64_MAX;
    if (has_bounds(all, below)) return true;
    if (!bound_below(s, all->candidates, below)) return false;
  }
}

/* How many branches have been placed one after the other without any gain, where that takes long. */
static uint32_t count_vain(uint32_t vain, const Branch *branch, uint64_t before_ns, const Found *found) {
  if (branch->state != BRANCH_PLACED || !found->plan || !search_is_long(found)) return vain;
  return found->sim.step_ns == before_ns ? vain + 1 : 0;
}

/* Best first: a branch counts by its bound, then by the estimate of its seeds, then of what moves made of them, and then it is placed.
 * Moves and placing take nearly all of the time, and most branches need neither. */
static bool follow_branches(Search *s, const Branches *all, Found *found) {
  uint32_t vain = 0;
  for (Branch *branch; vain < MOST_IN_VAIN;) {
    const uint64_t before_ns = found->sim.step_ns;
    if (!next_branch(s, all, found, &branch)) return false;
    if (!branch) return true;
    search_tell(s);
    if (!step_branch(s, all, branch, found)) return false;
    vain = count_vain(vain, branch, before_ns, found);
  }
  return true;
}

/* What it came to with all the memory, and by moves in the first order, stays known. */
static void leave_branch(const Search *s, Branch *branch) {
  Candidate *candidate = branch->candidate;
  if (!s->brief && branch->state != BRANCH_BOUNDED) {
    candidate->grouping = branch->tried.grouping;
    if (!branch->tried.small) candidate->estimate_ns = branch->tried.estimate_ns;
  }
  search_drop(&branch->tried);
}

bool candidates_try(Search *s, Candidates *candidates, Found *found) {
  Arena *scratch = arena_new();
  Branches all = {candidates, ARENA_ARRAY(scratch, Branch, candidates->count), candidates->count};
  for (uint32_t i = 0; i < all.count; i++)
    all.data[i] = (Branch){.candidate = &candidates->data[i],
                           .unasked = offloads_unasked(s, &candidates->data[i].outer),
                           .unusual = is_unusual(s, candidates->data[i].outer.shard) || parts_state(s, &candidates->data[i].outer)};
  bool good = follow_branches(s, &all, found);
  for (uint32_t i = 0; i < all.count; i++) leave_branch(s, &all.data[i]);
  sort_candidates(candidates);
  arena_free(scratch);
  return good;
}

/* People gather and reduce every micro-batch, and leave state where it is. */
static bool is_by_hand(const Search *s, const Candidate *candidate, const Found *found) {
  const Outer *outer = &candidate->outer;
  return candidate->exact && candidate->bound.ns < found->sim.step_ns && !outer->gather_once && !outer->reduce_once && outer->shard > 1 &&
         !offloads_unasked(s, outer) && !is_unusual(s, outer->shard);
}

bool candidates_by_hand(Search *s, const Candidates *candidates, Found *found) {
  const bool blocks = s->settings->wrap == WRAP_AUTO || s->settings->wrap == WRAP_BLOCK;
  for (uint32_t i = 0; i < candidates->count && blocks && found->fits; i++)
    if (is_by_hand(s, &candidates->data[i], found) && !search_by_hand(s, &candidates->data[i].outer, found)) return false;
  return true;
}
