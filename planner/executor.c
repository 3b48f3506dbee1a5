/* Owns: executor.h's prediction. Three passes: operators become times and kept tensors (describe), the order
 * of an FSDP step becomes a timeline of one compute and one communication queue (run_micro), and the same
 * order gives the memory at its peaks (peaks). */
#include "planner/executor.h"

#include <math.h>

/* What one unit of the pinned policy costs on one micro-batch: a block, or what lies outside of all blocks
 * (part 0: the root). */
typedef struct Part {
  const char *name;
  double numel;                        /* parameters */
  double forward, backward, recompute; /* ns */
  double head_forward, head_backward;  /* of the root: what follows the blocks */
  double operators;                    /* issued in one forward */
  double saved;                        /* bytes kept from forward to backward */
  double whole;         /* what would be kept without recompute: held while the block's backward runs */
  double widest, width; /* bytes by element-wise gradient accounting: rows x columns of the widest and of the
                           output tensor */
} Part;

typedef struct Model {
  const Graph *graph;
  const PlanSettings *settings;
  const ExecutorProfile *profile;
  const AttentionClass *attention;
  const Cluster *cluster;
  const ExecutorWorld *world;
  Rates rates;
  double element;       /* bytes of the compute dtype */
  double gathered;      /* of a gathered parameter */
  int32_t *part_of;     /* by op */
  int32_t *producer;    /* by base tensor */
  uint32_t *readers;    /* products that read a tensor */
  bool *again;          /* by op: computed again in backward */
  bool *rerun;          /* by op: again, and somebody needs it */
  bool *kept, *counted; /* by base tensor: saved; saved if nothing were recomputed */
  Part *parts;          /* [part_count], 0 is the root */
  uint32_t part_count;
  int32_t head; /* op: the product that yields the logits, or -1 */
  int32_t last_block_op;
  double logits, logit_width;
} Model;

/* --- the graph ------------------------------------------------------------------------------------------ */

static int32_t base_of(const Graph *graph, int32_t tensor) {
  int32_t view = graph->tensors.data[tensor].view_of;
  return view >= 0 ? view : tensor;
}

static double numel_of(const Model *m, int32_t tensor) {
  const Shape *shape = &m->graph->tensors.data[tensor].shape;
  return (double)shape_rows(shape, m->world->micro_batch) * (double)shape_cols(shape);
}

static double bytes_of(const Model *m, int32_t tensor) {
  int32_t producer = m->producer[tensor];
  LayerKind kind = producer >= 0 ? m->graph->ops.data[producer].kind : LAYER_LINEAR;
  bool stream = m->profile->stream_bytes > 0 && (kind == LAYER_ADD || kind == LAYER_EMBEDDING);
  return (stream ? m->profile->stream_bytes : m->element) * numel_of(m, tensor);
}

/* The outermost repeat iteration around an op, or -1. */
static int32_t block_module(const Graph *graph, int32_t op) {
  int32_t found = -1;
  for (int32_t module = graph->ops.data[op].module; module >= 0; module = graph->modules.data[module].parent)
    if (graph->modules.data[module].repeat >= 0) found = module;
  return found;
}

static void find_parts(Arena *arena, Model *m) {
  const Graph *graph = m->graph;
  int32_t *part_of_module = ARENA_ARRAY(arena, int32_t, graph->modules.count);
  m->parts = ARENA_ARRAY(arena, Part, graph->modules.count + 1);
  m->parts[0].name = "root";
  m->part_count = 1;
  m->last_block_op = -1;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    int32_t module = m->settings->wrap == WRAP_WHOLE ? -1 : block_module(graph, (int32_t)i);
    if (module >= 0 && !part_of_module[module]) {
      m->parts[m->part_count].name = graph->modules.data[module].name;
      part_of_module[module] = (int32_t)m->part_count++;
    }
    m->part_of[i] = module >= 0 ? part_of_module[module] : 0;
    if (module >= 0) m->last_block_op = (int32_t)i;
  }
  for (uint32_t p = 0; p < graph->params.count; p++) {
    const GraphParam *param = &graph->params.data[p];
    uint64_t numel = 0;
    shape_numel(&param->shape, 1, &numel);
    int32_t first = m->part_of[param->first_op];
    m->parts[first == m->part_of[param->last_op] ? first : 0].numel += (double)numel;
  }
}

