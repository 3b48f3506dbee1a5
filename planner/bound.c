/* Owns: bound.h. */
#include "planner/bound.h"

#include <stdlib.h>

typedef struct Slice {
  double bytes, ns; /* what keeping takes and saves */
  int32_t until;    /* the first backward op that has it live anyway */
} Slice;

typedef struct Slices {
  Slice *data; /* by ns per byte, best first */
  uint32_t count;
} Slices;

typedef struct Relaxed {
  Slices items, units;
  double compute, recompute; /* A without items; all items again */
  double comm, again;        /* B with nothing gathered twice; everything that could be */
  double contention;         /* compute lost for a second of B beside it */
} Relaxed;

/* One memory row: the slices that take room at it. */
typedef struct Row {
  Slices items, units;
  double room;
} Row;

enum { ROWS = 3, HALVINGS = 30 };

#define NEVER 1e30 /* bytes of what may not stay */

/* --- what is live at each operator whatever is decided ------------------------------------------------------------------------- */

static int32_t *first_backward_uses(Arena *scratch, const Program *program) {
  const Flow *flow = &program->flow;
  int32_t *first = ARENA_ARRAY(scratch, int32_t, program->values.count);
  for (uint32_t v = 0; v < program->values.count; v++) first[v] = PLAN_NONE;
  for (int32_t i = (int32_t)program->ops.count - 1; i >= program->turn; i--)
    for (uint32_t k = flow->first[i]; k < flow->first[i + 1]; k++) first[flow->refs[k].value] = i;
  return first;
}

static void add_range(double *delta, int32_t first, int32_t last, double bytes) {
  if (first < 0 || last < first) return;
  delta[first] += bytes;
  delta[last + 1] -= bytes;
}

static void add_values(const BoundInput *in, const int32_t *first_backward, double *delta) {
  const Program *program = in->skeleton->program;
  const Flow *flow = &program->flow;
  for (uint32_t v = 0; v < program->values.count; v++) {
    if (!flow->transient[v] || flow->first_op[v] < 0) continue;
    bool again = flow->producer[v] >= 0 && in->start->recompute[flow->producer[v]];
    add_range(delta, again ? first_backward[v] : flow->first_op[v], flow->last_op[v], (double)flow->value_bytes[v]);
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
    if (decisions_reduce(in->start) && !in->start->reduce_once) add_range(delta, ops->first_gradient, ops->last_gradient, (double)skeleton->figures[u].gradient_bytes);
  }
}

