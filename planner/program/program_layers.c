/* Owns: how each layer becomes forward and backward operators, one row a layer. Refs are collected before an op is
 * appended, since asking for a gradient may itself append a copy. Operand and attribute order is that of instr.def. */
#include "planner/program/program_builder.h"

#include <math.h>

static const GraphOp *graph_op(const ProgramBuilder *builder, int32_t index) { return &builder->graph->ops.data[index]; }

static const char *op_name(const ProgramBuilder *builder, int32_t index) { return graph_op(builder, index)->name; }

static Ref statistic(ProgramBuilder *builder, int32_t index, int64_t numel, const char *suffix) {
  return (Ref){.value = builder_value(builder, VALUE_ACTIVATION, DTYPE_F32, (uint64_t)numel, op_name(builder, index), suffix)};
}

static Ref workspace(ProgramBuilder *builder, int32_t index, DType dtype, int64_t numel, const char *suffix) {
  return (Ref){.value = builder_value(builder, VALUE_WORKSPACE, dtype, (uint64_t)numel, op_name(builder, index), suffix)};
}

/* The forward op of a layer, for the statistics it left. */
static const ProgramOp *forward_op(const ProgramBuilder *builder, int32_t index) {
  return &builder->program->ops.data[builder->forward_of[index]];
}

static ProgramOp *emit(ProgramBuilder *builder, InstrOp op, int32_t index, const Ref *refs, int count) {
  ProgramOp *out = builder_op(builder, op, index);
  for (int i = 0; i < count; i++) out->refs[i] = refs[i];
  return out;
}

static void set_ints(ProgramOp *op, const int64_t *ints, int count) {
  for (int i = 0; i < count && i < op->int_count; i++) op->ints[i] = ints[i];
}

#define EMIT(builder, op, index, ...)                                                                        \
  emit((builder), (op), (index), (const Ref[]){__VA_ARGS__}, (int)(sizeof((Ref[]){__VA_ARGS__}) / sizeof(Ref)))
#define INTS(op, ...) set_ints((op), (const int64_t[]){__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* --- embedding, positions ------------------------------------------------------------------------------------------- */

static void embedding_forward(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  const Shape *table = &b->graph->params.data[op->weight].shape;
  Ref x = builder_read(b, op->inputs[0]), w = builder_param(b, op->weight), y = builder_output(b, i);
  Rows size = builder_rows(b, op->output);
  INTS(EMIT(b, INSTR_EMBEDDING_FWD, i, x, w, y), size.rows, table->dim[0], table->dim[1]);
}

static void embedding_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  const GraphOp *op = graph_op(b, i);
  const Shape *table = &b->graph->params.data[op->weight].shape;
  Ref x = builder_read(b, op->inputs[0]), dw = builder_param_gradient(b, op->weight);
  if (dw.value >= 0)
    INTS(EMIT(b, INSTR_EMBEDDING_BWD, i, x, dy, dw), builder_rows(b, op->output).rows, table->dim[0], table->dim[1]);
}

static void positions_forward(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  Ref w = builder_param(b, op->weight), y = builder_output(b, i);
  Rows size = builder_rows(b, op->output);
  if (b->program->window)
    INTS(EMIT(b, INSTR_POSITIONS_FWD, i, w, y), size.rows, b->program->window->ctx, size.cols);
  else
    INTS(EMIT(b, INSTR_COPY, i, w, y), size.rows, size.cols);
}

static void positions_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->output);
  Ref dw = builder_param_gradient(b, op->weight);
  if (dw.value >= 0) INTS(EMIT(b, INSTR_COPY, i, dy, dw), size.rows, size.cols);
}

/* --- linear --------------------------------------------------------------------------------------------------------- */

static void linear_forward(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  Rows in = builder_rows(b, op->inputs[0]);
  int64_t out = shape_cols(&b->graph->tensors.data[op->output].shape);
  Ref x = builder_read(b, op->inputs[0]), w = builder_param(b, op->weight), bias = builder_param(b, op->bias);
  Ref y = builder_output(b, i);
  INTS(EMIT(b, INSTR_LINEAR_FWD, i, x, w, bias, y), in.rows, out, in.cols);
}

