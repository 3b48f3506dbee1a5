/* Owns: emission: a schedule becomes instructions with their buffers, between a segment that begins the step and one that
 * updates the weights; for inference, segments that clear the caches, fill them, and end with the output. Memory depends on
 * list positions only, never on how long anything takes. */
#include "planner/emit.h"

#include "base/checked.h"
#include "planner/cost.h"
#include "planner/schedule.h"

#include <stdlib.h>

/* A buffer lives at least to this list position. */
typedef struct Hold {
  int32_t buf, last;
} Hold;

typedef struct Emitter {
  Arena *arena;
  const EmitInput *in;
  const Program *program;
  const Decisions *decisions;
  Plan *plan;
  Schedule schedule;
  int32_t *buf_of;       /* by value: its present buffer */
  int32_t *gathered;     /* by unit: its present full buffer */
  int32_t *grad_full;    /* by unit */
  int32_t *cache;        /* by number of the cache */
  uint64_t *param_offset; /* by graph param */
  int32_t *step_instr;     /* by step, of the pass that is emitted */
  VEC(Hold) holds;
  int32_t scale_buf, acc_buf, scaler_buf, scaled_count_buf; /* the last two: where the loss is scaled */
} Emitter;

/* --- buffers and instructions ----------------------------------------------------------------------------------------------- */

static int32_t add_buf(Emitter *e, const char *name, BufClass class, DType dtype, uint64_t numel, int32_t unit,
                       bool persistent) {
  PlanBuf *buf = vec_add(e->arena, &e->plan->bufs);
  *buf = (PlanBuf){.name = plan_intern(e->arena, e->plan, name),
                   .class = class,
                   .dtype = dtype,
                   .numel = numel,
                   .bytes = numel * dtype_bytes(dtype),
                   .persistent = persistent,
                   .first = PLAN_NONE,
                   .last = PLAN_NONE,
                   .unit = unit};
  return (int32_t)e->plan->bufs.count - 1;
}

static int32_t add_instr(Emitter *e, InstrOp op, Phase phase, const char *name, const PlanOperand *operands,
                         const int64_t *ints, const double *reals) {
  Plan *plan = e->plan;
  const InstrSpec *spec = &e->program->specs[op];
  PlanInstr *instr = vec_add(e->arena, &plan->instrs);
  *instr = (PlanInstr){.op = op, .stream = spec->stream, .phase = phase, .record = PLAN_NONE};
  instr->operands = plan->operands.count;
  instr->ints = plan->ints.count;
  instr->reals = plan->reals.count;
  for (int k = 0; k < spec->operand_count; k++) vec_push(e->arena, &plan->operands, operands[k]);
  for (int k = 0; k < spec->int_count; k++) vec_push(e->arena, &plan->ints, ints[k]);
  for (int k = 0; k < spec->real_count; k++) vec_push(e->arena, &plan->reals, reals[k]);
  instr->name = plan_intern(e->arena, plan, name);
  cost_instr(e->in->cluster, plan, e->program->specs, instr);
  return (int32_t)plan->instrs.count - 1;
}

#define OPERANDS(...) ((const PlanOperand[]){__VA_ARGS__})
#define WHOLE(b)      {.buf = (b)}
#define ADDING(b, a)  {.buf = (b), .add = (a)}
#define INTS(...)     ((const int64_t[]){__VA_ARGS__})

static const char *unit_text(Emitter *e, uint32_t unit, const char *suffix) {
  return arena_printf(e->arena, "u%u.%s", unit, suffix);
}

static uint64_t lay_out_unit(Emitter *e, uint32_t u) {
  const Graph *graph = e->program->graph;
  const Unit *unit = &e->decisions->units->units.data[u];
  uint64_t offset = 0, numel = 0;
  PlanUnit *out = &e->plan->units.data[u];
  out->first_param = (int32_t)e->plan->params.count;
  out->param_count = (int32_t)unit->params.count;
  for (uint32_t i = 0; i < unit->params.count; i++) {
    const GraphParam *from = &graph->params.data[unit->params.data[i]];
    PlanParam *param = vec_add(e->arena, &e->plan->params);
    param->name = plan_intern(e->arena, e->plan, from->name);
    param->unit = (int32_t)u;
    param->offset = offset;
    param->rank = from->shape.rank;
    for (int32_t d = 0; d < from->shape.rank; d++) param->dim[d] = from->shape.dim[d];
    param->init = from->init;
    param->decay = from->shape.rank >= 2 && !graph_excepts_decay(graph, from->name);
    e->param_offset[unit->params.data[i]] = offset;
    uint64_t size = 0;
    shape_numel(&from->shape, 1, &size);
    numel += size;
    offset += round_up(size, PLAN_ALIGN_ELEMENTS);
  }
  out->numel = numel;
  return offset;
}

