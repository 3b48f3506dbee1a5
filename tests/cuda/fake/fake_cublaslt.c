/* Owns: cuBLASLt on the CPU: what runtime/cuda/cuda_product.c calls. It knows nothing but the library's own conventions
 * (column-major, opaque descriptors), so that a product described wrongly comes out wrong; and it insists on what the
 * library's header says: sizes of attributes, leading dimensions, alignment as promised when the algorithm was chosen.
 * FAKE_CANDIDATES=MS,MS,...: it offers so many algorithms, in this order, which differ in their tiles and in the order of their sums; how long
 * each takes, or `x` for one that cannot be launched; `1~3` takes 3 once it has run five times in a row. A factor of zeros, or a result that is not finite, then ends the program. */
#include "tests/cuda/fake/fake_cublaslt.h"

#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/host_product.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Operation {
  int32_t turn_a, turn_b;
  uint32_t epilogue;
  const void *bias;
} Operation;

typedef struct Layout {
  cudaDataType_t type;
  int64_t rows, cols, ld;
} Layout;

typedef struct Preference {
  uint64_t workspace_bytes;
  uint32_t reductions, align_a, align_b, align_c, align_d;
} Preference;

enum { MOST_CANDIDATES = 16, ATTRIBUTES = 9 };

/* What an algorithm was chosen for, in its opaque words; m 0: made by its number, for whatever it is launched for. */
typedef struct Chosen {
  int64_t m, n, k;
  uint32_t align_a, align_b, align_c, id, tile;
} Chosen;

typedef struct Job {
  Operation op;
  Layout a, b, c;
  const void *from_a, *from_b;
  void *to;
  float alpha, beta;
  uint32_t tile;
} Job;

#define OP(descriptor)     ((Operation *)(void *)(descriptor))
#define LAYOUT(descriptor) ((Layout *)(void *)(descriptor))
#define ALLOCATE(type)     ((type *)calloc(1, sizeof(type)))

static cublasStatus_t fill(void *to, size_t size, const void *from, size_t given) {
  if (given != size) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, from, size);
  return CUBLAS_STATUS_SUCCESS;
}
#define FILL(member) fill(&(member), sizeof(member), value, size)

static cublasStatus_t create(cublasLtHandle_t *out) { return *out = (cublasLtHandle_t)(void *)ALLOCATE(int), CUBLAS_STATUS_SUCCESS; }
static cublasStatus_t destroy(cublasLtHandle_t handle) { return free(handle), CUBLAS_STATUS_SUCCESS; }
/* FAKE_CUBLASLT_VERSION: another one. */
static size_t version(void) {
  const char *number = getenv("FAKE_CUBLASLT_VERSION");
  return number != NULL ? (size_t)atoi(number) : 130000;
}

