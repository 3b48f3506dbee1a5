/* Owns: bound_windows.h. */
#include "planner/search/bound_windows.h"

#include <math.h>
#include <stdlib.h>

/* Of longer programs only gathers of backward are looked at, each by itself: all took a seventh of planning llama3-405b, and raised no bound. */
enum { LONG_PROGRAM = 3000 };

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

double windows_filled(Finder *f, int32_t from, int32_t to) {
  const Skeleton *skeleton = f->in->skeleton;
  if (to != f->filled.to || from > f->filled.from) {
    forget_producers(f);
    f->filled = (Filled){.from = to, .to = to};
  }
  for (; f->filled.from > from; f->filled.from--)
    f->filled.ns += f->filled.from < skeleton->program->turn ? skeleton->host_contention * (double)skeleton->program->flow.moved_ns[f->filled.from]
                                                 : add_filled(f, f->filled.from);
  return f->filled.ns;
}

const int32_t *windows_earliest(Finder *f) {
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

/* --- windows ---------------------------------------------------------------------------------------------------------------------- */

/* How long compute rests at least before op `to`, for communication of so long that begins after op `from`, where it has `more` to do than the
 * operators between. It does not where that is below 0. */
static double rests_at_pace(const Finder *f, double ns, double pace, int32_t from, int32_t to, double more) {
  const double meanwhile = f->ops_ns[to] - f->ops_ns[from + 1] + more;
  return meanwhile > 0 ? ns - pace * meanwhile : ns;
}

double windows_rest(const Finder *f, double ns, int32_t from, int32_t to) { return rests_at_pace(f, ns, f->pace, from, to, 0); }

static double add_at_pace(Finder *f, int32_t from, int32_t to, double ns, double pace) {
  if (to <= from || rests_at_pace(f, ns, pace, from, to, 0) <= 0) return 0; /* to <= from: cases that exclude each other are assumed */
  const double rests = rests_at_pace(f, ns, pace, from, to, windows_filled(f, from, to));
  if (rests > 0) vec_push(f->scratch, &f->waits, ((Wait){from, to, rests}));
  return fmax(0, rests);
}

void windows_add(Finder *f, int32_t from, int32_t to, double ns) { (void)add_at_pace(f, from, to, ns, f->pace); }

double windows_add_copies(Finder *f, int32_t from, int32_t to, double ns) { return add_at_pace(f, from, to, ns, f->copy_pace); }

static const double *sum_ops(Arena *scratch, const Skeleton *skeleton) {
  const uint32_t ops = skeleton->program->ops.count;
  double *sums = ARENA_ARRAY(scratch, double, (size_t)ops + 1);
  for (uint32_t op = 0; op < ops; op++) sums[op + 1] = sums[op] + (double)skeleton->op_ns[op];
  return sums;
}

double windows_read_ns(const Finder *f, uint32_t u) {
  return f->in->start->shard > 1 ? terms_scatter_ns(f->in, u) : terms_replicate_ns(f->in, u);
}

double windows_queued_ns(const Finder *f, uint32_t reduction) {
  const uint32_t u = f->in->skeleton->reduced[reduction];
  return terms_scatter_ns(f->in, u) + (f->in->skeleton->shared_sums ? terms_replicate_ns(f->in, u) : 0);
}

const double *windows_between(Finder *f) {
  if (!f->between) f->between = terms_live_before(f->scratch, f->in);
  return f->between;
}

static const int32_t *list_whole(Arena *scratch, const Skeleton *skeleton) {
  int32_t *whole = ARENA_ARRAY(scratch, int32_t, skeleton->reduced_count);
  for (uint32_t i = 0; i < skeleton->reduced_count; i++) whole[i] = skeleton->ops[skeleton->reduced[i]].last_gradient;
  return whole;
}

uint32_t windows_whole_before(const Finder *f, int32_t op) {
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

Finder windows_open(Arena *scratch, const BoundInput *in, const MicroPass *pass, const double *live) {
  const size_t ops = in->skeleton->program->ops.count;
  Finder f = {.in = in, .pass = pass, .live = live, .scratch = scratch};
  f.seen = ARENA_ARRAY(scratch, bool, ops);
  f.stack = ARENA_ARRAY(scratch, int32_t, ops);
  f.marked = ARENA_ARRAY(scratch, int32_t, ops);
  f.ops_ns = sum_ops(scratch, in->skeleton);
  f.whole = list_whole(scratch, in->skeleton);
  f.is_long = ops > LONG_PROGRAM;
  f.copy_pace = terms_active_ns(in, 1);
  f.pace = f.copy_pace / (1 + in->start->overlap.comm_slowdown);
  return f;
}

/* --- their sum -------------------------------------------------------------------------------------------------------------------- */

static int by_end(const void *x, const void *y) {
  const Wait *p = x, *q = y;
  return p->to != q->to ? (p->to > q->to) - (p->to < q->to) : (p->from > q->from) - (p->from < q->from);
}

void windows_sum_up(const Finder *f, Waits *out) {
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