static void find_tensors(Model *m) {
  const Graph *graph = m->graph;
  m->head = -1;
  for (uint32_t t = 0; t < graph->tensors.count; t++) m->producer[t] = -1;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const GraphOp *op = &graph->ops.data[i];
    m->producer[base_of(graph, op->output)] = (int32_t)i;
    if (op->kind == LAYER_LINEAR) m->readers[op->inputs[0]]++;
  }
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  if (loss->kind != LAYER_CROSS_ENTROPY) return;
  m->head = m->producer[base_of(graph, loss->inputs[0])];
  m->logits = numel_of(m, loss->inputs[0]);
  m->logit_width = (double)shape_cols(&graph->tensors.data[loss->inputs[0]].shape);
}

/* --- recompute ------------------------------------------------------------------------------------------ */

static bool by_rule(const Model *m, const GraphOp *op, bool otherwise) {
  for (uint32_t r = 0; r < m->settings->checkpoints.count; r++) {
    const CheckpointRule *rule = &m->settings->checkpoints.data[r];
    if (path_matches(rule->pattern, op->name)) otherwise = rule->recompute;
  }
  return otherwise;
}

/* torchtitan's per-operator policy keeps attention and every second product of a block. */
static void choose_again(Model *m) {
  const ExecutorSettings *executor = &m->settings->executor;
  int32_t part = 0;
  uint32_t products = 0;
  for (uint32_t i = 0; i < m->graph->ops.count; i++) {
    const GraphOp *op = &m->graph->ops.data[i];
    bool again = m->part_of[i] > 0 && m->settings->checkpoint == CHECKPOINT_FULL;
    if (m->part_of[i] != part) products = 0;
    part = m->part_of[i];
    if (op->kind == LAYER_LINEAR) products++;
    if (part > 0 && executor->selective == SELECTIVE_OPERATORS && m->settings->checkpoint != CHECKPOINT_FULL)
      again = op->kind == LAYER_LINEAR ? products % 2 == 0 : op->kind != LAYER_ATTENTION;
    if (part > 0 && executor->selective == SELECTIVE_BLOCKS) again = part % 2 == 1;
    m->again[i] = by_rule(m, op, again);
  }
}

static void need(Model *m, int32_t part, int32_t tensor);

/* An op that runs again needs its inputs, and the values it keeps. */
static void rerun(Model *m, int32_t part, int32_t index) {
  const GraphOp *op = &m->graph->ops.data[index];
  if (m->rerun[index]) return;
  m->rerun[index] = true;
  for (int32_t k = 0; k < op->input_count; k++) need(m, part, base_of(m->graph, op->inputs[k]));
}

/* Backward of an op in `part` reads this base tensor: it is kept, or computed again. */
static void need(Model *m, int32_t part, int32_t tensor) {
  int32_t producer = m->producer[tensor];
  if (m->graph->tensors.data[tensor].is_index) return;
  if (producer >= 0 && m->again[producer] && m->part_of[producer] == part) {
    rerun(m, part, producer);
    return;
  }
  if (m->kept[tensor]) return;
  m->kept[tensor] = true;
  m->parts[part].saved += bytes_of(m, tensor);
}

static void count_whole(Model *m, int32_t part, int32_t tensor) {
  if (m->counted[tensor] || m->graph->tensors.data[tensor].is_index) return;
  m->counted[tensor] = true;
  m->parts[part].whole += bytes_of(m, tensor);
}

/* Bytes that are kept beside tensors of the graph: statistics, f32 copies, expanded heads, scores. */
static double extra_kept(const Model *m, const GraphOp *op) {
  double out = numel_of(m, op->output), bytes = m->profile->layers[op->kind].extra * out;
  if (op->kind != LAYER_ATTENTION) return bytes;
  double heads = (double)op->as.attention.heads, kv = (double)op->as.attention.kv_heads;
  double rows = out / (heads * (double)op->as.attention.head_dim);
  const Shape *keys = &m->graph->tensors.data[op->inputs[1]].shape;
  double length = keys->rank > 1 ? (double)keys->dim[keys->rank - 2] : 1;
  bytes += 4 * heads * rows + m->attention->score_bytes * heads * rows * length;
  if (m->profile->expands && kv < heads) bytes += 2 * m->element * out * (1 - kv / heads);
  return bytes;
}

