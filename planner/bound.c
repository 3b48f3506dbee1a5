/* Owns: bound.h. */
#include "planner/bound.h"

#include <math.h>
#include <stdlib.h>

typedef struct Slice {
  double bytes, ns; /* what keeping takes and saves */
  double away;      /* or the time that a copy to the host, or from it, needs; 0: it cannot go there */
  bool link;        /* copies take the host link's time, else that of compute */
  int32_t until;    /* the first backward op that has it live anyway */
} Slice;

typedef struct Slices {
  Slice *data; /* by ns per byte, best first */
  uint32_t count;
} Slices;

/* One pair of A and B. */
typedef struct Terms {
  double a, b;                   /* with nothing run or gathered again */
  double before;                 /* of a, what precedes the loss */
  double again_b;                /* what B gains for a second of running again; A gains all of it */
  double regather_a, regather_b; /* what they gain for a second of gathering again */
  const char *by;                /* what binds where B does */
} Terms;

/* An item and what not keeping it costs. */
typedef struct Offer {
  const Slice *slice;
  double cost;
  bool again; /* it would be run again */
} Offer;

/* One memory row: the slices that take room at it. */
typedef struct Row {
  Slices items, units;
  double room;
  bool turn;      /* it is the loss's: recomputations follow it */
  double host_ns; /* what the link needs, one way, for all that host memory holds; NEVER: no limit */
  bool moves;     /* some item may be away */
  Offer *offers;  /* one an item, in the order of the weights tried last */
} Row;

enum { ROWS = 3, HALVINGS = 30, LINK_HALVINGS = 7, ROUGH_HALVINGS = 6 };

#define NEVER 1e30 /* bytes of what may not stay */

/* --- what is live at each operator whatever is decided ------------------------------------------------------------------------- */

static void add_range(double *delta, int32_t first, int32_t last, double bytes) {
  if (first < 0 || last < first) return;
  delta[first] += bytes;
  delta[last + 1] -= bytes;
}

/* Results that are kept but may be away are not there in every plan. */
static const bool *find_held(Arena *scratch, const BoundInput *in) {
  bool *held = ARENA_ARRAY(scratch, bool, in->skeleton->program->values.count);
  for (uint32_t i = 0; i < in->items->count; i++)
    if (in->items->data[i].held) held[in->skeleton->program->flow.moved[in->items->data[i].op]] = true;
  return held;
}

static void add_values(Arena *scratch, const BoundInput *in, double *delta) {
  const Program *program = in->skeleton->program;
  const Flow *flow = &program->flow;
  const bool *held = find_held(scratch, in);
  for (uint32_t v = 0; v < program->values.count; v++) {
    if (!flow->transient[v] || flow->first_op[v] < 0) continue;
    int32_t op = flow->producer[v];
    bool again = held[v] || (op >= 0 && (in->start->recompute[op] || (in->start->away[op] && flow->moved[op] == (int32_t)v)));
    add_range(delta, again ? flow->first_backward[v] : flow->first_op[v], flow->last_op[v], (double)flow->value_bytes[v]);
  }
}

static bool used_twice(const UnitOps *ops) { return ops->first_forward >= 0 && ops->first_backward >= 0; }

static void add_units(const BoundInput *in, double *delta) {
  const Skeleton *skeleton = in->skeleton;
  for (uint32_t u = 0; u < skeleton->units->units.count; u++) {
    const UnitOps *ops = &skeleton->ops[u];
    bool kept = in->start->keep[u] && used_twice(ops);
    if (decisions_gather(in->start) && !in->start->gather_once)
      add_range(delta, kept ? ops->first_forward : ops->first_backward, ops->last_backward, (double)skeleton->figures[u].full_bytes);
    if (!decisions_reduce(in->start)) continue;
    if (!in->start->reduce_once) add_range(delta, ops->first_gradient, ops->last_gradient, (double)skeleton->figures[u].gradient_bytes);
    add_range(delta, ops->last_gradient, ops->last_gradient, (double)schedule_reduced_bytes(in->start, &skeleton->figures[u]));
  }
}

