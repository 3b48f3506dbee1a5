/* Owns: executor_model.h's communication and timeline: what crosses the links, and the order of an FSDP step on one compute and one
 * communication queue. */
#include "planner/executor/executor_model.h"

#include <math.h>

/* --- communication -------------------------------------------------------------------------------------------------------- */

static double slowed(const Model *m, double ns) {
  return ns * (1 + m->cluster->comm_slowdown);
}

static double sharded_ns(const Model *m, const Sharding *s, Collective kind, double bytes, uint32_t ranks) {
  bool native = m->settings->executor.id == EXECUTOR_NATIVE;
  return (native ? cost_group_ns : cost_flat_ns)(m->cluster, kind, bytes, ranks, 1, s->world->ranks_per_node);
}

static double gather_ns(const Model *m, const Sharding *s, double numel, uint32_t ranks) {
  if (!s->gathers || numel <= 0 || ranks == 1) return 0;
  return slowed(m, sharded_ns(m, s, COLLECTIVE_GATHER, m->gathered * numel, ranks));
}

static double reduce_ns(const Model *m, const Sharding *s, double numel) {
  double ns = 0, bytes = m->wire * numel;
  if (numel <= 0) return 0;
  if (s->shard > 1) ns += sharded_ns(m, s, COLLECTIVE_REDUCE, bytes, s->shard);
  if (s->replicas > 1)
    ns += cost_group_ns(m->cluster, COLLECTIVE_ALLREDUCE, bytes / s->shard, s->replicas, s->shard,
                        s->world->ranks_per_node);
  return slowed(m, ns);
}

/* In backward, from the group that kept it. */
static double regather_ns(const Model *m, const Sharding *s, uint32_t u) {
  const ExecutorUnit *unit = &s->units[u];
  if (unit->reshard == 0) return 0;
  bool partly = unit->reshard > 1 && (uint32_t)unit->reshard < s->shard;
  return gather_ns(m, s, unit->numel, partly ? (uint32_t)unit->reshard : s->shard);
}

/* Of a unit's shards, or gradients of its shards, to or from the host. */
static double link_ns(const Model *m, const Sharding *s, double numel) {
  return s->offloads ? 1e9 * m->state * numel / s->shard / m->cluster->device.host_link : 0;
}

/* Hugging Face checkpoints around FSDP's units: what a block computes again lets go of its parameters, and backward asks for them once more
 * (transformers issue 30404). */
static double gathers_again(const Model *m, const Sharding *s, uint32_t u) {
  const Part *part = &m->parts[s->units[u].first];
  return m->settings->executor.reentrant && model_is_block(m, (int32_t)s->units[u].first) && part->again ? 2 : 1;
}

/* Like units cost alike: most are. */
static void time_units(const Model *m, Sharding *s) {
  for (uint32_t u = 0; u < s->unit_count; u++) {
    const ExecutorUnit *unit = &s->units[u];
    bool alike = u > 1 && s->units[u - 1].numel == unit->numel;
    s->gather_ns[u] = alike ? s->gather_ns[u - 1] : gather_ns(m, s, unit->numel, s->shard);
    bool reduced_alike = alike && s->units[u - 1].gradient_numel == unit->gradient_numel;
    s->reduce_ns[u] = reduced_alike ? s->reduce_ns[u - 1] : s->world->ranks > 1 ? reduce_ns(m, s, unit->gradient_numel) : 0;
    double times = gathers_again(m, s, u);
    bool same = alike && s->units[u - 1].reshard == unit->reshard && gathers_again(m, s, u - 1) == times;
    s->regather_ns[u] = same ? s->regather_ns[u - 1] : times * (unit->reshard == 1 ? s->gather_ns[u] : regather_ns(m, s, u));
    s->fetch_ns[u] = link_ns(m, s, unit->numel);
    s->refetch_ns[u] = unit->reshard == 1 ? s->fetch_ns[u] : 0; /* groups keep theirs on the device */
    s->store_ns[u] = link_ns(m, s, unit->gradient_numel);
  }
}