static void add_unit_state(Emitter *e, uint32_t u) {
  PlanUnit *unit = &e->plan->units.data[u];
  const Recipe *recipe = &e->plan->recipe;
  unit->param_buf = add_buf(e, unit_text(e, u, "param"), BUF_PARAM, recipe->master, unit->shard, (int32_t)u, true);
  unit->cast_buf = unit->grad_buf = unit->m_buf = unit->v_buf = PLAN_NONE;
  if (recipe->compute != recipe->master)
    unit->cast_buf = add_buf(e, unit_text(e, u, "cast"), BUF_PARAM, recipe->compute, unit->shard, (int32_t)u, true);
  if (!e->plan->training || e->decisions->units->units.data[u].frozen) return;
  unit->grad_buf = add_buf(e, unit_text(e, u, "grad"), BUF_GRAD, recipe->reduce, unit->shard, (int32_t)u, true);
  bool adamw = recipe->optimizer == OPTIMIZER_ADAMW, lion = recipe->optimizer == OPTIMIZER_LION;
  if (recipe->optimizer == OPTIMIZER_ADAFACTOR) {
    uint64_t numel = plan_factored_numel(e->plan, unit);
    unit->v_buf = add_buf(e, unit_text(e, u, "v"), BUF_OPTIM, DTYPE_F32, numel, (int32_t)u, true);
    return;
  }
  if (adamw || lion || recipe->momentum != 0)
    unit->m_buf = add_buf(e, unit_text(e, u, "m"), BUF_OPTIM, DTYPE_F32, unit->shard, (int32_t)u, true);
  if (adamw) unit->v_buf = add_buf(e, unit_text(e, u, "v"), BUF_OPTIM, DTYPE_F32, unit->shard, (int32_t)u, true);
}

static void add_units(Emitter *e) {
  uint32_t shards = e->decisions->shard;
  e->param_offset = ARENA_ARRAY(e->arena, uint64_t, e->program->graph->params.count);
  for (uint32_t u = 0; u < e->decisions->units->units.count; u++) {
    PlanUnit *unit = vec_add(e->arena, &e->plan->units);
    unit->name = plan_intern(e->arena, e->plan, e->decisions->units->units.data[u].name);
    uint64_t flat = lay_out_unit(e, u);
    unit = &e->plan->units.data[u];
    unit->shard = round_up((flat + shards - 1) / shards, PLAN_ALIGN_ELEMENTS);
    unit->reshard = shards > 1 && !e->decisions->keep[u] && !e->decisions->gather_once;
    e->plan->param_numel += unit->numel;
    add_unit_state(e, u);
  }
}

