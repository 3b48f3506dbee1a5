/* Owns: executor_model.h's description: operators become times and kept tensors, block by block. */
#include "planner/executor/executor_model.h"

#include <math.h>

/* --- the graph ------------------------------------------------------------------------------------------ */

static int32_t base_of(const Graph *graph, int32_t tensor) {
  int32_t view = graph->tensors.data[tensor].view_of;
  return view >= 0 ? view : tensor;
}

static double numel_of(const Model *m, int32_t tensor) {
  const Shape *shape = &m->graph->tensors.data[tensor].shape;
  return (double)shape_rows(shape, m->micro_batch) * (double)shape_cols(shape);
}

/* Profiles state the bytes that kernels move for tensors of 16 bits. */
static double scaled(const Model *m, double bytes) {
  return bytes * m->element / 2;
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
  int32_t last_block_op = -1;
  m->parts = ARENA_ARRAY(arena, Part, graph->modules.count + 2);
  m->first_block_op = (int32_t)graph->ops.count;
  for (int32_t i = 0; i < (int32_t)graph->ops.count; i++) {
    int32_t module = block_module(graph, i);
    if (module >= 0 && !part_of_module[module]) {
      part_of_module[module] = (int32_t)++m->block_count;
      m->parts[m->block_count].name = graph->modules.data[module].name;
      m->parts[m->block_count].first_op = (uint32_t)i;
    }
    m->part_of[i] = module >= 0 ? part_of_module[module] : 0;
    if (module < 0) continue;
    m->parts[m->part_of[i]].end_op = (uint32_t)i + 1;
    if (last_block_op < 0) m->first_block_op = i;
    last_block_op = i;
  }
  m->part_count = m->block_count + 2;
  for (uint32_t i = (uint32_t)(last_block_op + 1); i < graph->ops.count; i++) m->part_of[i] = (int32_t)m->block_count + 1;
}

/* --- what learns ---------------------------------------------------------------------------------------- */

static Part *part_of_param(const Model *m, const GraphParam *param) {
  int32_t first = m->part_of[param->first_op];
  return &m->parts[model_is_block(m, first) && first == m->part_of[param->last_op] ? first : 0];
}

/* A flat unit (FSDP1) has one gradient for all of it where any of it learns; else what is frozen has none. */
static void find_params(Model *m) {
  const Graph *graph = m->graph;
  for (uint32_t p = 0; p < graph->params.count; p++) {
    const GraphParam *param = &graph->params.data[p];
    uint64_t numel = 0;
    shape_numel(&param->shape, 1, &numel);
    part_of_param(m, param)->numel += (double)numel;
    part_of_param(m, param)->updated_numel += param->frozen ? 0 : (double)numel;
  }
  for (uint32_t p = 0; p < graph->params.count; p++) {
    const GraphParam *param = &graph->params.data[p];
    m->graded[p] = !param->frozen || (m->profile->flat_units && part_of_param(m, param)->updated_numel > 0);
    uint64_t numel = 0;
    shape_numel(&param->shape, 1, &numel);
    part_of_param(m, param)->gradient_numel += m->graded[p] ? (double)numel : 0;
  }
  for (uint32_t p = 0; p < m->part_count; p++) {
    m->numel += m->parts[p].numel;
    m->gradient_numel += m->parts[p].gradient_numel;
    m->updated_numel += m->parts[p].updated_numel;
  }
}

static bool graded(const Model *m, int32_t param) {
  return param >= 0 && m->graded[param];
}

static bool flows_into(const Model *m, const GraphOp *op, int32_t input) {
  return m->flows[base_of(m->graph, op->inputs[input])];
}

/* Autograd records the op: its output's gradient is asked for. */
static bool backs(const Model *m, const GraphOp *op) {
  return m->flows[base_of(m->graph, op->output)];
}

