/* Owns: search.h. Ties go to the earlier candidate and nothing depends on time, so equal inputs give equal plans. */
#include "planner/search.h"

#include "planner/inner.h"

#include <math.h>
#include <stdlib.h>

enum { PLACED_SMALL = 3, SHORT_PLAN = 2000, LONG_PLAN = 4000 };
/* State goes to the host unasked only where that promises so much: more than the best plan that leaves it where it is, and,
 * where looking takes long and that plan is near its own bound, by bounds alone. */
static const double WORTH_OFFLOADING = 1.003, PROMISED_BY_BOUNDS = 1.005, FAR_FROM_BOUND = 1.025;

/* This far from the bound a plan is stuck: moves found nothing better, which need not mean that there is nothing. */
static const double STUCK = 1.0025;
/* It is then looked for with less memory too, a long one once: at steps of a fixed grid, where nearby budgets meet. */
enum { LESSER_BUDGETS = 2, STEPS_AN_OCTAVE = 8, CLEARLY_LESS = 40 };
/* And this far, or FAR_FROM_BOUND where looking takes long, with moves in another order. */
static const double WORTH_OTHER_MOVES = 1.005;

/* Units of nearby sizes are tried where a plan is stuck, around what is found, until that does not change. */
enum { NEARBY_ROUNDS = 4 };

/* Unasked only over a host link to memory of a known size: on CPUs the host's memory is the device's. */
static bool offers_host(const Search *s) {
  const Device *device = &s->cluster->device;
  return device->kind != DEVICE_CPU && device->host_link > 0 && device->host_memory > 0;
}

bool search_movable(const Search *s) {
  return s->settings->offload == SETTING_AUTO ? offers_host(s) : (s->settings->offload & OFFLOAD_ACTIVATIONS) != 0;
}

static void prepare_items(const Search *s, Prepared *prepared) {
  uint32_t ops = prepared->program->ops.count;
  Arena *scratch = arena_new();
  Pin *pins = ARENA_ARRAY(scratch, Pin, ops);
  prepared->recompute = ARENA_ARRAY(s->arena, bool, ops);
  prepared->away = ARENA_ARRAY(s->arena, bool, ops);
  checkpoint_pin(prepared->program, s->settings, pins, prepared->recompute, prepared->away);
  Items again = {0};
  items_list(s->arena, prepared->program, pins, search_movable(s), prepared->recompute, &prepared->items, &again);
  prepared->ranks = items_rank_operators(s->arena, &prepared->items);
  prepared->slices = bound_slices(s->arena, prepared->program, &prepared->items, &again, s->cluster->device.kind != DEVICE_CPU);
  arena_free(scratch);
}

const Prepared *search_prepare(Search *s, int64_t micro_batch) {
  for (uint32_t i = 0; i < s->prepared.count; i++)
    if (s->prepared.data[i].program->batch == micro_batch && s->prepared.data[i].checkpoint == s->settings->checkpoint) return &s->prepared.data[i];
  Prepared prepared = {.checkpoint = s->settings->checkpoint, .program = program_build(s->arena, s->sink, s->graph, s->specs, micro_batch, NULL)};
  if (!prepared.program) return NULL;
  figures_of_program(prepared.program, s->cluster);
  prepare_items(s, &prepared);
  vec_push(s->arena, &s->prepared, prepared);
  return &s->prepared.data[s->prepared.count - 1];
}

const Program *search_program(Search *s, int64_t micro_batch) {
  const Prepared *prepared = search_prepare(s, micro_batch);
  return prepared ? prepared->program : NULL;
}

const UnitSet *search_units(Search *s, const Program *program, Grouping grouping) {
  for (uint32_t i = 0; i < s->grouped.count; i++) {
    const Grouped *known = &s->grouped.data[i];
    if (known->program == program && known->grouping.wrap == grouping.wrap && known->grouping.numel == grouping.numel) return known->units;
  }
  const UnitSet *units = units_choose(s->arena, s->sink, program, s->settings, grouping.wrap, grouping.numel);
  if (units) vec_push(s->arena, &s->grouped, ((Grouped){program, grouping, units}));
  return units;
}

PlanWorld search_world(const Search *s, const Outer *outer) {
  PlanWorld world = {.ranks = s->ranks, .shard = outer->shard, .replicas = s->ranks / outer->shard, .ranks_per_node = s->ranks_per_node};
  world.micro_batch = (uint64_t)outer->micro_batch;
  world.accumulation = s->samples ? s->samples / (s->ranks * world.micro_batch) : 1;
  return world;
}

/* --- the smallest -------------------------------------------------------------------------------------------------------------- */

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

/* --- the outer search ------------------------------------------------------------------------------------------------------------ */