static void add_scalars(Emitter *e) {
  Plan *plan = e->plan;
  plan->loss_buf = add_buf(e, "loss", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  plan->count_buf = add_buf(e, "count", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  plan->norm_buf = add_buf(e, "norm", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  e->scale_buf = add_buf(e, "scale", BUF_SCALAR, DTYPE_F32, 1, PLAN_NONE, true);
  if (graph_scales_loss(e->program->graph)) {
    e->scaler_buf = add_buf(e, "scaler", BUF_OPTIM, DTYPE_F64, SCALER_WORDS, PLAN_NONE, true);
    e->scaled_count_buf = add_buf(e, "scaled_count", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  }
  e->acc_buf = add_buf(e, "acc", BUF_SCALAR, DTYPE_I64, EXACT_DIGITS, PLAN_NONE, true);
  e->buf_of[e->program->count_value] = graph_scales_loss(e->program->graph) ? e->scaled_count_buf : plan->count_buf;
  e->buf_of[e->program->loss_value] = plan->loss_buf;
}

static void begin_segment(Emitter *e, const char *name, uint64_t count) {
  PlanSegment *segment = vec_add(e->arena, &e->plan->segments);
  segment->name = plan_intern(e->arena, e->plan, name);
  segment->first = (int32_t)e->plan->instrs.count;
  segment->count = count;
}

static void end_segment(Emitter *e) {
  e->plan->segments.data[e->plan->segments.count - 1].end = (int32_t)e->plan->instrs.count;
}

/* --- what is held over micro-batches ------------------------------------------------------------------------------------- */

static bool gathers_once(const Emitter *e) { return e->decisions->gather_once && e->plan->world.shard > 1; }
/* Contributions go straight into the persistent gradient: nothing is reduced, or all of it in place, once. */
static bool adds_straight(const Emitter *e) {
  return e->plan->world.ranks == 1 || (e->decisions->reduce_once && e->plan->world.shard == 1);
}

static int32_t add_full(Emitter *e, int32_t u, bool persistent) {
  const PlanUnit *unit = &e->plan->units.data[u];
  return add_buf(e, unit_text(e, (uint32_t)u, "full"), BUF_GATHERED, e->plan->recipe.compute, unit->shard * e->plan->world.shard, u, persistent);
}

static int32_t add_gradfull(Emitter *e, int32_t u, bool persistent) {
  const PlanUnit *unit = &e->plan->units.data[u];
  return add_buf(e, unit_text(e, (uint32_t)u, "gradfull"), BUF_GRADFULL, e->plan->recipe.reduce, unit->shard * e->plan->world.shard, u, persistent);
}

static void add_held(Emitter *e) {
  for (int32_t u = 0; u < (int32_t)e->plan->units.count; u++) {
    if (gathers_once(e)) e->gathered[u] = add_full(e, u, true);
    bool learns = !plan_unit_frozen(e->plan, &e->plan->units.data[u]);
    if (e->decisions->reduce_once && learns && !adds_straight(e)) e->grad_full[u] = add_gradfull(e, u, true);
  }
}

/* --- segment "begin" ------------------------------------------------------------------------------------------------------- */

static void emit_begin(Emitter *e) {
  Plan *plan = e->plan;
  const Graph *graph = e->program->graph;
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  int32_t targets = 0;
  while (graph->inputs.data[targets].tensor != loss->inputs[1]) targets++;
  int64_t ignore = loss->kind == LAYER_CROSS_ENTROPY ? loss->as.cross_entropy.ignore_index : INT64_MIN;
  begin_segment(e, "begin", 1);
  add_instr(e, INSTR_COUNT_TARGETS, PHASE_BEGIN, "count", OPERANDS(WHOLE(plan->count_buf)), INTS(targets, ignore), NULL);
  if (plan->world.ranks > 1)
    add_instr(e, INSTR_ALLREDUCE_SUM, PHASE_BEGIN, "count", OPERANDS(WHOLE(plan->count_buf)), INTS(1), NULL);
  if (graph_scales_loss(e->program->graph))
    add_instr(e, INSTR_SCALE_COUNT, PHASE_BEGIN, "count",
              OPERANDS(WHOLE(plan->count_buf), WHOLE(e->scaler_buf), WHOLE(e->scaled_count_buf)), NULL, NULL);
  add_instr(e, INSTR_ZERO, PHASE_BEGIN, "loss", OPERANDS(WHOLE(plan->loss_buf)), INTS(1), NULL);
  for (uint32_t u = 0; u < plan->units.count && plan->world.accumulation > 1; u++) {
    const PlanUnit *unit = &plan->units.data[u];
    if (plan_unit_frozen(plan, unit)) continue;
    bool full = e->grad_full[u] >= 0;
    add_instr(e, INSTR_ZERO, PHASE_BEGIN, plan_str(plan, unit->name), OPERANDS(WHOLE(full ? e->grad_full[u] : unit->grad_buf)),
              INTS((int64_t)(full ? unit->shard * plan->world.shard : unit->shard)), NULL);
  }
  end_segment(e);
}

/* --- segment "micro" ------------------------------------------------------------------------------------------------------- */

/* Caches hold zeros until they are filled, since attention over a cache is handed all of it. */
static void emit_caches(Emitter *e) {
  int32_t count = e->program->caches;
  if (count == 0) return;
  e->cache = ARENA_ARRAY(e->arena, int32_t, (size_t)count);
  begin_segment(e, "begin", 1);
  for (uint32_t v = 0; v < e->program->values.count; v++) {
    const Value *value = &e->program->values.data[v];
    if (value->kind != VALUE_CACHE) continue;
    int32_t buf = e->cache[value->input] = add_buf(e, value->name, BUF_CACHE, value->dtype, value->numel, PLAN_NONE, true);
    add_instr(e, INSTR_ZERO, PHASE_BEGIN, value->name, OPERANDS(WHOLE(buf)), INTS((int64_t)value->numel), NULL);
  }
  end_segment(e);
}

static void emit_inputs(Emitter *e) {
  for (uint32_t i = 0; i < e->program->values.count; i++) {
    const Value *value = &e->program->values.data[i];
    if (value->kind != VALUE_INPUT) continue;
    bool used = false;
    for (uint32_t s = 0; s < (uint32_t)e->schedule.step_count && !used; s++) {
      const ProgramOp *op = &e->program->ops.data[e->schedule.steps[s].op];
      for (int32_t k = 0; k < op->ref_count; k++) used |= op->refs[k].value == (int32_t)i;
    }
    if (!used) continue; /* targets, when nothing is learned */
    e->buf_of[i] = add_buf(e, value->name, BUF_INPUT, value->dtype, value->numel, PLAN_NONE, false);
    add_instr(e, INSTR_INPUT, PHASE_FORWARD, value->name, OPERANDS(WHOLE(e->buf_of[i])),
              INTS((int64_t)value->numel, value->input), NULL);
  }
}

static int32_t gather_source(const PlanUnit *unit) { return unit->cast_buf >= 0 ? unit->cast_buf : unit->param_buf; }

static void emit_gather(Emitter *e, const Use *use) {
  Plan *plan = e->plan;
  const PlanUnit *unit = &plan->units.data[use->unit];
  Phase phase = e->schedule.steps[use->first].phase == PHASE_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD;
  int32_t full = gathers_once(e) ? e->gathered[use->unit] : add_full(e, use->unit, false);
  add_instr(e, INSTR_ALLGATHER, phase, plan_str(plan, unit->name), OPERANDS(WHOLE(gather_source(unit)), WHOLE(full)),
            INTS(use->unit, (int64_t)unit->shard), NULL);
  e->gathered[use->unit] = full;
}

static int32_t gradient_buf(Emitter *e, int32_t u) {
  if (adds_straight(e)) return e->plan->units.data[u].grad_buf;
  if (e->grad_full[u] < 0) e->grad_full[u] = add_gradfull(e, u, false);
  return e->grad_full[u];
}

static void emit_reduce(Emitter *e, int32_t u) {
  Plan *plan = e->plan;
  const PlanUnit *unit = &plan->units.data[u];
  const char *name = plan_str(plan, unit->name);
  int64_t shard = (int64_t)unit->shard;
  bool add = plan->world.accumulation > 1 && !e->decisions->reduce_once;
  int32_t source = gradient_buf(e, u);
  if (plan->world.shard > 1) {
    bool last = plan->world.replicas == 1;
    int32_t to = last ? unit->grad_buf
                      : add_buf(e, unit_text(e, (uint32_t)u, "gradpart"), BUF_GRADFULL, plan->recipe.reduce, unit->shard,
                                u, false);
    add_instr(e, INSTR_REDUCE_SCATTER, PHASE_BACKWARD, name, OPERANDS(WHOLE(source), ADDING(to, last && add)),
                      INTS(u, shard), NULL);
    source = to;
  }
  if (plan->world.replicas > 1) {
    add_instr(e, INSTR_ALLREDUCE, PHASE_BACKWARD, name, OPERANDS(WHOLE(source), ADDING(unit->grad_buf, add)),
                      INTS(u, shard), NULL);
  }
}

static BufClass class_of(ValueKind kind) {
  return kind == VALUE_WORKSPACE ? BUF_WORKSPACE : BUF_ACTIVATION;
}

static PlanOperand param_operand(Emitter *e, const Value *value) {
  int32_t u = e->decisions->units->unit_of[value->param];
  int32_t buf = e->plan->world.shard > 1 ? e->gathered[u] : gather_source(&e->plan->units.data[u]);
  return (PlanOperand){.buf = buf, .offset = e->param_offset[value->param]};
}

static PlanOperand gradient_operand(Emitter *e, const Value *value, bool add) {
  int32_t u = e->decisions->units->unit_of[value->param];
  bool zeroed = e->plan->world.accumulation > 1 && (e->decisions->reduce_once || e->plan->world.ranks == 1); /* in "begin" */
  return (PlanOperand){.buf = gradient_buf(e, u), .offset = e->param_offset[value->param], .add = add || zeroed};
}

static PlanOperand operand_of(Emitter *e, const Ref *ref, OperandMode mode, Phase phase) {
  if (ref->value < 0) return (PlanOperand){.buf = PLAN_NONE};
  const Value *value = &e->program->values.data[ref->value];
  if (value->kind == VALUE_PARAM) return param_operand(e, value);
  if (value->kind == VALUE_PARAM_GRADIENT) return gradient_operand(e, value, ref->add);
  if (value->kind == VALUE_CACHE) return (PlanOperand){.buf = e->cache[value->input]};
  bool creates = e->buf_of[ref->value] < 0 || (mode == MODE_WRITE && phase == PHASE_RECOMPUTE);
  if (creates)
    e->buf_of[ref->value] = add_buf(e, value->name, class_of(value->kind), value->dtype, value->numel, PLAN_NONE, false);
  return (PlanOperand){e->buf_of[ref->value], ref->column, ref->ld, ref->add};
}

static int32_t emit_step(Emitter *e, const Step *step) {
  const ProgramOp *op = &e->program->ops.data[step->op];
  const InstrSpec *spec = &e->program->specs[op->op];
  PlanOperand operands[INSTR_MAX_OPERANDS];
  for (int32_t k = 0; k < op->ref_count; k++) operands[k] = operand_of(e, &op->refs[k], spec->operands[k].mode, step->phase);
  int32_t instr = add_instr(e, op->op, step->phase, op->name, operands, op->ints, op->reals);
  PlanSpan span = e->in->spans[op->graph_op];
  span.path = plan_intern(e->arena, e->plan, e->in->span_paths[op->graph_op]);
  e->plan->instrs.data[instr].span = span;
  return instr;
}

/* Compute runs on while a gradient is reduced: its buffer is free for reuse only after the schedule's release. */
static void hold_reduced_gradients(Emitter *e) {
  for (uint32_t r = 0; r < e->schedule.reduction_count; r++) {
    const Reduction *reduction = &e->schedule.reductions[r];
    if (e->grad_full[reduction->unit] < 0) continue;
    Hold hold = {e->grad_full[reduction->unit], e->step_instr[reduction->release]};
    vec_push(e->arena, &e->holds, hold);
  }
}

/* Every pass has buffers of its own, but for what is held over micro-batches. */
static void forget_buffers(Emitter *e) {
  for (uint32_t v = 0; v < e->program->values.count; v++)
    if (e->program->flow.transient[v]) e->buf_of[v] = PLAN_NONE;
  for (uint32_t u = 0; u < e->plan->units.count; u++) {
    if (!gathers_once(e)) e->gathered[u] = PLAN_NONE;
    if (!e->decisions->reduce_once) e->grad_full[u] = PLAN_NONE;
  }
}

static void emit_pass(Emitter *e, const MicroPass *pass) {
  uint32_t next = 0, reduce = 0;
  const Reduction *reductions = e->schedule.reductions;
  bool gathers = pass->gathers && e->plan->world.shard > 1, reduces = pass->reduces && e->plan->world.ranks > 1;
  forget_buffers(e);
  begin_segment(e, pass->name, pass->count);
  emit_inputs(e);
  for (int32_t s = 0; s < e->schedule.step_count; s++) {
    while (gathers && next < e->schedule.use_count && e->schedule.uses[next].issue <= s) emit_gather(e, &e->schedule.uses[next++]);
    e->step_instr[s] = emit_step(e, &e->schedule.steps[s]);
    for (; reduce < e->schedule.reduction_count && reductions[reduce].after == s; reduce++)
      if (reduces) emit_reduce(e, reductions[reduce].unit);
  }
  end_segment(e);
  if (reduces && !e->decisions->reduce_once) hold_reduced_gradients(e);
}

/* --- segment "update" ------------------------------------------------------------------------------------------------------ */

static void emit_norm(Emitter *e) {
  Plan *plan = e->plan;
  add_instr(e, INSTR_ZERO, PHASE_UPDATE, "norm", OPERANDS(WHOLE(e->acc_buf)), INTS(EXACT_DIGITS), NULL);
  for (uint32_t u = 0; u < plan->units.count; u++) {
    const PlanUnit *unit = &plan->units.data[u];
    if (plan_unit_frozen(plan, unit)) continue;
    add_instr(e, INSTR_SUM_SQUARES, PHASE_UPDATE, plan_str(plan, unit->name), OPERANDS(WHOLE(unit->grad_buf), WHOLE(e->acc_buf)),
              INTS(u, (int64_t)unit->shard), NULL);
  }
  if (plan->world.shard > 1)
    add_instr(e, INSTR_ALLREDUCE_EXACT, PHASE_UPDATE, "norm", OPERANDS(WHOLE(e->acc_buf)), NULL, NULL);
  if (!graph_scales_loss(e->program->graph)) {
    add_instr(e, INSTR_CLIP, PHASE_UPDATE, "norm", OPERANDS(WHOLE(e->acc_buf), WHOLE(plan->norm_buf), WHOLE(e->scale_buf)),
              NULL, &plan->recipe.clip);
    return;
  }
  const LossScaling *scaling = &e->program->graph->loss_scaling;
  const double reals[] = {plan->recipe.clip, scaling->growth, scaling->backoff, scaling->init};
  add_instr(e, INSTR_CLIP_SCALED, PHASE_UPDATE, "norm",
            OPERANDS(WHOLE(e->acc_buf), WHOLE(e->scaler_buf), WHOLE(plan->norm_buf), WHOLE(e->scale_buf)),
            INTS((int64_t)scaling->interval), reals);
}

/* Integer sums over the shard group come between the passes; units follow each other, so that they overlap. */
static void emit_adafactor(Emitter *e) {
  Plan *plan = e->plan;
  bool sharded = plan->world.shard > 1;
  int32_t *sums = ARENA_ARRAY(e->arena, int32_t, plan->units.count), *norms = ARENA_ARRAY(e->arena, int32_t, plan->units.count);
  for (int pass = 0; pass < 3; pass++)
    for (uint32_t u = 0; u < plan->units.count; u++) {
      const PlanUnit *unit = &plan->units.data[u];
      const char *name = plan_str(plan, unit->name);
      if (plan_unit_frozen(plan, unit)) continue;
      uint64_t words = plan_factored_words(plan, unit), moments = plan_factored_numel(plan, unit);
      const int64_t ints[] = {(int64_t)u, (int64_t)unit->shard, (int64_t)words, (int64_t)moments, unit->param_count};
      if (pass == 0) {
        sums[u] = add_buf(e, unit_text(e, u, "sums"), BUF_WORKSPACE, DTYPE_I64, words, (int32_t)u, false);
        add_instr(e, INSTR_ADAFACTOR_SUMS, PHASE_UPDATE, name,
                  OPERANDS(WHOLE(unit->grad_buf), WHOLE(unit->param_buf), WHOLE(e->acc_buf), WHOLE(sums[u])), ints, NULL);
        if (sharded)
          add_instr(e, INSTR_ALLREDUCE_INT, PHASE_UPDATE, name, OPERANDS(WHOLE(sums[u])), INTS((int64_t)words), NULL);
      } else if (pass == 1) {
        uint64_t digits = words - moments;
        norms[u] = add_buf(e, unit_text(e, u, "norms"), BUF_WORKSPACE, DTYPE_I64, digits, (int32_t)u, false);
        add_instr(e, INSTR_ADAFACTOR_MOMENTS, PHASE_UPDATE, name,
                  OPERANDS(WHOLE(unit->grad_buf), WHOLE(e->acc_buf), WHOLE(e->scale_buf), WHOLE(sums[u]), WHOLE(unit->v_buf),
                           WHOLE(norms[u])),
                  ints, NULL);
        if (sharded)
          add_instr(e, INSTR_ALLREDUCE_INT, PHASE_UPDATE, name, OPERANDS(WHOLE(norms[u])), INTS((int64_t)digits), NULL);
      } else {
        add_instr(e, INSTR_ADAFACTOR, PHASE_UPDATE, name,
                  OPERANDS(WHOLE(unit->grad_buf), WHOLE(e->scale_buf), WHOLE(sums[u]), WHOLE(norms[u]), WHOLE(unit->v_buf),
                           WHOLE(unit->param_buf), WHOLE(unit->cast_buf)),
                  ints, NULL);
      }
    }
}

static void emit_elementwise(Emitter *e, InstrOp op) {
  Plan *plan = e->plan;
  for (uint32_t u = 0; u < plan->units.count; u++) {
    const PlanUnit *unit = &plan->units.data[u];
    if (plan_unit_frozen(plan, unit)) continue;
    PlanOperand operands[6] = {WHOLE(unit->grad_buf), WHOLE(e->scale_buf), WHOLE(unit->param_buf), WHOLE(unit->m_buf)};
    int count = 4;
    if (op == INSTR_ADAMW) operands[count++] = (PlanOperand)WHOLE(unit->v_buf);
    operands[count] = (PlanOperand)WHOLE(unit->cast_buf);
    add_instr(e, op, PHASE_UPDATE, plan_str(plan, unit->name), operands, INTS((int64_t)u, (int64_t)unit->shard), NULL);
  }
}

static void emit_update(Emitter *e) {
  static const InstrOp ops[OPTIMIZER_COUNT] = {
      [OPTIMIZER_ADAMW] = INSTR_ADAMW, [OPTIMIZER_SGD] = INSTR_SGD, [OPTIMIZER_LION] = INSTR_LION};
  Plan *plan = e->plan;
  begin_segment(e, "update", 1);
  emit_norm(e);
  if (plan->world.ranks > 1)
    add_instr(e, INSTR_ALLREDUCE_SUM, PHASE_UPDATE, "loss", OPERANDS(WHOLE(plan->loss_buf)), INTS(1), NULL);
  if (plan->recipe.optimizer == OPTIMIZER_ADAFACTOR)
    emit_adafactor(e);
  else
    emit_elementwise(e, ops[plan->recipe.optimizer]);
  end_segment(e);
}

/* --- lifetimes --------------------------------------------------------------------------------------------------------------- */

static void find_lifetimes(Emitter *e) {
  Plan *plan = e->plan;
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    for (int k = 0; k < e->program->specs[instr->op].operand_count; k++) {
      int32_t b = plan_operand(plan, instr, k)->buf;
      if (b < 0) continue;
      if (plan->bufs.data[b].first < 0) plan->bufs.data[b].first = i;
      plan->bufs.data[b].last = i;
    }
  }
  for (uint32_t h = 0; h < e->holds.count; h++) {
    PlanBuf *buf = &plan->bufs.data[e->holds.data[h].buf];
    if (buf->last < e->holds.data[h].last) buf->last = e->holds.data[h].last;
  }
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    if (!plan->bufs.data[b].persistent) continue;
    plan->bufs.data[b].first = 0;
    plan->bufs.data[b].last = (int32_t)plan->instrs.count - 1;
  }
}

static void count_live(Emitter *e) {
  Plan *plan = e->plan;
  int64_t *delta = ARENA_ARRAY(e->arena, int64_t, plan->instrs.count + 1);
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    const PlanBuf *buf = &plan->bufs.data[b];
    if (buf->persistent) {
      plan->persistent_bytes += buf->bytes;
    } else {
      delta[buf->first] += (int64_t)buf->bytes;
      delta[buf->last + 1] -= (int64_t)buf->bytes;
    }
  }
  int64_t live = 0, most = 0;
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    live += delta[i];
    if (live > most) most = live;
  }
  plan->max_live_bytes = plan->persistent_bytes + (uint64_t)most;
}

