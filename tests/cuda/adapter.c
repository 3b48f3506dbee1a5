/* Owns: moving operands between the scenarios' f32 matrices and the kernels' element type, call by call. */
#include "tests/cuda/adapter.h"

#include "tests/cuda/host_product.h"
#include "tests/kernels/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double coarse_value_next(uint64_t *state) {
  double x = value_next(state);
  return floor(x * 128) / 128;
}

static size_t width_of(int type) { return type == CUDA_F32 ? 4 : 2; }

/* --- operands of one call ----------------------------------------------------------------------------------------- */

enum { MOST_OPERANDS = CUDA_MAX_PEERS + 1 /* of tree_sum */ };

typedef struct Operand {
  void *device;
  void *host; /* NULL: not fetched */
  size_t bytes;
  int64_t n; /* floats to decode, 0: raw bytes */
  int type;
} Operand;

typedef struct Call {
  int type;
  int count;
  Operand operand[MOST_OPERANDS];
} Call;

static Call call_of(const KernelContext *k) { return (Call){.type = ((const Adapter *)k)->type}; }

static void *raw(Call *c, const void *data, size_t bytes, int fetched) {
  Operand *o = &c->operand[c->count++];
  *o = (Operand){.device = device_get(bytes), .host = fetched ? (void *)(uintptr_t)data : NULL, .bytes = bytes};
  device_put(o->device, data, bytes);
  return o->device;
}

/* Rows of `ld` but for the last, whose padding may not exist. The device copy has the scenario's misalignment. */
static CudaTensor typed(Call *c, int type, const float *x, int64_t rows, int64_t cols, int64_t ld, int add, int fetched) {
  if (x == NULL) return (CudaTensor){.type = type};
  int64_t n = rows == 0 ? 0 : (rows - 1) * ld + cols;
  size_t bytes = (size_t)n * width_of(type), shift = (uintptr_t)x % 64 / sizeof *x * width_of(type);
  void *data = calloc(1, bytes + 1);
  for (int64_t i = 0; i < n; i++) element_set(type, data, i, x[i]);
  Operand *o = &c->operand[c->count++];
  *o = (Operand){device_get(bytes + shift), fetched ? (void *)(uintptr_t)x : NULL, bytes, n, type};
  device_put((char *)o->device + shift, data, bytes);
  o->device = (char *)o->device + shift;
  free(data);
  return (CudaTensor){o->device, ld, type, add};
}

static CudaTensor in(Call *c, const float *x, int64_t rows, int64_t cols, int64_t ld) {
  return typed(c, c->type, x, rows, cols, ld, 0, 0);
}
static CudaTensor out(Call *c, float *x, int64_t rows, int64_t cols, int64_t ld, int add) {
  return typed(c, c->type, x, rows, cols, ld, add, 1);
}
static float *f32_out(Call *c, float *x, int64_t n) { return typed(c, CUDA_F32, x, 1, n, n, 0, 1).x; }
static float *f32_in(Call *c, const float *x, int64_t n) { return typed(c, CUDA_F32, x, 1, n, n, 0, 0).x; }

static void finish(Call *c, int failed, const char *kernel) {
  if (failed) fail_msg("%s: error %d from the launch", kernel, failed);
  for (int i = 0; i < c->count; i++) {
    Operand *o = &c->operand[i];
    if (o->host != NULL && o->n == 0) device_fetch(o->host, o->device, o->bytes);
    if (o->host != NULL && o->n > 0) {
      void *data = malloc(o->bytes);
      device_fetch(data, o->device, o->bytes);
      for (int64_t j = 0; j < o->n; j++) ((float *)o->host)[j] = element_get(o->type, data, j);
      free(data);
    }
  }
  for (int i = 0; i < c->count; i++) device_free(c->operand[i].device);
}

static void *scratch(Call *c, uint64_t bytes) { /* NaN: what was never written shows */
  void *nan = malloc(bytes + 1), *p = raw(c, memset(nan, 0xff, bytes), bytes, 0);
  free(nan);
  return p;
}

#define RUN(kernel, ...) finish(&c, kernel(device_stream(), __VA_ARGS__), #kernel)

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define real   float
#define stored float
#define KERNEL(name, arguments) static void name arguments;
#include "kernels/kernels.def"
#undef KERNEL

