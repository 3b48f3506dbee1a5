/* Owns: which layers become one instruction together: silu(x) and the product that is all that reads it, u silu(x) or
 * silu(x) u. Silu's result then exists nowhere. Of two silus the first belongs to the product.
 *
 * A silu stands alone where its result is read twice, also by the loss or through views; where a checkpoint rule names it and
 * treats the product otherwise; where the product is in another block, which policies may treat otherwise; and where x and u
 * share columns, whose gradient one instruction cannot write twice. */
#include "planner/program/fusion.h"

#include "planner/program/program.h"

static const GraphOp *op_of(const Graph *graph, int32_t op) { return &graph->ops.data[op]; }

static const GraphTensor *tensor_of(const Graph *graph, int32_t tensor) { return &graph->tensors.data[tensor]; }

/* By tensor: how many operands and views it is. */
static uint32_t *count_readers(Arena *arena, const Graph *graph) {
  uint32_t *readers = ARENA_ARRAY(arena, uint32_t, graph->tensors.count);
  for (uint32_t i = 0; i < graph->ops.count; i++)
    for (int32_t k = 0; k < graph->ops.data[i].input_count; k++) readers[graph->ops.data[i].inputs[k]]++;
  for (uint32_t t = 0; t < graph->tensors.count; t++)
    if (graph->tensors.data[t].view_of >= 0) readers[graph->tensors.data[t].view_of]++;
  return readers;
}

/* The rule that decides about an operator of this name, or NULL. */
static const CheckpointRule *last_rule(const PlanSettings *settings, const char *name) {
  const CheckpointRule *found = NULL;
  for (uint32_t r = 0; settings && r < settings->checkpoints.count; r++)
    if (path_matches(settings->checkpoints.data[r].pattern, name)) found = &settings->checkpoints.data[r];
  return found;
}

/* What names only the product says nothing of the silu. */
static bool pinned_apart(const PlanSettings *settings, const GraphOp *silu, const GraphOp *product) {
  const CheckpointRule *own = last_rule(settings, silu->name), *other = last_rule(settings, product->name);
  return own && (!other || own->recompute != other->recompute || own->host != other->host);
}

/* The silu behind input k of a product, where both may be one instruction, or -1. */
static int32_t fusible(const Graph *graph, const PlanSettings *settings, const uint32_t *readers, int32_t product, int k) {
  const GraphOp *mul = op_of(graph, product);
  int32_t tensor = mul->inputs[k], silu = tensor_of(graph, tensor)->op;
  if (silu < 0 || tensor_of(graph, tensor)->view_of >= 0 || op_of(graph, silu)->kind != LAYER_SILU) return -1;
  bool apart = readers[tensor] > 1 || pinned_apart(settings, op_of(graph, silu), mul) ||
               program_block(graph, silu) != program_block(graph, product) ||
               graph_share_columns(graph, op_of(graph, silu)->inputs[0], mul->inputs[1 - k]);
  return apart ? -1 : silu;
}

int32_t *fusion_find(Arena *arena, const Graph *graph, const PlanSettings *settings) {
  const uint32_t *readers = count_readers(arena, graph);
  int32_t *with = ARENA_ARRAY(arena, int32_t, graph->ops.count);
  for (uint32_t i = 0; i < graph->ops.count; i++) with[i] = -1;
  for (int32_t i = 0; i < (int32_t)graph->ops.count; i++) {
    if (op_of(graph, i)->kind != LAYER_MUL) continue;
    int32_t silu = fusible(graph, settings, readers, i, 0);
    if (silu < 0) silu = fusible(graph, settings, readers, i, 1);
    if (silu >= 0) with[i] = silu, with[silu] = i;
  }
  return with;
}
