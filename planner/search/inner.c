/* Owns: inner.h. Ties go to the earlier candidate and nothing depends on time, so equal inputs give equal plans. */
#include "planner/search/inner_trials.h"

#include "planner/cost.h"

#include <stdlib.h>

enum { PAIR_ITEMS = 64, LARGE_ITEMS = 2500 };
/* Operators of a program whose seeds take long: where not even the start fits none are made, although one that keeps more may be smaller. */
enum { LONG_TO_SEED = 4000 };

/* --- what is pinned ----------------------------------------------------------------------------------------------------- */

static void pin_units(Inner *in) {
  const PlanSettings *settings = in->search->settings;
  const Keeping keeping = in->search->keeping;
  uint32_t units = in->units->units.count;
  bool all = settings->strategy == STRATEGY_SHARD_GRAD_OP || settings->reshard == 0 || keeping == KEEP_ALL, *keep = ARENA_ARRAY(in->arena, bool, units);
  in->keep_free = keeping == KEEP_FREELY && search_kept_is_open(in->search, &in->outer);
  for (uint32_t u = 0; u < units; u++) {
    int32_t pinned = in->units->units.data[u].reshard;
    keep[u] = pinned == SETTING_AUTO ? all : !pinned;
  }
  in->base.keep = keep;
}

static bool unit_is_free(const Inner *in, uint32_t unit) {
  return in->keep_free && in->units->units.data[unit].reshard == SETTING_AUTO;
}

/* --- room -------------------------------------------------------------------------------------------------------------------- */

/* Bytes at each op's slot when nothing free is kept: the room that items compete for. */
static int64_t *find_live(const Inner *in, const bool *away, uint32_t behind) {
  Arena *scratch = arena_new();
  Schedule schedule;
  Decisions d = in->base;
  d.prefetch = 0;
  d.issue.behind = behind;
  d.away = (bool *)away;
  schedule_build(&schedule, scratch, in->skeleton, &d);
  int64_t *live = ARENA_ARRAY(in->arena, int64_t, in->program->ops.count), most = 0;
  for (int32_t s = 0; s < schedule.step_count; s++) {
    if (schedule.live[s] > most) most = schedule.live[s];
    if (schedule.steps[s].phase == PHASE_RECOMPUTE) continue; /* part of the next backward slot */
    live[schedule.steps[s].op] = most;
    most = 0;
  }
  arena_free(scratch);
  return live;
}

/* Which results are in host memory where seeds start: those that are never run again and so live through all of backward, all that may be,
 * or all of these but where others of the operator stay, such as attention's statistics. */
typedef enum { LEAVE_HELD, LEAVE_ALL, LEAVE_ALONE } Leaving;

static bool leaves(const Inner *in, const Item *item, Leaving leaving) {
  const uint64_t moved = item_moved_bytes(&in->program->flow, item);
  return moved && (item->held || leaving == LEAVE_ALL || (leaving == LEAVE_ALONE && item->bytes <= moved));
}

/* By op; as far as host memory goes. */
static const bool *find_away(const Inner *in, Leaving leaving) {
  bool *away = ARENA_ARRAY(in->arena, bool, in->program->ops.count);
  uint64_t bytes = 0;
  memcpy(away, in->base.away, in->program->ops.count * sizeof(bool));
  for (uint32_t i = 0; i < in->items.operators.count; i++) {
    const Item *item = item_at(&in->items, i);
    const uint64_t moved = item_moved_bytes(&in->program->flow, item);
    if (!leaves(in, item, leaving) || moved > in->host_room - bytes) continue;
    away[item->op] = true;
    bytes += moved;
  }
  return away;
}

/* --- opening ---------------------------------------------------------------------------------------------------------------- */

static void list_items(Inner *in, const Items *operators) {
  uint32_t units = in->units->units.count;
  in->items = (AllItems){.operators = *operators};
  vec_reserve(in->arena, &in->items.units, units);
  for (uint32_t u = 0; u < units; u++) {
    const UnitOps *ops = &in->skeleton->ops[u];
    if (!unit_is_free(in, u) || in->base.keep[u] || ops->last_forward < 0 || ops->first_backward < 0) continue;
    Item item = {.op = PLAN_NONE, .feeder = PLAN_NONE, .unit = (int32_t)u, .class = INT32_MAX};
    item.first = ops->last_forward;
    item.last = ops->first_backward;
    item.rank = (int32_t)(units - u); /* the last units' gathers are the hardest to hide */
    item.bytes = in->figures[u].full_bytes;
    item.ns = in->figures[u].gather_ns > in->figures[u].fetch_ns ? in->figures[u].gather_ns : in->figures[u].fetch_ns;
    vec_push(in->arena, &in->items.units, item);
  }
  in->items.count = operators->count + in->items.units.count;
}