static void embedding_fwd(const KernelContext *k, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens,
                          const float *table, float *y, int64_t ldy) {
  Call c = call_of(k);
  const int32_t *ids = raw(&c, tokens, (size_t)rows * sizeof *tokens, 0);
  RUN(cuda_embedding_fwd, rows, vocab, d, ids, in(&c, table, vocab, d, d), out(&c, y, rows, d, ldy, 0));
}

static void embedding_bwd(const KernelContext *k, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens,
                          const float *dy, int64_t lddy, void *dtable, int add) {
  Call c = call_of(k);
  const int32_t *ids = raw(&c, tokens, (size_t)rows * sizeof *tokens, 0);
  CudaTensor dt = typed(&c, CUDA_F32, dtable, vocab, d, d, add, 1);
  RUN(cuda_embedding_bwd, rows, vocab, d, ids, in(&c, dy, rows, d, lddy), dt);
}

static void copy(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, void *y, int64_t ldy,
                 int add) {
  Call c = call_of(k);
  RUN(cuda_copy, rows, cols, in(&c, x, rows, cols, ldx), out(&c, y, rows, cols, ldy, add));
}

/* So few outputs that linear layers leave them to kernels of our own. */
static void linear_fwd(const KernelContext *k, int64_t rows, int64_t width, int64_t width_in, const float *x, int64_t ldx,
                       const float *w, const float *bias, float *y, int64_t ldy) {
  Call c = call_of(k);
  CudaTensor tx = in(&c, x, rows, width_in, ldx), tw = in(&c, w, width, width_in, width_in);
  CudaTensor b = in(&c, bias, 1, width, width), ty = out(&c, y, rows, width, ldy, 0);
  finish(&c, width < LINEAR_ALIGN ? cuda_narrow_fwd(device_stream(), rows, width, width_in, tx, tw, b, ty)
                                  : device_product(&(CudaProduct){rows, width, width_in, 0, 1, tx, tw, ty, b}), "linear_fwd");
}

static void linear_bwd_x(const KernelContext *k, int64_t rows, int64_t width, int64_t width_in, const float *dy,
                         int64_t lddy, const float *w, float *dx, int64_t lddx, int add) {
  Call c = call_of(k);
  CudaTensor tdy = in(&c, dy, rows, width, lddy), tw = in(&c, w, width, width_in, width_in);
  CudaTensor tdx = out(&c, dx, rows, width_in, lddx, add);
  finish(&c, width < LINEAR_ALIGN ? cuda_narrow_bwd_x(device_stream(), rows, width, width_in, tdy, tw, tdx)
                                  : device_product(&(CudaProduct){rows, width_in, width, 0, 0, tdy, tw, tdx, {0}}), "linear_bwd_x");
}

static void linear_bwd_w(const KernelContext *k, int64_t rows, int64_t width, int64_t width_in, const float *x, int64_t ldx,
                         const float *dy, int64_t lddy, void *dw, void *dbias, int add_w, int add_b) {
  Call c = call_of(k);
  CudaTensor tx = in(&c, x, rows, width_in, ldx), tdy = in(&c, dy, rows, width, lddy);
  CudaTensor tdw = typed(&c, CUDA_F32, dw, width, width_in, width_in, add_w, 1);
  int failed = width < LINEAR_ALIGN
                   ? cuda_narrow_bwd_w(device_stream(), rows, width, width_in, tx, tdy, tdw, scratch(&c, cuda_column_scratch(rows, width_in)))
                   : device_product(&(CudaProduct){width, width_in, rows, 1, 0, tdy, tx, tdw, {0}});
  if (!failed && dbias != NULL)
    failed = cuda_column_sums(device_stream(), rows, width, tdy, (CudaTensor){0}, typed(&c, CUDA_F32, dbias, 1, width, width, add_b, 1),
                              scratch(&c, cuda_column_scratch(rows, width)));
  finish(&c, failed, "linear_bwd_w");
}

static void layernorm_fwd(const KernelContext *k, int64_t rows, int64_t d, double eps, const float *x, int64_t ldx,
                          const float *w, const float *bias, float *y, int64_t ldy, float *mean, float *rstd) {
  Call c = call_of(k);
  float *m = mean != NULL ? f32_out(&c, mean, rows) : NULL, *r = f32_out(&c, rstd, rows);
  RUN(cuda_norm_fwd, rows, d, eps, in(&c, x, rows, d, ldx), in(&c, w, 1, d, d), in(&c, bias, 1, d, d),
      out(&c, y, rows, d, ldy, 0), m, r);
}

