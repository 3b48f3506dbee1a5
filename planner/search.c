/* Owns: search.h. Ties go to the earlier candidate and nothing depends on time, so equal inputs give equal plans. */
#include "planner/search.h"

#include "planner/cost.h"

#include <stdlib.h>

enum { PLACEMENT_TRIES = 6, MOVE_BUDGET = 20000000, MAX_GROUPINGS = 6, EXACT_ITEMS = 10, PAIR_ITEMS = 64 };
static const double GOOD_ENOUGH = 1.001; /* of the bound: stop moving */

/* One outer choice with one grouping of units: what the inner search varies and what it knows. */
typedef struct Inner {
  Search *search;
  Arena *arena;
  const Program *program;
  const UnitSet *units;
  const UnitFigures *figures;
  const Skeleton *skeleton;
  PlanWorld world;
  Decisions base; /* recompute and keep: the start, with pins */
  Items items;
  int64_t *live; /* by op slot, nothing kept */
  uint64_t room;
  bool keep_free;
} Inner;

typedef struct Trial {
  bool *recompute, *keep;
  uint64_t ns;
} Trial;

const Program *search_program(Search *s, int64_t micro_batch) {
  for (uint32_t i = 0; i < s->programs.count; i++)
    if (s->programs.data[i]->batch == micro_batch) return s->programs.data[i];
  Program *program = program_build(s->arena, s->sink, s->graph, s->specs, micro_batch, s->inference);
  if (!program) return NULL;
  figures_of_program(program, s->cluster);
  vec_push(s->arena, &s->programs, program);
  return program;
}

static PlanWorld world_of(const Search *s, const Outer *outer) {
  PlanWorld world = {.ranks = s->ranks, .shard = outer->shard, .replicas = s->ranks / outer->shard, .ranks_per_node = s->ranks_per_node};
  world.micro_batch = (uint64_t)outer->micro_batch;
  world.accumulation = s->samples && !s->inference ? s->samples / (s->ranks * world.micro_batch) : 1;
  return world;
}

static bool shared_queue(const Search *s) { return s->cluster->device.kind == DEVICE_CPU || s->cluster->device.shared_queue; }

/* --- what is pinned ----------------------------------------------------------------------------------------------------- */

static void pin_units(Inner *in) {
  const PlanSettings *settings = in->search->settings;
  uint32_t units = in->units->units.count;
  bool all = settings->strategy == STRATEGY_SHARD_GRAD_OP || settings->reshard == 0;
  in->keep_free = settings->strategy != STRATEGY_SHARD_GRAD_OP && settings->reshard == SETTING_AUTO && in->world.shard > 1;
  for (uint32_t u = 0; u < units; u++) in->base.keep[u] = all;
  for (uint32_t u = 0; u < settings->units.count; u++) /* units by hand come first, in order */
    if (settings->units.data[u].reshard != SETTING_AUTO) in->base.keep[u] = !settings->units.data[u].reshard;
}

static bool unit_is_free(const Inner *in, uint32_t unit) {
  const PlanSettings *settings = in->search->settings;
  return in->keep_free && (unit >= settings->units.count || settings->units.data[unit].reshard == SETTING_AUTO);
}

/* --- judging -------------------------------------------------------------------------------------------------------------- */

static bool judge(const Inner *in, Trial *trial) {
  Arena *scratch = in->search->scratch;
  Decisions d = in->base;
  Schedule schedule;
  d.recompute = trial->recompute;
  d.keep = ARENA_ARRAY(scratch, bool, in->units->units.count);
  memcpy(d.keep, trial->keep, in->units->units.count * sizeof(bool));
  schedule_build(&schedule, scratch, in->skeleton, &d);
  trial->ns = schedule.step_ns;
  bool fits = schedule.max_live <= (int64_t)in->room;
  in->search->candidates++;
  arena_reset(scratch);
  return fits;
}

/* Bytes at each op's slot when nothing free is kept: the room that items compete for. */
static void find_live(Inner *in) {
  Arena *scratch = arena_new();
  Schedule schedule;
  Decisions d = in->base;
  d.prefetch = 0;
  d.keep = ARENA_ARRAY(scratch, bool, in->units->units.count);
  memcpy(d.keep, in->base.keep, in->units->units.count * sizeof(bool));
  schedule_build(&schedule, scratch, in->skeleton, &d);
  in->live = ARENA_ARRAY(in->arena, int64_t, in->program->ops.count);
  int64_t most = 0;
  for (uint32_t s = 0; s < (uint32_t)schedule.step_count; s++) {
    if (schedule.live[s] > most) most = schedule.live[s];
    if (schedule.steps[s].phase == PHASE_RECOMPUTE) continue; /* part of the next backward slot */
    in->live[schedule.steps[s].op] = most;
    most = 0;
  }
  arena_free(scratch);
}

