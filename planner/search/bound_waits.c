/* Owns: bound_waits.h. */
#include "planner/search/bound_waits.h"

#include <math.h>
#include <stdlib.h>

/* Of longer programs only gathers of backward are looked at, each by itself: all took a seventh of planning llama3-405b, and raised no bound. */
enum { LONG_PROGRAM = 3000 };

/* Operators of a window, and its gathers, at most: over links so slow that it could be longer, much else waits too, and all windows would take quadratic time. */
enum { LONGEST_WINDOW = 256, LONGEST_CHAIN = 4 };

/* Operators (from, to): compute rests before `to`. */
typedef struct Wait {
  int32_t from, to;
  double ns;
} Wait;

typedef VEC(Wait) WaitList;

/* What may fill the window (from, to). */
typedef struct Filled {
  int32_t from, to;
  double ns;
} Filled;

typedef struct Finder {
  const BoundInput *in;
  const MicroPass *pass;
  const double *live, *ops_ns; /* ops_ns: by op, of those before it */
  double pace;             /* how long a communicator works at most, of its time alone, while operators of one second run */
  bool is_long;            /* as a program */
  const int32_t *whole;    /* by reduction: the op with which its gradient is */
  Arena *scratch;
  bool *seen;              /* by forward op: counted in the window that is looked at */
  int32_t *marked, *stack; /* those that are seen; those of them whose own inputs have not been looked at */
  uint32_t seen_count;
  Filled filled;           /* of the ops that are seen */
  WaitList waits;
} Finder;

/* --- what may fill a window ------------------------------------------------------------------------------------------------------- */

static bool may_run_again(const Finder *f, int32_t op) { return f->in->start->recompute[op]; }

/* Marks what writes the values that `op` reads. */
static void mark_producers(Finder *f, int32_t op, uint32_t *depth) {
  const Flow *flow = &f->in->skeleton->program->flow;
  for (uint32_t k = flow->first[op]; k < flow->first[op + 1]; k++) {
    const FlowRef *ref = &flow->refs[k];
    const int32_t producer = flow->producer[ref->value];
    if (!ref->reads || producer < 0 || f->seen[producer]) continue;
    f->seen[producer] = true;
    f->marked[f->seen_count++] = producer;
    f->stack[(*depth)++] = producer;
  }
}

/* Likewise what is needed to run those again. Returns how many of f->marked were there before. */
static uint32_t reach_producers(Finder *f, int32_t op) {
  const uint32_t before = f->seen_count;
  uint32_t depth = 0;
  mark_producers(f, op, &depth);
  while (depth) {
    const int32_t producer = f->stack[--depth];
    if (may_run_again(f, producer)) mark_producers(f, producer, &depth);
  }
  return before;
}

/* What is run again, and lost to copies, for op `op` and has not been counted for others. */
static double add_filled(Finder *f, int32_t op) {
  const Skeleton *skeleton = f->in->skeleton;
  double ns = 0;
  for (uint32_t i = reach_producers(f, op); i < f->seen_count; i++) {
    const int32_t producer = f->marked[i];
    ns += skeleton->host_contention * (double)skeleton->program->flow.moved_ns[producer];
    if (may_run_again(f, producer)) ns += (double)skeleton->op_ns[producer];
  }
  return ns;
}

static void forget_producers(Finder *f) {
  while (f->seen_count) f->seen[f->marked[--f->seen_count]] = false;
}

/* At most what is run again, and lost to copies, for ops (from, to]. In forward copies leave, and nothing is run again. Windows that end with the
 * same op, the next one always longer, take no longer than the longest. */
static double filled_ns(Finder *f, int32_t from, int32_t to) {
  const Skeleton *skeleton = f->in->skeleton;
  if (to != f->filled.to || from > f->filled.from) {
    forget_producers(f);
    f->filled = (Filled){.from = to, .to = to};
  }
  for (; f->filled.from > from; f->filled.from--)
    f->filled.ns += to < skeleton->program->turn ? skeleton->host_contention * (double)skeleton->program->flow.moved_ns[f->filled.from]
                                                 : add_filled(f, f->filled.from);
  return f->filled.ns;
}

