/* Owns: how close a kernel's outputs must be to double, by element type. */
#ifndef FSDPC_TESTS_CUDA_CLOSENESS_H
#define FSDPC_TESTS_CUDA_CLOSENESS_H

#include "kernels/cuda/cuda_kernels.h"
#include "tests/kernels/scenario.h"

/* By CudaType, relative to the output and to the scenario's root mean square. */
extern const double TOLERANCE[];
extern const char *const TYPE[]; /* "f32" */

/* The largest error, in units of what is allowed: `slack` times the tolerance. What is beyond fails the test, which `name` names. */
double worst(const char *name, int type, double slack, const Scene *got, const Scene *expected);

#endif
