/* Owns: shapes.h. Attributes are in the order of instr.def. */
#include "runtime/shapes.h"

AttentionShape attention_shape(const Plan *plan, const PlanInstr *instr) {
  const int64_t *n = plan->ints.data + instr->ints;
  return (AttentionShape){.batch = n[0],
                          .tq = n[1],
                          .tk = n[2],
                          .heads = n[3],
                          .kv_heads = n[4],
                          .head_dim = n[5],
                          .causal = n[6] != 0,
                          .scale = plan->reals.data[instr->reals]};
}

AttentionShape cached_shape(const Plan *plan, const PlanInstr *instr, int64_t keys) {
  const int64_t *n = plan->ints.data + instr->ints;
  return (AttentionShape){.batch = 1,
                          .tq = n[0],
                          .tk = keys,
                          .heads = n[2],
                          .kv_heads = n[3],
                          .head_dim = n[4],
                          .causal = true,
                          .scale = plan->reals.data[instr->reals]};
}

RopeShape rope_shape(const Plan *plan, const PlanInstr *instr, uint64_t first) {
  const int64_t *n = plan->ints.data + instr->ints;
  const double *x = plan->reals.data + instr->reals;
  return (RopeShape){.batch = n[0],
                     .seq = n[1],
                     .heads = n[2],
                     .head_dim = n[3],
                     .dims = n[6],
                     .llama3 = n[4] != 0,
                     .original = n[5],
                     .theta = x[0],
                     .factor = x[1],
                     .low = x[2],
                     .high = x[3],
                     .first = (int64_t)first};
}
