/* Owns: device memory beside the arena. */
#include "runtime/beside.h"

#include "base/checked.h"
#include "base/text.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/scratch.h"

#include <stdio.h>

static bool has(const Plan *plan, const PlanInstr *instr, int operand) {
  return plan_operand(plan, instr, operand)->buf != PLAN_NONE;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Of the weights' and the bias's gradients. */
static uint64_t linear_scratch(int64_t rows, int64_t out, int64_t in, bool bias) {
  return larger(cuda_narrow_scratch(rows, out, in), bias ? cuda_column_scratch(rows, out) : 0);
}

/* Scratch memory of the compute stream that an instruction needs. */
static uint64_t scratch_of(const Plan *plan, const PlanInstr *instr) {
  const int64_t *n = plan->ints.data + instr->ints;
  AttentionShape shape;
  switch (instr->op) {
    case INSTR_LINEAR_BWD_W: return linear_scratch(n[0], n[1], n[2], has(plan, instr, 3));
    case INSTR_LINEAR_CROSS_ENTROPY: return linear_scratch(n[4], n[1], n[2], has(plan, instr, 8));
    case INSTR_LAYERNORM_BWD:
    case INSTR_RMSNORM_BWD: return cuda_column_scratch(n[0], n[1]);
    case INSTR_BROADCAST_BWD: return n[2] == 1 ? cuda_column_scratch(n[0], n[1]) : 0;
    case INSTR_ADAFACTOR_SUMS:
    case INSTR_ADAFACTOR_MOMENTS:
    case INSTR_ADAFACTOR: return cuda_adafactor_scratch(plan->units.data[n[0]].param_count);
    case INSTR_ATTENTION_FWD: shape = attention_shape(plan, instr); return cuda_attention_fwd_scratch(&shape);
    case INSTR_ATTENTION_CACHED: shape = cached_shape(plan, instr, n[1]); return cuda_attention_fwd_scratch(&shape);
    case INSTR_ATTENTION_BWD: shape = attention_shape(plan, instr); return cuda_attention_bwd_scratch(&shape);
    default: return 0;
  }
}

/* --- cuDNN's attention: measured without a GPU, docs/gpu-results.md -------------------------------------------------- */

FlashWay flash_way(int compute, bool fast) {
  bool lean = compute / 10 == 10;
  if (fast) return lean || compute / 10 == 9 ? FLASH_FAST : FLASH_FAST_TWICE;
  return lean ? FLASH_LEAN : FLASH_SCORES;
}

uint64_t flash_workspace_bytes(const AttentionShape *s, FlashWay way) {
  enum { SCORE_ALIGN = 128, STEP = 256 };
  static const struct {
    uint64_t scores, queries, shared_keys; /* bytes of an element */
  } keeps[] = {[FLASH_SCORES] = {2, 0, 4}, [FLASH_LEAN] = {0, 0, 8}, [FLASH_FAST] = {0, 4, 4}, [FLASH_FAST_TWICE] = {0, 8, 4}};
  uint64_t heads = (uint64_t)(s->batch * s->heads), keys = s->heads != s->kv_heads ? keeps[way].shared_keys : 0;
  uint64_t bytes = STEP + keeps[way].scores * heads * round_up((uint64_t)s->tq, SCORE_ALIGN) * round_up((uint64_t)s->tk, SCORE_ALIGN);
  bytes += heads * (uint64_t)s->head_dim * (keeps[way].queries * (uint64_t)s->tq + keys * (uint64_t)s->tk);
  return round_up(bytes, STEP) + round_up(heads * (uint64_t)s->tq * sizeof(float), STEP);
}

AttentionShape flash_part(const AttentionShape *shape, FlashWay way, uint64_t most) {
  AttentionShape part = *shape;
  for (; part.batch > 0; part.batch--)
    if (shape->batch % part.batch == 0 && flash_workspace_bytes(&part, way) <= most) return part;
  part.batch = 1;
  for (int64_t groups = 2; groups <= shape->kv_heads; groups++) {
    if (shape->kv_heads % groups != 0) continue;
    part.heads = shape->heads / groups, part.kv_heads = shape->kv_heads / groups;
    if (flash_workspace_bytes(&part, way) <= most) return part;
  }
  part.batch = 0;
  return part;
}

static uint64_t part_bytes(const AttentionShape *shape, FlashWay way, uint64_t most) {
  AttentionShape part = flash_part(shape, way, most);
  return part.batch > 0 ? flash_workspace_bytes(&part, way) : 0;
}

uint64_t flash_most_bytes(const AttentionShape *shape, uint64_t device_bytes) {
  uint64_t most = device_bytes >> 30 >= BESIDE_ROOMY_GIB ? BESIDE_ATTENTION_GROUP : BESIDE_ATTENTION_MOST;
  uint64_t bytes = part_bytes(shape, FLASH_SCORES, most);
  AttentionShape group = *shape;
  group.batch = group.kv_heads = 1, group.heads = shape->heads / shape->kv_heads;
  if (bytes == 0) bytes = flash_workspace_bytes(&group, FLASH_SCORES);
  if (bytes > BESIDE_ATTENTION_GROUP) bytes = part_bytes(shape, FLASH_LEAN, most);
  uint64_t fast = flash_workspace_bytes(&group, FLASH_FAST_TWICE); /* more for short samples only: its least is enough to state */
  return fast > bytes && fast <= most ? fast : bytes;
}

static bool computes_in_half(const Plan *plan) { return plan->recipe.compute == DTYPE_BF16 || plan->recipe.compute == DTYPE_F16; }

static bool flash_may_take(const AttentionShape *s) {
  return (s->head_dim == 64 || s->head_dim == 96 || s->head_dim == 128) && (!s->causal || s->tq == s->tk) && s->tq > 1 && s->tk > 1;
}

/* --- the backward pass on Hopper -------------------------------------------------------------------------------------- */

int64_t hopper_groups(const AttentionShape *shape) { return cuda_attention_hopper_groups(shape, BESIDE_ATTENTION_MOST); }
bool hopper_leads(const AttentionShape *shape) { return shape->head_dim == 64; }

uint64_t hopper_bytes(const AttentionShape *shape) {
  int64_t groups = hopper_groups(shape);
  return groups > 0 ? cuda_attention_hopper_scratch(shape, groups) : 0;
}

/* Whichever of them a GPU has. */
static uint64_t attention_bytes(const Plan *plan, const PlanInstr *instr) {
  if (instr->op != INSTR_ATTENTION_BWD || !computes_in_half(plan)) return 0;
  AttentionShape shape = attention_shape(plan, instr);
  return larger(flash_may_take(&shape) ? flash_most_bytes(&shape, plan->summary.device_bytes) : 0, hopper_bytes(&shape));
}

/* --- the whole --------------------------------------------------------------------------------------------------------- */

/* Tokens of all micro-batches of a step, rates and counts; where parameters lie in the shard. */
static uint64_t input_bytes(const Plan *plan) {
  uint64_t bytes = 2 * PLAN_ALIGN_BYTES + plan->params.count * (sizeof(CudaRange) + sizeof(CudaFactored));
  for (uint32_t i = 0; i < plan->inputs.count; i++)
    bytes += round_up(plan->world.accumulation * plan->world.micro_batch * (uint64_t)plan->inputs.data[i].sample_numel * sizeof(int32_t),
                      PLAN_ALIGN_BYTES);
  return bytes;
}

BesideArena beside_arena(const Plan *plan) {
  BesideArena beside = {.products = BESIDE_PRODUCTS_BYTES, .inputs = input_bytes(plan)};
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    beside.scratch = larger(beside.scratch, scratch_of(plan, instr));
    beside.attention = larger(beside.attention, attention_bytes(plan, instr));
  }
  if (plan->world.ranks > 1) beside.collectives = (plan->world.replicas > 1 ? 2 : 1) * (uint64_t)BESIDE_COLLECTIVE_BYTES;
  return beside;
}

uint64_t beside_total(const BesideArena *b) { return b->products + b->scratch + b->attention + b->collectives + b->inputs; }

char *beside_text(const BesideArena *b, char *out, size_t bytes) {
  const struct {
    const char *name;
    uint64_t bytes;
  } parts[] = {{"products", b->products}, {"attention at most", b->attention}, {"collectives", b->collectives}, {"scratch", b->scratch}, {"inputs", b->inputs}};
  char size[32];
  int at = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i].bytes > 0 && at < (int)bytes)
      at += snprintf(out + at, bytes - (size_t)at, "%s%s %s", at > 0 ? ", " : "", parts[i].name, text_bytes(size, parts[i].bytes));
  return out;
}
