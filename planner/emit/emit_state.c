/* Owns: emission of what persists: units with their shards, scalars, what is held over micro-batches, and the segment that
 * begins a step. */
#include "planner/emit/emitter.h"

#include "base/checked.h"

/* --- units ------------------------------------------------------------------------------------------------------------ */

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
    param->name = plan_append(e->arena, e->plan, from->name);
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

/* host: the OFFLOAD_* bit that moves it. */
static int32_t add_state(Emitter *e, uint32_t u, const char *suffix, BufClass class, DType dtype, uint64_t numel, uint32_t host) {
  int32_t buf = emit_buf(e, emit_unit_text(e, u, suffix), class, dtype, numel, (int32_t)u, true);
  e->plan->bufs.data[buf].host = (e->decisions->offload & host) != 0;
  return buf;
}

static void add_unit_state(Emitter *e, uint32_t u) {
  PlanUnit *unit = &e->plan->units.data[u];
  const Recipe *recipe = &e->plan->recipe;
  DType kept = unit_kept(e->program, &e->decisions->units->units.data[u]);
  bool copied = recipe->compute != kept;
  unit->param_buf = add_state(e, u, "param", BUF_PARAM, kept, unit->shard, copied ? OFFLOAD_OPTIMIZER : OFFLOAD_PARAMETERS);
  unit->cast_buf = unit->grad_buf = unit->m_buf = unit->v_buf = PLAN_NONE;
  if (copied) unit->cast_buf = add_state(e, u, "cast", BUF_PARAM, recipe->compute, unit->shard, OFFLOAD_PARAMETERS);
  if (!e->plan->training || e->decisions->units->units.data[u].frozen) return;
  unit->grad_buf = add_state(e, u, "grad", BUF_GRAD, recipe->reduce, unit->shard, OFFLOAD_GRADIENTS);
  bool adamw = recipe->optimizer == OPTIMIZER_ADAMW, lion = recipe->optimizer == OPTIMIZER_LION;
  if (recipe->optimizer == OPTIMIZER_ADAFACTOR) {
    uint64_t numel = plan_factored_numel(e->plan, unit);
    unit->v_buf = emit_buf(e, emit_unit_text(e, u, "v"), BUF_OPTIM, DTYPE_F32, numel, (int32_t)u, true);
    return;
  }
  if (adamw || lion || recipe->momentum != 0)
    unit->m_buf = add_state(e, u, "m", BUF_OPTIM, DTYPE_F32, unit->shard, OFFLOAD_OPTIMIZER);
  if (adamw) unit->v_buf = add_state(e, u, "v", BUF_OPTIM, DTYPE_F32, unit->shard, OFFLOAD_OPTIMIZER);
}

void emit_units(Emitter *e) {
  uint32_t shards = e->decisions->shard;
  e->param_offset = ARENA_ARRAY(e->arena, uint64_t, e->program->graph->params.count);
  for (uint32_t u = 0; u < e->decisions->units->units.count; u++) {
    PlanUnit *unit = vec_add(e->arena, &e->plan->units);
    unit->name = plan_intern(e->arena, e->plan, e->decisions->units->units.data[u].name);
    uint64_t flat = lay_out_unit(e, u);
    unit = &e->plan->units.data[u];
    unit->shard = round_up((flat + shards - 1) / shards, PLAN_ALIGN_ELEMENTS);
    unit->reshard = decisions_gather(e->decisions) && !e->decisions->keep[u] && !e->decisions->gather_once;
    e->plan->param_numel += unit->numel;
    add_unit_state(e, u);
  }
}

