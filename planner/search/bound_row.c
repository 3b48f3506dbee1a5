/* Owns: bound_row.h. */
#include "planner/search/bound_row.h"

#include <math.h>

enum { TANGENTS = 30, LINK_SECTIONS = 8 };
static const double GOLDEN = 0.6180339887498949, LEAST_LOOK = 0.0081; /* GOLDEN to the power of LINK_SECTIONS + 2 */
static const double BEHIND = 0.97;    /* of the best row so far: not worth other weights */
static const double TOUCHING = 1e-10; /* where tangents meet, relative: no room left between them */

/* Takes as much as the room holds; the share of it. */
static double take(double bytes, double *room) {
  double share = bytes <= *room ? 1 : *room / bytes;
  *room = share < 1 ? 0 : *room - bytes; /* never below zero by rounding */
  return share;
}

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
  if (slice->beside) { /* what running it again costs more than its being away, by which it stays */
    offer->cost = leaves ? again - away : 0;
    offer->slope = leaves ? again_cost(t, slice, slope) - away_cost(t, slice, slope) : 0;
    offer->again = leaves;
    return;
  }
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

bool row_shares_reach(const Pairs *pairs, const Row *rows, uint32_t count, double enough) {
  Most most = {.ns = -1};
  for (uint32_t i = 0; i < count && enough < NEVER && most.ns < enough; i++)
    for (uint32_t p = 0; p < pairs->count; p++) (void)maximise_share(&pairs->data[p], &rows[i], (Weighting){0}, &most);
  return most.ns >= enough;
}

void row_maximise(const Terms *t, const Row *row, double enough, Most *most) {
  if (most->ns >= enough || is_behind(t, row, most)) return;
  const double none = maximise_share(t, row, (Weighting){0}, most);
  if (!row->moves || most->ns >= enough) return;
  maximise_away(t, row, false, 1, none, most);
  if (row->host_ns < NEVER) maximise_away(t, row, true, highest_price(row), none, most);
  (void)maximise_share(t, row, most->at, most);
}
