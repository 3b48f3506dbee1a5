/* Owns: gradients of a program's tensors and parameters.
 *
 * Every tensor's gradient is a value. Its first contribution overwrites, later ones add. A residual addition
 * hands its gradient on without a copy: several tensors then hold one value, and the last of them may add into it.
 * Views share their base's gradient; when they do not tile it exactly it starts at zero and everything adds.
 * Omitted: gradients of model inputs and of frozen parameters, which nobody asks for. */
#include "planner/program/program_builder.h"

#include <stdlib.h>

/* --- analysis before building --------------------------------------------------------------------------------------- */

static void mark_needs_gradient(ProgramBuilder *builder) {
  const Graph *graph = builder->graph;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const GraphOp *op = &graph->ops.data[i];
    bool needs = builder_learns(builder, op->weight) || builder_learns(builder, op->bias);
    for (int32_t k = 0; k < op->input_count; k++) needs |= builder->needs_gradient[op->inputs[k]];
    if (op->output < 0) continue;
    builder->needs_gradient[op->output] = needs;
    for (int32_t v = builder->view_head[op->output]; v >= 0; v = builder->view_next[v]) builder->needs_gradient[v] = needs;
  }
}

static void link_views(ProgramBuilder *builder) {
  const Graph *graph = builder->graph;
  uint32_t count = graph->tensors.count;
  builder->view_head = ARENA_ARRAY(builder->program->arena, int32_t, count);
  builder->view_next = ARENA_ARRAY(builder->program->arena, int32_t, count);
  for (uint32_t t = 0; t < count; t++) builder->view_head[t] = builder->view_next[t] = PLAN_NONE;
  for (int32_t v = (int32_t)count - 1; v >= 0; v--) {
    int32_t base = graph->tensors.data[v].view_of;
    if (base < 0) continue;
    builder->view_next[v] = builder->view_head[base];
    builder->view_head[base] = v;
  }
}

static int compare_columns(const void *a, const void *b) {
  const int64_t *x = a, *y = b;
  return (x[0] > y[0]) - (x[0] < y[0]);
}

/* A base's gradient must start at zero unless its used views tile it exactly and nothing reads it directly. */
static void mark_mixed(ProgramBuilder *builder, const bool *used) {
  const Graph *graph = builder->graph;
  Arena *scratch = arena_new();
  for (uint32_t t = 0; t < graph->tensors.count; t++) {
    VEC(int64_t) spans = {0};
    for (int32_t v = builder->view_head[t]; v >= 0; v = builder->view_next[v]) {
      const GraphTensor *view = &graph->tensors.data[v];
      if (!used[v]) builder->mixed[t] = true;
      vec_push(scratch, &spans, view->view_column);
      vec_push(scratch, &spans, view->view_column + shape_cols(&view->shape));
    }
    if (!spans.count) continue;
    qsort(spans.data, spans.count / 2, 2 * sizeof *spans.data, compare_columns);
    int64_t at = 0;
    for (uint32_t i = 0; i < spans.count; i += 2) {
      if (spans.data[i] != at) builder->mixed[t] = true;
      at = spans.data[i + 1];
    }
    if (at != shape_cols(&graph->tensors.data[t].shape) || used[t]) builder->mixed[t] = true;
  }
  arena_free(scratch);
}

static bool *find_used(Arena *arena, const Graph *graph) {
  bool *used = ARENA_ARRAY(arena, bool, graph->tensors.count);
  for (uint32_t i = 0; i < graph->ops.count; i++)
    for (int32_t k = 0; k < graph->ops.data[i].input_count; k++) used[graph->ops.data[i].inputs[k]] = true;
  return used;
}

void builder_prepare_gradients(ProgramBuilder *builder) {
  link_views(builder);
  mark_needs_gradient(builder);
  mark_mixed(builder, find_used(builder->program->arena, builder->graph));
}

/* --- while backward is built ----------------------------------------------------------------------------------------- */

Ref builder_param_gradient(ProgramBuilder *builder, int32_t param) {
  if (!builder_learns(builder, param)) return (Ref){.value = PLAN_NONE};
  Ref ref = {.value = builder->program->param_gradient[param], .add = builder->parameter_written[param]};
  builder->parameter_written[param] = true;
  return ref;
}

static int32_t new_gradient(ProgramBuilder *builder, int32_t base) {
  const GraphTensor *t = &builder->graph->tensors.data[base];
  uint64_t numel = 0;
  shape_numel(&t->shape, builder->program->batch, &numel);
  int32_t value = builder_value(builder, VALUE_GRADIENT, builder->graph->recipe.compute, numel, t->name, "grad");
  builder->gradient_of[base] = value;
  builder->holders[value] = 1;
  return value;
}

static void zero_gradient(ProgramBuilder *builder, int32_t base, int32_t graph_op) {
  int32_t value = new_gradient(builder, base);
  ProgramOp *op = builder_op(builder, INSTR_ZERO, graph_op);
  op->refs[0] = (Ref){.value = value};
  op->ints[0] = (int64_t)builder->program->values.data[value].numel;
}

static void copy_gradient(ProgramBuilder *builder, int32_t tensor, Ref from, Ref to) {
  Rows size = builder_rows(builder, tensor);
  int32_t producer = builder->graph->tensors.data[tensor].op;
  if (producer < 0) producer = builder->graph->tensors.data[builder_base(builder, tensor)].op;
  ProgramOp *op = builder_op(builder, INSTR_COPY, producer);
  op->refs[0] = from;
  op->refs[0].add = false;
  op->refs[1] = to;
  op->ints[0] = size.rows;
  op->ints[1] = size.cols;
}

/* Gives `base` a gradient value that nobody else still needs. */
static void own_gradient(ProgramBuilder *builder, int32_t base) {
  int32_t shared = builder->gradient_of[base];
  if (builder->holders[shared] == 1) return;
  builder->holders[shared]--;
  int32_t own = new_gradient(builder, base);
  copy_gradient(builder, base, (Ref){.value = shared}, (Ref){.value = own});
}

Ref builder_gradient(ProgramBuilder *builder, int32_t tensor) {
  if (!builder->needs_gradient[tensor]) return (Ref){.value = PLAN_NONE};
  int32_t base = builder_base(builder, tensor);
  if (builder->gradient_of[base] < 0) {
    if (builder->mixed[base])
      zero_gradient(builder, base, builder->graph->tensors.data[base].op);
    else
      new_gradient(builder, base);
  } else if (builder->written[tensor]) {
    own_gradient(builder, base);
  }
  Ref ref = builder_view(builder, tensor, builder->gradient_of[base]);
  ref.add = builder->written[tensor] || builder->mixed[base];
  builder->written[tensor] = true;
  return ref;
}

static bool may_take_over(const ProgramBuilder *builder, int32_t tensor) {
  return builder->graph->tensors.data[tensor].view_of < 0 && !builder->mixed[tensor] && builder->gradient_of[tensor] < 0;
}

void builder_pass_gradient(ProgramBuilder *builder, int32_t tensor, Ref dy) {
  if (!builder->needs_gradient[tensor]) return;
  if (may_take_over(builder, tensor) && dy.ld == 0 && builder->view_head[tensor] < 0) {
    builder->gradient_of[tensor] = dy.value;
    builder->holders[dy.value]++;
    builder->written[tensor] = true;
    return;
  }
  Ref to = builder_gradient(builder, tensor);
  copy_gradient(builder, tensor, dy, to);
}