/* What units keep between forward and backward: all of themselves, or a group's share. */
static void size_units(const Model *m, Sharding *s) {
  for (uint32_t u = 1; u < s->unit_count; u++) {
    const ExecutorUnit *unit = &s->units[u];
    bool whole = s->gathers && unit->reshard == 0, partly = s->gathers && unit->reshard > 1 && (uint32_t)unit->reshard < s->shard;
    s->whole_bytes[u] = s->whole_bytes[u - 1] + (whole ? m->gathered * unit->numel : 0);
    s->partly_bytes[u] = s->partly_bytes[u - 1] + (partly ? m->gathered * unit->numel / unit->reshard : 0);
  }
}

bool sharding_copies(const Model *m, const Sharding *s) {
  return (s->strategy == STRATEGY_SHARD_OPTIM || s->owners) && m->gathered < m->state;
}

/* The tensors of a model, and the largest of them. */
typedef struct Tensors {
  uint32_t count;
  double largest;
} Tensors;

static Tensors tensors_of(const Model *m) {
  Tensors out = {.count = m->graph->params.count};
  for (uint32_t p = 0; p < out.count; p++) {
    const Shape *shape = &m->graph->params.data[p].shape;
    out.largest = fmax(out.largest, (double)shape_rows(shape, 1) * (double)shape_cols(shape));
  }
  return out;
}

void sharding_open(Arena *arena, const Model *m, const ExecutorWorld *world, const ExecutorUnits *units, Sharding *out) {
  const ExecutorSettings *executor = &m->settings->executor;
  Strategy strategy = m->settings->strategy;
  if (strategy == STRATEGY_AUTO) strategy = STRATEGY_FULL_SHARD;
  if (world->ranks == 1) strategy = STRATEGY_NO_SHARD;
  uint32_t shard = strategy == STRATEGY_NO_SHARD ? 1 : world->shard;
  bool offloads = m->settings->offload != SETTING_AUTO && m->settings->offload;
  bool asked = executor->reduce || m->settings->reduce;
  bool each = asked ? executor->reduce == REDUCE_MICRO_BATCH || (!executor->reduce && m->settings->reduce == CADENCE_MICRO_BATCH)
                    : m->profile->reduce_each;
  int64_t prefetch = m->settings->prefetch;
  *out = (Sharding){.world = world,
                    .strategy = strategy,
                    .shard = shard,
                    .replicas = world->ranks / shard,
                    .gathers = (shard > 1 && strategy != STRATEGY_SHARD_OPTIM) || offloads,
                    .scatters = shard > 1,
                    .offloads = offloads,
                    .reduce_each = each || world->accumulation == 1,
                    .prefetch = prefetch == SETTING_AUTO ? 1 : (uint32_t)prefetch,
                    .units = units->data,
                    .unit_count = units->count,
                    .owners = (uint32_t)executor->owners,
                    .updated = executor->owners ? fmax(m->updated_numel / (double)executor->owners, tensors_of(m).largest)
                                                : m->updated_numel / shard,
                    .entry_apart = units->count > 1 && units->data[1].first == 0,
                    .exit_apart = units->count > 1 && units->data[units->count - 1].end == m->part_count};
  out->gather_ns = ARENA_ARRAY(arena, double, out->unit_count);
  out->regather_ns = ARENA_ARRAY(arena, double, out->unit_count);
  out->reduce_ns = ARENA_ARRAY(arena, double, out->unit_count);
  out->fetch_ns = ARENA_ARRAY(arena, double, out->unit_count);
  out->refetch_ns = ARENA_ARRAY(arena, double, out->unit_count);
  out->store_ns = ARENA_ARRAY(arena, double, out->unit_count);
  out->whole_bytes = ARENA_ARRAY(arena, double, out->unit_count);
  out->partly_bytes = ARENA_ARRAY(arena, double, out->unit_count);
  time_units(m, out);
  size_units(m, out);
}

/* --- the timeline --------------------------------------------------------------------------------------------------------- */