/* --- the whole ---------------------------------------------------------------------------------------------------------------- */

static void add_plan_inputs(Emitter *e) {
  const Graph *graph = e->program->graph;
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  for (uint32_t i = 0; i < graph->inputs.count; i++) {
    const Shape *shape = &graph->tensors.data[graph->inputs.data[i].tensor].shape;
    PlanInput *input = vec_add(e->arena, &e->plan->inputs);
    input->name = plan_intern(e->arena, e->plan, graph->inputs.data[i].name);
    input->feed = loss->inputs[1] == graph->inputs.data[i].tensor ? FEED_TARGETS : FEED_TOKENS;
    uint64_t numel = 0;
    shape_numel(shape, 1, &numel);
    input->sample_numel = (int64_t)numel;
    input->vocab = loss->kind == LAYER_CROSS_ENTROPY ? shape_cols(&graph->tensors.data[loss->inputs[0]].shape) : 0;
    for (uint32_t o = 0; o < graph->ops.count; o++)
      if (graph->ops.data[o].kind == LAYER_EMBEDDING && graph->ops.data[o].inputs[0] == graph->inputs.data[i].tensor)
        input->vocab = graph->params.data[graph->ops.data[o].weight].shape.dim[0];
  }
}

static void set_queues(Plan *plan, const Device *device) {
  bool cpu = device->kind == DEVICE_CPU;
  plan->queue[STREAM_COMPUTE] = 0;
  plan->queue[STREAM_GATHER] = 1;
  plan->queue[STREAM_REDUCE] = cpu || device->shared_queue ? 1 : 2;
  plan->queue[STREAM_REPLICATE] = cpu || device->shared_queue ? 1 : 3;
  plan->queue[STREAM_COPY_IN] = cpu ? 0 : 4;
  plan->queue[STREAM_COPY_OUT] = cpu ? 0 : 5;
}