static void add_unit_items(Inner *in) {
  const Program *program = in->program;
  uint32_t units = in->units->units.count;
  int32_t *last = ARENA_ARRAY(in->arena, int32_t, units), *first = ARENA_ARRAY(in->arena, int32_t, units);
  for (uint32_t u = 0; u < units; u++) last[u] = first[u] = PLAN_NONE;
  for (int32_t i = 0; i < (int32_t)program->ops.count; i++)
    for (int32_t k = 0; k < program->ops.data[i].ref_count; k++) {
      int32_t v = program->ops.data[i].refs[k].value;
      if (v < 0 || program->values.data[v].kind != VALUE_PARAM) continue;
      int32_t u = in->units->unit_of[program->values.data[v].param];
      if (i < program->turn) last[u] = i;
      if (i >= program->turn && first[u] < 0) first[u] = i;
    }
  for (uint32_t u = 0; u < units; u++) {
    if (!unit_is_free(in, u) || in->base.keep[u] || last[u] < 0 || first[u] < 0) continue;
    Item item = {.op = PLAN_NONE, .unit = (int32_t)u, .class = INT32_MAX, .first = last[u], .last = first[u]};
    item.rank = (int32_t)(units - u); /* the last units' gathers are the hardest to hide */
    item.bytes = in->figures[u].full_bytes;
    item.ns = in->figures[u].gather_ns;
    vec_push(in->arena, &in->items, item);
  }
}

static bool open_inner(Search *s, Arena *arena, const Outer *outer, WrapKind wrap, uint64_t wrap_numel, Inner *in) {
  *in = (Inner){.search = s, .arena = arena, .program = search_program(s, outer->micro_batch)};
  if (!in->program) return false;
  in->world = world_of(s, outer);
  in->units = units_choose(arena, s->sink, in->program, s->settings, wrap, wrap_numel);
  if (!in->units) return false;
  in->figures = figures_of_units(arena, in->program, in->units, s->cluster, &in->world);
  in->skeleton = schedule_prepare(arena, in->program, in->units, in->figures, shared_queue(s));
  bool early = s->settings->prefetch == SETTING_AUTO;
  in->base = (Decisions){.ranks = s->ranks,
                         .shard = in->world.shard,
                         .replicas = in->world.replicas,
                         .ranks_per_node = s->ranks_per_node,
                         .accumulation = in->world.accumulation,
                         .units = in->units,
                         .keep = ARENA_ARRAY(arena, bool, in->units->units.count),
                         .recompute = ARENA_ARRAY(arena, bool, in->program->ops.count),
                         .prefetch = early ? PREFETCH_EARLY : (uint32_t)s->settings->prefetch,
                         .contention = cost_overlap(s->cluster, &in->world).contention,
                         .fixed_update_ns = figures_fixed_update(in->program, s->cluster, &in->world)};
  bool *pinned = ARENA_ARRAY(arena, bool, in->program->ops.count);
  checkpoint_pin(in->program, s->settings, pinned, in->base.recompute);
  pin_units(in);
  items_list(arena, in->program, pinned, in->base.recompute, &in->items);
  add_unit_items(in);
  find_live(in);
  return true;
}

static void set_room(Inner *in, uint64_t budget) {
  uint64_t persistent = figures_persistent(in->program, in->units, in->world.shard);
  in->room = budget > persistent ? budget - persistent : 0;
  in->base.room = in->room;
}

/* --- trials ----------------------------------------------------------------------------------------------------------------- */

static Trial new_trial(const Inner *in) {
  return (Trial){ARENA_ARRAY(in->arena, bool, in->program->ops.count), ARENA_ARRAY(in->arena, bool, in->units->units.count), UINT64_MAX};
}

static void copy_trial(const Inner *in, Trial *to, const Trial *from) {
  memcpy(to->recompute, from->recompute, in->program->ops.count * sizeof(bool));
  memcpy(to->keep, from->keep, in->units->units.count * sizeof(bool));
  to->ns = from->ns;
}

