/* Owns: from trials of the inner search to placed plans, of which the simulator chooses. Estimates leave addresses out. */
#include "planner/place/place.h"
#include "planner/search/inner.h"

#include <math.h>
#include <stdlib.h>

enum { PLACEMENT_TRIES = 6, PLACED_TRIALS = 2, PLACED_WITH_LESS = 2, FEW_ITEMS = 2000, FIXED_DEPTHS = 2, PLACED_SETTINGS = 3000, PLACED_OTHERS = 12 };
/* Goals below the budget that plans of so many instructions are placed for, on a grid of so many to the octave; nor does placing them take
 * long otherwise. */
enum { AIMS = 12, AIMS_AN_OCTAVE = 32, SHORT_INSTRS = 1000 };
/* Instructions in settings placed one after the other without any gain, after which the rest is left. */
enum { PLACED_IN_VAIN = 120000 };
/* Where the best trial exceeds the budget by so small a share of it, the next one may fit. */
enum { HARDLY_SMALLER = 200 };
/* Whose gathers are moved one by one where none came near the bound. */
enum { MOVED_SETTINGS = 100 };
/* Placing plans of more instructions than these takes long; of the longest only the one that is chosen is tried with gathers that start as
 * early as they can. */
enum { LONG_INSTRS = 2000, PACED_INSTRS = 4000 };
/* A finished plan with so much more arena than is live at once, a share of it, is placed again, with ever more of that: a long one only
 * for a gain that shows, since placing it takes long. */
enum { WORTH_COMPACTING = 100, WORTH_COMPACTING_LONG = 10, COMPACTINGS = 4 };
/* Room that placing nearly always costs these, so that few placements are tried: a share of the budget. */
static const double LARGE_MARGIN = 0.004;
static const double WITHIN_REACH = 1.003; /* estimates this close may change places once placed */
static const double COMPARABLE = 1.03;    /* likewise, in plans of so few operators that each wait counts, or of other units */
static const double WORTH_AIMING = 1.01;  /* placed this close to the best, one of them is aimed lower as well */
static const double WORTH_OTHERS = 1.01;  /* this far above the bound a plan is compared with its comparable ones even where placing takes long */
static const double HELD_UP = 1.01;       /* a placed plan so much slower than its estimate waits for addresses */
static const double AS_ESTIMATED = 1.001; /* a placed plan no slower than this against its estimate waits for no addresses */

/* No gather is to start further ahead than asked, whatever is free. */
static bool is_depth_pinned(const Search *s) { return s->settings->prefetch != SETTING_AUTO; }

/* Large plans are placed once, and fast: their gathers start as early as they can. */
static bool is_paced(const Inner *in, const Plan *plan) {
  return is_depth_pinned(in->search) || (plan->overlap.contention > 0 && !inner_is_large(in));
}

/* Gathers that wait for their slots take the estimated time. As early as addresses let them is sometimes faster. */
void search_unpace(Search *s, Arena *arena, Found *found) {
  SimResult paced = found->sim;
  if (is_depth_pinned(s)) return;
  events_insert(arena, found->plan, s->specs, false);
  plan_simulate(arena, found->plan, &found->sim);
  found->paced = found->sim.step_ns >= paced.step_ns;
  if (!found->paced) return;
  events_insert(arena, found->plan, s->specs, true);
  found->sim = paced;
}

/* Addresses and events anew, for this goal. Whether that is faster, or as fast in less memory, within `most` bytes; if not, addresses are
 * as before, and events are to be inserted again. */