static void linear_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  const GraphOp *op = graph_op(b, i);
  Rows in = builder_rows(b, op->inputs[0]);
  int64_t out = shape_cols(&b->graph->tensors.data[op->output].shape);
  Ref x = builder_read(b, op->inputs[0]), dw = builder_param_gradient(b, op->weight);
  Ref db = builder_param_gradient(b, op->bias);
  if (dw.value >= 0)
    INTS(EMIT(b, INSTR_LINEAR_BWD_W, i, x, dy, dw, db), in.rows, out, in.cols);
  else if (db.value >= 0) /* column sums of dy */
    INTS(EMIT(b, INSTR_BROADCAST_BWD, i, dy, db), in.rows, out, 1);
  Ref dx = builder_gradient(b, op->inputs[0]);
  if (dx.value >= 0) INTS(EMIT(b, INSTR_LINEAR_BWD_X, i, dy, builder_param(b, op->weight), dx), in.rows, out, in.cols);
}

/* Where a kernel puts the gradient of a frozen weight that it computes beside others. */
static Ref weight_gradient_or_scratch(ProgramBuilder *b, int32_t i, int32_t param) {
  Ref ref = builder_param_gradient(b, param);
  if (ref.value >= 0) return ref;
  uint64_t numel = 0;
  shape_numel(&b->graph->params.data[param].shape, 1, &numel);
  return workspace(b, i, b->graph->recipe.reduce, (int64_t)numel, "dw");
}

/* --- norms: a row of their instructions is one of a row's `heads` parts ----------------------------------------------- */

static Rows norm_rows(const ProgramBuilder *b, const GraphOp *op) {
  Rows size = builder_rows(b, op->output);
  return (Rows){size.rows * op->as.norm.heads, size.cols / op->as.norm.heads};
}

/* Parts of a view of wider rows are not evenly spaced, as an operand's rows must be. */
static bool parts_scatter(const GraphOp *op, Ref ref) { return op->as.norm.heads > 1 && ref.ld > 0; }

static Ref norm_read(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->output);
  Ref x = builder_read(b, op->inputs[0]);
  if (!parts_scatter(op, x)) return x;
  Ref parts = builder_part(b, VALUE_ACTIVATION, op->output, size.rows, op->name, "x");
  INTS(EMIT(b, INSTR_PACK, i, x, parts), size.rows, size.cols);
  return parts;
}

/* Where a norm's backward writes what belongs into `dx`. */
static Ref norm_gradient(ProgramBuilder *b, int32_t i, Ref dx) {
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->output);
  bool direct = dx.value >= 0 && !parts_scatter(op, dx);
  return direct ? dx : workspace(b, i, b->graph->recipe.compute, size.rows * size.cols, "dx");
}

static void norm_pass_gradient(ProgramBuilder *b, int32_t i, Ref from, Ref dx) {
  Rows size = builder_rows(b, graph_op(b, i)->output);
  if (dx.value >= 0 && from.value != dx.value) INTS(EMIT(b, INSTR_COPY, i, from, dx), size.rows, size.cols);
}

static void layernorm_forward(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  Rows size = norm_rows(b, op);
  Ref x = norm_read(b, i), y = builder_output(b, i);
  Ref mean = statistic(b, i, size.rows, "mean"), rstd = statistic(b, i, size.rows, "rstd");
  ProgramOp *out = EMIT(b, INSTR_LAYERNORM_FWD, i, x, builder_param(b, op->weight), builder_param(b, op->bias), y, mean, rstd);
  INTS(out, size.rows, size.cols);
  out->reals[0] = op->as.norm.eps;
}

