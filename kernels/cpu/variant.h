/* Owns: how one source becomes several variants. CMake compiles every file of this folder once per variant
 * with KERNELS_VARIANT (the suffix of its symbols), KERNELS_DOUBLE (the type of arithmetic) and KERNELS_STORED (the
 * number of a FloatType: that of activations and gathered parameters in memory) defined. Code that never sees `stored` is
 * compiled without it and shared: KERNELS_BASE is the suffix of the variant that has it. */
#ifndef FSDPC_KERNELS_CPU_VARIANT_H
#define FSDPC_KERNELS_CPU_VARIANT_H

#include "kernels/kernels.h"

#if KERNELS_DOUBLE
typedef double real, stored;
typedef KernelTable64 Table;
#elif KERNELS_STORED
typedef float real;
typedef Half stored;
typedef KernelTable16 Table;
#else
typedef float real, stored;
typedef KernelTable Table;
#endif

#define SYM_PASTE(name, suffix)  name##_##suffix
#define SYM_EXPAND(name, suffix) SYM_PASTE(name, suffix)
#define SYM(name)                SYM_EXPAND(name, KERNELS_VARIANT)
#define BASE(name)               SYM_EXPAND(name, KERNELS_BASE)

#define KERNEL(name, arguments)       void SYM(name) arguments;
#define STATE_KERNEL(name, arguments) void BASE(name) arguments;
#include "kernels/kernels.def"
#undef KERNEL

#endif