typedef struct Candidate {
  Outer outer;
  Bound bound; /* the least of its groupings; 0: found with the plan */
  Grouping grouping; /* Tried's, when it was tried first */
  uint32_t order;
} Candidate;

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
  static const uint32_t levels[MAX_OFFLOADS] = {0, OFFLOAD_OPTIMIZER, OFFLOAD_OPTIMIZER | OFFLOAD_GRADIENTS | OFFLOAD_PARAMETERS};
  bool open = s->settings->offload == SETTING_AUTO && offers_host(s) && s->graph->recipe.optimizer != OPTIMIZER_ADAFACTOR;
  out[0] = s->settings->offload == SETTING_AUTO ? 0 : (uint32_t)s->settings->offload;
  for (uint32_t i = 0; open && i < MAX_OFFLOADS; i++) out[i] = levels[i];
  return open ? MAX_OFFLOADS : 1;
}

static bool offloads_unasked(const Search *s, const Outer *outer) {
  return s->settings->offload == SETTING_AUTO && outer->offload != 0;
}

/* With every cadence of gathers and reductions that is open. */
static void add_cadences(Search *s, Outer outer, Candidate *out, uint32_t *total) {
  uint64_t accumulation = search_world(s, &outer).accumulation;
  int gathers = cadences(s, s->settings->gather, outer.shard > 1, accumulation);
  int reduces = cadences(s, s->settings->reduce, s->ranks > 1, accumulation);
  for (int k = 0; k < MAX_CADENCES; k++) {
    outer.gather_once = k & 1;
    outer.reduce_once = k & 2;
    if (!(gathers & (outer.gather_once ? 2 : 1)) || !(reduces & (outer.reduce_once ? 2 : 1))) continue;
    out[*total] = (Candidate){.outer = outer, .order = *total};
    ++*total;
  }
}

static uint32_t list_candidates(Search *s, const int64_t *micro, uint32_t count, Candidate *out) {
  uint32_t widths[MAX_WIDTHS], width_count = list_widths(s, widths), offloads[MAX_OFFLOADS], offload_count = list_offloads(s, offloads);
  uint32_t total = 0;
  for (uint32_t m = 0; m < count; m++)
    for (uint32_t w = 0; w < width_count; w++)
      for (uint32_t o = 0; o < offload_count; o++)
        add_cadences(s, (Outer){.micro_batch = micro[m], .shard = widths[w], .offload = offloads[o]}, out, &total);
  return total;
}

/* Best bound first. Where there is no choice, the bound is found with the plan. */
static bool bound_candidates(Search *s, Candidate *candidates, uint32_t total) {
  for (uint32_t i = 0; i < total && total > 1; i++)
    if (!bound_outer(s, &candidates[i].outer, &candidates[i].bound)) return false;
  qsort(candidates, total, sizeof *candidates, compare_candidates);
  return true;
}

static bool find_smallest(Search *s, const Candidate *candidates, uint32_t total, Found *found) {
  Small *entries = ARENA_ARRAY(s->arena, Small, (size_t)total * MAX_GROUPINGS);
  uint32_t count = 0;
  for (uint32_t i = 0; i < total; i++)
    if (!list_small(s, &candidates[i].outer, entries, &count)) return false;
  place_small(s, s->arena, entries, count, found);
  plan_simulate(s->arena, found->plan, &found->sim);
  return true;
}

/* State goes to host memory unasked only for a gain; where plans are long, for one that bounds promise. */
static bool is_hopeful(const Search *s, const Candidate *candidate, const Found *found, bool unasked) {
  if (!found->plan) return true;
  double ns = (double)found->sim.step_ns, bound = (double)candidate->bound.ns;
  if (!unasked || offloads_unasked(s, &found->outer)) return bound < ns;
  if (found->plan->instrs.count < LONG_PLAN || ns > FAR_FROM_BOUND * bound) return bound < ns / WORTH_OFFLOADING;
  return bound < fmin(ns / WORTH_OFFLOADING, (double)found->bound.ns / PROMISED_BY_BOUNDS);
}

static bool same_outer(const Outer *a, const Outer *b) {
  return a->micro_batch == b->micro_batch && a->shard == b->shard && a->gather_once == b->gather_once && a->reduce_once == b->reduce_once &&
         a->offload == b->offload;
}

/* Tries candidates, those that offload state or the others, best bound first. */
static bool try_candidates(Search *s, Candidate *candidates, uint32_t total, bool unasked, Found *found) {
  for (uint32_t i = 0; i < total && candidates[i].bound.ns != UINT64_MAX; i++) {
    if (offloads_unasked(s, &candidates[i].outer) != unasked) continue;
    if (!is_hopeful(s, &candidates[i], found, unasked)) break;
    Tried tried;
    if (!search_outer(s, &candidates[i].outer, found, &tried)) return false;
    if (!candidates[i].bound.ns) candidates[i].bound = tried.least;
    if (candidates[i].grouping.wrap == WRAP_AUTO) candidates[i].grouping = tried.grouping;
  }
  return true;
}

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

static bool try_all(Search *s, Candidate *candidates, uint32_t total, Found *found) {
  return try_candidates(s, candidates, total, false, found) && try_candidates(s, candidates, total, true, found);
}