static void keep_tensors(Model *m, uint32_t index) {
  const GraphOp *op = &m->graph->ops.data[index];
  int32_t part = m->part_of[index];
  unsigned saves = m->profile->layers[op->kind].saves;
  for (int32_t k = 0; k < op->input_count && k < 3; k++) {
    int32_t tensor = base_of(m->graph, op->inputs[k]), producer = m->producer[tensor];
    if (!(saves & (1u << k))) continue;
    bool inside = m->profile->fused_swiglu && op->kind == LAYER_MUL && producer >= 0 &&
                  m->graph->ops.data[producer].kind == LAYER_SILU;
    if (inside) continue; /* computed from its input in registers */
    need(m, part, tensor);
    count_whole(m, part, tensor);
  }
  if (saves & SAVE_OUTPUT) {
    need(m, part, op->output);
    count_whole(m, part, op->output);
  }
  /* The policy keeps its products' outputs, needed or not. */
  bool policy =
      m->settings->executor.selective == SELECTIVE_OPERATORS && m->settings->checkpoint != CHECKPOINT_FULL;
  if (policy && part > 0 && op->kind == LAYER_LINEAR && !m->again[index]) need(m, part, op->output);
  double extra = extra_kept(m, op);
  m->parts[part].whole += extra;
  if (!m->again[index]) m->parts[part].saved += extra;
}

/* A checkpointed block keeps what it reads from outside even where no backward of its own needs it. */
static void keep_block_inputs(Model *m) {
  for (uint32_t i = 0; i < m->graph->ops.count; i++) {
    const GraphOp *op = &m->graph->ops.data[i];
    for (int32_t k = 0; k < op->input_count && m->part_of[i] > 0 && m->again[i]; k++) {
      int32_t tensor = base_of(m->graph, op->inputs[k]), producer = m->producer[tensor];
      if (producer >= 0 && m->part_of[producer] != m->part_of[i]) need(m, m->part_of[i], tensor);
    }
  }
}

/* --- times ---------------------------------------------------------------------------------------------- */

static void time_product(const Model *m, const GraphOp *op, double *forward, double *backward) {
  const GraphTensor *x = &m->graph->tensors.data[op->inputs[0]], *y = &m->graph->tensors.data[op->output];
  double rows = (double)shape_rows(&x->shape, m->world->micro_batch);
  double in = (double)shape_cols(&x->shape), out = (double)shape_cols(&y->shape);
  *forward = cost_product_ns(&m->rates, rows, out, in, m->element);
  *backward = cost_product_ns(&m->rates, rows, in, out, m->element) +
              cost_product_ns(&m->rates, out, in, rows, m->element);
  if (op->bias >= 0 && m->profile->bias_bytes > 0)
    *backward += cost_move_ns(&m->rates, m->profile->bias_bytes * rows * out);
}

static void time_attention(const Model *m, const GraphOp *op, double *forward, double *backward) {
  const ExecutorProfile *profile = m->profile;
  double heads = (double)op->as.attention.heads, kv = (double)op->as.attention.kv_heads,
         dim = (double)op->as.attention.head_dim;
  const Shape *keys = &m->graph->tensors.data[op->inputs[1]].shape;
  double q = numel_of(m, op->output), length = (double)keys->dim[keys->rank - 2];
  double flops = 4 * q * length * (op->as.attention.causal ? 0.5 : 1);
  *forward = cost_attention_ns(&m->rates, flops, length, false);
  *backward = cost_attention_ns(&m->rates, 2.5 * flops, length, true);
  double copies = profile->layout_bytes * q;
  if (kv < heads) copies += profile->expand_bytes * (q + q * kv / heads);
  copies += m->attention->score_bytes * 2 * q / dim * length; /* each score tensor written and read */
  if (copies > 0) *forward += cost_move_ns(&m->rates, copies), *backward += cost_move_ns(&m->rates, copies);
}

