/* Owns: building forward and backward from the graph: values, operators, the turn.
 * Omitted: every operator that would only lead to a gradient that nobody asks for (program_gradient.c). */
#include "planner/program/program_builder.h"

#include "base/checked.h"
#include "planner/program/fusion.h"

/* Rows, or all values of an index tensor: all of the context's, or the window's share of them. */
static int64_t in_window(const ProgramBuilder *builder, int64_t count) {
  const Window *window = builder->program->window;
  return window ? count / window->ctx * window->rows : count;
}

Rows builder_rows(const ProgramBuilder *builder, int32_t tensor) {
  const Shape *shape = &builder->graph->tensors.data[tensor].shape;
  return (Rows){in_window(builder, shape_rows(shape, builder->program->batch)), shape_cols(shape)};
}

int32_t builder_value(ProgramBuilder *builder, ValueKind kind, DType dtype, uint64_t numel, const char *name,
                      const char *suffix) {
  Program *program = builder->program;
  Value *value = vec_add(program->arena, &program->values);
  *value = (Value){.kind = kind, .dtype = dtype, .numel = numel, .param = PLAN_NONE, .input = PLAN_NONE};
  value->producer = PLAN_NONE;
  value->name = *suffix ? arena_join(program->arena, name, suffix) : name;
  if (program->values.count > builder->value_capacity) {
    uint32_t grown = builder->value_capacity * 2 + 64;
    int32_t *holders = ARENA_ARRAY(program->arena, int32_t, grown);
    if (builder->value_capacity) memcpy(holders, builder->holders, builder->value_capacity * sizeof *holders);
    builder->holders = holders;
    builder->value_capacity = grown;
  }
  return (int32_t)program->values.count - 1;
}

ProgramOp *builder_op(ProgramBuilder *builder, InstrOp op, int32_t graph_op) {
  Program *program = builder->program;
  ProgramOp *out = vec_add(program->arena, &program->ops);
  out->op = op;
  out->phase = program->turn == PLAN_NONE ? PHASE_FORWARD : PHASE_BACKWARD;
  out->graph_op = graph_op;
  out->name = builder->graph->ops.data[graph_op].name;
  if (out->phase == PHASE_FORWARD) builder->forward_of[graph_op] = (int32_t)program->ops.count - 1;
  const InstrSpec *spec = &program->specs[op];
  out->ref_count = spec->operand_count;
  out->int_count = spec->int_count;
  out->refs = ARENA_ARRAY(program->arena, Ref, (size_t)spec->operand_count);
  out->ints = ARENA_ARRAY(program->arena, int64_t, (size_t)spec->int_count);
  if (spec->real_count) out->reals = ARENA_ARRAY(program->arena, double, (size_t)spec->real_count);
  for (int i = 0; i < out->ref_count; i++) out->refs[i].value = PLAN_NONE;
  return out;
}

/* Elements between rows. Those of logits start on 16 bytes, long ones on a line of 128: vocabularies are odd, products of rows that start
 * anywhere are slow on GPUs, and so are stores that end in the midst of lines. 0: contiguous, as all other rows are. */
static uint32_t stride_of(const ProgramBuilder *builder, int32_t tensor) {
  enum { ALIGN = 8, LINE = 64, LONG = 64 * LINE /* from here on a line is little */ };
  const Graph *graph = builder->graph;
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  if (builder->program->window || loss->kind != LAYER_CROSS_ENTROPY || loss->inputs[0] != tensor) return 0;
  int32_t from = graph->tensors.data[tensor].op;
  if (from < 0 || graph->ops.data[from].kind != LAYER_LINEAR) return 0;
  uint64_t cols = (uint64_t)shape_cols(&graph->tensors.data[tensor].shape), stride = round_up(cols, cols < LONG ? ALIGN : LINE);
  return stride == cols ? 0 : (uint32_t)stride; /* SEMA_MAX_DIM */
}

Ref builder_view(const ProgramBuilder *builder, int32_t tensor, int32_t value) {
  const GraphTensor *t = &builder->graph->tensors.data[tensor];
  if (t->view_of < 0) return (Ref){value, 0, stride_of(builder, tensor), false};
  const Shape *base = &builder->graph->tensors.data[t->view_of].shape;
  return (Ref){value, (uint32_t)t->view_column, (uint32_t)shape_cols(base), false}; /* SEMA_MAX_DIM */
}

int32_t builder_base(const ProgramBuilder *builder, int32_t tensor) {
  int32_t base = builder->graph->tensors.data[tensor].view_of;
  return base < 0 ? tensor : base;
}

Ref builder_read(ProgramBuilder *builder, int32_t tensor) {
  return builder_view(builder, tensor, builder->value_of[builder_base(builder, tensor)]);
}

bool builder_learns(const ProgramBuilder *builder, int32_t param) {
  return param >= 0 && !builder->graph->params.data[param].frozen;
}

