/* Owns: one variant's table of kernels and its built-in gemm. */
#include "kernels/cpu/block_mm.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

extern const Table SYM(kernel_table);
const Table SYM(kernel_table) = {
    .name = TEXT(KERNELS_VARIANT),
#define KERNEL(name, arguments) .name = SYM(name),
#define STATE_KERNEL(name, arguments) .name = BASE(name),
#include "kernels/kernels.def"
#undef KERNEL
};

#if !KERNELS_DOUBLE && KERNELS_STORED == 0
extern const Gemm SYM(gemm_builtin);
const Gemm SYM(gemm_builtin) = {"builtin", SYM(gemm_blocked), NULL, 0};
#endif
