/* Owns: bound_terms.h. */
#include "planner/search/bound_terms.h"

#include <math.h>

/* --- what is live at each operator whatever is decided ------------------------------------------------------------------------- */

/* Results that are kept but may be away are not there in every plan. */
static const bool *find_held(Arena *scratch, const BoundInput *in) {
  bool *held = ARENA_ARRAY(scratch, bool, in->skeleton->program->values.count);
  for (uint32_t i = 0; i < in->items->operators.count; i++)
    if (in->items->operators.data[i].held) held[in->skeleton->program->flow.moved[in->items->operators.data[i].op]] = true;
  return held;
}

/* Differences by op of what is live at it, or of what is so before it begins. */
typedef struct Spans {
  double *delta;
  int32_t later; /* 1: before it begins */
} Spans;

static void add_span(Spans spans, int32_t first, int32_t last, double bytes) {
  if (first >= 0) terms_add_range(spans.delta, first + spans.later, last, bytes);
}

static void add_values(Arena *scratch, const BoundInput *in, Spans spans) {
  const Program *program = in->skeleton->program;
  const Flow *flow = &program->flow;
  const bool *held = find_held(scratch, in);
  for (uint32_t v = 0; v < program->values.count; v++) {
    if (!flow->transient[v] || flow->first_op[v] < 0) continue;
    int32_t op = flow->producer[v];
    bool again = held[v] || (op >= 0 && (in->start->recompute[op] || (in->start->away[op] && flow->moved[op] == (int32_t)v)));
    if (again) add_span(spans, flow->first_op[v], flow->last_forward[v], (double)flow->value_bytes[v]);
    add_span(spans, again ? flow->first_backward[v] : flow->first_op[v], flow->last_op[v], (double)flow->value_bytes[v]);
  }
}

static bool is_kept(const BoundInput *in, uint32_t u) { return in->start->keep[u] || cases_assume(&in->assumed, CASE_KEPT, u); }

/* Units that are there before they are used. */
static void add_assumed(const BoundInput *in, Spans spans) {
  for (uint32_t i = 0; i < in->assumed.count; i++) {
    const Case *one = &in->assumed.data[i];
    if (one == cases_of_gather(&in->assumed, CASE_BEFORE, one->unit, one->backward))
      add_span(spans, one->op, one->use - 1, (double)in->skeleton->figures[one->unit].full_bytes);
  }
}

static void add_units(const BoundInput *in, Spans spans) {
  const Skeleton *skeleton = in->skeleton;
  add_assumed(in, spans);
  for (uint32_t u = 0; u < skeleton->units->units.count; u++) {
    const UnitOps *ops = &skeleton->ops[u];
    bool kept = is_kept(in, u) && terms_used_twice(ops);
    if (decisions_gather(in->start) && !in->start->gather_once) {
      if (!kept) add_span(spans, ops->first_forward, ops->last_forward, (double)skeleton->figures[u].full_bytes);
      add_span(spans, kept ? ops->first_forward : ops->first_backward, ops->last_backward, (double)skeleton->figures[u].full_bytes);
    }
    if (decisions_reduce(in->start) && !in->start->reduce_once) /* what it is reduced to may take the place of what the last operator read */
      add_span(spans, ops->first_gradient, ops->last_gradient, (double)skeleton->figures[u].gradient_bytes);
  }
}

static double *find_live(Arena *scratch, const BoundInput *in, int32_t later) {
  uint32_t ops = in->skeleton->program->ops.count;
  double *live = ARENA_ARRAY(scratch, double, ops + 1), sum = 0;
  add_values(scratch, in, (Spans){live, later});
  add_units(in, (Spans){live, later});
  for (uint32_t i = 0; i < ops; i++) live[i] = sum += live[i];
  return live;
}

double *terms_live(Arena *scratch, const BoundInput *in) { return find_live(scratch, in, 0); }

double *terms_live_before(Arena *scratch, const BoundInput *in) { return find_live(scratch, in, 1); }

/* --- what collectives take ------------------------------------------------------------------------------------------------------- */

/* Reductions wait for gathers and gathers for reductions; not where fetching the shards takes longer than gathering them. */
static bool shared_queue(const BoundInput *in) { return in->skeleton->shared_queue && !in->fetch_bound; }

double terms_allgather_ns(const BoundInput *in, uint32_t u) {
  return (double)in->skeleton->figures[u].gather_ns / (1 + in->start->overlap.comm_slowdown);
}