static void start_trial(const Inner *in, Trial *trial) {
  Trial base = {in->base.recompute, in->base.keep, UINT64_MAX};
  copy_trial(in, trial, &base);
}

static uint64_t largest_unit(const Inner *in) {
  uint64_t most = 0;
  for (uint32_t u = 0; u < in->units->units.count && in->world.shard > 1; u++)
    if (in->figures[u].full_bytes > most) most = in->figures[u].full_bytes;
  return most;
}

/* Seeds: what a gather is worth against recomputing for as long, from activations first to units first, and how much
 * memory prefetch should find free, in largest units. The first of each are tried on every grouping. */
static const double gather_prices[] = {0, 1000, 0.3, 0.001, 0.1, 1};
static const double reserves[] = {0, 1, 0.5, 2, 3};
enum { FIRST_PRICES = 3, FIRST_RESERVES = 2 };
enum { ALL_PRICES = sizeof gather_prices / sizeof *gather_prices, ALL_RESERVES = sizeof reserves / sizeof *reserves };

typedef struct Seeds {
  size_t prices, reserves;
} Seeds;

static void try_seeds(const Inner *in, Seeds done, Seeds until, Trial *best) {
  Trial trial = new_trial(in);
  uint64_t unit = largest_unit(in);
  if (!done.prices) {
    start_trial(in, &trial);
    if (judge(in, &trial) && trial.ns < best->ns) copy_trial(in, best, &trial);
  }
  for (size_t p = 0; p < (in->keep_free ? until.prices : 1); p++) {
    Ranking ranking = items_rank(in->arena, &in->items, 1, gather_prices[p]);
    for (size_t r = p < done.prices ? done.reserves : 0; r < (unit ? until.reserves : 1); r++) {
      uint64_t reserve = (uint64_t)(reserves[r] * (double)unit);
      start_trial(in, &trial);
      items_choose(&in->items, &ranking, in->room > reserve ? in->room - reserve : 0, in->live, (int32_t)in->program->ops.count,
                   trial.recompute, trial.keep);
      if (judge(in, &trial) && trial.ns < best->ns) copy_trial(in, best, &trial);
    }
  }
}

static int compare_class(const void *a, const void *b) {
  const Item *x = *(const Item *const *)a, *y = *(const Item *const *)b;
  if (x->class != y->class) return x->class < y->class ? -1 : 1;
  return (x->first > y->first) - (x->first < y->first);
}

static bool is_kept(const Trial *trial, const Item *item) {
  return item->op >= 0 ? !trial->recompute[item->op] : trial->keep[item->unit];
}

static void flip(Trial *trial, const Item *item) {
  if (item->op >= 0)
    trial->recompute[item->op] = !trial->recompute[item->op];
  else
    trial->keep[item->unit] = !trial->keep[item->unit];
}

/* Flips up to `count` items of a class that are in state `kept`, from the front or the back. */
static uint32_t flip_run(Trial *trial, const Item *const *class, uint32_t size, bool kept, bool back, uint32_t count) {
  uint32_t flipped = 0;
  for (uint32_t i = 0; i < size && flipped < count; i++) {
    const Item *item = class[back ? size - 1 - i : i];
    if (is_kept(trial, item) != kept) continue;
    flip(trial, item);
    flipped++;
  }
  return flipped;
}

typedef struct Mover {
  const Inner *in;
  Trial *best, trial;
  uint64_t target;
  int64_t left; /* schedules that may still be judged */
} Mover;

static bool try_trial(Mover *m) {
  m->left--;
  if (!judge(m->in, &m->trial) || m->trial.ns >= m->best->ns) return false;
  copy_trial(m->in, m->best, &m->trial);
  return true;
}

static bool move_class(Mover *m, const Item *const *class, uint32_t size, uint32_t count) {
  bool improved = false;
  for (int way = 0; way < 4; way++) {
    if (m->left <= 0 || m->best->ns <= m->target) return improved;
    copy_trial(m->in, &m->trial, m->best);
    if (!flip_run(&m->trial, class, size, way & 1, way & 2, count)) continue;
    improved |= try_trial(m);
  }
  return improved;
}

/* Few items: all subsets. */
static void enumerate_subsets(Mover *m) {
  const Items *items = &m->in->items;
  for (uint32_t subset = 0; subset < 1u << items->count && m->best->ns > m->target; subset++) {
    start_trial(m->in, &m->trial);
    for (uint32_t i = 0; i < items->count; i++)
      if (subset >> i & 1) flip(&m->trial, &items->data[i]);
    (void)try_trial(m);
  }
}

