/* Owns: search_anchors.h. A grid of cells, so many to the octave; each begins with an anchor, and has more where its bound falls. Then the
 * smallest plans. */
#include "planner/search/search_anchors.h"

#include "planner/search/inner.h"

#include <math.h>
#include <string.h>

/* Budgets that people name are multiples of these, and so anchors themselves. Between them some memory is left over: less so for models that
 * are planned in no time. */
enum { CELLS_AN_OCTAVE = 64, FINER_CELLS = 256, MOST_IN_A_CELL = 16 };
/* Neighbouring anchors' bounds differ by little more than this. */
static const double FALLS = 0.002;
/* The plan without a limit is ample where it comes so near its bound. */
static const double HARDLY_ABOVE = 1.01;

typedef struct Walk {
  Search *search;
  Candidates *candidates;
  Found *best;
  uint64_t budget;    /* that was asked for */
  uint64_t from;      /* no anchor above this is looked at */
  uint64_t hopeless;  /* no plan within this is faster than the best; 0: that is not known of any budget */
  Candidates above;   /* the candidates as they were bounded where the cell ends, or above */
  Candidates begin;   /* where it begins, which is the anchor that is looked at last */
} Walk;

static void copy_bounds(Candidates *to, const Candidates *from) {
  Candidate *data = to->data;
  memcpy(data, from->data, from->count * sizeof *data);
  *to = *from;
  to->data = data;
}

static Candidates copy_candidates(Arena *arena, const Candidates *from) {
  Candidates out = {.data = ARENA_ARRAY(arena, Candidate, from->count)};
  copy_bounds(&out, from);
  return out;
}

static bool bound_at(Walk *walk, uint64_t budget, Bound *bound) {
  Candidates *all = walk->candidates;
  walk->search->budget = budget;
  if (budget == walk->begin.budget) copy_bounds(all, &walk->begin);
  else if (!candidates_bound(walk->search, all)) return false;
  *bound = all->least;
  return true;
}

/* found has a plan. */
static void consider(Walk *walk, const Found *found) {
  Found *best = walk->best;
  if (found->plan->arena_bytes <= walk->budget && (!best->plan || found->sim.step_ns < best->sim.step_ns)) *best = *found;
}

/* The plan of this budget, whatever has been found for others; candidates are bounded. */
static bool search_at(Walk *walk, Found *found) {
  Search *s = walk->search;
  const Found *best = walk->best;
  search_renew(s);
  if (!search_within(s, walk->candidates, found)) return false;
  if (found->plan) consider(walk, found);
  s->stage.budgets++;
  s->stage.bytes = s->budget < walk->budget ? s->budget : walk->budget;
  s->stage.step_ns = best->plan ? best->sim.step_ns : 0;
  return true;
}

/* The plan without a limit, if it fits. It is so near its bound that no anchor above what it takes is looked at, whatever the budget. */
static bool try_unlimited(Walk *walk) {
  Bound least;
  Found found;
  if (!bound_at(walk, UNLIMITED_BYTES, &least)) return false;
  const double most = HARDLY_ABOVE * (double)least.ns;
  if (!search_at(walk, &found)) return false;
  if (found.plan && found.plan->arena_bytes <= walk->budget && (double)found.sim.step_ns <= most) walk->from = found.plan->arena_bytes - 1;
  return true;
}

/* Units of sizes that bound_at leaves out, too: whether none of them could beat the best step under this budget. */
static bool rule_out_sizes(Walk *walk, uint64_t budget) {
  Bound least = {UINT64_MAX, "memory"};
  const uint64_t best = walk->best->plan ? walk->best->sim.step_ns : UINT64_MAX;
  walk->search->budget = budget;
  for (uint32_t i = 0; i < walk->candidates->count && least.ns >= best; i++)
    if (!search_bound_sizes(walk->search, &walk->candidates->data[i].outer, best, &least)) return false;
  if (least.ns >= best && walk->hopeless < budget) walk->hopeless = budget;
  return true;
}

/* Finds out whether no plan within this budget is faster than the best. bound: of the candidates under it. */
static bool rule_out(Walk *walk, uint64_t budget, const Bound *bound) {
  const bool listed = bound->ns == UINT64_MAX || (walk->best->plan && bound->ns >= walk->best->sim.step_ns);
  return !listed || rule_out_sizes(walk, budget);
}

