/* Owns: inner.h. Ties go to the earlier candidate and nothing depends on time, so equal inputs give equal plans. */
#include "planner/inner.h"

#include "planner/cost.h"

#include <stdlib.h>

enum { MOVE_BUDGET = 2500000, MOST_MOVES = 400, PAIR_ITEMS = 64, LARGE_ITEMS = 2500 };

/* As late as is harmless takes the least memory; one or two uses ahead lines gathers up with reductions, so that both slow
 * compute at once instead of one after the other. */
static const IssueRule issue_rules[] = {{6, true, 1},  {1, false, 1}, {2, false, 1}, {6, false, 1}, {3, false, 1},
                                        {0, false, 1}, {6, true, 3},  {2, false, 3}, {6, true, 0},  {0, false, 0}};
enum { ISSUE_RULES = sizeof issue_rules / sizeof *issue_rules, FIRST_RULES = 2, WAITING_RULES = 8 };

const IssueRule *inner_rules(uint32_t *count) {
  *count = ISSUE_RULES;
  return issue_rules;
}

/* --- what is pinned ----------------------------------------------------------------------------------------------------- */

static bool in_gathers(const Inner *in) { return in->world.shard > 1 || (in->outer.offload & OFFLOAD_PARAMETERS); }

static void pin_units(Inner *in) {
  const PlanSettings *settings = in->search->settings;
  uint32_t units = in->units->units.count;
  bool all = settings->strategy == STRATEGY_SHARD_GRAD_OP || settings->reshard == 0;
  in->keep_free = settings->strategy != STRATEGY_SHARD_GRAD_OP && settings->reshard == SETTING_AUTO && in_gathers(in) &&
                  !in->outer.gather_once;
  for (uint32_t u = 0; u < units; u++) {
    int32_t pinned = in->units->units.data[u].reshard;
    in->base.keep[u] = pinned == SETTING_AUTO ? all : !pinned;
  }
}

static bool unit_is_free(const Inner *in, uint32_t unit) {
  return in->keep_free && in->units->units.data[unit].reshard == SETTING_AUTO;
}

/* --- judging -------------------------------------------------------------------------------------------------------------- */

bool inner_judge(const Inner *in, Trial *trial) {
  Arena *scratch = in->search->scratch;
  Decisions d = in->base;
  Schedule schedule;
  d.recompute = trial->recompute;
  d.away = trial->away;
  d.issue = trial->issue;
  d.slots = trial->slots;
  d.keep = ARENA_ARRAY(scratch, bool, in->units->units.count);
  memcpy(d.keep, trial->keep, in->units->units.count * sizeof(bool));
  schedule_build(&schedule, scratch, in->skeleton, &d);
  bool fits = schedule.max_live <= (int64_t)in->room && schedule.host_bytes <= in->host_room;
  trial->ns = fits ? schedule.step_ns : UINT64_MAX;
  trial->live = schedule.max_live;
  in->search->candidates++;
  arena_reset(scratch);
  return fits;
}