/* One compute queue and one communication queue. Communication that was issued is known when compute over it is accounted for. */
typedef struct Clocks {
  double compute, network;
  double fetched, stored; /* the link to the host, each way */
  double busy_from;  /* communication runs without a pause from here to `network` (an earlier stretch ended in the past) */
  double contention; /* compute lost for a second of overlap */
  double exposed;
} Clocks;

/* Returns when it ends. */
static double communicate(Clocks *c, double ready, double ns) {
  if (ns <= 0) return ready;
  double start = fmax(ready, c->network);
  if (start > c->network) c->busy_from = start;
  return c->network = start + ns;
}

static void compute(Clocks *c, double ready, double ns) {
  if (ready > c->compute) c->exposed += ready - c->compute;
  double start = fmax(ready, c->compute), rate = 1 - c->contention;
  double idle = fmax(0, c->busy_from - start); /* before communication starts beside it */
  double first = fmin(ns, idle), left = ns - first;
  double beside = fmax(0, c->network - fmax(start, c->busy_from));
  double done = fmin(left, beside * rate);
  c->compute = start + first + (done < left ? beside + left - done : rate > 0 ? done / rate : 0);
}

/* A block takes the longer of host and device; hooks run once a unit. */
static double hosted(const Model *m, const Sharding *s, const Part *part, double device, double operators, bool hooks) {
  double host = operators * m->profile->host_op_ns + (hooks && s->world->ranks > 1 ? m->profile->host_unit_ns : 0);
  return model_is_block(m, (int32_t)(part - m->parts)) ? fmax(device, host) : device;
}

/* A unit's hooks run around its first block, where that follows part 0 as well. */
static bool has_hooks(const ExecutorUnit *unit, uint32_t part) {
  return part == (unit->first ? unit->first : 1);
}

/* Around a unit's collectives on the compute stream, in each pass: what is gathered and what is reduced. */
static double copies_ns(const Model *m, const Sharding *s, const ExecutorUnit *unit, bool gathered, bool reduced) {
  double moved = (gathered ? m->gathered * unit->numel : 0) + (reduced ? m->wire * unit->gradient_numel : 0);
  double bytes = m->profile->copies / 2 * moved;
  return s->gathers && bytes > 0 ? cost_move_ns(&m->rates, bytes) : 0;
}

/* Issues the gather of a unit, after the fetch of its shards if they are in host memory, and returns when it can be used; no gather: it
 * is there. */
static double issue(Clocks *c, double now, double fetch_ns, double ns) {
  double ready = now;
  if (fetch_ns > 0) ready = c->fetched = fmax(now, c->fetched) + fetch_ns;
  return fmax(ready, communicate(c, ready, ns));
}

/* A unit's gradients are reduced and, where they belong in host memory, stored, in one queue. Added to what earlier micro-batches left
 * there: the copy is awaited and the sum made by the host's thread, which issues nothing meanwhile. */
static void reduce(const Model *m, const Sharding *s, Clocks *c, uint32_t unit, bool adds) {
  double done = communicate(c, fmax(c->compute, c->stored), s->reduce_ns[unit]);
  if (s->store_ns[unit] <= 0) return;
  c->stored = fmax(done, c->stored) + s->store_ns[unit];
  if (!adds) return;
  double bytes = 3 * m->state * s->units[unit].gradient_numel / s->shard;
  double added = c->stored + 1e9 * bytes / executor_host_rate(m->cluster->device.generation);
  c->exposed += fmax(0, added - c->compute);
  c->compute = fmax(c->compute, added);
}

/* Runs the units in this direction; ready[u] is when unit u can be used. A gather goes out as the unit `prefetch` uses earlier
 * starts to compute. */
typedef struct Ahead {
  double *ready;
  const double *fetch_ns, *ns;
  int32_t issued, end, step; /* last unit whose gather is out; the one after the last; +1 or -1 */
} Ahead;

static void gather_until(Clocks *c, Ahead *ahead, double now, int32_t unit) {
  while (ahead->issued != unit && ahead->issued + ahead->step != ahead->end) {
    ahead->issued += ahead->step;
    ahead->ready[ahead->issued] = issue(c, now, ahead->fetch_ns[ahead->issued], ahead->ns[ahead->issued]);
  }
}

