/* Owns: search.h: what is done for one budget. Ties go to the earlier candidate and nothing depends on time, so equal inputs give equal
 * plans. */
#include "planner/search/inner.h"
#include "planner/search/search_anchors.h"
#include "planner/search/search_sizes.h"

/* Instructions from which on looking once more takes long; up to which it takes hardly any time. */
enum { LONG_PLAN = 4000, SHORT_PLAN = 2000 };
/* Of a model up to which it is planned in no time. */
enum { FEW_OPERATORS = 300 };
/* Operators of a program from which on moves of few items take as long as all else. */
enum { TOO_LONG_FOR_FEW = 4000 };

/* This far from the bound a plan is stuck, a short one sooner: moves found nothing better, which need not mean that there is nothing. This
 * far it is worth more time, however long that takes. */
static const double STUCK = 1.0025, STUCK_SHORT = 1.0005, FAR_FROM_BOUND = 1.025, VERY_FAR = 1.15;
/* It is then looked for with less memory too: at steps of a fixed grid, where nearby budgets meet. */
enum { LESSER_BUDGETS = 2, STEPS_AN_OCTAVE = 8, CLEARLY_LESS = 40 };
/* A short one in the end once more, at finer steps. */
enum { LESSER_AS_FOUND = 8, FINER_STEPS = 16 };
/* And this far, or FAR_FROM_BOUND where looking takes long, with moves in another order. */
static const double WORTH_OTHER_MOVES = 1.005;

/* By so much less an estimate promised more. */
static const double HELD_UP = 1.006;

/* Where none fits a smaller plan is looked for until what may be between is so small a share; from so small a share below the budget on. */
enum { NEARLY_SMALLEST = 200, BELOW_ASKED = 32 };
/* In the end gathers are moved one by one, and items few by few, of a short one: until nothing changes, no more often than that. */
enum { FINE_ROUNDS = 4 };
/* What is left at least of the effort of placing where other units are tried: long plans get by with less, and only spend more on what
 * cannot be placed. */
enum { RENEWED_SHORT = PLACING_EFFORT / 2, RENEWED_LONG = PLACING_EFFORT / 8 };

bool search_exceeds(const Found *found, double share, const Bound *bound) { return (double)found->sim.step_ns > share * (double)bound->ns; }

bool search_has_few_operators(const Search *s) { return s->graph->ops.count <= FEW_OPERATORS; }

bool search_is_short(const Found *found) { return found->plan->instrs.count < SHORT_PLAN; }

bool search_is_long(const Found *found) { return found->plan->instrs.count >= LONG_PLAN; }

bool search_is_stuck(const Found *found, const Bound *bound) {
  return found->fits && search_exceeds(found, search_is_short(found) ? STUCK_SHORT : STUCK, bound);
}

bool search_is_far(const Found *found, const Bound *bound) { return search_exceeds(found, FAR_FROM_BOUND, bound); }
/* So far that a long plan is worth as much time as others. */
bool search_is_very_far(const Found *found, const Bound *bound) { return search_exceeds(found, VERY_FAR, bound); }

/* --- effort ------------------------------------------------------------------------------------------------------------------------ */

void search_renew(Search *s) {
  s->placing = PLACING_EFFORT;
  s->pairing = PAIRING_EFFORT;
}

/* What was spent on placing, was spent on other units. */
static uint64_t least_effort(const Found *found) { return search_is_short(found) ? RENEWED_SHORT : RENEWED_LONG; }

void search_renew_some(Search *s, const Found *found) {
  const uint64_t least = least_effort(found);
  if (s->placing < least) s->placing = least;
}

/* --- elsewhere --------------------------------------------------------------------------------------------------------------------- */

uint64_t search_grid_step(uint64_t budget, uint64_t to_the_octave) {
  uint64_t octave = 1;
  while (octave <= budget / 2) octave *= 2;
  return octave > to_the_octave ? octave / to_the_octave : 1;
}

/* The step number i of a grid below a budget, the first one at least a fortieth less. */
static uint64_t lesser_budget(uint64_t budget, uint64_t i, uint64_t to_the_octave) {
  uint64_t below = budget - budget / CLEARLY_LESS, step = search_grid_step(below, to_the_octave);
  return below - below % step - i * step;
}

typedef struct Effort {
  uint64_t budget;
  bool brief;
} Effort;

/* As if there were less memory; all settings of few items, and what is kept by hand, have been looked at. Returns what to go back to. */
static Effort lessen(Search *s, uint64_t less) {
  const Effort before = {s->budget, s->brief};
  s->budget = less;
  s->brief = true;
  return before;
}