Ref builder_param(ProgramBuilder *builder, int32_t param) {
  if (param < 0) return (Ref){.value = PLAN_NONE};
  return (Ref){.value = builder->program->param_value[param]};
}

Ref builder_part(ProgramBuilder *builder, ValueKind kind, int32_t tensor, int64_t rows, const char *name, const char *suffix) {
  uint32_t stride = stride_of(builder, tensor);
  uint64_t width = stride ? stride : (uint64_t)builder_rows(builder, tensor).cols;
  DType dtype = builder->graph->recipe.compute;
  return (Ref){.value = builder_value(builder, kind, dtype, (uint64_t)rows * width, name, suffix), .ld = stride}; /* sizes_fit */
}

Ref builder_output(ProgramBuilder *builder, int32_t graph_op) {
  const GraphOp *op = &builder->graph->ops.data[graph_op];
  Ref y = builder_part(builder, VALUE_ACTIVATION, op->output, builder_rows(builder, op->output).rows, op->name, "");
  builder->value_of[op->output] = y.value;
  return y;
}

/* --- building ------------------------------------------------------------------------------------------------------- */

int32_t program_block(const Graph *graph, int32_t op) {
  int32_t block = PLAN_NONE;
  for (int32_t m = graph->ops.data[op].module; m >= 0; m = graph->modules.data[m].parent)
    if (graph->modules.data[m].repeat >= 0) block = m;
  return block;
}

static void find_blocks(Program *program) {
  const Graph *graph = program->graph;
  program->block = ARENA_ARRAY(program->arena, int32_t, graph->ops.count);
  for (uint32_t i = 0; i < graph->ops.count; i++) program->block[i] = program_block(graph, (int32_t)i);
}

static void add_inputs(ProgramBuilder *builder) {
  const Graph *graph = builder->graph;
  for (uint32_t i = 0; i < graph->inputs.count; i++) {
    int32_t tensor = graph->inputs.data[i].tensor;
    const GraphTensor *t = &graph->tensors.data[tensor];
    uint64_t numel = 0;
    shape_numel(&t->shape, builder->program->batch, &numel);
    DType dtype = t->is_index ? DTYPE_I32 : graph->recipe.compute;
    numel = (uint64_t)in_window(builder, (int64_t)numel);
    int32_t value = builder_value(builder, VALUE_INPUT, dtype, numel, graph->inputs.data[i].name, "");
    builder->program->values.data[value].input = (int32_t)i;
    builder->value_of[tensor] = value;
  }
}

static void add_params(ProgramBuilder *builder) {
  Program *program = builder->program;
  const Graph *graph = builder->graph;
  program->param_value = ARENA_ARRAY(program->arena, int32_t, graph->params.count);
  program->param_gradient = ARENA_ARRAY(program->arena, int32_t, graph->params.count);
  for (uint32_t i = 0; i < graph->params.count; i++) {
    uint64_t numel = 0;
    shape_numel(&graph->params.data[i].shape, 1, &numel);
    const char *name = graph->params.data[i].name;
    program->param_value[i] = builder_value(builder, VALUE_PARAM, graph->recipe.compute, numel, name, "");
    program->values.data[program->param_value[i]].param = (int32_t)i;
    program->param_gradient[i] = PLAN_NONE;
    if (program->window || !builder_learns(builder, (int32_t)i)) continue;
    program->param_gradient[i] = builder_value(builder, VALUE_PARAM_GRADIENT, graph->recipe.reduce, numel, name, "grad");
    program->values.data[program->param_gradient[i]].param = (int32_t)i;
  }
}

static bool sizes_fit(DiagSink *sink, const Graph *graph, int64_t batch) {
  for (uint32_t t = 0; t < graph->tensors.count; t++) {
    uint64_t numel, bytes;
    if (shape_numel(&graph->tensors.data[t].shape, batch, &numel) && checked_mul(numel, 8, &bytes) &&
        bytes < (1ull << PLAN_MAX_BYTES_LOG2))
      continue;
    diag_error(sink, graph->tensors.data[t].span, "\"%s\" is too large with a micro-batch of %lld samples",
               graph->tensors.data[t].name, (long long)batch);
    return false;
  }
  return true;
}

static void build_forward(ProgramBuilder *builder) {
  const Graph *graph = builder->graph;
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  bool fuse = !builder->program->window && loss->kind == LAYER_CROSS_ENTROPY && loss->as.cross_entropy.chunk > 0;
  builder->fused_linear = fuse ? graph->tensors.data[loss->inputs[0]].op : PLAN_NONE;
  for (int32_t i = 0; i < (int32_t)graph->ops.count; i++)
    if (i != builder->fused_linear && layer_rules[graph->ops.data[i].kind].forward) layer_rules[graph->ops.data[i].kind].forward(builder, i);
}