bool search_is_stuck(const Found *found, const Bound *bound) { return found->fits && (double)found->sim.step_ns > STUCK * (double)bound->ns; }

static bool is_worth_other_sizes(const Found *found, const Bound *bound) {
  if (!search_is_stuck(found, bound) || found->plan->instrs.count >= LONG_PLAN) return false;
  return found->plan->instrs.count < SHORT_PLAN || (double)found->sim.step_ns > FAR_FROM_BOUND * (double)bound->ns;
}

/* Around what is found. least: falls to the bound of what is tried. */
static bool try_nearby_sizes(Search *s, Found *found, Bound *least) {
  for (int i = 0; i < NEARBY_ROUNDS && is_worth_other_sizes(found, least); i++) {
    if (s->placing < PLACING_EFFORT / 2) s->placing = PLACING_EFFORT / 2; /* what was spent, was spent on other units */
    const Plan *before = found->plan;
    if (!search_nearby(s, &found->outer, found->grouping, found, least)) return false;
    if (found->plan == before) break;
  }
  return true;
}

/* An outer choice that promises far more than was found may lack but units that fit it. */
static bool try_nearby_others(Search *s, const Candidate *candidates, uint32_t total, Found *found, Bound *least) {
  for (uint32_t i = 0; i < total && is_worth_other_sizes(found, least); i++) {
    const Candidate *other = &candidates[i];
    if ((double)found->sim.step_ns <= FAR_FROM_BOUND * (double)other->bound.ns) break;
    if (other->grouping.wrap == WRAP_AUTO || same_outer(&other->outer, &found->outer)) continue;
    if (!search_nearby(s, &other->outer, other->grouping, found, least)) return false;
  }
  return true;
}

static bool try_other_sizes(Search *s, const Candidate *candidates, uint32_t total, Found *found, Bound *least) {
  if (s->settings->wrap != WRAP_AUTO || s->ranks == 1) return true;
  if (!try_nearby_sizes(s, found, least)) return false;
  const Plan *before = found->plan;
  if (!try_nearby_others(s, candidates, total, found, least)) return false;
  return found->plan == before || try_nearby_sizes(s, found, least);
}

/* The grid's step number i below a budget, the first one at least a fortieth less. */
static uint64_t lesser_budget(uint64_t budget, uint64_t i) {
  uint64_t below = budget - budget / CLEARLY_LESS, octave = 1;
  while (octave <= below / 2) octave *= 2;
  uint64_t step = octave / STEPS_AN_OCTAVE;
  return step ? below - below % step - i * step : below;
}

static bool is_worth_other_moves(const Found *found, const Bound *bound) {
  if (!found->fits) return false;
  return (double)found->sim.step_ns > (found->plan->instrs.count < LONG_PLAN ? WORTH_OTHER_MOVES : FAR_FROM_BOUND) * (double)bound->ns;
}

/* Moves stop where nothing they try improves: less memory, or moving the classes of items in the other order, may lead elsewhere, to
 * what is faster still. */
static bool try_elsewhere(Search *s, Candidate *candidates, uint32_t total, Found *found) {
  const uint64_t budget = s->budget;
  bool good = true;
  s->brief = true; /* all settings of few items, and what is kept by hand, have been looked at */
  for (uint32_t i = 0; i < LESSER_BUDGETS && good && search_is_stuck(found, &candidates[0].bound); i++) {
    if (i && found->plan->instrs.count >= LONG_PLAN) break;
    s->budget = lesser_budget(budget, i);
    good = try_all(s, candidates, total, found);
  }
  s->budget = budget;
  s->reversed = good && is_worth_other_moves(found, &candidates[0].bound);
  if (s->reversed) good = try_all(s, candidates, total, found);
  s->reversed = false;
  s->brief = false;
  return good;
}

bool search_best(Search *s, const int64_t *micro, uint32_t count, Found *found) {
  Candidate *candidates = ARENA_ARRAY(s->arena, Candidate, (size_t)MAX_WIDTHS * MAX_OFFLOADS * MAX_CADENCES * count);
  uint32_t total = list_candidates(s, micro, count, candidates);
  *found = (Found){0};
  if (!bound_candidates(s, candidates, total)) return false;
  if (!try_all(s, candidates, total, found)) return false;
  if (!s->brief && !try_elsewhere(s, candidates, total, found)) return false;
  if (!s->brief && !try_other_sizes(s, candidates, total, found, &candidates[0].bound)) return false;
  if (!found->plan && !find_smallest(s, candidates, total, found)) return false;
  if (found->fits && s->settings->offload == SETTING_AUTO && !bring_back(s, found)) return false;
  if (found->fits && found->paced) search_unpace(s, s->arena, found);
  if (found->fits) search_compact(s, s->arena, found);
  found->bound = found->fits ? candidates[0].bound : (Bound){0, "memory"};
  return true;
}
