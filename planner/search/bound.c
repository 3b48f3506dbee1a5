/* Owns: bound.h. */
#include "planner/search/bound_waits.h"

#include <math.h>
#include <stdlib.h>

/* An item and what not keeping it costs. */
typedef struct Offer {
  const Slice *slice;
  double cost, slope; /* slope: what the cost gains with the share */
  bool again; /* it would be run again for want of memory */
} Offer;

/* One memory row: the slices that take room at it. */
typedef struct Row {
  Slices items, units;
  double room;
  double ran_ns, reduced_ns; /* of operators from the loss on, and of reductions, that may come before it */
  bool fits;      /* all of them: nothing is given up, whatever the weights */
  double host_ns; /* what the link needs, one way, for all that host memory holds; NEVER: no limit */
  int32_t at;     /* its op */
  bool moves;     /* some item may be away */
  bool reorders;  /* what items are worth depends on the weights */
  const Waits *waits;
  Offer *offers;  /* one an item, in the order of the weights tried last */
} Row;

enum { RECORDS = 8, MOST_ROWS = 2 * (RECORDS + 3), TANGENTS = 30, LINK_SECTIONS = 8 };
static const double GOLDEN = 0.6180339887498949, LEAST_LOOK = 0.0081; /* GOLDEN to the power of LINK_SECTIONS + 2 */
static const double BEHIND = 0.97;    /* of the best row so far: not worth other weights */
static const double TOUCHING = 1e-10; /* where tangents meet, relative: no room left between them */

/* --- rows ------------------------------------------------------------------------------------------------------------------------ */

/* What can be given up of units. */
static Runs slice_units(Arena *scratch, const BoundInput *in) {
  const Skeleton *skeleton = in->skeleton;
  Slices out = {ARENA_ARRAY(scratch, Slice, skeleton->units->units.count), 0};
  for (uint32_t u = 0; u < skeleton->units->units.count; u++)
    if (terms_gathers_again(in, u) && terms_may_keep(in, u))
      out.data[out.count++] = (Slice){.bytes = (double)skeleton->figures[u].full_bytes,
                                      .ns = terms_gather_ns(in, u),
                                      .link = true,
                                      .until = skeleton->ops[u].first_backward};
  return slices_group(scratch, out);
}

static void add_demand(const Slices *slices, int32_t turn, double *delta) {
  for (uint32_t i = 0; i < slices->count; i++)
    if (slices->data[i].bytes < NEVER) terms_add_range(delta, turn, slices->data[i].until - 1, slices->data[i].bytes);
}

/* The ops of the rows, each once. */
typedef struct RowOps {
  int32_t at[MOST_ROWS];
  uint32_t count;
} RowOps;

static void add_row(RowOps *rows, int32_t op) {
  for (uint32_t i = 0; i < rows->count; i++)
    if (rows->at[i] == op) return;
  rows->at[rows->count++] = op;
}

/* The first op where that is most. The value is looked for first, which needs no branches: they took a sixth of all bounds. */
static int32_t largest_from(const double *bytes, int32_t first, int32_t end) {
  double most = bytes[first];
  int32_t at = first;
  for (int32_t j = first; j < end; j++) most = most < bytes[j] ? bytes[j] : most;
  while (bytes[at] < most) at++;
  return at;
}

/* Where clearly more is taken than at any op before, where more is wanted of what may be kept: the other rows are weaker, or hardly stronger.
 * And where what is taken and wanted is most together. */
static void add_records(const double *taken, const double *together, int32_t turn, int32_t ops, RowOps *rows) {
  const int32_t most = largest_from(taken, turn, ops);
  const double step = (taken[most] - taken[turn]) / RECORDS;
  double next = taken[turn];
  for (int32_t j = turn; j <= most; j++) {
    if (taken[j] < next && j < most) continue;
    add_row(rows, j);
    next = taken[j] + step;
  }
  add_row(rows, largest_from(together, turn, ops));
}

