/* Owns: search.h. Ties go to the earlier candidate and nothing depends on time, so equal inputs give equal plans. */
#include "planner/search.h"

#include "planner/inner.h"

#include <stdlib.h>

enum { PLACEMENT_TRIES = 6, PLACED_GROUPINGS = 2, PLACED_TRIALS = 2, PLACED_SMALL = 3 };
/* Beyond this a model is seeded on the groupings of the best bounds only: thousands of layers, where seeds come close. */
enum { LARGE_ITEMS = 20000 };
static const double WITHIN_REACH = 1.003; /* estimates this close may change places once placed */

const Program *search_program(Search *s, int64_t micro_batch) {
  for (uint32_t i = 0; i < s->programs.count; i++)
    if (s->programs.data[i]->batch == micro_batch) return s->programs.data[i];
  Program *program = program_build(s->arena, s->sink, s->graph, s->specs, micro_batch, NULL);
  if (!program) return NULL;
  figures_of_program(program, s->cluster);
  vec_push(s->arena, &s->programs, program);
  return program;
}

PlanWorld search_world(const Search *s, const Outer *outer) {
  PlanWorld world = {.ranks = s->ranks, .shard = outer->shard, .replicas = s->ranks / outer->shard, .ranks_per_node = s->ranks_per_node};
  world.micro_batch = (uint64_t)outer->micro_batch;
  world.accumulation = s->samples ? s->samples / (s->ranks * world.micro_batch) : 1;
  return world;
}

/* --- groupings --------------------------------------------------------------------------------------------------------------- */

static uint64_t block_numel(const Program *program) {
  const Graph *graph = program->graph;
  uint64_t total = 0;
  for (uint32_t p = 0; p < graph->params.count; p++) {
    uint64_t numel = 0;
    shape_numel(&graph->params.data[p].shape, 1, &numel);
    if (program->block[graph->params.data[p].first_op] >= 0) total += numel;
  }
  uint32_t blocks = checkpoint_block_count(program);
  return blocks ? total / blocks : total;
}

uint32_t search_groupings(Search *s, const Outer *outer, Grouping out[MAX_GROUPINGS]) {
  const PlanSettings *settings = s->settings;
  if (settings->wrap != WRAP_AUTO) {
    out[0] = (Grouping){settings->wrap, settings->wrap_numel};
    return 1;
  }
  out[0] = (Grouping){WRAP_BLOCK, 0};
  if (s->ranks == 1) return 1;
  uint64_t block = block_numel(search_program(s, outer->micro_batch));
  out[1] = (Grouping){WRAP_SIZE, block * 9 / 20}; /* finer where memory is tight */
  out[2] = (Grouping){WRAP_SIZE, block / 5};
  out[3] = (Grouping){WRAP_SIZE, block + block / 2}; /* coarser where latency binds */
  out[4] = (Grouping){WRAP_SIZE, 3 * block + block / 2};
  out[5] = (Grouping){WRAP_WHOLE, 0};
  return 6;
}

/* --- emission ------------------------------------------------------------------------------------------------------------------ */

