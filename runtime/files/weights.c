/* Owns: initialising and loading the shards of a rank. */
#include "runtime/files/weights.h"

#include "runtime/floats.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 18 }; /* elements; a multiple of 64 */

/* Where the values of a range come from: `n` elements of a parameter, from element `first` on. */
typedef struct Source {
  bool (*get)(void *self, const PlanParam *param, uint64_t first, uint64_t n, float *out, Failure *failure);
  void *self;
} Source;

static bool write_range(const Plan *plan, const PlanUnit *unit, const ParamRange *range, Backend *backend,
                        const Source *source, float *chunk, Failure *failure) {
  const PlanParam *param = &plan->params.data[range->param];
  for (uint64_t done = 0; done < range->count; done += CHUNK) {
    uint64_t n = range->count - done < CHUNK ? range->count - done : CHUNK;
    if (!source->get(source->self, param, range->first + done, n, chunk, failure)) return false;
    if (!floats_write(backend, plan, unit->param_buf, range->local + done, chunk, n))
      return fail(failure, RUN_INVALID, "%s", backend->error(backend));
  }
  return true;
}

static bool write_all(const Plan *plan, const UnitRanges *ranges, Backend *backend, const Source *source,
                      Failure *failure) {
  float *chunk = malloc(CHUNK * sizeof *chunk);
  bool ok = chunk != NULL || fail(failure, RUN_INVALID, "no memory for reading weights");
  for (uint32_t u = 0; ok && u < plan->units.count; u++)
    for (uint32_t r = 0; ok && r < ranges[u].count; r++)
      ok = write_range(plan, &plan->units.data[u], &ranges[u].data[r], backend, source, chunk, failure);
  free(chunk);
  return ok;
}

/* --- initial values ------------------------------------------------------------------------------------------------- */

typedef struct InitSource {
  const Plan *plan;
  const KernelTable *kernels;
  const KernelContext *context;
} InitSource;

static bool get_initial(void *self, const PlanParam *param, uint64_t first, uint64_t n, float *out, Failure *failure) {
  const InitSource *source = self;
  (void)failure;
  InitFill fill = {.kind = (int)param->init.kind,
                   .a = param->init.a,
                   .seed = source->plan->recipe.seed,
                   .name_hash = param_name_hash(source->plan, param)};
  source->kernels->init_fill(source->context, &fill, (int64_t)first, (int64_t)n, out);
  return true;
}

bool weights_init(const Plan *plan, const UnitRanges *ranges, Backend *backend, const KernelTable *kernels,
                  const KernelContext *context, Failure *failure) {
  InitSource self = {plan, kernels, context};
  return write_all(plan, ranges, backend, &(Source){get_initial, &self}, failure);
}

/* --- loading ---------------------------------------------------------------------------------------------------------- */

typedef struct LoadSource {
  const Plan *plan;
  const Pretrained *weights;
} LoadSource;

static bool get_loaded(void *self, const PlanParam *param, uint64_t first, uint64_t n, float *out, Failure *failure) {
  const LoadSource *source = self;
  uint32_t index = (uint32_t)(param - source->plan->params.data);
  return pretrained_read(source->weights, param, index, first, n, out, failure);
}

bool weights_load(const Plan *plan, const UnitRanges *ranges, Backend *backend, const Pretrained *weights,
                  Failure *failure) {
  LoadSource self = {plan, weights};
  return write_all(plan, ranges, backend, &(Source){get_loaded, &self}, failure);
}