static void layernorm_bwd(const KernelContext *k, int64_t rows, int64_t d, const float *x, int64_t ldx, const float *w,
                          const float *mean, const float *rstd, const float *dy, int64_t lddy, float *dx, int64_t lddx,
                          void *dw, void *dbias, int add_x, int add_w, int add_b) {
  Call c = call_of(k);
  const float *m = mean != NULL ? f32_in(&c, mean, rows) : NULL, *r = f32_in(&c, rstd, rows);
  CudaTensor tdw = typed(&c, CUDA_F32, dw, 1, d, d, add_w, 1), tdb = typed(&c, CUDA_F32, dbias, 1, d, d, add_b, 1);
  void *space = scratch(&c, cuda_column_scratch(rows, d));
  RUN(cuda_norm_bwd, rows, d, in(&c, x, rows, d, ldx), in(&c, w, 1, d, d), m, r, in(&c, dy, rows, d, lddy),
      out(&c, dx, rows, d, lddx, add_x), tdw, tdb, space);
}

static void rmsnorm_fwd(const KernelContext *k, int64_t rows, int64_t d, double eps, const float *x, int64_t ldx,
                        const float *w, float *y, int64_t ldy, float *rstd) {
  layernorm_fwd(k, rows, d, eps, x, ldx, w, NULL, y, ldy, NULL, rstd);
}

static void rmsnorm_bwd(const KernelContext *k, int64_t rows, int64_t d, const float *x, int64_t ldx, const float *w,
                        const float *rstd, const float *dy, int64_t lddy, float *dx, int64_t lddx, void *dw, int add_x,
                        int add_w) {
  layernorm_bwd(k, rows, d, x, ldx, w, NULL, rstd, dy, lddy, dx, lddx, dw, NULL, add_x, add_w, 0);
}

static void rope(const KernelContext *k, const RopeShape *s, int backward, const float *x, int64_t ldx, float *y,
                 int64_t ldy, int add) {
  Call c = call_of(k);
  int64_t rows = s->batch * s->seq, cols = s->heads * s->head_dim;
  RUN(cuda_rope, s, backward, in(&c, x, rows, cols, ldx), out(&c, y, rows, cols, ldy, add));
}

static void attention_fwd(const KernelContext *k, const AttentionShape *s, const float *q, int64_t ldq, const float *key,
                          int64_t ldk, const float *v, int64_t ldv, float *o, int64_t ldo, float *lse) {
  Call c = call_of(k);
  int64_t rows = s->batch * s->tq, keys = s->batch * s->tk, qd = s->heads * s->head_dim, kd = s->kv_heads * s->head_dim;
  float *statistics = f32_out(&c, lse, s->batch * s->heads * s->tq);
  RUN(cuda_attention_fwd, s, in(&c, q, rows, qd, ldq), in(&c, key, keys, kd, ldk), in(&c, v, keys, kd, ldv),
      out(&c, o, rows, qd, ldo, 0), statistics, scratch(&c, cuda_attention_fwd_scratch(s)));
}

static void attention_bwd(const KernelContext *k, const AttentionShape *s, const float *q, int64_t ldq, const float *key,
                          int64_t ldk, const float *v, int64_t ldv, const float *o, int64_t ldo, const float *lse,
                          const float *d_o, int64_t lddo, float *dq, int64_t lddq, int add_q, float *dk, int64_t lddk,
                          int add_k, float *dv, int64_t lddv, int add_v) {
  Call c = call_of(k);
  int64_t rows = s->batch * s->tq, keys = s->batch * s->tk, qd = s->heads * s->head_dim, kd = s->kv_heads * s->head_dim;
  const float *statistics = f32_in(&c, lse, s->batch * s->heads * s->tq);
  void *space = scratch(&c, cuda_attention_bwd_scratch(s));
  RUN(cuda_attention_bwd, s, in(&c, q, rows, qd, ldq), in(&c, key, keys, kd, ldk), in(&c, v, keys, kd, ldv),
      in(&c, o, rows, qd, ldo), statistics, in(&c, d_o, rows, qd, lddo), out(&c, dq, rows, qd, lddq, add_q),
      out(&c, dk, keys, kd, lddk, add_k), out(&c, dv, keys, kd, lddv, add_v), space);
}

static void forward(const KernelContext *k, CudaActivation kind, int64_t rows, int64_t cols, const float *x, int64_t ldx,
                    float *y, int64_t ldy) {
  Call c = call_of(k);
  RUN(cuda_activation_fwd, kind, rows, cols, in(&c, x, rows, cols, ldx), out(&c, y, rows, cols, ldy, 0));
}

