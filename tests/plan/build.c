/* Owns: building plans by hand, and taking parts out of them. */
#include "tests/plan/build.h"
#include "base/checked.h"

#include <assert.h>

Build build_new(Arena *arena) {
  Plan *plan = plan_new(arena);
  plan->model = plan_intern(arena, plan, "toy");
  plan->source_path = plan_intern(arena, plan, "models/toy.fsdp");
  plan->cluster = plan_intern(arena, plan, "clusters/toy.fsdp");
  plan->source_hash = 0x0123456789abcdef;
  plan->training = true;
  plan->layers = 3;
  plan->queue[STREAM_GATHER] = 1;
  plan->queue[STREAM_REDUCE] = plan->queue[STREAM_REPLICATE] = 2;
  plan->queue[STREAM_COPY_IN] = plan->queue[STREAM_COPY_OUT] = 3;
  return (Build){.arena = arena, .plan = plan, .specs = instr_specs(arena)};
}

int32_t build_buf(Build *build, const char *name, BufClass class, DType dtype, uint64_t numel, int32_t unit,
                  bool persistent) {
  PlanBuf *buf = vec_add(build->arena, &build->plan->bufs);
  *buf = (PlanBuf){.name = plan_intern(build->arena, build->plan, name),
                   .class = class,
                   .dtype = dtype,
                   .numel = numel,
                   .bytes = numel * dtype_bytes(dtype),
                   .offset = build->end,
                   .persistent = persistent,
                   .unit = unit,
                   .first = INT32_MAX,
                   .last = -1};
  build->end = round_up(build->end + buf->bytes, PLAN_ALIGN_BYTES);
  return (int32_t)build->plan->bufs.count - 1;
}

static int32_t shard_buf(Build *build, const char *unit, const char *what, BufClass class, DType dtype,
                         int32_t id) {
  const char *name = arena_printf(build->arena, "%s.%s", unit, what);
  return build_buf(build, name, class, dtype, build->plan->units.data[id].shard, id, true);
}

int32_t build_unit(Build *build, const char *name, uint64_t shard) {
  Plan *plan = build->plan;
  int32_t id = (int32_t)plan->units.count;
  *vec_add(build->arena, &plan->units) = (PlanUnit){.name = plan_intern(build->arena, plan, name),
                                                    .shard = shard,
                                                    .reshard = true,
                                                    .first_param = (int32_t)plan->params.count};
  int32_t param = shard_buf(build, name, "param", BUF_PARAM, DTYPE_F32, id),
          cast = shard_buf(build, name, "cast", BUF_PARAM, DTYPE_BF16, id);
  int32_t grad = shard_buf(build, name, "grad", BUF_GRAD, DTYPE_F32, id),
          m = shard_buf(build, name, "m", BUF_OPTIM, DTYPE_F32, id);
  int32_t v = shard_buf(build, name, "v", BUF_OPTIM, DTYPE_F32, id);
  PlanUnit *unit = &plan->units.data[id];
  unit->param_buf = param, unit->cast_buf = cast, unit->grad_buf = grad, unit->m_buf = m, unit->v_buf = v;
  return id;
}

void build_param(Build *build, int32_t unit, const char *name, uint64_t offset, int64_t rows, int64_t cols) {
  Plan *plan = build->plan;
  uint64_t numel = (uint64_t)(rows ? rows * cols : cols);
  *vec_add(build->arena, &plan->params) =
      (PlanParam){.name = plan_intern(build->arena, plan, name),
                  .unit = unit,
                  .offset = offset,
                  .rank = rows ? 2 : 1,
                  .dim = {rows ? rows : cols, rows ? cols : 0},
                  .init = {rows ? INIT_NORMAL : INIT_ZEROS, rows ? 0.02 : 0},
                  .decay = rows != 0};
  plan->units.data[unit].param_count++;
  plan->units.data[unit].numel += numel;
  plan->param_numel += numel;
}

void build_segment(Build *build, const char *name, uint64_t count) {
  int32_t at = (int32_t)build->plan->instrs.count;
  *vec_add(build->arena, &build->plan->segments) = (PlanSegment){
      .name = plan_intern(build->arena, build->plan, name), .first = at, .end = at, .count = count};
}

int32_t build_instr(Build *build, InstrOp op, Phase phase, const char *name, const PlanOperand *operands,
                    const int64_t *ints, const double *reals, uint64_t ns) {
  Plan *plan = build->plan;
  const InstrSpec *spec = &build->specs[op];
  PlanInstr instr = {.op = op,
                     .stream = spec->stream,
                     .phase = phase,
                     .operands = plan->operands.count,
                     .ints = plan->ints.count,
                     .reals = plan->reals.count,
                     .waits = plan->waits.count,
                     .record = PLAN_NONE,
                     .name = plan_intern(build->arena, plan, name),
                     .ns = ns,
                     .span = {plan->source_path, 10 + plan->instrs.count, 3}};
  if (spec->stream == STREAM_COMPUTE)
    instr.flops = 1000 * ns;
  else
    instr.bytes = 10 * ns;
  for (int k = 0; k < spec->operand_count; k++) {
    vec_push(build->arena, &plan->operands, operands[k]);
    if (operands[k].buf == PLAN_NONE) continue;
    PlanBuf *buf = &plan->bufs.data[operands[k].buf];
    if (buf->last < 0) buf->first = (int32_t)plan->instrs.count;
    buf->last = (int32_t)plan->instrs.count;
  }
  for (int k = 0; k < spec->int_count; k++) vec_push(build->arena, &plan->ints, ints[k]);
  for (int k = 0; k < spec->real_count; k++) vec_push(build->arena, &plan->reals, reals[k]);
  vec_push(build->arena, &plan->instrs, instr);
  plan->segments.data[plan->segments.count - 1].end = (int32_t)plan->instrs.count;
  return (int32_t)plan->instrs.count - 1;
}