static bool go_back(Search *s, Effort before, bool good) {
  s->budget = before.budget;
  s->brief = before.brief;
  return good;
}

/* All candidates that leave hope. */
static bool try_less(Search *s, uint64_t less, Candidates *candidates, Found *found) {
  const Effort before = lessen(s, less);
  return go_back(s, before, candidates_try(s, candidates, found));
}

/* One outer choice with these units, which may not be among those of the candidates. */
static bool try_less_as(Search *s, uint64_t less, const Outer *outer, Grouping grouping, Found *found) {
  const Effort before = lessen(s, less);
  return go_back(s, before, search_as(s, outer, grouping, found));
}

/* A thorough search looks there anyway, and longer plans hardly ever gain by it. */
static bool is_worth_less(const Search *s, const Found *found, const Bound *bound) {
  return !s->thorough && !found->settled && search_is_stuck(found, bound) && search_is_short(found);
}

static bool try_lesser_budgets(Search *s, Candidates *candidates, Found *found) {
  for (uint32_t i = 0; i < LESSER_BUDGETS && is_worth_less(s, found, &candidates->least); i++)
    if (!try_less(s, lesser_budget(s->budget, i, STEPS_AN_OCTAVE), candidates, found)) return false;
  return true;
}

/* Moves of few items may have been left out for the number of moves. */
static bool is_worth_few(Search *s, const Found *found, const Bound *bound) {
  if (!search_is_stuck(found, bound) || found->settled) return false;
  return search_program(s, found->outer.micro_batch)->ops.count < TOO_LONG_FOR_FEW;
}

/* With the units found, then with those that their outer choice began with: a short plan with all of them. */
static bool try_few(Search *s, const Bound *bound, Found *found) {
  Groupings others;
  const Outer outer = found->outer;
  if (!is_worth_few(s, found, bound)) return true;
  if (!search_on(s, found->grouping, true, found) || !search_groupings(s, &outer, &others)) return false;
  const uint32_t count = search_is_short(found) ? others.count : others.finer;
  for (uint32_t g = 0; g < count && search_exceeds(found, WORTH_OTHER_MOVES, bound); g++)
    if (!search_on(s, others.data[g], true, found)) return false;
  return true;
}

/* From what less memory came to, if anything, with all of it. Then by few items. */
static bool try_on(Search *s, uint64_t before_ns, const Bound *bound, Found *found) {
  if (found->sim.step_ns != before_ns && !search_on(s, found->grouping, false, found)) return false;
  return try_few(s, bound, found);
}

static bool try_lesser_as_found(Search *s, Found *found, const Bound *bound) {
  for (uint32_t i = 0; i < LESSER_AS_FOUND && is_worth_less(s, found, bound); i++) {
    const Outer outer = found->outer;
    if (!try_less_as(s, lesser_budget(s->budget, i, FINER_STEPS), &outer, found->grouping, found)) return false;
  }
  return true;
}

/* What was found last has had no gather moved by itself, nor a few items. */
static bool try_finely(Search *s, Found *found, const Bound *bound) {
  for (int i = 0; i < FINE_ROUNDS && found->fits && !found->settled && search_is_short(found) && search_is_stuck(found, bound); i++) {
    const Plan *before = found->plan;
    search_renew_some(s, found);
    if (!search_gathers(s, found) || !search_on(s, found->grouping, true, found)) return false;
    if (found->plan == before) break;
  }
  return true;
}

static bool is_worth_other_moves(const Found *found, const Bound *bound) {
  return found->fits && !found->settled && search_exceeds(found, search_is_long(found) ? FAR_FROM_BOUND : WORTH_OTHER_MOVES, bound);
}

/* Its outer choice and units once more. */
static bool try_as_found(Search *s, Found *found) {
  const Outer outer = found->outer;
  return search_as(s, &outer, found->grouping, found);
}

/* Moves stop where nothing they try improves: less memory, or moving the classes of items in the other order, may lead elsewhere, to
 * what is faster still. */
static bool try_elsewhere(Search *s, Candidates *candidates, Found *found) {
  const uint64_t before_ns = found->sim.step_ns;
  bool good = try_lesser_budgets(s, candidates, found);
  s->brief = true;
  good = good && try_on(s, before_ns, &candidates->least, found);
  s->reversed = good && is_worth_other_moves(found, &candidates->least);
  if (s->reversed) good = search_is_long(found) && !search_is_very_far(found, &candidates->least) ? try_as_found(s, found) : candidates_try(s, candidates, found);
  s->reversed = false;
  s->brief = false;
  return good;
}