/* By op; meaningful from the turn on. */
static double *live_anyway(Arena *scratch, const BoundInput *in) {
  uint32_t ops = in->skeleton->program->ops.count;
  double *live = ARENA_ARRAY(scratch, double, ops + 1), sum = 0;
  add_values(scratch, in, live);
  add_units(in, live);
  for (uint32_t i = 0; i < ops; i++) live[i] = sum += live[i];
  return live;
}

/* --- slices ---------------------------------------------------------------------------------------------------------------------- */

static int compare_slices(const void *a, const void *b) {
  const Slice *x = a, *y = b;
  double p = x->ns * y->bytes, q = y->ns * x->bytes;
  if (p != q) return (p < q) - (p > q);
  return (x->until > y->until) - (x->until < y->until);
}

/* The first backward use of any value that keeping the op's results keeps. */
static int32_t needed_until(const BoundInput *in, const Item *item) {
  const Flow *flow = &in->skeleton->program->flow;
  int32_t until = item->last;
  for (uint32_t k = flow->first[item->op]; k < flow->first[item->op + 1]; k++) {
    int32_t use = flow->first_backward[flow->refs[k].value];
    if (flow->refs[k].writes && use >= 0 && use < until) until = use;
  }
  return until;
}

static void slice_items(Arena *scratch, const BoundInput *in, Slices *out) {
  *out = (Slices){ARENA_ARRAY(scratch, Slice, in->items->count), 0};
  for (uint32_t i = 0; i < in->items->count; i++) {
    const Item *item = &in->items->data[i];
    if (item->op < 0) continue;
    double again = item->held ? NEVER : (double)item->least_ns;
    out->data[out->count++] = (Slice){(double)item->bytes, again, (double)item->away_ns, in->skeleton->copies_beside, needed_until(in, item)};
  }
  qsort(out->data, out->count, sizeof(Slice), compare_slices);
}

/* Reductions wait for gathers and gathers for reductions; not where fetching the shards takes longer than gathering them. */
static bool shares_queue(const BoundInput *in) { return in->skeleton->shared_queue && !in->fetch_bound; }
static double gather_ns(const BoundInput *in, uint32_t u) {
  return in->fetch_bound ? (double)in->skeleton->figures[u].fetch_ns : (double)in->skeleton->figures[u].gather_ns / in->comm_slower;
}
static double reduce_ns(const BoundInput *in, uint32_t u) { return (double)in->skeleton->figures[u].reduce_ns / in->comm_slower; }

static void slice_units(Arena *scratch, const BoundInput *in, Slices *out) {
  const Skeleton *skeleton = in->skeleton;
  *out = (Slices){ARENA_ARRAY(scratch, Slice, skeleton->units->units.count), 0};
  for (uint32_t u = 0; u < skeleton->units->units.count && decisions_gather(in->start); u++) {
    if (!used_twice(&skeleton->ops[u]) || in->start->keep[u] || in->start->gather_once) continue;
    double bytes = in->may_keep ? (double)skeleton->figures[u].full_bytes : NEVER;
    out->data[out->count++] = (Slice){bytes, gather_ns(in, u), 0, true, skeleton->ops[u].first_backward};
  }
  qsort(out->data, out->count, sizeof(Slice), compare_slices);
}

/* --- rows ------------------------------------------------------------------------------------------------------------------------ */

/* They are worth as much a byte, whatever the weights. */
static bool alike(const Slice *x, const Slice *y) {
  return (x->bytes > 0) == (y->bytes > 0) && x->ns * y->bytes == y->ns * x->bytes && x->away * y->bytes == y->away * x->bytes;
}

/* Slices that take room at op `at`; equal ones as one. The others are free there. */
static Slices at_row(Arena *scratch, const Slices *all, int32_t at) {
  Slices out = {ARENA_ARRAY(scratch, Slice, all->count), 0};
  for (uint32_t i = 0; i < all->count; i++) {
    Slice slice = all->data[i];
    if (slice.until <= at && slice.bytes < NEVER) slice.bytes = 0;
    Slice *last = out.count ? &out.data[out.count - 1] : NULL;
    if (last && alike(last, &slice)) {
      last->bytes += slice.bytes;
      last->ns += slice.ns;
      last->away += slice.away;
    } else {
      out.data[out.count++] = slice;
    }
  }
  return out;
}

