/* Owns: bound_waits.h. */
#include "planner/search/bound_waits.h"

#include <math.h>

/* Operators of a window at most: over links so slow that it could be longer, much else waits too, and all windows would take quadratic time. */
enum { LONGEST_WINDOW = 256 };

/* Operators (from, to): compute rests before `to`. */
typedef struct Wait {
  int32_t from, to;
  double ns;
} Wait;

typedef VEC(Wait) WaitList;

typedef struct Finder {
  const BoundInput *in;
  const MicroPass *pass;
  const double *live;
  Arena *scratch;
  bool *seen;              /* by forward op: counted in the window that is looked at */
  int32_t *marked, *stack; /* those that are seen; those of them whose own inputs have not been looked at */
  uint32_t seen_count;
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

/* At most what is run again, and lost to copies, for ops (from, to]. */
static double filled_ns(Finder *f, int32_t from, int32_t to) {
  const Skeleton *skeleton = f->in->skeleton;
  double ns = 0;
  for (int32_t op = from + 1; op <= to; op++) {
    uint32_t depth = 0;
    mark_producers(f, op, &depth);
    while (depth) {
      const int32_t producer = f->stack[--depth];
      ns += skeleton->host_contention * (double)skeleton->program->flow.moved_ns[producer];
      if (!may_run_again(f, producer)) continue;
      ns += (double)skeleton->op_ns[producer];
      mark_producers(f, producer, &depth);
    }
  }
  while (f->seen_count) f->seen[f->marked[--f->seen_count]] = false;
  return ns;
}

/* --- windows ---------------------------------------------------------------------------------------------------------------------- */

/* What takes so long begins after op `from`, and op `to` waits for it. */
static void add_wait(Finder *f, int32_t from, int32_t to, double ns) {
  const double meanwhile = terms_ops_ns(f->in, from + 1, to);
  if (terms_rests_ns(f->in, ns, meanwhile) <= 0) return;
  const double rests = terms_rests_ns(f->in, ns, meanwhile + filled_ns(f, from, to));
  if (rests > 0) vec_push(f->scratch, &f->waits, ((Wait){from, to, rests}));
}

static int32_t op_count(const Finder *f) { return (int32_t)f->in->skeleton->program->ops.count; }

/* Until its buffer is free. */
static double read_ns(const Finder *f, uint32_t u) {
  return f->in->start->shard > 1 ? terms_scatter_ns(f->in, u) : terms_replicate_ns(f->in, u);
}

/* Op `to` does not fit beside the gradient that is whole with op `from`. */
static void add_reduction(Finder *f, uint32_t u) {
  const int32_t from = f->in->skeleton->ops[u].last_gradient;
  const double bytes = terms_gradient_bytes(f->in, u), ns = read_ns(f, u);
  const int32_t end = op_count(f) - from > LONGEST_WINDOW ? from + LONGEST_WINDOW : op_count(f);
  double meanwhile = 0;
  for (int32_t to = from + 1; to < end && terms_rests_ns(f->in, ns, meanwhile) > 0; meanwhile += (double)f->in->skeleton->op_ns[to++])
    if (f->live[to] + bytes > (double)f->in->room) {
      add_wait(f, from, to, ns);
      return;
    }
}

/* Whether unit `u`, in use from op `to` on, fits nowhere from op `from` on beside the gradient of unit `other`, whole with that. */
static bool excludes(const Finder *f, uint32_t other, uint32_t u, int32_t from, int32_t to) {
  const double gradient = terms_gradient_bytes(f->in, other), full = (double)f->in->skeleton->figures[u].full_bytes;
  for (int32_t op = from; op <= to && gradient > 0; op++)
    if (f->live[op] + (op > from ? gradient : 0) + (op < to ? full : 0) <= (double)f->in->room) return false;
  return gradient > 0;
}

/* The last op before its first use that it does not fit beside; if that is near enough for compute to rest. */
static void add_gather(Finder *f, uint32_t u) {
  const Skeleton *skeleton = f->in->skeleton;
  const int32_t to = skeleton->ops[u].first_backward;
  const double ns = terms_allgather_ns(f->in, u), full = (double)skeleton->figures[u].full_bytes;
  const int32_t turn = skeleton->program->turn, first = to - turn > LONGEST_WINDOW ? to - LONGEST_WINDOW : turn;
  double meanwhile = 0;
  for (int32_t from = to - 1; from >= first && terms_rests_ns(f->in, ns, meanwhile) > 0; meanwhile += (double)skeleton->op_ns[from--])
    if (f->live[from] + full > (double)f->in->room) {
      add_wait(f, from, to, ns);
      return;
    }
}

/* How many gradients are whole before op `op`. */
static uint32_t whole_before(const Skeleton *skeleton, int32_t op) {
  uint32_t low = 0, high = skeleton->reduced_count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (skeleton->ops[skeleton->reduced[middle]].last_gradient < op)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The last gradient that is whole before the first use of unit `u`. */
static void add_gather_after(Finder *f, uint32_t u) {
  const Skeleton *skeleton = f->in->skeleton;
  const int32_t to = skeleton->ops[u].first_backward;
  const uint32_t whole = whole_before(skeleton, to);
  if (!whole) return;
  const uint32_t other = skeleton->reduced[whole - 1];
  const int32_t from = skeleton->ops[other].last_gradient;
  if (excludes(f, other, u, from, to)) add_wait(f, from, to, read_ns(f, other) + terms_allgather_ns(f->in, u));
}

/* --- the whole -------------------------------------------------------------------------------------------------------------------- */

static void find_waits(Finder *f) {
  const Skeleton *skeleton = f->in->skeleton;
  const bool reduces = f->in->start->ranks > 1 && f->pass->reduces;
  for (uint32_t i = 0; i < skeleton->reduced_count && reduces; i++) add_reduction(f, skeleton->reduced[i]);
  for (uint32_t u = 0; u < skeleton->units->units.count; u++) {
    if (!terms_gathers_again(f->in, u)) continue;
    add_gather(f, u);
    if (reduces) add_gather_after(f, u);
  }
}

/* Of windows that do not overlap those whose rests are longest together. */
static void sum_up(const Finder *f, Waits *out) {
  const int32_t ops = op_count(f);
  Wait *longest = ARENA_ARRAY(f->scratch, Wait, (size_t)ops + 1); /* by where it ends */
  for (uint32_t i = 0; i < f->waits.count; i++) {
    const Wait *wait = &f->waits.data[i];
    if (wait->ns > longest[wait->to].ns) longest[wait->to] = *wait;
  }
  for (int32_t op = 1; op <= ops; op++)
    out->ended[op] = fmax(out->ended[op - 1], longest[op].ns > 0 ? out->ended[longest[op].from] + longest[op].ns : 0);
  for (int32_t op = ops; op > 0;) {
    if (out->ended[op] > out->ended[op - 1]) {
      out->begun[longest[op].from + 1] = longest[op].ns;
      op = longest[op].from;
    } else {
      op--;
    }
  }
  for (int32_t op = 1; op <= ops; op++) out->begun[op] += out->begun[op - 1];
}

Waits waits_find(Arena *scratch, const BoundInput *in, const MicroPass *pass, const double *live) {
  const size_t ops = in->skeleton->program->ops.count;
  Waits out = {ARENA_ARRAY(scratch, double, ops + 1), ARENA_ARRAY(scratch, double, ops + 1)};
  Finder f = {.in = in, .pass = pass, .live = live, .scratch = scratch};
  f.seen = ARENA_ARRAY(scratch, bool, ops);
  f.stack = ARENA_ARRAY(scratch, int32_t, ops);
  f.marked = ARENA_ARRAY(scratch, int32_t, ops);
  if (!in->skeleton->copies_beside || in->skeleton->program->turn >= (int32_t)ops) return out; /* copies in compute's own time fill any rest */
  find_waits(&f);
  if (f.waits.count) sum_up(&f, &out);
  return out;
}