/* --- windows ---------------------------------------------------------------------------------------------------------------------- */

/* How long compute rests at least before op `to`, for communication of so long that begins after op `from`, where it has `more` to do than the
 * operators between. It does not where that is below 0. */
static double rests_ns(const Finder *f, double ns, int32_t from, int32_t to, double more) {
  const double meanwhile = f->ops_ns[to] - f->ops_ns[from + 1] + more;
  return meanwhile > 0 ? ns - f->pace * meanwhile : ns;
}

static void add_wait(Finder *f, int32_t from, int32_t to, double ns) {
  if (rests_ns(f, ns, from, to, 0) <= 0) return;
  const double rests = rests_ns(f, ns, from, to, filled_ns(f, from, to));
  if (rests > 0) vec_push(f->scratch, &f->waits, ((Wait){from, to, rests}));
}

static const double *sum_ops(Arena *scratch, const Skeleton *skeleton) {
  const uint32_t ops = skeleton->program->ops.count;
  double *sums = ARENA_ARRAY(scratch, double, (size_t)ops + 1);
  for (uint32_t op = 0; op < ops; op++) sums[op + 1] = sums[op] + (double)skeleton->op_ns[op];
  return sums;
}

static int32_t op_count(const Finder *f) { return (int32_t)f->in->skeleton->program->ops.count; }

static double room_at(const Finder *f, int32_t op) { return (double)f->in->room - f->live[op]; }

static double full_bytes(const Finder *f, uint32_t u) { return (double)f->in->skeleton->figures[u].full_bytes; }

/* Until its buffer is free. */
static double read_ns(const Finder *f, uint32_t u) {
  return f->in->start->shard > 1 ? terms_scatter_ns(f->in, u) : terms_replicate_ns(f->in, u);
}

static int32_t whole_with(const Finder *f, uint32_t reduction) { return f->whole[reduction]; }

static const int32_t *list_whole(Arena *scratch, const Skeleton *skeleton) {
  int32_t *whole = ARENA_ARRAY(scratch, int32_t, skeleton->reduced_count);
  for (uint32_t i = 0; i < skeleton->reduced_count; i++) whole[i] = skeleton->ops[skeleton->reduced[i]].last_gradient;
  return whole;
}