/* Flips two items at a time (or one, i = j), until no pair improves. */
static bool move_pairs(Mover *m) {
  const Items *items = &m->in->items;
  bool improved = false;
  for (uint32_t i = 0; i < items->count; i++)
    for (uint32_t j = i; j < items->count; j++) {
      if (m->left <= 0 || m->best->ns <= m->target) return false;
      copy_trial(m->in, &m->trial, m->best);
      flip(&m->trial, &items->data[i]);
      if (j != i) flip(&m->trial, &items->data[j]);
      improved |= try_trial(m);
    }
  return improved;
}

/* Moves whole classes, then halves of them, down to single items, for as long as something improves. */
static void improve(const Inner *in, Trial *best, uint64_t bound_ns) {
  uint32_t count = in->items.count;
  const Item **order = ARENA_ARRAY(in->arena, const Item *, count);
  for (uint32_t i = 0; i < count; i++) order[i] = &in->items.data[i];
  qsort(order, count, sizeof *order, compare_class);
  Mover m = {in, best, new_trial(in), (uint64_t)((double)bound_ns * GOOD_ENOUGH), 0};
  m.left = MOVE_BUDGET / (int64_t)(in->program->ops.count + 1) / 8;
  if (count <= EXACT_ITEMS) {
    enumerate_subsets(&m);
    return;
  }
  int64_t pairs = count <= PAIR_ITEMS ? 3 * (int64_t)count * count : 0;
  if (m.left > 400) m.left = 400;
  for (uint32_t run = in->units->units.count; run >= 1; run /= 2)
    for (uint32_t i = 0, end; i < count; i = end) {
      for (end = i + 1; end < count && order[end]->class == order[i]->class; end++) continue;
      while (move_class(&m, order + i, end - i, run)) continue;
    }
  m.left = pairs;
  while (move_pairs(&m)) continue;
}

/* --- groupings --------------------------------------------------------------------------------------------------------------- */

typedef struct Grouping {
  WrapKind wrap;
  uint64_t numel;
} Grouping;

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

