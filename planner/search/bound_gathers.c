/* Owns: bound_gathers.h, but for what they take beside reductions. */
#include "planner/search/bound_gathers.h"

/* How many are looked at before one. */
static uint32_t most_before(const Finder *f) { return f->is_long ? 0 : LONGEST_CHAIN - 1; }

/* A gather for backward that is done before the loss. */
static const Case *crosses(const Finder *f, uint32_t u) {
  const Case *before = cases_of_gather(&f->in->assumed, CASE_BEFORE, u, true);
  return before && before->op < f->in->skeleton->program->turn ? before : NULL;
}

static void list_gather(const Finder *f, Gathers *out, uint32_t u, int32_t op, bool again) {
  const Cases *assumed = &f->in->assumed;
  const Case *before = cases_of_gather(assumed, CASE_BEFORE, u, again), *behind = cases_of_gather(assumed, CASE_BEHIND, u, again);
  vec_push(f->scratch, out,
           ((Gather){.unit = u,
                     .again = again,
                     .to = op,
                     .by = before ? before->op : op,
                     .earliest = op,
                     .blocked = PLAN_NONE,
                     .passes = PLAN_NONE,
                     .certain = !again || !terms_may_keep(f->in, u),
                     .after = behind ? (int32_t)behind->reduction : PLAN_NONE}));
}

/* Units that are used first in forward, or again in backward, in the order of the ops that do. */
static void list_used(const Finder *f, bool again, bool crossing, Gathers *out) {
  const Skeleton *skeleton = f->in->skeleton;
  const int32_t turn = skeleton->program->turn, end = again ? op_count(f) : turn;
  for (int32_t op = again ? turn : 0; op < end; op++)
    for (uint32_t at = skeleton->first[op]; at < skeleton->first[op + 1]; at++) {
      const uint32_t u = (uint32_t)skeleton->touched[at];
      if ((again ? skeleton->ops[u].first_backward : skeleton->ops[u].first_forward) != op) continue;
      if (!again || (terms_gathers_again(f->in, u) && !crosses(f, u) == !crossing)) list_gather(f, out, u, op, again);
    }
}

/* Those that are done before the loss, or those after it. */
static Gathers list_gathers(const Finder *f, bool backward) {
  Gathers out = {0};
  list_used(f, backward, false, &out);
  const uint32_t count = out.count;
  if (!backward && f->in->assumed.count) list_used(f, true, true, &out);
  for (uint32_t i = count; i < out.count; i++) {
    out.data[i].certain = true;
    out.data[i].earliest = f->in->skeleton->program->turn; /* what is run again may use it by then */
  }
  return out;
}

/* What is before a gather in the queue is done by then, too. */
static void hurry_others(Gathers *gathers) {
  for (uint32_t i = gathers->count; i-- > 1;)
    for (uint32_t j = i; j-- > 0 && gathers->data[i].by < gathers->data[i].to;)
      if (gathers->data[j].by > gathers->data[i].by && gather_is_behind(&gathers->data[i], &gathers->data[j])) gathers->data[j].by = gathers->data[i].by;
}

/* The op after whose end it begins at least, as assumed. */
static int32_t assumed_after(const Finder *f, const Gather *gather) {
  const Case *after = cases_of_gather(&f->in->assumed, CASE_AFTER, gather->unit, gather->again);
  const Case *behind = cases_of_gather(&f->in->assumed, CASE_BEHIND, gather->unit, gather->again);
  const int32_t op = after ? after->op : PLAN_NONE;
  return behind && behind->op - 1 > op ? behind->op - 1 : op;
}

/* What lies between an op and a gather's use, from this back to the op. */
typedef struct Between {
  uint32_t before, reduction; /* the first gather, and reduction, of those */
  double bytes;               /* of the unit, and of those before it in the queue */
  double ns, apart;           /* of these gathers; of the one, beside no reduction */
} Between;