/* Adding up the gradients of a tensor that several products read; counted at its producer. */
static double sum_gradients(const Model *m, const GraphOp *op) {
  uint32_t readers = m->readers[op->output];
  if (readers < 2 || m->profile->sum_first <= 0) return 0;
  double bytes = m->profile->sum_first + m->profile->sum_more * (readers - 2);
  return cost_move_ns(&m->rates, bytes * numel_of(m, op->output));
}

static LossHabit loss_habit(const Model *m) {
  LossKind asked = m->settings->executor.loss;
  LossHabit habit = executor_loss(asked ? asked : m->profile->loss, m->graph->recipe.compute);
  if (!asked)
    habit = (LossHabit){habit.moved + m->profile->loss_extra.moved, habit.held + m->profile->loss_extra.held};
  if (m->settings->executor.loss_chunks > 1) habit.held /= (double)m->settings->executor.loss_chunks;
  int64_t chunk = m->graph->ops.data[m->graph->loss_op].as.cross_entropy.chunk; /* native heeds the file's */
  bool chunked = m->settings->executor.id == EXECUTOR_NATIVE && m->head >= 0 && chunk > 0;
  double rows = m->logits > 0 ? m->logits / m->logit_width : 0;
  if (chunked && rows > (double)chunk) habit.held *= (double)chunk / rows;
  return habit;
}

static void time_op(const Model *m, const GraphOp *op, double *forward, double *backward) {
  *forward = *backward = 0;
  if (op->kind == LAYER_LINEAR) time_product(m, op, forward, backward);
  if (op->kind == LAYER_ATTENTION) time_attention(m, op, forward, backward);
  double out = numel_of(m, op->output);
  if (op->kind == LAYER_CROSS_ENTROPY) {
    *forward = *backward = cost_move_ns(&m->rates, loss_habit(m).moved * m->logits / 2);
  }
  const LayerHabit *habit = &m->profile->layers[op->kind];
  if (habit->forward > 0) *forward += cost_move_ns(&m->rates, habit->forward * out);
  if (habit->backward > 0) *backward += cost_move_ns(&m->rates, habit->backward * out);
  *backward += sum_gradients(m, op);
}

static void describe_op(Model *m, uint32_t i) {
  const GraphOp *op = &m->graph->ops.data[i];
  Part *part = &m->parts[m->part_of[i]];
  double forward, backward, out = m->element * numel_of(m, op->output);
  time_op(m, op, &forward, &backward);
  if (m->part_of[i] == 0 && (int32_t)i > m->last_block_op) {
    part->head_forward += forward;
    part->head_backward += backward;
  } else {
    part->forward += forward;
    part->backward += backward;
  }
  /* Checkpointing a whole block runs all of it again, needed or not. */
  bool whole =
      m->settings->checkpoint == CHECKPOINT_FULL || m->settings->executor.selective == SELECTIVE_BLOCKS;
  if (m->again[i] && (whole || m->rerun[i])) part->recompute += forward;
  part->operators++;
  if ((int32_t)i == m->head || op->kind == LAYER_CROSS_ENTROPY) return;
  part->width = out; /* of the last op */
  if (out > part->widest) part->widest = out;
}

static void describe(Arena *arena, Model *m) {
  uint32_t ops = m->graph->ops.count, tensors = m->graph->tensors.count;
  m->part_of = ARENA_ARRAY(arena, int32_t, ops);
  m->again = ARENA_ARRAY(arena, bool, ops);
  m->rerun = ARENA_ARRAY(arena, bool, ops);
  m->producer = ARENA_ARRAY(arena, int32_t, tensors);
  m->readers = ARENA_ARRAY(arena, uint32_t, tensors);
  m->kept = ARENA_ARRAY(arena, bool, tensors);
  m->counted = ARENA_ARRAY(arena, bool, tensors);
  find_parts(arena, m);
  find_tensors(m);
  choose_again(m);
  keep_block_inputs(m);
  for (uint32_t i = 0; i < ops; i++)
    if (m->graph->ops.data[i].kind != LAYER_CROSS_ENTROPY) keep_tensors(m, i);
  for (uint32_t i = 0; i < ops; i++) describe_op(m, i);
}

