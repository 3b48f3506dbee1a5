/* Owns: which kernel serves which instruction on the CPU. To add an instruction: its row in instr.def, its kernel, and
 * one function in cpu_dispatch.c. */
#ifndef FSDPC_RUNTIME_CPU_DISPATCH_H
#define FSDPC_RUNTIME_CPU_DISPATCH_H

#include "kernels/kernels.h"
#include "runtime/backend.h"
#include "runtime/ranges.h"

/* An operand, resolved: address, distance between rows, mode flag. */
typedef struct CpuOperand {
  void *data; /* NULL: absent */
  int64_t ld;
  int add;
  FloatType type; /* of floats */
} CpuOperand;

/* What instructions need besides their operands. */
typedef struct CpuMachine {
  const Plan *plan;
  unsigned char *arena;
  const KernelTable *kernels;
  const KernelTable16 *half; /* for activations and parameters of 16 bits; NULL where they have 32 */
  Comm *comm;
  Feed *feed;
  const UnitRanges *ranges;
} CpuMachine;

typedef struct CpuCall {
  const CpuMachine *machine;
  const KernelContext *k; /* of the queue */
  const StepState *state;
  const PlanInstr *instr;
  const CpuOperand *o;
  const int64_t *n; /* ints */
  const double *x;  /* reals */
} CpuCall;

/* How an optimizer keeps a range of parameters whose elements have this type. */
static inline WeightStore cpu_weight_store(const CpuCall *c, FloatType type, const ParamRange *range) {
  const Plan *plan = c->machine->plan;
  return (WeightStore){.type = type,
                       .stochastic = plan->recipe.rounding == ROUNDING_STOCHASTIC,
                       .seed = plan->recipe.seed,
                       .step = c->state->step,
                       .name_hash = param_name_hash(plan, &plan->params.data[range->param]),
                       .first = (int64_t)range->first};
}

/* Only collectives can fail. */
typedef CommStatus (*CpuFunction)(const CpuCall *call);

/* cpu_adafactor.c */
CommStatus cpu_adafactor_sums(const CpuCall *c);
CommStatus cpu_adafactor_moments(const CpuCall *c);
CommStatus cpu_adafactor(const CpuCall *c);

/* For activations and parameters of 32 bits, and of 16. */
CpuFunction cpu_function(InstrOp op);
CpuFunction cpu_function_half(InstrOp op);

#endif