static bool place_again(Search *s, Arena *arena, Found *found, uint64_t goal, uint64_t most) {
  Plan *plan = found->plan;
  const uint64_t before = plan->arena_bytes, step_ns = found->sim.step_ns;
  uint64_t none = 0, *offsets = ARENA_ARRAY(arena, uint64_t, plan->bufs.count);
  SimResult sim;
  for (uint32_t b = 0; b < plan->bufs.count; b++) offsets[b] = plan->bufs.data[b].offset;
  memory_place(plan, goal, &none);
  if (plan->arena_bytes <= most) {
    events_insert(arena, plan, s->specs, found->paced);
    plan_simulate(arena, plan, &sim);
    if (sim.step_ns < step_ns || (sim.step_ns == step_ns && plan->arena_bytes < before)) {
      found->sim = sim;
      return true;
    }
  }
  for (uint32_t b = 0; b < plan->bufs.count; b++) plan->bufs.data[b].offset = offsets[b];
  plan->arena_bytes = before;
  return false;
}

void search_compact(Search *s, Arena *arena, Found *found) {
  uint64_t arena_bytes = found->plan->arena_bytes, live = found->plan->max_live_bytes;
  uint64_t spare = arena_bytes > live ? arena_bytes - live : 0;
  if (spare < arena_bytes / (found->plan->instrs.count > PACED_INSTRS ? WORTH_COMPACTING_LONG : WORTH_COMPACTING)) return;
  for (uint64_t i = 0; i < COMPACTINGS; i++)
    if (place_again(s, arena, found, live + i * spare / COMPACTINGS, arena_bytes - 1)) return;
  events_insert(arena, found->plan, s->specs, found->paced);
}

bool search_lacks_host(const Search *s, const Plan *plan) {
  return s->cluster->device.host_memory && plan->host_bytes > s->cluster->device.host_memory;
}

void search_emit(Search *s, Arena *arena, const Inner *in, const Decisions *decisions, uint64_t *effort, Found *found) {
  *found = (Found){.outer = in->outer, .grouping = in->grouping, .decisions = *decisions, .bound = in->bound};
  found->units = found->decisions.units = in->units;
  EmitInput input = {.program = in->program,
                     .decisions = &found->decisions,
                     .cluster = s->cluster,
                     .skeleton = in->skeleton,
                     .spans = s->spans,
                     .span_paths = s->span_paths};
  found->plan = emit_plan(arena, &input);
  found->paced = is_paced(in, found->plan);
  memory_place(found->plan, s->budget, effort);
  events_insert(arena, found->plan, s->specs, found->paced);
  found->fits = found->plan->arena_bytes <= s->budget && !search_lacks_host(s, found->plan);
  if (!found->fits) return;
  plan_simulate(arena, found->plan, &found->sim);
  if (found->paced && found->plan->instrs.count <= PACED_INSTRS) search_unpace(s, arena, found);
}

/* Which buffers follow each other at an address, and so what waits for what, depends on where they are to end: a plan of few instructions
 * is aimed lower too, at steps of a fixed grid, where nearby budgets meet. */
static void aim_lower(Search *s, Arena *arena, const Inner *in, Found *found) {
  const uint64_t live = found->plan->max_live_bytes, most = s->budget < 2 * live ? s->budget : 2 * live - 1;
  const uint64_t step = search_grid_step(most, AIMS_AN_OCTAVE);
  uint64_t goal = most - most % step;
  bool good = true;
  for (int i = 0; i < AIMS && goal >= live && search_is_stuck(found, &in->bound); i++, goal -= step)
    good = place_again(s, arena, found, goal, s->budget);
  if (!good) events_insert(arena, found->plan, s->specs, found->paced);
}

static bool is_worth_aiming(const Found *next, const Found *best) {
  if (!next->fits || next->plan->instrs.count > SHORT_INSTRS) return false;
  return !best->plan || (double)next->sim.step_ns < WORTH_AIMING * (double)best->sim.step_ns;
}

/* Whether `next` took the place of `best`; the other one's plan is freed. */
static bool take_better(const Found *next, Found *best) {
  const bool better = next->fits && (!best->plan || next->sim.step_ns < best->sim.step_ns);
  arena_free(better ? best->arena : next->arena);
  if (better) *best = *next;
  return better;
}