/* Bytes at each op's slot when nothing free is kept: the room that items compete for. */
static int64_t *find_live(const Inner *in, const bool *away, uint32_t behind) {
  Arena *scratch = arena_new();
  Schedule schedule;
  Decisions d = in->base;
  d.prefetch = 0;
  d.issue.behind = behind;
  d.away = (bool *)away;
  d.keep = ARENA_ARRAY(scratch, bool, in->units->units.count);
  memcpy(d.keep, in->base.keep, in->units->units.count * sizeof(bool));
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

/* The start where memory is tightest: what is never run again, and so lives through all of backward, is in host memory. */
static const bool *held_away(const Inner *in) {
  bool *away = ARENA_ARRAY(in->arena, bool, in->program->ops.count);
  uint64_t bytes = 0;
  memcpy(away, in->base.away, in->program->ops.count * sizeof(bool));
  for (uint32_t i = 0; i < in->items.count; i++) {
    const Item *item = &in->items.data[i];
    if (!item->held || item->bytes > in->host_room - bytes) continue;
    away[item->op] = true;
    bytes += item->bytes;
  }
  return away;
}

/* --- opening ---------------------------------------------------------------------------------------------------------------- */

/* Those of operators, then those of units. */
static void list_items(Inner *in, const Items *operators) {
  uint32_t units = in->units->units.count;
  vec_reserve(in->arena, &in->items, operators->count + units);
  if (operators->count) memcpy(in->items.data, operators->data, operators->count * sizeof(Item));
  in->items.count = operators->count;
  for (uint32_t u = 0; u < units; u++) {
    const UnitOps *ops = &in->skeleton->ops[u];
    if (!unit_is_free(in, u) || in->base.keep[u] || ops->last_forward < 0 || ops->first_backward < 0) continue;
    Item item = {.op = PLAN_NONE, .unit = (int32_t)u, .class = INT32_MAX, .first = ops->last_forward, .last = ops->first_backward};
    item.rank = (int32_t)(units - u); /* the last units' gathers are the hardest to hide */
    item.bytes = in->figures[u].full_bytes;
    item.ns = in->figures[u].gather_ns > in->figures[u].fetch_ns ? in->figures[u].gather_ns : in->figures[u].fetch_ns;
    vec_push(in->arena, &in->items, item);
  }
}

static void open_base(Inner *in, const Prepared *prepared) {
  const Search *s = in->search;
  bool early = s->settings->prefetch == SETTING_AUTO;
  in->base = (Decisions){.ranks = s->ranks,
                         .shard = in->world.shard,
                         .replicas = in->world.replicas,
                         .ranks_per_node = s->ranks_per_node,
                         .accumulation = in->world.accumulation,
                         .offload = in->outer.offload,
                         .gather_once = in->outer.gather_once,
                         .reduce_once = in->outer.reduce_once,
                         .units = in->units,
                         .keep = ARENA_ARRAY(in->arena, bool, in->units->units.count),
                         .recompute = prepared->recompute,
                         .away = prepared->away,
                         .prefetch = early ? PREFETCH_EARLY : (uint32_t)s->settings->prefetch,
                         .issue = issue_rules[0],
                         .contention = cost_overlap(s->cluster, &in->world).contention,
                         .comm_slowdown = cost_overlap(s->cluster, &in->world).comm_slowdown,
                         .fixed_update_ns = figures_fixed_update(in->program, s->cluster, &in->world)};
}

static Bound find_bound(const Inner *in) {
  const PlanSettings *settings = in->search->settings;
  bool depth = settings->prefetch != SETTING_AUTO; /* keeps units whose gathers would overlap */
  BoundInput input = {.skeleton = in->skeleton,
                      .items = &in->items,
                      .start = &in->base,
                      .update_ns = figures_least_update(in->search->cluster, &in->world),
                      .room = in->room,
                      .host_room = in->host_room,
                      .may_keep = in->keep_free || depth};
  return bound_of(&input);
}

bool inner_open(Search *s, Arena *arena, const Outer *outer, Grouping grouping, Inner *in) {
  *in = (Inner){.search = s, .arena = arena, .outer = *outer, .grouping = grouping};
  const Prepared *prepared = search_prepare(s, outer->micro_batch);
  if (!prepared) return false;
  in->program = prepared->program;
  in->world = search_world(s, outer);
  in->units = units_choose(s->arena, s->sink, in->program, s->settings, grouping.wrap, grouping.numel);
  if (!in->units) return false;
  in->figures = figures_of_units(arena, in->program, in->units, s->cluster, &in->world, outer->offload);
  in->skeleton = schedule_prepare(arena, in->program, in->units, in->figures, &s->cluster->device);
  open_base(in, prepared);
  in->movable = search_movable(s);
  pin_units(in);
  list_items(in, &prepared->items);
  inner_set_budget(in, s->budget);
  in->bound = find_bound(in);
  return true;
}

void inner_set_budget(Inner *in, uint64_t budget) {
  uint64_t persistent = figures_persistent(in->program, in->units, &in->base);
  in->room = budget > persistent ? budget - persistent : 0;
  in->base.room = in->room;
  uint64_t host = in->search->cluster->device.host_memory, away = in->base.offload ? figures_host(in->program, in->units, &in->base) : 0;
  in->host_room = host == 0 ? UINT64_MAX : host > away ? host - away : 0;
  for (int i = 0; i < POOL; i++) in->pool[i].ns = UINT64_MAX;
  in->start_away = NULL;
}

/* --- trials ----------------------------------------------------------------------------------------------------------------- */

static void copy_trial(const Inner *in, Trial *to, const Trial *from) {
  memcpy(to->recompute, from->recompute, in->program->ops.count * sizeof(bool));
  memcpy(to->away, from->away, in->program->ops.count * sizeof(bool));
  memcpy(to->keep, from->keep, in->units->units.count * sizeof(bool));
  to->issue = from->issue;
  to->slots = from->slots;
  to->ns = from->ns;
  to->live = from->live;
}

static void start_from(const Inner *in, const bool *away, Trial *trial) {
  memcpy(trial->recompute, in->base.recompute, in->program->ops.count * sizeof(bool));
  memcpy(trial->away, away, in->program->ops.count * sizeof(bool));
  memcpy(trial->keep, in->base.keep, in->units->units.count * sizeof(bool));
  trial->slots = NULL;
  trial->ns = UINT64_MAX;
}

static const bool *start_away(const Inner *in) { return in->start_away ? in->start_away : in->base.away; }

static void start_trial(const Inner *in, Trial *trial) { start_from(in, start_away(in), trial); }

Trial inner_new_trial(const Inner *in) {
  uint32_t ops = in->program->ops.count;
  Trial trial = {ARENA_ARRAY(in->arena, bool, ops), ARENA_ARRAY(in->arena, bool, ops), ARENA_ARRAY(in->arena, bool, in->units->units.count),
                 in->base.issue, NULL, UINT64_MAX, 0};
  start_trial(in, &trial);
  return trial;
}

/* Room for one more: drops the entry that is hardly smaller than the one before. */
static void thin_pool(Inner *in) {
  int drop = 1;
  for (int i = 2; i < POOL; i++)
    if (in->pool[i - 1].live - in->pool[i].live < in->pool[drop - 1].live - in->pool[drop].live) drop = i;
  Trial freed = in->pool[drop];
  memmove(in->pool + drop, in->pool + drop + 1, (size_t)(POOL - 1 - drop) * sizeof(Trial));
  in->pool[POOL - 1] = freed;
  in->pool[POOL - 1].ns = UINT64_MAX;
}

/* Into the pool, unless something as fast is as small; out goes what is neither faster nor smaller. */
static void pool_trial(Inner *in, const Trial *trial) {
  Trial next[POOL], spare[POOL];
  int kept = 0, spares = 0, at = PLAN_NONE;
  for (int i = 0; i < POOL; i++)
    if (in->pool[i].ns <= trial->ns && in->pool[i].ns != UINT64_MAX && in->pool[i].live <= trial->live) return;
  if (in->pool[POOL - 1].ns != UINT64_MAX) thin_pool(in);
  for (int i = 0; i < POOL; i++) {
    const Trial *entry = &in->pool[i];
    bool beaten = entry->ns != UINT64_MAX && entry->ns >= trial->ns && entry->live >= trial->live;
    if (at < 0 && (entry->ns > trial->ns || beaten)) at = kept++;
    if (beaten || entry->ns == UINT64_MAX)
      spare[spares++] = *entry;
    else
      next[kept++] = *entry;
  }
  next[at] = spare[--spares].recompute ? spare[spares] : inner_new_trial(in);
  copy_trial(in, &next[at], trial);
  for (int i = 0; i < spares; i++) spare[i].ns = UINT64_MAX;
  memcpy(in->pool, next, (size_t)kept * sizeof(Trial));
  memcpy(in->pool + kept, spare, (size_t)spares * sizeof(Trial));
}

/* Whether it is the best yet. */
static bool try_trial(Inner *in, Trial *trial) {
  uint64_t best = in->pool[0].ns;
  if (!inner_judge(in, trial)) return false;
  pool_trial(in, trial);
  return trial->ns < best;
}

static bool has_issue_rules(const Inner *in) {
  return in->base.prefetch == PREFETCH_EARLY && decisions_gather(&in->base) && !in->base.gather_once;
}

bool inner_same_rule(const Inner *in, const IssueRule *a, const IssueRule *b) {
  bool gathers = has_issue_rules(in), reduces = decisions_reduce(&in->base);
  return (!gathers || (a->ahead == b->ahead && a->late == b->late)) && (!reduces || a->behind == b->behind);
}

static void try_rules(Inner *in, Trial *trial, int from, int end) {
  for (int r = from; r < end; r++) {
    bool known = false;
    for (int k = from; k < r; k++) known |= inner_same_rule(in, &issue_rules[k], &issue_rules[r]);
    if (known) continue;
    trial->issue = issue_rules[r];
    (void)try_trial(in, trial);
  }
}

static uint64_t largest_unit(const Inner *in) {
  uint64_t most = 0;
  for (uint32_t u = 0; u < in->units->units.count && in_gathers(in); u++)
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
  for (int32_t i = 0; i < in->program->turn; i++) ns += in->program->flow.op_ns[i];
  return ns;
}

static uint64_t largest_moved(const Inner *in) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < in->items.count; i++)
    if (in->items.data[i].away_ns && in->items.data[i].bytes > most) most = in->items.data[i].bytes;
  return most;
}

