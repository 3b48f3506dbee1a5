/* Owns: nothing; cpu_dispatch.c once more, for activations and gathered parameters of 16 bits. */
#define CPU_STORED_16 1
#include "runtime/cpu/cpu_dispatch.c"
