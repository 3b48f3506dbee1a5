/* Owns: emission: a schedule becomes instructions with their buffers, between a segment that begins the step and one that
 * updates the weights; for inference, segments that clear the caches, fill them, and end with the output. Memory depends on
 * list positions only, never on how long anything takes. */
#include "planner/emitter.h"

#include "planner/cost.h"

#include <stdlib.h>

/* --- buffers and instructions ----------------------------------------------------------------------------------------------- */

static int32_t add_buf(Emitter *e, StrId name, BufClass class, DType dtype, uint64_t numel, int32_t unit, bool persistent) {
  PlanBuf *buf = vec_add(e->arena, &e->plan->bufs);
  *buf = (PlanBuf){.name = name,
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

int32_t emit_buf(Emitter *e, const char *name, BufClass class, DType dtype, uint64_t numel, int32_t unit, bool persistent) {
  return add_buf(e, plan_intern(e->arena, e->plan, name), class, dtype, numel, unit, persistent);
}

/* Without its cost. */
static PlanInstr *add_instr(Emitter *e, InstrOp op, Phase phase, StrId name, const PlanOperand *operands, const int64_t *ints,
                            const double *reals) {
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
  instr->name = name;
  return instr;
}

int32_t emit_instr(Emitter *e, InstrOp op, Phase phase, const char *name, const PlanOperand *operands, const int64_t *ints,
                   const double *reals) {
  PlanInstr *instr = add_instr(e, op, phase, plan_intern(e->arena, e->plan, name), operands, ints, reals);
  cost_instr(e->in->cluster, e->plan, e->program->specs, instr);
  return (int32_t)e->plan->instrs.count - 1;
}

/* Names of operators and values come again with every pass and recomputation. */
static StrId intern_once(Emitter *e, StrId *id, const char *name) {
  if (!*id) *id = plan_intern(e->arena, e->plan, name);
  return *id;
}

const char *emit_unit_text(Emitter *e, uint32_t unit, const char *suffix) {
  return arena_printf(e->arena, "u%u.%s", unit, suffix);
}

void emit_hold(Emitter *e, int32_t buf, int32_t last) {
  Hold hold = {buf, last};
  vec_push(e->arena, &e->holds, hold);
}

/* --- offload ---------------------------------------------------------------------------------------------------------------- */

void emit_fetch(Emitter *e, int32_t host, int32_t device, Phase phase, const char *name) {
  emit_instr(e, INSTR_FETCH, phase, name, OPERANDS(WHOLE(host), WHOLE(device)), INTS((int64_t)e->plan->bufs.data[host].numel), NULL);
}

void emit_store(Emitter *e, int32_t device, int32_t host, Phase phase, const char *name) {
  emit_instr(e, INSTR_STORE, phase, name, OPERANDS(WHOLE(device), WHOLE(host)), INTS((int64_t)e->plan->bufs.data[host].numel), NULL);
}

static const char *owner_name(const Emitter *e, int32_t buf) {
  return plan_str(e->plan, e->plan->units.data[e->plan->bufs.data[buf].unit].name);
}

int32_t emit_image(Emitter *e, int32_t buf, Phase phase, bool reads) {
  if (buf == PLAN_NONE || !e->plan->bufs.data[buf].host) return buf;
  PlanBuf own = e->plan->bufs.data[buf];
  const char *name = arena_printf(e->arena, "%s.image", plan_str(e->plan, own.name));
  int32_t image = emit_buf(e, name, own.class, own.dtype, own.numel, own.unit, false);
  if (reads) emit_fetch(e, buf, image, phase, owner_name(e, buf));
  return image;
}

void emit_store_image(Emitter *e, int32_t buf, int32_t image, Phase phase) {
  if (image != buf) emit_store(e, image, buf, phase, owner_name(e, buf));
}

void emit_begin_segment(Emitter *e, const char *name, uint64_t count) {
  PlanSegment *segment = vec_add(e->arena, &e->plan->segments);
  segment->name = plan_intern(e->arena, e->plan, name);
  segment->first = (int32_t)e->plan->instrs.count;
  segment->count = count;
}

void emit_end_segment(Emitter *e) {
  e->plan->segments.data[e->plan->segments.count - 1].end = (int32_t)e->plan->instrs.count;
}

/* --- segment "micro" ------------------------------------------------------------------------------------------------------- */

/* Caches hold zeros until they are filled, since attention over a cache is handed all of it. */
static void emit_caches(Emitter *e) {
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
    e->buf_of[i] = emit_buf(e, value->name, BUF_INPUT, value->dtype, value->numel, PLAN_NONE, false);
    emit_instr(e, INSTR_INPUT, PHASE_FORWARD, value->name, OPERANDS(WHOLE(e->buf_of[i])),
              INTS((int64_t)value->numel, value->input), NULL);
  }
}

static int32_t gather_source(const PlanUnit *unit) { return unit->cast_buf >= 0 ? unit->cast_buf : unit->param_buf; }

static void emit_gather(Emitter *e, const Use *use) {
  Plan *plan = e->plan;
  const PlanUnit *unit = &plan->units.data[use->unit];
  Phase phase = e->schedule.steps[use->first].phase == PHASE_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD;
  int32_t full = emit_gathers_once(e) ? e->gathered[use->unit] : emit_full(e, use->unit, false);
  if (plan->world.shard > 1) {
    int32_t source = emit_image(e, gather_source(unit), phase, true);
    if (source != gather_source(&plan->units.data[use->unit])) e->shard_image[use - e->schedule.uses] = source;
    unit = &plan->units.data[use->unit];
    emit_instr(e, INSTR_ALLGATHER, phase, plan_str(plan, unit->name), OPERANDS(WHOLE(source), WHOLE(full)),
               INTS(use->unit, (int64_t)unit->shard), NULL);
  } else {
    emit_fetch(e, gather_source(unit), full, phase, plan_str(plan, unit->name));
  }
  e->gathered[use->unit] = full;
}

static int32_t gradient_buf(Emitter *e, int32_t u) {
  if (emit_adds_straight(e)) return e->plan->units.data[u].grad_buf;
  if (e->grad_full[u] < 0) e->grad_full[u] = emit_gradfull(e, u, false);
  return e->grad_full[u];
}

/* Where the last collective of unit u's gradient delivers: on the device, with what earlier micro-batches left there. */
static int32_t gradient_target(Emitter *e, int32_t u) {
  int32_t own = e->plan->units.data[u].grad_buf, image = emit_image(e, own, PHASE_BACKWARD, decisions_adds_up(e->decisions));
  if (image != own) e->grad_image[u] = image;
  return image;
}

static int32_t emit_reduce_scatter(Emitter *e, int32_t u, int32_t source) {
  const PlanUnit *unit = &e->plan->units.data[u];
  bool last = e->plan->world.replicas == 1;
  int32_t to = last ? gradient_target(e, u)
                    : emit_buf(e, emit_unit_text(e, (uint32_t)u, "gradpart"), BUF_GRADFULL, e->plan->recipe.reduce, unit->shard, u, false);
  emit_instr(e, INSTR_REDUCE_SCATTER, PHASE_BACKWARD, plan_str(e->plan, unit->name), OPERANDS(WHOLE(source), ADDING(to, last && decisions_adds_up(e->decisions))),
             INTS(u, (int64_t)unit->shard), NULL);
  return to;
}

/* In place where nothing is added and the sum need not lie apart. */
static int32_t emit_allreduce(Emitter *e, int32_t u, int32_t source) {
  const PlanUnit *unit = &e->plan->units.data[u];
  bool offloaded = e->plan->bufs.data[unit->grad_buf].host, in_place = offloaded && !decisions_adds_up(e->decisions);
  int32_t to = in_place ? source : gradient_target(e, u);
  if (in_place) e->grad_image[u] = source;
  emit_instr(e, INSTR_ALLREDUCE, PHASE_BACKWARD, plan_str(e->plan, unit->name), OPERANDS(WHOLE(source), ADDING(to, decisions_adds_up(e->decisions))),
             INTS(u, (int64_t)unit->shard), NULL);
  return to;
}

static void emit_reduce(Emitter *e, int32_t u) {
  int32_t at = gradient_buf(e, u);
  if (e->plan->world.shard > 1) at = emit_reduce_scatter(e, u, at);
  if (e->plan->world.replicas > 1) at = emit_allreduce(e, u, at);
  emit_store_image(e, e->plan->units.data[u].grad_buf, at, PHASE_BACKWARD);
}

/* One rank adds contributions to the gradient itself, so that it must be there before the first. */
static void emit_first_gradient(Emitter *e, int32_t u) {
  e->grad_full[u] = emit_gradfull(e, u, false);
  if (decisions_adds_up(e->decisions)) emit_fetch(e, e->plan->units.data[u].grad_buf, e->grad_full[u], PHASE_BACKWARD, plan_str(e->plan, e->plan->units.data[u].name));
}

static BufClass class_of(ValueKind kind) {
  return kind == VALUE_WORKSPACE ? BUF_WORKSPACE : BUF_ACTIVATION;
}

static PlanOperand param_operand(Emitter *e, const Value *value) {
  int32_t u = e->decisions->units->unit_of[value->param];
  int32_t buf = decisions_gather(e->decisions) ? e->gathered[u] : gather_source(&e->plan->units.data[u]);
  return (PlanOperand){.buf = buf, .offset = e->param_offset[value->param]};
}

static PlanOperand gradient_operand(Emitter *e, const Value *value, bool add) {
  int32_t u = e->decisions->units->unit_of[value->param];
  return (PlanOperand){.buf = gradient_buf(e, u), .offset = e->param_offset[value->param], .add = add || decisions_zeroes(e->decisions)};
}

/* A layer's result has the layer's name. */
static StrId value_name(Emitter *e, int32_t v) {
  const Value *value = &e->program->values.data[v];
  const ProgramOp *producer = value->producer >= 0 ? &e->program->ops.data[value->producer] : NULL;
  bool same = producer && producer->name == value->name;
  return intern_once(e, same ? &e->layer_name[producer->graph_op] : &e->value_name[v], value->name);
}

static PlanOperand operand_of(Emitter *e, const Ref *ref, OperandMode mode, Phase phase) {
  if (ref->value < 0) return (PlanOperand){.buf = PLAN_NONE};
  const Value *value = &e->program->values.data[ref->value];
  if (value->kind == VALUE_PARAM) return param_operand(e, value);
  if (value->kind == VALUE_PARAM_GRADIENT) return gradient_operand(e, value, ref->add);
  if (value->kind == VALUE_CACHE) return (PlanOperand){.buf = e->cache[value->input]};
  bool creates = e->buf_of[ref->value] < 0 || (mode == MODE_WRITE && phase == PHASE_RECOMPUTE);
  if (creates)
    e->buf_of[ref->value] = add_buf(e, value_name(e, ref->value), class_of(value->kind), value->dtype, value->numel, PLAN_NONE, false);
  return (PlanOperand){e->buf_of[ref->value], ref->column, ref->ld, ref->add};
}

/* The program's costs hold, unless what is written once there is added to here. */
static bool costs_hold(const Emitter *e, const ProgramOp *op, const PlanOperand *operands) {
  bool hold = true;
  for (int32_t k = 0; k < op->ref_count; k++)
    hold &= operands[k].buf < 0 ? op->refs[k].value < 0
                                : operands[k].add == op->refs[k].add &&
                                      e->plan->bufs.data[operands[k].buf].dtype == e->program->values.data[op->refs[k].value].dtype;
  return hold;
}

static void copy_cost(PlanInstr *instr, const ProgramOp *op) {
  instr->ns = op->ns;
  instr->flops = op->flops;
  instr->bytes = op->bytes;
}

static int32_t emit_step(Emitter *e, const Step *step) {
  const ProgramOp *op = &e->program->ops.data[step->op];
  const InstrSpec *spec = &e->program->specs[op->op];
  PlanOperand operands[INSTR_MAX_OPERANDS];
  for (int32_t k = 0; k < op->ref_count; k++) operands[k] = operand_of(e, &op->refs[k], spec->operands[k].mode, step->phase);
  StrId name = intern_once(e, &e->layer_name[op->graph_op], op->name);
  PlanInstr *instr = add_instr(e, op->op, step->phase, name, operands, op->ints, op->reals);
  if (costs_hold(e, op, operands))
    copy_cost(instr, op);
  else
    cost_instr(e->in->cluster, e->plan, e->program->specs, instr);
  PlanSpan span = e->in->spans[op->graph_op];
  if (e->path != e->in->span_paths[op->graph_op]) {
    e->path = e->in->span_paths[op->graph_op];
    e->path_id = plan_intern(e->arena, e->plan, e->path);
  }
  span.path = e->path_id;
  instr->span = span;
  return (int32_t)e->plan->instrs.count - 1;
}

/* Compute runs on while a gradient is reduced: its buffer is free for reuse only after the schedule's release. */
static void hold_reduced_gradients(Emitter *e) {
  for (uint32_t r = 0; r < e->schedule.reduction_count; r++) {
    const Reduction *reduction = &e->schedule.reductions[r];
    int32_t release = e->step_instr[reduction->release];
    if (e->grad_full[reduction->unit] >= 0) emit_hold(e, e->grad_full[reduction->unit], release);
    if (e->grad_image[reduction->unit] >= 0) emit_hold(e, e->grad_image[reduction->unit], release);
  }
}

/* Compute runs on while a unit is gathered from a shard that was fetched. */
static void hold_fetched_shards(Emitter *e) {
  for (uint32_t i = 0; i < e->schedule.use_count; i++) {
    const Use *use = &e->schedule.uses[i];
    if (e->shard_image[i] >= 0 && use->held >= use->issue) emit_hold(e, e->shard_image[i], e->step_instr[use->held]);
  }
}

/* Every pass has buffers of its own, but for what is held over micro-batches. */
static void forget_buffers(Emitter *e) {
  for (uint32_t v = 0; v < e->program->values.count; v++)
    if (e->program->flow.transient[v]) e->buf_of[v] = PLAN_NONE;
  for (uint32_t u = 0; u < e->plan->units.count; u++) {
    if (!emit_gathers_once(e)) e->gathered[u] = PLAN_NONE;
    if (!e->decisions->reduce_once) e->grad_full[u] = PLAN_NONE;
    e->grad_image[u] = PLAN_NONE;
  }
  for (uint32_t i = 0; i < 2 * e->plan->units.count; i++) e->shard_image[i] = PLAN_NONE; /* at most two uses a unit */
}

/* Room for a pass, so that nothing is copied while it grows. */
static void reserve_pass(Emitter *e) {
  Plan *plan = e->plan;
  uint32_t collectives = e->schedule.use_count + 2 * e->schedule.reduction_count, updates = 2 * plan->units.count;
  uint32_t instrs = (uint32_t)e->schedule.step_count + collectives + updates;
  uint32_t operands = 2 * collectives + 4 * updates, ints = 2 * (collectives + updates);
  for (int32_t s = 0; s < e->schedule.step_count; s++) {
    const InstrSpec *spec = &e->program->specs[e->program->ops.data[e->schedule.steps[s].op].op];
    operands += (uint32_t)spec->operand_count;
    ints += (uint32_t)spec->int_count;
  }
  vec_reserve(e->arena, &plan->instrs, plan->instrs.count + instrs);
  vec_reserve(e->arena, &plan->operands, plan->operands.count + operands);
  vec_reserve(e->arena, &plan->ints, plan->ints.count + ints);
  vec_reserve(e->arena, &plan->bufs, plan->bufs.count + e->program->values.count + instrs);
}

static int compare_first(const void *a, const void *b, void *reductions) {
  const Reduction *all = reductions;
  int32_t x = all[*(const uint32_t *)a].first, y = all[*(const uint32_t *)b].first;
  return (x > y) - (x < y);
}

static const uint32_t *reductions_by_first(const Emitter *e) {
  uint32_t *order = ARENA_ARRAY(e->arena, uint32_t, e->schedule.reduction_count);
  for (uint32_t r = 0; r < e->schedule.reduction_count; r++) order[r] = r;
  qsort_r(order, e->schedule.reduction_count, sizeof *order, compare_first, e->schedule.reductions);
  return order;
}

static void emit_departure(Emitter *e, const Trip *trip) {
  const Value *value = &e->program->values.data[trip->value];
  const char *name = arena_printf(e->arena, "%s.host", value->name);
  int32_t host = emit_buf(e, name, BUF_ACTIVATION, value->dtype, value->numel, PLAN_NONE, false);
  e->plan->bufs.data[host].host = true;
  emit_store(e, e->buf_of[trip->value], host, PHASE_FORWARD, value->name);
  e->away[trip->value] = host;
}

static void emit_return(Emitter *e, const Trip *trip) {
  const Value *value = &e->program->values.data[trip->value];
  e->left[trip - e->schedule.trips] = e->buf_of[trip->value];
  e->buf_of[trip->value] = emit_buf(e, value->name, BUF_ACTIVATION, value->dtype, value->numel, PLAN_NONE, false);
  emit_fetch(e, e->away[trip->value], e->buf_of[trip->value], PHASE_BACKWARD, value->name);
}

/* Compute runs on while a value is stored: its buffer is free for reuse only after the schedule's release. */
static void hold_departures(Emitter *e) {
  for (uint32_t t = 0; t < e->schedule.trip_count; t++) emit_hold(e, e->left[t], e->step_instr[e->schedule.trips[t].release]);
}

static void emit_pass(Emitter *e, const MicroPass *pass) {
  uint32_t next = 0, reduce = 0, begun = 0, departed = 0, returned = 0;
  const Trip *trips = e->schedule.trips;
  const Reduction *reductions = e->schedule.reductions;
  bool gathers = pass->gathers && decisions_gather(e->decisions), reduces = pass->reduces && decisions_reduce(e->decisions);
  bool fetches = reduces && e->plan->world.ranks == 1; /* gradients that are offloaded */
  const uint32_t *by_first = fetches ? reductions_by_first(e) : NULL;
  forget_buffers(e);
  reserve_pass(e);
  emit_begin_segment(e, pass->name, pass->count);
  emit_inputs(e);
  for (int32_t s = 0; s < e->schedule.step_count; s++) {
    while (gathers && next < e->schedule.use_count && e->schedule.uses[next].issue <= s) emit_gather(e, &e->schedule.uses[next++]);
    for (; fetches && begun < e->schedule.reduction_count && reductions[by_first[begun]].first == s; begun++)
      emit_first_gradient(e, reductions[by_first[begun]].unit);
    for (; returned < e->schedule.trip_count && trips[e->schedule.returns[returned]].issue <= s; returned++)
      emit_return(e, &trips[e->schedule.returns[returned]]);
    e->step_instr[s] = emit_step(e, &e->schedule.steps[s]);
    for (; departed < e->schedule.trip_count && trips[departed].after == s; departed++) emit_departure(e, &trips[departed]);
    for (; reduce < e->schedule.reduction_count && reductions[reduce].after == s; reduce++)
      if (reduces) emit_reduce(e, reductions[reduce].unit);
  }
  emit_end_segment(e);
  if (gathers) hold_fetched_shards(e);
  if (reduces) hold_reduced_gradients(e);
  hold_departures(e);
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
    if (buf->host) continue;
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
  e->value_name = ARENA_ARRAY(e->arena, StrId, program->values.count);
  e->layer_name = ARENA_ARRAY(e->arena, StrId, program->graph->ops.count);
  schedule_build(&e->schedule, e->arena, skeleton, e->decisions);
  e->step_instr = ARENA_ARRAY(e->arena, int32_t, (uint32_t)e->schedule.step_count);
  e->away = ARENA_ARRAY(e->arena, int32_t, e->schedule.trip_count ? program->values.count : 0);
  e->left = ARENA_ARRAY(e->arena, int32_t, e->schedule.trip_count);
}

static void emit_training(Emitter *e) {
  start_program(e, e->in->skeleton); /* settles which units stay gathered, as their table says */
  emit_units(e);
  emit_scalars(e);
  emit_held(e);
  emit_begin(e);
  MicroPass passes[MICRO_PASSES];
  uint32_t count = schedule_passes(e->decisions, passes);
  for (uint32_t p = 0; p < count; p++) emit_pass(e, &passes[p]);
  emit_update(e);
  find_lifetimes(e);
}

static void emit_inference(Emitter *e) {
  emit_units(e);
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
  e.shard_image = ARENA_ARRAY(arena, int32_t, 2 * (size_t)units);
  e.grad_full = ARENA_ARRAY(arena, int32_t, units);
  e.grad_image = ARENA_ARRAY(arena, int32_t, units);
  for (uint32_t i = 0; i < units; i++) e.gathered[i] = e.grad_full[i] = e.grad_image[i] = PLAN_NONE;
  e.plan = new_plan(&e);
  add_plan_inputs(&e);
  if (e.plan->training)
    emit_training(&e);
  else
    emit_inference(&e);
  count_live(&e);
  return e.plan;
}
