/* Owns: what emission is written in: buffers, instructions, segments; copies between a persistent buffer in host memory and its image
 * on the device. */
#include "planner/emit/emitter.h"

#include "planner/cost.h"

int32_t emit_named_buf(Emitter *e, StrId name, BufClass class, DType dtype, uint64_t numel, int32_t unit, bool persistent) {
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
  return emit_named_buf(e, plan_intern(e->arena, e->plan, name), class, dtype, numel, unit, persistent);
}

PlanInstr *emit_costless(Emitter *e, InstrOp op, Phase phase, StrId name, const PlanOperand *operands, const int64_t *ints,
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
  PlanInstr *instr = emit_costless(e, op, phase, plan_intern(e->arena, e->plan, name), operands, ints, reals);
  cost_instr(e->in->cluster, e->plan, e->program->specs, instr);
  return (int32_t)e->plan->instrs.count - 1;
}

const char *emit_unit_text(Emitter *e, uint32_t unit, const char *suffix) {
  return arena_printf(e->arena, "u%u.%s", unit, suffix);
}

void emit_hold(Emitter *e, int32_t buf, int32_t last) {
  Hold hold = {buf, last};
  vec_push(e->arena, &e->holds, hold);
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
