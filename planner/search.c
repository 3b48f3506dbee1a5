/* Owns: search.h. Candidates are estimated without addresses (sum of live sizes, data dependencies only); the best
 * estimate that also fits as placed wins. Ties go to the earlier candidate, so equal inputs give equal plans. */
#include "planner/search.h"

#include "planner/plan/sim.h"

#include <stdlib.h>

enum { MAX_PREFETCH_TRIED = 3, PLACEMENT_TRIES = 6 };

typedef struct Estimate {
  Choice choice;
  uint64_t ns, max_live;
  uint32_t order;
} Estimate;

const Program *search_program(Search *s, int64_t micro_batch) {
  for (uint32_t i = 0; i < s->programs.count; i++)
    if (s->programs.data[i]->batch == micro_batch) return s->programs.data[i];
  Program *program = program_build(s->arena, s->sink, s->graph, s->specs, micro_batch, s->inference);
  if (program) vec_push(s->arena, &s->programs, program);
  return program;
}

const UnitSet *search_units(Search *s, Arena *arena, const Choice *choice) {
  return units_choose(arena, s->sink, search_program(s, choice->micro_batch), s->settings, choice->wrap,
                      choice->wrap_numel);
}

void search_recompute(Search *s, const Choice *choice, bool *recompute) {
  checkpoint_choose(search_program(s, choice->micro_batch), s->settings, choice->full_blocks, recompute);
}

/* The unit whose parameters are used last among those that are inside blocks. */
static int32_t last_block_unit(const Program *program, const UnitSet *units) {
  int32_t best = PLAN_NONE, best_op = PLAN_NONE;
  for (uint32_t p = 0; p < program->graph->params.count; p++) {
    const GraphParam *param = &program->graph->params.data[p];
    if (program->block[param->first_op] < 0 || param->first_op < best_op) continue;
    best = units->unit_of[p];
    best_op = param->first_op;
  }
  return best;
}

static void choose_keep(const Search *s, const Choice *choice, const Program *program, Decisions *d) {
  uint32_t units = d->units->units.count;
  bool all = choice->strategy != STRATEGY_FULL_SHARD;
  for (uint32_t u = 0; u < units; u++) d->keep[u] = s->settings->reshard == SETTING_AUTO ? all : !s->settings->reshard;
  int32_t last = choice->keep_last ? last_block_unit(program, d->units) : PLAN_NONE;
  if (last >= 0 && s->settings->reshard == SETTING_AUTO) d->keep[last] = true;
  for (uint32_t u = 0; u < s->settings->units.count; u++) /* units by hand come first, in order */
    if (s->settings->units.data[u].reshard != SETTING_AUTO) d->keep[u] = !s->settings->units.data[u].reshard;
}

static Plan *emit_choice(Search *s, Arena *arena, const Choice *choice) {
  const Program *program = search_program(s, choice->micro_batch);
  if (!program) return NULL;
  Decisions d = {.strategy = choice->strategy,
                 .ranks = s->ranks,
                 .ranks_per_node = s->ranks_per_node,
                 .shard = choice->strategy == STRATEGY_NO_SHARD ? 1 : s->ranks,
                 .prefetch = choice->prefetch};
  d.replicas = d.ranks / d.shard;
  d.accumulation = s->samples ? s->samples / (s->ranks * (uint64_t)choice->micro_batch) : 1;
  d.units = search_units(s, arena, choice);
  if (!d.units) return NULL;
  d.keep = ARENA_ARRAY(arena, bool, d.units->units.count);
  d.recompute = ARENA_ARRAY(arena, bool, program->ops.count);
  choose_keep(s, choice, program, &d);
  search_recompute(s, choice, d.recompute);
  EmitInput input = {program, &d, s->cluster, s->spans, s->span_paths};
  s->candidates++;
  return emit_plan(arena, &input);
}

Plan *search_build(Search *s, Arena *arena, const Choice *choice) {
  Plan *plan = emit_choice(s, arena, choice);
  if (!plan) return NULL;
  memory_place(plan);
  events_insert(arena, plan, s->specs, true);
  return plan;
}