static void open_base(Inner *in, const Prepared *prepared) {
  const Search *s = in->search;
  uint32_t rules;
  in->base = (Decisions){.ranks = s->ranks,
                         .shard = in->world.shard,
                         .replicas = in->world.replicas,
                         .ranks_per_node = s->ranks_per_node,
                         .accumulation = in->world.accumulation,
                         .offload = in->outer.offload,
                         .gather_once = in->outer.gather_once,
                         .reduce_once = in->outer.reduce_once,
                         .units = in->units,
                         .recompute = prepared->recompute,
                         .away = prepared->away,
                         .prefetch = s->settings->prefetch == SETTING_AUTO ? PREFETCH_FREE : (uint32_t)s->settings->prefetch,
                         .issue = inner_rules(&rules)[0],
                         .overlap = cost_overlap(s->cluster, &in->world)};
}

static Bound find_bound(const Inner *in, uint64_t enough) {
  BoundInput input = {.skeleton = in->skeleton,
                      .items = &in->items,
                      .operators = &in->slices,
                      .start = &in->base,
                      .room = in->room,
                      .host_room = in->host_room,
                      .may_keep = in->keep_free,
                      .enough = enough};
  return bound_of(&input);
}

/* NULL after diagnostics. */
static const Prepared *open_units(Search *s, Arena *arena, const Outer *outer, Grouping grouping, Inner *in) {
  *in = (Inner){.search = s, .arena = arena, .outer = *outer, .grouping = grouping};
  const Prepared *prepared = search_prepare(s, outer->micro_batch);
  if (!prepared) return NULL;
  in->program = prepared->program;
  in->slices = prepared->slices;
  in->ranks = prepared->ranks;
  in->world = search_world(s, outer);
  in->units = search_units(s, in->program, grouping);
  if (!in->units) return NULL;
  open_base(in, prepared);
  return prepared;
}

bool inner_bound(Search *s, Arena *arena, const Outer *outer, Grouping grouping, uint64_t enough, Bound *bound) {
  Inner in;
  *bound = (Bound){UINT64_MAX, "memory"};
  if (!open_units(s, arena, outer, grouping, &in)) return false;
  inner_set_budget(&in, s->budget);
  if (!in.room) return true;
  if (!inner_open_below(s, arena, outer, grouping, enough, &in)) return false;
  *bound = in.bound;
  return true;
}

bool inner_open(Search *s, Arena *arena, const Outer *outer, Grouping grouping, Inner *in) {
  return inner_open_below(s, arena, outer, grouping, UINT64_MAX, in);
}

bool inner_open_below(Search *s, Arena *arena, const Outer *outer, Grouping grouping, uint64_t enough, Inner *in) {
  const Prepared *prepared = open_units(s, arena, outer, grouping, in);
  if (!prepared) return false;
  in->figures = figures_of_units(arena, in->program, in->units, s->cluster, &in->world, &in->base);
  in->skeleton = schedule_prepare(arena, in->program, in->units, in->figures, figures_of_step(in->program, s->cluster, &in->world),
                                  &in->base, &s->cluster->device);
  in->movable = search_movable(s);
  pin_units(in);
  list_items(in, &prepared->items);
  inner_set_budget(in, s->budget);
  in->bound = find_bound(in, enough);
  return true;
}

void inner_set_budget(Inner *in, uint64_t budget) {
  uint64_t persistent = figures_persistent(in->program, in->units, &in->base);
  uint64_t host = in->search->cluster->device.host_memory, away = in->base.offload ? figures_host(in->program, in->units, &in->base) : 0;
  in->lacks_host = host && away > host;
  in->host_room = host == 0 ? UINT64_MAX : host > away ? host - away : 0;
  in->room = budget > persistent && !in->lacks_host ? budget - persistent : 0;
  in->base.room = in->room;
  for (int i = 0; i < POOL; i++) in->pool[i].ns = UINT64_MAX;
  in->start_away = NULL;
  in->ample = false;
  if (in->judged) memset(in->judged, 0, JUDGED * sizeof *in->judged);
}

/* --- seeds ------------------------------------------------------------------------------------------------------------------- */

static uint64_t largest_unit(const Inner *in) {
  uint64_t most = 0;
  for (uint32_t u = 0; u < in->units->units.count && outer_gathers(&in->outer); u++)
    if (in->figures[u].full_bytes > most) most = in->figures[u].full_bytes;
  return most;
}

/* Seeds: what a gather is worth against recomputing for as long, from activations first to units first, and how much
 * memory prefetch should find free, in largest units. The first of each are tried on every grouping. */