/* Shares of forward that the host link is busy in, and buffers under way, in largest results, that room is left for. */
static const double link_shares[] = {1, 0.5, 0.25, 0.75};
enum { FIRST_SHARES = 2, ALL_SHARES = sizeof link_shares / sizeof *link_shares, BUFFERS_UNDER_WAY = 3 };

/* What the host link carries while forward computes costs next to nothing. budget: a share of that time, and of memory. */
static void seed_moves(Inner *in, Trial *trial, bool more) {
  Ranking ranking = items_rank(in->arena, &in->items, 1, 0);
  uint64_t forward = forward_ns(in), reserve = BUFFERS_UNDER_WAY * largest_moved(in) + largest_unit(in);
  for (int share = 0; share < (more ? ALL_SHARES : FIRST_SHARES); share++)
    for (int held_first = 0; held_first < 2; held_first++) {
      start_from(in, in->base.away, trial);
      uint64_t link_ns = (uint64_t)(link_shares[share] * (double)forward);
      items_move(in->search->scratch, &in->items, link_ns, in->host_room, held_first, trial->recompute, trial->away);
      items_choose(&in->items, &ranking, in->room > reserve ? in->room - reserve : 0, in->live, (int32_t)in->program->ops.count,
                   trial->away, trial->recompute, trial->keep);
      try_rules(in, trial, 0, FIRST_RULES);
    }
}