/* What follows the last append serves the output alone. */
static void drop_output(Program *program) {
  uint32_t count = program->ops.count;
  while (count > 0 && program->ops.data[count - 1].op != INSTR_CACHE_APPEND) count--;
  program->ops.count = count;
}

static void end_forward(ProgramBuilder *builder) {
  Program *program = builder->program;
  const Graph *graph = builder->graph;
  if (!program->window->output) drop_output(program);
  program->turn = (int32_t)program->ops.count;
  int32_t logits = graph->ops.data[graph->loss_op].inputs[0];
  program->output_value = builder->logits.value >= 0 ? builder->logits.value : builder->value_of[builder_base(builder, logits)];
}

static void build_backward(ProgramBuilder *builder) {
  const Graph *graph = builder->graph;
  builder->program->turn = (int32_t)builder->program->ops.count;
  layer_rules[graph->ops.data[graph->loss_op].kind].backward(builder, graph->loss_op, (Ref){.value = PLAN_NONE});
  for (int32_t i = (int32_t)graph->ops.count - 1; i >= 0; i--) {
    const GraphOp *op = &graph->ops.data[i];
    if (i == graph->loss_op || i == builder->fused_linear || !builder->needs_gradient[op->output]) continue;
    int32_t gradient = builder->gradient_of[op->output];
    if (gradient < 0) continue; /* nothing that learns is reached through it */
    layer_rules[op->kind].backward(builder, i, (Ref){.value = gradient, .ld = stride_of(builder, op->output)});
    builder->holders[gradient]--;
  }
}

Program *program_build(Arena *arena, DiagSink *sink, const Graph *graph, const InstrSpec *specs, const PlanSettings *settings,
                       int64_t batch, const Window *window) {
  if (!sizes_fit(sink, graph, batch)) return NULL;
  Program *program = ARENA_NEW(arena, Program);
  *program = (Program){.arena = arena, .graph = graph, .specs = specs, .batch = batch, .window = window, .turn = PLAN_NONE, .output_value = PLAN_NONE};
  uint32_t tensors = graph->tensors.count;
  ProgramBuilder builder = {.program = program,
                            .graph = graph,
                            .value_of = ARENA_ARRAY(arena, int32_t, tensors),
                            .gradient_of = ARENA_ARRAY(arena, int32_t, tensors),
                            .written = ARENA_ARRAY(arena, bool, tensors),
                            .needs_gradient = ARENA_ARRAY(arena, bool, tensors),
                            .mixed = ARENA_ARRAY(arena, bool, tensors),
                            .fused_with = fusion_find(arena, graph, settings),
                            .logits = {.value = PLAN_NONE},
                            .forward_of = ARENA_ARRAY(arena, int32_t, graph->ops.count),
                            .parameter_written = ARENA_ARRAY(arena, bool, graph->params.count)};
  for (uint32_t t = 0; t < tensors; t++) builder.gradient_of[t] = builder.value_of[t] = PLAN_NONE;
  enum { OPS = 3, VALUES = 5 }; /* of a layer, about */
  vec_reserve(arena, &program->ops, OPS * graph->ops.count);
  vec_reserve(arena, &program->values, VALUES * graph->ops.count);
  find_blocks(program);
  builder_prepare_gradients(&builder);
  add_inputs(&builder);
  add_params(&builder);
  program->count_value = builder_value(&builder, VALUE_COUNT, DTYPE_F64, 1, "count", "");
  program->loss_value = builder_value(&builder, VALUE_LOSS, DTYPE_F64, 1, "loss", "");
  build_forward(&builder);
  if (window)
    end_forward(&builder);
  else
    build_backward(&builder);
  program_find_flow(program);
  return program;
}

/* --- as text ------------------------------------------------------------------------------------------------------ */

static void print_refs(Text *out, const Program *program, const ProgramOp *op) {
  for (int32_t k = 0; k < op->ref_count; k++) {
    Ref ref = op->refs[k];
    OperandMode mode = program->specs[op->op].operands[k].mode;
    const char *sign = mode == MODE_READ ? "" : mode == MODE_WRITE || (mode == MODE_ADD && !ref.add) ? ">" : "+>";
    if (ref.value < 0)
      text_printf(out, " -");
    else if (ref.ld)
      text_printf(out, " %s%s[%llu:]", sign, program->values.data[ref.value].name, (unsigned long long)ref.column);
    else
      text_printf(out, " %s%s", sign, program->values.data[ref.value].name);
  }
}

void program_print(Text *out, const Program *program) {
  text_printf(out, "program %s batch %lld\n", program->graph->name, (long long)program->batch);
  for (uint32_t i = 0; i < program->ops.count; i++) {
    const ProgramOp *op = &program->ops.data[i];
    text_printf(out, "%4u %-8s %-20s", i, phase_name(op->phase), program->specs[op->op].name);
    print_refs(out, program, op);
    text_printf(out, "  # flops %llu bytes %llu\n", (unsigned long long)op->flops, (unsigned long long)op->bytes);
  }
}