static const double gather_prices[] = {0, 1000, 0.3, 0.001, 0.1, 1};
static const double reserves[] = {0, 1, 0.5, 2, 3};
enum { FIRST_PRICES = 3, FIRST_RESERVES = 2 };
enum { ALL_PRICES = sizeof gather_prices / sizeof *gather_prices, ALL_RESERVES = sizeof reserves / sizeof *reserves };

static uint64_t forward_ns(const Inner *in) {
  uint64_t ns = 0;
  for (int32_t i = 0; i < in->program->turn; i++) ns += in->skeleton->op_ns[i];
  return ns;
}

static uint64_t largest_moved(const Inner *in) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < in->items.count; i++)
    if (item_at(&in->items, i)->away_ns && item_at(&in->items, i)->bytes > most) most = item_at(&in->items, i)->bytes;
  return most;
}

/* Shares of forward that the host link is busy in, and buffers under way, in largest results, that room is left for. */
static const double link_shares[] = {1, 0.5, 0.25, 0.75};
enum { FIRST_SHARES = 2, ALL_SHARES = sizeof link_shares / sizeof *link_shares, BUFFERS_UNDER_WAY = 3 };

static void seed_move(Inner *in, const Ranking *ranking, Moves moves, uint64_t limit, Trial *trial) {
  inner_start_from(in, in->base.away, trial);
  items_move(in->search->scratch, &in->items, moves, trial->recompute, trial->away);
  items_choose(&in->items, ranking, limit, &in->live, (int32_t)in->program->ops.count, trial->away, trial->recompute, trial->keep);
  inner_try_rules(in, trial, 0, FIRST_RULES);
}

/* Each was the best one for a tenth or more of the searches over models, clusters and budgets. */
static const struct {
  MoveOrder order;
  bool held_first;
} move_orders[] = {{MOVE_SPREAD, false}, {MOVE_WORTH, true}, {MOVE_WORTH, false}, {MOVE_LATEST, false}};
enum { MOVE_ORDERS = sizeof move_orders / sizeof *move_orders };

/* What the host link carries while forward computes costs next to nothing: a share of that time. */
static void seed_moves(Inner *in, Trial *trial, bool more) {
  Ranking ranking = items_rank(in->arena, &in->items, &in->ranks, 0);
  uint64_t forward = forward_ns(in), reserve = BUFFERS_UNDER_WAY * largest_moved(in) + largest_unit(in);
  uint64_t limit = in->room > reserve ? in->room - reserve : 0, most = 0;
  for (uint32_t i = 0; i < in->program->ops.count; i++)
    if ((uint64_t)in->live.bytes[i] > most) most = (uint64_t)in->live.bytes[i];
  const uint64_t kept = limit > most ? limit - most : 0;
  for (int share = 0; share < (more ? ALL_SHARES : FIRST_SHARES); share++)
    for (int o = 0; o < MOVE_ORDERS; o++) {
      bool worth = move_orders[o].order == MOVE_WORTH;
      uint64_t link_ns = (uint64_t)(link_shares[share] * (double)forward);
      Moves moves = {move_orders[o].order, move_orders[o].held_first, link_ns, in->host_room, worth ? 0 : kept};
      if (worth || kept) seed_move(in, &ranking, moves, limit, trial);
    }
}

/* Whether it fits where compute may run ahead of reductions; else whether it does where it waits for them. */
static bool try_either(Inner *in, Trial *trial) {
  inner_try_rules(in, trial, 0, FIRST_RULES);
  if (in->pool[0].ns == UINT64_MAX) inner_try_rules(in, trial, WAITING_RULES, ISSUE_RULES);
  return in->pool[0].ns != UINT64_MAX;
}

/* Where everything that may be is recomputed; where that does not fit, and what remains is in host memory. */
static void try_start(Inner *in, Trial *trial) {
  if (try_either(in, trial) || !in->movable) return;
  in->start_away = find_away(in, LEAVE_HELD);
  inner_start_trial(in, trial);
  (void)try_either(in, trial);
}

/* What runs a block again holds all of it at once, what comes back from the host only what is read next. */
static void seed_away(Inner *in, Trial *trial) {
  for (Leaving leaving = LEAVE_ALL; leaving <= LEAVE_ALONE; leaving++) {
    inner_start_from(in, find_away(in, leaving), trial);
    for (uint32_t i = 0; i < in->items.operators.count; i++) {
      const Item *item = item_at(&in->items, i);
      if (trial->away[item->op]) item_set_again(item, false, trial->recompute);
    }
    (void)try_either(in, trial);
  }
}