/* Where everything that may be is recomputed: whether compute must wait for reductions, whether what remains must go too. */
static void try_start(Inner *in, Trial *trial) {
  try_rules(in, trial, 0, FIRST_RULES);
  if (in->pool[0].ns == UINT64_MAX) try_rules(in, trial, WAITING_RULES, ISSUE_RULES);
  if (in->pool[0].ns != UINT64_MAX || !in->movable) return;
  in->start_away = held_away(in);
  start_trial(in, trial);
  try_rules(in, trial, WAITING_RULES, ISSUE_RULES);
}

void inner_seed(Inner *in, bool more) {
  Trial trial = inner_new_trial(in);
  uint64_t unit = largest_unit(in);
  if (!more) try_start(in, &trial);
  IssueRule settled = in->pool[0].recompute ? in->pool[0].issue : issue_rules[0];
  in->live = find_live(in, start_away(in), 0);
  for (int p = 0; p < (in->keep_free ? (more ? ALL_PRICES : FIRST_PRICES) : 1); p++) {
    Ranking ranking = items_rank(in->arena, &in->items, 1, gather_prices[p]);
    for (int r = more && p < FIRST_PRICES ? FIRST_RESERVES : 0; r < (unit ? (more ? ALL_RESERVES : FIRST_RESERVES) : 1); r++) {
      uint64_t reserve = (uint64_t)(reserves[r] * (double)unit);
      start_trial(in, &trial);
      items_choose(&in->items, &ranking, in->room > reserve ? in->room - reserve : 0, in->live, (int32_t)in->program->ops.count,
                   in->base.away, trial.recompute, trial.keep);
      trial.issue = settled;
      if (more || inner_is_large(in) || !settled.behind)
        (void)try_trial(in, &trial);
      else
        try_rules(in, &trial, 0, FIRST_RULES);
    }
  }
  if (in->movable && in->pool[0].ns > bound_reached(&in->bound)) seed_moves(in, &trial, more);
}