static void layernorm_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  const GraphOp *op = graph_op(b, i);
  Rows size = norm_rows(b, op);
  Ref x = forward_op(b, i)->refs[0], mean = forward_op(b, i)->refs[4], rstd = forward_op(b, i)->refs[5];
  Ref dx = builder_gradient(b, op->inputs[0]);
  Ref dw = weight_gradient_or_scratch(b, i, op->weight), db = builder_param_gradient(b, op->bias);
  Ref to = norm_gradient(b, i, dx);
  INTS(EMIT(b, INSTR_LAYERNORM_BWD, i, x, builder_param(b, op->weight), mean, rstd, dy, to, dw, db), size.rows, size.cols);
  norm_pass_gradient(b, i, to, dx);
}

static void rmsnorm_forward(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  Rows size = norm_rows(b, op);
  Ref x = norm_read(b, i), y = builder_output(b, i), rstd = statistic(b, i, size.rows, "rstd");
  ProgramOp *out = EMIT(b, INSTR_RMSNORM_FWD, i, x, builder_param(b, op->weight), y, rstd);
  INTS(out, size.rows, size.cols);
  out->reals[0] = op->as.norm.eps;
}

static void rmsnorm_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  const GraphOp *op = graph_op(b, i);
  Rows size = norm_rows(b, op);
  Ref x = forward_op(b, i)->refs[0], rstd = forward_op(b, i)->refs[3];
  Ref dx = builder_gradient(b, op->inputs[0]);
  Ref dw = weight_gradient_or_scratch(b, i, op->weight), to = norm_gradient(b, i, dx);
  INTS(EMIT(b, INSTR_RMSNORM_BWD, i, x, builder_param(b, op->weight), rstd, dy, to, dw), size.rows, size.cols);
  norm_pass_gradient(b, i, to, dx);
}

/* --- rope, attention ------------------------------------------------------------------------------------------------ */

static void rope_attributes(const ProgramBuilder *b, const GraphOp *op, ProgramOp *out) {
  const Shape *shape = &b->graph->tensors.data[op->inputs[0]].shape;
  int64_t seq = shape->dim[shape->rank - 2], batch = shape_rows(shape, b->program->batch) / seq;
  INTS(out, batch, builder_rows(b, op->inputs[0]).rows / batch, op->as.rope.heads, shape_cols(shape) / op->as.rope.heads, op->as.rope.llama3,
       op->as.rope.original, op->as.rope.dims);
  out->reals[0] = op->as.rope.theta;
  out->reals[1] = op->as.rope.factor;
  out->reals[2] = op->as.rope.low;
  out->reals[3] = op->as.rope.high;
}

static void rope_forward(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  Ref x = builder_read(b, op->inputs[0]), y = builder_output(b, i);
  rope_attributes(b, op, EMIT(b, INSTR_ROPE_FWD, i, x, y));
}

static void rope_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  const GraphOp *op = graph_op(b, i);
  Ref dx = builder_gradient(b, op->inputs[0]);
  if (dx.value >= 0) rope_attributes(b, op, EMIT(b, INSTR_ROPE_BWD, i, dy, dx));
}

static void attention_attributes(const ProgramBuilder *b, const GraphOp *op, ProgramOp *out) {
  const Shape *q = &b->graph->tensors.data[op->inputs[0]].shape, *k = &b->graph->tensors.data[op->inputs[1]].shape;
  int64_t tq = q->dim[q->rank - 2], tk = k->dim[k->rank - 2];
  INTS(out, shape_rows(q, b->program->batch) / tq, tq, tk, op->as.attention.heads, op->as.attention.kv_heads,
       op->as.attention.head_dim, op->as.attention.causal);
  out->reals[0] = 1 / sqrt((double)op->as.attention.head_dim);
}

/* Appends a window's keys or values to those of the context before it. */
static Ref append_to_cache(ProgramBuilder *b, int32_t i, int32_t tensor, const char *suffix) {
  int64_t ctx = b->program->window->ctx;
  Rows size = builder_rows(b, tensor);
  Ref cache = {.value = builder_value(b, VALUE_CACHE, b->graph->recipe.compute, (uint64_t)(ctx * size.cols), op_name(b, i),
                                      suffix)};
  b->program->values.data[cache.value].input = b->program->caches++;
  Ref x = builder_read(b, tensor);
  INTS(EMIT(b, INSTR_CACHE_APPEND, i, x, cache), size.rows, ctx, size.cols);
  return cache;
}