static void backward(const KernelContext *k, CudaActivation kind, int64_t rows, int64_t cols, const float *x, int64_t ldx,
                     const float *dy, int64_t lddy, float *dx, int64_t lddx, int add) {
  Call c = call_of(k);
  RUN(cuda_activation_bwd, kind, rows, cols, in(&c, x, rows, cols, ldx), in(&c, dy, rows, cols, lddy),
      out(&c, dx, rows, cols, lddx, add));
}

static void gelu_fwd(const KernelContext *k, int64_t rows, int64_t cols, int erf_form, const float *x, int64_t ldx, float *y,
                     int64_t ldy) {
  forward(k, erf_form ? CUDA_GELU_ERF : CUDA_GELU_TANH, rows, cols, x, ldx, y, ldy);
}
static void gelu_bwd(const KernelContext *k, int64_t rows, int64_t cols, int erf_form, const float *x, int64_t ldx,
                     const float *dy, int64_t lddy, float *dx, int64_t lddx, int add) {
  backward(k, erf_form ? CUDA_GELU_ERF : CUDA_GELU_TANH, rows, cols, x, ldx, dy, lddy, dx, lddx, add);
}
static void relu_fwd(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, float *y,
                     int64_t ldy) {
  forward(k, CUDA_RELU, rows, cols, x, ldx, y, ldy);
}
static void relu_bwd(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, const float *dy,
                     int64_t lddy, float *dx, int64_t lddx, int add) {
  backward(k, CUDA_RELU, rows, cols, x, ldx, dy, lddy, dx, lddx, add);
}
static void silu_fwd(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, float *y,
                     int64_t ldy) {
  forward(k, CUDA_SILU, rows, cols, x, ldx, y, ldy);
}
static void silu_bwd(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, const float *dy,
                     int64_t lddy, float *dx, int64_t lddx, int add) {
  backward(k, CUDA_SILU, rows, cols, x, ldx, dy, lddy, dx, lddx, add);
}

static void silu_mul_fwd(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, const float *u,
                         int64_t ldu, float *y, int64_t ldy) {
  Call c = call_of(k);
  RUN(cuda_silu_mul_fwd, rows, cols, in(&c, x, rows, cols, ldx), in(&c, u, rows, cols, ldu), out(&c, y, rows, cols, ldy, 0));
}
static void silu_mul_bwd(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, const float *u,
                         int64_t ldu, const float *dy, int64_t lddy, float *dx, int64_t lddx, int add_x, float *du,
                         int64_t lddu, int add_u) {
  Call c = call_of(k);
  RUN(cuda_silu_mul_bwd, rows, cols, in(&c, x, rows, cols, ldx), in(&c, u, rows, cols, ldu), in(&c, dy, rows, cols, lddy),
      out(&c, dx, rows, cols, lddx, add_x), out(&c, du, rows, cols, lddu, add_u));
}

static void mul(const KernelContext *k, int64_t rows, int64_t cols, const float *a, int64_t lda, const float *b,
                int64_t ldb, float *y, int64_t ldy, int add) {
  Call c = call_of(k);
  RUN(cuda_mul, rows, cols, in(&c, a, rows, cols, lda), in(&c, b, rows, cols, ldb), out(&c, y, rows, cols, ldy, add));
}

static void scale(const KernelContext *k, int64_t rows, int64_t cols, double by, const float *x, int64_t ldx, float *y,
                  int64_t ldy, int add) {
  Call c = call_of(k);
  RUN(cuda_scale, rows, cols, by, in(&c, x, rows, cols, ldx), out(&c, y, rows, cols, ldy, add));
}

static void add_fwd(const KernelContext *k, int64_t rows, int64_t cols, int64_t brows, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float *y, int64_t ldy) {
  Call c = call_of(k);
  RUN(cuda_add, rows, cols, brows, in(&c, a, rows, cols, lda), in(&c, b, brows, cols, ldb),
      out(&c, y, rows, cols, ldy, 0));
}

static void broadcast_bwd(const KernelContext *k, int64_t rows, int64_t cols, int64_t brows, const float *dy,
                          int64_t lddy, void *db, int64_t lddb, int add) {
  Call c = call_of(k);
  void *space = brows == 1 ? scratch(&c, cuda_column_scratch(rows, cols)) : NULL;
  RUN(cuda_broadcast_bwd, rows, cols, brows, in(&c, dy, rows, cols, lddy), out(&c, db, brows, cols, lddb, add), space);
}