void build_edge(Build *build, int32_t from, int32_t to) {
  Plan *plan = build->plan;
  assert(to == (int32_t)plan->instrs.count - 1); /* waits stay in the order of instructions */
  if (plan->instrs.data[from].record == PLAN_NONE)
    plan->instrs.data[from].record = (int32_t)plan->event_count++;
  vec_push(build->arena, &plan->waits, plan->instrs.data[from].record);
  plan->instrs.data[to].wait_count++;
}

void restate_memory(Plan *plan) {
  uint64_t by_class[BUF_CLASS_COUNT];
  int32_t at;
  plan_peak(plan, by_class, &at);
  plan->max_live_bytes = 0;
  for (int c = 0; c < BUF_CLASS_COUNT; c++) plan->max_live_bytes += by_class[c];
}

/* The list position at which compute has waited for instruction i of another queue; at the latest the
 * segment's end. */
static int32_t end_of_async(const Plan *plan, const PlanSegment *segment, int32_t i) {
  for (int32_t j = i + 1; j < segment->end; j++) {
    const PlanInstr *instr = &plan->instrs.data[j];
    for (uint32_t w = 0; w < instr->wait_count && instr->stream == STREAM_COMPUTE; w++)
      if (plan->waits.data[instr->waits + w] == plan->instrs.data[i].record) return j;
  }
  return segment->end;
}

/* A buffer lives as long as something on another queue may still use it. */
static void cover_async(Build *build) {
  Plan *plan = build->plan;
  for (uint32_t s = 0; s < plan->segments.count; s++)
    for (int32_t i = plan->segments.data[s].first; i < plan->segments.data[s].end; i++) {
      const PlanInstr *instr = &plan->instrs.data[i];
      int32_t end = instr->stream == STREAM_COMPUTE ? i + 1 : end_of_async(plan, &plan->segments.data[s], i);
      for (int k = 0; k < build->specs[instr->op].operand_count; k++) {
        int32_t buf = plan_operand(plan, instr, k)->buf;
        if (buf != PLAN_NONE && plan->bufs.data[buf].last < end - 1) plan->bufs.data[buf].last = end - 1;
      }
    }
}

void build_finish(Build *build) {
  Plan *plan = build->plan;
  cover_async(build);
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    PlanBuf *buf = &plan->bufs.data[b];
    if (buf->persistent) {
      buf->first = 0;
      buf->last = (int32_t)plan->instrs.count - 1;
      plan->persistent_bytes += buf->bytes;
    }
  }
  restate_memory(plan);
  plan->arena_bytes = build->end;
  plan->summary.budget_bytes = build->end;
  plan->overlap = (PlanOverlap){.compute_spread = 0.08, .comm_spread = 0.12};
}

/* --- for breaking plans ------------------------------------------------------------------------------ */

int32_t find_buf(const Plan *plan, const char *name) {
  for (uint32_t b = 0; b < plan->bufs.count; b++)
    if (!strcmp(plan_str(plan, plan->bufs.data[b].name), name)) return (int32_t)b;
  assert(!"no such buffer");
  return PLAN_NONE;
}

PlanOperand *operand_of(Plan *plan, int32_t instr, int k) {
  return &plan->operands.data[plan->instrs.data[instr].operands + (uint32_t)k];
}

void drop_wait(Plan *plan, int32_t instr, uint32_t w) {
  PlanInstr *i = &plan->instrs.data[instr];
  assert(w < i->wait_count);
  memmove(&plan->waits.data[i->waits + w], &plan->waits.data[i->waits + w + 1],
          (i->wait_count - w - 1) * sizeof(int32_t));
  i->wait_count--;
}

static void shift(int32_t *position, int32_t removed) {
  if (*position > removed) --*position;
}

void drop_instr(Plan *plan, int32_t instr) {
  memmove(&plan->instrs.data[instr], &plan->instrs.data[instr + 1],
          (plan->instrs.count - 1 - (uint32_t)instr) * sizeof(PlanInstr));
  plan->instrs.count--;
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    PlanBuf *buf = &plan->bufs.data[b];
    shift(&buf->first, instr);
    if (buf->last >= instr) buf->last--;
  }
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    shift(&plan->segments.data[s].first, instr);
    shift(&plan->segments.data[s].end, instr);
  }
  restate_memory(plan);
}