/* How many gradients are whole before op `op`. */
static uint32_t whole_before(const Finder *f, int32_t op) {
  uint32_t low = 0, high = f->in->skeleton->reduced_count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (whole_with(f, middle) < op)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Op `to` does not fit beside the gradient that is whole with op `from`: it waits for that one's reduction, and for those before it in the queue. */
static void add_reductions(Finder *f, uint32_t last) {
  const int32_t from = whole_with(f, last);
  const uint32_t u = f->in->skeleton->reduced[last];
  const double bytes = terms_gradient_bytes(f->in, u);
  const int32_t end = op_count(f) - from > LONGEST_WINDOW ? from + LONGEST_WINDOW : op_count(f);
  int32_t to = from + 1;
  double ns = read_ns(f, u);
  while (to < end && bytes <= room_at(f, to) && rests_ns(f, ns, from, to, 0) > 0) to++;
  if (to == end || bytes <= room_at(f, to)) return;
  add_wait(f, from, to, ns);
  for (uint32_t i = last; i-- > 0 && to - whole_with(f, i) <= LONGEST_WINDOW;) {
    ns += terms_scatter_ns(f->in, f->in->skeleton->reduced[i]);
    add_wait(f, whole_with(f, i), to, ns);
  }
}

/* --- gathers ---------------------------------------------------------------------------------------------------------------------- */

/* How many are looked at before one. */
static uint32_t most_before(const Finder *f) { return f->is_long ? 0 : LONGEST_CHAIN - 1; }

/* A gather of forward or of backward, in the order of use, which is that of the queue. */
typedef struct Gather {
  uint32_t unit;
  int32_t to;       /* the op that uses it first, unless what is run again does before */
  int32_t earliest; /* the first op that something is run again for which may use it */
  int32_t blocked;  /* it begins after that op has ended; PLAN_NONE: unknown */
  bool certain;     /* it is gathered in every plan */
  int32_t after;    /* the place in the order of reductions of one that must have been read before; PLAN_NONE: none */
} Gather;

typedef VEC(Gather) Gathers;

/* By unit: the first op of backward that needs it, or needs what is run again with it. */
static const int32_t *find_earliest(Finder *f) {
  const Skeleton *skeleton = f->in->skeleton;
  int32_t *earliest = ARENA_ARRAY(f->scratch, int32_t, skeleton->units->units.count);
  forget_producers(f);
  f->filled = (Filled){0};
  for (uint32_t u = 0; u < skeleton->units->units.count; u++) earliest[u] = skeleton->ops[u].first_backward;
  for (int32_t op = skeleton->program->turn; op < op_count(f); op++)
    for (uint32_t i = reach_producers(f, op); i < f->seen_count; i++) {
      const int32_t producer = f->marked[i];
      for (uint32_t at = skeleton->first[producer]; at < skeleton->first[producer + 1] && may_run_again(f, producer); at++)
        if (op < earliest[skeleton->touched[at]]) earliest[skeleton->touched[at]] = op;
    }
  forget_producers(f);
  return earliest;
}

/* Whether `second` is behind `first` in the queue whatever is run again. */
static bool is_behind(const Gather *second, const Gather *first) { return second->earliest > first->to; }

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
  uint32_t before = i, reduction = reduces ? whole_before(f, gather->to) : 0;
  double apart = backward && !f->is_long ? ns : 0;
  int32_t first = backward ? f->in->skeleton->program->turn : 0;
  if (gather->to - first > LONGEST_WINDOW) first = gather->to - LONGEST_WINDOW;
  for (int32_t op = gather->to - 1; op >= first && (apart > 0 || rests_ns(f, ns, op, gather->to, 0) > 0); op--) {
    for (; reduction > 0 && whole_with(f, reduction - 1) > op; reduction--) apart -= terms_scatter_ns(f->in, f->in->skeleton->reduced[reduction - 1]);
    if (i - before > most_before(f)) break;
    for (; before > 0 && gathers->data[before - 1].to > op; before--) {
      ns += terms_allgather_ns(f->in, gathers->data[before - 1].unit);
      if (gathers->data[before - 1].certain && is_behind(gather, &gathers->data[before - 1])) queued += full_bytes(f, gathers->data[before - 1].unit);
    }
    if (room_at(f, op) >= (gather->certain ? queued : own)) continue;
    gather->blocked = op;
    break;
  }
  if (gather->blocked < 0 && !gather->certain) return; /* it may stay */
  gather->certain = true;
  for (uint32_t j = i; j-- > 0;)
    if (gathers->data[j].certain && is_behind(gather, &gathers->data[j])) {
      if (gathers->data[j].blocked > gather->blocked) gather->blocked = gathers->data[j].blocked;
      break;
    }
}

/* Whether unit `u`, in use from op `to` on, fits nowhere from op `from` on beside the gradient of unit `other`, whole with that. */
static bool excludes(const Finder *f, uint32_t other, uint32_t u, int32_t from, int32_t to) {
  const double gradient = terms_gradient_bytes(f->in, other);
  for (int32_t op = from; op <= to && gradient > 0; op++)
    if (room_at(f, op) >= (op > from ? gradient : 0) + (op < to ? full_bytes(f, u) : 0)) return false;
  return gradient > 0;
}

/* The last gradient that is whole before its first use. */
static void find_excluded(const Finder *f, Gather *gather) {
  const uint32_t whole = whole_before(f, gather->to);
  if (whole && excludes(f, f->in->skeleton->reduced[whole - 1], gather->unit, whole_with(f, whole - 1), gather->to)) gather->after = (int32_t)whole - 1;
}

static bool any_blocked(const Gathers *gathers) {
  for (uint32_t i = 0; i < gathers->count; i++)
    if (gathers->data[i].certain && gathers->data[i].blocked >= 0) return true;
  return false;
}

static Gathers look_for_blocked(const Finder *f, Gathers gathers, bool backward, bool reduces) {
  for (uint32_t i = 0; i < gathers.count; i++) find_blocked(f, &gathers, i, backward, reduces);
  return gathers;
}