/* Estimates promised clearly more than could be placed, of whatever outer choice. */
static bool is_held_up(const Search *s, const Found *found) { return s->unplaced_ns && (double)found->sim.step_ns > HELD_UP * (double)s->unplaced_ns; }

/* What may leave the device, unasked, can lead moves to where they get stuck, and units to where addresses are hard to find: once more as if
 * nothing might leave. */
static bool try_grounded(Search *s, Candidates *candidates, Found *found) {
  const bool unasked = s->settings->offload == SETTING_AUTO && search_movable(s);
  if (!found->fits || found->settled || !unasked || !search_is_stuck(found, &candidates->least)) return true;
  s->grounded = true;
  const bool good = is_held_up(s, found) ? candidates_try(s, candidates, found) && try_few(s, &candidates->least, found) : try_as_found(s, found);
  s->grounded = false;
  return good;
}

/* --- one budget -------------------------------------------------------------------------------------------------------------------- */

/* What is away unasked, for no gain in time, stays on the device if all of it fits there. */
static bool bring_back(Search *s, Found *found) {
  Inner in;
  Found back;
  if (!inner_open(s, s->arena, &found->outer, found->grouping, &in)) return false;
  Decisions decisions = found->decisions;
  if (!inner_bring_back(&in, &decisions)) return true;
  search_emit(s, s->arena, &in, &decisions, &s->placing, &back);
  back.estimate_ns = found->estimate_ns;
  if (back.fits && back.sim.step_ns <= found->sim.step_ns) *found = back;
  return true;
}

/* Each grouping with less memory too: of several groupings that is only done for the best. */
static bool try_less_apart(Search *s, const Outer *outer, Grouping grouping, const Bound *least, Found *found) {
  for (uint32_t i = 0; i < LESSER_BUDGETS && search_is_far(found, least); i++)
    if (!try_less_as(s, lesser_budget(s->budget, i, STEPS_AN_OCTAVE), outer, grouping, found)) return false;
  return true;
}

/* A short plan far from its bound may have been given up for its units' estimates: of the groupings of an outer choice only the best are
 * placed. */
static bool try_groupings_apart(Search *s, Found *found, const Bound *least) {
  const Outer outer = found->outer;
  Groupings groupings;
  if (!found->fits || found->settled || !search_is_short(found) || !search_is_far(found, least)) return true;
  if (!search_groupings(s, &outer, &groupings)) return false;
  s->apart = true;
  bool good = true;
  for (uint32_t g = 0; g < groupings.count && good && search_is_far(found, least); g++) {
    search_renew_some(s, found);
    good = search_as(s, &outer, groupings.data[g], found) && try_less_apart(s, &outer, groupings.data[g], least, found);
  }
  s->apart = false;
  return good;
}

bool search_finish(Search *s, Found *found) {
  if (s->settings->offload == SETTING_AUTO && !bring_back(s, found)) return false;
  if (found->paced) search_unpace(s, s->arena, found);
  search_compact(s, s->arena, found);
  return true;
}

/* Where the plan is not near its bound. */
static bool try_what_else(Search *s, Candidates *candidates, Found *found) {
  Bound *least = &candidates->least;
  return try_groupings_apart(s, found, least) && try_elsewhere(s, candidates, found) && try_grounded(s, candidates, found) &&
         search_other_sizes(s, candidates, found, least) && search_kept_alike(s, candidates, found, least) && try_lesser_as_found(s, found, least) &&
         candidates_by_hand(s, candidates, found) && try_finely(s, found, least);
}

bool search_within(Search *s, Candidates *candidates, Found *found) {
  *found = (Found){0};
  s->searched.count = 0; /* budgets are lessened to the same steps of a grid: what others came to there must not count */
  s->unplaced_ns = 0;
  if (!candidates_try(s, candidates, found)) return false;
  if (!s->brief && !found->plan && !search_fit(s, candidates, found, &candidates->least)) return false;
  if (!s->brief && !try_what_else(s, candidates, found)) return false;
  if (found->plan && !search_finish(s, found)) return false;
  found->unplaced_ns = s->unplaced_ns;
  return true;
}

/* For this budget alone. */
static bool search_once(Search *s, Candidates *candidates, Found *found) {
  return candidates_bound(s, candidates) && search_within(s, candidates, found);
}

Halves search_halves(const Found *smallest) { return (Halves){0, smallest->plan->arena_bytes, least_effort(smallest)}; }