static Between between_none(const Finder *f, const Gather *gather, uint32_t i, bool reduces) {
  const double ns = terms_allgather_ns(f->in, gather->unit);
  return (Between){.before = i,
                   .reduction = reduces ? windows_whole_before(f, gather->by) : 0,
                   .bytes = full_bytes(f, gather->unit),
                   .ns = ns,
                   .apart = gather->again && !f->is_long ? ns : 0};
}

/* Further back to `op`. */
static void between_from(const Finder *f, const Gathers *gathers, uint32_t i, int32_t op, Between *b) {
  for (; b->reduction > 0 && whole_with(f, b->reduction - 1) > op; b->reduction--)
    b->apart -= terms_scatter_ns(f->in, f->in->skeleton->reduced[b->reduction - 1]);
  for (; b->before > 0 && gathers->data[b->before - 1].by > op; b->before--) {
    b->ns += terms_allgather_ns(f->in, gathers->data[b->before - 1].unit);
    b->bytes += gather_ahead(f, &gathers->data[b->before - 1], &gathers->data[i]);
  }
}

/* Whether it can be at op `op`. Windows across the loss say nothing; and where a second one of a unit does not fit, the first may stay. */
static bool fits_beside(const Finder *f, const Gather *gather, int32_t op, double bytes) {
  const int32_t turn = f->in->skeleton->program->turn;
  return room_at(f, op) >= bytes || (op < turn && (!gather->certain || gather->by > turn));
}

/* The last op before its use beside which it is not there, nor under way: with those before it in the queue it does not fit. Not looked for
 * where neither compute would rest nor it be apart from reductions. */
static void look_back(const Finder *f, Gathers *gathers, uint32_t i, bool reduces) {
  Gather *gather = &gathers->data[i];
  const int32_t after = assumed_after(f, gather), turn = f->in->skeleton->program->turn;
  Between b = between_none(f, gather, i, reduces);
  int32_t first = f->is_long && gather->again ? turn : 0;
  if (gather->by - first > LONGEST_WINDOW) first = gather->by - LONGEST_WINDOW;
  for (int32_t op = gather->by - 1; op >= first && i - b.before <= most_before(f) && (b.apart > 0 || windows_rest(f, b.ns, op, gather->by) > 0); op--) {
    between_from(f, gathers, i, op, &b);
    if (op <= after || !fits_beside(f, gather, op, b.bytes)) {
      gather->blocked = op;
      return;
    }
    if (gather->passes < 0 && room_at(f, op) < b.bytes + shard_bytes(f, gather->unit)) gather->passes = op;
  }
}

static void find_blocked(const Finder *f, Gathers *gathers, uint32_t i, bool reduces) {
  Gather *gather = &gathers->data[i];
  look_back(f, gathers, i, reduces);
  if (gather->blocked < 0 && !gather->certain) return; /* it may stay */
  gather->certain = true;
  for (uint32_t j = i; j-- > 0;)
    if (gathers->data[j].certain && gather_is_behind(gather, &gathers->data[j])) {
      if (gathers->data[j].blocked > gather->blocked) gather->blocked = gathers->data[j].blocked;
      break;
    }
}

/* Whether unit `u`, in use from op `to` on, fits nowhere from op `from` on beside the gradient of unit `other`, whole with that: neither beside an
 * operator nor between two, where compute may rest for both at once. */
static bool excludes(Finder *f, uint32_t other, uint32_t u, int32_t from, int32_t to) {
  const double gradient = terms_gradient_bytes(f->in, other), full = full_bytes(f, u), *between = windows_between(f);
  for (int32_t op = from; op <= to && gradient > 0; op++) {
    if (room_at(f, op) >= (op > from ? gradient : 0) + (op < to ? full : 0)) return false;
    if (op > from && (double)f->in->room - between[op] >= gradient + full) return false;
  }
  return gradient > 0;
}