/* Whether some might be used in another order. */
static bool set_earliest(Finder *f, Gathers *gathers) {
  const int32_t *earliest = find_earliest(f);
  bool changes = false;
  for (uint32_t i = 0; i < gathers->count; i++) {
    gathers->data[i].earliest = earliest[gathers->data[i].unit];
    changes |= i > 0 && !is_behind(&gathers->data[i], &gathers->data[i - 1]);
  }
  return changes;
}

/* All of them, of forward or of backward; what is run again is looked at only where it matters: if none waits in the order of the ops none does. */
static Gathers find_gathers(Finder *f, bool backward, bool reduces) {
  Gathers gathers = look_for_blocked(f, list_gathers(f, backward), backward, reduces);
  if (!backward || !any_blocked(&gathers)) return gathers;
  if (set_earliest(f, &gathers)) {
    gathers = list_gathers(f, backward);
    (void)set_earliest(f, &gathers);
    gathers = look_for_blocked(f, gathers, backward, reduces);
  }
  for (uint32_t i = 0; i < gathers.count && reduces; i++) find_excluded(f, &gathers.data[i]);
  return gathers;
}

static void add_reduction(Finder *f, uint32_t reduction, int32_t to, double *ns) {
  *ns += terms_scatter_ns(f->in, f->in->skeleton->reduced[reduction]);
  add_wait(f, whole_with(f, reduction), to, *ns);
}

/* Gather `last`, and those before it that begin after an op: one after the other, and behind reductions that share the queue and whose gradients
 * are whole before the last may begin. */
static void add_gathers(Finder *f, const Gathers *gathers, uint32_t last, bool behind) {
  const int32_t to = gathers->data[last].to, first = to > LONGEST_WINDOW ? to - LONGEST_WINDOW : 0;
  int32_t from = gathers->data[last].blocked, earliest = to; /* of all that are counted */
  uint32_t next = behind ? whole_before(f, from) : 0;
  double ns = 0;
  const uint32_t end = last > most_before(f) ? last - most_before(f) : 0;
  for (uint32_t i = last + 1; i-- > end && from >= first;) {
    const Gather *gather = &gathers->data[i];
    if (!gather->certain) continue;
    if (gather->blocked < from) from = gather->blocked;
    for (; next > 0 && whole_with(f, next - 1) > from && whole_with(f, next - 1) >= first; next--) add_reduction(f, next - 1, to, &ns);
    if (from < first) break;
    ns += terms_allgather_ns(f->in, gather->unit);
    add_wait(f, from, to, ns);
    const int32_t whole = gather->after >= 0 ? whole_with(f, (uint32_t)gather->after) : to;
    if (whole <= from && (i == last || earliest > gather->to))
      add_wait(f, whole, to, ns + read_ns(f, f->in->skeleton->reduced[gather->after]));
    if (gather->earliest < earliest) earliest = gather->earliest;
  }
  for (; next > 0 && whole_with(f, next - 1) >= first; next--) add_reduction(f, next - 1, to, &ns);
}

/* --- the whole -------------------------------------------------------------------------------------------------------------------- */

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
    for (; reduction > 0 && whole_with(f, reduction - 1) >= op; reduction--) reduced += terms_scatter_ns(f->in, skeleton->reduced[reduction - 1]);
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

/* What gathers take beside no reduction; one that may be late could always be beside one. */
static void sum_apart(const Finder *f, const Gathers *gathers, bool reduces, Waits *out) {
  const Skeleton *skeleton = f->in->skeleton;
  const bool beside = reduces && !skeleton->shared_queue;
  if (beside && may_be_late(f->in)) return;
  const Reducing reducing = beside ? terms_reducing(f->scratch, f->in, f->pass, 0) : (Reducing){0};
  const double *live = beside ? terms_live_before(f->scratch, f->in) : NULL;
  for (uint32_t i = 0; i < gathers->count; i++) {
    const Gather *gather = &gathers->data[i];
    if (!gather->certain || gather->blocked < skeleton->program->turn) continue;
    double ns = terms_allgather_ns(f->in, gather->unit);
    for (uint32_t r = beside ? whole_before(f, gather->to) : 0; r-- > 0 && ns > 0 && reducing.end[r] > reducing.start[gather->blocked + 1];)
      ns -= beside_ns(f, &reducing, live, r, gather);
    out->apart += fmax(0, ns);
    if (!terms_may_keep(f->in, gather->unit)) out->pinned += fmax(0, ns);
  }
}