static int32_t limited(const Ahead *ahead, int32_t unit) {
  int32_t last = ahead->end - ahead->step;
  return ahead->step > 0 ? (unit < last ? unit : last) : (unit > last ? unit : last);
}

static const Part *head_part(const Model *m) {
  return &m->parts[m->part_count - 1];
}

/* Units in order; the head where it is the root's. A root that nothing waits for is copied all the same. */
static void run_forward(const Model *m, const Sharding *s, Clocks *c, double *ready) {
  Ahead ahead = {ready, s->fetch_ns, s->gather_ns, -1, (int32_t)s->unit_count, 1};
  int32_t depth = (int32_t)s->prefetch;
  gather_until(c, &ahead, c->compute, 0);
  for (int32_t u = 0; u < (int32_t)s->unit_count; u++) {
    const ExecutorUnit *unit = &s->units[u];
    if (ahead.issued < u) gather_until(c, &ahead, c->compute, u);
    double start = fmax(c->compute, ready[u]);
    gather_until(c, &ahead, start, limited(&ahead, u + depth));
    if (unit->first == unit->end) compute(c, ready[u], copies_ns(m, s, unit, true, true));
    for (uint32_t p = unit->first; p < unit->end; p++) {
      const Part *part = &m->parts[p];
      double copies = p == unit->first ? copies_ns(m, s, unit, true, true) : 0;
      compute(c, ready[u], hosted(m, s, part, part->forward + copies, part->operators, has_hooks(unit, p)));
    }
  }
  if (!s->exit_apart) compute(c, c->compute, head_part(m)->forward);
}

static void block_backward(const Model *m, const Sharding *s, Clocks *c, const ExecutorUnit *unit, uint32_t p, double ready,
                           bool reduces) {
  const Part *part = &m->parts[p];
  bool first = p + 1 == unit->end;
  double device = part->backward + part->recompute + (first ? copies_ns(m, s, unit, unit->reshard != 0, reduces) : 0);
  compute(c, ready, hosted(m, s, part, device, part->operators_back + part->operators_again, first));
}

/* What a micro-batch does with its gradients: on to where they belong; beside those of earlier ones. */
enum { REDUCES = 1, ADDS = 2 };

/* What the root computes of its own before the head: no copies, which are made as it is gathered. */
static void root_backward(const Model *m, const Sharding *s, Clocks *c) {
  for (uint32_t p = s->units[0].end; p-- > 0;) {
    const Part *part = &m->parts[p];
    compute(c, c->compute, hosted(m, s, part, part->backward + part->recompute, part->operators_back + part->operators_again, has_hooks(&s->units[0], p)));
  }
}

static bool unit_backs(const Model *m, const ExecutorUnit *unit) {
  for (uint32_t p = unit->first; p < unit->end; p++)
    if (m->parts[p].backs) return true;
  return false;
}

/* The root is back before all others if it was let go. Then the units from last to first; a unit's reduction goes out as it ends. Units
 * below all that learns are not visited, but PyTorch gathers ahead without knowing where backward ends. */
static void run_backward(const Model *m, const Sharding *s, Clocks *c, double *ready, unsigned does) {
  bool reduces = does & REDUCES, adds = does & ADDS;
  const ExecutorUnit *root = &s->units[0];
  int32_t last = (int32_t)s->unit_count - 1, depth = (int32_t)s->prefetch;
  Ahead ahead = {ready, s->refetch_ns, s->regather_ns, last + 1, 0, -1};
  double root_ready = issue(c, c->compute, s->refetch_ns[0], s->regather_ns[0]);
  if (last > 0) gather_until(c, &ahead, c->compute, limited(&ahead, last + 1 - depth));
  compute(c, root_ready, (s->exit_apart ? 0 : head_part(m)->backward) + copies_ns(m, s, root, root->reshard != 0, false));
  for (int32_t u = last; u > 0; u--) {
    const ExecutorUnit *unit = &s->units[u];
    if (!unit_backs(m, unit)) continue;
    if (ahead.issued > u) gather_until(c, &ahead, c->compute, u);
    double start = fmax(c->compute, ready[u]);
    gather_until(c, &ahead, start, limited(&ahead, u - depth));
    for (uint32_t p = unit->end; p-- > unit->first;) block_backward(m, s, c, unit, p, ready[u], reduces);
    if (reduces) reduce(m, s, c, (uint32_t)u, adds);
  }
  root_backward(m, s, c);
  if (reduces) reduce(m, s, c, 0, adds);
}