void search_emit(Search *s, Arena *arena, const Inner *in, const Decisions *decisions, Found *found) {
  *found = (Found){.outer = in->outer, .grouping = in->grouping, .decisions = *decisions, .bound = in->bound};
  found->units = found->decisions.units = in->units;
  EmitInput input = {.program = in->program,
                     .decisions = &found->decisions,
                     .cluster = s->cluster,
                     .skeleton = in->skeleton,
                     .spans = s->spans,
                     .span_paths = s->span_paths};
  found->plan = emit_plan(arena, &input);
  memory_place(found->plan, s->budget);
  events_insert(arena, found->plan, s->specs, true);
  found->fits = found->plan->arena_bytes <= s->budget;
}

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
  Grouping groupings[MAX_GROUPINGS];
  if (!search_program(s, outer->micro_batch)) return false;
  uint32_t total = search_groupings(s, outer, groupings);
  Arena *scratch = arena_new();
  bool good = true;
  for (uint32_t g = 0; g < total && good; g++) {
    Inner in;
    good = inner_open(s, scratch, outer, groupings[g], &in);
    if (good) out[(*count)++] = (Small){*outer, groupings[g], inner_smallest_bytes(&in)};
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
    search_emit(s, arena, &in, &smallest, &next);
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

/* Places the pool's trials, best first, until none can be better than `best` any more. Returns by how many bytes the best of
 * those that do not fit exceeds the budget, 0 when the first one fits. */
static uint64_t place_pool(Search *s, Inner *in, Found *best) {
  uint64_t least = UINT64_MAX;
  bool small = inner_is_small(in);
  for (int i = 0; i < (small ? POOL : PLACED_TRIALS) && in->pool[i].ns != UINT64_MAX; i++) {
    Found next;
    if (best->plan && (double)in->pool[i].ns > WITHIN_REACH * (double)best->sim.step_ns) break;
    Decisions decisions = inner_decisions(in, &in->pool[i]);
    search_emit(s, s->arena, in, &decisions, &next);
    next.estimate_ns = in->pool[i].ns;
    if (!next.fits) {
      uint64_t excess = next.plan->arena_bytes - s->budget;
      if (excess < least) least = excess;
      if (!small && excess > s->budget / 200) break; /* the next one is hardly smaller */
      continue;
    }
    plan_simulate(s->arena, next.plan, &next.sim);
    if (!best->plan || next.sim.step_ns < best->sim.step_ns) *best = next;
    if (!small) return 0;
    if (i == 0) least = 0;
  }
  return least == UINT64_MAX ? 0 : least;
}

/* Searches again with less room until a placed plan fits the budget, or it cannot be better than `best` any more. */
static void place(Search *s, Inner *in, Found *best) {
  uint64_t budget = s->budget;
  for (int i = 0; i < PLACEMENT_TRIES; i++) {
    uint64_t excess = place_pool(s, in, best);
    if (!excess) return;
    excess += (s->budget / 1000) << i;
    for (bool any = false; !any && excess > s->budget / 1000; excess /= 2) { /* less where that leaves nothing */
      inner_set_budget(in, budget > excess ? budget - excess : 0);
      inner_seed(in, false);
      any = in->pool[0].ns != UINT64_MAX;
      if (any) budget -= excess;
    }
    inner_seed(in, true);
    inner_improve(in);
  }
}

/* --- one outer choice ------------------------------------------------------------------------------------------------------------ */

static int compare_bound(const void *a, const void *b) {
  const Inner *x = a, *y = b;
  if (x->bound.ns != y->bound.ns) return x->bound.ns < y->bound.ns ? -1 : 1;
  if (x->grouping.wrap != y->grouping.wrap) return x->grouping.wrap < y->grouping.wrap ? -1 : 1;
  return (x->grouping.numel > y->grouping.numel) - (x->grouping.numel < y->grouping.numel);
}

static int compare_best(const void *a, const void *b) {
  const Inner *x = a, *y = b;
  if (x->pool[0].ns != y->pool[0].ns) return x->pool[0].ns < y->pool[0].ns ? -1 : 1;
  return compare_bound(a, b);
}

static uint32_t best_inner(const Inner *in, uint32_t count, uint32_t except) {
  uint32_t best = except;
  for (uint32_t g = 0; g < count; g++)
    if (g != except && (best == except || in[g].pool[0].ns < in[best].pool[0].ns)) best = g;
  return best;
}

/* Seeds on every grouping whose bound leaves hope, moves on the best two of them, on all where models are small: there the
 * best estimate is less likely to be the one that can be placed. */
static void search_groups(Inner *in, uint32_t count) {
  uint64_t target_ns = bound_reached(&in[0].bound);
  for (uint32_t g = 0; g < count; g++) {
    bool reached = g && in[best_inner(in, g, g)].pool[0].ns <= target_ns;
    reached |= in[g].items.count > LARGE_ITEMS && g >= PLACED_GROUPINGS && in[best_inner(in, g, g)].pool[0].ns != UINT64_MAX;
    if (!reached || inner_is_small(&in[g])) inner_seed(&in[g], false);
  }
  uint32_t winner = best_inner(in, count, count), second = best_inner(in, count, winner);
  for (uint32_t g = 0; g < count; g++) {
    uint64_t best = in[best_inner(in, count, count)].pool[0].ns;
    bool promising = (g == winner || g == second) && best > target_ns && in[g].bound.ns < best && in[g].items.count <= LARGE_ITEMS;
    if (!promising && !inner_is_small(&in[g])) continue;
    inner_seed(&in[g], true);
    inner_improve(&in[g]);
  }
}

bool search_outer(Search *s, const Outer *outer, Found *best) {
  Grouping groupings[MAX_GROUPINGS];
  Inner in[MAX_GROUPINGS];
  uint32_t count = search_groupings(s, outer, groupings), hopeful = 0;
  Arena *scratch = arena_new();
  for (uint32_t g = 0; g < count; g++) {
    if (!inner_open(s, scratch, outer, groupings[g], &in[hopeful])) {
      arena_free(scratch);
      return false;
    }
    if (in[hopeful].bound.ns < (best->plan ? best->sim.step_ns : UINT64_MAX)) hopeful++;
  }
  if (hopeful) {
    qsort(in, hopeful, sizeof *in, compare_bound);
    search_groups(in, hopeful);
    qsort(in, hopeful, sizeof *in, compare_best);
    for (uint32_t g = 0; g < hopeful && (g < PLACED_GROUPINGS || inner_is_small(&in[g])); g++) place(s, &in[g], best);
  }
  arena_free(scratch);
  return true;
}

/* --- the outer search ------------------------------------------------------------------------------------------------------------ */

typedef struct Candidate {
  Outer outer;
  Bound bound; /* the least of its groupings */
  uint32_t order;
} Candidate;

static int compare_candidates(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  if (x->bound.ns != y->bound.ns) return x->bound.ns < y->bound.ns ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

static bool bound_outer(Search *s, const Outer *outer, Bound *least) {
  Grouping groupings[MAX_GROUPINGS];
  Arena *scratch = arena_new();
  bool good = search_program(s, outer->micro_batch) != NULL;
  uint32_t count = good ? search_groupings(s, outer, groupings) : 0;
  *least = (Bound){UINT64_MAX, "memory"};
  for (uint32_t g = 0; g < count && good; g++) {
    Inner in;
    good = inner_open(s, scratch, outer, groupings[g], &in);
    if (good && in.bound.ns < least->ns) *least = in.bound;
  }
  arena_free(scratch);
  return good;
}

/* Shard widths that the strategy allows, widest first: all ranks, one node's, or what is pinned; 1 replicates. */
static uint32_t list_widths(const Search *s, uint32_t out[3]) {
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

static uint32_t pinned_offload(const Search *s) {
  return s->settings->offload == SETTING_AUTO ? 0 : (uint32_t)s->settings->offload;
}

static bool add_candidate(Search *s, Outer outer, Candidate *out, uint32_t *total) {
  Candidate *candidate = &out[*total];
  *candidate = (Candidate){.outer = outer, .order = (*total)++};
  return bound_outer(s, &candidate->outer, &candidate->bound);
}

static bool list_candidates(Search *s, const int64_t *micro, uint32_t count, Candidate *out, uint32_t *total) {
  uint32_t widths[3], width_count = list_widths(s, widths);
  *total = 0;
  for (uint32_t m = 0; m < count; m++)
    for (uint32_t w = 0; w < width_count; w++) {
      Outer outer = {.micro_batch = micro[m], .shard = widths[w], .offload = pinned_offload(s)};
      uint64_t accumulation = search_world(s, &outer).accumulation;
      int gathers = cadences(s, s->settings->gather, widths[w] > 1, accumulation);
      int reduces = cadences(s, s->settings->reduce, s->ranks > 1, accumulation);
      for (int k = 0; k < 4; k++) {
        outer.gather_once = k & 1;
        outer.reduce_once = k & 2;
        if (!(gathers & (outer.gather_once ? 2 : 1)) || !(reduces & (outer.reduce_once ? 2 : 1))) continue;
        if (!add_candidate(s, outer, out, total)) return false;
      }
    }
  qsort(out, *total, sizeof *out, compare_candidates);
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

bool search_best(Search *s, const int64_t *micro, uint32_t count, Found *found) {
  Candidate *candidates = ARENA_ARRAY(s->arena, Candidate, 12 * (size_t)count);
  uint32_t total;
  *found = (Found){0};
  if (!list_candidates(s, micro, count, candidates, &total)) return false;
  for (uint32_t i = 0; i < total && candidates[i].bound.ns != UINT64_MAX; i++) {
    if (found->plan && candidates[i].bound.ns >= found->sim.step_ns) break;
    if (!search_outer(s, &candidates[i].outer, found)) return false;
  }
  if (!found->plan && !find_smallest(s, candidates, total, found)) return false;
  found->bound = found->fits ? candidates[0].bound : (Bound){0, "memory"};
  return true;
}
