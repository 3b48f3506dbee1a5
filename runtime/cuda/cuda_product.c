/* Owns: cuBLASLt descriptors and algorithms, one entry a shape.
 *
 * cuBLASLt is column-major: row-major C[m,n] = op(A) op(B) is column-major C'[n,m] = op(B)' op(A)', so B is handed over
 * first. The algorithm is the heuristic's first choice, never the fastest of a race: the same shape must get the same
 * algorithm, and so the same bits, in every run and every plan. Reductions across blocks go through the workspace or in
 * sequence, not through atomics that add. */
#include "runtime/cuda/cuda_product.h"

#include "base/hash.h"
#include "runtime/runtime.h"

#include <string.h>

enum { MOST_SHAPES = 512, ALIGNMENT = 128 /* of parameters in their unit, whatever the plan */ };

/* All that the choice of an algorithm may depend on. */
typedef struct Shape {
  int64_t m, n, k, lda, ldb, ldc;
  int32_t ta, tb, type, out_type, add, bias;
  uint32_t align_a, align_b, align_c, align_bias;
} Shape;

typedef struct Entry {
  Shape shape;
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c; /* cuBLASLt's first operand is our b */
  cublasLtMatmulAlgo_t algorithm;
} Entry;

struct CudaProducts {
  const CudaLibs *libs;
  cublasLtHandle_t handle;
  void *workspace;
  uint64_t workspace_bytes;
  Entry *entries; /* MOST_SHAPES */
  uint32_t count;
};

static uint32_t alignment_of(const void *p) {
  uint32_t alignment = ALIGNMENT;
  while ((uintptr_t)p % alignment != 0) alignment /= 2;
  return alignment;
}

static Shape shape_of(const CudaProduct *p) {
  Shape shape;
  memset(&shape, 0, sizeof shape); /* padding too: shapes are compared as bytes */
  shape.m = p->m, shape.n = p->n, shape.k = p->k;
  shape.lda = p->a.ld, shape.ldb = p->b.ld, shape.ldc = p->c.ld;
  shape.ta = p->ta, shape.tb = p->tb, shape.type = p->a.type, shape.out_type = p->c.type;
  shape.add = p->c.add != 0, shape.bias = p->bias.x != NULL;
  shape.align_a = alignment_of(p->a.x), shape.align_b = alignment_of(p->b.x), shape.align_c = alignment_of(p->c.x);
  shape.align_bias = alignment_of(p->bias.x);
  return shape;
}

static Entry *find(CudaProducts *products, const Shape *shape) {
  for (uint32_t i = 0; i < products->count; i++)
    if (memcmp(&products->entries[i].shape, shape, sizeof *shape) == 0) return &products->entries[i];
  return NULL;
}

static const char *type_name(int type) { return type == CUDA_F32 ? "f32" : type == CUDA_BF16 ? "bf16" : "f16"; }

