/* Owns: the CUDA kernels as plain C functions: what the backend calls, and what a stand-in for tests implements.
 *
 * Same arithmetic as kernels.def, in f32 (or wider) whatever the element type. Matrices are row-major; `ld` is the
 * distance between rows in elements; `add` non-zero: add into the output. Every function launches on the stream and
 * returns at once: 0, CUDA_UNSUPPORTED, or the cudaError_t of the launch. None allocates; those that need scratch memory say how much.
 * Every sum has one fixed order, or is exact: results do not change from run to run. */
#ifndef FSDPC_KERNELS_CUDA_CUDA_KERNELS_H
#define FSDPC_KERNELS_CUDA_CUDA_KERNELS_H

#include "kernels/cuda/scratch.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void *CudaStream; /* cudaStream_t */

typedef enum { CUDA_F32, CUDA_BF16, CUDA_F16 } CudaType; /* numbered as the floats of base/dtype.h */

enum {
  CUDA_UNSUPPORTED = -3, /* no cudaError_t: element types or a shape that no kernel was compiled for */
  CUDA_MAX_PEERS = 64,  /* ranks of one tree sum */
  CUDA_MAX_HEAD_DIM = 256
};

typedef struct CudaTensor {
  void *x; /* NULL: absent */
  int64_t ld;
  int type; /* CudaType */
  int add;
} CudaTensor;

/* What changes from step to step, in device memory: a captured graph holds its address, not its values. */
typedef struct CudaStep {
  uint64_t step, first_sample; /* as in StepState */
  uint64_t micro_batch;        /* number in the step; advanced by cuda_advance */
  uint64_t update;             /* steps that were not skipped, this one included */
  double lr;
  double bias1, bias2; /* 1 - beta^step */
} CudaStep;

/* A parameter's part of a shard, in device memory: its first element is a multiple of 64. */
typedef struct CudaRange {
  int64_t first, count;
  double decay;
  int64_t element;    /* of the parameter, that comes first */
  uint64_t name_hash; /* of the parameter, as in WeightStore */
} CudaRange;

/* Of parameters without f32 masters; WeightStore says what it means. */
typedef struct CudaRounding {
  int stochastic; /* else to nearest */
  uint64_t seed;
} CudaRounding;

typedef struct CudaRanges {
  const CudaRange *data; /* device, by first */
  int32_t count;
} CudaRanges;

/* Row-major C[m,n] (+)= op(A)[m,k] op(B)[k,n], plus a bias of n elements on every row. Sums are f32; C has the element type
 * of A and B, or f32. Done by cuBLASLt (runtime/cuda/cuda_product.c), not by a kernel of ours. */
typedef struct CudaProduct {
  int64_t m, n, k;
  int ta, tb; /* not 0: the stored matrix is the transpose of op's */
  CudaTensor a, b, c; /* c.add: add into */
  CudaTensor bias;    /* x NULL: none */
} CudaProduct;

/* --- step ------------------------------------------------------------------------------------------------------ */
/* to[0, count) = staged[micro_batch][0, count) */
int cuda_input(CudaStream stream, const CudaStep *step, int64_t count, const int32_t *staged, int32_t *to);
/* step->micro_batch = (step->micro_batch + 1) % count */
int cuda_advance(CudaStream stream, CudaStep *step, uint64_t count);

/* --- element-wise ---------------------------------------------------------------------------------------------- */
int cuda_copy(CudaStream stream, int64_t rows, int64_t cols, CudaTensor x, CudaTensor y); /* f32 <-> any type too */
int cuda_mul(CudaStream stream, int64_t rows, int64_t cols, CudaTensor a, CudaTensor b, CudaTensor y);
int cuda_scale(CudaStream stream, int64_t rows, int64_t cols, double by, CudaTensor x, CudaTensor y);
int cuda_add(CudaStream stream, int64_t rows, int64_t cols, int64_t brows, CudaTensor a, CudaTensor b, CudaTensor y);
/* scratch: cuda_column_scratch(rows, cols) bytes, or NULL when brows > 1 */
int cuda_broadcast_bwd(CudaStream stream, int64_t rows, int64_t cols, int64_t brows, CudaTensor dy, CudaTensor db,
                       void *scratch);
typedef enum { CUDA_GELU_TANH, CUDA_GELU_ERF, CUDA_RELU, CUDA_SILU } CudaActivation;
int cuda_activation_fwd(CudaStream stream, CudaActivation kind, int64_t rows, int64_t cols, CudaTensor x, CudaTensor y);
int cuda_activation_bwd(CudaStream stream, CudaActivation kind, int64_t rows, int64_t cols, CudaTensor x, CudaTensor dy,
                        CudaTensor dx);
