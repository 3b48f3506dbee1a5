/* Owns: search_sizes.h. */
#include "planner/search/search_sizes.h"

/* So far above its bound a plan is worth looking at with units of other sizes, a short one with those of all sizes: the best need not be near. */
static const double WORTH_OTHER_SIZES = 1.01;
/* Other choices' bounds of the sizes that are listed are near so far above what was found. */
static const double NEAR_FOUND = 1.05;
/* Units of nearby sizes are tried where a plan is stuck, around what is found, until that does not change. */
enum { NEARBY_ROUNDS = 4 };

/* --- sizes ------------------------------------------------------------------------------------------------------------------------- */

/* Bounds are of the sizes that are listed: a short plan that reaches them can be slower than one with units of a size near its own. */
static bool is_worth_other_sizes(const Found *found, const Bound *bound) {
  if (!found->fits) return false;
  if (search_is_short(found)) return true;
  return search_is_long(found) ? search_is_very_far(found, bound) : search_exceeds(found, WORTH_OTHER_SIZES, bound);
}

/* Around what is found. least: falls to the bound of what is tried. */
static bool try_nearby_sizes(Search *s, Found *found, Bound *least) {
  for (int i = 0; i < NEARBY_ROUNDS && is_worth_other_sizes(found, least); i++) {
    search_renew_some(s, found);
    const Plan *before = found->plan;
    if (!search_nearby(s, &found->outer, found->grouping, found, least)) return false;
    if (found->plan == before) break;
  }
  return true;
}

/* An outer choice that promises far more than was found may lack but units that fit it. */
static bool try_nearby_others(Search *s, const Candidates *candidates, Found *found, Bound *least) {
  for (uint32_t i = 0; i < candidates->count && is_worth_other_sizes(found, least); i++) {
    const Candidate *other = &candidates->data[i];
    if (!search_is_far(found, &other->bound)) break;
    if (other->grouping.wrap == WRAP_AUTO || search_same_outer(&other->outer, &found->outer)) continue;
    if (!search_nearby(s, &other->outer, other->grouping, found, least)) return false;
  }
  return true;
}

static bool try_all_sizes(Search *s, Found *found, Bound *least) {
  const Outer outer = found->outer;
  if (!found->fits || !search_is_short(found) || !search_exceeds(found, WORTH_OTHER_SIZES, least)) return true;
  search_renew_some(s, found);
  return search_all_sizes(s, &outer, found, least);
}

/* Nor need it be of this outer choice, which the sizes that are listed made the best: all sizes of those whose bounds with these are near. */
static bool try_all_sizes_of_others(Search *s, const Candidates *candidates, Found *found, Bound *least) {
  if (!found->fits || !search_is_short(found)) return true;
  for (uint32_t i = 0; i < candidates->count; i++) {
    const Candidate *other = &candidates->data[i];
    if ((double)other->bound.ns > NEAR_FOUND * (double)found->sim.step_ns) break;
    if (search_same_outer(&other->outer, &found->outer)) continue;
    search_renew_some(s, found);
    if (!search_all_sizes(s, &other->outer, found, least)) return false;
  }
  return true;
}

/* Of another outer choice no size that is listed may fit, or be as fast, and others may: where state is small its padding counts. */
static bool try_unlisted_sizes(Search *s, const Candidate *other, Found *found, Bound *least) {
  Bound bound = {UINT64_MAX, "memory"};
  if (other->bound.ns < found->sim.step_ns) return true; /* that was tried */
  if (!search_bound_sizes(s, &other->outer, found->sim.step_ns, &bound)) return false;
  if (bound.ns >= found->sim.step_ns) return true;
  search_renew_some(s, found);
  return search_all_sizes(s, &other->outer, found, least);
}

static bool try_unlisted_sizes_of_others(Search *s, const Candidates *candidates, Found *found, Bound *least) {
  bool good = true;
  for (uint32_t i = 0; i < candidates->count && good && found->fits && search_is_short(found); i++)
    good = try_unlisted_sizes(s, &candidates->data[i], found, least);
  return good;
}

bool search_other_sizes(Search *s, const Candidates *candidates, Found *found, Bound *least) {
  if (s->settings->wrap != WRAP_AUTO) return true;
  if (!try_nearby_sizes(s, found, least)) return false;
  const Plan *before = found->plan;
  if (!try_nearby_others(s, candidates, found, least) || !try_all_sizes(s, found, least)) return false;
  if (!try_all_sizes_of_others(s, candidates, found, least) || !try_unlisted_sizes_of_others(s, candidates, found, least)) return false;
  return found->plan == before || try_nearby_sizes(s, found, least);
}

/* --- units kept alike -------------------------------------------------------------------------------------------------------------- */

static uint64_t best_ns(const Found *found) { return found->plan ? found->sim.step_ns : UINT64_MAX; }

/* In units of whatever sizes are open. */
static bool try_sizes_alike(Search *s, const Outer *outer, Found *found, Bound *least) {
  Bound bound = {UINT64_MAX, "memory"};
  if (s->settings->wrap != WRAP_AUTO) return search_as(s, outer, (Grouping){s->settings->wrap, s->settings->wrap_numel}, found);
  if (!search_bound_sizes(s, outer, best_ns(found), &bound)) return false;
  return bound.ns >= best_ns(found) || search_all_sizes(s, outer, found, least);
}

static bool try_alike(Search *s, const Candidates *candidates, Found *found, Bound *least) {
  for (uint32_t i = 0; i < candidates->count && search_is_far(found, least); i++) {
    const Outer *outer = &candidates->data[i].outer;
    if (!search_kept_is_open(s, outer)) continue;
    search_renew_some(s, found);
    if (!try_sizes_alike(s, outer, found, least)) return false;
  }
  return true;
}

bool search_kept_alike(Search *s, const Candidates *candidates, Found *found, Bound *least) {
  static const Keeping alike[] = {KEEP_NONE, KEEP_ALL};
  bool good = true;
  for (uint32_t k = 0; k < sizeof alike / sizeof *alike && good && found->fits && search_is_short(found); k++) {
    s->keeping = alike[k];
    good = try_alike(s, candidates, found, least);
  }
  s->keeping = KEEP_FREELY;
  return good;
}

/* --- where nothing fits ----------------------------------------------------------------------------------------------------------- */

static bool fit_any(Search *s, const Candidates *candidates, Found *found, Bound *least) {
  bool good = true;
  for (uint32_t i = 0; i < candidates->count && good && !found->plan; i++) {
    const Outer *outer = &candidates->data[i].outer;
    if (s->keeping == KEEP_FREELY ? s->settings->wrap == WRAP_AUTO : search_kept_is_open(s, outer)) good = try_sizes_alike(s, outer, found, least);
  }
  return good;
}

/* Of longer models it would be little more, and take long. */
bool search_fit(Search *s, const Candidates *candidates, Found *found, Bound *least) {
  static const Keeping ways[] = {KEEP_FREELY, KEEP_NONE, KEEP_ALL};
  bool good = true;
  if (!search_has_few_operators(s)) return true;
  for (uint32_t k = 0; k < sizeof ways / sizeof *ways && good && !found->plan; k++) {
    s->keeping = ways[k];
    good = fit_any(s, candidates, found, least);
  }
  s->keeping = KEEP_FREELY;
  return good;
}