static void dropout(const KernelContext *k, const DropoutSite *site, int64_t rows, int64_t cols, const float *x,
                    int64_t ldx, float *y, int64_t ldy, int add) {
  Call c = call_of(k);
  CudaStep step = {.step = site->step, .first_sample = site->first_sample - 5 * 3, .micro_batch = 2};
  CudaDropout d = {site->p, site->seed, site->site, site->rows_per_sample, .ranks = 2, .rank = 1, .micro_batch = 3};
  CudaStep *at = raw(&c, &step, sizeof step, 0);
  RUN(cuda_dropout, at, &d, rows, cols, in(&c, x, rows, cols, ldx), out(&c, y, rows, cols, ldy, add));
}

static void cross_entropy(const KernelContext *k, int64_t rows, int64_t vocab, int64_t ignore, double count,
                          float *logits, int64_t ld, const int32_t *targets, double *loss, float *row_loss) {
  Call c = call_of(k);
  const int32_t *ids = raw(&c, targets, (size_t)rows * sizeof *targets, 0);
  const double *n = raw(&c, &count, sizeof count, 0);
  double *total = raw(&c, loss, sizeof *loss, 1);
  float *losses = f32_out(&c, row_loss, rows);
  int failed = cuda_cross_entropy(device_stream(), rows, vocab, ignore, n, out(&c, logits, rows, vocab, ld, 0), ids, losses);
  if (!failed) failed = cuda_sum_loss(device_stream(), rows, losses, total);
  finish(&c, failed, "cross_entropy");
}

/* As the runtime composes it. */
static void linear_cross_entropy(const KernelContext *k, int64_t rows, int64_t vocab, int64_t width, int64_t ignore,
                                 int64_t chunk, double count, const float *x, int64_t ldx, const float *w,
                                 const float *bias, const int32_t *targets, double *loss, float *dx, int64_t lddx,
                                 int add_x, void *dw, int add_w, void *dbias, int add_b, float *row_loss,
                                 float *logits, int64_t ld) {
  for (int64_t first = 0; first < rows; first += chunk) {
    int64_t part = first + chunk < rows ? chunk : rows - first;
    linear_fwd(k, part, vocab, width, x + first * ldx, ldx, w, bias, logits, ld);
    cross_entropy(k, part, vocab, ignore, count, logits, ld, targets + first, loss, row_loss + first);
    linear_bwd_x(k, part, vocab, width, logits, ld, w, dx + first * lddx, lddx, add_x);
    linear_bwd_w(k, part, vocab, width, x + first * ldx, ldx, logits, ld, dw, dbias, add_w || first, add_b || first);
  }
}

static void mse(const KernelContext *k, int64_t rows, int64_t cols, double count, const float *x, int64_t ldx,
                const float *y, int64_t ldy, double *loss, float *dx, int64_t lddx, int add, float *row_loss) {
  Call c = call_of(k);
  const double *n = raw(&c, &count, sizeof count, 0);
  double *total = raw(&c, loss, sizeof *loss, 1);
  float *losses = f32_out(&c, row_loss, rows);
  int failed = cuda_mse(device_stream(), rows, cols, n, in(&c, x, rows, cols, ldx), in(&c, y, rows, cols, ldy),
                        out(&c, dx, rows, cols, lddx, add), losses);
  if (!failed) failed = cuda_sum_loss(device_stream(), rows, losses, total);
  finish(&c, failed, "mse");
}

/* One range, of the whole. */
static CudaRanges whole(Call *c, int64_t n) {
  CudaRange range = {.count = n};
  return (CudaRanges){raw(c, &range, sizeof range, 0), 1};
}

static void sum_squares(const KernelContext *k, int64_t n, const void *g, int64_t *acc) {
  Call c = call_of(k);
  int64_t *to = raw(&c, acc, EXACT_WORDS * sizeof *acc, 1);
  CudaRanges ranges = whole(&c, n);
  RUN(cuda_sum_squares, ranges, n, in(&c, g, 1, n, n), to);
}