double terms_gather_ns(const BoundInput *in, uint32_t u) {
  return in->fetch_bound ? (double)in->skeleton->figures[u].fetch_ns : terms_allgather_ns(in, u);
}

/* A gradient is summed over the shard group and then over the replicas: by two communicators, or both by one. */
typedef struct ReduceQueues {
  double scattered, summed; /* when what has been issued so far is */
} ReduceQueues;

double terms_scatter_ns(const BoundInput *in, uint32_t u) {
  return (double)in->skeleton->figures[u].reduce_ns / (1 + in->start->overlap.comm_slowdown);
}

double terms_replicate_ns(const BoundInput *in, uint32_t u) {
  return (double)in->skeleton->figures[u].replicate_ns / (1 + in->start->overlap.comm_slowdown);
}

/* The next one, which is whole at `ready`. Returns when its own buffer has been read. */
static double reduce_next(const BoundInput *in, ReduceQueues *queues, double ready, uint32_t u) {
  const double taken = queues->scattered = fmax(queues->scattered, ready) + terms_scatter_ns(in, u);
  queues->summed = fmax(queues->summed, taken) + terms_replicate_ns(in, u);
  if (in->skeleton->shared_sums) queues->scattered = queues->summed;
  return in->start->shard > 1 ? taken : queues->summed;
}

double terms_ops_ns(const BoundInput *in, int32_t first, int32_t end) {
  double ns = 0;
  for (int32_t i = first; i < end; i++) ns += (double)in->skeleton->op_ns[i];
  return ns;
}

double terms_reduced_ns(const BoundInput *in, int32_t op) {
  const Skeleton *skeleton = in->skeleton;
  ReduceQueues queues = {0};
  for (uint32_t i = 0; i < skeleton->reduced_count && skeleton->ops[skeleton->reduced[i]].last_gradient < op; i++)
    (void)reduce_next(in, &queues, 0, skeleton->reduced[i]);
  return queues.summed;
}

double terms_active_ns(const BoundInput *in, double meanwhile) {
  const double kept = 1 - in->start->overlap.contention;
  return meanwhile <= 0 ? 0 : kept > 0 ? meanwhile / kept : INFINITY;
}

/* How long compute rests at least until a communicator has worked for `ns` and the host link, before or after, for `copying`, where
 * it has only operators of `meanwhile` to do. They slow each other. */
static double rests_ns(const BoundInput *in, double ns, double copying, double meanwhile) {
  double active = terms_active_ns(in, meanwhile);
  return fmax(0, copying + ns - (copying > 0 ? active : active / (1 + in->start->overlap.comm_slowdown)));
}

/* For how long compute rests, and how long of that no communicator works either. */
typedef struct Rest {
  double ns, silent;
} Rest;

/* Where nothing communicates for longer than `ns`, in which collectives take that alone. */
static Rest rest_of(double rests, double ns) { return (Rest){rests, fmax(0, rests - ns)}; }

/* What A gains by it: compute is not slowed by what communicates meanwhile. */
static double rest_ns(Rest rest, double slowed) { return (1 - slowed) * rest.ns + slowed * rest.silent; }

/* The header's c (1 + s). */
static double slowed_share(const BoundInput *in) {
  return in->fetch_bound ? 0 : fmin(1, in->start->overlap.contention * (1 + in->start->overlap.comm_slowdown));
}

/* What compute rests for at the beginning, and of that before the first operator. */
typedef struct Head {
  Rest whole, first;
} Head;

/* For units that are used first: each is fetched and gathered after those before it. Then with what compute waits for later in forward. */
static Head find_head(const BoundInput *in, const MicroPass *pass, const Waits *waits) {
  const Skeleton *skeleton = in->skeleton;
  const double slowed = slowed_share(in);
  double gathered = 0, fetched = 0, first_fetch = 0, meanwhile = 0;
  Head most = {.whole.ns = waits ? waits_between(waits, 0, skeleton->program->turn) : 0};
  if (!decisions_gather(in->start) || !pass->gathers) return most;
  for (int32_t op = 0; op < skeleton->program->turn; meanwhile += (double)skeleton->op_ns[op++])
    for (uint32_t at = skeleton->first[op]; at < skeleton->first[op + 1]; at++) {
      const uint32_t u = (uint32_t)skeleton->touched[at];
      if (skeleton->ops[u].first_forward != op) continue;
      const double gather = terms_allgather_ns(in, u), fetch = (double)skeleton->figures[u].fetch_ns;
      if (!fetched) first_fetch = fetch;
      gathered += gather;
      fetched += fetch;
      double ns = fmax(rests_ns(in, gathered, first_fetch, meanwhile), rests_ns(in, gather, fetched, meanwhile));
      Rest rest = rest_of(ns, gathered);
      if (!op && rest_ns(rest, slowed) > rest_ns(most.first, slowed)) most.first = rest;
      if (waits) rest.ns += waits_between(waits, op, skeleton->program->turn);
      if (rest_ns(rest, slowed) > rest_ns(most.whole, slowed)) most.whole = rest;
    }
  return most;
}