static Plan *new_plan(Emitter *e) {
  const Graph *graph = e->program->graph;
  const Decisions *decisions = e->decisions;
  Plan *plan = plan_new(e->arena);
  plan->model = plan_intern(e->arena, plan, graph->name);
  plan->source_path = plan_intern(e->arena, plan, graph->path);
  plan->cluster = plan_intern(e->arena, plan, e->in->cluster->name);
  plan->source_hash = graph->source_hash;
  plan->training = !e->program->window;
  plan->output_buf = plan->loss_buf = plan->count_buf = plan->norm_buf = PLAN_NONE;
  plan->recipe = graph->recipe;
  plan->world = (PlanWorld){.ranks = decisions->ranks,
                            .shard = decisions->shard,
                            .replicas = decisions->replicas,
                            .ranks_per_node = decisions->ranks_per_node,
                            .micro_batch = (uint64_t)e->program->batch,
                            .accumulation = decisions->accumulation};
  plan->overlap = cost_overlap(e->in->cluster, &plan->world);
  plan->recipe.samples_per_step = plan->world.micro_batch * plan->world.accumulation * plan->world.ranks;
  plan->layers = checkpoint_block_count(e->program);
  set_queues(plan, &e->in->cluster->device);
  return plan;
}

static void start_program(Emitter *e, const Skeleton *skeleton) {
  const Program *program = skeleton->program;
  e->program = program;
  e->buf_of = ARENA_ARRAY(e->arena, int32_t, program->values.count);
  for (uint32_t i = 0; i < program->values.count; i++) e->buf_of[i] = PLAN_NONE;
  schedule_build(&e->schedule, e->arena, skeleton, e->decisions);
  e->step_instr = ARENA_ARRAY(e->arena, int32_t, (uint32_t)e->schedule.step_count);
}