/* --- moves -------------------------------------------------------------------------------------------------------------------- */

typedef struct Mover {
  Inner *in;
  Trial trial;
  uint64_t target;
  int64_t left; /* schedules that may still be judged */
} Mover;

static bool is_done(const Mover *m) { return m->left <= 0 || m->in->pool[0].ns <= m->target; }

static bool try_move(Mover *m) {
  m->left--;
  return try_trial(m->in, &m->trial);
}

static int compare_class(const void *a, const void *b) {
  const Item *x = *(const Item *const *)a, *y = *(const Item *const *)b;
  if (x->class != y->class) return x->class < y->class ? -1 : 1;
  return (x->first > y->first) - (x->first < y->first);
}

/* What becomes of an item's bytes between forward and backward. */
typedef enum { ITEM_AGAIN, ITEM_KEPT, ITEM_AWAY, ITEM_STATES } ItemState;

static ItemState state_of(const Trial *trial, const Item *item) {
  if (item->op < 0) return trial->keep[item->unit] ? ITEM_KEPT : ITEM_AGAIN;
  return trial->recompute[item->op] ? ITEM_AGAIN : trial->away[item->op] ? ITEM_AWAY : ITEM_KEPT;
}

static bool may_be(const Item *item, ItemState state) {
  return state == ITEM_AGAIN ? !item->held : state == ITEM_KEPT || item->away_ns > 0;
}

static void set_state(Trial *trial, const Item *item, ItemState state) {
  if (item->op < 0) {
    trial->keep[item->unit] = state == ITEM_KEPT;
    return;
  }
  trial->recompute[item->op] = state == ITEM_AGAIN;
  trial->away[item->op] = state == ITEM_AWAY;
}

typedef struct Way {
  ItemState from, to;
} Way;

/* Between kept and run again first: without a host link there is nothing else. */
static const Way ways[] = {{ITEM_AGAIN, ITEM_KEPT}, {ITEM_KEPT, ITEM_AGAIN}, {ITEM_AGAIN, ITEM_AWAY},
                           {ITEM_KEPT, ITEM_AWAY},  {ITEM_AWAY, ITEM_KEPT},  {ITEM_AWAY, ITEM_AGAIN}};
enum { WAYS = sizeof ways / sizeof *ways, WAYS_ON_DEVICE = 2 };

/* Moves up to `count` items of a class from one state to another, from the front or the back. */
static uint32_t move_run(Trial *trial, const Item *const *class, uint32_t size, Way way, bool back, uint32_t count) {
  uint32_t moved = 0;
  for (uint32_t i = 0; i < size && moved < count; i++) {
    const Item *item = class[back ? size - 1 - i : i];
    if (state_of(trial, item) != way.from || !may_be(item, way.to)) continue;
    set_state(trial, item, way.to);
    moved++;
  }
  return moved;
}

static bool move_class(Mover *m, const Item *const *class, uint32_t size, uint32_t count) {
  bool improved = false;
  for (int k = 0; k < 2 * (m->in->movable ? WAYS : WAYS_ON_DEVICE) && !is_done(m); k++) {
    copy_trial(m->in, &m->trial, &m->in->pool[0]);
    if (!move_run(&m->trial, class, size, ways[k % 2 + k / 4 * 2], k & 2, count)) continue;
    improved |= try_move(m);
  }
  return improved;
}

