/* Owns: a table of float kernels behind which those for elements of 16 bits do the work, so that the scenarios test them. */
#ifndef FSDPC_TESTS_KERNELS_HALF_ADAPTER_H
#define FSDPC_TESTS_KERNELS_HALF_ADAPTER_H

#include "kernels/kernels.h"

typedef struct HalfAdapter {
  KernelContext context; /* first: kernels are given &adapter.context */
  const KernelTable16 *table;
  FloatType type;
} HalfAdapter;

extern const KernelTable half_adapter;

#endif
