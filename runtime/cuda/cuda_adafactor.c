/* Owns: Adafactor's three instructions on a GPU: what of which parameter lies in this rank's shard, and where its sums and
 * moments are. Sums, moments and rates of a parameter are the same on every rank; each updates the elements it holds. */
#include "runtime/cuda/cuda_dispatch.h"

#include "runtime/ranges.h"

#include <cuda_runtime_api.h>

/* One entry a parameter of the unit. */
static void describe(const Plan *plan, const PlanUnit *unit, const UnitRanges *ranges, CudaFactored *out) {
  int64_t at = 0;
  uint32_t next = 0; /* ranges come in the order of parameters */
  for (int32_t i = 0; i < unit->param_count; i++) {
    const PlanParam *param = &plan->params.data[unit->first_param + i];
    bool matrix = param->rank >= 2;
    CudaFactored f = {.cols = matrix ? param->dim[param->rank - 1] : 1, .row_at = at, .col_at = -1};
    f.rows = (int64_t)param_numel(param) / f.cols;
    if (matrix) f.col_at = at + f.rows;
    f.decay = param->decay ? plan->recipe.decay : 0;
    f.name_hash = param_name_hash(plan, param);
    at += (int64_t)factored_numel(param->rank, param->dim);
    if (next < ranges->count && ranges->data[next].param == unit->first_param + i) {
      f.first = (int64_t)ranges->data[next].first;
      f.count = (int64_t)ranges->data[next].count;
      f.local = (int64_t)ranges->data[next].local;
      next++;
    }
    out[i] = f;
  }
}

int cuda_adafactor_open(Arena *arena, const Plan *plan, const UnitRanges *ranges, void **memory, CudaFactoreds **out) {
  uint64_t total = 0, at = 0;
  if (plan->recipe.optimizer != OPTIMIZER_ADAFACTOR) return 0;
  for (uint32_t u = 0; u < plan->units.count; u++) total += (uint64_t)plan->units.data[u].param_count;
  CudaFactored *host = ARENA_ARRAY(arena, CudaFactored, total);
  CudaFactoreds *units = ARENA_ARRAY(arena, CudaFactoreds, plan->units.count);
  cudaError_t error = cudaMalloc(memory, (total > 0 ? total : 1) * sizeof *host);
  for (uint32_t u = 0; u < plan->units.count; u++) {
    const PlanUnit *unit = &plan->units.data[u];
    describe(plan, unit, &ranges[u], host + at);
    units[u] = (CudaFactoreds){(CudaFactored *)*memory + at, unit->param_count, (int64_t)plan_factored_numel(plan, unit)};
    at += (uint64_t)unit->param_count;
  }
  *out = units;
  if (error == cudaSuccess) error = cudaMemcpy(*memory, host, total * sizeof *host, cudaMemcpyHostToDevice);
  return (int)error;
}

static CudaAdafactor recipe_of(const CudaCall *c) {
  const Recipe *recipe = &c->machine->plan->recipe;
  return (CudaAdafactor){recipe->eps, recipe->eps2, recipe->threshold, recipe->beta2_decay};
}

static CudaFactoreds params_of(const CudaCall *c) { return c->machine->factored[c->n[0]]; }

static int clear(const CudaCall *c, void *x, int64_t words) {
  return (int)cudaMemsetAsync(x, 0, (size_t)words * sizeof(int64_t), (cudaStream_t)c->stream);
}

int cuda_op_adafactor_sums(const CudaCall *c) {
  int failed = clear(c, c->o[3].x, c->n[2]);
  if (failed) return failed;
  return cuda_adafactor_sums(c->stream, params_of(c), c->n[1], c->o[0], c->o[1], c->o[2].x, c->o[3].x, c->machine->scratch);
}

int cuda_op_adafactor_moments(const CudaCall *c) {
  int failed = clear(c, c->o[5].x, c->n[4] * EXACT_WORDS);
  if (failed) return failed;
  return cuda_adafactor_moments(c->stream, c->machine->step, recipe_of(c), params_of(c), c->n[1], c->o[0], c->o[1].x,
                                c->o[2].x, c->o[3].x, c->o[4].x, c->o[5].x, c->machine->scratch);
}

int cuda_op_adafactor(const CudaCall *c) {
  CudaUpdate update = cuda_update(c, 5, 6);
  return cuda_adafactor(c->stream, &update, recipe_of(c), params_of(c), c->o[2].x, c->o[3].x, c->o[4].x, c->machine->scratch);
}