/* Emits, places and simulates, and keeps the plan if it is better than `best`. What came of it: */
typedef struct Placed {
  uint64_t excess;  /* bytes over the budget; 0: it fits */
  uint64_t step_ns; /* as simulated, if it fits */
  uint32_t instrs;
  bool better;
} Placed;

/* unpaced: however long the plan, its gathers may start as early as they can. */
static Placed place_as(Search *s, const Inner *in, const Decisions *decisions, uint64_t estimate_ns, bool unpaced, uint64_t *effort, Found *best) {
  Found next;
  Arena *arena = arena_new();
  search_emit(s, arena, in, decisions, effort, &next);
  next.estimate_ns = estimate_ns;
  next.arena = arena;
  if (unpaced && next.fits && next.paced) search_unpace(s, arena, &next);
  if (is_worth_aiming(&next, best)) aim_lower(s, arena, in, &next);
  next.settled = in->ample && next.fits && (double)next.sim.step_ns <= AS_ESTIMATED * (double)estimate_ns;
  Placed placed = {.excess = next.fits ? 0 : next.plan->arena_bytes - s->budget};
  placed.step_ns = next.sim.step_ns;
  placed.instrs = next.plan->instrs.count;
  placed.better = take_better(&next, best);
  return placed;
}

static Placed place_decisions(Search *s, const Inner *in, const Decisions *decisions, uint64_t estimate_ns, uint64_t *effort, Found *best) {
  return place_as(s, in, decisions, estimate_ns, false, effort, best);
}

/* Estimates are off alike in plans that are alike: one is compared with what the best plan was estimated to take. */
static bool within_reach(const Found *best, uint64_t estimate_ns, double share) {
  if (!best->plan) return true;
  const uint64_t step = best->sim.step_ns > best->estimate_ns ? best->sim.step_ns : best->estimate_ns;
  return (double)estimate_ns <= share * (double)step;
}

bool search_may_beat(const Tried *tried, const Found *best) {
  if (tried->small) return tried->least.ns < best->sim.step_ns;
  return tried->estimate_ns != UINT64_MAX && within_reach(best, tried->estimate_ns, WITHIN_REACH);
}

/* Places the pool's trials, best first, until none can be better than `best` any more. Returns by how many bytes the best of
 * those that do not fit exceeds the budget, 0 when the first one fits. */
static uint64_t place_pool(Search *s, Inner *in, Found *best) {
  uint64_t least = UINT64_MAX;
  bool small = inner_is_small(in);
  for (int i = 0; i < (small ? POOL : inner_is_large(in) ? 1 : PLACED_TRIALS) && in->pool[i].ns != UINT64_MAX; i++) {
    if (!within_reach(best, in->pool[i].ns, s->apart ? COMPARABLE : WITHIN_REACH)) break;
    Decisions decisions = inner_decisions(in, &in->pool[i]);
    uint64_t excess = place_decisions(s, in, &decisions, in->pool[i].ns, &s->placing, best).excess;
    if (!excess && !small) return 0;
    if (!excess && i > 0) continue;
    if (excess < least) least = excess;
    if (!small && excess > s->budget / HARDLY_SMALLER) break;
  }
  return least == UINT64_MAX ? 0 : least;
}

/* The best trial with less room for what may also be gathered or released at another time. Whether that was as good as it was
 * estimated to be with all of it. */
static bool place_with_less(Search *s, Inner *in, uint64_t excess, Found *best) {
  if (in->pool[0].ns == UINT64_MAX) return false;
  Decisions decisions = inner_decisions(in, &in->pool[0]);
  for (uint64_t less = excess + excess / 4, tries = 0; less < in->room && tries < PLACED_WITH_LESS; tries++, less *= 2) {
    decisions.room = in->room - less;
    Placed placed = place_decisions(s, in, &decisions, in->pool[0].ns, &s->placing, best);
    if (!placed.excess) return (double)placed.step_ns <= AS_ESTIMATED * (double)in->pool[0].ns;
  }
  return false;
}