void emit_scalars(Emitter *e) {
  Plan *plan = e->plan;
  plan->loss_buf = emit_buf(e, "loss", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  plan->count_buf = emit_buf(e, "count", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  plan->norm_buf = emit_buf(e, "norm", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  e->scale_buf = emit_buf(e, "scale", BUF_SCALAR, DTYPE_F32, 1, PLAN_NONE, true);
  if (graph_scales_loss(e->program->graph)) {
    e->scaler_buf = emit_buf(e, "scaler", BUF_OPTIM, DTYPE_F64, SCALER_WORDS, PLAN_NONE, true);
    e->scaled_count_buf = emit_buf(e, "scaled_count", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  }
  e->acc_buf = emit_buf(e, "acc", BUF_SCALAR, DTYPE_I64, EXACT_DIGITS, PLAN_NONE, true);
  e->buf_of[e->program->count_value] = graph_scales_loss(e->program->graph) ? e->scaled_count_buf : plan->count_buf;
  e->buf_of[e->program->loss_value] = plan->loss_buf;
}

/* --- what is held over micro-batches ------------------------------------------------------------------------------------- */

bool emit_gathers_once(const Emitter *e) { return e->decisions->gather_once && decisions_gather(e->decisions); }
bool emit_adds_straight(const Emitter *e) {
  if (e->decisions->offload & OFFLOAD_GRADIENTS) return false;
  return e->plan->world.ranks == 1 || (e->decisions->reduce_once && e->plan->world.shard == 1);
}

int32_t emit_full(Emitter *e, int32_t u, bool persistent) {
  const PlanUnit *unit = &e->plan->units.data[u];
  return emit_buf(e, emit_unit_text(e, (uint32_t)u, "full"), BUF_GATHERED, e->plan->recipe.compute, unit->shard * e->plan->world.shard, u, persistent);
}

int32_t emit_gradfull(Emitter *e, int32_t u, bool persistent) {
  const PlanUnit *unit = &e->plan->units.data[u];
  return emit_buf(e, emit_unit_text(e, (uint32_t)u, "gradfull"), BUF_GRADFULL, e->plan->recipe.reduce, unit->shard * e->plan->world.shard, u, persistent);
}

void emit_held(Emitter *e) {
  for (int32_t u = 0; u < (int32_t)e->plan->units.count; u++) {
    if (emit_gathers_once(e)) e->gathered[u] = emit_full(e, u, true);
    bool learns = !plan_unit_frozen(e->plan, &e->plan->units.data[u]);
    if (decisions_holds_gradients(e->decisions) && learns) e->grad_full[u] = emit_gradfull(e, u, true);
  }
}

/* --- segment "begin" ------------------------------------------------------------------------------------------------------- */

/* What micro-batches add to. */
static void clear_gradient(Emitter *e, uint32_t u) {
  const PlanUnit *unit = &e->plan->units.data[u];
  bool held = e->grad_full[u] >= 0;
  uint64_t numel = held ? unit->shard * e->plan->world.shard : unit->shard;
  int32_t image = held ? e->grad_full[u] : emit_image(e, unit->grad_buf, PHASE_BEGIN, false);
  emit_instr(e, INSTR_ZERO, PHASE_BEGIN, plan_str(e->plan, unit->name), OPERANDS(WHOLE(image)), INTS((int64_t)numel), NULL);
  if (!held) emit_store_image(e, unit->grad_buf, image, PHASE_BEGIN);
}

void emit_begin(Emitter *e) {
  Plan *plan = e->plan;
  const Graph *graph = e->program->graph;
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  int32_t targets = 0;
  while (graph->inputs.data[targets].tensor != loss->inputs[1]) targets++;
  int64_t ignore = loss->kind == LAYER_CROSS_ENTROPY ? loss->as.cross_entropy.ignore_index : INT64_MIN;
  emit_begin_segment(e, "begin", 1);
  emit_instr(e, INSTR_COUNT_TARGETS, PHASE_BEGIN, "count", OPERANDS(WHOLE(plan->count_buf)), INTS(targets, ignore), NULL);
  if (plan->world.ranks > 1)
    emit_instr(e, INSTR_ALLREDUCE_SUM, PHASE_BEGIN, "count", OPERANDS(WHOLE(plan->count_buf)), INTS(1), NULL);
  if (graph_scales_loss(e->program->graph))
    emit_instr(e, INSTR_SCALE_COUNT, PHASE_BEGIN, "count",
              OPERANDS(WHOLE(plan->count_buf), WHOLE(e->scaler_buf), WHOLE(e->scaled_count_buf)), NULL, NULL);
  emit_instr(e, INSTR_ZERO, PHASE_BEGIN, "loss", OPERANDS(WHOLE(plan->loss_buf)), INTS(1), NULL);
  for (uint32_t u = 0; u < plan->units.count && plan->world.accumulation > 1; u++)
    if (!plan_unit_frozen(plan, &plan->units.data[u])) clear_gradient(e, u);
  emit_end_segment(e);
}

/* --- caches of inference ---------------------------------------------------------------------------------------------- */

void emit_caches(Emitter *e) {
  int32_t count = e->program->caches;
  if (count == 0) return;
  e->cache = ARENA_ARRAY(e->arena, int32_t, (size_t)count);
  emit_begin_segment(e, "begin", 1);
  for (uint32_t v = 0; v < e->program->values.count; v++) {
    const Value *value = &e->program->values.data[v];
    if (value->kind != VALUE_CACHE) continue;
    int32_t buf = e->cache[value->input] = emit_buf(e, value->name, BUF_CACHE, value->dtype, value->numel, PLAN_NONE, true);
    emit_instr(e, INSTR_ZERO, PHASE_BEGIN, value->name, OPERANDS(WHOLE(buf)), INTS((int64_t)value->numel), NULL);
  }
  emit_end_segment(e);
}