/* By op; meaningful from the turn on. */
static double *live_anyway(Arena *scratch, const BoundInput *in, const int32_t *first_backward) {
  uint32_t ops = in->skeleton->program->ops.count;
  double *live = ARENA_ARRAY(scratch, double, ops + 1), sum = 0;
  add_values(in, first_backward, live);
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
static int32_t needed_until(const BoundInput *in, const int32_t *first_backward, const Item *item) {
  const Flow *flow = &in->skeleton->program->flow;
  int32_t until = item->last;
  for (uint32_t k = flow->first[item->op]; k < flow->first[item->op + 1]; k++) {
    int32_t use = first_backward[flow->refs[k].value];
    if (flow->refs[k].writes && use >= 0 && use < until) until = use;
  }
  return until;
}

static void slice_items(Arena *scratch, const BoundInput *in, const int32_t *first_backward, Slices *out) {
  *out = (Slices){ARENA_ARRAY(scratch, Slice, in->items->count), 0};
  for (uint32_t i = 0; i < in->items->count; i++) {
    const Item *item = &in->items->data[i];
    if (item->op < 0) continue;
    out->data[out->count++] = (Slice){(double)item->bytes, (double)item->least_ns, needed_until(in, first_backward, item)};
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
    out->data[out->count++] = (Slice){bytes, gather_ns(in, u), skeleton->ops[u].first_backward};
  }
  qsort(out->data, out->count, sizeof(Slice), compare_slices);
}

/* --- rows ------------------------------------------------------------------------------------------------------------------------ */

/* Slices that take room at op `at`; equal ones as one. The others are free there. */
static Slices at_row(Arena *scratch, const Slices *all, int32_t at) {
  Slices out = {ARENA_ARRAY(scratch, Slice, all->count), 0};
  for (uint32_t i = 0; i < all->count; i++) {
    Slice slice = all->data[i];
    if (slice.until <= at && slice.bytes < NEVER) slice.bytes = 0;
    Slice *last = out.count ? &out.data[out.count - 1] : NULL;
    if (last && (last->bytes > 0) == (slice.bytes > 0) && last->ns * slice.bytes == slice.ns * last->bytes) {
      last->bytes += slice.bytes;
      last->ns += slice.ns;
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
static uint32_t choose_rows(Arena *scratch, const BoundInput *in, const Relaxed *r, const double *live, int32_t at[ROWS]) {
  const Program *program = in->skeleton->program;
  int32_t turn = program->turn, ops = (int32_t)program->ops.count, most = turn, least = turn;
  if (turn >= ops) return 0;
  double *wanted = ARENA_ARRAY(scratch, double, (size_t)ops + 1), sum = 0;
  add_demand(&r->items, turn, wanted);
  add_demand(&r->units, turn, wanted);
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

typedef struct Weighed {
  double ns, recompute; /* recompute: time that is left in A */
} Weighed;

/* Takes as much of a slice as the room holds; what it saves. */
static double take(const Slice *slice, double *room) {
  double share = slice->bytes <= *room || slice->bytes <= 0 ? 1 : *room / slice->bytes;
  *room = share < 1 ? 0 : *room - slice->bytes; /* never below zero by rounding */
  return share * slice->ns;
}

/* Least w (A + contention B) + (1 - w) B under the row. */
static Weighed weigh(const Relaxed *r, const Row *row, double w) {
  double room = row->room, a = r->compute + r->recompute, b = r->comm + r->again;
  double weight = 1 - w + w * r->contention; /* of B */
  uint32_t i = 0, u = 0;
  while (i < row->items.count || u < row->units.count) {
    const Slice *item = i < row->items.count ? &row->items.data[i] : NULL, *unit = u < row->units.count ? &row->units.data[u] : NULL;
    bool take_item = item && (!unit || item->bytes <= 0 || (unit->bytes > 0 && w * item->ns * unit->bytes >= weight * unit->ns * item->bytes));
    if (take_item)
      a -= take(item, &room), i++;
    else
      b -= take(unit, &room), u++;
  }
  return (Weighed){w * a + weight * b, a - r->compute};
}

typedef struct Most {
  double ns, w, recompute;
} Most;

/* The best weight: weigh is concave in w. */
static void maximise(const Relaxed *r, const Row *row, Most *most) {
  double low = 0, high = 1;
  for (int i = 0; i < HALVINGS; i++) {
    double a = low + (high - low) / 3, b = high - (high - low) / 3;
    if (weigh(r, row, a).ns < weigh(r, row, b).ns)
      low = a;
    else
      high = b;
  }
  double candidates[] = {(low + high) / 2, 0, 1};
  for (int i = 0; i < 3; i++) {
    Weighed weighed = weigh(r, row, candidates[i]);
    if (weighed.ns > most->ns) *most = (Most){weighed.ns, candidates[i], weighed.recompute};
  }
}

/* --- the whole ---------------------------------------------------------------------------------------------------------------------- */

static double ops_ns(const Flow *flow, int32_t first, int32_t end) {
  double ns = 0;
  for (int32_t i = first; i < end; i++) ns += (double)flow->op_ns[i];
  return ns;
}

/* The unit that is used first is waited for; the last gradient is reduced after everything. What runs meanwhile is slowed. */
static double head_and_tail(const BoundInput *in, const MicroPass *pass, double contention) {
  const Skeleton *skeleton = in->skeleton;
  int32_t ops = (int32_t)skeleton->program->ops.count, head = PLAN_NONE, tail = PLAN_NONE;
  double ns = 0, slower = 1 / (1 - contention);
  for (int32_t u = 0; u < (int32_t)skeleton->units->units.count; u++) {
    const UnitOps *of = &skeleton->ops[u];
    if (of->first_forward >= 0 && (head < 0 || of->first_forward < skeleton->ops[head].first_forward)) head = u;
    if (of->last_gradient >= 0 && (tail < 0 || of->last_gradient > skeleton->ops[tail].last_gradient)) tail = u;
  }
  if (head >= 0 && decisions_gather(in->start) && pass->gathers) {
    double wait = gather_ns(in, (uint32_t)head) - slower * ops_ns(&skeleton->program->flow, 0, skeleton->ops[head].first_forward);
    if (wait > 0) ns += wait;
  }
  if (tail >= 0 && in->start->ranks > 1 && pass->reduces) {
    double wait = reduce_ns(in, (uint32_t)tail) - slower * ops_ns(&skeleton->program->flow, skeleton->ops[tail].last_gradient + 1, ops);
    if (wait > 0) ns += wait;
  }
  return ns;
}

static double all_reductions(const BoundInput *in, const MicroPass *pass) {
  double ns = 0;
  for (uint32_t u = 0; u < in->skeleton->units->units.count && in->start->ranks > 1 && pass->reduces; u++)
    if (in->skeleton->ops[u].last_gradient >= 0) ns += reduce_ns(in, u);
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

static Relaxed relax(Arena *scratch, const BoundInput *in, const MicroPass *pass, const int32_t *first_backward) {
  Relaxed r = {.contention = in->fetch_bound ? 0 : in->start->contention < 1 ? in->start->contention : 1};
  slice_items(scratch, in, first_backward, &r.items);
  slice_units(scratch, in, &r.units);
  for (uint32_t i = 0; i < r.items.count; i++) r.recompute += r.items.data[i].ns;
  for (uint32_t i = 0; i < r.units.count; i++) r.again += r.units.data[i].ns;
  r.compute = ops_ns(&in->skeleton->program->flow, 0, (int32_t)in->skeleton->program->ops.count);
  if (r.contention < 1) r.compute += (1 - r.contention) * head_and_tail(in, pass, r.contention);
  r.comm = first_gathers(in, pass, false) + (shares_queue(in) ? all_reductions(in, pass) : 0);
  return r;
}

static void maximise_row(const BoundInput *in, const MicroPass *pass, Relaxed r, const Row *row, Most *most) {
  maximise(&r, row, most);
  if (shares_queue(in)) return;
  /* Every parameter is first gathered before the loss and every gradient reduced after it: these never run at once, so
   * compute is slowed by both, whatever is gathered again beside the reductions. */
  r.compute += r.contention * (first_gathers(in, pass, true) + all_reductions(in, pass));
  r.contention = 0;
  maximise(&r, row, most);
}

static const char *binding(const BoundInput *in, const Most *most) {
  if (most->w > 0.5) return most->recompute > 0 ? "memory through recompute" : "compute";
  return shares_queue(in) ? "communication" : "gather";
}

/* Of one micro-batch; ns below 0: nothing fits. */
typedef struct MicroBound {
  double ns;
  const char *by;
} MicroBound;

static MicroBound bound_pass(Arena *scratch, const BoundInput *in, const MicroPass *pass, const int32_t *first_backward, const double *live) {
  Relaxed r = relax(scratch, in, pass, first_backward);
  int32_t at[ROWS];
  uint32_t rows = choose_rows(scratch, in, &r, live, at);
  Most most = {-1, 0, 0};
  for (uint32_t i = 0; i < rows; i++) {
    Row row = {at_row(scratch, &r.items, at[i]), at_row(scratch, &r.units, at[i]), (double)in->room - live[at[i]]};
    if (row.room < 0) return (MicroBound){-1, "memory"};
    maximise_row(in, pass, r, &row, &most);
  }
  if (!rows) maximise(&r, &(Row){.room = 0}, &most);
  const char *by = binding(in, &most);
  double before = first_gathers(in, pass, true), after = all_reductions(in, pass); /* the loss lies between them */
  if (rows && !shares_queue(in) && before + after > most.ns) {
    most.ns = before + after;
    by = after > before ? "reduce" : "gather";
  }
  /* Schedules count whole nanoseconds, rounded down at each operator and collective. */
  most.ns -= in->skeleton->program->ops.count + 4.0 * in->skeleton->units->units.count;
  return (MicroBound){most.ns > 0 ? most.ns : 0, by};
}

/* Parameters that the host holds are fetched before they are gathered: the queue that takes longer bounds. */
static bool is_fetch_bound(const BoundInput *in) {
  double fetch = 0, gather = 0;
  for (uint32_t u = 0; u < in->skeleton->units->units.count; u++) {
    fetch += (double)in->skeleton->figures[u].fetch_ns;
    gather += (double)in->skeleton->figures[u].gather_ns / in->comm_slower;
  }
  return fetch > gather;
}

Bound bound_of(const BoundInput *input) {
  BoundInput own = *input, *in = &own;
  own.fetch_bound = is_fetch_bound(input);
  if (in->skeleton->update_bytes > in->room) return (Bound){UINT64_MAX, "memory"};
  Arena *scratch = arena_new();
  const int32_t *first_backward = first_backward_uses(scratch, in->skeleton->program);
  const double *live = live_anyway(scratch, in, first_backward);
  MicroPass passes[MICRO_PASSES];
  uint32_t count = schedule_passes(in->start, passes), most = 0;
  Bound bound = {in->update_ns, ""};
  for (uint32_t p = 0; p < count && bound.ns != UINT64_MAX; p++) {
    MicroBound micro = bound_pass(scratch, in, &passes[p], first_backward, live);
    if (passes[p].count >= passes[most].count) most = p, bound.by = micro.by;
    bound.ns = micro.ns < 0 ? UINT64_MAX : bound.ns + (uint64_t)(micro.ns * (double)passes[p].count);
  }
  if (bound.ns != UINT64_MAX) bound.ns += schedule_update_ns(in->skeleton);
  arena_free(scratch);
  return bound;
}