uint64_t search_first_budget(const Inner *in) {
  uint64_t budget = in->search->budget;
  return inner_is_large(in) ? budget - (uint64_t)(LARGE_MARGIN * (double)budget) : budget;
}

/* --- few items: all of their settings ------------------------------------------------------------------------------------------- */

typedef struct Setting {
  uint64_t ns; /* estimated */
  uint32_t number, rule;
} Setting;

typedef VEC(Setting) Settings;

static int compare_settings(const void *a, const void *b) {
  const Setting *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
  return x->number != y->number ? (x->number < y->number ? -1 : 1) : (x->rule > y->rule) - (x->rule < y->rule);
}

static void list_rules(Arena *arena, const Inner *in, Trial *trial, uint32_t number, double below, Settings *out) {
  uint32_t count;
  const IssueRule *rules = inner_rules(&count);
  Judge judge;
  judge_open(&judge, in, trial);
  for (uint32_t r = 0; r < count && (double)judge.least_ns < below; r++) {
    if (!inner_new_rule(in, 0, r)) continue;
    trial->issue = rules[r];
    if (judge_rule(&judge, trial) && (double)trial->ns < below) vec_push(arena, out, ((Setting){trial->ns, number, r}));
  }
  judge_close(&judge);
}

/* Those that fit and are estimated to take less than `below`, under every rule. */
static Settings list_settings(Arena *arena, const Inner *in, double below) {
  Settings out = {0};
  Trial trial = inner_new_trial(in);
  for (uint32_t number = 0, total = inner_settings(in); number < total; number++) {
    inner_set(in, number, &trial);
    list_rules(arena, in, &trial, number, below, &out);
  }
  return out;
}

/* Moves its gathers one by one from where its rule issues them, and places that if it is faster by estimate. */
static void place_moved(Search *s, const Inner *in, Trial *trial, Found *best) {
  if (inner_move_slots(in, trial) && within_reach(best, trial->ns, WITHIN_REACH)) {
    Decisions decisions = inner_decisions(in, trial);
    (void)place_decisions(s, in, &decisions, trial->ns, &s->placing, best);
  }
  trial->slots = NULL;
}

/* Estimated to be the best, but addresses make it wait: other slots may spare that. */
static bool is_held_up(const Placed *placed, uint64_t estimate_ns, const Found *best) {
  return !placed->excess && estimate_ns < best->sim.step_ns && (double)placed->step_ns > HELD_UP * (double)estimate_ns;
}

/* Of estimates, what comes near the best plan, which may have been estimated to take longer than it does, as others may. */
static double comparable_ns(const Found *best) {
  if (!best->plan) return INFINITY;
  return COMPARABLE * (double)(best->estimate_ns > best->sim.step_ns ? best->estimate_ns : best->sim.step_ns);
}

/* Other slots than rules give may be best with other settings than are best under rules. */
static void move_settings(Search *s, const Inner *in, const Settings *settings, Found *best) {
  uint32_t count;
  const IssueRule *rules = inner_rules(&count);
  Trial trial = inner_new_trial(in);
  for (uint32_t i = 0; i < settings->count && i < MOVED_SETTINGS && best->plan && search_is_far(best, &in->bound); i++) {
    const Setting *setting = &settings->data[i];
    if ((double)setting->ns >= comparable_ns(best)) break;
    inner_set(in, setting->number, &trial);
    trial.issue = rules[setting->rule];
    place_moved(s, in, &trial, best);
  }
}

