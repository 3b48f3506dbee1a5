/* Owns: what gathers of backward take beside reductions, of bound_gathers.h. */
#include "planner/search/bound_gathers.h"

#include <math.h>

/* Of compute's time, by one communicator: then two slow it by no more than compute may rest for instead while both work. */
static const double MOST_SLOWED = 0.5;

/* What gathers of backward and reductions take from an op on: by one communicator, or the more of two. */
static void sum_late(const Finder *f, const Gathers *gathers, bool reduces, double *late) {
  const Skeleton *skeleton = f->in->skeleton;
  uint32_t reduction = reduces ? skeleton->reduced_count : 0;
  double gathered = 0, reduced = 0;
  for (uint32_t i = 0; i < gathers->count; i++)
    if (gathers->data[i].certain && gathers->data[i].blocked >= skeleton->program->turn)
      late[gathers->data[i].blocked] += terms_allgather_ns(f->in, gathers->data[i].unit);
  for (int32_t op = op_count(f) - 1; op >= skeleton->program->turn; op--) {
    gathered += late[op];
    for (; reduction > 0 && whole_with(f, reduction - 1) >= op; reduction--) reduced += windows_queued_ns(f, reduction - 1);
    late[op] = skeleton->shared_queue ? gathered + reduced : fmax(gathered, reduced);
  }
}

/* For how long at most reduction `r`, which is issued as soon as it may be, is under way while the unit is gathered. live: before each op. */
static double beside_ns(const Finder *f, const Reducing *reducing, const double *live, uint32_t r, const Gather *gather) {
  const uint32_t other = f->in->skeleton->reduced[r];
  const double bytes = terms_gradient_bytes(f->in, other) + full_bytes(f, gather->unit);
  int32_t op = (whole_with(f, r) > gather->blocked ? whole_with(f, r) : gather->blocked) + 1;
  while (op < gather->to && live[op] + bytes > (double)f->in->room) op++;
  return fmax(0, fmin(reducing->end[r] - reducing->start[op], terms_scatter_ns(f->in, other) + terms_replicate_ns(f->in, other)));
}

/* Whether a reduction may wait for the buffer of what it delivers, or for what that is added to. */
static bool may_be_late(const BoundInput *in) {
  for (uint32_t i = 0; i < in->skeleton->reduced_count; i++)
    if (schedule_reduced_bytes(in->start, &in->skeleton->figures[in->skeleton->reduced[i]]) > 0) return true;
  return false;
}

/* The longest window whose rests include what is before op `at`. */
static double longest_around(const Finder *f, int32_t at) {
  double ns = 0;
  for (uint32_t i = 0; i < f->waits.count; i++) {
    const Wait *wait = &f->waits.data[i];
    if (wait->from < at && at <= wait->to) ns = fmax(ns, wait->ns);
  }
  return ns;
}

/* Whether it has been read before op `end`: at some op its gradient does not fit. */
static bool is_read_before(const Finder *f, uint32_t r, int32_t end) {
  const double bytes = terms_gradient_bytes(f->in, f->in->skeleton->reduced[r]);
  const int32_t first = whole_with(f, r) + 1;
  for (int32_t op = first; op < end && op < first + LONGEST_WINDOW; op++)
    if (bytes > room_at(f, op)) return true;
  return false;
}

/* For how long at most reduction `r`, which may be put off, is under way while gather `i` is, compute working or resting in a window that counts:
 * where both fit, beside the units before in the queue. live: before each op. */