/* The last gradient that is whole before its first use. */
static void find_excluded(Finder *f, Gather *gather) {
  const uint32_t whole = windows_whole_before(f, gather->to);
  if (!whole || (int32_t)whole - 1 <= gather->after) return; /* as assumed */
  if (excludes(f, f->in->skeleton->reduced[whole - 1], gather->unit, whole_with(f, whole - 1), gather->to)) gather->after = (int32_t)whole - 1;
}

static Gathers look_for_blocked(const Finder *f, Gathers gathers, bool reduces) {
  if (f->in->assumed.count) hurry_others(&gathers);
  for (uint32_t i = 0; i < gathers.count; i++) find_blocked(f, &gathers, i, reduces);
  return gathers;
}

/* Whether some might be used in another order. */
static bool set_earliest(Finder *f, Gathers *gathers) {
  const int32_t *earliest = windows_earliest(f);
  bool changes = false;
  for (uint32_t i = 0; i < gathers->count; i++) {
    gathers->data[i].earliest = earliest[gathers->data[i].unit];
    changes |= i > 0 && !gather_is_behind(&gathers->data[i], &gathers->data[i - 1]);
  }
  return changes;
}

/* What is run again is looked at only where it matters: if none waits in the order of the ops none does. */
Gathers gathers_find(Finder *f, bool backward, bool reduces) {
  Gathers gathers = look_for_blocked(f, list_gathers(f, backward), reduces);
  if (!backward || !gathers_any_blocked(&gathers)) return gathers;
  if (set_earliest(f, &gathers)) {
    gathers = list_gathers(f, backward);
    (void)set_earliest(f, &gathers);
    gathers = look_for_blocked(f, gathers, reduces);
  }
  for (uint32_t i = 0; i < gathers.count && reduces; i++) find_excluded(f, &gathers.data[i]);
  return gathers;
}

static void add_reduction(Finder *f, uint32_t reduction, int32_t to, double *ns) {
  *ns += windows_queued_ns(f, reduction);
  windows_add(f, whole_with(f, reduction), to, *ns);
}

/* Gather `last`, and those before it that begin after an op: one after the other, and behind reductions that share the queue and whose gradients
 * are whole before the last may begin. */
static void add_gathers(Finder *f, const Gathers *gathers, uint32_t last, bool behind) {
  const int32_t to = gathers->data[last].by, first = to > LONGEST_WINDOW ? to - LONGEST_WINDOW : 0;
  int32_t from = gathers->data[last].blocked, earliest = to; /* of all that are counted */
  uint32_t next = behind ? windows_whole_before(f, from) : 0;
  double ns = 0;
  const uint32_t end = last > most_before(f) ? last - most_before(f) : 0;
  for (uint32_t i = last + 1; i-- > end && from >= first;) {
    const Gather *gather = &gathers->data[i];
    if (!gather->certain || gather->by > to) continue;
    if (gather->blocked < from) from = gather->blocked;
    for (; next > 0 && whole_with(f, next - 1) > from && whole_with(f, next - 1) >= first; next--) add_reduction(f, next - 1, to, &ns);
    if (from < first) break;
    ns += terms_allgather_ns(f->in, gather->unit);
    windows_add(f, from, to, ns);
    const int32_t whole = gather->after >= 0 ? whole_with(f, (uint32_t)gather->after) : to;
    if (whole < to && whole <= from && (i == last || earliest > gather->to))
      windows_add(f, whole, to, ns + windows_read_ns(f, f->in->skeleton->reduced[gather->after]));
    if (gather->earliest < earliest) earliest = gather->earliest;
  }
  for (; next > 0 && whole_with(f, next - 1) >= first; next--) add_reduction(f, next - 1, to, &ns);
}

void gathers_wait(Finder *f, const Gathers *gathers, bool behind, bool reduces) {
  for (uint32_t i = 0; i < gathers->count; i++) {
    if (gathers->data[i].certain) add_gathers(f, gathers, i, behind);
    if (!f->is_long) gathers_ask(f, gathers, i, reduces);
  }
}
