/* Owns: which forward operators the file decides about, and which it leaves to the search.
 *
 * none: everything is kept. full: blocks (outermost repeat iterations) keep only what something outside them reads. auto: the
 * same values are kept, everything else in blocks is free. Rules by operator name override in their order. What
 * the loss reads is always kept: it would be needed again at once. So are copies, of parameters or for the loss. */
#include "planner/program/decisions.h"

uint32_t checkpoint_block_count(const Program *program) {
  uint32_t count = 0;
  int32_t last = PLAN_NONE;
  for (uint32_t i = 0; i < program->graph->ops.count; i++) {
    int32_t block = program->block[i];
    if (block >= 0 && block != last) count++;
    last = block;
  }
  return count;
}

static void recompute_blocks(const Program *program, bool *recompute) {
  for (int32_t i = 0; i < program->turn; i++) recompute[i] = program->block[program->ops.data[i].graph_op] >= 0;
}

/* A value read by an operator outside its block is what the block hands on. */
static void keep_block_outputs(const Program *program, bool *recompute) {
  for (uint32_t i = 0; i < program->ops.count && (int32_t)i <= program->turn; i++) {
    const ProgramOp *op = &program->ops.data[i];
    for (int32_t k = 0; k < op->ref_count; k++) {
      if (op->refs[k].value < 0) continue;
      const Value *value = &program->values.data[op->refs[k].value];
      if (value->kind != VALUE_ACTIVATION || value->producer < 0 || value->producer == (int32_t)i) continue;
      int32_t from = program->block[program->ops.data[value->producer].graph_op];
      if ((int32_t)i == program->turn || from != program->block[op->graph_op]) recompute[value->producer] = false;
    }
  }
}

static void keep_loss_inputs(const Program *program, Pin *pins, bool *recompute, bool *away) {
  if (program->turn >= (int32_t)program->ops.count) return;
  const ProgramOp *turn = &program->ops.data[program->turn];
  for (int32_t k = 0; k < turn->ref_count; k++) {
    if (turn->refs[k].value < 0) continue;
    const Value *value = &program->values.data[turn->refs[k].value];
    if (value->kind != VALUE_ACTIVATION || value->producer < 0) continue;
    recompute[value->producer] = away[value->producer] = false;
    pins[value->producer] = PIN_EXACT;
  }
}

static void keep_copies(const Program *program, Pin *pins, bool *recompute, bool *away) {
  for (int32_t i = 0; i < program->turn; i++) {
    if (program->ops.data[i].op != INSTR_COPY) continue;
    recompute[i] = away[i] = false;
    pins[i] = PIN_EXACT;
  }
}

static void pin_policy(const Program *program, const PlanSettings *settings, Pin *pins, bool *recompute) {
  uint32_t blocks = checkpoint_block_count(program);
  bool automatic = settings->checkpoint == CHECKPOINT_AUTO;
  if (settings->checkpoint != CHECKPOINT_NONE) recompute_blocks(program, recompute);
  if (automatic && !blocks)
    for (int32_t i = 0; i < program->turn; i++) recompute[i] = true;
  keep_block_outputs(program, recompute);
  for (int32_t i = 0; i < program->turn; i++) pins[i] = !recompute[i] ? PIN_KEPT : automatic ? PIN_NONE : PIN_EXACT;
}

void checkpoint_pin(const Program *program, const PlanSettings *settings, Pin *pins, bool *recompute, bool *away) {
  pin_policy(program, settings, pins, recompute);
  for (uint32_t r = 0; r < settings->checkpoints.count; r++) {
    const CheckpointRule *rule = &settings->checkpoints.data[r];
    for (int32_t i = 0; i < program->turn; i++) {
      if (!path_matches(rule->pattern, program->ops.data[i].name)) continue;
      recompute[i] = rule->recompute;
      away[i] = rule->host && program->flow.moved[i] >= 0;
      pins[i] = PIN_EXACT;
    }
  }
  keep_copies(program, pins, recompute, away);
  keep_loss_inputs(program, pins, recompute, away);
}

/* By forward op: whether backward reads its results, itself or to run another one again. */
static const bool *find_needed(const Program *program, const bool *recompute) {
  bool *needed = ARENA_ARRAY(program->arena, bool, program->ops.count);
  const Flow *flow = &program->flow;
  for (int32_t i = (int32_t)program->ops.count; i-- > 0;) {
    if (i < program->turn && !(recompute[i] && needed[i])) continue;
    for (uint32_t k = flow->first[i]; k < flow->first[i + 1]; k++) {
      int32_t producer = flow->producer[flow->refs[k].value];
      if (flow->refs[k].reads && producer >= 0 && producer < i) needed[producer] = true;
    }
  }
  return needed;
}

void checkpoint_print(Text *out, const Program *program, const bool *recompute, const bool *away) {
  const bool *needed = find_needed(program, recompute);
  for (int32_t i = 0; i < program->turn; i++)
    text_printf(out, "%-9s %s (%s)\n", !needed[i] ? "drop" : recompute[i] ? "recompute" : away[i] ? "offload" : "keep",
                program->ops.data[i].name, program->specs[program->ops.data[i].op].name);
}