bool search_halves_left(const Halves *halves) { return halves->some > halves->none + halves->none / NEARLY_SMALLEST; }

static uint64_t middle(const Halves *halves) { return halves->none + (halves->some - halves->none) / 2; }

bool search_half(Search *s, Candidates *candidates, Halves *halves, Found *found) {
  const Effort before = lessen(s, middle(halves));
  *found = (Found){0};
  s->searched.count = 0;
  s->placing = halves->effort;
  const bool good = candidates_bound(s, candidates) && candidates_try(s, candidates, found);
  *(found->plan ? &halves->some : &halves->none) = s->budget;
  if (found->plan) halves->effort = least_effort(found);
  return go_back(s, before, good);
}

/* What runs everything again need not be the smallest: plans are looked for in less, and a little below the budget too, under which none was found.
 * By halves that do not depend on the budget, with as much effort each, so that the same are found under a budget that was proposed: all of them
 * in a thorough search, whose plans no budget may change. */
static bool find_smaller(Search *s, Candidates *candidates, Found *smallest) {
  const uint64_t asked = s->budget, hopeless = s->thorough ? 0 : asked - asked / BELOW_ASKED;
  Halves halves = search_halves(smallest);
  while (smallest->plan->arena_bytes > asked && search_halves_left(&halves)) {
    Found found;
    if (middle(&halves) < hopeless) {
      halves.none = middle(&halves);
      continue;
    }
    if (!search_half(s, candidates, &halves, &found)) return false;
    if (found.plan) *smallest = found;
  }
  smallest->fits = smallest->plan->arena_bytes <= asked;
  return true;
}

static bool find_smallest(Search *s, Candidates *candidates, Found *found) {
  if (!s->brief) search_renew(s); /* whatever the search has left: what is smallest does not depend on the budget */
  if (!(s->thorough ? search_place_smallest : search_find_smallest)(s, candidates, found)) return false;
  if (search_lacks_host(s, found->plan)) return true; /* whatever the budget */
  if (!found->fits && !s->brief && !find_smaller(s, candidates, found)) return false;
  return !found->fits || (search_finish(s, found) && candidates_bound_each(s, candidates));
}

/* Least bound of all candidates. Where it took the plan's budget not to be enough, it holds without a limit. */
static bool bound_best(Search *s, Candidates *candidates, Bound *bound) {
  const uint64_t budget = s->budget;
  bool good = true;
  if (candidates->least.ns == UINT64_MAX) {
    s->budget = UNLIMITED_BYTES;
    good = candidates_bound_each(s, candidates);
    s->budget = budget;
  }
  *bound = candidates->least;
  return good;
}

static uint64_t listed_bound(const Candidates *candidates, const Outer *outer) {
  for (uint32_t i = 0; i < candidates->count; i++)
    if (search_same_outer(&candidates->data[i].outer, outer)) return candidates->data[i].bound.ns;
  return UINT64_MAX;
}

/* Of its listed units, and of those found, which may be of another size: whichever of them stay gathered. */
static bool bound_own(Search *s, const Candidates *candidates, Found *found) {
  Inner in;
  found->own_bound_ns = listed_bound(candidates, &found->outer);
  if (found->own_bound_ns <= found->bound.ns) return true;
  if (!inner_open_below(s, s->arena, &found->outer, found->grouping, found->own_bound_ns, &in)) return false;
  if (in.bound.ns < found->own_bound_ns) found->own_bound_ns = in.bound.ns;
  if (in.bound.ns < found->bound.ns) found->bound = in.bound;
  return true;
}

/* Where another outer choice has the least bound, a gap may say nothing of how near the plan is to the best of its own. */
static bool find_bound(Search *s, Candidates *candidates, Found *found) {
  if (!bound_best(s, candidates, &found->bound) || !bound_own(s, candidates, found)) return false;
  for (uint32_t i = 0; i < candidates->count && !found->bound_of && found->bound.ns < found->own_bound_ns; i++)
    if (candidates->data[i].bound.ns == found->bound.ns) found->bound_of = &candidates->data[i].outer;
  return true;
}

bool search_best(Search *s, const int64_t *micro, uint32_t count, Found *found) {
  Candidates candidates = candidates_list(s, micro, count);
  if (!(s->thorough ? search_anchors : search_once)(s, &candidates, found)) return false;
  if (!found->plan && !find_smallest(s, &candidates, found)) return false;
  if (found->fits) return find_bound(s, &candidates, found);
  found->bound = (Bound){0, "memory"};
  return true;
}
