/* Owns: nothing; what the files of the verifier share. Each check_* function owns the rules named beside it
 * and relies only on those above it having found nothing, as plan_verify calls them in this order. */
#ifndef FSDPC_PLANNER_PLAN_CHECK_H
#define FSDPC_PLANNER_PLAN_CHECK_H

#include "planner/plan/coverage.h"
#include "planner/plan/verify.h"

/* Buffers that are born, and that die, at each list position, as linked lists in order of their numbers. */
typedef struct Lives {
  int32_t *born, *next_born, *dead, *next_dead; /* index + 1, 0 at the end */
} Lives;

typedef struct Check {
  Arena *arena;
  const Plan *plan;
  const InstrSpec *specs;
  VerifyResult *result;
  uint32_t by_rule[VERIFY_RULE_COUNT];
  Lives lives; /* filled when the structure has been checked */
  /* Filled by check_order: */
  int queues; /* in use, numbered densely */
  int queue_of[STREAM_COUNT];
  int32_t *image; /* by buffer: the host buffer it was fetched from, or is stored to after an update; PLAN_NONE (check_offload) */
  int32_t *clock; /* [instr * queues + q]: what queue q runs at list positions below this has finished when
                     instr starts */
} Check;

void violate(Check *check, VerifyRule rule, int32_t instr, int32_t buf, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

void check_structure(Check *check); /* structure */
void check_offload(Check *check);   /* offload; fills the images */
void check_operands(Check *check);  /* operand, attribute */
void check_parameters(Check *check);  /* operand, of what belongs to units */
void check_recipe_followed(Check *check); /* attribute */
void check_placement(Check *check); /* misaligned, out-of-arena, over-budget, summary */
void check_order(Check *check);     /* never-recorded, wait-cycle, collective-order; fills the clocks */
void check_accesses(Check *check);  /* overlap, liveness, gather-before-use, read-before-write, no-event-path, reuse */
void check_recompute(Check *check); /* recompute */
void check_gradients(Check *check); /* gradient */
void check_sums(Check *check);      /* sums */

static inline bool is_collective(InstrOp op) {
  return op == INSTR_ALLGATHER || op == INSTR_REDUCE_SCATTER || op == INSTR_ALLREDUCE ||
         op == INSTR_ALLREDUCE_SUM || op == INSTR_ALLREDUCE_EXACT ||
         op == INSTR_ALLREDUCE_INT;
}
/* Changes a unit's parameters, and ends its gradient. */
static inline bool is_update(InstrOp op) {
  return op == INSTR_ADAMW || op == INSTR_LION || op == INSTR_SGD || op == INSTR_ADAFACTOR;
}
/* Between the arenas. */
static inline bool is_transfer(InstrOp op) { return op == INSTR_FETCH || op == INSTR_STORE; }
static inline const PlanBuf *check_buf(const Check *check, int32_t id) {
  return &check->plan->bufs.data[id];
}
static inline const char *check_buf_name(const Check *check, int32_t id) {
  return plan_str(check->plan, check_buf(check, id)->name);
}
/* The operand is written, without reading what was there. */
static inline bool operand_overwrites(const OperandSpec *spec, const PlanOperand *operand) {
  return spec->mode == MODE_WRITE || (spec->mode == MODE_ADD && !operand->add);
}
/* Checked operands only. */
static inline Region operand_region(const Check *check, const PlanInstr *instr, int k) {
  uint64_t rows = 1, cols = 1;
  const PlanOperand *operand = plan_operand(check->plan, instr, k);
  plan_operand_dims(check->plan, check->specs, instr, k, &rows, &cols);
  return region_make(operand->offset, rows, cols, operand->ld);
}
/* The index of an int attribute, or -1. */
int check_find_int(const InstrSpec *spec, const char *name);
/* That attribute of the instruction; 0: it has none. */
int64_t check_int(const Check *check, const PlanInstr *instr, const char *name);

#endif