static void cached_attention(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  int64_t rows = builder_rows(b, op->inputs[0]).rows;
  Ref k = append_to_cache(b, i, op->inputs[1], "keys"), v = append_to_cache(b, i, op->inputs[2], "values");
  Ref q = builder_read(b, op->inputs[0]), o = builder_output(b, i);
  Ref lse = workspace(b, i, DTYPE_F32, rows * op->as.attention.heads, "lse");
  ProgramOp *out = EMIT(b, INSTR_ATTENTION_CACHED, i, q, k, v, o, lse);
  INTS(out, rows, b->program->window->ctx, op->as.attention.heads, op->as.attention.kv_heads, op->as.attention.head_dim);
  out->reals[0] = 1 / sqrt((double)op->as.attention.head_dim);
}

static void attention_forward(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  if (b->program->window) {
    cached_attention(b, i);
    return;
  }
  Ref q = builder_read(b, op->inputs[0]), k = builder_read(b, op->inputs[1]), v = builder_read(b, op->inputs[2]);
  Ref o = builder_output(b, i);
  Ref lse = statistic(b, i, builder_rows(b, op->inputs[0]).rows * op->as.attention.heads, "lse");
  attention_attributes(b, op, EMIT(b, INSTR_ATTENTION_FWD, i, q, k, v, o, lse));
}

/* A gradient the kernel must write although nobody needs it. */
static Ref gradient_or_scratch(ProgramBuilder *b, int32_t i, int32_t tensor, const char *suffix) {
  Ref ref = builder_gradient(b, tensor);
  if (ref.value >= 0) return ref;
  Rows size = builder_rows(b, tensor);
  return workspace(b, i, b->graph->recipe.compute, size.rows * size.cols, suffix);
}

/* Input k shares columns with one before it: the kernel must not write their gradients over each other. */
static bool shares_columns(const ProgramBuilder *b, const GraphOp *op, int32_t k) {
  for (int32_t j = 0; j < k; j++)
    if (graph_share_columns(b->graph, op->inputs[j], op->inputs[k])) return true;
  return false;
}

static Ref separate_gradient(ProgramBuilder *b, int32_t i, int32_t k, const char *suffix) {
  const GraphOp *op = graph_op(b, i);
  if (!shares_columns(b, op, k)) return gradient_or_scratch(b, i, op->inputs[k], suffix);
  Rows size = builder_rows(b, op->inputs[k]);
  return workspace(b, i, b->graph->recipe.compute, size.rows * size.cols, suffix);
}

static void attention_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  const GraphOp *op = graph_op(b, i);
  Ref lse = forward_op(b, i)->refs[4];
  Ref q = builder_read(b, op->inputs[0]), k = builder_read(b, op->inputs[1]), v = builder_read(b, op->inputs[2]);
  Ref o = builder_read(b, op->output);
  static const char *const suffix[] = {"dq", "dk", "dv"};
  Ref d[3];
  for (int32_t n = 0; n < 3; n++) d[n] = separate_gradient(b, i, n, suffix[n]);
  attention_attributes(b, op, EMIT(b, INSTR_ATTENTION_BWD, i, q, k, v, o, lse, dy, d[0], d[1], d[2]));
  for (int32_t n = 1; n < 3; n++) {
    Rows size = builder_rows(b, op->inputs[n]);
    Ref to = shares_columns(b, op, n) ? builder_gradient(b, op->inputs[n]) : (Ref){.value = PLAN_NONE};
    if (to.value >= 0) INTS(EMIT(b, INSTR_COPY, i, d[n], to), size.rows, size.cols);
  }
}

/* --- element-wise --------------------------------------------------------------------------------------------------- */

static void map_forward(ProgramBuilder *b, int32_t i, InstrOp instr, int64_t third) {
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->output);
  Ref x = builder_read(b, op->inputs[0]), y = builder_output(b, i);
  INTS(EMIT(b, instr, i, x, y), size.rows, size.cols, third);
}

