/* Owns: moves of the inner search: from the best trial, whole classes of items, exchanges between them, pairs of items. */
#include "planner/search/inner_trials.h"

#include <stdlib.h>

enum { MOVE_BUDGET = 2500000, MOST_MOVES = 400, LONG_PROGRAM = 2000, SWAPPED_PROGRAM = 4000, SWAP_ROUNDS = 2 };

/* Moves that go on finely are so many times as many, in runs of at most this part of the longest. */
enum { FINE_MOVES = 4, FINE_RUNS = 4 };

/* More than exchanges were seen to gain (1.6 % at most). */
static const double EXCHANGES_GAIN = 1.02;
/* Likewise for pairs of items, which take two thirds of the time of small models. */
static const double PAIRS_GAIN = 1.03;

typedef struct Mover {
  Inner *in;
  Trial trial;
  uint64_t target;
  int64_t left; /* schedules that may still be judged */
} Mover;

static bool is_done(const Mover *m) { return m->left <= 0 || m->in->pool[0].ns <= m->target; }

static bool try_move(Mover *m) {
  m->left--;
  return inner_try(m->in, &m->trial);
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
  item_set_again(item, state == ITEM_AGAIN, trial->recompute);
  trial->away[item->op] = state == ITEM_AWAY;
}

typedef struct Way {
  ItemState from, to;
} Way;

/* Between kept and run again first: without a host link there is nothing else. */
static const Way ways[] = {{ITEM_AGAIN, ITEM_KEPT}, {ITEM_KEPT, ITEM_AGAIN}, {ITEM_AGAIN, ITEM_AWAY},
                           {ITEM_KEPT, ITEM_AWAY},  {ITEM_AWAY, ITEM_KEPT},  {ITEM_AWAY, ITEM_AGAIN}};
enum { WAYS = sizeof ways / sizeof *ways, WAYS_ON_DEVICE = 2 };

/* Items that are moved together, by their place. */
typedef struct Class {
  const Item *const *items;
  uint32_t count;
} Class;

typedef struct Classes {
  Class *data;
  uint32_t count;
} Classes;

static void reverse(Classes *classes) {
  for (uint32_t i = 0; i < classes->count / 2; i++) {
    Class class = classes->data[i];
    classes->data[i] = classes->data[classes->count - 1 - i];
    classes->data[classes->count - 1 - i] = class;
  }
}

static Classes list_classes(const Inner *in) {
  uint32_t count = in->items.count;
  const Item **order = ARENA_ARRAY(in->arena, const Item *, count);
  Classes out = {ARENA_ARRAY(in->arena, Class, count), 0};
  for (uint32_t i = 0; i < count; i++) order[i] = item_at(&in->items, i);
  qsort(order, count, sizeof *order, compare_class);
  for (uint32_t i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && order[end]->class == order[i]->class; end++) continue;
    out.data[out.count++] = (Class){order + i, end - i};
  }
  if (in->search->reversed) reverse(&out);
  return out;
}

/* Moves up to `count` items of a class from one state to another, from the front or the back. */
static uint32_t move_run(Trial *trial, const Class *class, Way way, bool back, uint32_t count) {
  uint32_t moved = 0;
  for (uint32_t i = 0; i < class->count && moved < count; i++) {
    const Item *item = class->items[back ? class->count - 1 - i : i];
    if (state_of(trial, item) != way.from || !may_be(item, way.to)) continue;
    set_state(trial, item, way.to);
    moved++;
  }
  return moved;
}

static bool move_class(Mover *m, const Class *class, uint32_t count) {
  bool improved = false;
  for (int k = 0; k < 2 * (m->in->movable ? WAYS : WAYS_ON_DEVICE) && !is_done(m); k++) {
    inner_copy_trial(m->in, &m->trial, &m->in->pool[0]);
    if (!move_run(&m->trial, class, ways[k % 2 + k / 4 * 2], k & 2, count)) continue;
    improved |= try_move(m);
  }
  return improved;
}

/* Moves runs of so many items of a class, then half as many, down to single items. */
static void move_runs(Mover *m, const Classes *classes, uint32_t longest) {
  for (uint32_t run = longest; run >= 1 && !is_done(m); run /= 2)
    for (uint32_t i = 0; i < classes->count; i++)
      while (move_class(m, &classes->data[i], run)) continue;
}

/* From whole classes on. */
static void move_classes(Mover *m, const Classes *classes) { move_runs(m, classes, m->in->units->units.count); }

/* What some items of one class give up, and as many bytes of another take: what is kept may need somewhat more and comes from the other
 * end; what goes to host memory may not, where that is full. */
typedef struct Exchange {
  Way give, take;
} Exchange;