static double beside_late_ns(Finder *f, const double *live, uint32_t r, const Gathers *gathers, uint32_t i) {
  const Gather *gather = &gathers->data[i];
  const uint32_t other = f->in->skeleton->reduced[r];
  const double scatter = terms_scatter_ns(f->in, other);
  if (terms_replicate_ns(f->in, other) > 0 || gather->to - gather->blocked > LONGEST_WINDOW) return scatter + terms_replicate_ns(f->in, other);
  const int32_t first = (whole_with(f, r) > gather->blocked ? whole_with(f, r) : gather->blocked) + 1;
  double ns = 0;
  for (int32_t op = first; op <= gather->to && ns < scatter; op++) {
    double bytes = terms_gradient_bytes(f->in, other) + full_bytes(f, gather->unit);
    for (uint32_t j = 0; j < i; j++)
      if (gathers->data[j].certain && gathers->data[j].to >= op && gather_is_behind(gather, &gathers->data[j])) bytes += full_bytes(f, gathers->data[j].unit);
    if (live[op] + bytes > (double)f->in->room) continue;
    ns += f->pace * windows_filled(f, op - 1, op) + longest_around(f, op);
    if (op < gather->to && room_at(f, op) >= bytes) ns += f->pace * (double)f->in->skeleton->op_ns[op];
  }
  return fmin(ns, scatter);
}

/* What the gather takes beside no reduction. Those before one that has been read have been, too; of more than a few nothing is known. */
static double apart_late_ns(Finder *f, const double *live, const Gathers *gathers, uint32_t i) {
  const Gather *gather = &gathers->data[i];
  double ns = terms_allgather_ns(f->in, gather->unit);
  const uint32_t whole = windows_whole_before(f, gather->to);
  for (uint32_t r = whole; r-- > 0 && ns > 0 && !is_read_before(f, r, gather->blocked + 1);)
    ns -= whole - r > LONGEST_CHAIN ? ns : beside_late_ns(f, live, r, gathers, i);
  return fmax(0, ns);
}

static double apart_ns(const Finder *f, const Reducing *reducing, const double *live, const Gather *gather) {
  double ns = terms_allgather_ns(f->in, gather->unit);
  for (uint32_t r = reducing->end ? windows_whole_before(f, gather->to) : 0; r-- > 0 && ns > 0 && reducing->end[r] > reducing->start[gather->blocked + 1];)
    ns -= beside_ns(f, reducing, live, r, gather);
  return fmax(0, ns);
}

/* What gathers take beside no reduction. */
static void sum_apart(Finder *f, const Gathers *gathers, bool reduces, Waits *out) {
  const Skeleton *skeleton = f->in->skeleton;
  const bool beside = reduces && !skeleton->shared_queue, late = beside && may_be_late(f->in);
  if (late && f->in->start->overlap.contention * (1 + f->in->start->overlap.comm_slowdown) > MOST_SLOWED) return;
  const int32_t last = late ? terms_longest_tail(f->in, f->pass) : op_count(f);
  const Reducing reducing = beside && !late ? terms_reducing(f->scratch, f->in, f->pass, 0) : (Reducing){0};
  const double *live = beside ? windows_between(f) : NULL;
  for (uint32_t i = 0; i < gathers->count; i++) {
    const Gather *gather = &gathers->data[i];
    if (!gather->certain || gather->blocked < skeleton->program->turn || gather->to > last) continue;
    const double ns = late ? apart_late_ns(f, live, gathers, i) : apart_ns(f, &reducing, live, gather);
    out->apart += ns;
    if (!terms_may_keep(f->in, gather->unit)) out->pinned += ns;
  }
}

/* All that every plan has, whatever the order. */
static void sum_again(const Finder *f, const Gathers *gathers, Waits *out) {
  for (uint32_t i = 0; i < gathers->count; i++) {
    if (!gathers->data[i].certain) continue;
    out->again += terms_gather_ns(f->in, gathers->data[i].unit);
    out->last_used = gathers->data[i].to;
  }
}

void gathers_sum(Finder *f, const Gathers *gathers, bool reduces, Waits *out) {
  sum_again(f, gathers, out);
  if (!gathers_any_blocked(gathers)) return;
  sum_late(f, gathers, reduces, out->late);
  sum_apart(f, gathers, reduces, out);
}