static void add_demand(const Slices *slices, int32_t turn, double *delta) {
  for (uint32_t i = 0; i < slices->count; i++)
    if (slices->data[i].bytes < NEVER) add_range(delta, turn, slices->data[i].until - 1, slices->data[i].bytes);
}

/* The ops of the rows: the loss, where most is wanted, where least is left. */
static uint32_t choose_rows(Arena *scratch, const BoundInput *in, const Slices *items, const Slices *units, const double *live, int32_t at[ROWS]) {
  const Program *program = in->skeleton->program;
  int32_t turn = program->turn, ops = (int32_t)program->ops.count, most = turn, least = turn;
  if (turn >= ops) return 0;
  double *wanted = ARENA_ARRAY(scratch, double, (size_t)ops + 1), sum = 0;
  add_demand(items, turn, wanted);
  add_demand(units, turn, wanted);
  for (int32_t j = turn; j < ops; j++) wanted[j] = sum += wanted[j];
  for (int32_t j = turn; j < ops; j++) {
    if (live[j] + wanted[j] > live[most] + wanted[most]) most = j;
    if (live[j] > live[least]) least = j;
  }
  at[0] = turn;
  at[1] = most;
  at[2] = least;
  return ROWS;
}

/* --- the bound of one row ---------------------------------------------------------------------------------------------------------- */

/* Takes as much as the room holds; the share of it. */
static double take(double bytes, double *room) {
  double share = bytes <= *room || bytes <= 0 ? 1 : *room / bytes;
  *room = share < 1 ? 0 : *room - bytes; /* never below zero by rounding */
  return share;
}

/* How the terms are weighed: `share` of A against B, `link` of C against what it stands for in A, `price` of the time that C
 * takes, of which what host memory holds is free. */
typedef struct Weighting {
  double share, link, price;
} Weighting;

/* Of running again, of gathering again, of the time of what is away; of A's constant. */
typedef struct Weights {
  double again, regather, away, a;
} Weights;

static Weights weights_at(const Terms *t, const Row *row, Weighting at) {
  double a = at.share * (row->turn ? 1 : 1 - at.link), b = 1 - at.share;
  return (Weights){.again = a + b * t->again_b,
                   .regather = at.share * (1 - at.link) * t->regather_a + b * t->regather_b,
                   .away = at.share * at.link * (row->turn ? 1 : 2) + at.price,
                   .a = a};
}

/* What an item costs that is not kept: the cheaper of running it again and of being away. */
static double item_cost(const Slice *slice, Weights w) {
  double again = w.again * slice->ns, away = (slice->link ? w.away : 2 * w.again) * slice->away;
  return slice->away > 0 && away < again ? away : again;
}

static bool is_better(const Offer *x, const Offer *y) {
  double p = x->cost * y->slice->bytes, q = y->cost * x->slice->bytes;
  return p != q ? p > q : x->slice < y->slice;
}

typedef struct Weighed {
  double ns;
  bool again; /* something is run again */
} Weighed;

/* Where results may be away, the order in which they are worth keeping depends on the weights. It is near that of the weights
 * before, so that insertion sorts it in little more than one pass. */
static void offer_items(const Row *row, Weights w) {
  Offer *offers = row->offers;
  for (uint32_t i = 0; i < row->items.count; i++) {
    offers[i].cost = item_cost(offers[i].slice, w);
    offers[i].again = offers[i].cost > 0 && offers[i].cost == w.again * offers[i].slice->ns;
  }
  for (uint32_t i = 1; row->moves && i < row->items.count; i++) {
    Offer offer = offers[i];
    uint32_t at = i;
    for (; at > 0 && is_better(&offer, &offers[at - 1]); at--) offers[at] = offers[at - 1];
    offers[at] = offer;
  }
}

