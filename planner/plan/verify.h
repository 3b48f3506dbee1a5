/* Owns: the independent check of a plan. Shares nothing with the planner but plan.h; re-derives what it checks.
 *
 * Happens-before is list order within a queue, plus record -> wait, plus the joins between segments. */
#ifndef FSDPC_PLANNER_PLAN_VERIFY_H
#define FSDPC_PLANNER_PLAN_VERIFY_H

#include "planner/plan/plan.h"

#define VERIFY_RULES(X)                                                                                      \
  X(STRUCTURE, "structure", "ids, ranges and sizes are consistent: segments cover the list, a unit's shard holds its " \
                            "parameters, bytes = numel x dtype, ranks = shard x replicas")                   \
  X(OPERAND, "operand", "operands exist, have the dtype the instruction takes and lie inside their buffer; the model's own take whole parameters of a unit, or their gradients") \
  X(ATTRIBUTE, "attribute", "attributes are in range: unit, shard and input exist and agree with the tables, and what the recipe says with the recipe") \
  X(MISALIGNED, "misaligned", "buffer offsets are multiples of 256")                                         \
  X(OUT_OF_ARENA, "out-of-arena", "buffers lie inside the arena")                                            \
  X(OVER_BUDGET, "over-budget", "the arena is within the budget")                                            \
  X(OVERLAP, "overlap", "two buffers that share addresses are never live at the same time")                  \
  X(LIVENESS, "liveness", "every access lies between a buffer's first and last, inside one segment")          \
  X(GATHER_BEFORE_USE, "gather-before-use", "a unit's parameters are used only after their gather has finished") \
  X(READ_BEFORE_WRITE, "read-before-write", "a buffer is read only where something wrote it")                \
  X(NO_EVENT_PATH, "no-event-path", "conflicting accesses on different queues are ordered by events")        \
  X(REUSE, "reuse", "a buffer is overwritten only after every use of what lay there before, on every queue, is ordered before it") \
  X(NEVER_RECORDED, "never-recorded", "every awaited event is recorded")                                     \
  X(WAIT_CYCLE, "wait-cycle", "an event is recorded before it is awaited, in list order, and only once")     \
  X(COLLECTIVE_ORDER, "collective-order", "collectives of one stream's communicator are on one queue, so that every rank launches them in one order") \
  X(RECOMPUTE, "recompute", "what is run again in backward makes what forward made: the same operations on the same values, parameters and inputs") \
  X(GRADIENT, "gradient", "every unit's gradient is reduced exactly once a micro-batch, after its last contribution, and updated exactly once a step") \
  X(SUMS, "sums", "what ranks sum together, of squares, losses and targets, is begun anew every step, summed over them exactly once, and read after that") \
  X(OFFLOAD, "offload", "only fetch and store touch host buffers, and copy them whole; what is fetched of a unit and changed is stored back") \
  X(SUMMARY, "summary", "persistent, max-live and arena bytes are what the buffers say")

typedef enum {
#define X(id, name, meaning) VERIFY_##id,
  VERIFY_RULES(X)
#undef X
      VERIFY_RULE_COUNT
} VerifyRule;

typedef struct Violation {
  VerifyRule rule;
  int32_t instr; /* list position, or PLAN_NONE */
  int32_t buf;   /* or PLAN_NONE */
  const char *text;
} Violation;

typedef struct VerifyResult {
  VEC(Violation) violations; /* at most VERIFY_LIMIT kept */
  uint32_t total;
} VerifyResult;

enum { VERIFY_LIMIT = 50 };

const char *verify_rule_name(VerifyRule rule);
const char *verify_rule_meaning(VerifyRule rule);
/* O(instrs x queues + buffers log buffers). True when no rule is violated. */
bool plan_verify(Arena *arena, const Plan *plan, VerifyResult *result);

#endif