/* What an optimizer's kernel is handed: `rates` as its step, parameters as they are stored. */
static CudaUpdate update_of(Call *c, const KernelContext *k, int64_t n, CudaStep step, double scale, double decay,
                            const void *g, void *w) {
  const WeightStore *store = k->weights;
  float by = (float)scale;
  CudaRange range = {0, n, decay, store != NULL ? store->first : 0, store != NULL ? store->name_hash : 0};
  CudaUpdate u = {.shard = n, .g = in(c, g, 1, n, n)};
  if (store != NULL) {
    step.step = store->step;
    u.w = (CudaTensor){raw(c, w, (size_t)n * sizeof(Half), 1), n, CUDA_BF16, 0};
    u.rounding = (CudaRounding){store->stochastic, store->seed};
  } else {
    u.w = typed(c, CUDA_F32, w, 1, n, n, 0, 1);
  }
  u.ranges = (CudaRanges){raw(c, &range, sizeof range, 0), 1};
  u.step = raw(c, &step, sizeof step, 0);
  u.scale = raw(c, &by, sizeof by, 0);
  return u;
}

static void adamw(const KernelContext *k, int64_t n, const AdamwRates *rates, const void *g, void *w, float *m, float *v) {
  Call c = call_of(k);
  CudaStep step = {.lr = rates->lr, .bias1 = rates->bias1, .bias2 = rates->bias2};
  CudaUpdate u = update_of(&c, k, n, step, rates->grad_scale, rates->decay, g, w);
  RUN(cuda_adamw, &u, rates->beta1, rates->beta2, rates->eps, f32_out(&c, m, n), f32_out(&c, v, n));
}

/* GPUs do Adafactor a unit at a time; optimizers.sh compares it with the CPU's. */
static void adafactor_sums(const KernelContext *k, int64_t first, int64_t n, int64_t cols, double grid, const void *g,
                           int64_t *row_sums, int64_t *col_sums) {
  (void)k, (void)first, (void)n, (void)cols, (void)grid, (void)g, (void)row_sums, (void)col_sums;
  abort();
}

static void adafactor_average(int64_t n, double weight, double factor, const int64_t *sums, float *v) {
  (void)n, (void)weight, (void)factor, (void)sums, (void)v;
  abort();
}

static void adafactor_norm(const KernelContext *k, const AdafactorRates *rates, int64_t first, int64_t n, int64_t cols,
                           const float *row, const float *col, const void *g, int64_t *acc) {
  (void)k, (void)rates, (void)first, (void)n, (void)cols, (void)row, (void)col, (void)g, (void)acc;
  abort();
}

static void adafactor(const KernelContext *k, const AdafactorRates *rates, int64_t first, int64_t n, int64_t cols,
                      const float *row, const float *col, const void *g, void *w) {
  (void)k, (void)rates, (void)first, (void)n, (void)cols, (void)row, (void)col, (void)g, (void)w;
  abort();
}

static void lion(const KernelContext *k, int64_t n, const LionRates *rates, const void *g, void *w, float *m) {
  Call c = call_of(k);
  CudaUpdate u = update_of(&c, k, n, (CudaStep){.lr = rates->lr, .bias1 = 1, .bias2 = 1}, rates->grad_scale, rates->decay, g, w);
  RUN(cuda_lion, &u, rates->beta1, rates->beta2, f32_out(&c, m, n));
}

static void sgd(const KernelContext *k, int64_t n, const SgdRates *rates, const void *g, void *w, float *m) {
  Call c = call_of(k);
  CudaUpdate u = update_of(&c, k, n, (CudaStep){.lr = rates->lr, .bias1 = 1, .bias2 = 1}, rates->grad_scale, rates->decay, g, w);
  RUN(cuda_sgd, &u, rates->momentum, m != NULL ? f32_out(&c, m, n) : NULL);
}

static void tree_sum(int64_t n, int32_t ranks, FloatType type, const void *const *sources, void *y, int add) {
  Call c = {.type = (int)type};
  const void *from[CUDA_MAX_PEERS];
  for (int32_t r = 0; r < ranks; r++) from[r] = in(&c, sources[r], 1, n, n).x;
  RUN(cuda_tree_sum, n, ranks, from, out(&c, y, 1, n, n, add));
}

/* GPUs have cuda_copy. */
static void narrow(const KernelContext *k, int64_t n, FloatType type, const float *x, Half *y) {
  kernels_cpu_named("portable")->narrow(k, n, type, x, y);
}

/* Initial values are drawn on the host, also for GPUs. */
static void init_fill(const KernelContext *k, const InitFill *fill, int64_t first, int64_t n, float *w) {
  KernelContext alone = {0};
  (void)k;
  kernels_cpu_named("portable")->init_fill(&alone, fill, first, n, w);
}

const KernelTable adapter_table = {
    .name = "cuda",
#define KERNEL(name, arguments) .name = name,
#include "kernels/kernels.def"
#undef KERNEL
};