/* Least of the weighed terms under the row: everything's cost, less that of what room is given to, best first. */
static Weighed weigh(const Terms *t, const Row *row, Weighting at) {
  Weights w = weights_at(t, row, at);
  Weighed out = {.ns = w.a * t->a + (1 - at.share) * t->b - (at.price > 0 ? at.price * row->host_ns : 0)};
  if (row->turn) out.ns -= at.share * at.link * t->before; /* the link stands for it */
  double room = row->room;
  uint32_t i = 0, u = 0;
  offer_items(row, w);
  while (i < row->items.count || u < row->units.count) {
    const Offer *item = i < row->items.count ? &row->offers[i] : NULL;
    const Slice *unit = u < row->units.count ? &row->units.data[u] : NULL;
    bool take_item = item && (!unit || item->slice->bytes <= 0 ||
                              (unit->bytes > 0 && item->cost * unit->bytes >= w.regather * unit->ns * item->slice->bytes));
    double kept = take(take_item ? item->slice->bytes : unit->bytes, &room);
    out.ns += (1 - kept) * (take_item ? item->cost : w.regather * unit->ns);
    out.again |= take_item && kept < 1 && item->again;
    if (take_item) i++;
    else u++;
  }
  return out;
}

typedef struct Most {
  double ns;
  Weighting at;
  const char *by; /* what B is of */
  bool again;
} Most;

static double consider(const Terms *t, const Row *row, Weighting at, Most *most) {
  Weighed weighed = weigh(t, row, at);
  if (weighed.ns > most->ns) *most = (Most){weighed.ns, at, t->by, weighed.again};
  return weighed.ns;
}

/* The best share: weigh is concave in it. Returns what it reaches. */
static double maximise_share(const Terms *t, const Row *row, Weighting at, int halvings, Most *most) {
  double low = 0, high = 1, best;
  for (int i = 0; i < halvings; i++) {
    double a = low + (high - low) / 3, b = high - (high - low) / 3;
    double at_a = weigh(t, row, (Weighting){a, at.link, at.price}).ns, at_b = weigh(t, row, (Weighting){b, at.link, at.price}).ns;
    if (at_a < at_b)
      low = a;
    else
      high = b;
  }
  best = consider(t, row, (Weighting){(low + high) / 2, at.link, at.price}, most);
  best = fmax(best, consider(t, row, (Weighting){0, at.link, at.price}, most));
  return fmax(best, consider(t, row, (Weighting){1, at.link, at.price}, most));
}

/* Concave in the link's weight and in the price too: one of them is raised up to `high`. */
static void maximise_away(const Terms *t, const Row *row, bool price, double high, Most *most) {
  double low = 0;
  for (int i = 0; i < LINK_HALVINGS; i++) {
    double a = low + (high - low) / 3, b = high - (high - low) / 3;
    double at_a = maximise_share(t, row, (Weighting){0, price ? 0 : a, price ? a : 0}, ROUGH_HALVINGS, most);
    double at_b = maximise_share(t, row, (Weighting){0, price ? 0 : b, price ? b : 0}, ROUGH_HALVINGS, most);
    if (at_a < at_b)
      low = a;
    else
      high = b;
  }
}

/* No price is worth more than running everything again. */
static double highest_price(const Row *row) {
  double most = 0;
  for (uint32_t i = 0; i < row->items.count; i++) {
    const Slice *slice = &row->items.data[i];
    if (slice->away > 0 && slice->ns < NEVER) most = fmax(most, slice->ns / slice->away);
  }
  return most;
}

static void maximise(const Terms *t, const Row *row, Most *most) {
  (void)maximise_share(t, row, (Weighting){0}, HALVINGS, most);
  if (!row->moves) return;
  maximise_away(t, row, false, 1, most);
  if (row->host_ns < NEVER) maximise_away(t, row, true, highest_price(row), most);
  (void)maximise_share(t, row, most->at, HALVINGS, most);
}

/* --- the whole ---------------------------------------------------------------------------------------------------------------------- */

static double ops_ns(const Flow *flow, int32_t first, int32_t end) {
  double ns = 0;
  for (int32_t i = first; i < end; i++) ns += (double)flow->op_ns[i];
  return ns;
}