/* From the loss on; also as if gradients that are on their way stayed. */
static RowOps choose_rows(Arena *scratch, const BoundInput *in, const Runs *items, const Runs *units, const double *live,
                          const Reducing *reducing) {
  const Program *program = in->skeleton->program;
  int32_t turn = program->turn, ops = (int32_t)program->ops.count;
  RowOps rows = {.count = 0};
  if (turn >= ops) return rows;
  double *wanted = ARENA_ARRAY(scratch, double, (size_t)ops + 1), *unreduced = ARENA_ARRAY(scratch, double, (size_t)ops + 1);
  double *together = ARENA_ARRAY(scratch, double, (size_t)ops);
  add_demand(&items->slices, turn, wanted);
  add_demand(&units->slices, turn, wanted);
  terms_add_unreduced(in, reducing, unreduced);
  for (int32_t j = turn + 1; j < ops; j++) {
    wanted[j] += wanted[j - 1];
    unreduced[j] += unreduced[j - 1];
  }
  for (int32_t j = turn; j < ops; j++) together[j] = live[j] + wanted[j];
  add_records(live, together, turn, ops, &rows);
  for (int32_t j = turn; j < ops; j++) {
    unreduced[j] += live[j];
    together[j] = unreduced[j] + wanted[j];
  }
  add_records(unreduced, together, turn, ops, &rows);
  return rows;
}

/* --- the bound of one row ---------------------------------------------------------------------------------------------------------- */

/* Takes as much as the room holds; the share of it. */
static double take(double bytes, double *room) {
  double share = bytes <= *room ? 1 : *room / bytes;
  *room = share < 1 ? 0 : *room - bytes; /* never below zero by rounding */
  return share;
}

/* How the terms are weighed: `share` of A against B, `link` of C against what it stands for in A, `price` of the time that C
 * takes, of which what host memory holds is free. */
typedef struct Weighting {
  double share, link, price;
} Weighting;

/* Of running again, for ops after Terms.until too, of gathering again, of the time of what is away, of compute in forward, of resting; of A's
 * constant. */
typedef struct Weights {
  double again, late, regather, away, forward, rests, a;
} Weights;

static Weights weights_at(const Terms *t, Weighting at) {
  double a = at.share, b = 1 - at.share;
  return (Weights){.again = a + b * t->again_b,
                   .late = b * t->again_b,
                   .regather = at.share * (1 - at.link) * t->regather_a + b * t->regather_b,
                   .away = at.share * at.link + at.price,
                   .forward = at.share * (1 - at.link) + b * t->stores_b,
                   .rests = at.share * (1 - at.link) * t->rest_a,
                   .a = a};
}

/* What they gain with the share, in which they are linear. */
static Weights weights_slope(const Terms *t, Weighting at) {
  Weights low = weights_at(t, (Weighting){0, at.link, at.price}), high = weights_at(t, (Weighting){1, at.link, at.price});
  return (Weights){high.again - low.again, high.late - low.late, high.regather - low.regather, high.away - low.away, high.forward - low.forward,
                   high.rests - low.rests, high.a - low.a};
}

/* Of compute's time just before an item is needed. */
static double needed_by(const Terms *t, const Slice *slice, Weights w) { return slice->until > t->until ? w.late : w.again; }

static double again_cost(const Terms *t, const Slice *slice, Weights w) { return needed_by(t, slice, w) * slice->ns; }

/* Of a second of copies each way: by the link, and what they cost compute beside them, or in compute's own time, in which collectives slow nothing. */
static double away_cost(const Terms *t, const Slice *slice, Weights w) {
  const bool counted = slice->until <= t->until;
  if (!slice->link) return w.rests * (t->stores + counted) * slice->away;
  return (w.away + t->copying * (t->stores * w.forward + needed_by(t, slice, w))) * slice->away;
}

static double rests_cost(const Terms *t, const Row *row, const Slice *slice, Weights w) {
  return row->at <= t->idle_from ? w.rests * slice->ns : 0;
}