int cuda_silu_mul_fwd(CudaStream stream, int64_t rows, int64_t cols, CudaTensor x, CudaTensor u, CudaTensor y);
/* dx.x or du.x NULL: not wanted */
int cuda_silu_mul_bwd(CudaStream stream, int64_t rows, int64_t cols, CudaTensor x, CudaTensor u, CudaTensor dy,
                      CudaTensor dx, CudaTensor du);
/* The mask of kernels/cpu/dropout.c. The micro-batch's first sample is step->first_sample +
 * (step->micro_batch * ranks + rank) * micro_batch. site->step and site->first_sample are ignored. */
typedef struct CudaDropout {
  double p;
  uint64_t seed, site;
  int64_t rows_per_sample;
  uint64_t ranks, rank, micro_batch;
} CudaDropout;
int cuda_dropout(CudaStream stream, const CudaStep *step, const CudaDropout *site, int64_t rows, int64_t cols,
                 CudaTensor x, CudaTensor y);

/* --- rows ------------------------------------------------------------------------------------------------------ */
int cuda_embedding_fwd(CudaStream stream, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens,
                       CudaTensor table, CudaTensor y);
int cuda_embedding_bwd(CudaStream stream, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens, CudaTensor dy,
                       CudaTensor dtable);
/* mean NULL: root mean square */
int cuda_norm_fwd(CudaStream stream, int64_t rows, int64_t d, double eps, CudaTensor x, CudaTensor w, CudaTensor bias,
                  CudaTensor y, float *mean, float *rstd);
int cuda_norm_bwd(CudaStream stream, int64_t rows, int64_t d, CudaTensor x, CudaTensor w, const float *mean,
                  const float *rstd, CudaTensor dy, CudaTensor dx, CudaTensor dw, CudaTensor dbias, void *scratch);
/* sums (+)= sums of x's columns, each row times the first element of weights' unless that is absent.
 * scratch: cuda_column_scratch(rows, cols) bytes */
int cuda_column_sums(CudaStream stream, int64_t rows, int64_t cols, CudaTensor x, CudaTensor weights, CudaTensor sums, void *scratch);
/* y, dx and dw of linear layers of a few outputs; w and dw have rows of `in` elements, one after the other.
 * scratch: cuda_column_scratch(rows, in) bytes */
int cuda_narrow_fwd(CudaStream stream, int64_t rows, int64_t outs, int64_t in, CudaTensor x, CudaTensor w, CudaTensor bias, CudaTensor y);
int cuda_narrow_bwd_x(CudaStream stream, int64_t rows, int64_t outs, int64_t in, CudaTensor dy, CudaTensor w, CudaTensor dx);
int cuda_narrow_bwd_w(CudaStream stream, int64_t rows, int64_t outs, int64_t in, CudaTensor x, CudaTensor dy, CudaTensor dw, void *scratch);
int cuda_rope(CudaStream stream, const RopeShape *shape, int backward, CudaTensor x, CudaTensor y);

/* --- attention ------------------------------------------------------------------------------------------------- */
/* scratch: cuda_attention_fwd_scratch(shape) bytes, none but for single rows of queries */
int cuda_attention_fwd(CudaStream stream, const AttentionShape *shape, CudaTensor q, CudaTensor k, CudaTensor v,
                       CudaTensor o, float *lse, void *scratch);
/* scratch: cuda_attention_bwd_scratch(shape) bytes */
int cuda_attention_bwd(CudaStream stream, const AttentionShape *shape, CudaTensor q, CudaTensor k, CudaTensor v,
                       CudaTensor o, const float *lse, CudaTensor d_o, CudaTensor dq, CudaTensor dk, CudaTensor dv,
                       void *scratch);

/* The same on compute 9.0, faster: of 16 bits, causal, heads of 64 or 128, on 16 bytes, nothing added to.
 * groups: heads of keys, of all samples, in a launch. shares: not 0 where kernels of other streams are to run beside it. Neither changes a bit.
 * scratch: cuda_attention_hopper_scratch(shape, groups) bytes */
int cuda_attention_hopper_takes(const AttentionShape *shape, CudaTensor q, CudaTensor k, CudaTensor v, CudaTensor o, CudaTensor d_o, CudaTensor dq,
                                CudaTensor dk, CudaTensor dv);
int cuda_attention_hopper_bwd(CudaStream stream, const AttentionShape *shape, int64_t groups, int shares, CudaTensor q, CudaTensor k, CudaTensor v,
                              CudaTensor o, const float *lse, CudaTensor d_o, CudaTensor dq, CudaTensor dk, CudaTensor dv, void *scratch);
/* The forward pass on compute 9.0: of 16 bits, causal, heads of 64 or 128, on 16 bytes, nothing added to. shares: as there. */
int cuda_attention_hopper_fwd_takes(const AttentionShape *shape, CudaTensor q, CudaTensor k, CudaTensor v, CudaTensor o);
int cuda_attention_hopper_fwd(CudaStream stream, const AttentionShape *shape, int shares, CudaTensor q, CudaTensor k, CudaTensor v, CudaTensor o,
                              float *lse);