static void emit_training(Emitter *e) {
  start_program(e, e->in->skeleton); /* settles which units stay gathered, as their table says */
  add_units(e);
  add_scalars(e);
  add_held(e);
  emit_begin(e);
  MicroPass passes[MICRO_PASSES];
  uint32_t count = schedule_passes(e->decisions, passes);
  for (uint32_t p = 0; p < count; p++) emit_pass(e, &passes[p]);
  emit_update(e);
  find_lifetimes(e);
}

static void emit_inference(Emitter *e) {
  add_units(e);
  emit_caches(e);
  if (e->in->prefill) {
    start_program(e, e->in->prefill);
    emit_pass(e, &(MicroPass){"prefill", 1, true, false});
  }
  start_program(e, e->in->skeleton);
  emit_pass(e, &(MicroPass){"decode", 1, true, false});
  find_lifetimes(e);
  e->plan->output_buf = e->buf_of[e->program->output_value];
}

Plan *emit_plan(Arena *arena, const EmitInput *input) {
  const Program *program = input->program;
  uint32_t units = input->decisions->units->units.count;
  Emitter e = {.arena = arena, .in = input, .program = program, .decisions = input->decisions};
  e.gathered = ARENA_ARRAY(arena, int32_t, units);
  e.grad_full = ARENA_ARRAY(arena, int32_t, units);
  for (uint32_t i = 0; i < units; i++) e.gathered[i] = e.grad_full[i] = PLAN_NONE;
  e.plan = new_plan(&e);
  add_plan_inputs(&e);
  if (e.plan->training)
    emit_training(&e);
  else
    emit_inference(&e);
  count_live(&e);
  return e.plan;
}
