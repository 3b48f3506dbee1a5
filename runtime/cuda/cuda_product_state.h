/* Owns: the state of matrix products, shared by the files that describe and launch them (cuda_product.c), build algorithms from their
 * traits (cuda_traits.c), race them (cuda_race.c) and remember them (cuda_choices.c, cuda_algorithms.c). */
#ifndef FSDPC_RUNTIME_CUDA_PRODUCT_STATE_H
#define FSDPC_RUNTIME_CUDA_PRODUCT_STATE_H

#include "runtime/cuda/cuda_product.h"

#include <cuda_runtime_api.h>

/*  X(type, name, seen): all that an entry is for. seen: by the heuristic, so that the choice of an algorithm may depend on it. It
 *  does not see whether a product adds: plans that add to a result which others write must get the same bits, raced or not. */
#define CUDA_SHAPE(X)                                                                                        \
  X(int64_t, m, 1) X(int64_t, n, 1) X(int64_t, k, 1) X(int64_t, lda, 1) X(int64_t, ldb, 1) X(int64_t, ldc, 1) \
  X(int32_t, ta, 1) X(int32_t, tb, 1) X(int32_t, type, 1) X(int32_t, out_type, 1) X(int32_t, add, 0) X(int32_t, bias, 1) \
  X(uint32_t, align_a, 1) X(uint32_t, align_b, 1) X(uint32_t, align_c, 1) X(uint32_t, align_bias, 1)

typedef struct CudaShape {
#define X(type, name, seen) type name;
  CUDA_SHAPE(X)
#undef X
} CudaShape;

enum { CUDA_SHAPE_TEXT_BYTES = 128 };

/* Where an algorithm is from. */
typedef enum { CUDA_BY_HEURISTIC, CUDA_BY_RACE, CUDA_BY_FILE } CudaOrigin;

typedef struct CudaEntry {
  CudaShape shape;
  CudaProduct product; /* the one that was prepared; others of the shape have other addresses */
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c; /* cuBLASLt's first operand is our b */
  cublasLtMatmulAlgo_t algorithm;
  CudaOrigin origin;
  int candidates; /* that ran in the race */
  double faster;  /* than the first of them, in percent; 0: it is the first */
} CudaEntry;

struct CudaProducts {
  const CudaLibs *libs;
  cublasLtHandle_t handle;
  void *workspace;
  uint64_t workspace_bytes;
  bool later; /* preparing chooses nothing: cuda_algorithms_settle does */
  CudaEntry *entries;
  uint32_t count;
};

/* "65536 x 2304 x 768 NT bf16 to f32, adds, bias" */
char *cuda_shape_text(const CudaShape *shape, char out[CUDA_SHAPE_TEXT_BYTES]);
/* Whether the heuristic sees no difference. */
bool cuda_shapes_alike(const CudaShape *a, const CudaShape *b);
/* Schemes of summing across blocks that a product may use, CUBLASLT_REDUCTION_SCHEME_*. */
uint32_t cuda_shape_reductions(const CudaShape *shape);
/* Element types, as cuBLASLt calls them. */
cudaDataType_t cuda_shape_type(int type);
/* What the heuristic offers, best first, at most `most`, each with a state of its own; 0: failed, or nothing. */
int cuda_products_candidates(CudaProducts *products, const CudaEntry *entry, int most, cublasLtMatmulHeuristicResult_t *out,
                             Failure *failure);
/* Of the entry's shape; the bias must have been set. */
cublasStatus_t cuda_products_launch(CudaProducts *products, CudaStream stream, const CudaEntry *entry, const CudaProduct *product,
                                    const cublasLtMatmulAlgo_t *algorithm);

#endif