/* --- losses: loss += sum of row losses ------------------------------------------------------------------------- */
int cuda_cross_entropy(CudaStream stream, int64_t rows, int64_t vocab, int64_t ignore, const double *count,
                       CudaTensor logits, const int32_t *targets, float *row_loss);
int cuda_mse(CudaStream stream, int64_t rows, int64_t cols, const double *count, CudaTensor x, CudaTensor y,
             CudaTensor dx, float *row_loss);
int cuda_sum_loss(CudaStream stream, int64_t rows, const float *row_loss, double *loss);

/* --- update ---------------------------------------------------------------------------------------------------- */
int cuda_sum_squares(CudaStream stream, CudaRanges ranges, int64_t shard, CudaTensor g, int64_t *acc);
/* Carries what has been added word by word, so that the sum of 2^30 accumulators fits again. */
int cuda_exact_carry(CudaStream stream, int64_t *acc);
int cuda_clip(CudaStream stream, double max_norm, const int64_t *acc, double *norm, float *scale);
/* scaler: loss scale, good steps in a row, skipped steps; see scale_count and clip_scaled in instr.def. */
typedef struct CudaScaling {
  double max_norm, growth, backoff;
  int64_t interval;
} CudaScaling;
int cuda_scale_count(CudaStream stream, const double *count, const double *scaler, double *scaled);
int cuda_clip_scaled(CudaStream stream, CudaScaling scaling, const int64_t *acc, double *scaler, double *norm,
                     float *scale);
/* The parameters that one instruction updates. A scale of NaN: nothing is updated. */
typedef struct CudaUpdate {
  const CudaStep *step;
  CudaRanges ranges;
  int64_t shard; /* elements */
  CudaTensor g;
  const float *scale;
  CudaTensor w;    /* f32; or bf16, rounded, and then without a cast */
  CudaTensor cast; /* w in the compute dtype, or x NULL */
  CudaRounding rounding;
} CudaUpdate;

int cuda_adamw(CudaStream stream, const CudaUpdate *update, double beta1, double beta2, double eps, float *m, float *v);
int cuda_lion(CudaStream stream, const CudaUpdate *update, double beta1, double beta2, float *m);
int cuda_sgd(CudaStream stream, const CudaUpdate *update, double momentum, float *m /* or NULL */);

/* Adafactor. A parameter as rows x cols; a vector has no columns to sum over. Sums and moments of a unit lie parameter by
 * parameter, rows, then columns. */
typedef struct CudaFactored {
  int64_t rows, cols;     /* a vector: its elements, and 1 */
  int64_t row_at, col_at; /* col_at -1: a vector */
  int64_t first, count;   /* elements in this shard: [first, first + count) of the parameter, maybe none */
  int64_t local;          /* where they lie in the shard; a multiple of 64 */
  double decay;
  uint64_t name_hash;     /* as in CudaRange */
} CudaFactored;

typedef struct CudaFactoreds {
  const CudaFactored *data; /* device */
  int32_t count;
  int64_t moments; /* of all of them */
} CudaFactoreds;

typedef struct CudaAdafactor {
  double eps, eps2, threshold, beta2_decay;
} CudaAdafactor;

/* As adafactor_sums, adafactor_moments and adafactor of instr.def; sums and norms must be zero before. shard: elements.
 * scratch: cuda_adafactor_scratch(parameters) bytes. */
int cuda_adafactor_sums(CudaStream stream, CudaFactoreds params, int64_t shard, CudaTensor g, CudaTensor w,
                        const int64_t *acc, int64_t *sums, void *scratch);
int cuda_adafactor_moments(CudaStream stream, const CudaStep *step, CudaAdafactor a, CudaFactoreds params, int64_t shard,
                           CudaTensor g, const int64_t *acc, const float *scale, const int64_t *sums, float *v,
                           int64_t *norms, void *scratch);
/* update->ranges is not used. */
int cuda_adafactor(CudaStream stream, const CudaUpdate *update, CudaAdafactor a, CudaFactoreds params, const int64_t *sums,
                   const int64_t *norms, const float *v, void *scratch);

/* --- sums over ranks, whose buffers this device can read ------------------------------------------------------- */
/* y (+)= sum along the tree of comm.h; y may be one of the sources. */
int cuda_tree_sum(CudaStream stream, int64_t n, int32_t ranks, const void *const *sources /* host array */, CudaTensor y);
int cuda_tree_sum_f64(CudaStream stream, int64_t n, int32_t ranks, const void *const *sources, double *y);
/* Of integers, so of exact accumulators word by word: whoever reads those carries. */
int cuda_integer_sum(CudaStream stream, int64_t n, int32_t ranks, const void *const *sources, int64_t *y);

#ifdef __cplusplus
}
#endif

#endif
