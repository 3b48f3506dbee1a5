/* Owns: bound_gathers.h, but for what they take beside reductions. */
#include "planner/search/bound_gathers.h"

/* How many are looked at before one. */
static uint32_t most_before(const Finder *f) { return f->is_long ? 0 : LONGEST_CHAIN - 1; }

/* Units that are used first in forward, or in backward, in the order of the ops that do. */
static Gathers list_gathers(const Finder *f, bool backward) {
  const Skeleton *skeleton = f->in->skeleton;
  const int32_t turn = skeleton->program->turn, end = backward ? op_count(f) : turn;
  Gathers out = {0};
  for (int32_t op = backward ? turn : 0; op < end; op++)
    for (uint32_t at = skeleton->first[op]; at < skeleton->first[op + 1]; at++) {
      const uint32_t u = (uint32_t)skeleton->touched[at];
      const UnitOps *ops = &skeleton->ops[u];
      if ((backward ? ops->first_backward : ops->first_forward) != op || (backward && !terms_gathers_again(f->in, u))) continue;
      vec_push(f->scratch, &out,
               ((Gather){.unit = u,
                         .to = op,
                         .earliest = op,
                         .blocked = PLAN_NONE,
                         .certain = !backward || !terms_may_keep(f->in, u),
                         .after = PLAN_NONE}));
    }
  return out;
}

/* The last op before its use beside which it is not there, nor under way: with those before it in the queue it does not fit. Not looked for
 * where neither compute would rest nor it be apart from reductions. */
static void find_blocked(const Finder *f, Gathers *gathers, uint32_t i, bool backward, bool reduces) {
  Gather *gather = &gathers->data[i];
  const double own = full_bytes(f, gather->unit);
  double queued = gather->certain ? own : 0, ns = terms_allgather_ns(f->in, gather->unit);
  uint32_t before = i, reduction = reduces ? windows_whole_before(f, gather->to) : 0;
  double apart = backward && !f->is_long ? ns : 0;
  int32_t first = backward ? f->in->skeleton->program->turn : 0;
  if (gather->to - first > LONGEST_WINDOW) first = gather->to - LONGEST_WINDOW;
  for (int32_t op = gather->to - 1; op >= first && (apart > 0 || windows_rest(f, ns, op, gather->to) > 0); op--) {
    for (; reduction > 0 && whole_with(f, reduction - 1) > op; reduction--) apart -= terms_scatter_ns(f->in, f->in->skeleton->reduced[reduction - 1]);
    if (i - before > most_before(f)) break;
    for (; before > 0 && gathers->data[before - 1].to > op; before--) {
      ns += terms_allgather_ns(f->in, gathers->data[before - 1].unit);
      if (gathers->data[before - 1].certain && gather_is_behind(gather, &gathers->data[before - 1])) queued += full_bytes(f, gathers->data[before - 1].unit);
    }
    if (room_at(f, op) >= (gather->certain ? queued : own)) continue;
    gather->blocked = op;
    break;
  }
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
  if (whole && excludes(f, f->in->skeleton->reduced[whole - 1], gather->unit, whole_with(f, whole - 1), gather->to)) gather->after = (int32_t)whole - 1;
}

static Gathers look_for_blocked(const Finder *f, Gathers gathers, bool backward, bool reduces) {
  for (uint32_t i = 0; i < gathers.count; i++) find_blocked(f, &gathers, i, backward, reduces);
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
  Gathers gathers = look_for_blocked(f, list_gathers(f, backward), backward, reduces);
  if (!backward || !gathers_any_blocked(&gathers)) return gathers;
  if (set_earliest(f, &gathers)) {
    gathers = list_gathers(f, backward);
    (void)set_earliest(f, &gathers);
    gathers = look_for_blocked(f, gathers, backward, reduces);
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
  const int32_t to = gathers->data[last].to, first = to > LONGEST_WINDOW ? to - LONGEST_WINDOW : 0;
  int32_t from = gathers->data[last].blocked, earliest = to; /* of all that are counted */
  uint32_t next = behind ? windows_whole_before(f, from) : 0;
  double ns = 0;
  const uint32_t end = last > most_before(f) ? last - most_before(f) : 0;
  for (uint32_t i = last + 1; i-- > end && from >= first;) {
    const Gather *gather = &gathers->data[i];
    if (!gather->certain) continue;
    if (gather->blocked < from) from = gather->blocked;
    for (; next > 0 && whole_with(f, next - 1) > from && whole_with(f, next - 1) >= first; next--) add_reduction(f, next - 1, to, &ns);
    if (from < first) break;
    ns += terms_allgather_ns(f->in, gather->unit);
    windows_add(f, from, to, ns);
    const int32_t whole = gather->after >= 0 ? whole_with(f, (uint32_t)gather->after) : to;
    if (whole <= from && (i == last || earliest > gather->to))
      windows_add(f, whole, to, ns + windows_read_ns(f, f->in->skeleton->reduced[gather->after]));
    if (gather->earliest < earliest) earliest = gather->earliest;
  }
  for (; next > 0 && whole_with(f, next - 1) >= first; next--) add_reduction(f, next - 1, to, &ns);
}

void gathers_wait(Finder *f, const Gathers *gathers, bool behind) {
  for (uint32_t i = 0; i < gathers->count; i++)
    if (gathers->data[i].certain) add_gathers(f, gathers, i, behind);
}
