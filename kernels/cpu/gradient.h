/* Owns: which type gradients of parameters have. */
#ifndef FSDPC_KERNELS_CPU_GRADIENT_H
#define FSDPC_KERNELS_CPU_GRADIENT_H

#include "kernels/kernels.h"

/* Without a context: the kernel's own. */
static inline FloatType gradient_type(const KernelContext *k) {
  return k ? k->gradient : FLOAT_REAL;
}

#endif
