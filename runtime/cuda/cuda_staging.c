/* Owns: what the host hands to a step: rates, counts, tokens. One block of pinned memory, copied to the device in one piece
 * when the step begins; kernels pick the part of the micro-batch that runs. */
#include "runtime/cuda/cuda_state.h"

#include "base/checked.h"

#include <math.h>

static uint64_t bytes_of(const Plan *plan, int32_t position) {
  const PlanInstr *instr = &plan->instrs.data[position];
  if (instr->op == INSTR_COUNT_TARGETS) return sizeof(double);
  if (instr->op != INSTR_INPUT) return 0;
  return plan->world.accumulation * (uint64_t)plan_int(plan, instr, 0) * sizeof(int32_t);
}

/* Segments of micro-batches share what is staged for a model input; those of a forward plan read different rows of it.
 * Returns its first instruction. */
static int32_t stager(const Plan *plan, int32_t position) {
  const PlanInstr *instr = &plan->instrs.data[position];
  if (!plan->training) return position;
  for (int32_t i = 0; i < position && instr->op == INSTR_INPUT; i++)
    if (plan->instrs.data[i].op == INSTR_INPUT && plan_int(plan, &plan->instrs.data[i], 1) == plan_int(plan, instr, 1)) return i;
  return position;
}

bool cuda_stage_open(CudaBackend *cuda, Arena *arena, Failure *failure) {
  const Plan *plan = cuda->config.plan;
  uint64_t at = round_up(sizeof(CudaStep), PLAN_ALIGN_BYTES);
  cuda->staged_at = ARENA_ARRAY(arena, uint64_t, plan->instrs.count);
  cuda->machine.staged = ARENA_ARRAY(arena, const void *, plan->instrs.count);
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    uint64_t bytes = bytes_of(plan, i);
    if (bytes == 0) continue;
    int32_t first = stager(plan, i);
    if (first < i) {
      cuda->staged_at[i] = cuda->staged_at[first];
      continue;
    }
    cuda->staged_at[i] = at;
    at += round_up(bytes, PLAN_ALIGN_BYTES);
  }
  cuda->staging_bytes = at;
  cuda->beside_bytes += at;
  void *host = NULL, *device = NULL;
  if (!cuda_ok((int)cudaHostAlloc(&host, at, cudaHostAllocDefault), "pinned memory for inputs", failure)) return false;
  cuda->staging_host = host;
  if (!cuda_ok((int)cudaMalloc(&device, at), "device memory for inputs", failure)) return false;
  cuda->staging_device = device;
  cuda->machine.step = device;
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    if (cuda->staged_at[i] != 0) cuda->machine.staged[i] = cuda->staging_device + cuda->staged_at[i];
  return true;
}

static void fill(CudaBackend *cuda, int32_t position, const StepState *state) {
  const Plan *plan = cuda->config.plan;
  const PlanInstr *instr = &plan->instrs.data[position];
  Feed *feed = cuda->config.feed;
  void *to = cuda->staging_host + cuda->staged_at[position];
  if (instr->op == INSTR_COUNT_TARGETS) {
    *(double *)to = (double)feed->count(feed, state, (int32_t)plan_int(plan, instr, 0), plan_int(plan, instr, 1));
    return;
  }
  uint64_t count = (uint64_t)plan_int(plan, instr, 0);
  StepState own = *state;
  for (own.micro_batch = 0; own.micro_batch < plan->world.accumulation; own.micro_batch++)
    feed->fill(feed, &own, (int32_t)plan_int(plan, instr, 1), (int32_t *)to + own.micro_batch * count, count);
}

bool cuda_stage_step(CudaBackend *cuda, const StepState *state, int32_t segment) {
  const Plan *plan = cuda->config.plan;
  const PlanSegment *only = &plan->segments.data[segment];
  int32_t first = plan->training ? 0 : only->first, end = plan->training ? (int32_t)plan->instrs.count : only->end;
  *(CudaStep *)(void *)cuda->staging_host = (CudaStep){.step = state->step,
                                                       .first_sample = state->first_sample,
                                                       .lr = state->lr,
                                                       .update = state->step - state->skipped,
                                                       .bias1 = 1 - pow(plan->recipe.beta1, (double)(state->step - state->skipped)),
                                                       .bias2 = 1 - pow(plan->recipe.beta2, (double)(state->step - state->skipped))};
  for (int32_t i = first; i < end; i++)
    if (cuda->staged_at[i] != 0 && stager(plan, i) == i) fill(cuda, i, state);
  return cuda_ok((int)cudaMemcpyAsync(cuda->staging_device, cuda->staging_host, cuda->staging_bytes,
                                      cudaMemcpyHostToDevice, cuda->streams[cuda->origin]),
                 "copying inputs to the GPU", &cuda->failure);
}