/* With room for what gathers need ahead: a seed for each price and reserve that is not tried yet. */
static void seed_choices(Inner *in, IssueRule settled, Trial *trial, bool more) {
  uint64_t unit = largest_unit(in);
  for (int p = 0; p < (in->keep_free ? (more ? ALL_PRICES : FIRST_PRICES) : 1); p++) {
    Ranking ranking = items_rank(in->arena, &in->items, &in->ranks, gather_prices[p]);
    for (int r = more && p < FIRST_PRICES ? FIRST_RESERVES : 0; r < (unit ? (more ? ALL_RESERVES : FIRST_RESERVES) : 1); r++) {
      uint64_t reserve = (uint64_t)(reserves[r] * (double)unit);
      inner_start_trial(in, trial);
      items_choose(&in->items, &ranking, in->room > reserve ? in->room - reserve : 0, &in->live, (int32_t)in->program->ops.count,
                   trial->away, trial->recompute, trial->keep);
      trial->issue = settled;
      if (more || inner_is_large(in) || !settled.behind)
        (void)inner_try(in, trial);
      else
        inner_try_rules(in, trial, 0, FIRST_RULES);
    }
  }
}

void inner_seed(Inner *in, bool more) {
  Trial trial = inner_new_trial(in);
  if (!more) try_start(in, &trial);
  if (in->movable && (more ? search_has_few_operators(in->search) : in->pool[0].ns == UINT64_MAX)) seed_away(in, &trial);
  if (!more && in->pool[0].ns == UINT64_MAX && inner_is_long(in)) return;
  IssueRule settled = in->pool[0].recompute ? in->pool[0].issue : in->base.issue;
  in->live = (Live){find_live(in, inner_start_away(in), 0), inner_start_away(in)};
  seed_choices(in, settled, &trial, more);
  if (in->movable && in->pool[0].ns > bound_reached(&in->bound)) seed_moves(in, &trial, more);
  if (!more || !decisions_reduce(&in->base) || in->pool[0].ns <= bound_reached(&in->bound)) return;
  in->live = (Live){find_live(in, inner_start_away(in), 1), inner_start_away(in)}; /* gradients are reduced beside what is kept */
  seed_choices(in, in->base.issue, &trial, false);
  if (in->movable) seed_moves(in, &trial, false);
}

bool inner_is_small(const Inner *in) { return in->items.count <= PAIR_ITEMS; }
bool inner_is_long(const Inner *in) { return in->program->ops.count > LONG_TO_SEED; }
bool inner_is_large(const Inner *in) { return in->items.count > LARGE_ITEMS; }

/* --- decisions ---------------------------------------------------------------------------------------------------------------- */

Decisions inner_decisions(const Inner *in, const Trial *trial) {
  Arena *arena = in->search->arena;
  Decisions d = in->base;
  d.issue = trial->issue;
  d.slots = trial->slots;
  d.recompute = ARENA_ARRAY(arena, bool, in->program->ops.count);
  d.away = ARENA_ARRAY(arena, bool, in->program->ops.count);
  bool *keep = ARENA_ARRAY(arena, bool, in->units->units.count);
  memcpy(d.away, trial->away, in->program->ops.count * sizeof(bool));
  memcpy(d.recompute, trial->recompute, in->program->ops.count * sizeof(bool));
  memcpy(keep, trial->keep, in->units->units.count * sizeof(bool));
  d.keep = keep;
  return d;
}

Decisions inner_smallest(const Inner *in) {
  Trial trial = inner_new_trial(in);
  if (in->movable) memcpy(trial.away, find_away(in, LEAVE_HELD), in->program->ops.count * sizeof(bool));
  Decisions d = inner_decisions(in, &trial);
  d.issue.behind = 0;
  d.prefetch = 0;
  return d;
}

bool inner_bring_back(const Inner *in, Decisions *decisions) {
  bool any = false, *away = ARENA_ARRAY(in->search->arena, bool, in->program->ops.count);
  memcpy(away, decisions->away, in->program->ops.count * sizeof(bool));
  for (uint32_t i = 0; i < in->items.count; i++) {
    int32_t op = item_at(&in->items, i)->op;
    if (op < 0 || !away[op]) continue;
    away[op] = false;
    any = true;
  }
  decisions->away = away;
  return any;
}

uint64_t inner_smallest_bytes(Inner *in) {
  if (in->lacks_host) return UINT64_MAX;
  const int64_t *live = find_live(in, in->movable ? find_away(in, LEAVE_HELD) : in->base.away, 0);
  int64_t most = 0;
  for (uint32_t i = 0; i < in->program->ops.count; i++)
    if (live[i] > most) most = live[i];
  if ((int64_t)in->skeleton->update_bytes > most) most = (int64_t)in->skeleton->update_bytes;
  return figures_persistent(in->program, in->units, &in->base) + (uint64_t)most;
}
