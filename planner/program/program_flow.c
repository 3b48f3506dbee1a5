/* Owns: the program as its schedules see it (Flow): what each op reads and writes, packed, and from where to where values live. */
#include "planner/program/program_builder.h"

#include "base/checked.h"

static void mark_producers(Program *program) {
  for (uint32_t i = 0; i < program->ops.count; i++) {
    const ProgramOp *op = &program->ops.data[i];
    if (op->phase != PHASE_FORWARD) return;
    for (int32_t k = 0; k < op->ref_count; k++) {
      OperandMode mode = program->specs[op->op].operands[k].mode;
      if (op->refs[k].value < 0 || !(mode == MODE_WRITE || (mode == MODE_ADD && !op->refs[k].add))) continue;
      program->values.data[op->refs[k].value].producer = (int32_t)i;
    }
  }
}

/* The forward op that can write the value again, or after which it can be moved; copies are kept where they are. */
static int32_t producer_of(const Program *program, const Value *value) {
  bool again = value->kind == VALUE_ACTIVATION && value->producer >= 0 && program->ops.data[value->producer].op != INSTR_COPY;
  return again ? value->producer : PLAN_NONE;
}

static bool is_param(ValueKind kind) { return kind == VALUE_PARAM || kind == VALUE_PARAM_GRADIENT; }

static bool is_transient(ValueKind kind) {
  return kind == VALUE_ACTIVATION || kind == VALUE_GRADIENT || kind == VALUE_WORKSPACE || kind == VALUE_INPUT;
}

static void note_touch(Flow *flow, const Program *program, int32_t value, int32_t op) {
  if (flow->first_op[value] < 0) flow->first_op[value] = program->values.data[value].kind == VALUE_INPUT ? 0 : op;
  if (op < program->turn) flow->last_forward[value] = op;
  else if (flow->first_backward[value] < 0) flow->first_backward[value] = op;
  flow->last_op[value] = op;
}

static void add_flow(Program *program, int32_t op, uint32_t *count) {
  Flow *flow = &program->flow;
  const ProgramOp *from = &program->ops.data[op];
  flow->first[op] = *count;
  for (int32_t k = 0; k < from->ref_count; k++) {
    int32_t v = from->refs[k].value;
    if (v < 0) continue;
    const Value *value = &program->values.data[v];
    OperandMode mode = program->specs[from->op].operands[k].mode;
    if (is_param(value->kind)) {
      flow->params[flow->param_count++] = (ParamRef){op, value->param, value->kind == VALUE_PARAM_GRADIENT};
      continue;
    }
    bool reads = mode == MODE_READ || mode == MODE_UPDATE;
    flow->refs[(*count)++] = (FlowRef){v, flow->transient[v], reads, mode == MODE_WRITE};
    note_touch(flow, program, v, op);
  }
}

/* The largest result of each forward op that backward reads later, and only reads: statistics beside it stay. What the loss
 * itself reads would come back at once. */
static void find_moved(Program *program) {
  Flow *flow = &program->flow;
  bool *changed = ARENA_ARRAY(program->arena, bool, program->values.count);
  for (uint32_t i = (uint32_t)program->turn; i < program->ops.count; i++)
    for (int32_t k = 0; k < program->ops.data[i].ref_count; k++) {
      int32_t v = program->ops.data[i].refs[k].value;
      if (v >= 0 && program->specs[program->ops.data[i].op].operands[k].mode != MODE_READ) changed[v] = true;
    }
  for (uint32_t i = 0; i < program->ops.count; i++) flow->moved[i] = PLAN_NONE;
  for (uint32_t v = 0; v < program->values.count; v++) {
    int32_t op = flow->producer[v];
    if (op < 0 || op >= program->turn || changed[v] || flow->first_backward[v] <= program->turn) continue;
    if (flow->moved[op] < 0 || flow->value_bytes[v] > flow->value_bytes[flow->moved[op]]) flow->moved[op] = (int32_t)v;
  }
}

void program_find_flow(Program *program) {
  mark_producers(program);
  Flow *flow = &program->flow;
  Arena *arena = program->arena;
  uint32_t count = 0, values = program->values.count, ops = program->ops.count;
  for (uint32_t i = 0; i < ops; i++) count += (uint32_t)program->ops.data[i].ref_count;
  *flow = (Flow){.refs = ARENA_ARRAY(arena, FlowRef, count),
                 .first = ARENA_ARRAY(arena, uint32_t, ops + 1),
                 .params = ARENA_ARRAY(arena, ParamRef, count),
                 .value_bytes = ARENA_ARRAY(arena, uint64_t, values),
                 .transient = ARENA_ARRAY(arena, bool, values),
                 .producer = ARENA_ARRAY(arena, int32_t, values),
                 .first_op = ARENA_ARRAY(arena, int32_t, values),
                 .last_forward = ARENA_ARRAY(arena, int32_t, values),
                 .last_op = ARENA_ARRAY(arena, int32_t, values),
                 .first_backward = ARENA_ARRAY(arena, int32_t, values),
                 .moved = ARENA_ARRAY(arena, int32_t, ops),
                 .op_ns = ARENA_ARRAY(arena, uint64_t, ops),
                 .adding_ns = ARENA_ARRAY(arena, uint64_t, ops),
                 .moved_ns = ARENA_ARRAY(arena, uint64_t, ops)};
  for (uint32_t v = 0; v < values; v++) {
    const Value *value = &program->values.data[v];
    flow->value_bytes[v] = round_up(value->numel * dtype_bytes(value->dtype), PLAN_ALIGN_BYTES);
    flow->transient[v] = is_transient(value->kind);
    flow->producer[v] = producer_of(program, value);
    flow->first_op[v] = flow->last_forward[v] = flow->last_op[v] = flow->first_backward[v] = PLAN_NONE;
  }
  count = 0;
  for (int32_t i = 0; i < (int32_t)ops; i++) add_flow(program, i, &count);
  flow->first[ops] = count;
  find_moved(program);
}
