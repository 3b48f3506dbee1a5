/* Owns: kernel calls that can be repeated under other conditions (element type, variant, threads, alignment)
 * and compared. scenarios.inc defines each once per element type. */
#ifndef FSDPC_TESTS_KERNELS_SCENARIO_H
#define FSDPC_TESTS_KERNELS_SCENARIO_H

#include "tests/kernels/support.h"

typedef struct Scene {
  uint64_t state;     /* of the values: equal for every type */
  int64_t misaligned; /* elements by which every matrix is shifted from a 64-byte boundary */
  double *out;        /* every output so far, as double */
  int64_t count, capacity;
} Scene;

#define SCENARIO(name) void scenario_f32_##name(Scene *, const KernelTable *, const KernelContext *);
#include "tests/kernels/scenarios.def"
#undef SCENARIO
#define SCENARIO(name) void scenario_f64_##name(Scene *, const KernelTable64 *, const KernelContext *);
#include "tests/kernels/scenarios.def"
#undef SCENARIO

typedef struct Scenario {
  const char *name;
  void (*f32)(Scene *, const KernelTable *, const KernelContext *);
  void (*f64)(Scene *, const KernelTable64 *, const KernelContext *);
  double tolerance; /* of float against double, relative to the largest output of the scenario's */
} Scenario;

extern const Scenario SCENARIOS[];
extern const int SCENARIO_COUNT;

#endif