/* Gradients flow from whatever learns to the loss: below the lowest of them backward ends. */
static void find_flows(Model *m) {
  for (uint32_t i = 0; i < m->graph->ops.count; i++) {
    const GraphOp *op = &m->graph->ops.data[i];
    bool flows = graded(m, op->weight) || graded(m, op->bias);
    for (int32_t k = 0; k < op->input_count; k++) flows |= flows_into(m, op, k);
    m->flows[base_of(m->graph, op->output)] |= flows;
    m->parts[m->part_of[i]].backs |= flows;
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

static uint32_t components(const char *path) {
  uint32_t count = 1;
  for (; *path; path++) count += *path == '.';
  return count;
}

/* The block of this name or 0, sought from behind `after` on: rules that name blocks tend to do so in order, and there are many. */
static uint32_t block_named(const Model *m, const char *name, uint32_t after) {
  for (uint32_t i = 0; i < m->block_count; i++) {
    uint32_t p = 1 + (after + i) % m->block_count;
    if (!strcmp(m->parts[p].name, name)) return p;
  }
  return 0;
}

/* Whether the pattern is a block's name, which is then *block. */
static bool heed_name(Model *m, const CheckpointRule *rule, uint32_t *block) {
  uint32_t named = block_named(m, rule->pattern, *block);
  if (!named) return false;
  for (uint32_t i = m->parts[named].first_op; i < m->parts[named].end_op; i++)
    if (m->part_of[i] == (int32_t)named) m->again[i] = rule->recompute;
  *block = named;
  return true;
}

/* A pattern no deeper than a block's name is of all of the block or none of it: like policies name blocks. */
static void heed_pattern(Model *m, const CheckpointRule *rule) {
  uint32_t depth = components(rule->pattern);
  int32_t part = 0;
  bool whole = false, hit = false;
  for (uint32_t i = 0; i < m->graph->ops.count; i++) {
    if (m->part_of[i] != part) {
      part = m->part_of[i];
      whole = model_is_block(m, part) && components(m->parts[part].name) >= depth;
      hit = whole && path_matches(rule->pattern, m->parts[part].name);
    }
    if (whole ? hit : path_matches(rule->pattern, m->graph->ops.data[i].name)) m->again[i] = rule->recompute;
  }
}

enum { NO_CHILD = -1 };

/* Which of a block's modules an op belongs to. A norm that the block itself calls is a module in PyTorch, numbered here by its op. */
static int32_t child_of(const Graph *graph, int32_t op) {
  int32_t block = block_module(graph, op), module = graph->ops.data[op].module;
  LayerKind kind = graph->ops.data[op].kind;
  if (block < 0) return NO_CHILD;
  if (module == block) return kind == LAYER_RMSNORM || kind == LAYER_LAYERNORM ? (int32_t)graph->modules.count + op : NO_CHILD;
  while (graph->modules.data[module].parent != block) module = graph->modules.data[module].parent;
  return module;
}

/* torchtitan's per-operator policy keeps attention and every second product of a block. */
static void choose_again(Model *m) {
  const ExecutorSettings *executor = &m->settings->executor;
  int32_t part = 0;
  uint32_t products = 0;
  for (uint32_t i = 0; i < m->graph->ops.count; i++) {
    const GraphOp *op = &m->graph->ops.data[i];
    bool block = model_is_block(m, m->part_of[i]), again = block && m->settings->checkpoint == CHECKPOINT_FULL;
    if (m->part_of[i] != part) products = 0;
    part = m->part_of[i];
    if (op->kind == LAYER_LINEAR) products++;
    if (block && executor->selective == SELECTIVE_OPERATORS && m->settings->checkpoint != CHECKPOINT_FULL)
      again = op->kind == LAYER_LINEAR ? products % 2 == 0 : op->kind != LAYER_ATTENTION;
    if (block && executor->selective == SELECTIVE_BLOCKS) again = part % 2 == 1;
    if (block && executor->selective == SELECTIVE_MODULES) again = child_of(m->graph, (int32_t)i) != NO_CHILD;
    m->again[i] = again;
  }
  uint32_t block = 0;
  for (uint32_t r = 0; r < m->settings->checkpoints.count; r++) { /* later rules win */
    const CheckpointRule *rule = &m->settings->checkpoints.data[r];
    if (!heed_name(m, rule, &block)) heed_pattern(m, rule);
  }
  for (uint32_t p = 1; p <= m->block_count; p++) m->parts[p].again = true;
  for (uint32_t i = 0; i < m->graph->ops.count; i++)
    if (!m->again[i]) m->parts[m->part_of[i]].again = false;
}

/* Whether both ops run again together: checkpointed as one, a block or a module of it. */
static bool same_region(const Model *m, int32_t a, int32_t b) {
  if (m->part_of[a] != m->part_of[b]) return false;
  return m->settings->executor.selective != SELECTIVE_MODULES || child_of(m->graph, a) == child_of(m->graph, b);
}

static void need(Model *m, int32_t reader, int32_t tensor);

/* An op that runs again needs its inputs, and the values it keeps. */
static void rerun(Model *m, int32_t index) {
  const GraphOp *op = &m->graph->ops.data[index];
  if (m->rerun[index]) return;
  m->rerun[index] = true;
  for (int32_t k = 0; k < op->input_count; k++) need(m, index, base_of(m->graph, op->inputs[k]));
}

/* Backward of the op `reader`, or its second run, reads this base tensor: it is kept, or computed again. */
static void need(Model *m, int32_t reader, int32_t tensor) {
  int32_t producer = m->producer[tensor], part = m->part_of[reader];
  if (m->graph->tensors.data[tensor].is_index) return;
  if (producer >= 0 && m->again[producer] && same_region(m, producer, reader)) {
    rerun(m, producer);
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

/* Bytes that are kept beside tensors of the graph: statistics, f32 copies, scores. */
static double extra_kept(const Model *m, const GraphOp *op) {
  const LayerHabit *habit = executor_layer(&m->settings->executor, op->kind);
  /* Where everything is f32 a copy in f32 is the tensor itself: one less beside it, and no narrower values in place of it. */
  double wider = m->element - 2, each = habit->extra;
  if (habit->upcasts) each = habit->saves ? fmax(0, each - wider) : each > 0 ? each + wider : 0;
  double out = numel_of(m, op->output), bytes = each * out;
  if (op->kind != LAYER_ATTENTION) return bytes;
  double heads = (double)op->as.attention.heads;
  double rows = out / (heads * (double)op->as.attention.head_dim);
  const Shape *keys = &m->graph->tensors.data[op->inputs[1]].shape;
  double length = keys->rank > 1 ? (double)keys->dim[keys->rank - 2] : 1;
  return bytes + 4 * heads * rows + m->attention->score_bytes * heads * rows * length;
}

/* Keys and values at the width of q where heads share them, and what a packed product made of them and q. They come again with the keys
 * they are copied from. */
static double expanded_kept(const Model *m, const GraphOp *op) {
  bool packed = m->settings->executor.packed;
  if (op->kind != LAYER_ATTENTION || !(m->profile->expands || packed)) return 0;
  double heads = (double)op->as.attention.heads, kv = (double)op->as.attention.kv_heads;
  double expanded = 2 * fmax(0, 1 - kv / heads), product = packed ? 1 + 2 * kv / heads : 0;
  return m->element * numel_of(m, op->output) * (expanded + product);
}

static bool expands_again(const Model *m, const GraphOp *op) {
  int32_t producer = op->input_count > 1 ? m->producer[base_of(m->graph, op->inputs[1])] : -1;
  return producer >= 0 && m->again[producer];
}

/* A product reads its input in backward for its weight's gradient only. */
static unsigned saves_of(const Model *m, const GraphOp *op) {
  bool reads = op->kind != LAYER_LINEAR || graded(m, op->weight);
  return reads ? executor_layer(&m->settings->executor, op->kind)->saves : 0;
}

static void keep_tensors(Model *m, uint32_t index) {
  const GraphOp *op = &m->graph->ops.data[index];
  int32_t part = m->part_of[index];
  unsigned saves = saves_of(m, op);
  if (!backs(m, op)) return;
  for (int32_t k = 0; k < op->input_count && k < 3; k++) {
    int32_t tensor = base_of(m->graph, op->inputs[k]), producer = m->producer[tensor];
    if (!(saves & (1u << k))) continue;
    bool inside = (m->profile->fused_swiglu || m->settings->executor.fused_layers) && op->kind == LAYER_MUL && producer >= 0 &&
                  m->graph->ops.data[producer].kind == LAYER_SILU;
    if (inside) continue; /* computed from its input in registers */
    need(m, (int32_t)index, tensor);
    count_whole(m, part, tensor);
  }
  if (saves & SAVE_OUTPUT) {
    need(m, (int32_t)index, op->output);
    count_whole(m, part, op->output);
  }
  /* The policy keeps its products' outputs, needed or not; a compiler drops what nobody reads. */
  bool policy = m->profile->keeps_unread && m->settings->executor.selective == SELECTIVE_OPERATORS &&
                m->settings->checkpoint != CHECKPOINT_FULL;
  if (policy && model_is_block(m, part) && op->kind == LAYER_LINEAR && !m->again[index]) need(m, (int32_t)index, op->output);
  double extra = extra_kept(m, op), expanded = expanded_kept(m, op);
  if (m->again[index] && extra > 0) rerun(m, (int32_t)index); /* what is kept beside tensors comes again with its op */
  m->parts[part].whole += extra + expanded;
  if (!m->again[index]) m->parts[part].saved += extra + (expands_again(m, op) ? 0 : expanded);
}

/* What is checkpointed as one keeps what it reads from outside even where no backward of its own needs it. */
static void keep_block_inputs(Model *m) {
  for (uint32_t i = 0; i < m->graph->ops.count; i++) {
    const GraphOp *op = &m->graph->ops.data[i];
    bool runs_again = model_is_block(m, m->part_of[i]) && m->again[i] && m->parts[m->part_of[i]].backs;
    for (int32_t k = 0; k < op->input_count && runs_again; k++) {
      int32_t tensor = base_of(m->graph, op->inputs[k]), producer = m->producer[tensor];
      if (producer >= 0 && !same_region(m, producer, (int32_t)i)) need(m, (int32_t)i, tensor);
    }
  }
}

/* --- times ---------------------------------------------------------------------------------------------- */

/* The gradients of input and weight are a product each; what nobody asks for is not computed. A flat unit's gradients of what is
 * frozen take time, but are no arithmetic of the model. */
static void time_product(Model *m, const GraphOp *op, double *forward, double *backward) {
  const GraphTensor *x = &m->graph->tensors.data[op->inputs[0]], *y = &m->graph->tensors.data[op->output];
  double rows = (double)shape_rows(&x->shape, m->micro_batch);
  double in = (double)shape_cols(&x->shape), out = (double)shape_cols(&y->shape);
  *forward = cost_product_ns(&m->rates, rows, out, in, m->element);
  bool learns = op->weight >= 0 && !m->graph->params.data[op->weight].frozen;
  m->flops += 2 * (1.0 + flows_into(m, op, 0) + learns) * rows * in * out;
  if (flows_into(m, op, 0)) *backward += cost_product_ns(&m->rates, rows, in, out, m->element);
  if (graded(m, op->weight)) *backward += cost_product_ns(&m->rates, out, in, rows, m->element);
  if (graded(m, op->bias) && m->profile->bias_bytes > 0)
    *backward += cost_move_ns(&m->rates, scaled(m, m->profile->bias_bytes) * rows * out);
}

static void time_attention(Model *m, const GraphOp *op, double *forward, double *backward) {
  const ExecutorProfile *profile = m->profile;
  double heads = (double)op->as.attention.heads, kv = (double)op->as.attention.kv_heads,
         dim = (double)op->as.attention.head_dim;
  const Shape *keys = &m->graph->tensors.data[op->inputs[1]].shape;
  double q = numel_of(m, op->output), length = (double)keys->dim[keys->rank - 2];
  double flops = 4 * q * length * (op->as.attention.causal ? 0.5 : 1);
  m->flops += (backs(m, op) ? 3.5 : 1) * flops;
  *forward = cost_attention_ns(&m->rates, flops, length, false);
  *backward = cost_attention_ns(&m->rates, 2.5 * flops, length, true);
  double copies = scaled(m, profile->layout_bytes) * q;
  if (kv < heads) copies += scaled(m, profile->expand_bytes) * (q + q * kv / heads);
  copies += m->attention->score_bytes * 2 * q / dim * length; /* each score tensor written and read */
  if (copies > 0) *forward += cost_move_ns(&m->rates, copies), *backward += cost_move_ns(&m->rates, copies);
}

/* Adding up the gradients of a tensor that several products read; counted at its producer. */
static double sum_gradients(const Model *m, const GraphOp *op) {
  uint32_t readers = m->readers[op->output];
  if (readers < 2 || m->profile->sum_first <= 0) return 0;
  double bytes = scaled(m, m->profile->sum_first + m->profile->sum_more * (readers - 2));
  return cost_move_ns(&m->rates, bytes * numel_of(m, op->output));
}

/* FSDP1's hook returns before it casts them (_post_backward_hook), FSDP2 adds them up in the dtype it reduces (to_accumulated_grad_if_needed). */
double model_sum_bytes(const Model *m) {
  if (!m->profile->accumulates) return m->state;
  return m->profile->flat_units ? m->gathered : m->wire;
}

LossHabit model_loss(const Model *m) {
  LossKind asked = m->settings->executor.loss;
  LossHabit habit = executor_loss(asked ? asked : m->profile->loss, m->profile->loss == LOSS_EAGER, m->graph->recipe.compute);
  if (!asked)
    habit = (LossHabit){habit.moved + m->profile->loss_extra.moved, habit.held + m->profile->loss_extra.held};
  if (m->settings->executor.loss_chunks > 1) habit.held /= (double)m->settings->executor.loss_chunks;
  int64_t chunk = m->graph->ops.data[m->graph->loss_op].as.cross_entropy.chunk; /* native heeds the file's */
  bool chunked = m->settings->executor.id == EXECUTOR_NATIVE && m->head >= 0 && chunk > 0;
  double rows = m->logits > 0 ? m->logits / m->logit_width : 0;
  if (chunked && rows > (double)chunk) habit.held *= (double)chunk / rows;
  return habit;
}

UpdateKind model_update(const Model *m) {
  UpdateKind kind = m->settings->executor.update;
  return kind ? kind : m->profile->update ? m->profile->update : UPDATE_FOREACH;
}

static void time_op(Model *m, const GraphOp *op, double *forward, double *backward) {
  *forward = *backward = 0;
  if (op->kind == LAYER_LINEAR) time_product(m, op, forward, backward);
  if (op->kind == LAYER_ATTENTION) time_attention(m, op, forward, backward);
  double out = numel_of(m, op->output);
  if (op->kind == LAYER_CROSS_ENTROPY) {
    *forward = *backward = cost_move_ns(&m->rates, model_loss(m).moved * m->logits / 2);
  }
  const LayerHabit *habit = executor_layer(&m->settings->executor, op->kind);
  if (!habit->upcasts) out = scaled(m, out);
  if (habit->forward > 0) *forward += cost_move_ns(&m->rates, habit->forward * out);
  if (habit->backward > 0) *backward += cost_move_ns(&m->rates, habit->backward * out);
  *backward += sum_gradients(m, op);
  if (!backs(m, op)) *backward = 0;
}

/* Issued for it in backward: a product for each gradient, two kernels for anything else. */
static double kernels_back(const Model *m, const GraphOp *op) {
  if (!backs(m, op)) return 0;
  return op->kind == LAYER_LINEAR ? (double)flows_into(m, op, 0) + graded(m, op->weight) : 2;
}

static void describe_op(Model *m, uint32_t i) {
  const GraphOp *op = &m->graph->ops.data[i];
  Part *part = &m->parts[m->part_of[i]];
  double forward, backward, out = m->element * numel_of(m, op->output);
  time_op(m, op, &forward, &backward);
  part->forward += forward;
  part->backward += backward;
  bool stops = m->profile->stops_early && !m->settings->executor.reentrant;
  bool whole = part->again || m->settings->executor.selective == SELECTIVE_MODULES; /* runs again as it ran */
  if (m->again[i] && (m->rerun[i] || (whole && part->backs && !stops))) {
    part->recompute += forward;
    part->operators_again++;
  }
  part->operators++;
  part->operators_back += kernels_back(m, op);
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
  m->flows = ARENA_ARRAY(arena, bool, tensors);
  m->graded = ARENA_ARRAY(arena, bool, m->graph->params.count);
  find_parts(arena, m);
  find_tensors(m);
  find_params(m);
  units_find_outside(arena, m);
  find_flows(m);
  choose_again(m);
  keep_block_inputs(m);
  for (uint32_t i = 0; i < ops; i++)
    if (m->graph->ops.data[i].kind != LAYER_CROSS_ENTROPY) keep_tensors(m, i);
  for (uint32_t i = 0; i < ops; i++) describe_op(m, i);
  model_sum_memory(m);
}

/* What the trainer was told, else the recipe's: PyTorch keeps gradients and moments in the dtype of the parameters. */
static double state_bytes(const Graph *graph, const PlanSettings *settings) {
  StatesDType told = settings->executor.states;
  return told == STATES_RECIPE ? dtype_bytes(graph->recipe.master) : told == STATES_BF16 ? 2 : 4;
}

/* Of the size of their parameter: Adafactor's sums of rows and columns are nothing beside it. */
static double moments_of(const Recipe *recipe) {
  if (recipe->optimizer == OPTIMIZER_ADAMW) return 2;
  if (recipe->optimizer == OPTIMIZER_SGD) return recipe->momentum > 0 ? 1 : 0;
  return recipe->optimizer == OPTIMIZER_LION ? 1 : 0;
}

void model_open(Arena *arena, const Graph *graph, const PlanSettings *settings, int64_t micro_batch, Model *out) {
  const ExecutorProfile *profile = executor_profile(settings->executor.id);
  double element = dtype_bytes(graph->recipe.compute);
  *out = (Model){.graph = graph,
                 .settings = settings,
                 .profile = profile,
                 .attention = executor_attention(&settings->executor),
                 .cluster = &graph->cluster,
                 .micro_batch = micro_batch,
                 .rates = executor_rates(&graph->cluster, &settings->executor, graph->recipe.compute),
                 .element = element,
                 .state = state_bytes(graph, settings),
                 .moments = moments_of(&graph->recipe),
                 .gathered = profile->gathered_bytes > 0 ? profile->gathered_bytes : element,
                 .wire = dtype_bytes(graph->recipe.reduce)};
  describe(arena, out);
}