/* What compute rests for at the end: the reductions of the gradients from one on. */
typedef struct Tail {
  Rest rest;
  int32_t from; /* the op with which the first of those gradients is whole */
} Tail;

/* The way to the host of the gradient that is whole last, after all reductions. */
static double last_image_ns(const BoundInput *in) {
  const Skeleton *skeleton = in->skeleton;
  if (!skeleton->reduced_count || !skeleton->copies_beside) return 0;
  return (double)skeleton->figures[skeleton->reduced[skeleton->reduced_count - 1]].image_ns;
}

/* The longest of the last gradients' reductions, of those that are whole with op `settled` or later; the very last with the way of
 * its image to the host. */
static Tail tail_from(const BoundInput *in, const MicroPass *pass, int32_t settled) {
  const Skeleton *skeleton = in->skeleton;
  const double slowed = slowed_share(in), copied = last_image_ns(in);
  int32_t end = (int32_t)skeleton->program->ops.count;
  double reduced = 0, replicated = 0, meanwhile = 0; /* replicated: of them the sums over replicas alone */
  Tail most = {.from = end};
  for (uint32_t i = skeleton->reduced_count; pass->reduces && i-- > 0;) {
    uint32_t u = skeleton->reduced[i];
    bool very_last = i + 1 == skeleton->reduced_count;
    int32_t at = skeleton->ops[u].last_gradient;
    if (!very_last && at < settled) break;
    replicated += terms_replicate_ns(in, u);
    reduced = terms_scatter_ns(in, u) + (skeleton->shared_sums ? terms_replicate_ns(in, u) + reduced : fmax(replicated, reduced));
    meanwhile += terms_ops_ns(in, at + 1, end);
    end = at + 1;
    Rest rest = rest_of(rests_ns(in, reduced, copied, meanwhile), reduced);
    if (rest_ns(rest, slowed) > rest_ns(most.rest, slowed)) most = (Tail){rest, at};
  }
  return most;
}

int32_t terms_longest_tail(const BoundInput *in, const MicroPass *pass) { return tail_from(in, pass, 0).from; }

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

bool terms_gathers_again(const BoundInput *in, uint32_t u) {
  return decisions_gather(in->start) && !in->start->gather_once && !is_kept(in, u) && terms_used_twice(&in->skeleton->ops[u]);
}

bool terms_may_keep(const BoundInput *in, uint32_t u) {
  return in->may_keep && in->skeleton->units->units.data[u].reshard == SETTING_AUTO && !cases_assume(&in->assumed, CASE_AGAIN, u);
}

/* Of units that must not stay. They may be gathered again before the loss. */
static double pinned_gathers(const BoundInput *in) {
  double ns = 0;
  for (uint32_t u = 0; u < in->skeleton->units->units.count; u++)
    if (terms_gathers_again(in, u) && !terms_may_keep(in, u)) ns += terms_gather_ns(in, u);
  return ns;
}

/* The header's k. */
static double slowing(const BoundInput *in) {
  double lost = 1 - 1 / (1 + in->start->overlap.comm_slowdown), kept = 1 - in->start->overlap.contention;
  return lost < kept ? lost / kept : lost > 0;
}

/* The least time from the loss to where the first gradient is whole. */
static double first_gradient(const BoundInput *in) {
  const Skeleton *skeleton = in->skeleton;
  int32_t op = (int32_t)skeleton->program->ops.count - 1;
  for (uint32_t u = 0; u < skeleton->units->units.count; u++)
    if (skeleton->ops[u].last_gradient >= 0 && skeleton->ops[u].last_gradient < op) op = skeleton->ops[u].last_gradient;
  return terms_ops_ns(in, skeleton->program->turn, op + 1);
}

/* Of a unit's gradient, until it has been read. */
double terms_gradient_bytes(const BoundInput *in, uint32_t u) {
  return in->start->reduce_once ? 0 : (double)in->skeleton->figures[u].gradient_bytes;
}