static const Exchange keeps[] = {{{ITEM_KEPT, ITEM_AGAIN}, {ITEM_AGAIN, ITEM_KEPT}}, {{ITEM_KEPT, ITEM_AWAY}, {ITEM_AGAIN, ITEM_KEPT}}};
/* Where host memory or its link are full, neither of these improves by itself. */
static const Exchange swap = {{ITEM_AWAY, ITEM_AGAIN}, {ITEM_AGAIN, ITEM_AWAY}};

/* Of up to `count` items of `from`. */
static bool exchange(Mover *m, const Class *from, const Class *to, const Exchange *of, bool back, uint32_t count) {
  const uint64_t bytes = to->items[0]->bytes;
  const bool more = of->take.to == ITEM_KEPT;
  if (!bytes || is_done(m)) return false;
  inner_copy_trial(m->in, &m->trial, &m->in->pool[0]);
  uint64_t freed = from->items[0]->bytes * move_run(&m->trial, from, of->give, back, count);
  uint64_t taken = (more ? freed + bytes - 1 : freed) / bytes;
  return freed && move_run(&m->trial, to, of->take, back != more, (uint32_t)taken) && try_move(m);
}

static bool keep_others(Mover *m, const Class *from, const Class *to, uint32_t count) {
  bool improved = false;
  for (int k = 0; k < (m->in->movable ? 4 : 2); k++) improved |= exchange(m, from, to, &keeps[k / 2], k & 1, count);
  return improved;
}

static bool exchange_classes(Mover *m, const Classes *classes) {
  bool improved = false;
  for (uint32_t i = 0; i < classes->count; i++)
    for (uint32_t j = 0; j < classes->count; j++)
      for (uint32_t run = classes->data[i].count; run >= 1 && i != j && !is_done(m); run /= 2)
        improved |= keep_others(m, &classes->data[i], &classes->data[j], run);
  return improved;
}

static bool swap_classes(Mover *m, const Classes *classes) {
  bool improved = false;
  for (uint32_t i = 0; i < classes->count; i++)
    for (uint32_t j = 0; j < classes->count && !is_done(m); j++)
      for (int back = 0; back < 2 && i != j; back++)
        improved |= exchange(m, &classes->data[i], &classes->data[j], &swap, back, classes->data[i].count);
  return improved;
}

/* As long as a swap improves: it makes room for moves. */
static void swap_and_move(Mover *m, const Classes *classes) {
  const Inner *in = m->in;
  if (!in->movable || in->program->ops.count > SWAPPED_PROGRAM) return;
  for (int round = 0; round < SWAP_ROUNDS; round++) {
    m->left = MOST_MOVES;
    if (!swap_classes(m, classes)) return;
    move_classes(m, classes);
  }
}

uint32_t inner_settings(const Inner *in) {
  uint32_t total = 1;
  for (uint32_t i = 0; i < in->items.count; i++) {
    uint32_t states = 0;
    for (int s = 0; s < ITEM_STATES; s++) states += may_be(item_at(&in->items, i), (ItemState)s);
    total *= states;
    if (total > MOST_SETTINGS) return 0;
  }
  return total;
}

void inner_set(const Inner *in, uint32_t number, Trial *trial) {
  inner_start_trial(in, trial);
  for (uint32_t i = 0; i < in->items.count; i++) {
    ItemState states[ITEM_STATES];
    uint32_t count = 0;
    for (int s = 0; s < ITEM_STATES; s++)
      if (may_be(item_at(&in->items, i), (ItemState)s)) states[count++] = (ItemState)s;
    set_state(trial, item_at(&in->items, i), states[number % count]);
    number /= count;
  }
}

/* Few items: all of their states. */
static void enumerate_settings(Mover *m, uint32_t total) {
  for (uint32_t number = 0; number < total; number++) {
    inner_set(m->in, number, &m->trial);
    inner_try_rules(m->in, &m->trial, 0, FIRST_RULES);
  }
}

static ItemState other_state(const Trial *trial, const Item *item, uint32_t step) {
  ItemState state = state_of(trial, item);
  for (uint32_t i = 0; i < step; i++)
    do state = (ItemState)((state + 1) % ITEM_STATES);
    while (!may_be(item, state));
  return state;
}

/* Changes two items at a time (or one, i = j); whether that improved anything. */
static bool try_pairs(Mover *m) {
  const AllItems *items = &m->in->items;
  bool improved = false;
  uint32_t others = m->in->movable ? ITEM_STATES - 1 : 1;
  for (uint32_t i = 0; i < items->count; i++)
    for (uint32_t j = i; j < items->count; j++)
      for (uint32_t k = 0; k < (i == j ? others : others * others); k++) {
        if (is_done(m)) return false;
        inner_copy_trial(m->in, &m->trial, &m->in->pool[0]);
        set_state(&m->trial, item_at(items, i), other_state(&m->trial, item_at(items, i), k % others + 1));
        if (j != i) set_state(&m->trial, item_at(items, j), other_state(&m->trial, item_at(items, j), k / others + 1));
        improved |= try_move(m);
      }
  return improved;
}