/* Moves whole classes, then halves of them, down to single items. */
static void move_classes(Mover *m) {
  uint32_t count = m->in->items.count;
  const Item **order = ARENA_ARRAY(m->in->arena, const Item *, count);
  for (uint32_t i = 0; i < count; i++) order[i] = &m->in->items.data[i];
  qsort(order, count, sizeof *order, compare_class);
  for (uint32_t run = m->in->units->units.count; run >= 1 && !is_done(m); run /= 2)
    for (uint32_t i = 0, end; i < count; i = end) {
      for (end = i + 1; end < count && order[end]->class == order[i]->class; end++) continue;
      while (move_class(m, order + i, end - i, run)) continue;
    }
}

typedef struct Class {
  const Item *const *items;
  uint32_t count;
} Class;

static uint64_t run_bytes(const Class *class, uint32_t count) { return count * class->items[0]->bytes; }

/* Gives room up in one class for what another is kept for. */
static bool exchange(Mover *m, const Class *from, const Class *to, uint32_t count) {
  bool improved = false;
  for (int k = 0; k < (m->in->movable ? 4 : 2) && !is_done(m); k++) {
    copy_trial(m->in, &m->trial, &m->in->pool[0]);
    uint64_t freed = run_bytes(from, move_run(&m->trial, from->items, from->count, ways[k & 2 ? 3 : 1], k & 1, count));
    uint32_t taken = from->items[0]->bytes && to->items[0]->bytes ? (uint32_t)((freed + to->items[0]->bytes - 1) / to->items[0]->bytes) : 0;
    if (!taken || !move_run(&m->trial, to->items, to->count, ways[0], !(k & 1), taken)) continue;
    improved |= try_move(m);
  }
  return improved;
}

static bool exchange_classes(Mover *m, const Class *classes, uint32_t count) {
  bool improved = false;
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = 0; j < count; j++)
      for (uint32_t run = classes[i].count; run >= 1 && i != j && !is_done(m); run /= 2) improved |= exchange(m, &classes[i], &classes[j], run);
  return improved;
}

static void exchange_all(Mover *m) {
  uint32_t count = m->in->items.count, total = 0;
  const Item **order = ARENA_ARRAY(m->in->arena, const Item *, count);
  Class *classes = ARENA_ARRAY(m->in->arena, Class, count);
  for (uint32_t i = 0; i < count; i++) order[i] = &m->in->items.data[i];
  qsort(order, count, sizeof *order, compare_class);
  for (uint32_t i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && order[end]->class == order[i]->class; end++) continue;
    classes[total++] = (Class){order + i, end - i};
  }
  while (exchange_classes(m, classes, total)) continue;
}

uint32_t inner_settings(const Inner *in) {
  uint32_t total = 1;
  for (uint32_t i = 0; i < in->items.count; i++) {
    uint32_t states = 0;
    for (int s = 0; s < ITEM_STATES; s++) states += may_be(&in->items.data[i], (ItemState)s);
    total *= states;
    if (total > MOST_SETTINGS) return 0;
  }
  return total;
}

void inner_set(const Inner *in, uint32_t number, Trial *trial) {
  start_trial(in, trial);
  for (uint32_t i = 0; i < in->items.count; i++) {
    ItemState states[ITEM_STATES];
    uint32_t count = 0;
    for (int s = 0; s < ITEM_STATES; s++)
      if (may_be(&in->items.data[i], (ItemState)s)) states[count++] = (ItemState)s;
    set_state(trial, &in->items.data[i], states[number % count]);
    number /= count;
  }
}

/* Few items: all of their states. */
static void enumerate_settings(Mover *m, uint32_t total) {
  for (uint32_t number = 0; number < total; number++) {
    inner_set(m->in, number, &m->trial);
    try_rules(m->in, &m->trial, 0, FIRST_RULES);
  }
}