/* Estimates and simulator may disagree on which of all settings is best: places those that are estimated to come near. */
static void place_settings(Search *s, Inner *in, Found *best) {
  if (!inner_settings(in) || (best->plan && best->sim.step_ns <= bound_reached(&in->bound))) return;
  Arena *scratch = arena_new();
  Settings settings = list_settings(scratch, in, comparable_ns(best));
  uint32_t count;
  const IssueRule *rules = inner_rules(&count);
  if (settings.count) qsort(settings.data, settings.count, sizeof(Setting), compare_settings);
  Trial trial = inner_new_trial(in);
  for (uint32_t i = 0, vain = 0; i < settings.count && i < PLACED_SETTINGS && vain < PLACED_IN_VAIN; i++) {
    const Setting *setting = &settings.data[i];
    if ((double)setting->ns >= comparable_ns(best)) break;
    inner_set(in, setting->number, &trial);
    trial.issue = rules[setting->rule];
    Decisions decisions = inner_decisions(in, &trial);
    Placed placed = place_decisions(s, in, &decisions, setting->ns, &s->placing, best);
    if (is_held_up(&placed, setting->ns, best)) place_moved(s, in, &trial, best);
    vain = placed.better ? 0 : vain + placed.instrs;
  }
  move_settings(s, in, &settings, best);
  arena_free(scratch);
}

/* --- any number of items -------------------------------------------------------------------------------------------------------- */

/* Addresses can make a plan wait that fits. */
static bool as_estimated(const Inner *in, const Found *best) {
  return !best->plan || (double)best->sim.step_ns <= AS_ESTIMATED * (double)in->pool[0].ns;
}

/* Searches again with the room that `budget` leaves; whether anything fits it. */
static bool search_again(Inner *in, uint64_t budget) {
  inner_set_budget(in, budget);
  if (!in->from) {
    inner_seed(in, false);
    if (in->pool[0].ns == UINT64_MAX) return false;
  }
  if (!inner_is_large(in)) inner_improve(in);
  return in->pool[0].ns != UINT64_MAX;
}

/* With less memory than there is more time is no matter of addresses; what goes on from a plan has all of it. */
static void note_unplaced(Search *s, const Inner *in) {
  uint64_t ns = in->pool[0].ns;
  if ((!s->brief || in->from) && ns != UINT64_MAX && (!s->unplaced_ns || ns < s->unplaced_ns)) s->unplaced_ns = ns;
}

/* A long plan that waits for addresses as long with less room: more of that is no help, and each look takes long. */
static bool waits_anyway(const Found *best, uint64_t before_ns) {
  return best->plan && best->plan->instrs.count > PACED_INSTRS && best->sim.step_ns == before_ns;
}

/* What was placed last without fitting; budget 0: nothing was. excess: of the whole budget. */
typedef struct Unplaced {
  uint64_t budget, ns, excess;
  int64_t live;
} Unplaced;

/* Less room often leaves the best trial as it is: far too large still. */
static uint64_t place_unlike(Search *s, Inner *in, const Unplaced *last, Found *best) {
  const Trial *trial = &in->pool[0];
  const bool alike = last->ns == trial->ns && last->live == trial->live && last->excess > s->budget / HARDLY_SMALLER;
  return alike && last->budget && !inner_is_small(in) ? last->excess : place_pool(s, in, best);
}

/* Searches again with less room until a placed plan fits the budget, or it cannot be better than `best` any more; once it does,
 * with more room again where giving that up costs much. */
static void place_within(Search *s, Inner *in, Found *best) {
  const uint64_t least = s->budget / 1000;
  Unplaced failed = {0};
  uint64_t budget = search_first_budget(in), fitted = 0;
  note_unplaced(s, in);
  for (int i = 0; i < PLACEMENT_TRIES; i++) {
    const uint64_t before_ns = best->plan ? best->sim.step_ns : UINT64_MAX;
    uint64_t excess = place_unlike(s, in, &failed, best), next;
    if (i && !excess && !fitted && !as_estimated(in, best) && waits_anyway(best, before_ns)) return;
    if (excess ? place_with_less(s, in, excess, best) : as_estimated(in, best)) {
      if (!failed.budget || (double)in->pool[0].ns <= WITHIN_REACH * (double)failed.ns) return;
      fitted = budget;
      next = budget + (failed.budget - budget) / 2;
    } else {
      failed = (Unplaced){budget, in->pool[0].ns, excess, in->pool[0].live};
      excess += least << i;
      next = budget > excess ? budget - excess : 0;
      if (fitted && next < fitted + least) next = fitted + (failed.budget - fitted) / 2;
    }
    if (next < fitted + least) return;
    in->rival_ns = best->plan ? best->sim.step_ns : 0; /* estimates that could not be placed are none */
    while (!search_again(in, next) && failed.budget - next > least) next = failed.budget - (failed.budget - next) / 2; /* less where that leaves nothing */
    budget = next;
  }
}