static uint32_t list_groupings(Search *s, const Outer *outer, Grouping out[MAX_GROUPINGS]) {
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

/* --- one outer choice ------------------------------------------------------------------------------------------------------- */

static Bound outer_bound(Search *s, const Outer *outer) {
  Arena *scratch = arena_new();
  const Program *program = search_program(s, outer->micro_batch);
  bool *pinned = ARENA_ARRAY(scratch, bool, program->ops.count), *recompute = ARENA_ARRAY(scratch, bool, program->ops.count);
  Items items = {0};
  PlanWorld world = world_of(s, outer);
  checkpoint_pin(program, s->settings, pinned, recompute);
  items_list(scratch, program, pinned, recompute, &items);
  bool *kept = ARENA_ARRAY(scratch, bool, program->ops.count);
  for (int32_t i = 0; i < program->turn; i++) kept[i] = pinned[i] && !recompute[i];
  bool by_hand = s->settings->units.count > 0;
  BoundInput input = {.program = program,
                      .items = &items,
                      .kept = kept,
                      .cluster = s->cluster,
                      .world = &world,
                      .budget = s->budget,
                      .keep_free = s->settings->strategy != STRATEGY_SHARD_GRAD_OP && s->settings->reshard != 1,
                      .keep_all = s->settings->strategy == STRATEGY_SHARD_GRAD_OP || s->settings->reshard == 0 || by_hand,
                      .shared_queue = shared_queue(s)};
  Bound bound = bound_of(&input);
  arena_free(scratch);
  return bound;
}

static void record(Search *s, const Inner *in, const Outer *outer, Grouping grouping, const Trial *trial, Found *found) {
  Decisions d = in->base;
  d.recompute = ARENA_ARRAY(s->arena, bool, in->program->ops.count);
  d.keep = ARENA_ARRAY(s->arena, bool, in->units->units.count);
  memcpy(d.recompute, trial->recompute, in->program->ops.count * sizeof(bool));
  memcpy(d.keep, trial->keep, in->units->units.count * sizeof(bool));
  *found = (Found){.outer = *outer, .wrap = grouping.wrap, .wrap_numel = grouping.numel, .decisions = d, .estimate_ns = trial->ns};
}

static uint32_t best_trial(const Trial *trials, uint32_t count, uint32_t except) {
  uint32_t best = except == 0 && count > 1 ? 1 : 0;
  for (uint32_t g = 0; g < count; g++)
    if (g != except && trials[g].ns < trials[best].ns) best = g;
  return best;
}

/* The best decisions of one outer choice within `budget`; false when none of the trials fits. Seeds on every grouping, then
 * moves on the best two of them, on all where models are small. */
static bool search_outer(Search *s, const Outer *outer, uint64_t budget, const Bound *bound, Found *found) {
  Grouping groupings[MAX_GROUPINGS];
  Inner in[MAX_GROUPINGS];
  Trial best[MAX_GROUPINGS];
  uint32_t count = list_groupings(s, outer, groupings), winner = 0;
  Arena *scratch = arena_new();
  uint64_t target = (uint64_t)((double)bound->ns * GOOD_ENOUGH);
  const Seeds first = {FIRST_PRICES, FIRST_RESERVES}, all = {ALL_PRICES, ALL_RESERVES};
  for (uint32_t g = 0; g < count; g++) {
    best[g] = (Trial){.ns = UINT64_MAX};
    in[g] = (Inner){0};
    if (best[winner].ns <= target || !open_inner(s, scratch, outer, groupings[g].wrap, groupings[g].numel, &in[g])) continue;
    set_room(&in[g], budget);
    best[g] = new_trial(&in[g]);
    try_seeds(&in[g], (Seeds){0, 0}, first, &best[g]);
    if (best[g].ns < best[winner].ns) winner = g;
  }
  uint32_t second = best_trial(best, count, winner);
  for (uint32_t g = 0; g < count && best[winner].ns > target; g++)
    if (in[g].search && (g == winner || g == second || in[g].items.count <= PAIR_ITEMS)) try_seeds(&in[g], first, all, &best[g]);
  for (uint32_t g = 0; g < count; g++) {
    bool open = in[g].search != NULL, small = open && in[g].items.count <= PAIR_ITEMS;
    bool exact = open && in[g].items.count <= EXACT_ITEMS;
    bool promising = best[g].ns != UINT64_MAX && (g == winner || g == second || small);
    if ((promising || exact) && best[best_trial(best, count, count)].ns > target) improve(&in[g], &best[g], bound->ns);
  }
  winner = best_trial(best, count, count);
  bool any = best[winner].ns != UINT64_MAX;
  if (any) record(s, &in[winner], outer, groupings[winner], &best[winner], found);
  arena_free(scratch);
  return any;
}

/* --- emission ------------------------------------------------------------------------------------------------------------------ */

static Plan *emit_found(Search *s, Arena *arena, Found *found) {
  Inner in;
  if (!open_inner(s, arena, &found->outer, found->wrap, found->wrap_numel, &in)) return NULL;
  found->units = found->decisions.units = in.units;
  EmitInput input = {in.program, &found->decisions, s->cluster, in.skeleton, s->spans, s->span_paths};
  Plan *plan = emit_plan(arena, &input);
  memory_place(plan, s->budget);
  events_insert(arena, plan, s->specs, true);
  return plan;
}

static Plan *smallest_of(Search *s, Arena *arena, const Outer *outer, Grouping grouping, Found *found) {
  Inner in;
  if (!open_inner(s, arena, outer, grouping.wrap, grouping.numel, &in)) return NULL;
  Trial trial = new_trial(&in);
  start_trial(&in, &trial);
  record(s, &in, outer, grouping, &trial, found);
  if (s->settings->prefetch == SETTING_AUTO) found->decisions.prefetch = 0;
  return found->plan = emit_found(s, arena, found);
}

Plan *search_smallest(Search *s, Arena *arena, const Outer *outer, Found *found) {
  Grouping groupings[MAX_GROUPINGS];
  *found = (Found){0};
  if (!search_program(s, outer->micro_batch)) return NULL;
  uint32_t count = list_groupings(s, outer, groupings);
  for (uint32_t g = 0; g < count; g++) {
    Found next;
    if (!smallest_of(s, arena, outer, groupings[g], &next)) return NULL;
    if (!found->plan || next.plan->arena_bytes < found->plan->arena_bytes) *found = next;
  }
  return found->plan;
}

/* Plans with less and less room until the placed plan fits the budget. */
static bool place_outer(Search *s, const Outer *outer, const Bound *bound, Found *found) {
  uint64_t budget = s->budget;
  for (int i = 0; i < PLACEMENT_TRIES; i++) {
    if (!search_outer(s, outer, budget, bound, found)) return false;
    found->plan = emit_found(s, s->arena, found);
    if (!found->plan) return false;
    found->fits = found->plan->arena_bytes <= s->budget;
    if (found->fits) {
      plan_simulate(s->arena, found->plan, &found->sim);
      return true;
    }
    uint64_t excess = found->plan->arena_bytes - s->budget, less = excess + ((s->budget / 1000) << i);
    budget = budget > less ? budget - less : 0;
  }
  return false;
}

/* --- the outer search ------------------------------------------------------------------------------------------------------------ */

typedef struct Candidate {
  Outer outer;
  Bound bound;
  uint32_t order;
} Candidate;

static int compare_candidates(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  if (x->bound.ns != y->bound.ns) return x->bound.ns < y->bound.ns ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
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

static bool list_candidates(Search *s, const int64_t *micro, uint32_t count, Candidate *out, uint32_t *total) {
  uint32_t widths[3], width_count = list_widths(s, widths);
  *total = 0;
  for (uint32_t m = 0; m < count; m++) {
    if (!search_program(s, micro[m])) return false;
    for (uint32_t w = 0; w < width_count; w++) {
      Candidate *candidate = &out[*total];
      *candidate = (Candidate){.outer = {micro[m], widths[w]}, .order = (*total)++};
      candidate->bound = outer_bound(s, &candidate->outer);
    }
  }
  qsort(out, *total, sizeof *out, compare_candidates);
  return true;
}

static bool find_smallest(Search *s, const Candidate *candidates, uint32_t total, Found *found) {
  for (uint32_t i = 0; i < total; i++) {
    Found smallest;
    if (!search_smallest(s, s->arena, &candidates[i].outer, &smallest)) return false;
    if (!found->plan || smallest.plan->arena_bytes < found->plan->arena_bytes) *found = smallest;
  }
  found->fits = found->plan->arena_bytes <= s->budget;
  plan_simulate(s->arena, found->plan, &found->sim);
  return true;
}

/* Policies people set by hand, where the settings leave that open: estimates rank groupings and issue slots, the simulator
 * has the last word, so the planner's own choice is never slower than these. */
static void try_defaults(Search *s, Found *found) {
  static const struct {
    CheckpointKind checkpoint;
    int64_t prefetch;
    int32_t reshard;
  } defaults[] = {{CHECKPOINT_AUTO, SETTING_AUTO, SETTING_AUTO}, {CHECKPOINT_NONE, 1, 1}, {CHECKPOINT_FULL, 1, 1}};
  const PlanSettings *own = s->settings;
  if (own->wrap != WRAP_AUTO || s->ranks == 1) return;
  for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
    PlanSettings settings = *own;
    Found next = {0};
    settings.wrap = WRAP_BLOCK;
    if (own->checkpoint == CHECKPOINT_AUTO) settings.checkpoint = defaults[i].checkpoint;
    if (own->prefetch == SETTING_AUTO) settings.prefetch = defaults[i].prefetch;
    if (own->reshard == SETTING_AUTO && own->strategy != STRATEGY_SHARD_GRAD_OP) settings.reshard = defaults[i].reshard;
    s->settings = &settings;
    Bound bound = outer_bound(s, &found->outer);
    if (bound.ns < found->sim.step_ns && place_outer(s, &found->outer, &bound, &next) && next.sim.step_ns < found->sim.step_ns) *found = next;
    s->settings = own;
  }
}

bool search_best(Search *s, const int64_t *micro, uint32_t count, Found *found) {
  Candidate *candidates = ARENA_ARRAY(s->arena, Candidate, 3 * (size_t)count);
  uint32_t total;
  *found = (Found){0};
  if (!list_candidates(s, micro, count, candidates, &total)) return false;
  for (uint32_t i = 0; i < total; i++) {
    if (found->plan && candidates[i].bound.ns >= found->sim.step_ns) break;
    Found next = {0};
    if (!place_outer(s, &candidates[i].outer, &candidates[i].bound, &next)) {
      if (s->sink->errors) return false;
      continue;
    }
    if (!found->plan || next.sim.step_ns < found->sim.step_ns) *found = next;
  }
  if (found->plan) try_defaults(s, found);
  if (!found->plan && !find_smallest(s, candidates, total, found)) return false;
  found->bound = candidates[0].bound;
  return true;
}