/* Of what it is reduced to, from when it is whole until it has been summed. */
static double reduced_bytes(const BoundInput *in, uint32_t u) { return (double)schedule_reduced_bytes(in->start, &in->skeleton->figures[u]); }

Reducing terms_reducing(Arena *scratch, const BoundInput *in, const MicroPass *pass, int32_t settled) {
  const Skeleton *skeleton = in->skeleton;
  int32_t ops = (int32_t)skeleton->program->ops.count;
  Reducing out = {ARENA_ARRAY(scratch, double, (size_t)ops + 1), ARENA_ARRAY(scratch, double, skeleton->reduced_count),
                  ARENA_ARRAY(scratch, double, skeleton->reduced_count)};
  ReduceQueues queues = {0};
  for (int32_t j = skeleton->program->turn; j < ops; j++)
    out.start[j + 1] = out.start[j] + terms_active_ns(in, (double)skeleton->op_ns[j]) / (1 + in->start->overlap.comm_slowdown);
  for (uint32_t i = 0; i < skeleton->reduced_count && in->start->ranks > 1 && pass->reduces; i++) {
    uint32_t u = skeleton->reduced[i];
    if (skeleton->ops[u].last_gradient < settled) continue;
    out.taken[i] = reduce_next(in, &queues, out.start[skeleton->ops[u].last_gradient + 1], u);
    out.end[i] = queues.summed;
  }
  return out;
}

/* The first op from *gone on that starts no earlier. */
static int32_t gone_by(const BoundInput *in, const Reducing *reducing, double end, int32_t *gone) {
  while (*gone < (int32_t)in->skeleton->program->ops.count && reducing->start[*gone] < end) ++*gone;
  return *gone;
}

void terms_add_unreduced(const BoundInput *in, const Reducing *reducing, double *delta) {
  const Skeleton *skeleton = in->skeleton;
  int32_t taken = skeleton->program->turn, gone = taken;
  for (uint32_t i = 0; i < skeleton->reduced_count; i++) {
    uint32_t u = skeleton->reduced[i];
    int32_t first = skeleton->ops[u].last_gradient + 1;
    terms_add_range(delta, first, gone_by(in, reducing, reducing->taken[i], &taken) - 1, terms_gradient_bytes(in, u));
    terms_add_range(delta, first, gone_by(in, reducing, reducing->end[i], &gone) - 1, reduced_bytes(in, u));
  }
}

typedef VEC(Slice) Resting;

/* What is live until `end`, unless compute has rested for longer before. */
static void add_resting(Arena *arena, Resting *out, double bytes, double end, double *rested, int32_t at) {
  if (end <= *rested || bytes <= 0) return;
  vec_push(arena, out, ((Slice){.bytes = bytes, .ns = end - *rested, .rests = true, .until = at + 1}));
  *rested = end;
}

/* In the order in which they go. */
Slices terms_unreduced(Arena *scratch, const BoundInput *in, const Reducing *reducing, int32_t at) {
  const Skeleton *skeleton = in->skeleton;
  const uint32_t *order = skeleton->reduced;
  Resting out = {0};
  double rested = reducing->start[at];
  uint32_t count = 0, taken = 0, gone = 0;
  while (count < skeleton->reduced_count && skeleton->ops[order[count]].last_gradient < at) count++;
  while (gone < count)
    if (taken < count && reducing->taken[taken] <= reducing->end[gone]) {
      add_resting(scratch, &out, terms_gradient_bytes(in, order[taken]), reducing->taken[taken], &rested, at);
      taken++;
    } else {
      add_resting(scratch, &out, reduced_bytes(in, order[gone]), reducing->end[gone], &rested, at);
      gone++;
    }
  return (Slices){out.data, out.count};
}

/* Where a reduction waits for what it is added to, it can be put off, and so can its sum over replicas, until that slows compute no more than
 * the next gradient's sum over the shard group does anyway. */
static bool may_be_put_off(const BoundInput *in) {
  return in->start->shard > 1 && !in->skeleton->shared_sums && (in->start->offload & OFFLOAD_GRADIENTS) && decisions_adds_up(in->start);
}

/* Of comm_slowdown what counts: so much that running beside each other is no worse than one after the other. */
static double counted_slowdown(const PlanOverlap *overlap) {
  return overlap->contention > 0 ? fmin(overlap->comm_slowdown, fmax(0, 1 / overlap->contention - 1)) : overlap->comm_slowdown;
}

/* The header's backward pass with nothing but reductions: what the next gradients need must fit beside those that have not been
 * reduced. `now` is the time that communicators get on by: all but a share of that in which compute is `active`. */