/* What an item costs that is not kept: the cheaper of running it again and of being away. */
static void offer_item(const Terms *t, const Row *row, Offer *offer, Weights w, Weights slope) {
  const Slice *slice = offer->slice;
  if (slice->rests) {
    offer->cost = rests_cost(t, row, slice, w);
    offer->slope = rests_cost(t, row, slice, slope);
    return;
  }
  double again = again_cost(t, slice, w), away = away_cost(t, slice, w);
  bool leaves = slice->away > 0 && away < again;
  offer->cost = leaves ? away : again;
  offer->slope = leaves ? away_cost(t, slice, slope) : again_cost(t, slice, slope);
  offer->again = !leaves && again > 0 && slice->bytes < NEVER;
}

static bool is_better(const Offer *x, const Offer *y) {
  double p = x->cost * y->slice->bytes, q = y->cost * x->slice->bytes;
  return p != q ? p > q : x->slice < y->slice;
}

typedef struct Weighed {
  double ns, slope; /* slope: in the share, of what was chosen */
  bool again; /* something is run again */
  bool rests; /* compute rests until a gradient is gone */
} Weighed;

/* Where results may be away, the order in which they are worth keeping depends on the weights. It is near that of the weights
 * before, so that insertion sorts it in little more than one pass. */
static void offer_items(const Terms *t, const Row *row, Weights w, Weights slope) {
  Offer *offers = row->offers;
  for (uint32_t i = 0; i < row->items.count; i++) offer_item(t, row, &offers[i], w, slope);
  for (uint32_t i = 1; row->reorders && i < row->items.count; i++) {
    Offer offer = offers[i];
    uint32_t at = i;
    for (; at > 0 && is_better(&offer, &offers[at - 1]); at--) offers[at] = offers[at - 1];
    offers[at] = offer;
  }
}

/* Least of the weighed terms under the row: everything's cost, less that of what room is given to, best first. */
static Weighed weigh(const Terms *t, const Row *row, Weighting at) {
  Weights w = weights_at(t, at), slope = weights_slope(t, at);
  double stood_for = at.link * (t->before + row->ran_ns + t->reduced_a * row->reduced_ns + t->apart_a); /* by the link */
  const double waits = row->waits ? t->rest_a * waits_between(row->waits, row->at, t->idle_from) : 0;
  Weighed out = {.ns = w.a * t->a + (1 - at.share) * t->b - (at.price > 0 ? at.price * row->host_ns : 0) - at.share * (stood_for - waits),
                 .slope = slope.a * t->a - t->b - stood_for + waits};
  if (row->fits) return out;
  double room = row->room;
  uint32_t i = 0, u = 0;
  offer_items(t, row, w, slope);
  while (i < row->items.count || u < row->units.count) {
    const Offer *item = i < row->items.count ? &row->offers[i] : NULL;
    const Slice *unit = u < row->units.count ? &row->units.data[u] : NULL;
    bool take_item = item && (!unit || item->cost * unit->bytes >= w.regather * unit->ns * item->slice->bytes);
    double given = 1 - take(take_item ? item->slice->bytes : unit->bytes, &room);
    out.ns += given * (take_item ? item->cost : w.regather * unit->ns);
    out.slope += given * (take_item ? item->slope : slope.regather * unit->ns);
    out.again |= take_item && given > 0 && item->again;
    out.rests |= take_item && given > 0 && item->slice->rests && item->cost > 0;
    if (take_item) i++;
    else u++;
  }
  return out;
}

typedef struct Most {
  double ns;
  Weighting at;
  const Terms *terms;
  bool again, rests;
} Most;

static Weighed consider(const Terms *t, const Row *row, Weighting at, Most *most) {
  Weighed weighed = weigh(t, row, at);
  if (weighed.ns > most->ns) *most = (Most){weighed.ns, at, t, weighed.again, weighed.rests};
  return weighed;
}

/* The best share. weigh is concave in it and of straight pieces: it lies below its tangents, and where one that rises meets one that
 * falls is the best place to look next, the last one when it reaches them. Returns what it reaches. */
