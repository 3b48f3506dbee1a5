/* Owns: what a kernel table holds, one struct for each element type.
 *
 *   const KernelTable *kernels_cpu(void)   the best variant this processor runs
 *
 * Reference formulas stand in layers.def and instr.def; arguments in kernels.def. */
#ifndef FSDPC_KERNELS_KERNELS_H
#define FSDPC_KERNELS_KERNELS_H

#include "kernels/exact.h"
#include "kernels/gemm.h"
#include "kernels/half.h"
#include "kernels/parallel.h"
#include <stdint.h>

/* How optimizers find and leave parameters that have no f32 master. Rounding is to nearest, or stochastic (bf16): up or
 * down with the probabilities that keep the mean, drawn by (seed, step, name_hash, element of the parameter). */
typedef struct WeightStore {
  FloatType type;
  int stochastic;
  uint64_t seed, step;
  uint64_t name_hash; /* of the parameter, as in InitFill */
  int64_t first;      /* element of the parameter that a kernel is handed first */
} WeightStore;

typedef struct KernelContext {
  Parallel *parallel;
  const Gemm *gemm; /* ignored by the float64 variant, which multiplies by itself */
  FloatType gradient; /* of the parameters, as kernels write it (`void *`) and optimizers read it */
  const WeightStore *weights; /* of parameters, as optimizers update them (`void *w`); NULL: the kernel's own type */
} KernelContext;

typedef struct RopeShape {
  int64_t batch, seq, heads, head_dim; /* head_dim even; row b*seq+t has position first+t */
  int64_t dims;                        /* of each head's, the first that turn: even, 2 .. head_dim */
  int llama3;                          /* frequencies scaled as by Hugging Face rope_type "llama3" */
  int64_t original;
  double theta, factor, low, high;
  int64_t first; /* position of row 0 */
} RopeShape;

typedef struct AttentionShape {
  int64_t batch, tq, tk, heads, kv_heads, head_dim; /* query head h uses kv head h / (heads / kv_heads) */
  int causal; /* query t sees keys 0 .. t + (tk - tq) */
  double scale;
} AttentionShape;

enum { HALF_MAX_HEAD_DIM = 256 }; /* of attention over elements of 16 bits */

typedef struct DropoutSite {
  double p;
  uint64_t seed, step, site;
  uint64_t first_sample;   /* global number of the first sample of this micro-batch on this rank */
  int64_t rows_per_sample; /* row r belongs to sample first_sample + r / rows_per_sample */
} DropoutSite;

typedef struct AdamwRates {
  double lr, beta1, beta2, eps, decay; /* decay 0 for parameters without it */
  double bias1, bias2;                 /* 1 - beta^step */
  double grad_scale;                   /* from clipping */
} AdamwRates;

typedef struct LionRates {
  double lr, beta1, beta2, decay, grad_scale;
} LionRates;

typedef struct SgdRates {
  double lr, momentum, decay, grad_scale;
} SgdRates;

/* An element's update u is grad_scale g / sqrt(max(row col row_scale, floor)); then w = keep w - step u. */
typedef struct AdafactorRates {
  double grad_scale, row_scale, floor;
  double keep, step;
} AdafactorRates;

typedef struct InitFill {
  int kind; /* InitKind of base/recipe.h: 0 zeros, 1 ones, 2 normal(0, a), 3 uniform [-a, a) */
  double a;
  uint64_t seed;
  uint64_t name_hash; /* FNV-1a of the parameter's name: values depend on nothing else but the element's index */
} InitFill;

#define real float
#define stored float
typedef struct KernelTable {
  const char *name; /* "avx512", "avx2", "portable" */
#define KERNEL(name, arguments) void(*name) arguments;
#include "kernels/kernels.def"
#undef KERNEL
} KernelTable;
#undef stored

/* Activations and gathered parameters of 16 bits, arithmetic in float. */
#define stored Half
typedef struct KernelTable16 {
  const char *name; /* "avx512_bf16" */
#define KERNEL(name, arguments) void(*name) arguments;
#include "kernels/kernels.def"
#undef KERNEL
} KernelTable16;
#undef stored
#undef real

/* The same kernels in double, portable C: what finite differences are taken of. Tests only. */
#define real double
#define stored double
typedef struct KernelTable64 {
  const char *name;
#define KERNEL(name, arguments) void(*name) arguments;
#include "kernels/kernels.def"
#undef KERNEL
} KernelTable64;
#undef stored
#undef real

/* Best variant for this processor; FSDPC_ISA=portable|avx2|avx512 overrides (NULL when it cannot run here). */
const KernelTable *kernels_cpu(void);
const KernelTable *kernels_cpu_named(const char *name);
/* The same variant with elements of 16 bits; type FLOAT_BF16 or FLOAT_F16. */
const KernelTable16 *kernels_cpu_half(FloatType type);
const KernelTable16 *kernels_cpu_half_named(FloatType type, const char *name);
const KernelTable64 *kernels_cpu_f64(void);

/* Flush denormals to zero in the calling thread: they cost up to 100 x in inner loops. */
void kernels_thread_init(void);

/* Uniform in [0, 1) and standard normal values from a counter (Philox 4x32-10, Salmon et al. SC11): pure functions. */
double random_uniform(uint64_t seed, uint64_t stream, uint64_t index);
double random_normal(uint64_t seed, uint64_t stream, uint64_t index);

#endif
