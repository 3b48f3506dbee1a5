/* Owns: which variant a processor runs, and the floating-point mode of threads. */
#include "kernels/kernels.h"
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

extern const KernelTable kernel_table_portable;
extern const KernelTable16 kernel_table_portable_bf16, kernel_table_portable_f16;
extern const KernelTable64 kernel_table_f64;
extern const Gemm gemm_builtin_portable;
#if KERNELS_X86
extern const KernelTable kernel_table_avx2, kernel_table_avx512;
extern const KernelTable16 kernel_table_avx2_bf16, kernel_table_avx2_f16, kernel_table_avx512_bf16, kernel_table_avx512_f16;
extern const Gemm gemm_builtin_avx2, gemm_builtin_avx512;
#endif

typedef struct Variant {
  const KernelTable *table;
  const KernelTable16 *bf16, *f16;
  const Gemm *gemm;
} Variant;

static int runs_here(const char *name) {
#if KERNELS_X86
  if (strcmp(name, "avx512") == 0) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  }
  if (strcmp(name, "avx2") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                      __builtin_cpu_supports("f16c");
#endif
  return strcmp(name, "portable") == 0;
}

/* NULL: the best. */
static Variant choose(const char *name) {
  const Variant variants[] = {
#if KERNELS_X86
    {&kernel_table_avx512, &kernel_table_avx512_bf16, &kernel_table_avx512_f16, &gemm_builtin_avx512},
    {&kernel_table_avx2, &kernel_table_avx2_bf16, &kernel_table_avx2_f16, &gemm_builtin_avx2},
#endif
    {&kernel_table_portable, &kernel_table_portable_bf16, &kernel_table_portable_f16, &gemm_builtin_portable},
  };
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const char *own = variants[i].table->name;
    if ((!name || strcmp(name, own) == 0) && runs_here(own)) return variants[i];
  }
  return (Variant){NULL, NULL, NULL, NULL};
}

static const char *wanted(void) {
  const char *name = getenv("FSDPC_ISA");
  return name && *name && strcmp(name, "auto") ? name : NULL;
}

const KernelTable *kernels_cpu(void) {
  return choose(wanted()).table;
}

const KernelTable *kernels_cpu_named(const char *name) {
  return name ? choose(name).table : NULL;
}

static const KernelTable16 *half_of(Variant variant, FloatType type) {
  return type == FLOAT_BF16 ? variant.bf16 : variant.f16;
}

const KernelTable16 *kernels_cpu_half(FloatType type) {
  return half_of(choose(wanted()), type);
}

const KernelTable16 *kernels_cpu_half_named(FloatType type, const char *name) {
  return name ? half_of(choose(name), type) : NULL;
}

const KernelTable64 *kernels_cpu_f64(void) {
  return &kernel_table_f64;
}

/* Always there: an FSDPC_ISA that cannot run falls back to the best. */
const Gemm *gemm_builtin(void) {
  Variant v = choose(wanted());
  return v.gemm ? v.gemm : choose(NULL).gemm;
}

void kernels_thread_init(void) {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040u); /* flush to zero, denormals are zero */
#elif defined(__aarch64__)
  uint64_t mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  __asm__ volatile("msr fpcr, %0" : : "r"(mode | (UINT64_C(1) << 24)));
#endif
}
