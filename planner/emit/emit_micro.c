/* Owns: emission of a segment of micro-batches: the steps of the schedule, with gathers, reductions, transfers and what they hold. */
#include "planner/emit/emitter.h"

#include "planner/cost.h"

/* Names of operators and values come again with every pass and recomputation. */
static StrId append_once(Emitter *e, StrId *id, const char *name) {
  if (!*id) *id = plan_append(e->arena, e->plan, name);
  return *id;
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
  if (e->grad_image[u] >= 0) return e->grad_image[u];
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
  if (!last) e->grad_part[u] = to;
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

static void emit_addend(Emitter *e, int32_t u, bool alone) {
  if (alone) emit_first_gradient(e, u);
  else (void)gradient_target(e, u);
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
  return append_once(e, same ? &e->layer_name[producer->graph_op] : &e->value_name[v], value->name);
}

static PlanOperand operand_of(Emitter *e, const Ref *ref, OperandMode mode, Phase phase) {
  if (ref->value < 0) return (PlanOperand){.buf = PLAN_NONE};
  const Value *value = &e->program->values.data[ref->value];
  if (value->kind == VALUE_PARAM) return param_operand(e, value);
  if (value->kind == VALUE_PARAM_GRADIENT) return gradient_operand(e, value, ref->add);
  if (value->kind == VALUE_CACHE) return (PlanOperand){.buf = e->cache[value->input]};
  bool creates = e->buf_of[ref->value] < 0 || (mode == MODE_WRITE && phase == PHASE_RECOMPUTE);
  if (creates)
    e->buf_of[ref->value] = emit_named_buf(e, value_name(e, ref->value), class_of(value->kind), value->dtype, value->numel, PLAN_NONE, false);
  return (PlanOperand){e->buf_of[ref->value], ref->ld, ref->column, ref->add};
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
  StrId name = append_once(e, &e->layer_name[op->graph_op], op->name);
  PlanInstr *instr = emit_costless(e, op->op, step->phase, name, operands, op->ints, op->reals);
  if (costs_hold(e, op, operands))
    copy_cost(instr, op);
  else
    cost_instr(e->in->cluster, e->plan, e->program->specs, instr);
  const int32_t s = (int32_t)(step - e->schedule.steps);
  if (e->schedule.copying_ns) instr->ns += e->schedule.copying_ns[s];
  PlanSpan span = e->in->spans[op->graph_op];
  if (e->path != e->in->span_paths[op->graph_op]) {
    e->path = e->in->span_paths[op->graph_op];
    e->path_id = plan_intern(e->arena, e->plan, e->path);
  }
  span.path = e->path_id;
  instr->span = span;
  return (int32_t)e->plan->instrs.count - 1;
}

/* Compute runs on while a gradient is reduced: its buffers are free for reuse only after the schedule lets go of them. */
static void hold_reduced_gradients(Emitter *e) {
  for (uint32_t r = 0; r < e->schedule.reduction_count; r++) {
    const Reduction *reduction = &e->schedule.reductions[r];
    int32_t release = e->step_instr[reduction->release], landed = e->step_instr[reduction->landed];
    if (e->grad_full[reduction->unit] >= 0) emit_hold(e, e->grad_full[reduction->unit], release);
    if (e->grad_part[reduction->unit] >= 0) emit_hold(e, e->grad_part[reduction->unit], landed);
    if (e->grad_image[reduction->unit] >= 0) emit_hold(e, e->grad_image[reduction->unit], landed);
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
    e->grad_part[u] = e->grad_image[u] = PLAN_NONE;
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

void emit_pass(Emitter *e, const MicroPass *pass) {
  uint32_t next = 0, reduce = 0, brought = 0, departed = 0, returned = 0;
  const Trip *trips = e->schedule.trips;
  const Reduction *reductions = e->schedule.reductions;
  bool gathers = pass->gathers && decisions_gather(e->decisions), reduces = pass->reduces && decisions_reduce(e->decisions);
  /* What is added to is fetched ahead of gathers, which are needed later; by more than one rank in memory of its own: in what the step before
   * the reduction lets go of, it would wait for the reduction before. */
  bool alone = e->plan->world.ranks == 1, brings = reduces && (alone || decisions_adds_up(e->decisions));
  forget_buffers(e);
  reserve_pass(e);
  emit_begin_segment(e, pass->name, pass->count);
  /* Both copies take the same queue: inputs arrive while the first unit is gathered. */
  if (gathers && (e->decisions->offload & OFFLOAD_PARAMETERS) && e->schedule.uses[0].issue <= 0) emit_gather(e, &e->schedule.uses[next++]);
  emit_inputs(e);
  for (int32_t s = 0; s < e->schedule.step_count; s++) {
    for (; brings && brought < e->schedule.reduction_count && reductions[e->schedule.brought[brought]].issue <= s; brought++)
      emit_addend(e, reductions[e->schedule.brought[brought]].unit, alone);
    while (gathers && next < e->schedule.use_count && e->schedule.uses[next].issue <= s) emit_gather(e, &e->schedule.uses[next++]);
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