/* --- what else is worth a look, where it is easy to place ------------------------------------------------------------------------- */

static void place_easily(Search *s, const Inner *in, const Decisions *decisions, uint64_t estimate_ns, Found *best) {
  uint64_t none = 0;
  (void)place_decisions(s, in, decisions, estimate_ns, &none, best);
}

/* The last so many units that may, whose gathers for backward would follow their release. Whether that is more than was. */
static bool keep_last(const Inner *in, uint32_t count, bool *keep) {
  const uint32_t units = in->items.units.count;
  bool more = false;
  for (uint32_t i = units > count ? units - count : 0; i < units; i++) {
    const int32_t unit = in->items.units.data[i].unit;
    more |= !keep[unit];
    keep[unit] = true;
  }
  return more;
}

/* With gathers so many uses ahead, and as many units kept. */
static void place_at_depth(Search *s, const Inner *in, Decisions decisions, uint32_t depth, uint64_t estimate_ns, Found *best) {
  const uint32_t units = in->units->units.count;
  bool *keep = ARENA_ARRAY(s->arena, bool, units);
  if (!inner_has_rules(in)) return;
  memcpy(keep, decisions.keep, units * sizeof(bool));
  if (!keep_last(in, depth, keep)) return;
  decisions.keep = keep;
  decisions.issue = (IssueRule){.ahead = depth, .behind = decisions.issue.behind};
  place_easily(s, in, &decisions, estimate_ns, best);
}

/* Whether it is estimated to be faster than the best plan is. */
static bool promises_more(const Inner *in, const Decisions *decisions, const Found *best) {
  Trial trial = inner_trial_of(in, decisions);
  return inner_judge(in, &trial) && trial.ns < best->sim.step_ns;
}

/* Gathers start as early as addresses let them, which estimates do not know: the best plan's decisions under the other issue rules,
 * and at fixed depths. Long plans, where there is not much to gain, only under rules that promise something. */
static void try_other_rules(Search *s, const Inner *in, Found *best) {
  uint32_t count;
  const IssueRule *rules = inner_rules(&count);
  const Decisions decisions = best->decisions;
  const uint64_t estimate_ns = best->estimate_ns;
  const bool is_long = best->plan->instrs.count > (search_is_stuck(best, &in->bound) ? PACED_INSTRS : LONG_INSTRS);
  for (uint32_t r = 0; r < count; r++) {
    Decisions other = decisions;
    other.issue = rules[r];
    if (inner_same_rule(in, &other.issue, &decisions.issue) || (is_long && !promises_more(in, &other, best))) continue;
    place_easily(s, in, &other, estimate_ns, best);
  }
  for (uint32_t depth = 1; depth <= FIXED_DEPTHS; depth++) place_at_depth(s, in, decisions, depth, estimate_ns, best);
}

/* Trials that are estimated to be slower, with the best plan's issue rule: estimates tell less than a hundredth apart. */
static void try_others(Search *s, const Inner *in, Found *best) {
  const IssueRule issue = best->decisions.issue;
  for (int i = 0; i < PLACED_OTHERS && in->pool[i].ns != UINT64_MAX; i++) {
    if ((double)in->pool[i].ns > COMPARABLE * (double)best->estimate_ns) break;
    Decisions decisions = inner_decisions(in, &in->pool[i]);
    decisions.issue = issue;
    place_easily(s, in, &decisions, in->pool[i].ns, best);
  }
}