/* How long compute waits for the unit that is used first. What runs meanwhile is slowed. */
static double head_ns(const BoundInput *in, const MicroPass *pass) {
  const Skeleton *skeleton = in->skeleton;
  int32_t head = PLAN_NONE;
  for (int32_t u = 0; u < (int32_t)skeleton->units->units.count; u++) {
    int32_t first = skeleton->ops[u].first_forward;
    if (first >= 0 && (head < 0 || first < skeleton->ops[head].first_forward)) head = u;
  }
  if (head < 0 || !decisions_gather(in->start) || !pass->gathers) return 0;
  double meanwhile = ops_ns(&skeleton->program->flow, 0, skeleton->ops[head].first_forward) / (1 - in->start->contention);
  return fmax(0, gather_ns(in, (uint32_t)head) - meanwhile);
}

/* How long the last gradient's reduction takes after everything else, with the way of its image from the host and back. */
static double tail_ns(const BoundInput *in, const MicroPass *pass) {
  const Skeleton *skeleton = in->skeleton;
  int32_t tail = PLAN_NONE, ops = (int32_t)skeleton->program->ops.count;
  for (int32_t u = 0; u < (int32_t)skeleton->units->units.count; u++) {
    int32_t last = skeleton->ops[u].last_gradient;
    if (last >= 0 && (tail < 0 || last > skeleton->ops[tail].last_gradient)) tail = u;
  }
  if (tail < 0 || !pass->reduces) return 0;
  double meanwhile = ops_ns(&skeleton->program->flow, skeleton->ops[tail].last_gradient + 1, ops) / (1 - in->start->contention);
  double reduce = in->start->ranks > 1 ? reduce_ns(in, (uint32_t)tail) : 0, image = (double)skeleton->figures[tail].image_ns;
  if (skeleton->copies_beside) reduce += (in->start->accumulation > 1 && !in->start->reduce_once ? 2 : 1) * image;
  return fmax(0, reduce - meanwhile);
}

static double all_reductions(const BoundInput *in, const MicroPass *pass) {
  double ns = 0;
  for (uint32_t u = 0; u < in->skeleton->units->units.count && in->start->ranks > 1 && pass->reduces; u++)
    if (in->skeleton->ops[u].last_gradient >= 0) ns += reduce_ns(in, u);
  return ns;
}

/* They leave for the host after the loss. */
static double stored_gradients(const BoundInput *in, const MicroPass *pass) {
  double ns = 0;
  for (uint32_t u = 0; u < in->skeleton->units->units.count && pass->reduces; u++) ns += (double)in->skeleton->figures[u].image_ns;
  return ns;
}

static double first_gathers(const BoundInput *in, const MicroPass *pass, bool forward_only) {
  double ns = 0;
  for (uint32_t u = 0; u < in->skeleton->units->units.count && decisions_gather(in->start) && pass->gathers; u++) {
    const UnitOps *ops = &in->skeleton->ops[u];
    if (ops->first_forward >= 0 || (!forward_only && ops->first_backward >= 0)) ns += gather_ns(in, u);
  }
  return ns;
}

/* The header's k. */
static double slowing(const BoundInput *in) {
  double lost = 1 - 1 / in->comm_slower, kept = 1 - in->start->contention;
  return lost < kept ? lost / kept : lost > 0;
}

/* The least time from the loss to where the first gradient is whole. */
static double first_gradient(const BoundInput *in) {
  const Skeleton *skeleton = in->skeleton;
  int32_t op = (int32_t)skeleton->program->ops.count - 1;
  for (uint32_t u = 0; u < skeleton->units->units.count; u++)
    if (skeleton->ops[u].last_gradient >= 0 && skeleton->ops[u].last_gradient < op) op = skeleton->ops[u].last_gradient;
  return ops_ns(&skeleton->program->flow, skeleton->program->turn, op + 1);
}

/* Of a unit's gradient, from when it is whole until it has been reduced. */
static double unreduced_bytes(const BoundInput *in, uint32_t u) {
  const UnitFigures *of = &in->skeleton->figures[u];
  return (double)schedule_reduced_bytes(in->start, of) + (in->start->reduce_once ? 0 : (double)of->gradient_bytes);
}

static int compare_gradients(const void *a, const void *b, void *ops) {
  const UnitOps *of = ops, *x = &of[*(const uint32_t *)a], *y = &of[*(const uint32_t *)b];
  return x->last_gradient != y->last_gradient ? (x->last_gradient < y->last_gradient ? -1 : 1) : (x > y) - (x < y);
}