static double maximise_share(const Terms *t, const Row *row, Weighting at, Most *most) {
  double low = 0, high = 1;
  Weighed rising = consider(t, row, (Weighting){low, at.link, at.price}, most);
  Weighed falling = consider(t, row, (Weighting){high, at.link, at.price}, most);
  double best = fmax(rising.ns, falling.ns);
  for (int i = 0; i < TANGENTS && rising.slope > 0 && falling.slope < 0; i++) {
    double share = low + (falling.ns - rising.ns - falling.slope * (high - low)) / (rising.slope - falling.slope);
    double reach = rising.ns + rising.slope * (share - low);
    Weighed next = consider(t, row, (Weighting){share, at.link, at.price}, most);
    best = fmax(best, next.ns);
    if (next.ns >= reach * (1 - TOUCHING)) break;
    if (next.slope > 0)
      low = share, rising = next;
    else
      high = share, falling = next;
  }
  return best;
}

static double maximise_at(const Terms *t, const Row *row, bool price, double weight, Most *most) {
  return maximise_share(t, row, (Weighting){0, price ? 0 : weight, price ? weight : 0}, most);
}

/* Concave in the link's weight and in the price too: one of them is raised up to `high`, by golden sections. Where the least of what these
 * would look at is no better than `none`, what it is at 0, no other is. */
static void maximise_away(const Terms *t, const Row *row, bool price, double high, double none, Most *most) {
  if (maximise_at(t, row, price, LEAST_LOOK * high, most) <= none) return;
  double low = 0, a = high - GOLDEN * high, b = GOLDEN * high;
  double at_a = maximise_at(t, row, price, a, most), at_b = maximise_at(t, row, price, b, most);
  for (int i = 0; i < LINK_SECTIONS; i++) {
    if (at_a < at_b) {
      low = a, a = b, at_a = at_b;
      at_b = maximise_at(t, row, price, b = low + GOLDEN * (high - low), most);
    } else {
      high = b, b = a, at_b = at_a;
      at_a = maximise_at(t, row, price, a = high - GOLDEN * (high - low), most);
    }
  }
}

