/* Owns: how kernels ask for threads. The runtime's pool implements it; tests may run tasks in line. */
#ifndef FSDPC_KERNELS_PARALLEL_H
#define FSDPC_KERNELS_PARALLEL_H

#include <stdint.h>

typedef struct Parallel Parallel;
struct Parallel {
  /* Runs task(arg, i) for every i in [0, tasks), in any order, on any threads; returns when all are done. */
  void (*run)(Parallel *self, int64_t tasks, void (*task)(void *arg, int64_t index), void *arg);
};

#endif