static void map_backward(ProgramBuilder *b, int32_t i, InstrOp instr, Ref dy, int64_t third) {
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->output);
  Ref x = builder_read(b, op->inputs[0]), dx = builder_gradient(b, op->inputs[0]);
  if (dx.value >= 0) INTS(EMIT(b, instr, i, x, dy, dx), size.rows, size.cols, third);
}

static void gelu_forward(ProgramBuilder *b, int32_t i) { map_forward(b, i, INSTR_GELU_FWD, graph_op(b, i)->as.gelu.erf); }
static void relu_forward(ProgramBuilder *b, int32_t i) { map_forward(b, i, INSTR_RELU_FWD, 0); }
/* As part of a product it has no instruction, and its result no value: in backward neither. */
static void silu_forward(ProgramBuilder *b, int32_t i) {
  if (b->fused_with[i] < 0) map_forward(b, i, INSTR_SILU_FWD, 0);
}

static void gelu_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  map_backward(b, i, INSTR_GELU_BWD, dy, graph_op(b, i)->as.gelu.erf);
}
static void relu_backward(ProgramBuilder *b, int32_t i, Ref dy) { map_backward(b, i, INSTR_RELU_BWD, dy, 0); }
static void silu_backward(ProgramBuilder *b, int32_t i, Ref dy) { map_backward(b, i, INSTR_SILU_BWD, dy, 0); }

/* A product's operands where one is silu(x): x and the other, u. */
typedef struct Gated {
  int32_t x, u;
} Gated;

static Gated gated_of(const ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i), *silu = graph_op(b, b->fused_with[i]);
  return (Gated){silu->inputs[0], op->inputs[op->inputs[0] == silu->output]};
}

static void gated_forward(ProgramBuilder *b, int32_t i) {
  Gated gated = gated_of(b, i);
  Rows size = builder_rows(b, graph_op(b, i)->output);
  Ref x = builder_read(b, gated.x), u = builder_read(b, gated.u), y = builder_output(b, i);
  INTS(EMIT(b, INSTR_SILU_MUL_FWD, i, x, u, y), size.rows, size.cols);
}

static void gated_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  Gated gated = gated_of(b, i);
  Rows size = builder_rows(b, graph_op(b, i)->output);
  Ref x = builder_read(b, gated.x), u = builder_read(b, gated.u);
  Ref dx = builder_gradient(b, gated.x), du = builder_gradient(b, gated.u);
  INTS(EMIT(b, INSTR_SILU_MUL_BWD, i, x, u, dy, dx, du), size.rows, size.cols);
}

static void mul_forward(ProgramBuilder *b, int32_t i) {
  if (b->fused_with[i] >= 0) {
    gated_forward(b, i);
    return;
  }
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->output);
  Ref x = builder_read(b, op->inputs[0]), y = builder_read(b, op->inputs[1]), out = builder_output(b, i);
  INTS(EMIT(b, INSTR_MUL_FWD, i, x, y, out), size.rows, size.cols);
}

static void mul_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  if (b->fused_with[i] >= 0) {
    gated_backward(b, i, dy);
    return;
  }
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->output);
  for (int k = 0; k < 2; k++) {
    Ref other = builder_read(b, op->inputs[1 - k]), dx = builder_gradient(b, op->inputs[k]);
    if (dx.value >= 0) INTS(EMIT(b, INSTR_MUL_BWD, i, other, dy, dx), size.rows, size.cols);
  }
}

static void scale(ProgramBuilder *b, int32_t i, InstrOp instr, Ref from, Ref to) {
  Rows size = builder_rows(b, graph_op(b, i)->output);
  ProgramOp *out = EMIT(b, instr, i, from, to);
  INTS(out, size.rows, size.cols);
  out->reals[0] = graph_op(b, i)->as.scale.by;
}

