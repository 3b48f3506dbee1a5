/* Owns: what kernels of attention and of rotary positions are told, by an instruction's attributes: the same on CPUs and GPUs. */
#ifndef FSDPC_RUNTIME_SHAPES_H
#define FSDPC_RUNTIME_SHAPES_H

#include "kernels/kernels.h"
#include "planner/plan/plan.h"

/* Of attention_fwd and attention_bwd. */
AttentionShape attention_shape(const Plan *plan, const PlanInstr *instr);
/* Of attention_cached, its last row seeing so many keys. */
AttentionShape cached_shape(const Plan *plan, const PlanInstr *instr, int64_t keys);
/* Of rope_fwd and rope_bwd; first: the position of row 0. */
RopeShape rope_shape(const Plan *plan, const PlanInstr *instr, uint64_t first);

#endif
