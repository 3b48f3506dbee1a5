/* Owns: values of parameters and moments as f32, whichever float dtype their buffer has: what weights, checkpoints and exports
 * exchange with a backend. Writing rounds to nearest; reading is exact. No function allocates. */
#ifndef FSDPC_RUNTIME_FLOATS_H
#define FSDPC_RUNTIME_FLOATS_H

#include "runtime/backend.h"

/* Elements [first, first + n) of a buffer of f32, bf16 or f16. False: see backend->error(). */
bool floats_write(Backend *backend, const Plan *plan, int32_t buf, uint64_t first, const float *values, uint64_t n);
bool floats_read(Backend *backend, const Plan *plan, int32_t buf, uint64_t first, float *out, uint64_t n);

#endif