static void scale_forward(ProgramBuilder *b, int32_t i) {
  Ref x = builder_read(b, graph_op(b, i)->inputs[0]), y = builder_output(b, i);
  scale(b, i, INSTR_SCALE_FWD, x, y);
}

static void scale_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  Ref dx = builder_gradient(b, graph_op(b, i)->inputs[0]);
  if (dx.value >= 0) scale(b, i, INSTR_SCALE_BWD, dy, dx);
}

static void add_forward(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->output);
  Ref x = builder_read(b, op->inputs[0]), y = builder_read(b, op->inputs[1]), out = builder_output(b, i);
  INTS(EMIT(b, INSTR_ADD_FWD, i, x, y, out), size.rows, size.cols, builder_rows(b, op->inputs[1]).rows);
}

static void add_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->output), addend = builder_rows(b, op->inputs[1]);
  if (addend.rows == size.rows) {
    builder_pass_gradient(b, op->inputs[1], dy);
  } else {
    Ref db = builder_gradient(b, op->inputs[1]);
    if (db.value >= 0) INTS(EMIT(b, INSTR_BROADCAST_BWD, i, dy, db), size.rows, size.cols, addend.rows);
  }
  builder_pass_gradient(b, op->inputs[0], dy);
}

static void dropout_attributes(const ProgramBuilder *b, int32_t i, int32_t tensor, ProgramOp *out) {
  const Shape *shape = &b->graph->tensors.data[tensor].shape;
  Rows size = builder_rows(b, tensor);
  int64_t samples = shape->dim[0] == DIM_BATCH ? b->program->batch : 1;
  INTS(out, size.rows, size.cols, i, size.rows / samples);
  out->reals[0] = graph_op(b, i)->as.dropout.p;
}

static void dropout_forward(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  Ref x = builder_read(b, op->inputs[0]), y = builder_output(b, i);
  dropout_attributes(b, i, op->output, EMIT(b, INSTR_DROPOUT_FWD, i, x, y));
}

static void dropout_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  const GraphOp *op = graph_op(b, i);
  Ref dx = builder_gradient(b, op->inputs[0]);
  if (dx.value >= 0) dropout_attributes(b, i, op->output, EMIT(b, INSTR_DROPOUT_BWD, i, dy, dx));
}

/* --- losses: the turn -------------------------------------------------------------------------------------------------- */

static Ref count_ref(const ProgramBuilder *b) { return (Ref){.value = b->program->count_value}; }
static Ref loss_ref(const ProgramBuilder *b) { return (Ref){.value = b->program->loss_value}; }

static void fused_cross_entropy(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i), *linear = graph_op(b, b->fused_linear);
  Rows in = builder_rows(b, linear->inputs[0]);
  int64_t vocab = shape_cols(&b->graph->tensors.data[op->inputs[0]].shape);
  int64_t chunk = op->as.cross_entropy.chunk < in.rows ? op->as.cross_entropy.chunk : in.rows;
  Ref x = builder_read(b, linear->inputs[0]), w = builder_param(b, linear->weight), bias = builder_param(b, linear->bias);
  Ref targets = builder_read(b, op->inputs[1]), dx = gradient_or_scratch(b, i, linear->inputs[0], "dx");
  Ref row_loss = workspace(b, i, DTYPE_F32, in.rows, "row_loss");
  Ref logits = builder_part(b, VALUE_WORKSPACE, op->inputs[0], chunk, op->name, "logits");
  if (!builder_learns(b, linear->weight) && !builder_learns(b, linear->bias)) {
    INTS(EMIT(b, INSTR_LINEAR_CROSS_ENTROPY_X, i, x, w, bias, targets, count_ref(b), loss_ref(b), dx, row_loss, logits),
         in.rows, vocab, in.cols, op->as.cross_entropy.ignore_index, chunk);
    return;
  }
  Ref dw = weight_gradient_or_scratch(b, i, linear->weight), db = builder_param_gradient(b, linear->bias);
  INTS(EMIT(b, INSTR_LINEAR_CROSS_ENTROPY, i, x, w, bias, targets, count_ref(b), loss_ref(b), dx, dw, db, row_loss, logits),
       in.rows, vocab, in.cols, op->as.cross_entropy.ignore_index, chunk);
}