static cublasStatus_t operation_create(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return *out = (cublasLtMatmulDesc_t)(void *)ALLOCATE(Operation), CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t operation_destroy(cublasLtMatmulDesc_t operation) { return free(operation), CUBLAS_STATUS_SUCCESS; }
static cublasStatus_t operation_set(cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t name, const void *value, size_t size) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return FILL(OP(to)->turn_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return FILL(OP(to)->turn_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return FILL(OP(to)->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return FILL(OP(to)->bias);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld) {
  if (ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE; /* columns would overlap */
  Layout *layout = ALLOCATE(Layout);
  *layout = (Layout){type, (int64_t)rows, (int64_t)cols, ld};
  return *out = (cublasLtMatrixLayout_t)(void *)layout, CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout) { return free(layout), CUBLAS_STATUS_SUCCESS; }

static cublasStatus_t preference_create(cublasLtMatmulPreference_t *out) {
  return *out = (cublasLtMatmulPreference_t)(void *)ALLOCATE(Preference), CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t preference) { return free(preference), CUBLAS_STATUS_SUCCESS; }
static cublasStatus_t preference_set(cublasLtMatmulPreference_t to, cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                     size_t size) {
  Preference *preference = (Preference *)(void *)to;
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return FILL(preference->workspace_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return FILL(preference->reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return FILL(preference->align_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return FILL(preference->align_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return FILL(preference->align_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return FILL(preference->align_d);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

/* Sizes of C = op(A) op(B), which must fit each other. */
static bool sizes(const Operation *op, const Layout *a, const Layout *b, const Layout *c, Chosen *out) {
  out->m = op->turn_a ? a->cols : a->rows, out->k = op->turn_a ? a->rows : a->cols;
  out->n = op->turn_b ? b->rows : b->cols;
  return (op->turn_b ? b->cols : b->rows) == out->k && c->rows == out->m && c->cols == out->n && a->type == b->type;
}

/* FAKE_CHOICES: a file for the number of algorithms chosen. */
static uint32_t note_choice(void) {
  static uint32_t choices = 0;
  const char *path = getenv("FAKE_CHOICES");
  FILE *file = path != NULL ? fopen(path, "w") : NULL;
  choices++;
  if (file != NULL) fprintf(file, "%u\n", choices), fclose(file);
  return choices;
}

/* FAKE_ALGORITHM: the number of all of them; "own": another one in every process. */
static uint32_t algorithm_number(void) {
  const char *number = getenv("FAKE_ALGORITHM");
  if (number == NULL) return 7;
  return strcmp(number, "own") == 0 ? (uint32_t)getpid() : (uint32_t)atoi(number);
}

/* How long a candidate takes, in milliseconds; negative: it cannot be launched. Returns how many there are. */
static uint32_t candidates(float ms[MOST_CANDIDATES]) {
  const char *at = getenv("FAKE_CANDIDATES");
  uint32_t count = 0;
  for (; at != NULL && *at != '\0' && count < MOST_CANDIDATES; at += strcspn(at, ","), at += *at == ',')
    ms[count++] = *at == 'x' ? -1 : strtof(at, NULL);
  if (count == 0) ms[count++] = 0;
  return count;
}

/* What the candidate takes now. */
static double spent(uint32_t candidate) {
  static uint32_t last, row;
  const char *at = getenv("FAKE_CANDIDATES");
  row = candidate == last ? row + 1 : 1, last = candidate;
  for (uint32_t i = 0; i < candidate; i++) at += strcspn(at, ","), at += *at == ',';
  char *end;
  double ms = strtod(at, &end);
  return row > 5 && *end == '~' ? strtod(end + 1, NULL) : ms;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
                                cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
                                int *found) {
  const Preference *p = (const Preference *)(void *)preference;
  Chosen chosen = {.id = algorithm_number()};
  bool f32_sums = LAYOUT(c)->type == CUDA_R_32F || p->reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* others sum parts that are rounded */
  if (handle == NULL || wanted < 1 || c != d || !f32_sums || p->workspace_bytes == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!sizes(OP(op), LAYOUT(a), LAYOUT(b), LAYOUT(c), &chosen)) return CUBLAS_STATUS_INVALID_VALUE;
  chosen.align_a = p->align_a, chosen.align_b = p->align_b, chosen.align_c = p->align_c < p->align_d ? p->align_c : p->align_d;
  float ms[MOST_CANDIDATES];
  uint32_t count = candidates(ms);
  for (*found = 0; *found < (int)count && *found < wanted; ++*found) {
    chosen.tile = (uint32_t)*found;
    memset(&results[*found], 0, sizeof results[*found]);
    memcpy(results[*found].algo.data, &chosen, sizeof chosen);
  }
  note_choice();
  return CUBLAS_STATUS_SUCCESS;
}

static const size_t attribute_bytes[ATTRIBUTES] = {4, 4, 4, 4, 4, 4, 4, 2, 2};

static cublasStatus_t config_get(const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t name, void *to,
                                 size_t size, size_t *written) {
  Chosen chosen;
  memcpy(&chosen, algorithm->data, sizeof chosen);
  if ((size_t)name >= ATTRIBUTES || size != attribute_bytes[name]) return CUBLAS_STATUS_INVALID_VALUE;
  memset(to, 0, size);
  if (name == CUBLASLT_ALGO_CONFIG_ID) memcpy(to, &chosen.id, sizeof chosen.id);
  if (name == CUBLASLT_ALGO_CONFIG_TILE_ID) memcpy(to, &chosen.tile, sizeof chosen.tile);
  return *written = size, CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t config_set(cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t name, const void *value, size_t size) {
  Chosen chosen;
  if ((size_t)name >= ATTRIBUTES || size != attribute_bytes[name] || name == CUBLASLT_ALGO_CONFIG_ID) return CUBLAS_STATUS_INVALID_VALUE;
  if (name != CUBLASLT_ALGO_CONFIG_TILE_ID) return CUBLAS_STATUS_NOT_SUPPORTED;
  memcpy(&chosen, algorithm->data, sizeof chosen);
  memcpy(&chosen.tile, value, sizeof chosen.tile);
  memcpy(algorithm->data, &chosen, sizeof chosen);
  return CUBLAS_STATUS_SUCCESS;
}

/* By its number, with the tile that is not among those offered, so that who forgets to set it has none. */
static cublasStatus_t algorithm_init(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                     cudaDataType_t c, cudaDataType_t d, int id, cublasLtMatmulAlgo_t *out) {
  Chosen chosen = {.align_a = 1, .align_b = 1, .align_c = 1, .id = (uint32_t)id, .tile = MOST_CANDIDATES};
  if (handle == NULL || compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F || a != b || c != d) return CUBLAS_STATUS_INVALID_VALUE;
  if (chosen.id != algorithm_number()) return CUBLAS_STATUS_NOT_SUPPORTED;
  memset(out, 0, sizeof *out);
  memcpy(out->data, &chosen, sizeof chosen);
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t algorithm_check(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
                                      cublasLtMatmulHeuristicResult_t *result) {
  Chosen chosen, now;
  float ms[MOST_CANDIDATES];
  memcpy(&chosen, algorithm->data, sizeof chosen);
  if (handle == NULL || c != d || !sizes(OP(op), LAYOUT(a), LAYOUT(b), LAYOUT(c), &now)) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = 0;
  return chosen.tile < candidates(ms) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* --- products ------------------------------------------------------------------------------------------------------ */

static int type_of(cudaDataType_t type) { return type == CUDA_R_32F ? CUDA_F32 : type == CUDA_R_16BF ? CUDA_BF16 : CUDA_F16; }

static double element(const Layout *layout, const void *from, bool turn, int64_t row, int64_t col) {
  return (double)element_get(type_of(layout->type), from, turn ? col + row * layout->ld : row + col * layout->ld);
}

/* rows x cols of op(X), by rows. */
static double *gathered(const Layout *layout, const void *from, bool turn, int64_t rows, int64_t cols) {
  double *out = (double *)malloc(sizeof *out * (size_t)(rows * cols + 1));
  for (int64_t row = 0; row < rows; row++)
    for (int64_t col = 0; col < cols; col++) out[row * cols + col] = element(layout, from, turn, row, col);
  return out;
}

/* Algorithms beyond the first add in f32, from the other end: their bits are others. */
static double row_times_column(const double *a, const double *b, int64_t k, uint32_t tile) {
  double sum = 0;
  float rounded = 0;
  for (int64_t i = 0; i < k; i++) sum += a[i] * b[i], rounded += (float)(a[k - 1 - i] * b[k - 1 - i]);
  return tile > 0 ? (double)rounded : sum;
}

/* Neither is fit for a race. */
static void insist(bool fit, const char *what) {
  if (fit || getenv("FAKE_CANDIDATES") == NULL) return;
  fprintf(stderr, "fake cublaslt: %s\n", what);
  abort();
}

static bool any(const double *x, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (x[i] != 0) return true;
  return false;
}

static void multiply(void *arg) {
  Job job;
  Chosen s;
  memcpy(&job, arg, sizeof job);
  sizes(&job.op, &job.a, &job.b, &job.c, &s);
  double *a = gathered(&job.a, job.from_a, job.op.turn_a, s.m, s.k);
  double *b = gathered(&job.b, job.from_b, !job.op.turn_b, s.n, s.k); /* op(B)^T */
  insist(any(a, s.m * s.k) && any(b, s.n * s.k), "a factor is zero");
  for (int64_t col = 0; col < s.n; col++)
    for (int64_t row = 0; row < s.m; row++) {
      double sum = row_times_column(a + row * s.k, b + col * s.k, s.k, job.tile) * (double)job.alpha;
      if (job.beta != 0) sum += (double)job.beta * element(&job.c, job.to, false, row, col);
      if (job.op.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += (double)element_get(type_of(job.c.type), job.op.bias, row);
      element_set(type_of(job.c.type), job.to, row + col * job.c.ld, (float)sum);
      insist(isfinite(element(&job.c, job.to, false, row, col)), "a result is not finite");
    }
  free(a), free(b);
  if (getenv("FAKE_CANDIDATES") != NULL) fake_cuda_spend(spent(job.tile));
}

static bool aligned(const void *p, uint32_t bytes) { return (uintptr_t)p % bytes == 0; }

/* FAKE_PRODUCTS=N: launches fail with this status, as they do after an error of an earlier kernel. */
static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha, const void *a,
                             cublasLtMatrixLayout_t layout_a, const void *b, cublasLtMatrixLayout_t layout_b, const void *beta,
                             const void *c, cublasLtMatrixLayout_t layout_c, void *d, cublasLtMatrixLayout_t layout_d,
                             const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes, cudaStream_t stream) {
  Job job = {.op = *OP(op), .a = *LAYOUT(layout_a), .b = *LAYOUT(layout_b), .c = *LAYOUT(layout_c), .from_a = a, .from_b = b, .to = d};
  Chosen chosen, now = {0};
  if (getenv("FAKE_PRODUCTS") != NULL) return (cublasStatus_t)atoi(getenv("FAKE_PRODUCTS"));
  memcpy(&chosen, algorithm->data, sizeof chosen);
  memcpy(&job.alpha, alpha, sizeof job.alpha);
  memcpy(&job.beta, beta, sizeof job.beta);
  bool fits = sizes(&job.op, &job.a, &job.b, &job.c, &now) && (chosen.m == 0 || (now.m == chosen.m && now.n == chosen.n && now.k == chosen.k));
  float ms[MOST_CANDIDATES];
  if (chosen.tile >= candidates(ms) || ms[chosen.tile] < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  job.tile = chosen.tile;
  if (handle == NULL || c != d || layout_c != layout_d || !fits || workspace == NULL || workspace_bytes == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!aligned(a, chosen.align_a) || !aligned(b, chosen.align_b) || !aligned(d, chosen.align_c)) return CUBLAS_STATUS_INVALID_VALUE;
  if (job.op.epilogue == CUBLASLT_EPILOGUE_BIAS && job.op.bias == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  fake_cuda_enqueue(stream, multiply, &job, sizeof job);
  return CUBLAS_STATUS_SUCCESS;
}

void fake_cublaslt(CudaLibs *libs) {
  libs->cublasLtCreate = create, libs->cublasLtDestroy = destroy, libs->cublasLtGetVersion = version;
  libs->cublasLtMatmulDescCreate = operation_create, libs->cublasLtMatmulDescDestroy = operation_destroy;
  libs->cublasLtMatmulDescSetAttribute = operation_set;
  libs->cublasLtMatrixLayoutCreate = layout_create, libs->cublasLtMatrixLayoutDestroy = layout_destroy;
  libs->cublasLtMatmulPreferenceCreate = preference_create, libs->cublasLtMatmulPreferenceDestroy = preference_destroy;
  libs->cublasLtMatmulPreferenceSetAttribute = preference_set;
  libs->cublasLtMatmulAlgoGetHeuristic = heuristic, libs->cublasLtMatmulAlgoConfigGetAttribute = config_get;
  libs->cublasLtMatmulAlgoConfigSetAttribute = config_set;
  libs->cublasLtMatmulAlgoInit = algorithm_init, libs->cublasLtMatmulAlgoCheck = algorithm_check;
  libs->cublasLtMatmul = matmul;
}