static ItemState other_state(const Trial *trial, const Item *item, uint32_t step) {
  ItemState state = state_of(trial, item);
  for (uint32_t i = 0; i < step; i++)
    do state = (ItemState)((state + 1) % ITEM_STATES);
    while (!may_be(item, state));
  return state;
}

/* Changes two items at a time (or one, i = j), until no pair improves. */
static bool move_pairs(Mover *m) {
  const Items *items = &m->in->items;
  bool improved = false;
  uint32_t others = m->in->movable ? ITEM_STATES - 1 : 1;
  for (uint32_t i = 0; i < items->count; i++)
    for (uint32_t j = i; j < items->count; j++)
      for (uint32_t k = 0; k < (i == j ? others : others * others); k++) {
        if (is_done(m)) return false;
        copy_trial(m->in, &m->trial, &m->in->pool[0]);
        set_state(&m->trial, &items->data[i], other_state(&m->trial, &items->data[i], k % others + 1));
        if (j != i) set_state(&m->trial, &items->data[j], other_state(&m->trial, &items->data[j], k / others + 1));
        improved |= try_move(m);
      }
  return improved;
}

static void try_all_rules(Mover *m) {
  copy_trial(m->in, &m->trial, &m->in->pool[0]);
  try_rules(m->in, &m->trial, 0, ISSUE_RULES);
}

bool inner_is_small(const Inner *in) { return in->items.count <= PAIR_ITEMS; }
bool inner_is_large(const Inner *in) { return in->items.count > LARGE_ITEMS; }

void inner_improve(Inner *in) {
  uint32_t count = in->items.count;
  Mover m = {in, inner_new_trial(in), bound_reached(&in->bound), 0};
  uint32_t settings = inner_settings(in);
  if (settings) {
    enumerate_settings(&m, settings);
    return;
  }
  if (in->pool[0].ns == UINT64_MAX) return;
  try_all_rules(&m);
  m.left = MOVE_BUDGET / (int64_t)(in->program->ops.count + 1) / 8;
  if (m.left > MOST_MOVES) m.left = MOST_MOVES;
  move_classes(&m);
  m.left = in->program->ops.count > 2000 ? 0 : MOVE_BUDGET / (int64_t)(in->program->ops.count + 1) / 4;
  exchange_all(&m);
  m.left = count <= PAIR_ITEMS ? 3 * (int64_t)count * count : 0;
  while (move_pairs(&m)) continue;
  try_all_rules(&m);
}

/* --- decisions ---------------------------------------------------------------------------------------------------------------- */

Decisions inner_decisions(const Inner *in, const Trial *trial) {
  Arena *arena = in->search->arena;
  Decisions d = in->base;
  d.issue = trial->issue;
  d.slots = trial->slots;
  d.recompute = ARENA_ARRAY(arena, bool, in->program->ops.count);
  d.away = ARENA_ARRAY(arena, bool, in->program->ops.count);
  d.keep = ARENA_ARRAY(arena, bool, in->units->units.count);
  memcpy(d.away, trial->away, in->program->ops.count * sizeof(bool));
  memcpy(d.recompute, trial->recompute, in->program->ops.count * sizeof(bool));
  memcpy(d.keep, trial->keep, in->units->units.count * sizeof(bool));
  return d;
}

Decisions inner_smallest(const Inner *in) {
  Trial trial = inner_new_trial(in);
  if (in->movable) memcpy(trial.away, held_away(in), in->program->ops.count * sizeof(bool));
  Decisions d = inner_decisions(in, &trial);
  d.issue.behind = 0;
  if (in->search->settings->prefetch == SETTING_AUTO) d.prefetch = 0;
  return d;
}

uint64_t inner_smallest_bytes(Inner *in) {
  const int64_t *live = find_live(in, in->movable ? held_away(in) : in->base.away, 0);
  int64_t most = 0;
  for (uint32_t i = 0; i < in->program->ops.count; i++)
    if (live[i] > most) most = live[i];
  if ((int64_t)in->skeleton->update_bytes > most) most = (int64_t)in->skeleton->update_bytes;
  return figures_persistent(in->program, in->units, &in->base) + (uint64_t)most;
}
