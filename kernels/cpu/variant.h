/* Owns: how one source becomes several variants. CMake compiles every file of this folder once per variant
 * with KERNELS_VARIANT (the suffix of its symbols) and KERNELS_DOUBLE (the element type) defined. */
#ifndef FSDPC_KERNELS_CPU_VARIANT_H
#define FSDPC_KERNELS_CPU_VARIANT_H

#include "kernels/kernels.h"

#if KERNELS_DOUBLE
typedef double real;
typedef KernelTable64 Table;
#else
typedef float real;
typedef KernelTable Table;
#endif

#define SYM_PASTE(name, suffix)  name##_##suffix
#define SYM_EXPAND(name, suffix) SYM_PASTE(name, suffix)
#define SYM(name)                SYM_EXPAND(name, KERNELS_VARIANT)

#define KERNEL(name, arguments)  void SYM(name) arguments;
#include "kernels/kernels.def"
#undef KERNEL

#endif
