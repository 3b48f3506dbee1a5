/* Owns: cuBLASLt descriptors and algorithms, one entry a shape.
 *
 * cuBLASLt is column-major: row-major C[m,n] = op(A) op(B) is column-major C'[n,m] = op(B)' op(A)', so B is handed over
 * first. The algorithm is the heuristic's first choice, so that the same shape gets the same algorithm, and so the same bits, in
 * every run and every plan; a race would not promise that, unless what won is kept (cuda_algorithms.h, for who asks for it). Reductions
 * across blocks go through the workspace or in sequence, not through atomics that add. */
#include "runtime/cuda/cuda_product.h"

#include "base/hash.h"
#include "runtime/cuda/cuda_product_state.h"
#include "runtime/cuda/cuda_traits.h"
#include "runtime/runtime.h"

#include <string.h>

enum { MOST_SHAPES = 512, ALIGNMENT = 128 /* of parameters in their unit, whatever the plan */ };

static uint32_t alignment_of(const void *p) {
  uint32_t alignment = ALIGNMENT;
  while ((uintptr_t)p % alignment != 0) alignment /= 2;
  return alignment;
}

static CudaShape shape_of(const CudaProduct *p) {
  CudaShape shape;
  memset(&shape, 0, sizeof shape); /* padding too: shapes are compared as bytes */
  shape.m = p->m, shape.n = p->n, shape.k = p->k;
  shape.lda = p->a.ld, shape.ldb = p->b.ld, shape.ldc = p->c.ld;
  shape.ta = p->ta, shape.tb = p->tb, shape.type = p->a.type, shape.out_type = p->c.type;
  shape.add = p->c.add != 0, shape.bias = p->bias.x != NULL;
  shape.align_a = alignment_of(p->a.x), shape.align_b = alignment_of(p->b.x), shape.align_c = alignment_of(p->c.x);
  shape.align_bias = alignment_of(p->bias.x);
  return shape;
}

static CudaEntry *find(CudaProducts *products, const CudaShape *shape) {
  for (uint32_t i = 0; i < products->count; i++)
    if (memcmp(&products->entries[i].shape, shape, sizeof *shape) == 0) return &products->entries[i];
  return NULL;
}

bool cuda_shapes_alike(const CudaShape *a, const CudaShape *b) {
#define X(type, name, seen) && (!seen || a->name == b->name)
  return true CUDA_SHAPE(X);
#undef X
}

static const char *type_name(int type) { return type == CUDA_F32 ? "f32" : type == CUDA_BF16 ? "bf16" : "f16"; }

