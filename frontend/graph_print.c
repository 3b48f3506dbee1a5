/* Owns: a graph as text: --dump=graph, one op a line. The format is for people and goldens; nothing reads it back. */
#include "frontend/graph.h"

static void print_init(Text *out, Init init) {
  static const char *const names[] = {"zeros", "ones", "normal", "uniform"};
  text_printf(out, "%s", names[init.kind]);
  if (init.kind == INIT_NORMAL || init.kind == INIT_UNIFORM) text_printf(out, " %g", init.a);
}

/* width: of the op's output. */
static void print_attributes(Text *out, const GraphOp *op, int64_t width) {
  switch (op->kind) {
  case LAYER_LAYERNORM:
  case LAYER_RMSNORM:
    text_printf(out, " eps=%g", op->as.norm.eps);
    if (op->as.norm.heads > 1) text_printf(out, " heads=%lld", (long long)op->as.norm.heads);
    break;
  case LAYER_ROPE:
    text_printf(out, " heads=%lld theta=%g", (long long)op->as.rope.heads, op->as.rope.theta);
    if (op->as.rope.dims * op->as.rope.heads < width) text_printf(out, " dims=%lld", (long long)op->as.rope.dims);
    if (op->as.rope.llama3)
      text_printf(out, " llama3 factor=%g low=%g high=%g original=%lld", op->as.rope.factor, op->as.rope.low,
                  op->as.rope.high, (long long)op->as.rope.original);
    break;
  case LAYER_ATTENTION:
    text_printf(out, " heads=%lld kv_heads=%lld head_dim=%lld %s", (long long)op->as.attention.heads,
                (long long)op->as.attention.kv_heads, (long long)op->as.attention.head_dim,
                op->as.attention.causal ? "causal" : "full");
    break;
  case LAYER_GELU:
    text_printf(out, " %s", op->as.gelu.erf ? "erf" : "tanh");
    break;
  case LAYER_SCALE:
    text_printf(out, " by=%g", op->as.scale.by);
    break;
  case LAYER_DROPOUT:
    text_printf(out, " p=%g", op->as.dropout.p);
    break;
  case LAYER_CROSS_ENTROPY:
    text_printf(out, " ignore_index=%lld", (long long)op->as.cross_entropy.ignore_index);
    if (op->as.cross_entropy.chunk) text_printf(out, " chunk=%lld", (long long)op->as.cross_entropy.chunk);
    break;
  default:
    break;
  }
}

/* h.0.mlp.c_fc = linear(h.0.ln_2) -> [batch, 8, 64] weight h.0.mlp.c_fc.weight bias h.0.mlp.c_fc.bias */
static void print_op(Text *out, const Graph *graph, const GraphOp *op) {
  text_printf(out, "%s = %s(", op->name, layer_name(op->kind));
  for (int32_t i = 0; i < op->input_count; i++)
    text_printf(out, "%s%s", i ? ", " : "", graph->tensors.data[op->inputs[i]].name);
  text_printf(out, ")");
  print_attributes(out, op, shape_cols(&graph->tensors.data[op->output].shape));
  text_printf(out, " -> ");
  shape_print(out, &graph->tensors.data[op->output].shape);
  if (op->weight >= 0) text_printf(out, " weight %s", graph->params.data[op->weight].name);
  if (op->bias >= 0) text_printf(out, " bias %s", graph->params.data[op->bias].name);
  text_printf(out, "\n");
}

static uint64_t total_numel(const Graph *graph) {
  uint64_t total = 0, numel = 0;
  for (uint32_t i = 0; i < graph->params.count; i++)
    if (shape_numel(&graph->params.data[i].shape, 1, &numel)) total += numel;
  return total;
}

static void print_tensors(Text *out, const Graph *graph) {
  for (uint32_t i = 0; i < graph->inputs.count; i++) {
    const GraphTensor *tensor = &graph->tensors.data[graph->inputs.data[i].tensor];
    text_printf(out, "input %s %s", tensor->name, tensor->is_index ? "int" : "float");
    shape_print(out, &tensor->shape);
    text_printf(out, "\n");
  }
  for (uint32_t i = 0; i < graph->tensors.count; i++) {
    const GraphTensor *tensor = &graph->tensors.data[i];
    if (tensor->view_of < 0) continue;
    text_printf(out, "view %s = %s from column %lld ", tensor->name,
                graph->tensors.data[tensor->view_of].name, (long long)tensor->view_column);
    shape_print(out, &tensor->shape);
    text_printf(out, "\n");
  }
}

void graph_print(Text *out, const Graph *graph) {
  text_printf(out, "model %s: %llu parameters in %u tensors, %u ops\n", graph->name,
              (unsigned long long)total_numel(graph), graph->params.count, graph->ops.count);
  print_tensors(out, graph);
  for (uint32_t i = 0; i < graph->params.count; i++) {
    const GraphParam *param = &graph->params.data[i];
    text_printf(out, "param %s ", param->name);
    shape_print(out, &param->shape);
    text_printf(out, " ");
    print_init(out, param->init);
    text_printf(out, " ops %d..%d%s\n", param->first_op, param->last_op, param->frozen ? " frozen" : "");
  }
  for (uint32_t i = 0; i < graph->modules.count; i++) {
    const GraphModule *module = &graph->modules.data[i];
    text_printf(out, "module %s %s ops %d..%d\n", *module->name ? module->name : "-", module->kind,
                module->first_op, module->end_op);
  }
  for (uint32_t i = 0; i < graph->ops.count; i++) print_op(out, graph, &graph->ops.data[i]);
}