static cudaDataType_t data_type(int type) {
  return type == CUDA_F32 ? CUDA_R_32F : type == CUDA_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static bool check(cublasStatus_t status, const Shape *s, const char *what, Failure *failure) {
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  return fail(failure, RUN_INVALID, "cuBLASLt: %s for a product of %lld x %lld x %lld failed with status %d", what,
              (long long)s->m, (long long)s->n, (long long)s->k, (int)status);
}

/* bias: one of those that will be added; some heuristics want to see that there is one. */
static bool describe(CudaProducts *products, Entry *e, const void *bias, Failure *failure) {
  const CudaLibs *l = products->libs;
  const Shape *s = &e->shape;
  cublasOperation_t first = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = s->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t in = data_type(s->type), out = data_type(s->out_type);
  uint64_t m = (uint64_t)s->m, n = (uint64_t)s->n, k = (uint64_t)s->k;
#define CHECK(call) check(l->call, s, #call, failure)
  return CHECK(cublasLtMatmulDescCreate(&e->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
         CHECK(cublasLtMatmulDescSetAttribute(e->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first)) &&
         CHECK(cublasLtMatmulDescSetAttribute(e->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second)) &&
         CHECK(cublasLtMatmulDescSetAttribute(e->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue)) &&
         (bias == NULL || CHECK(cublasLtMatmulDescSetAttribute(e->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias))) &&
         CHECK(cublasLtMatrixLayoutCreate(&e->a, in, s->tb ? k : n, s->tb ? n : k, s->ldb)) &&
         CHECK(cublasLtMatrixLayoutCreate(&e->b, in, s->ta ? m : k, s->ta ? k : m, s->lda)) &&
         CHECK(cublasLtMatrixLayoutCreate(&e->c, out, n, m, s->ldc));
#undef CHECK
}

static bool prefer(CudaProducts *products, const Shape *s, cublasLtMatmulPreference_t preference, Failure *failure) {
  const CudaLibs *l = products->libs;
  /* Sums across blocks are f32, so in the output's type only where that is f32. "In place" is one block after another, by counters
   * that "guarantee the sequentiality" (cublasLt.h). */
  uint32_t reductions = s->out_type == CUDA_F32 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
#define SET(attribute, value)                                                                                \
  check(l->cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), s, #attribute, failure)
  return SET(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, products->workspace_bytes) &&
         SET(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions) &&
         SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->align_b) &&
         SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->align_a) &&
         SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->align_c) &&
         SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->align_c);
#undef SET
}

static bool choose(CudaProducts *products, Entry *e, Failure *failure) {
  const CudaLibs *l = products->libs;
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  if (!check(l->cublasLtMatmulPreferenceCreate(&preference), &e->shape, "preferences", failure)) return false;
  bool ok = prefer(products, &e->shape, preference, failure) &&
            check(l->cublasLtMatmulAlgoGetHeuristic(products->handle, e->operation, e->a, e->b, e->c, e->c, preference, 1,
                                                    &result, &found),
                  &e->shape, "choosing an algorithm", failure) &&
            check(found > 0 ? result.state : CUBLAS_STATUS_NOT_SUPPORTED, &e->shape, "the chosen algorithm", failure);
  if (ok) e->algorithm = result.algo;
  l->cublasLtMatmulPreferenceDestroy(preference);
  return ok;
}

/* --- what was chosen ---------------------------------------------------------------------------------------------- */