/* Schedules count whole nanoseconds, rounded down at each operator and collective. */
static double rounded_down(const BoundInput *in) {
  return in->skeleton->program->ops.count + 4.0 * in->skeleton->units->units.count;
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

/* A row that is far behind where another one is best seldom is better elsewhere. */
static bool is_behind(const Terms *t, const Row *row, const Most *most) {
  return most->ns > 0 && weigh(t, row, most->at).ns < BEHIND * most->ns;
}

/* Whether shares alone raise it to `enough`, on whatever row: weights of the link take ten times as long. */
static bool shares_reach(const Pairs *pairs, const Row *rows, uint32_t count, double enough) {
  Most most = {.ns = -1};
  for (uint32_t i = 0; i < count && enough < NEVER && most.ns < enough; i++)
    for (uint32_t p = 0; p < pairs->count; p++) (void)maximise_share(&pairs->data[p], &rows[i], (Weighting){0}, &most);
  return most.ns >= enough;
}

static void maximise(const Terms *t, const Row *row, double enough, Most *most) {
  if (most->ns >= enough || is_behind(t, row, most)) return;
  const double none = maximise_share(t, row, (Weighting){0}, most);
  if (!row->moves || most->ns >= enough) return;
  maximise_away(t, row, false, 1, none, most);
  if (row->host_ns < NEVER) maximise_away(t, row, true, highest_price(row), none, most);
  (void)maximise_share(t, row, most->at, most);
}

/* --- the whole ---------------------------------------------------------------------------------------------------------------------- */

static double most_ns_a_byte(const Row *row) {
  double most = 0;
  for (uint32_t i = 0; i < row->items.count; i++)
    most = fmax(most, row->items.data[i].away / row->items.data[i].bytes);
  return most;
}

/* One after the other gradients go: until those that are left fit, all must. */
static void give_up_unreduced(Slices *unreduced, double room) {
  double bytes = slices_bytes(unreduced);
  for (uint32_t i = 0; i < unreduced->count && bytes > room; i++) {
    bytes -= unreduced->data[i].bytes;
    unreduced->data[i].bytes = NEVER;
  }
}

static Row row_at(Arena *scratch, const BoundInput *in, const Runs *items, const Runs *units, const Reducing *reducing, int32_t at,
                  int32_t split, double room) {
  Slices unreduced = terms_unreduced(scratch, in, reducing, at);
  give_up_unreduced(&unreduced, room);
  Row row = {.items = slices_at(scratch, items, at, split, unreduced),
             .units = slices_at(scratch, units, at, INT32_MAX, (Slices){0}),
             .room = room,
             .at = at};
  row.fits = slices_bytes(&row.items) + slices_bytes(&row.units) <= room;
  double slowest = most_ns_a_byte(&row); /* starting a copy takes time too: what memory holds takes at most this */
  row.moves = slowest > 0;
  row.reorders = row.moves || split < INT32_MAX || unreduced.count;
  row.ran_ns = terms_ops_ns(in, in->skeleton->program->turn, at);
  row.reduced_ns = terms_reduced_ns(in, at);
  row.host_ns = in->host_room == UINT64_MAX ? NEVER : (double)in->host_room * slowest;
  row.offers = ARENA_ARRAY(scratch, Offer, row.items.count);
  for (uint32_t i = 0; i < row.items.count; i++) row.offers[i].slice = &row.items.data[i];
  return row;
}

static const char *binding(const Most *most) {
  const Terms *t = most->terms;
  if (most->at.link > 0.3) return "host link";
  if (most->at.price > 0 && most->again) return "host memory through recompute";
  if (most->at.share <= 0.5) return t->by;
  if (most->again) return "memory through recompute";
  if (most->rests) return "memory through reduce";
  return t->idle > t->a / 2 ? t->idle_by : "compute";
}

/* Of one micro-batch; ns below 0: nothing fits. */
typedef struct MicroBound {
  double ns;
  const char *by;
} MicroBound;

/* A micro-batch by one of the queues that gathers may be bound by. */
typedef struct Side {
  BoundInput in;
  const MicroPass *pass;
  Pairs pairs;
} Side;

static Side side_of(const BoundInput *in, const MicroPass *pass, bool fetch_bound) {
  Side side = {.in = *in, .pass = pass};
  side.in.fetch_bound = fetch_bound;
  side.pairs = terms_pairs(&side.in, pass, slices_latest(in->operators, 0), NULL);
  return side;
}

/* With nothing given up for memory. */
static double side_least(const Side *side) {
  double most = 0;
  for (uint32_t p = 0; p < side->pairs.count; p++) most = fmax(most, fmax(side->pairs.data[p].a, side->pairs.data[p].b));
  return fmax(0, most - rounded_down(&side->in));
}

/* enough: it is raised no further than to that. */
static MicroBound bound_side(Arena *scratch, const Side *side, const double *live, double enough) {
  const BoundInput *in = &side->in;
  const MicroPass *pass = side->pass;
  const Runs *items = in->operators, units = slice_units(scratch, in);
  const Waits waits = waits_find(scratch, in, pass, live);
  const Pairs found = waits.found ? terms_pairs(in, pass, slices_latest(items, 0), &waits) : side->pairs, *pairs = &found;
  int32_t split = pairs->data[pairs->count - 1].until;
  const Reducing queue = terms_reducing(scratch, in, pass, slices_latest(items, NEVER));
  const RowOps rows = choose_rows(scratch, in, items, &units, live, &queue);
  Row row[MOST_ROWS];
  enough += rounded_down(in); /* time is left out later for what schedules round down */
  for (uint32_t i = 0; i < rows.count; i++) {
    row[i] = row_at(scratch, in, items, &units, &queue, rows.at[i], split, (double)in->room - live[rows.at[i]]);
    if (row[i].room < 0) return (MicroBound){-1, "memory"};
    row[i].waits = &waits;
  }
  if (shares_reach(pairs, row, rows.count, enough)) return (MicroBound){fmax(enough - rounded_down(in), side_least(side)), ""};
  Most most = {.ns = -1};
  for (uint32_t i = 0; i < rows.count; i++)
    for (uint32_t p = 0; p < pairs->count; p++) maximise(&pairs->data[p], &row[i], enough, &most);
  for (uint32_t p = 0; p < pairs->count && !rows.count; p++) maximise(&pairs->data[p], &(Row){.room = 0}, enough, &most);
  const char *by = binding(&most);
  double reducing = pass->reduces && in->start->ranks > 1 ? pairs->forward + terms_reducing_ns(scratch, in, live) : 0;
  if (reducing > most.ns) {
    most.ns = reducing;
    by = "memory through reduce";
  }
  double stored = pairs->forward + terms_stored_ns(in, pass); /* they leave after the loss */
  if (stored > most.ns) {
    most.ns = stored;
    by = "host link";
  }
  return (MicroBound){fmax(most.ns - rounded_down(in), side_least(side)), by};
}

/* Parameters that the host holds are fetched before they are gathered: either queue bounds. */
typedef struct Sides {
  Side data[2];
  uint32_t count;
} Sides;

static Sides sides_of(const BoundInput *in, const MicroPass *pass) {
  Sides sides = {.data = {side_of(in, pass, false)}, .count = 1};
  if (in->start->offload & OFFLOAD_PARAMETERS) sides.data[sides.count++] = side_of(in, pass, true);
  return sides;
}

static double sides_least(const Sides *sides) {
  double most = 0;
  for (uint32_t i = 0; i < sides->count; i++) most = fmax(most, side_least(&sides->data[i]));
  return most;
}

static MicroBound bound_sides(Arena *scratch, const Sides *sides, const double *live, double enough) {
  MicroBound most = bound_side(scratch, &sides->data[0], live, enough);
  for (uint32_t i = 1; i < sides->count && most.ns >= 0; i++) {
    const MicroBound next = bound_side(scratch, &sides->data[i], live, enough);
    if (next.ns > most.ns) most = next;
  }
  return most;
}

/* What of `enough` is left for one of so many micro-batches, where all else takes at least `others`. Each pass is rounded down. */
static double enough_of_micro(const BoundInput *in, double others, uint64_t count) {
  return in->enough == UINT64_MAX ? NEVER : ((double)in->enough + MICRO_PASSES - others) / (double)count + 1;
}

Bound bound_of(const BoundInput *in) {
  if (in->skeleton->update_bytes > in->room) return (Bound){UINT64_MAX, "memory"};
  MicroPass passes[MICRO_PASSES];
  Sides sides[MICRO_PASSES];
  uint32_t count = schedule_passes(in->start, passes), longest = 0;
  Bound bound = {in->skeleton->ends_ns, ""};
  double least = (double)bound.ns; /* of what has been bounded, and what the rest takes with nothing given up */
  for (uint32_t p = 0; p < count; p++) {
    sides[p] = sides_of(in, &passes[p]);
    least += sides_least(&sides[p]) * (double)passes[p].count;
  }
  if (in->enough != UINT64_MAX && least >= (double)in->enough + 1) return (Bound){(uint64_t)least, ""};
  Arena *scratch = arena_new();
  const double *live = terms_live(scratch, in);
  for (uint32_t p = 0; p < count && bound.ns != UINT64_MAX; p++) {
    const double n = (double)passes[p].count, others = least - n * sides_least(&sides[p]);
    MicroBound micro = bound_sides(scratch, &sides[p], live, enough_of_micro(in, others, passes[p].count));
    if (passes[p].count >= passes[longest].count) longest = p, bound.by = micro.by;
    bound.ns = micro.ns < 0 ? UINT64_MAX : bound.ns + (uint64_t)(micro.ns * n);
    least = others + n * micro.ns;
  }
  arena_free(scratch);
  return bound;
}