static bool estimate(Search *s, const Choice *choice, Estimate *out) {
  Arena *scratch = arena_new();
  Plan *plan = emit_choice(s, scratch, choice);
  if (plan) {
    SimResult sim;
    events_insert(scratch, plan, s->specs, false);
    plan_simulate(scratch, plan, &sim);
    *out = (Estimate){.choice = *choice, .ns = sim.step_ns, .max_live = plan->max_live_bytes};
  }
  arena_free(scratch);
  return plan != NULL;
}

/* Fewest recomputed blocks that fit: memory falls with their number. */
static bool fewest_blocks(Search *s, Estimate *e) {
  uint32_t blocks = checkpoint_block_count(search_program(s, e->choice.micro_batch));
  CheckpointKind pinned = s->settings->checkpoint;
  e->choice.full_blocks = pinned == CHECKPOINT_FULL ? blocks : 0;
  Choice choice = e->choice;
  if (!estimate(s, &choice, e)) return false;
  if (pinned != CHECKPOINT_AUTO || e->max_live <= s->budget || s->inference) return true;
  uint32_t low = 0, high = blocks; /* low does not fit */
  choice.full_blocks = high;
  if (!estimate(s, &choice, e)) return false;
  if (e->max_live > s->budget) return true;
  while (high - low > 1) {
    Estimate middle;
    choice.full_blocks = low + (high - low) / 2;
    if (!estimate(s, &choice, &middle)) return false;
    if (middle.max_live <= s->budget) {
      high = choice.full_blocks;
      *e = middle;
    } else {
      low = choice.full_blocks;
    }
  }
  return true;
}

typedef VEC(Estimate) Estimates;

static bool add_estimate(Search *s, Estimates *list, Choice choice) {
  Estimate e = {.choice = choice};
  if (!fewest_blocks(s, &e)) return false;
  e.order = list->count;
  vec_push(s->arena, list, e);
  return true;
}

