/* Owns: inference.h. */
#include "planner/inference.h"

#include "planner/place/place.h"

enum { PREFILL_ROWS = 128 }; /* enough for products to be bound by compute rather than by reading weights */

/* --- which models -------------------------------------------------------------------------------------------------------- */

static int32_t targets_of(const Graph *graph) { return graph->ops.data[graph->loss_op].inputs[1]; }

/* Tokens of a sample: the length of the loss's targets. */
static int64_t context_of(const Graph *graph) {
  uint64_t ctx = 0;
  shape_numel(&graph->tensors.data[targets_of(graph)].shape, 1, &ctx);
  return (int64_t)ctx;
}

static int64_t length_of(const Graph *graph, int32_t tensor) {
  const Shape *shape = &graph->tensors.data[tensor].shape;
  return shape->rank > 1 ? shape->dim[shape->rank - 2] : 1;
}

static void refuse(DiagSink *sink, const GraphOp *op, const char *why, const char *help) {
  Diag *diag = diag_error(sink, op->span, "text cannot be generated token by token: \"%s\" %s", op->name, why);
  if (help) diag_help(diag, "%s", help);
}

static bool reads(const GraphOp *op, int32_t tensor) {
  for (int32_t k = 0; k < op->input_count; k++)
    if (op->inputs[k] == tensor) return true;
  return false;
}

/* Row t of what an operator writes must depend on rows 0 .. t of what it reads, by nothing but rope, positions and attention
 * on other rows than t; and row t of the targets is token t + 1. */
static void check_op(DiagSink *sink, const Graph *graph, const GraphOp *op, int64_t ctx) {
  if (shape_rows(&graph->tensors.data[op->output].shape, 1) != ctx)
    refuse(sink, op, "does not have one row for each token of the context", NULL);
  else if (reads(op, targets_of(graph)))
    refuse(sink, op, "reads the targets, which are tokens still to come", NULL);
  else if (op->kind == LAYER_ROPE && length_of(graph, op->inputs[0]) != ctx)
    refuse(sink, op, "does not count positions along the context", NULL);
  else if (op->kind == LAYER_ATTENTION && !op->as.attention.causal)
    refuse(sink, op, "sees tokens that are still to come", "attention(.., causal) sees earlier ones only");
  else if (op->kind == LAYER_ATTENTION &&
           (length_of(graph, op->inputs[0]) != ctx || length_of(graph, op->inputs[1]) != ctx))
    refuse(sink, op, "is not over the tokens of the context", NULL);
}

static bool check_model(DiagSink *sink, const Graph *graph, int64_t ctx) {
  uint32_t errors = sink->errors;
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  if (loss->kind != LAYER_CROSS_ENTROPY) {
    refuse(sink, loss, "is not a cross_entropy over tokens", NULL);
    return false;
  }
  for (uint32_t i = 0; i < graph->ops.count && sink->errors == errors; i++) /* blocks are alike: once is enough */
    if ((int32_t)i != graph->loss_op) check_op(sink, graph, &graph->ops.data[i], ctx);
  return sink->errors == errors;
}

/* --- the plan ---------------------------------------------------------------------------------------------------------------- */

static Program *build(const Search *s, int64_t ctx, int64_t rows, bool output) {
  Window *window = ARENA_NEW(s->arena, Window);
  *window = (Window){.ctx = ctx, .rows = rows, .output = output};
  Program *program = program_build(s->arena, s->sink, s->graph, s->specs, NULL, 1, window);
  if (program) figures_of_program(program, s->cluster);
  return program;
}

static Decisions decide(const Search *s, const Program *program, const UnitSet *units) {
  return (Decisions){.ranks = 1,
                     .shard = 1,
                     .replicas = 1,
                     .ranks_per_node = 1,
                     .accumulation = 1,
                     .units = units,
                     .keep = ARENA_ARRAY(s->arena, bool, units->units.count),
                     .recompute = ARENA_ARRAY(s->arena, bool, program->ops.count)};
}

static const Skeleton *prepare(const Search *s, const Program *program, const Decisions *decisions) {
  PlanWorld world = {.ranks = 1, .shard = 1, .replicas = 1, .ranks_per_node = 1, .micro_batch = 1, .accumulation = 1};
  const UnitFigures *figures = figures_of_units(s->arena, program, decisions->units, s->cluster, &world, decisions);
  return schedule_prepare(s->arena, program, decisions->units, figures, figures_of_step(program, s->cluster, &world), decisions, &s->cluster->device);
}

bool inference_plan(Search *s, Found *found) {
  int64_t ctx = context_of(s->graph);
  if (!check_model(s->sink, s->graph, ctx)) return false;
  const Program *decode = build(s, ctx, 1, true), *prefill = NULL;
  if (!decode) return false;
  if (decode->caches) prefill = build(s, ctx, ctx < PREFILL_ROWS ? ctx : PREFILL_ROWS, false);
  *found = (Found){.outer = {1, 1}, .grouping = {.wrap = WRAP_WHOLE}};
  found->units = units_choose(s->arena, s->sink, decode, s->settings, WRAP_WHOLE, 0);
  if (!found->units) return false;
  found->decisions = decide(s, decode, found->units);
  EmitInput input = {.program = decode,
                     .decisions = &found->decisions,
                     .cluster = s->cluster,
                     .skeleton = prepare(s, decode, &found->decisions),
                     .prefill = prefill ? prepare(s, prefill, &found->decisions) : NULL,
                     .spans = s->spans,
                     .span_paths = s->span_paths};
  found->plan = emit_plan(s->arena, &input);
  memory_place(found->plan, s->budget, &s->placing);
  events_insert(s->arena, found->plan, s->specs, false);
  found->fits = found->plan->arena_bytes <= s->budget;
  plan_simulate(s->arena, found->plan, &found->sim);
  found->bound = (Bound){found->sim.step_ns, "compute"}; /* nothing was chosen */
  return true;
}