/* Those of forward, or of backward. */
static void wait_for_gathers(Finder *f, bool backward, bool reduces, Waits *out) {
  const Gathers gathers = find_gathers(f, backward, reduces);
  if (backward && !f->is_long && any_blocked(&gathers)) {
    sum_late(f, &gathers, reduces, out->late);
    sum_apart(f, &gathers, reduces, out);
  }
  for (uint32_t i = 0; i < gathers.count; i++)
    if (gathers.data[i].certain) add_gathers(f, &gathers, i, reduces && f->in->skeleton->shared_queue);
}

static void find_waits(Finder *f, Waits *out) {
  const bool reduces = f->in->start->ranks > 1 && f->pass->reduces;
  const bool gathers = f->pass->gathers && decisions_gather(f->in->start) && !f->in->start->gather_once; /* gathered once they stay, outside the room */
  for (uint32_t i = 0; i < f->in->skeleton->reduced_count && reduces; i++) add_reductions(f, i);
  if (gathers && !f->is_long) wait_for_gathers(f, false, false, out);
  wait_for_gathers(f, true, reduces, out);
}

static int by_end(const void *x, const void *y) {
  const Wait *p = x, *q = y;
  return p->to != q->to ? (p->to > q->to) - (p->to < q->to) : (p->from > q->from) - (p->from < q->from);
}

/* Of windows that do not overlap those whose rests are longest together. */
static void sum_up(const Finder *f, Waits *out) {
  const int32_t ops = op_count(f);
  const Wait **last = ARENA_ARRAY(f->scratch, const Wait *, (size_t)ops + 1); /* by where it ends; NULL: none of the best does */
  qsort(f->waits.data, f->waits.count, sizeof *f->waits.data, by_end);
  uint32_t next = 0;
  for (int32_t op = 1; op <= ops; op++) {
    out->ended[op] = out->ended[op - 1];
    for (; next < f->waits.count && f->waits.data[next].to == op; next++) {
      const Wait *wait = &f->waits.data[next];
      if (out->ended[wait->from] + wait->ns <= out->ended[op]) continue;
      out->ended[op] = out->ended[wait->from] + wait->ns;
      last[op] = wait;
    }
  }
  for (int32_t op = ops; op > 0;) {
    if (last[op]) {
      out->begun[last[op]->from + 1] = last[op]->ns;
      op = last[op]->from;
    } else {
      op--;
    }
  }
  for (int32_t op = 1; op <= ops; op++) out->begun[op] += out->begun[op - 1];
}

Waits waits_find(Arena *scratch, const BoundInput *in, const MicroPass *pass, const double *live) {
  const size_t ops = in->skeleton->program->ops.count;
  Waits out = {.begun = ARENA_ARRAY(scratch, double, ops + 1), .ended = ARENA_ARRAY(scratch, double, ops + 1), .late = ARENA_ARRAY(scratch, double, ops + 1)};
  Finder f = {.in = in, .pass = pass, .live = live, .scratch = scratch};
  f.seen = ARENA_ARRAY(scratch, bool, ops);
  f.stack = ARENA_ARRAY(scratch, int32_t, ops);
  f.marked = ARENA_ARRAY(scratch, int32_t, ops);
  if (!in->skeleton->copies_beside || in->skeleton->program->turn >= (int32_t)ops) return out; /* copies in compute's own time fill any rest */
  f.ops_ns = sum_ops(scratch, in->skeleton);
  f.whole = list_whole(scratch, in->skeleton);
  f.is_long = ops > LONG_PROGRAM;
  f.pace = terms_active_ns(in, 1) / (1 + in->start->overlap.comm_slowdown);
  find_waits(&f, &out);
  if (f.waits.count) sum_up(&f, &out);
  out.found = f.waits.count || out.apart > 0;
  return out;
}