/* The header's backward pass with nothing but reductions: what the next gradients need must fit beside those that have not been
 * reduced. */
static double reducing_ns(Arena *scratch, const BoundInput *in, const double *live) {
  const Skeleton *skeleton = in->skeleton;
  uint32_t count = 0, next = 0, first = 0, *order = ARENA_ARRAY(scratch, uint32_t, skeleton->units->units.count);
  double *end = ARENA_ARRAY(scratch, double, skeleton->units->units.count), now = 0, held = 0, kept = 1 - fmin(1, in->start->contention);
  for (uint32_t u = 0; u < skeleton->units->units.count; u++)
    if (skeleton->ops[u].last_gradient >= 0) order[count++] = u;
  qsort_r(order, count, sizeof *order, compare_gradients, skeleton->ops);
  for (int32_t j = skeleton->program->turn; j < (int32_t)skeleton->program->ops.count; j++) {
    for (; first < next && (end[first] <= now || live[j] + held > (double)in->room); first++) {
      now = fmax(now, end[first]);
      held -= unreduced_bytes(in, order[first]);
    }
    double work = (double)skeleton->program->flow.op_ns[j], busy = next ? fmax(0, end[next - 1] - now) : 0;
    now += work <= busy * kept ? work / kept : busy + (work - busy * kept);
    for (; next < count && skeleton->ops[order[next]].last_gradient == j; next++) {
      end[next] = fmax(now, next ? end[next - 1] : 0) + reduce_ns(in, order[next]);
      held += unreduced_bytes(in, order[next]);
    }
  }
  return next ? fmax(now, end[next - 1]) : now;
}

enum { MOST_PAIRS = 3 };

/* The header's pairs of A and B, and the least time until the loss. */
typedef struct Pairs {
  Terms data[MOST_PAIRS];
  uint32_t count;
  double forward;
} Pairs;

static Pairs list_pairs(const BoundInput *in, const MicroPass *pass) {
  const Flow *flow = &in->skeleton->program->flow;
  int32_t turn = in->skeleton->program->turn, ops = (int32_t)in->skeleton->program->ops.count;
  bool slows = !in->fetch_bound, shared = shares_queue(in);
  double c = slows ? fmin(1, in->start->contention * in->comm_slower) : 0, k = slows ? slowing(in) : 0;
  double before = ops_ns(flow, 0, turn), after = ops_ns(flow, turn, ops), reduced = all_reductions(in, pass);
  double gathered = first_gathers(in, pass, true), comm = first_gathers(in, pass, false) + (shared ? reduced : 0);
  double idle_before = c < 1 ? (1 - c) * head_ns(in, pass) : 0, idle_after = c < 1 ? (1 - c) * tail_ns(in, pass) : 0;
  double forward = fmax(before + c * gathered + idle_before, gathered + k * before), whole = fmin(after, first_gradient(in));
  Terms gather = {.a = before + after + idle_before + idle_after + c * comm,
                  .b = comm + k * (before + after),
                  .before = before + c * comm,
                  .again_b = k,
                  .regather_a = c,
                  .regather_b = 1,
                  .by = shared ? "communication" : "gather"};
  Terms reduce = {.a = forward + after + c * reduced + idle_after,
                  .b = forward + whole + reduced + k * (after - whole),
                  .before = forward,
                  .again_b = k,
                  .by = "reduce"};
  Terms both = reduce; /* compute is slowed by both, whatever is gathered again beside the reductions */
  both.b = gather.b, both.regather_b = 1, both.by = gather.by;
  return (Pairs){{gather, reduce, both}, shared ? 1 : MOST_PAIRS, forward};
}

static double most_ns_a_byte(const Row *row) {
  double most = 0;
  for (uint32_t i = 0; i < row->items.count; i++)
    if (row->items.data[i].bytes > 0) most = fmax(most, row->items.data[i].away / row->items.data[i].bytes);
  return most;
}