static int compare_sized(const Estimate *x, const Estimate *y, uint64_t budget) {
  bool fx = x->max_live <= budget, fy = y->max_live <= budget;
  if (fx != fy) return fx ? -1 : 1;
  uint64_t a = fx ? x->ns : x->max_live, b = fx ? y->ns : y->max_live;
  if (a != b) return a < b ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

static void sort_estimates(Estimates *list, uint64_t budget) {
  for (uint32_t i = 1; i < list->count; i++)
    for (uint32_t j = i; j > 0 && compare_sized(&list->data[j], &list->data[j - 1], budget) < 0; j--) {
      Estimate swap = list->data[j];
      list->data[j] = list->data[j - 1];
      list->data[j - 1] = swap;
    }
}

static uint32_t list_strategies(const Search *s, Strategy out[3]) {
  if (s->settings->strategy != STRATEGY_AUTO && !s->inference) {
    out[0] = s->settings->strategy;
    return 1;
  }
  if (s->ranks == 1) {
    out[0] = STRATEGY_NO_SHARD;
    return 1;
  }
  out[0] = STRATEGY_FULL_SHARD;
  out[1] = STRATEGY_SHARD_GRAD_OP;
  out[2] = STRATEGY_NO_SHARD;
  return 3;
}

static Choice first_choice(const Search *s) {
  Choice choice = {.wrap = s->settings->wrap == WRAP_AUTO ? WRAP_BLOCK : s->settings->wrap,
                   .wrap_numel = s->settings->wrap_numel,
                   .prefetch = s->settings->prefetch == SETTING_AUTO ? 1 : (uint32_t)s->settings->prefetch};
  return choice;
}

static uint64_t block_numel(const Graph *graph, const Program *program) {
  uint64_t total = 0;
  for (uint32_t p = 0; p < graph->params.count; p++) {
    uint64_t numel = 0;
    shape_numel(&graph->params.data[p].shape, 1, &numel);
    if (program->block[graph->params.data[p].first_op] >= 0) total += numel;
  }
  uint32_t blocks = checkpoint_block_count(program);
  return blocks ? total / blocks : total;
}

/* Changes one decision at a time around the best outer choice. */
static bool add_neighbours(Search *s, Estimates *list, Choice best) {
  Choice choice = best;
  bool alone = s->ranks == 1 || best.strategy == STRATEGY_NO_SHARD;
  if (s->settings->wrap == WRAP_AUTO && s->ranks > 1) {
    uint64_t block = block_numel(s->graph, search_program(s, best.micro_batch));
    for (uint64_t blocks = 2; blocks <= 4; blocks *= 2) {
      choice.wrap = WRAP_SIZE;
      choice.wrap_numel = block * blocks - block / 2;
      if (!add_estimate(s, list, choice)) return false;
    }
    choice.wrap = WRAP_WHOLE;
    if (!add_estimate(s, list, choice)) return false;
  }
  choice = best;
  for (uint32_t depth = 0; depth <= MAX_PREFETCH_TRIED && s->settings->prefetch == SETTING_AUTO && !alone; depth++) {
    choice.prefetch = depth;
    if (depth != best.prefetch && !add_estimate(s, list, choice)) return false;
  }
  choice = best;
  choice.keep_last = true;
  if (alone || s->settings->reshard != SETTING_AUTO || best.strategy != STRATEGY_FULL_SHARD) return true;
  return add_estimate(s, list, choice);
}

/* Places an estimate; recomputes more where fragmentation overflows the budget and the policy is free. */
static bool place(Search *s, Choice choice, Found *found) {
  uint32_t blocks = checkpoint_block_count(search_program(s, choice.micro_batch));
  for (int i = 0; i < PLACEMENT_TRIES; i++) {
    found->choice = choice;
    found->plan = search_build(s, s->arena, &choice);
    if (!found->plan) return false;
    found->fits = found->plan->arena_bytes <= s->budget;
    if (found->fits || s->settings->checkpoint != CHECKPOINT_AUTO || choice.full_blocks == blocks) return true;
    choice.full_blocks += 1 + (blocks - choice.full_blocks) / 4;
    if (choice.full_blocks > blocks || i == PLACEMENT_TRIES - 2) choice.full_blocks = blocks;
  }
  return true;
}

/* The first estimate that fits as placed, else the smallest placed plan. */
static bool place_best(Search *s, const Estimates *list, Found *found) {
  Found smallest = {0};
  for (uint32_t i = 0; i < list->count; i++) {
    const Estimate *e = &list->data[i];
    if (e->max_live > s->budget && i > 0 && smallest.plan) break;
    if (!place(s, e->choice, found)) return false;
    if (found->fits) return true;
    if (!smallest.plan || found->plan->arena_bytes < smallest.plan->arena_bytes) smallest = *found;
  }
  *found = smallest;
  return true;
}

bool search_best(Search *s, const int64_t *micro, uint32_t count, Found *found) {
  Estimates list = {0};
  Strategy strategies[3];
  uint32_t strategy_count = list_strategies(s, strategies);
  for (uint32_t m = 0; m < count; m++) {
    Choice choice = first_choice(s);
    choice.micro_batch = micro[m];
    if (!search_program(s, micro[m])) return false;
    for (uint32_t k = 0; k < strategy_count; k++) {
      choice.strategy = strategies[k];
      if (!add_estimate(s, &list, choice)) return false;
    }
  }
  sort_estimates(&list, s->budget);
  if (!add_neighbours(s, &list, list.data[0].choice)) return false;
  sort_estimates(&list, s->budget);
  if (!place_best(s, &list, found)) return false;
  plan_simulate(s->arena, found->plan, &found->sim);
  found->bound = bound_of(s->cluster, found->plan);
  for (uint32_t i = 0; i < list.count; i++) { /* the least bound over all sharding and micro-batches considered */
    if (list.data[i].choice.micro_batch == found->choice.micro_batch && list.data[i].choice.strategy == found->choice.strategy)
      continue;
    Arena *scratch = arena_new();
    Plan *plan = emit_choice(s, scratch, &list.data[i].choice);
    Bound bound = bound_of(s->cluster, plan);
    if (bound.ns < found->bound.ns) found->bound = bound;
    arena_free(scratch);
  }
  return true;
}