/* --- communication -------------------------------------------------------------------------------------- */

typedef struct Sharding {
  Strategy strategy;
  uint32_t shard, replicas;
  bool gathers;     /* parameters are gathered by unit */
  bool regathers;   /* in backward again */
  bool scatters;    /* gradients end up sharded */
  bool reduce_each; /* micro-batch */
  double wire;      /* bytes of a gradient element on the wire */
} Sharding;

static Sharding sharding_of(const Model *m) {
  const ExecutorSettings *executor = &m->settings->executor;
  Strategy strategy = m->settings->strategy;
  if (strategy == STRATEGY_AUTO) strategy = STRATEGY_FULL_SHARD;
  if (m->world->ranks == 1) strategy = STRATEGY_NO_SHARD;
  uint32_t shard = strategy == STRATEGY_NO_SHARD ? 1 : m->world->shard;
  bool each = executor->reduce ? executor->reduce == REDUCE_MICRO_BATCH : m->profile->reduce_each;
  return (Sharding){.strategy = strategy,
                    .shard = shard,
                    .replicas = m->world->ranks / shard,
                    .gathers = shard > 1 && strategy != STRATEGY_SHARD_OPTIM,
                    .regathers = shard > 1 &&
                                 (strategy == STRATEGY_FULL_SHARD || strategy == STRATEGY_HYBRID_SHARD) &&
                                 m->settings->reshard != 0,
                    .scatters = shard > 1,
                    .reduce_each = each || m->world->accumulation == 1,
                    .wire = dtype_bytes(m->graph->recipe.reduce)};
}

static double slowed(const Model *m, double ns) {
  return ns * (1 + m->cluster->comm_slowdown);
}

static double sharded_ns(const Model *m, Collective kind, double bytes, uint32_t ranks) {
  bool native = m->settings->executor.id == EXECUTOR_NATIVE;
  return (native ? cost_group_ns : cost_flat_ns)(m->cluster, kind, bytes, ranks, 1, m->world->ranks_per_node);
}

static double gather_ns(const Model *m, const Sharding *s, double numel) {
  if (!s->gathers || numel <= 0) return 0;
  return slowed(m, sharded_ns(m, COLLECTIVE_GATHER, m->gathered * numel, s->shard));
}

static double reduce_ns(const Model *m, const Sharding *s, double numel) {
  double ns = 0, bytes = s->wire * numel;
  if (numel <= 0) return 0;
  if (s->shard > 1) ns += sharded_ns(m, COLLECTIVE_REDUCE, bytes, s->shard);
  if (s->replicas > 1)
    ns += cost_group_ns(m->cluster, COLLECTIVE_ALLREDUCE, bytes / s->shard, s->replicas, s->shard,
                        m->world->ranks_per_node);
  return slowed(m, ns);
}

/* --- the timeline --------------------------------------------------------------------------------------- */

/* One compute queue and one communication queue. Communication that was issued is known when compute over it
 * is accounted for. */