double terms_reducing_ns(Arena *scratch, const BoundInput *in, const double *live) {
  const Skeleton *skeleton = in->skeleton;
  uint32_t count = skeleton->reduced_count, next = 0, taken = 0, gone = 0;
  const uint32_t *order = skeleton->reduced;
  const double kept = 1 - fmin(1, in->start->overlap.contention), slowdown = counted_slowdown(&in->start->overlap);
  const bool scattered_only = may_be_put_off(in);
  Reducing out = {NULL, ARENA_ARRAY(scratch, double, count), ARENA_ARRAY(scratch, double, count)};
  ReduceQueues queues = {0};
  double now = 0, held = 0, active = 0;
  for (int32_t j = skeleton->program->turn; j < (int32_t)skeleton->program->ops.count; j++) {
    while (gone < next) {
      bool is_gradient = taken < next && out.taken[taken] <= out.end[gone];
      double end = is_gradient ? out.taken[taken] : out.end[gone];
      if (end > now && live[j] + held <= (double)in->room) break;
      now = fmax(now, end);
      held -= is_gradient ? terms_gradient_bytes(in, order[taken++]) : reduced_bytes(in, order[gone++]);
    }
    const double work = (double)skeleton->op_ns[j], busy = (1 + slowdown) * fmax(0, queues.summed - now);
    const double ns = work <= busy * kept ? work / kept : busy + (work - busy * kept);
    now += ns / (1 + slowdown);
    active += ns;
    for (; next < count && skeleton->ops[order[next]].last_gradient == j; next++) {
      out.taken[next] = reduce_next(in, &queues, now, order[next]);
      if (scattered_only) queues.summed = out.taken[next] + (next + 1 < count ? 0 : terms_replicate_ns(in, order[next]));
      out.end[next] = queues.summed;
      held += terms_gradient_bytes(in, order[next]) + reduced_bytes(in, order[next]);
    }
  }
  return fmax(now, queues.summed) + slowdown / (1 + slowdown) * active;
}

/* Instead of rests in forward, which A and B count, what is stored. */
static Terms without_rests(Terms terms, double a, double b) {
  terms.a -= a;
  terms.before -= a;
  terms.idle -= a;
  terms.b -= b;
  terms.stores = true;
  return terms;
}

/* Likewise, where both sides begin with forward as a whole. */
static Terms after_forward(Terms terms, double ns) {
  const double less = terms.before - ns;
  terms.a -= less;
  terms.b -= less;
  terms.before = ns;
  terms.stores = true;
  terms.stores_b = 1;
  return terms;
}

/* After the last operator nothing is gathered: how long that lasts. */
static double after_gathers(const BoundInput *in, const MicroPass *pass) {
  const int32_t ops = (int32_t)in->skeleton->program->ops.count;
  const Tail very_last = tail_from(in, pass, ops);
  return very_last.from + 1 == ops ? very_last.rest.ns : 0;
}

/* The least time from the loss on by what a communicator cannot begin before some op has ended. */
static double late_ns(const BoundInput *in, const Waits *waits, double k) {
  const int32_t turn = in->skeleton->program->turn, ops = (int32_t)in->skeleton->program->ops.count;
  const double after = terms_ops_ns(in, turn, ops);
  double most = 0, whole = 0;
  for (int32_t op = turn; op < ops && waits; op++) {
    whole += (double)in->skeleton->op_ns[op];
    most = fmax(most, whole + waits->late[op] + k * (after - whole));
  }
  return most;
}

/* Beside all gathers that every plan has: once the last unit is there again, the op that uses it first is left to do, and what is after it. */
static double after_again(const BoundInput *in, const Waits *waits, double k, const Tail *tail) {
  const int32_t ops = (int32_t)in->skeleton->program->ops.count, last = waits->last_used;
  return k * terms_ops_ns(in, 0, last) + terms_ops_ns(in, last, ops) + (tail->from >= last ? tail->rest.ns + waits_between(waits, last, tail->from) : 0);
}

