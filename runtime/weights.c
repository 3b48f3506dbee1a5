/* Owns: initialising and loading the shards of a rank. */
#include "runtime/weights.h"

#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 18 }; /* elements; a multiple of 64 */

static uint64_t fnv1a(const char *text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text != '\0'; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
  return hash;
}

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
    if (!backend->write(backend, unit->param_buf, (range->local + done) * sizeof(float), chunk, n * sizeof(float)))
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
                   .name_hash = fnv1a(plan_str(source->plan, param->name))};
  source->kernels->init_fill(source->context, &fill, (int64_t)first, (int64_t)n, out);
  return true;
}

bool weights_init(const Plan *plan, const UnitRanges *ranges, Backend *backend, const KernelTable *kernels,
                  const KernelContext *context, Failure *failure) {
  InitSource self = {plan, kernels, context};
  return write_all(plan, ranges, backend, &(Source){get_initial, &self}, failure);
}

/* --- loading ---------------------------------------------------------------------------------------------------------- */

static bool same_shape(const PlanParam *param, const SafeTensor *tensor) {
  if ((uint32_t)param->rank != tensor->rank) return false;
  return param->rank == 0 || memcmp(param->dim, tensor->dim, (size_t)param->rank * sizeof *param->dim) == 0;
}

static const char *shape_text(char text[200], const int64_t *dim, uint32_t rank) {
  size_t used = 0;
  text[used++] = '[';
  for (uint32_t i = 0; i < rank && used < 160; i++)
    used += (size_t)snprintf(text + used, 200 - used, "%s%lld", i > 0 ? ", " : "", (long long)dim[i]);
  text[used++] = ']';
  text[used] = '\0';
  return text;
}

static bool check_param(const Plan *plan, const PlanParam *param, const Safetensors *file, Failure *failure) {
  const char *name = plan_str(plan, param->name);
  const SafeTensor *tensor = safetensors_find(file, name);
  char want[200], have[200];
  if (tensor == NULL)
    return fail(failure, RUN_INVALID, "%s: tensor \"%s\" of the model is missing", file->path, name);
  if (!same_shape(param, tensor))
    return fail(failure, RUN_INVALID, "%s: tensor \"%s\" has shape %s, but the model's has %s", file->path, name,
                shape_text(have, tensor->dim, tensor->rank), shape_text(want, param->dim, (uint32_t)param->rank));
  return safetensors_read_f32(file, tensor, 0, 0, NULL, failure); /* a dtype that can be loaded */
}

static bool is_param(const Plan *plan, const char *name) {
  for (uint32_t i = 0; i < plan->params.count; i++)
    if (strcmp(plan_str(plan, plan->params.data[i].name), name) == 0) return true;
  return false;
}

bool weights_check(const Plan *plan, const Safetensors *file, Failure *failure) {
  for (uint32_t i = 0; i < plan->params.count; i++)
    if (!check_param(plan, &plan->params.data[i], file, failure)) return false;
  if (file->tensors.count == plan->params.count) return true; /* all were found, so there is no other */
  for (uint32_t i = 0; i < file->tensors.count; i++)
    if (!is_param(plan, file->tensors.data[i].name))
      return fail(failure, RUN_INVALID, "%s: tensor \"%s\" is not a parameter of the model", file->path,
                  file->tensors.data[i].name);
  return true;
}

typedef struct LoadSource {
  const Plan *plan;
  const Safetensors *file;
} LoadSource;

static bool get_loaded(void *self, const PlanParam *param, uint64_t first, uint64_t n, float *out, Failure *failure) {
  const LoadSource *source = self;
  const SafeTensor *tensor = safetensors_find(source->file, plan_str(source->plan, param->name));
  return safetensors_read_f32(source->file, tensor, first, n, out, failure);
}

bool weights_load(const Plan *plan, const UnitRanges *ranges, Backend *backend, const Safetensors *file,
                  Failure *failure) {
  LoadSource self = {plan, file};
  return write_all(plan, ranges, backend, &(Source){get_loaded, &self}, failure);
}