/* Compute lost at least for a second of communication across nodes. */
static double least_contention(const Model *m) {
  return m->profile->network_contention > 0 ? m->profile->network_contention : m->cluster->network_contention;
}

/* Of the first block; the root where all is one unit. */
static uint32_t block_unit(const Sharding *s) {
  uint32_t first = s->entry_apart ? 2 : 1;
  return first < s->unit_count ? first : 0;
}

/* Compute lost for a second of communication, by what a block sends. */
static double contention_of(const Model *m, const Sharding *s) {
  const ExecutorWorld *w = s->world;
  double numel = s->units[block_unit(s)].numel;
  if (w->ranks <= w->ranks_per_node || numel <= 0) return m->cluster->contention;
  if (s->gathers && s->shard <= w->ranks_per_node)
    return cost_hybrid_contention(m->cluster, least_contention(m), m->gathered * numel, m->wire * numel, s->shard, s->replicas, w->ranks_per_node);
  Collective kind = s->gathers ? COLLECTIVE_GATHER : COLLECTIVE_ALLREDUCE;
  double bytes = numel * (s->gathers ? m->gathered : m->wire);
  uint32_t ranks = s->gathers ? s->shard : w->ranks;
  double across = cost_flat_ns(m->cluster, kind, bytes, ranks, 1, w->ranks_per_node);
  return cost_contention(m->cluster, least_contention(m), kind, bytes, ranks, 1, w->ranks_per_node, across);
}

/* A micro-batch alone. */
static double run_micro(const Model *m, const Sharding *s, double *ready, unsigned does, double *exposed) {
  Clocks c = {.contention = contention_of(m, s)};
  run_forward(m, s, &c, ready);
  run_backward(m, s, &c, ready, does);
  double end = fmax(fmax(c.compute, c.network), c.stored);
  *exposed += c.exposed + end - c.compute;
  return end;
}

/* Tables are of AdamW, which reads and writes two moments. */
static double update_share(const Model *m) {
  double adamw = executor_update_bytes(model_update(m), m->state);
  return 1 - (2 - m->moments) * 2 * m->state / adamw;
}

/* On the host too Python walks the parameters, whatever their sizes. */
static double host_update_ns(const Model *m, const Sharding *s) {
  double bytes = executor_host_update_bytes(model_update(m), m->state) * update_share(m) * s->updated;
  return 1e9 * bytes / executor_host_rate(m->cluster->device.generation) + m->profile->update_ns;
}

/* NCCL has a ring alone for broadcasts, each hop of which waits for a piece of the message: 8 us [F] by four rows of InternLM; its own
 * tables (src/graph/tuning.cc) say 3.4 within a node, 9.6 between nodes and 28 or more with the piece. */
static const double broadcast_hop_ns = 8e3;

/* What its owners updated, one broadcast after the other. */
static double broadcasts_ns(const Model *m, const Sharding *s) {
  double count = fmin(s->owners, tensors_of(m).count);
  return sharded_ns(m, s, COLLECTIVE_GATHER, m->gathered * m->updated_numel, s->owners) + count * s->owners * broadcast_hop_ns;
}

