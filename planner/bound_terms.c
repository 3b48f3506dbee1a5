/* Owns: bound_terms.h. */
#include "planner/bound_terms.h"

#include <math.h>

/* --- what is live at each operator whatever is decided ------------------------------------------------------------------------- */

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
    terms_add_range(delta, again ? flow->first_backward[v] : flow->first_op[v], flow->last_op[v], (double)flow->value_bytes[v]);
  }
}

static void add_units(const BoundInput *in, double *delta) {
  const Skeleton *skeleton = in->skeleton;
  for (uint32_t u = 0; u < skeleton->units->units.count; u++) {
    const UnitOps *ops = &skeleton->ops[u];
    bool kept = in->start->keep[u] && terms_used_twice(ops);
    if (decisions_gather(in->start) && !in->start->gather_once)
      terms_add_range(delta, kept ? ops->first_forward : ops->first_backward, ops->last_backward, (double)skeleton->figures[u].full_bytes);
    if (!decisions_reduce(in->start)) continue;
    if (!in->start->reduce_once) terms_add_range(delta, ops->first_gradient, ops->last_gradient, (double)skeleton->figures[u].gradient_bytes);
    terms_add_range(delta, ops->last_gradient, ops->last_gradient, (double)schedule_reduced_bytes(in->start, &skeleton->figures[u]));
  }
}

double *terms_live(Arena *scratch, const BoundInput *in) {
  uint32_t ops = in->skeleton->program->ops.count;
  double *live = ARENA_ARRAY(scratch, double, ops + 1), sum = 0;
  add_values(scratch, in, live);
  add_units(in, live);
  for (uint32_t i = 0; i < ops; i++) live[i] = sum += live[i];
  return live;
}

/* --- what collectives take ------------------------------------------------------------------------------------------------------- */

/* Reductions wait for gathers and gathers for reductions; not where fetching the shards takes longer than gathering them. */
bool terms_shared_queue(const BoundInput *in) { return in->skeleton->shared_queue && !in->fetch_bound; }

double terms_gather_ns(const BoundInput *in, uint32_t u) {
  return in->fetch_bound ? (double)in->skeleton->figures[u].fetch_ns : (double)in->skeleton->figures[u].gather_ns / (1 + in->start->comm_slowdown);
}

static double reduce_ns(const BoundInput *in, uint32_t u) { return (double)in->skeleton->figures[u].reduce_ns / (1 + in->start->comm_slowdown); }

static double ops_ns(const Flow *flow, int32_t first, int32_t end) {
  double ns = 0;
  for (int32_t i = first; i < end; i++) ns += (double)flow->op_ns[i];
  return ns;
}

/* How long compute waits for the unit that is used first, fetched before it is gathered. What runs meanwhile is slowed. */
static double head_ns(const BoundInput *in, const MicroPass *pass) {
  const Skeleton *skeleton = in->skeleton;
  int32_t head = PLAN_NONE;
  for (int32_t u = 0; u < (int32_t)skeleton->units->units.count; u++) {
    int32_t first = skeleton->ops[u].first_forward;
    if (first >= 0 && (head < 0 || first < skeleton->ops[head].first_forward)) head = u;
  }
  if (head < 0 || !decisions_gather(in->start) || !pass->gathers) return 0;
  double meanwhile = ops_ns(&skeleton->program->flow, 0, skeleton->ops[head].first_forward) / (1 - in->start->contention);
  double gather = in->start->shard > 1 ? (double)skeleton->figures[head].gather_ns / (1 + in->start->comm_slowdown) : 0;
  return fmax(0, (double)skeleton->figures[head].fetch_ns + gather - meanwhile);
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
double terms_stored_ns(const BoundInput *in, const MicroPass *pass) {
  double ns = 0;
  for (uint32_t u = 0; u < in->skeleton->units->units.count && pass->reduces; u++) ns += (double)in->skeleton->figures[u].image_ns;
  return ns;
}

static double first_gathers(const BoundInput *in, const MicroPass *pass, bool forward_only) {
  double ns = 0;
  for (uint32_t u = 0; u < in->skeleton->units->units.count && decisions_gather(in->start) && pass->gathers; u++) {
    const UnitOps *ops = &in->skeleton->ops[u];
    if (ops->first_forward >= 0 || (!forward_only && ops->first_backward >= 0)) ns += terms_gather_ns(in, u);
  }
  return ns;
}

/* The header's k. */
static double slowing(const BoundInput *in) {
  double lost = 1 - 1 / (1 + in->start->comm_slowdown), kept = 1 - in->start->contention;
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

/* The header's backward pass with nothing but reductions: what the next gradients need must fit beside those that have not been
 * reduced. */
double terms_reducing_ns(Arena *scratch, const BoundInput *in, const double *live) {
  const Skeleton *skeleton = in->skeleton;
  uint32_t count = skeleton->reduced_count, next = 0, first = 0;
  const uint32_t *order = skeleton->reduced;
  double *end = ARENA_ARRAY(scratch, double, count), now = 0, held = 0, kept = 1 - fmin(1, in->start->contention);
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

Pairs terms_pairs(const BoundInput *in, const MicroPass *pass) {
  const Flow *flow = &in->skeleton->program->flow;
  int32_t turn = in->skeleton->program->turn, ops = (int32_t)in->skeleton->program->ops.count;
  bool slows = !in->fetch_bound, shared = terms_shared_queue(in);
  double c = slows ? fmin(1, in->start->contention * (1 + in->start->comm_slowdown)) : 0, k = slows ? slowing(in) : 0;
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