/* Until no pair improves. Where addresses are hard to find an outer choice is improved many times over, so that a search has an effort for that. */
static void move_pairs(Mover *m) {
  const int64_t items = m->in->items.count, operators = (int64_t)m->in->program->ops.count + 1;
  const int64_t most = 3 * items * items, left = m->in->search->pairing / operators, afford = most < left ? most : left;
  m->left = afford;
  while (try_pairs(m)) continue;
  m->in->search->pairing -= operators * (afford - m->left);
}

static void try_all_rules(Mover *m) {
  inner_copy_trial(m->in, &m->trial, &m->in->pool[0]);
  inner_try_rules(m->in, &m->trial, 0, ISSUE_RULES);
}

/* The trial that runs nothing again, moves nothing and releases no unit, but what is pinned to. */
static void keep_all(const Inner *in, Trial *trial) {
  inner_start_trial(in, trial);
  for (uint32_t i = 0; i < in->items.count; i++) set_state(trial, item_at(&in->items, i), ITEM_KEPT);
}

/* Whether the trial, with no limit to what is held or gathered early, fits the room under every issue rule. */
static bool fits_freely(const Inner *in, Trial *trial) {
  Inner unlimited = *in;
  Judge judge;
  uint32_t count;
  const IssueRule *rules = inner_rules(&count);
  unlimited.room = unlimited.base.room = INT64_MAX;
  judge_open(&judge, &unlimited, trial);
  bool fits = judge.least_live <= (int64_t)in->room;
  for (uint32_t r = 0; r < count && fits; r++) {
    if (!inner_new_rule(in, 0, r)) continue;
    trial->issue = rules[r];
    fits = judge_rule(&judge, trial) && trial->live <= (int64_t)in->room;
  }
  judge_close(&judge);
  return fits;
}

/* Exchanges take most of the time, and gain little. */
static bool is_worth_exchanging(const Inner *in) {
  if (in->program->ops.count > LONG_PROGRAM) return false;
  return !in->rival_ns || in->search->apart || inner_is_small(in) || (double)in->pool[0].ns < EXCHANGES_GAIN * (double)in->rival_ns;
}

/* With less memory or in another order pairs gain nothing, but in one of sixty. */
static bool is_worth_pairs(const Inner *in) {
  if (!inner_is_small(in) || in->search->brief) return false;
  return !in->rival_ns || (double)in->pool[0].ns < PAIRS_GAIN * (double)in->rival_ns;
}

/* Moves that a program of this length can afford, all kinds together. */
static int64_t affordable(const Inner *in) { return MOVE_BUDGET / (int64_t)(in->program->ops.count + 1); }

static int64_t affordable_runs(const Inner *in) {
  const int64_t afford = affordable(in) / 8;
  return afford < MOST_MOVES ? afford : MOST_MOVES;
}

static void try_moves(Mover *m) {
  const Inner *in = m->in;
  try_all_rules(m);
  m->left = affordable_runs(in);
  const Classes classes = list_classes(in);
  move_classes(m, &classes);
  swap_and_move(m, &classes);
  m->left = is_worth_exchanging(in) ? affordable(in) / 4 : 0;
  while (exchange_classes(m, &classes)) continue;
  if (is_worth_pairs(in)) move_pairs(m);
  try_all_rules(m);
}

/* Whole classes have been moved, and have left no moves for short runs. */
static void try_fine_moves(Mover *m) {
  const Inner *in = m->in;
  const Classes classes = list_classes(in);
  m->left = FINE_MOVES * affordable_runs(in);
  move_runs(m, &classes, in->units->units.count / FINE_RUNS + 1);
  swap_and_move(m, &classes);
  try_all_rules(m);
}

/* What was found in more room may not fit. */
static void improve_from(Mover *m, const Decisions *from) {
  Inner *in = m->in;
  m->trial = inner_trial_of(in, from);
  inner_try_rules(in, &m->trial, 0, ISSUE_RULES);
  if (in->pool[0].ns == UINT64_MAX) inner_seed(in, true);
  if (in->pool[0].ns == UINT64_MAX) return;
  (in->finely ? try_fine_moves : try_moves)(m);
}

static void improve_seeds(Mover *m) {
  Inner *in = m->in;
  keep_all(in, &m->trial);
  in->ample = fits_freely(in, &m->trial);
  if (in->ample) {
    inner_try_rules(in, &m->trial, 0, ISSUE_RULES);
    return;
  }
  inner_seed(in, true);
  uint32_t settings = inner_settings(in);
  if (settings)
    enumerate_settings(m, settings);
  else if (in->pool[0].ns != UINT64_MAX)
    try_moves(m);
}

void inner_improve(Inner *in) {
  Mover m = {in, inner_new_trial(in), bound_reached(&in->bound), 0};
  if (in->from)
    improve_from(&m, in->from);
  else
    improve_seeds(&m);
}