/* The optimizer, and what it waits for from host memory. */
static double update_ns(const Model *m, const Sharding *s) {
  if (s->offloads) return host_update_ns(m, s);
  const ExecutorSettings *executor = &m->settings->executor;
  double local = s->updated, each = m->state, link = m->cluster->device.host_link;
  double ns = cost_move_ns(&m->rates, local * executor_update_bytes(model_update(m), each) * update_share(m)) + m->profile->update_ns;
  bool m_away = m->moments > 0 && executor->offload & TRAINER_OFFLOADS_M, v_away = m->moments > 1 && executor->offload & TRAINER_OFFLOADS_V;
  double host = local * each * (m_away + v_away + !!(executor->offload & TRAINER_OFFLOADS_MASTER));
  if (link > 0) ns = fmax(ns, 1e9 * host / link);
  if (s->strategy == STRATEGY_SHARD_OPTIM && s->shard > 1)
    ns += sharded_ns(m, s, COLLECTIVE_GATHER, m->element * m->updated_numel, s->shard);
  return s->owners > 1 ? ns + broadcasts_ns(m, s) : ns;
}

/* Of a parameter and micro-batch: the new gradient read, the sum read and written; behind the arithmetic of a product that does so. */
static double accumulate_bytes(const Model *m) {
  if (m->settings->executor.fused_sums) return 0;
  return (m->profile->accumulates ? m->gathered : 0) + 2 * model_sum_bytes(m);
}

double step_floor_ns(const Model *m, const Sharding *s) {
  double ns = 0;
  for (uint32_t p = 0; p < m->part_count; p++) {
    const Part *part = &m->parts[p];
    ns += part->forward + part->backward + part->recompute;
  }
  return (double)s->world->accumulation * ns + (s->offloads ? host_update_ns(m, s) : 0);
}

/* Ranks meet in every collective, so a step takes as long as the slowest node makes it. */
static double straggled(const Model *m, const Sharding *s, double ns) {
  double nodes = ceil((double)s->world->ranks / s->world->ranks_per_node);
  return ns * (1 + m->profile->straggle * log2(fmax(1, nodes)));
}

void predict_time(Arena *arena, const Model *m, const Sharding *s, ExecutorPrediction *out) {
  double *ready = ARENA_ARRAY(arena, double, s->unit_count);
  double accumulation = (double)s->world->accumulation, quiet = 0, exposed = 0, ignored = 0;
  bool alone = s->world->ranks == 1 && !s->offloads, adds = s->offloads && s->reduce_each;
  double with = run_micro(m, s, ready, alone ? 0 : REDUCES, &exposed);
  if ((s->reduce_each && !adds) || alone) {
    quiet = (accumulation - 1) * with;
    exposed *= accumulation;
  } else {
    quiet = (accumulation - 1) * run_micro(m, s, ready, adds ? REDUCES | ADDS : 0, &ignored);
    exposed += (accumulation - 1) * ignored;
  }
  if (!s->reduce_each || s->world->ranks == 1)
    quiet += (accumulation - 1) * 1e9 * accumulate_bytes(m) * m->gradient_numel / m->rates.memory;
  out->update_ns = update_ns(m, s);
  out->retried_ns = accumulation * m->profile->retry_ns * retried_bytes(m, s);
  out->step_ns = straggled(m, s, with + quiet + out->retried_ns + out->update_ns);
  out->exposed_ns = exposed;
  out->head_ns = head_part(m)->forward + head_part(m)->backward;
  double tokens = fmax((double)graph_sample_tokens(m->graph), 1); /* where there are none, samples */
  out->tokens_per_s_per_rank = 1e9 * tokens * (double)m->micro_batch * accumulation / out->step_ns;
  out->mfu = m->flops * accumulation / (1e-9 * out->step_ns * m->cluster->device.peak[m->graph->recipe.compute]);
  for (uint32_t p = 0; p < m->part_count; p++) out->recompute_ns += accumulation * m->parts[p].recompute;
  if (!m->block_count) return;
  const Part *block = &m->parts[1];
  for (uint32_t p = 2; p <= m->block_count; p++)
    if (m->parts[p].recompute > block->recompute) block = &m->parts[p];
  out->block_forward_ns = block->forward;
  out->block_backward_ns = block->backward;
  out->block_recompute_ns = block->recompute;
  out->gather_ns = s->gather_ns[block_unit(s)];
  out->reduce_ns = s->reduce_ns[block_unit(s)];
}