/* Placing the longest takes long, and they are what they were estimated to be. */
static bool is_worth_others(const Inner *in, const Found *best) {
  if (best->plan->instrs.count > PACED_INSTRS) return false;
  if (best->plan->instrs.count <= SHORT_INSTRS) return search_is_stuck(best, &in->bound);
  return (double)best->sim.step_ns > WORTH_OTHERS * (double)in->bound.ns;
}

/* Everything or nothing run again, all units kept gathered or, of those that may be released, the last: what people set by hand. */
static Trial policy_trial(const Inner *in, bool again, bool kept) {
  Trial trial = inner_new_trial(in);
  for (uint32_t i = 0; i < in->items.count; i++) {
    const Item *item = item_at(&in->items, i);
    if (item->op >= 0) item_set_again(item, again && !item->held, trial.recompute);
  }
  (void)keep_last(in, kept ? in->items.units.count : 1, trial.keep);
  trial.issue = (IssueRule){.ahead = 1, .behind = trial.issue.behind};
  return trial;
}

/* Gathers one use ahead, and compared with gathers as early as addresses let them, however long the plan. */
static void try_policy(Search *s, const Inner *in, bool again, bool kept, uint64_t *effort, Found *best) {
  Trial trial = policy_trial(in, again, kept);
  if (!in->keep_free || !inner_judge(in, &trial) || !within_reach(best, trial.ns, COMPARABLE)) return;
  const Decisions decisions = inner_decisions(in, &trial);
  (void)place_as(s, in, &decisions, trial.ns, true, effort, best);
}

/* Nothing run again, of whatever units the search is at, if that is easy to place. */
static void try_keeping_all(Search *s, const Inner *in, Found *best) {
  uint64_t none = 0;
  if (!best->plan || best->sim.step_ns > bound_reached(&in->bound)) try_policy(s, in, false, false, &none, best);
}

/* The best plan's gathers one by one, from where each rule issues them: estimates do not know which of them addresses let start in time. */
static void try_slots(Search *s, const Inner *in, Found *best) {
  uint32_t count;
  const IssueRule *rules = inner_rules(&count);
  const Decisions of = best->decisions;
  if (best->plan->instrs.count > SHORT_INSTRS) return;
  for (uint32_t r = 0; r < count && search_is_stuck(best, &in->bound); r++) {
    Trial trial = inner_trial_of(in, &of);
    trial.issue = rules[r];
    if (!inner_new_rule(in, 0, r) || !inner_move_slots(in, &trial) || !within_reach(best, trial.ns, WITHIN_REACH)) continue;
    Decisions decisions = of;
    decisions.issue = rules[r];
    decisions.slots = trial.slots;
    (void)place_decisions(s, in, &decisions, trial.ns, &s->placing, best);
  }
}

void search_move_gathers(Search *s, const Inner *in, Found *best) {
  try_slots(s, in, best);
  if (best->arena) arena_adopt(s->arena, best->arena);
  best->arena = NULL;
}

void search_policies(Search *s, const Inner *in, Found *best) {
  if (best->paced) search_unpace(s, s->arena, best);
  for (int policy = 0; policy < 4; policy++) try_policy(s, in, policy & 1, policy & 2, &s->placing, best);
  if (best->arena) arena_adopt(s->arena, best->arena);
  best->arena = NULL;
}

void search_place(Search *s, Inner *in, Found *best) {
  uint64_t before = best->plan ? best->sim.step_ns : UINT64_MAX;
  place_within(s, in, best);
  bool found = best->plan && best->sim.step_ns < before, few = in->items.count <= FEW_ITEMS;
  if (found && few && best->sim.step_ns > bound_reached(&in->bound)) try_other_rules(s, in, best);
  if (found && few && !s->brief && !best->settled && is_worth_others(in, best)) try_others(s, in, best);
  if (s->brief) return;
  const bool settled = in->ample && best->settled && !search_is_far(best, &in->bound);
  inner_set_budget(in, s->budget);
  if (!settled) place_settings(s, in, best);
  try_keeping_all(s, in, best);
  if (best->plan && best->sim.step_ns < before) try_slots(s, in, best);
}