cudaDataType_t cuda_shape_type(int type) {
  return type == CUDA_F32 ? CUDA_R_32F : type == CUDA_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static bool check(cublasStatus_t status, const CudaShape *s, const char *what, Failure *failure) {
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  return fail(failure, RUN_INVALID, "cuBLASLt: %s for a product of %lld x %lld x %lld failed with status %d", what,
              (long long)s->m, (long long)s->n, (long long)s->k, (int)status);
}

/* bias: one of those that will be added; some heuristics want to see that there is one. */
static bool describe(CudaProducts *products, CudaEntry *e, const void *bias, Failure *failure) {
  const CudaLibs *l = products->libs;
  const CudaShape *s = &e->shape;
  cublasOperation_t first = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = s->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t in = cuda_shape_type(s->type), out = cuda_shape_type(s->out_type);
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

/* Sums across blocks are f32, so in the output's type only where that is f32. "In place" is one block after another, by counters
 * that "guarantee the sequentiality" (cublasLt.h). */
uint32_t cuda_shape_reductions(const CudaShape *shape) {
  return shape->out_type == CUDA_F32 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

static bool prefer(CudaProducts *products, const CudaShape *s, cublasLtMatmulPreference_t preference, Failure *failure) {
  const CudaLibs *l = products->libs;
  uint32_t reductions = cuda_shape_reductions(s);
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

int cuda_products_candidates(CudaProducts *products, const CudaEntry *e, int most, cublasLtMatmulHeuristicResult_t *out,
                             Failure *failure) {
  const CudaLibs *l = products->libs;
  cublasLtMatmulPreference_t preference = NULL;
  int found = 0;
  if (!check(l->cublasLtMatmulPreferenceCreate(&preference), &e->shape, "preferences", failure)) return 0;
  bool ok = prefer(products, &e->shape, preference, failure) &&
            check(l->cublasLtMatmulAlgoGetHeuristic(products->handle, e->operation, e->a, e->b, e->c, e->c, preference, most,
                                                    out, &found),
                  &e->shape, "choosing an algorithm", failure) &&
            check(found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED, &e->shape, "the chosen algorithm", failure);
  l->cublasLtMatmulPreferenceDestroy(preference);
  return ok ? found : 0;
}

static bool choose(CudaProducts *products, CudaEntry *e, Failure *failure) {
  cublasLtMatmulHeuristicResult_t result;
  if (cuda_products_candidates(products, e, 1, &result, failure) == 0 || !check(result.state, &e->shape, "the chosen algorithm", failure))
    return false;
  e->algorithm = result.algo;
  return true;
}

/* --- what was chosen ---------------------------------------------------------------------------------------------- */

char *cuda_shape_text(const CudaShape *s, char out[CUDA_SHAPE_TEXT_BYTES]) {
  snprintf(out, CUDA_SHAPE_TEXT_BYTES, "%lld x %lld x %lld %c%c %s to %s%s%s", (long long)s->m, (long long)s->n, (long long)s->k,
           s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', type_name(s->type), type_name(s->out_type), s->add ? ", adds" : "", s->bias ? ", bias" : "");
  return out;
}

uint64_t cuda_products_fingerprint(const CudaProducts *products) {
  uint64_t all = 0;
  for (uint32_t e = 0; e < products->count; e++) {
    const CudaEntry *entry = &products->entries[e];
    CudaTraits traits = cuda_traits_of(products->libs, &entry->algorithm);
    all += hash_bytes(hash_bytes(HASH_START, &entry->shape, sizeof entry->shape), &traits, sizeof traits);
  }
  return all;
}

static void list_origin(const CudaEntry *entry, FILE *out) {
  switch (entry->origin) {
    case CUDA_BY_HEURISTIC: fputs("; the heuristic's first\n", out); return;
    case CUDA_BY_FILE: fputs("; from the file\n", out); return;
    case CUDA_BY_RACE: break;
  }
  fprintf(out, "; raced, %d candidate%s, ", entry->candidates, entry->candidates == 1 ? "" : "s");
  if (entry->faster > 0) fprintf(out, "%.1f %% faster than the first\n", entry->faster);
  else fputs("the first stays\n", out);
}

void cuda_products_list(const CudaProducts *products, FILE *out) {
  for (uint32_t e = 0; e < products->count; e++) {
    const CudaEntry *entry = &products->entries[e];
    CudaTraits traits = cuda_traits_of(products->libs, &entry->algorithm);
    char shape[CUDA_SHAPE_TEXT_BYTES];
    fprintf(out, "product %s:", cuda_shape_text(&entry->shape, shape));
    for (int i = 0; i < CUDA_TRAITS; i++) fprintf(out, " %s %u", cuda_trait_name(i), traits.value[i]);
    list_origin(entry, out);
  }
}

/* --- the interface ------------------------------------------------------------------------------------------------- */

CudaProducts *cuda_products_open(Arena *arena, const CudaLibs *libs, void *workspace, uint64_t workspace_bytes,
                                 bool later, Failure *failure) {
  CudaProducts *products = ARENA_NEW(arena, CudaProducts);
  *products = (CudaProducts){.libs = libs, .workspace = workspace, .workspace_bytes = workspace_bytes, .later = later};
  products->entries = ARENA_ARRAY(arena, CudaEntry, MOST_SHAPES);
  cublasStatus_t status = libs->cublasLtCreate(&products->handle);
  if (status == CUBLAS_STATUS_SUCCESS) return products;
  fail(failure, RUN_INVALID, "cuda: cuBLASLt cannot be initialised: status %d", (int)status);
  return NULL;
}

bool cuda_products_prepare(CudaProducts *products, const CudaProduct *product, Failure *failure) {
  CudaShape shape = shape_of(product);
  if (find(products, &shape) != NULL) return true;
  if (products->count == MOST_SHAPES)
    return fail(failure, RUN_INVALID, "the plan has products of more than %d shapes", (int)MOST_SHAPES);
  if (product->b.type != product->a.type || (product->c.type != product->a.type && product->c.type != CUDA_F32) ||
      (product->bias.x != NULL && product->bias.type != product->c.type))
    return fail(failure, RUN_INVALID, "no product on a GPU has operands of %s and a result of %s; reduce in the type of `precision`, or in f32",
                type_name(product->a.type), type_name(product->c.type));
  CudaEntry *entry = &products->entries[products->count];
  *entry = (CudaEntry){.shape = shape, .product = *product};
  products->count++; /* before it can fail: close destroys what was made */
  return describe(products, entry, product->bias.x, failure) && (products->later || choose(products, entry, failure));
}

cublasStatus_t cuda_products_launch(CudaProducts *products, CudaStream stream, const CudaEntry *e, const CudaProduct *product,
                                    const cublasLtMatmulAlgo_t *algorithm) {
  float alpha = 1, beta = product->c.add ? 1 : 0;
  return products->libs->cublasLtMatmul(products->handle, e->operation, &alpha, product->b.x, e->a, product->a.x, e->b, &beta,
                                        product->c.x, e->c, product->c.x, e->c, algorithm, products->workspace,
                                        products->workspace_bytes, (cudaStream_t)stream);
}

bool cuda_products_run(CudaProducts *products, CudaStream stream, const CudaProduct *product, Failure *failure) {
  CudaShape shape = shape_of(product);
  const CudaEntry *e = find(products, &shape);
  const CudaLibs *l = products->libs;
  if (e == NULL) return check(CUBLAS_STATUS_NOT_INITIALIZED, &shape, "the algorithm", failure);
  if (product->bias.x != NULL &&
      !check(l->cublasLtMatmulDescSetAttribute(e->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &product->bias.x, sizeof product->bias.x),
             &shape, "the bias", failure))
    return false;
  return check(cuda_products_launch(products, stream, e, product, &e->algorithm), &shape, "the launch", failure);
}

void cuda_products_close(CudaProducts *products) {
  const CudaLibs *l = products->libs;
  for (uint32_t i = 0; i < products->count; i++) {
    CudaEntry *e = &products->entries[i];
    if (e->a != NULL) l->cublasLtMatrixLayoutDestroy(e->a);
    if (e->b != NULL) l->cublasLtMatrixLayoutDestroy(e->b);
    if (e->c != NULL) l->cublasLtMatrixLayoutDestroy(e->c);
    if (e->operation != NULL) l->cublasLtMatmulDescDestroy(e->operation);
  }
  l->cublasLtDestroy(products->handle);
}