/* Of an algorithm all that can be set, in the order of cublasLt.h. */
static const struct {
  const char *name;
  cublasLtMatmulAlgoConfigAttributes_t attribute;
  size_t bytes;
} traits[] = {{"algorithm", CUBLASLT_ALGO_CONFIG_ID, 4},        {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
              {"splits", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},   {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
              {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4}, {"option", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
              {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},    {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
              {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2}};
enum { TRAITS = sizeof traits / sizeof *traits };

/* 0 where the algorithm says nothing of it. */
static uint32_t trait(const CudaProducts *products, const Entry *e, int i) {
  uint32_t value = 0; /* little-endian: shorter ones fill its low bytes */
  size_t written;
  if (products->libs->cublasLtMatmulAlgoConfigGetAttribute(&e->algorithm, traits[i].attribute, &value, traits[i].bytes, &written) !=
      CUBLAS_STATUS_SUCCESS)
    return 0;
  return value;
}

uint64_t cuda_products_fingerprint(const CudaProducts *products) {
  uint64_t all = 0;
  for (uint32_t e = 0; e < products->count; e++) {
    const Entry *entry = &products->entries[e];
    uint64_t one = hash_bytes(HASH_START, &entry->shape, sizeof entry->shape);
    for (int i = 0; i < TRAITS; i++) {
      uint32_t value = trait(products, entry, i);
      one = hash_bytes(one, &value, sizeof value);
    }
    all += one;
  }
  return all;
}

void cuda_products_list(const CudaProducts *products, FILE *out) {
  for (uint32_t e = 0; e < products->count; e++) {
    const Entry *entry = &products->entries[e];
    const Shape *s = &entry->shape;
    fprintf(out, "product %lld x %lld x %lld %c%c %s to %s%s%s:", (long long)s->m, (long long)s->n, (long long)s->k, s->ta ? 'T' : 'N',
            s->tb ? 'T' : 'N', type_name(s->type), type_name(s->out_type), s->add ? ", adds" : "", s->bias ? ", bias" : "");
    for (int i = 0; i < TRAITS; i++) fprintf(out, " %s %u", traits[i].name, trait(products, entry, i));
    fputc('\n', out);
  }
}

/* --- the interface ------------------------------------------------------------------------------------------------- */

CudaProducts *cuda_products_open(Arena *arena, const CudaLibs *libs, void *workspace, uint64_t workspace_bytes,
                                 Failure *failure) {
  CudaProducts *products = ARENA_NEW(arena, CudaProducts);
  *products = (CudaProducts){.libs = libs, .workspace = workspace, .workspace_bytes = workspace_bytes};
  products->entries = ARENA_ARRAY(arena, Entry, MOST_SHAPES);
  cublasStatus_t status = libs->cublasLtCreate(&products->handle);
  if (status == CUBLAS_STATUS_SUCCESS) return products;
  fail(failure, RUN_INVALID, "cuda: cuBLASLt cannot be initialised: status %d", (int)status);
  return NULL;
}

bool cuda_products_prepare(CudaProducts *products, const CudaProduct *product, Failure *failure) {
  Shape shape = shape_of(product);
  if (find(products, &shape) != NULL) return true;
  if (products->count == MOST_SHAPES)
    return fail(failure, RUN_INVALID, "the plan has products of more than %d shapes", (int)MOST_SHAPES);
  if (product->b.type != product->a.type || (product->c.type != product->a.type && product->c.type != CUDA_F32) ||
      (product->bias.x != NULL && product->bias.type != product->c.type))
    return fail(failure, RUN_INVALID, "no product on a GPU has operands of %s and a result of %s; reduce in the type of `precision`, or in f32",
                type_name(product->a.type), type_name(product->c.type));
  Entry *entry = &products->entries[products->count];
  *entry = (Entry){.shape = shape};
  products->count++; /* before it can fail: close destroys what was made */
  return describe(products, entry, product->bias.x, failure) && choose(products, entry, failure);
}

bool cuda_products_run(CudaProducts *products, CudaStream stream, const CudaProduct *product, Failure *failure) {
  Shape shape = shape_of(product);
  const Entry *e = find(products, &shape);
  const CudaLibs *l = products->libs;
  float alpha = 1, beta = product->c.add ? 1 : 0;
  if (e == NULL) return check(CUBLAS_STATUS_NOT_INITIALIZED, &shape, "the algorithm", failure);
  if (product->bias.x != NULL &&
      !check(l->cublasLtMatmulDescSetAttribute(e->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &product->bias.x, sizeof product->bias.x),
             &shape, "the bias", failure))
    return false;
  cublasStatus_t status =
      l->cublasLtMatmul(products->handle, e->operation, &alpha, product->b.x, e->a, product->a.x, e->b, &beta,
                        product->c.x, e->c, product->c.x, e->c, &e->algorithm, products->workspace,
                        products->workspace_bytes, (cudaStream_t)stream);
  return check(status, &shape, "the launch", failure);
}

void cuda_products_close(CudaProducts *products) {
  const CudaLibs *l = products->libs;
  for (uint32_t i = 0; i < products->count; i++) {
    Entry *e = &products->entries[i];
    if (e->a != NULL) l->cublasLtMatrixLayoutDestroy(e->a);
    if (e->b != NULL) l->cublasLtMatrixLayoutDestroy(e->b);
    if (e->c != NULL) l->cublasLtMatrixLayoutDestroy(e->c);
    if (e->operation != NULL) l->cublasLtMatmulDescDestroy(e->operation);
  }
  l->cublasLtDestroy(products->handle);
}