static Row row_at(Arena *scratch, const BoundInput *in, const Slices *items, const Slices *units, int32_t at, double room) {
  Row row = {.items = at_row(scratch, items, at), .units = at_row(scratch, units, at), .room = room};
  double slowest = most_ns_a_byte(&row); /* starting a copy takes time too: what memory holds takes at most this */
  row.moves = slowest > 0;
  row.turn = at == in->skeleton->program->turn;
  row.host_ns = in->host_room == UINT64_MAX ? NEVER : (double)in->host_room * slowest;
  row.offers = ARENA_ARRAY(scratch, Offer, row.items.count);
  for (uint32_t i = 0; i < row.items.count; i++) row.offers[i].slice = &row.items.data[i];
  return row;
}

static const char *binding(const Most *most) {
  if (most->at.link > 0.3) return "host link";
  if (most->at.price > 0 && most->again) return "host memory through recompute";
  if (most->at.share > 0.5) return most->again ? "memory through recompute" : "compute";
  return most->by;
}

/* Of one micro-batch; ns below 0: nothing fits. */
typedef struct MicroBound {
  double ns;
  const char *by;
} MicroBound;

static MicroBound bound_pass(Arena *scratch, const BoundInput *in, const MicroPass *pass, const double *live) {
  const Pairs pairs = list_pairs(in, pass);
  Slices items, units;
  int32_t at[ROWS];
  slice_items(scratch, in, &items);
  slice_units(scratch, in, &units);
  uint32_t rows = choose_rows(scratch, in, &items, &units, live, at);
  Most most = {.ns = -1};
  for (uint32_t i = 0; i < rows; i++) {
    Row row = row_at(scratch, in, &items, &units, at[i], (double)in->room - live[at[i]]);
    if (row.room < 0) return (MicroBound){-1, "memory"};
    for (uint32_t p = 0; p < pairs.count; p++) maximise(&pairs.data[p], &row, &most);
  }
  for (uint32_t p = 0; p < pairs.count && !rows; p++) maximise(&pairs.data[p], &(Row){.room = 0}, &most);
  const char *by = binding(&most);
  double reducing = pass->reduces && in->start->ranks > 1 ? pairs.forward + reducing_ns(scratch, in, live) : 0;
  if (reducing > most.ns) {
    most.ns = reducing;
    by = "memory through reduce";
  }
  double stored = pairs.forward + stored_gradients(in, pass); /* they leave after the loss */
  if (stored > most.ns) {
    most.ns = stored;
    by = "host link";
  }
  /* Schedules count whole nanoseconds, rounded down at each operator and collective. */
  most.ns -= in->skeleton->program->ops.count + 4.0 * in->skeleton->units->units.count;
  return (MicroBound){most.ns > 0 ? most.ns : 0, by};
}

/* Parameters that the host holds are fetched before they are gathered: either queue bounds. */
static MicroBound bound_queues(Arena *scratch, const BoundInput *in, const MicroPass *pass, const double *live) {
  BoundInput fetch = *in;
  MicroBound gathered = bound_pass(scratch, in, pass, live);
  fetch.fetch_bound = true;
  if (gathered.ns < 0 || !(in->start->offload & OFFLOAD_PARAMETERS)) return gathered;
  MicroBound fetched = bound_pass(scratch, &fetch, pass, live);
  return fetched.ns > gathered.ns ? fetched : gathered;
}

Bound bound_of(const BoundInput *in) {
  if (in->skeleton->update_bytes > in->room) return (Bound){UINT64_MAX, "memory"};
  Arena *scratch = arena_new();
  const double *live = live_anyway(scratch, in);
  MicroPass passes[MICRO_PASSES];
  uint32_t count = schedule_passes(in->start, passes), most = 0;
  Bound bound = {in->update_ns, ""};
  for (uint32_t p = 0; p < count && bound.ns != UINT64_MAX; p++) {
    MicroBound micro = bound_queues(scratch, in, &passes[p], live);
    if (passes[p].count >= passes[most].count) most = p, bound.by = micro.by;
    bound.ns = micro.ns < 0 ? UINT64_MAX : bound.ns + (uint64_t)(micro.ns * (double)passes[p].count);
  }
  if (bound.ns != UINT64_MAX) bound.ns += schedule_update_ns(in->skeleton);
  arena_free(scratch);
  return bound;
}