/* Whether the logits' own buffer can become their gradient. Nothing else that reaches the loss reads them, but a view's base has a
 * gradient beside it, and attention reads its result once more in backward. */
static bool may_turn(const ProgramBuilder *b, int32_t tensor) {
  const GraphTensor *logits = &b->graph->tensors.data[tensor];
  return logits->view_of < 0 && (logits->op < 0 || graph_op(b, logits->op)->kind != LAYER_ATTENTION);
}

static void cross_entropy_forward(ProgramBuilder *b, int32_t i) {
  const GraphOp *op = graph_op(b, i);
  if (b->fused_linear >= 0 || may_turn(b, op->inputs[0])) return;
  Rows size = builder_rows(b, op->inputs[0]);
  Ref logits = builder_read(b, op->inputs[0]);
  b->logits = builder_part(b, VALUE_ACTIVATION, op->inputs[0], size.rows, op->name, "logits");
  INTS(EMIT(b, INSTR_COPY, i, logits, b->logits), size.rows, size.cols);
}

static void cross_entropy_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  (void)dy;
  if (b->fused_linear >= 0) {
    fused_cross_entropy(b, i);
    return;
  }
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->inputs[0]);
  bool copied = b->logits.value >= 0;
  Ref logits = copied ? b->logits : builder_read(b, op->inputs[0]), targets = builder_read(b, op->inputs[1]);
  Ref row_loss = workspace(b, i, DTYPE_F32, size.rows, "row_loss");
  INTS(EMIT(b, INSTR_CROSS_ENTROPY, i, logits, targets, count_ref(b), loss_ref(b), row_loss), size.rows, size.cols,
       op->as.cross_entropy.ignore_index);
  if (copied) {
    builder_pass_gradient(b, op->inputs[0], logits);
    return;
  }
  b->gradient_of[op->inputs[0]] = logits.value;
  b->holders[logits.value] = 1;
  b->written[op->inputs[0]] = true;
}

static void mse_backward(ProgramBuilder *b, int32_t i, Ref dy) {
  (void)dy;
  const GraphOp *op = graph_op(b, i);
  Rows size = builder_rows(b, op->inputs[0]);
  Ref x = builder_read(b, op->inputs[0]), y = builder_read(b, op->inputs[1]);
  Ref dx = gradient_or_scratch(b, i, op->inputs[0], "dx"), row_loss = workspace(b, i, DTYPE_F32, size.rows, "row_loss");
  INTS(EMIT(b, INSTR_MSE, i, x, y, count_ref(b), loss_ref(b), dx, row_loss), size.rows, size.cols);
}

const LayerRules layer_rules[LAYER_COUNT] = {
    [LAYER_EMBEDDING] = {embedding_forward, embedding_backward},
    [LAYER_POSITIONS] = {positions_forward, positions_backward},
    [LAYER_LINEAR] = {linear_forward, linear_backward},
    [LAYER_LAYERNORM] = {layernorm_forward, layernorm_backward},
    [LAYER_RMSNORM] = {rmsnorm_forward, rmsnorm_backward},
    [LAYER_ROPE] = {rope_forward, rope_backward},
    [LAYER_ATTENTION] = {attention_forward, attention_backward},
    [LAYER_GELU] = {gelu_forward, gelu_backward},
    [LAYER_RELU] = {relu_forward, relu_backward},
    [LAYER_SILU] = {silu_forward, silu_backward},
    [LAYER_MUL] = {mul_forward, mul_backward},
    [LAYER_SCALE] = {scale_forward, scale_backward},
    [LAYER_ADD] = {add_forward, add_backward},
    [LAYER_DROPOUT] = {dropout_forward, dropout_backward},
    [LAYER_CROSS_ENTROPY] = {cross_entropy_forward, cross_entropy_backward},
    [LAYER_MSE] = {NULL, mse_backward},
};
