/* Owns: the table of what can be set of an algorithm. */
#include "runtime/cuda/cuda_traits.h"

static const struct {
  const char *name;
  cublasLtMatmulAlgoConfigAttributes_t attribute;
  size_t bytes;
} traits[CUDA_TRAITS] = {{"algorithm", CUBLASLT_ALGO_CONFIG_ID, 4},        {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
                         {"splits", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},   {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
                         {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4}, {"option", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
                         {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},    {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
                         {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2}};
enum { ID = 0, REDUCTION = 3 };

const char *cuda_trait_name(int i) { return traits[i].name; }

CudaTraits cuda_traits_of(const CudaLibs *libs, const cublasLtMatmulAlgo_t *algorithm) {
  CudaTraits out = {0};
  for (int i = 0; i < CUDA_TRAITS; i++) {
    uint32_t value = 0; /* little-endian: shorter ones fill its low bytes */
    size_t written;
    if (libs->cublasLtMatmulAlgoConfigGetAttribute(algorithm, traits[i].attribute, &value, traits[i].bytes, &written) == CUBLAS_STATUS_SUCCESS)
      out.value[i] = value;
  }
  return out;
}

/* Only what differs is set: an algorithm may know nothing of an attribute, and then has it as it was read. */
static cublasStatus_t configure(const CudaLibs *l, const CudaTraits *wanted, cublasLtMatmulAlgo_t *out) {
  CudaTraits now = cuda_traits_of(l, out);
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  for (int i = 0; i < CUDA_TRAITS && status == CUBLAS_STATUS_SUCCESS; i++)
    if (wanted->value[i] != now.value[i])
      status = l->cublasLtMatmulAlgoConfigSetAttribute(out, traits[i].attribute, &wanted->value[i], traits[i].bytes);
  return status;
}

cublasStatus_t cuda_traits_make(CudaProducts *products, const CudaEntry *e, const CudaTraits *wanted, cublasLtMatmulAlgo_t *out) {
  const CudaLibs *l = products->libs;
  cublasLtMatmulHeuristicResult_t result = {0};
  cudaDataType_t in = cuda_shape_type(e->shape.type), to = cuda_shape_type(e->shape.out_type);
  if ((wanted->value[REDUCTION] & ~cuda_shape_reductions(&e->shape)) != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  cublasStatus_t status =
      l->cublasLtMatmulAlgoInit(products->handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, in, in, to, to, (int)wanted->value[ID], out);
  if (status == CUBLAS_STATUS_SUCCESS) status = configure(l, wanted, out);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = l->cublasLtMatmulAlgoCheck(products->handle, e->operation, e->a, e->b, e->c, e->c, out, &result);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return result.workspaceSize <= products->workspace_bytes ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