typedef struct Clocks {
  double compute, network;
  double busy_from;  /* communication runs without a pause from here to `network` (an earlier stretch ended in
                        the past) */
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

static double hosted(const Model *m, const Part *part, double device, double operators) {
  double host = operators * m->profile->host_op_ns + (m->world->ranks > 1 ? m->profile->host_unit_ns : 0);
  return part == m->parts ? device : fmax(device, host);
}

static double copies_ns(const Model *m, const Sharding *s, const Part *part, int pass) {
  double bytes = m->profile->copy_bytes[pass] * part->numel;
  return s->gathers && bytes > 0 ? cost_move_ns(&m->rates, bytes) : 0;
}

static void run_forward(const Model *m, const Sharding *s, Clocks *c, double *block_ready) {
  const Part *root = &m->parts[0];
  double gathered = communicate(c, c->compute, gather_ns(m, s, root->numel));
  for (uint32_t p = 0; p < m->part_count; p++) {
    const Part *part = &m->parts[p];
    double start = fmax(c->compute, gathered), next = start;
    if (p + 1 < m->part_count) next = communicate(c, start, gather_ns(m, s, m->parts[p + 1].numel));
    compute(c, gathered, hosted(m, part, part->forward + copies_ns(m, s, part, 0), part->operators));
    gathered = next;
  }
  *block_ready = c->compute;
}

/* The head's two passes, then blocks from last to first: the next gather goes out as a block starts, its
 * reduction as it ends. */
static void run_backward(const Model *m, const Sharding *s, Clocks *c, bool reduces) {
  const Part *root = &m->parts[0];
  uint32_t last = m->part_count - 1;
  double gathered = c->compute, numel;
  compute(c, c->compute, root->head_forward);
  if (last > 0 && s->regathers && !m->profile->keep_last)
    gathered = communicate(c, c->compute, gather_ns(m, s, m->parts[last].numel));
  compute(c, c->compute, root->head_backward);
  for (uint32_t p = last; p > 0; p--) {
    const Part *part = &m->parts[p];
    double start = fmax(c->compute, gathered), next = start;
    numel = m->parts[p - 1].numel;
    if (p > 1 && s->regathers) next = communicate(c, start, gather_ns(m, s, numel));
    double device = part->backward + part->recompute + copies_ns(m, s, part, 1);
    compute(c, gathered,
            hosted(m, part, device, 2 * part->operators + (part->recompute > 0 ? part->operators : 0)));
    if (reduces) communicate(c, c->compute, reduce_ns(m, s, part->numel));
    gathered = next;
  }
  compute(c, c->compute, root->backward);
  if (reduces) communicate(c, c->compute, reduce_ns(m, s, root->numel));
}

static double run_micro(const Model *m, const Sharding *s, bool reduces, double *exposed) {
  bool far = m->world->ranks > m->world->ranks_per_node;
  Clocks c = {.contention = far ? m->cluster->network_contention : m->cluster->contention};
  double ready;
  run_forward(m, s, &c, &ready);
  run_backward(m, s, &c, reduces);
  double end = fmax(c.compute, c.network);
  *exposed += c.exposed + end - c.compute;
  return end;
}

static double total_numel(const Model *m) {
  double numel = 0;
  for (uint32_t p = 0; p < m->part_count; p++) numel += m->parts[p].numel;
  return numel;
}

static UpdateKind update_kind(const Model *m) {
  UpdateKind kind = m->settings->executor.update;
  return kind ? kind : m->profile->update ? m->profile->update : UPDATE_FOREACH;
}

/* The optimizer, and what it waits for from host memory. */
static double update_ns(const Model *m, const Sharding *s) {
  const ExecutorSettings *executor = &m->settings->executor;
  double local = total_numel(m) / s->shard, each = executor->states == STATES_BF16 ? 2 : 4,
         link = m->cluster->device.host_link;
  double ns = cost_move_ns(&m->rates, local * executor_update_bytes(update_kind(m), executor->states)) +
              m->profile->update_ns;
  double host = 0;
  for (uint32_t bit = OFFLOAD_M; bit <= OFFLOAD_MASTER; bit *= 2)
    if (executor->offload & bit) host += local * each;
  if (link > 0) ns = fmax(ns, 1e9 * host / link);
  if (s->strategy == STRATEGY_SHARD_OPTIM && s->shard > 1)
    ns += sharded_ns(m, COLLECTIVE_GATHER, m->element * total_numel(m), s->shard);
  return ns;
}

static void predict_time(const Model *m, const Sharding *s, ExecutorPrediction *out) {
  double accumulation = (double)m->world->accumulation, quiet = 0, exposed = 0, ignored = 0;
  double with = run_micro(m, s, m->world->ranks > 1, &exposed);
  if (s->reduce_each || m->world->ranks == 1) {
    quiet = (accumulation - 1) * with;
    exposed *= accumulation;
  } else {
    quiet = (accumulation - 1) * run_micro(m, s, false, &ignored);
    exposed += (accumulation - 1) * ignored;
  }
  if (!s->reduce_each || m->world->ranks == 1)
    quiet += (accumulation - 1) * 1e9 * m->profile->accumulate_bytes * total_numel(m) / m->rates.memory;
  out->update_ns = update_ns(m, s);
  out->step_ns = with + quiet + out->update_ns;
  out->exposed_ns = exposed;
  out->head_ns = m->parts[0].head_forward + m->parts[0].head_backward;
  const GraphTensor *tokens = &m->graph->tensors.data[m->graph->inputs.data[0].tensor];
  double length = (double)(shape_rows(&tokens->shape, 1) * shape_cols(&tokens->shape));
  out->tokens_per_s_per_rank = 1e9 * length * (double)m->world->micro_batch * accumulation / out->step_ns;
  if (m->part_count < 2) return;
  const Part *block = &m->parts[1];
  out->block_forward_ns = block->forward;
  out->block_backward_ns = block->backward;
  out->block_recompute_ns = block->recompute;
  out->gather_ns = gather_ns(m, s, block->numel);
  out->reduce_ns = reduce_ns(m, s, block->numel);
}

/* --- memory --------------------------------------------------------------------------------------------- */

typedef struct Peaks {
  double forward, backward, transient, update;
} Peaks;

/* Persistent bytes of one rank without gradients, and its gradient shard. */
static double states_bytes(const Model *m, const Sharding *s, double *gradients) {
  const ExecutorSettings *executor = &m->settings->executor;
  double each = executor->states == STATES_BF16 ? 2 : 4, numel = total_numel(m), local = numel / s->shard;
  double bytes = each * (s->strategy == STRATEGY_SHARD_OPTIM ? numel : local);
  bytes += executor->offload & OFFLOAD_M ? 0 : each * local;
  bytes += executor->offload & OFFLOAD_V ? 0 : each * local;
  if (executor->offload & OFFLOAD_MASTER) bytes -= each * local;
  *gradients = each * (s->strategy == STRATEGY_SHARD_OPTIM ? numel : local);
  return bytes;
}

static double saved_bytes(const Model *m) {
  double bytes = 0;
  for (uint32_t p = 0; p < m->part_count; p++) bytes += m->parts[p].saved;
  return bytes;
}

/* Of one block's backward: values computed again, gradients of activations (6 d + 4 f), and its unit's
 * buffers. */
static double backward_transient(const Model *m, const Sharding *s, double biggest) {
  double most = 0, units = 0;
  for (uint32_t p = 1; p < m->part_count; p++) {
    const Part *part = &m->parts[p];
    double held = fmax(0, part->whole - part->saved) + 3 * part->width + 2 * part->widest;
    if (held > most) most = held;
  }
  double root = m->parts[0].numel;
  if (s->gathers) units += m->profile->live_units * m->gathered * biggest;
  if (s->scatters && s->reduce_each)
    units += m->gathered * biggest + 2 * s->wire * biggest + (m->gathered + s->wire) * root;
  if (s->scatters && !s->reduce_each)
    units += m->gathered * biggest + s->wire * biggest; /* gradients are where they accumulate */
  return most + units;
}

static Peaks peaks(const Model *m, const Sharding *s) {
  const ExecutorSettings *executor = &m->settings->executor;
  double gradients, states = states_bytes(m, s, &gradients), biggest = 0, numel = total_numel(m), kept = 0;
  bool f32_states = executor->states == STATES_F32;
  for (uint32_t p = 1; p < m->part_count; p++) biggest = fmax(biggest, m->parts[p].numel);
  double root = s->gathers || f32_states ? m->gathered * m->parts[0].numel : 0;
  double gathered = s->gathers ? m->profile->live_units * m->gathered * biggest : 0;
  if (s->gathers && !s->regathers) gathered = m->gathered * (numel - m->parts[0].numel);
  double old = m->world->accumulation > 1 ? gradients : 0; /* from earlier micro-batches */
  if (s->scatters && !s->reduce_each)
    old = (m->profile->unreduced_bytes > 0 ? m->profile->unreduced_bytes : f32_states ? 4 : 2) * numel;
  double base = states + m->profile->workspace_bytes, saved = saved_bytes(m), freed = 0, produced = 0;
  if (executor->offload & OFFLOAD_RESIDUAL)
    for (uint32_t p = 1; p < m->part_count; p++) saved -= m->parts[p].width;
  Peaks out = {.transient = backward_transient(m, s, biggest)};
  out.forward = base + old + saved + loss_habit(m).held * m->logits + root + gathered;
  for (uint32_t p = m->part_count;
       p-- > 1;) { /* backward from the last block: saved bytes fall, gradients grow */
    double grown = s->scatters ? produced / s->shard : produced;
    double each = f32_states ? 4 : 2;
    double now = base +
                 (old > 0                        ? old
                  : executor->update_in_backward ? 0
                                                 : each * grown) +
                 saved - freed + root + out.transient;
    if (now > kept) kept = now;
    freed += m->parts[p].saved;
    produced += m->parts[p].numel;
  }
  out.backward = kept;
  double held = executor->update_in_backward
                    ? 0
                    : executor_update_held(update_kind(m), executor->states) * numel / s->shard;
  out.update = base + gradients + held;
  return out;
}

static void predict_memory(const Model *m, const Sharding *s, ExecutorPrediction *out) {
  Peaks peak = peaks(m, s);
  double gradients;
  const Device *device = &m->cluster->device;
  out->states_bytes = states_bytes(m, s, &gradients);
  out->saved_bytes = saved_bytes(m);
  out->active_bytes = fmax(peak.forward, fmax(peak.backward, peak.update));
  out->reserved_bytes = out->active_bytes;
  if (m->profile->reserved_factor > 1)
    out->reserved_bytes =
        fmax(out->active_bytes, peak.forward + m->profile->reserved_factor * peak.transient);
  out->capacity_bytes =
      device->allocator_bytes ? (double)device->allocator_bytes : (double)device->memory_bytes;
  /* What allocator slack there is yields before the device is full: only live bytes must fit, and a little
   * beside them. */
  out->fits = fmin(out->reserved_bytes, 1.02 * out->active_bytes) <= out->capacity_bytes;
}

/* --- the door ------------------------------------------------------------------------------------------- */

static bool check_world(DiagSink *sink, const Graph *graph, const ExecutorWorld *world) {
  uint32_t errors = sink->errors;
  if (graph->cluster.device.kind == DEVICE_NONE)
    diag_error(sink, SPAN_NONE, "%s names no cluster, so nothing is known about time", graph->path);
  if (!world->shard || world->ranks % world->shard)
    diag_error(sink, SPAN_NONE, "%u ranks cannot be sharded in groups of %u", world->ranks, world->shard);
  if (world->ranks > world->ranks_per_node && graph->cluster.network.bandwidth <= 0)
    diag_error(sink, SPAN_NONE, "%u ranks need several nodes, but cluster \"%s\" states no network",
               world->ranks, graph->cluster.name);
  if (!graph->inputs.count || world->micro_batch < 1 || world->accumulation < 1)
    diag_error(sink, SPAN_NONE, "a prediction needs a model with inputs, and at least one sample a rank");
  return sink->errors == errors;
}

bool executor_predict(Arena *arena, DiagSink *sink, const Graph *graph, const PlanSettings *settings,
                      const ExecutorWorld *world, ExecutorPrediction *out) {
  *out = (ExecutorPrediction){0};
  if (!check_world(sink, graph, world)) return false;
  Model model = {.graph = graph,
                 .settings = settings,
                 .profile = executor_profile(settings->executor.id),
                 .attention = executor_attention(&settings->executor),
                 .cluster = &graph->cluster,
                 .world = world,
                 .rates = executor_rates(&graph->cluster, &settings->executor, graph->recipe.compute),
                 .element = dtype_bytes(graph->recipe.compute)};
  model.gathered = model.profile->gathered_bytes > 0 ? model.profile->gathered_bytes : model.element;
  describe(arena, &model);
  Sharding sharding = sharding_of(&model);
  predict_time(&model, &sharding, out);
  predict_memory(&model, &sharding, out);
  return true;
}