Pairs terms_pairs(const BoundInput *in, const MicroPass *pass, int32_t settled, const Waits *waits) {
  int32_t turn = in->skeleton->program->turn, ops = (int32_t)in->skeleton->program->ops.count;
  const bool slows = !in->fetch_bound, shared = shared_queue(in);
  const double c = slowed_share(in), k = slows ? slowing(in) : 0;
  double before = terms_ops_ns(in, 0, turn), after = terms_ops_ns(in, turn, ops), reduced = pass->reduces ? terms_reduced_ns(in, ops) : 0;
  const double gathered = first_gathers(in, pass, true), gathers = first_gathers(in, pass, false) + pinned_gathers(in);
  const double comm = gathers + (shared ? reduced : 0);
  const Tail last = tail_from(in, pass, settled), longest = tail_from(in, pass, 0);
  const Head head = find_head(in, pass, waits);
  const double idle_before = rest_ns(head.whole, c), idle_first = rest_ns(head.first, c), idle_after = rest_ns(last.rest, c);
  const double silent_before = slows ? head.whole.silent : 0, silent_first = slows ? head.first.silent : 0; /* it is fetches that are silent */
  const double forward = fmax(before + c * gathered + idle_before, gathered + k * before + silent_before);
  const double whole = fmin(after, first_gradient(in));
  Terms gather = {.a = before + after + idle_before + idle_after + c * comm,
                  .b = comm + k * (before + after) + silent_before + (shared ? last.rest.silent : after_gathers(in, pass)),
                  .before = before + c * gathers + idle_before - idle_first,
                  .idle = idle_before + idle_after,
                  .idle_by = shared ? "communication" : idle_before > idle_after ? "gather" : "reduce",
                  .reduced_a = shared ? c : 0,
                  .until = INT32_MAX,
                  .again_b = k,
                  .copying = in->skeleton->host_contention,
                  .stores = idle_before == idle_first,
                  .stores_b = k,
                  .regather_a = c,
                  .regather_b = 1,
                  .rest_a = 1 - c,
                  .idle_from = last.from,
                  .by = shared ? "communication" : "gather"};
  Terms reduce = {.a = forward + after + c * reduced + idle_after,
                  .b = forward + fmax(whole + reduced + k * (after - whole), late_ns(in, waits, k)) + last.rest.silent,
                  .before = forward,
                  .idle = gather.idle,
                  .idle_by = gather.idle_by,
                  .reduced_a = c,
                  .until = INT32_MAX,
                  .again_b = k,
                  .copying = in->skeleton->host_contention,
                  .rest_a = 1 - c,
                  .idle_from = last.from,
                  .by = "reduce"};
  Terms both = reduce; /* compute is slowed by both, whatever is gathered again beside the reductions */
  both.b = gather.b, both.regather_b = 1, both.by = gather.by;
  if (shared) { /* what is gathered again, and not there at a row, is so after the loss, beside no reduction */
    both.b = forward + reduced + k * after + last.rest.silent;
    both.regather_a = c;
  }
  if (waits) {
    reduce.a += reduce.apart_a = c * waits->apart;
    both.a += both.apart_a = c * (shared ? waits->pinned : waits->apart);
  }
  Pairs pairs = {.forward = forward, .data = {gather, reduce, both}, .count = 3};
  if (waits && waits->again > 0) {
    Terms again = gather; /* B with nothing but what every plan gathers: less than A it raises nothing, whatever is given up */
    again.b = gathered + waits->again + after_again(in, waits, k, &last);
    again.again_b = again.regather_b = again.stores_b = 0;
    if (again.b > fmax(gather.a, gather.b)) pairs.data[pairs.count++] = again;
  }
  const bool copying = !in->skeleton->copies_beside || gather.copying > 0;
  if (!gather.stores && copying) pairs.data[pairs.count++] = without_rests(gather, idle_before - idle_first, silent_before - silent_first);
  if (!shared && gather.copying > 0) pairs.data[pairs.count++] = after_forward(reduce, before + c * gathered + idle_first);
  if (!in->skeleton->copies_beside && c > 0) { /* collectives beside copies slow nothing: they might all be there */
    Terms beside = gather;
    beside.a = before + after + head.whole.ns + last.rest.ns;
    beside.before = before + head.whole.ns - head.first.ns;
    beside.regather_a = beside.reduced_a = 0;
    beside.rest_a = 1;
    pairs.data[pairs.count++] = beside;
    if (!beside.stores) pairs.data[pairs.count++] = without_rests(beside, head.whole.ns - head.first.ns, silent_before - silent_first);
  }
  if (longest.from == last.from) return pairs;
  Terms rested = shared ? gather : reduce; /* but what is run again meanwhile does not count */
  rested.a += rest_ns(longest.rest, c) - idle_after;
  rested.idle += rest_ns(longest.rest, c) - idle_after;
  rested.until = rested.idle_from = longest.from;
  pairs.data[pairs.count++] = rested;
  return pairs;
}
