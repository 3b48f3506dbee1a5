/* Owns: plans built by hand for tests. */
#ifndef FSDPC_TESTS_PLAN_BUILD_H
#define FSDPC_TESTS_PLAN_BUILD_H

#include "planner/plan/plan.h"

/* A good plan: two ranks, three units (embedding, linear with bias, head), two micro-batches, bf16 with f32
 * masters. Four queues; gathers are prefetched, f2 takes the memory of f0, g0 that of g2; the middle unit is
 * gathered again for backward. No wait is redundant. The buffers and instructions that tests break are found
 * by name and number: */
enum { /* list positions */
       AT_COUNT,
       AT_COUNT_SUM,
       AT_ZERO_GRAD,
       AT_ZERO_LOSS = AT_ZERO_GRAD + 3,
       AT_TOKENS,
       AT_TARGETS,
       AT_GATHER0,
       AT_GATHER1,
       AT_EMBED,
       AT_GATHER2,
       AT_LINEAR,
       AT_HEAD,
       AT_LOSS,
       AT_GATHER1_AGAIN,
       AT_HEAD_DW,
       AT_HEAD_DX,
       AT_REDUCE2,
       AT_LINEAR_DW,
       AT_LINEAR_DX,
       AT_REDUCE1,
       AT_EMBED_DW,
       AT_REDUCE0,
       AT_LOSS_SUM,
       AT_ZERO_ACC,
       AT_SQUARES,
       AT_NORM_SUM = AT_SQUARES + 3,
       AT_CLIP,
       AT_ADAMW,
       GOOD_INSTRS = AT_ADAMW + 3
};

typedef struct Build {
  Arena *arena;
  Plan *plan;
  const InstrSpec *specs;
  uint64_t end; /* of what is placed */
} Build;

Build build_new(Arena *arena);
int32_t build_unit(Build *build, const char *name, uint64_t shard);
void build_param(Build *build, int32_t unit, const char *name, uint64_t offset, int64_t rows,
                 int64_t cols); /* rows 0: a vector */
/* Behind everything placed so far. */
int32_t build_buf(Build *build, const char *name, BufClass class, DType dtype, uint64_t numel, int32_t unit,
                  bool persistent);
void build_segment(Build *build, const char *name, uint64_t count);
/* Appends to the last segment; operands, ints and reals as many as the table says. */
int32_t build_instr(Build *build, InstrOp op, Phase phase, const char *name, const PlanOperand *operands,
                    const int64_t *ints, const double *reals, uint64_t ns);
/* `record` on instruction from, a wait for it on instruction to (the last one so far). */
void build_edge(Build *build, int32_t from, int32_t to);
/* Lifetimes from accesses, sizes from buffers. */
void build_finish(Build *build);

Plan *good_plan(Arena *arena);
int32_t find_buf(const Plan *plan, const char *name);
PlanOperand *operand_of(Plan *plan, int32_t instr, int k);
/* Removes wait w of an instruction, or a whole instruction: what follows moves up. */
void drop_wait(Plan *plan, int32_t instr, uint32_t w);
void drop_instr(Plan *plan, int32_t instr);
/* max_live_bytes from the buffers, after lifetimes changed. */
void restate_memory(Plan *plan);

#define B(id)         ((PlanOperand){.buf = (id)})
#define B_AT(id, at)  ((PlanOperand){.buf = (id), .offset = (at)})
#define B_ADD(id)     ((PlanOperand){.buf = (id), .add = true})
#define B_NONE        ((PlanOperand){.buf = PLAN_NONE})
#define OPERANDS(...) ((PlanOperand[]){__VA_ARGS__})
#define INTS(...)     ((int64_t[]){__VA_ARGS__})
#define REALS(...)    ((double[]){__VA_ARGS__})

#endif