static bool try_anchor(Walk *walk, uint64_t budget) {
  Bound bound;
  Found found;
  if (budget > walk->from || budget <= walk->hopeless) return true;
  if (!bound_at(walk, budget, &bound) || !rule_out(walk, budget, &bound)) return false;
  return budget <= walk->hopeless || search_at(walk, &found);
}

static uint32_t anchors_in_cell(const Bound *low, const Bound *high) {
  if (low->ns == UINT64_MAX) return MOST_IN_A_CELL;
  double falls = log((double)low->ns / (double)high->ns) / FALLS;
  return falls <= 1 ? 1 : falls >= MOST_IN_A_CELL ? MOST_IN_A_CELL : (uint32_t)ceil(falls);
}

/* From its last anchor to its first. high: the bound where it ends; becomes that where it begins. */
static bool try_cell(Walk *walk, uint64_t begin, uint64_t bytes, Bound *high) {
  Bound low;
  copy_bounds(&walk->above, walk->candidates);
  if (!bound_at(walk, begin, &low)) return false;
  copy_bounds(&walk->begin, walk->candidates);
  copy_bounds(walk->candidates, &walk->above);
  uint64_t count = anchors_in_cell(&low, high);
  for (uint64_t i = count; i-- > 0 && !walk->hopeless;)
    if (!try_anchor(walk, begin + bytes * i / count)) return false;
  *high = low;
  return true;
}

static bool walk_down(Walk *walk) {
  const uint64_t cells = search_has_few_operators(walk->search) ? FINER_CELLS : CELLS_AN_OCTAVE;
  uint64_t bytes = search_grid_step(walk->from, cells), begin = walk->from - walk->from % bytes;
  Bound high;
  if (!bound_at(walk, begin + bytes, &high)) return false;
  while (!walk->hopeless && begin > 0) {
    if (!try_cell(walk, begin, bytes, &high)) return false;
    bytes = search_grid_step(begin - 1, cells);
    begin -= bytes;
  }
  return true;
}

/* As it comes to whatever budget it was found under. */
static bool try_small(Walk *walk, Found found) {
  walk->search->budget = found.plan->arena_bytes;
  found.fits = true;
  if (!search_finish(walk->search, &found)) return false;
  consider(walk, &found);
  return true;
}

/* Smaller ones, until none of those that are left could be the best. least: becomes what the smallest takes. */
static bool try_smaller(Walk *walk, Halves halves, uint64_t *least) {
  while (halves.some > walk->hopeless && search_halves_left(&halves)) {
    Found found;
    if (!search_half(walk->search, walk->candidates, &halves, &found)) return false;
    if (!found.plan) continue;
    *least = found.plan->arena_bytes;
    if (!try_small(walk, found) || !rule_out(walk, halves.some, &walk->candidates->least)) return false;
  }
  return true;
}

/* Between the smallest plan and the first anchor that has one. What the smallest takes is an anchor too: its own plan runs everything again. */
static bool try_smallest(Walk *walk) {
  Search *s = walk->search;
  Found smallest;
  Bound bound;
  search_renew(s);
  if (!search_place_smallest(s, walk->candidates, &smallest)) return false;
  uint64_t least = smallest.plan->arena_bytes;
  if (search_lacks_host(s, smallest.plan) || least <= walk->hopeless) return true;
  if (!bound_at(walk, least, &bound) || !rule_out(walk, least, &bound)) return false;
  if (least <= walk->hopeless) return true;
  const Halves halves = search_halves(&smallest);
  return try_small(walk, smallest) && try_smaller(walk, halves, &least) && try_anchor(walk, least);
}

/* Of all candidates, and of the plan's own units, which may be of another size. */
static bool bound_found(Walk *walk) {
  Bound *least = &walk->candidates->least, own;
  const Found *best = walk->best;
  Inner in;
  if (!bound_at(walk, walk->budget, &own)) return false;
  if (!best->plan) return true;
  if (!inner_open(walk->search, walk->search->arena, &best->outer, best->grouping, &in)) return false;
  if (in.bound.ns < least->ns) *least = in.bound;
  return true;
}

bool search_anchors(Search *s, Candidates *candidates, Found *found) {
  Walk walk = {.search = s, .candidates = candidates, .best = found, .budget = s->budget, .from = s->budget};
  walk.above = copy_candidates(s->arena, candidates);
  walk.begin = copy_candidates(s->arena, candidates);
  *found = (Found){0};
  return try_unlimited(&walk) && walk_down(&walk) && try_smallest(&walk) && bound_found(&walk);
}
