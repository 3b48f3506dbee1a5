/* Owns: what `fsdpc doctor` says of the CUDA side of this machine. */
#ifndef FSDPC_RUNTIME_CUDA_DOCTOR_H
#define FSDPC_RUNTIME_CUDA_DOCTOR_H

#include "base/arena.h"

typedef struct CudaFinding {
  const char *name, *value, *help; /* help NULL: nothing to do */
} CudaFinding;
enum { CUDA_FINDINGS = 24 };
/* Fills at most CUDA_FINDINGS; returns how many. */
int cuda_findings(Arena *arena, CudaFinding out[CUDA_FINDINGS]);

#endif
