/* Owns: moving operands between the scenarios' floats and elements of 16 bits, call by call. */
#include "tests/kernels/half_adapter.h"
#include "tests/kernels/support.h"

#include <stdint.h>

/* --- operands of one call ----------------------------------------------------------------------------------------- */

enum { MOST_OUTPUTS = 4 };

typedef struct Output {
  float *to;
  const Half *from;
  int64_t n;
} Output;

typedef struct Call {
  const HalfAdapter *a;
  Output outputs[MOST_OUTPUTS];
  int count;
} Call;

/* Rows of `ld` but for the last, whose padding may not exist; as misaligned as the floats. */
static Half *in(Call *c, const float *x, int64_t rows, int64_t cols, int64_t ld) {
  if (x == NULL) return NULL;
  int64_t n = rows == 0 ? 0 : (rows - 1) * ld + cols, shift = (int64_t)((uintptr_t)x % 64 / sizeof *x);
  Half *half = (Half *)memory_get((size_t)(n + shift + 1) * sizeof *half) + shift;
  for (int64_t i = 0; i < n; i++) half[i] = half_of_float(c->a->type, x[i]);
  return half;
}

static Half *out(Call *c, float *x, int64_t rows, int64_t cols, int64_t ld) {
  if (x == NULL) return NULL;
  Half *half = in(c, x, rows, cols, ld);
  c->outputs[c->count++] = (Output){x, half, rows == 0 ? 0 : (rows - 1) * ld + cols};
  return half;
}

/* A gradient of parameters, of the type that the context says. */
static void *gradient(Call *c, void *x, int64_t rows, int64_t cols, int64_t ld) {
  return c->a->context.gradient == FLOAT_REAL ? x : out(c, x, rows, cols, ld);
}

static void finish(const Call *c) {
  for (int i = 0; i < c->count; i++) {
    const Output *o = &c->outputs[i];
    for (int64_t j = 0; j < o->n; j++) o->to[j] = float_of_half(c->a->type, o->from[j]);
  }
}

#define IN(x, rows, cols, ld)       in(&c, x, rows, cols, ld), ld
#define OUT(x, rows, cols, ld)      out(&c, x, rows, cols, ld), ld
#define VECTOR(x, n)                in(&c, x, 1, n, n)
#define GRADIENT(x, rows, cols, ld) gradient(&c, x, rows, cols, ld)
#define RUN(name, ...)                                                                                       \
  do {                                                                                                       \
    Call c = {.a = (const HalfAdapter *)k};                                                                  \
    c.a->table->name(k, __VA_ARGS__);                                                                        \
    finish(&c);                                                                                              \
  } while (0)

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define real   float
#define stored float
#define KERNEL(name, arguments) static void name arguments;
#include "kernels/kernels.def"
#undef KERNEL

static void embedding_fwd(const KernelContext *k, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens,
                          const float *table, float *y, int64_t ldy) {
  RUN(embedding_fwd, rows, vocab, d, tokens, VECTOR(table, vocab * d), OUT(y, rows, d, ldy));
}

static void embedding_bwd(const KernelContext *k, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens,
                          const float *dy, int64_t lddy, void *dtable, int add) {
  RUN(embedding_bwd, rows, vocab, d, tokens, IN(dy, rows, d, lddy), GRADIENT(dtable, vocab, d, d), add);
}

static void copy(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, void *y, int64_t ldy,
                 int add) {
  RUN(copy, rows, cols, IN(x, rows, cols, ldx), GRADIENT(y, rows, cols, ldy), ldy, add);
}

static void linear_fwd(const KernelContext *k, int64_t rows, int64_t width, int64_t width_in, const float *x, int64_t ldx,
                       const float *w, const float *bias, float *y, int64_t ldy) {
  RUN(linear_fwd, rows, width, width_in, IN(x, rows, width_in, ldx), VECTOR(w, width * width_in), VECTOR(bias, width),
      OUT(y, rows, width, ldy));
}

static void linear_bwd_x(const KernelContext *k, int64_t rows, int64_t width, int64_t width_in, const float *dy,
                         int64_t lddy, const float *w, float *dx, int64_t lddx, int add) {
  RUN(linear_bwd_x, rows, width, width_in, IN(dy, rows, width, lddy), VECTOR(w, width * width_in),
      OUT(dx, rows, width_in, lddx), add);
}

static void linear_bwd_w(const KernelContext *k, int64_t rows, int64_t width, int64_t width_in, const float *x, int64_t ldx,
                         const float *dy, int64_t lddy, void *dw, void *dbias, int add_w, int add_b) {
  RUN(linear_bwd_w, rows, width, width_in, IN(x, rows, width_in, ldx), IN(dy, rows, width, lddy),
      GRADIENT(dw, width, width_in, width_in), GRADIENT(dbias, 1, width, width), add_w, add_b);
}

static void layernorm_fwd(const KernelContext *k, int64_t rows, int64_t d, double eps, const float *x, int64_t ldx,
                          const float *w, const float *bias, float *y, int64_t ldy, float *mean, float *rstd) {
  RUN(layernorm_fwd, rows, d, eps, IN(x, rows, d, ldx), VECTOR(w, d), VECTOR(bias, d), OUT(y, rows, d, ldy), mean, rstd);
}

static void layernorm_bwd(const KernelContext *k, int64_t rows, int64_t d, const float *x, int64_t ldx, const float *w,
                          const float *mean, const float *rstd, const float *dy, int64_t lddy, float *dx, int64_t lddx,
                          void *dw, void *dbias, int add_x, int add_w, int add_b) {
  RUN(layernorm_bwd, rows, d, IN(x, rows, d, ldx), VECTOR(w, d), mean, rstd, IN(dy, rows, d, lddy),
      OUT(dx, rows, d, lddx), GRADIENT(dw, 1, d, d), GRADIENT(dbias, 1, d, d), add_x, add_w, add_b);
}

static void rmsnorm_fwd(const KernelContext *k, int64_t rows, int64_t d, double eps, const float *x, int64_t ldx,
                        const float *w, float *y, int64_t ldy, float *rstd) {
  RUN(rmsnorm_fwd, rows, d, eps, IN(x, rows, d, ldx), VECTOR(w, d), OUT(y, rows, d, ldy), rstd);
}

static void rmsnorm_bwd(const KernelContext *k, int64_t rows, int64_t d, const float *x, int64_t ldx, const float *w,
                        const float *rstd, const float *dy, int64_t lddy, float *dx, int64_t lddx, void *dw, int add_x,
                        int add_w) {
  RUN(rmsnorm_bwd, rows, d, IN(x, rows, d, ldx), VECTOR(w, d), rstd, IN(dy, rows, d, lddy), OUT(dx, rows, d, lddx),
      GRADIENT(dw, 1, d, d), add_x, add_w);
}

static void rope(const KernelContext *k, const RopeShape *s, int backward, const float *x, int64_t ldx, float *y,
                 int64_t ldy, int add) {
  int64_t rows = s->batch * s->seq, cols = s->heads * s->head_dim;
  RUN(rope, s, backward, IN(x, rows, cols, ldx), OUT(y, rows, cols, ldy), add);
}

static void attention_fwd(const KernelContext *k, const AttentionShape *s, const float *q, int64_t ldq, const float *key,
                          int64_t ldk, const float *v, int64_t ldv, float *o, int64_t ldo, float *lse) {
  int64_t rows = s->batch * s->tq, keys = s->batch * s->tk, qd = s->heads * s->head_dim, kd = s->kv_heads * s->head_dim;
  RUN(attention_fwd, s, IN(q, rows, qd, ldq), IN(key, keys, kd, ldk), IN(v, keys, kd, ldv), OUT(o, rows, qd, ldo), lse);
}

static void attention_bwd(const KernelContext *k, const AttentionShape *s, const float *q, int64_t ldq, const float *key,
                          int64_t ldk, const float *v, int64_t ldv, const float *o, int64_t ldo, const float *lse,
                          const float *d_o, int64_t lddo, float *dq, int64_t lddq, int add_q, float *dk, int64_t lddk,
                          int add_k, float *dv, int64_t lddv, int add_v) {
  int64_t rows = s->batch * s->tq, keys = s->batch * s->tk, qd = s->heads * s->head_dim, kd = s->kv_heads * s->head_dim;
  RUN(attention_bwd, s, IN(q, rows, qd, ldq), IN(key, keys, kd, ldk), IN(v, keys, kd, ldv), IN(o, rows, qd, ldo), lse,
      IN(d_o, rows, qd, lddo), OUT(dq, rows, qd, lddq), add_q, OUT(dk, keys, kd, lddk), add_k, OUT(dv, keys, kd, lddv),
      add_v);
}

#define ACTIVATION(name)                                                                                     \
  static void name##_fwd(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, float *y,  \
                         int64_t ldy) {                                                                      \
    RUN(name##_fwd, rows, cols, IN(x, rows, cols, ldx), OUT(y, rows, cols, ldy));                            \
  }                                                                                                          \
  static void name##_bwd(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx,    \
                         const float *dy, int64_t lddy, float *dx, int64_t lddx, int add) {                  \
    RUN(name##_bwd, rows, cols, IN(x, rows, cols, ldx), IN(dy, rows, cols, lddy), OUT(dx, rows, cols, lddx), add);  \
  }
ACTIVATION(relu)
ACTIVATION(silu)

static void silu_mul_fwd(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, const float *u,
                         int64_t ldu, float *y, int64_t ldy) {
  RUN(silu_mul_fwd, rows, cols, IN(x, rows, cols, ldx), IN(u, rows, cols, ldu), OUT(y, rows, cols, ldy));
}

static void silu_mul_bwd(const KernelContext *k, int64_t rows, int64_t cols, const float *x, int64_t ldx, const float *u,
                         int64_t ldu, const float *dy, int64_t lddy, float *dx, int64_t lddx, int add_x, float *du,
                         int64_t lddu, int add_u) {
  RUN(silu_mul_bwd, rows, cols, IN(x, rows, cols, ldx), IN(u, rows, cols, ldu), IN(dy, rows, cols, lddy),
      OUT(dx, rows, cols, lddx), add_x, OUT(du, rows, cols, lddu), add_u);
}

static void gelu_fwd(const KernelContext *k, int64_t rows, int64_t cols, int erf_form, const float *x, int64_t ldx, float *y,
                     int64_t ldy) {
  RUN(gelu_fwd, rows, cols, erf_form, IN(x, rows, cols, ldx), OUT(y, rows, cols, ldy));
}

static void gelu_bwd(const KernelContext *k, int64_t rows, int64_t cols, int erf_form, const float *x, int64_t ldx,
                     const float *dy, int64_t lddy, float *dx, int64_t lddx, int add) {
  RUN(gelu_bwd, rows, cols, erf_form, IN(x, rows, cols, ldx), IN(dy, rows, cols, lddy), OUT(dx, rows, cols, lddx), add);
}

/* In place where the caller is. */
static void mul(const KernelContext *k, int64_t rows, int64_t cols, const float *a, int64_t lda, const float *b,
                int64_t ldb, float *y, int64_t ldy, int add) {
  RUN(mul, rows, cols, IN(a, rows, cols, lda), IN(b, rows, cols, ldb), OUT(y, rows, cols, ldy), add);
}

static void scale(const KernelContext *k, int64_t rows, int64_t cols, double by, const float *x, int64_t ldx, float *y,
                  int64_t ldy, int add) {
  RUN(scale, rows, cols, by, IN(x, rows, cols, ldx), OUT(y, rows, cols, ldy), add);
}

static void add_fwd(const KernelContext *k, int64_t rows, int64_t cols, int64_t brows, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float *y, int64_t ldy) {
  RUN(add_fwd, rows, cols, brows, IN(a, rows, cols, lda), IN(b, brows, cols, ldb), OUT(y, rows, cols, ldy));
}

static void broadcast_bwd(const KernelContext *k, int64_t rows, int64_t cols, int64_t brows, const float *dy,
                          int64_t lddy, void *db, int64_t lddb, int add) {
  RUN(broadcast_bwd, rows, cols, brows, IN(dy, rows, cols, lddy), GRADIENT(db, brows, cols, lddb), lddb, add);
}

static void dropout(const KernelContext *k, const DropoutSite *site, int64_t rows, int64_t cols, const float *x,
                    int64_t ldx, float *y, int64_t ldy, int add) {
  RUN(dropout, site, rows, cols, IN(x, rows, cols, ldx), OUT(y, rows, cols, ldy), add);
}

static void cross_entropy(const KernelContext *k, int64_t rows, int64_t vocab, int64_t ignore, double count,
                          float *logits, int64_t ld, const int32_t *targets, double *loss, float *row_loss) {
  RUN(cross_entropy, rows, vocab, ignore, count, OUT(logits, rows, vocab, ld), targets, loss, row_loss);
}

static void linear_cross_entropy(const KernelContext *k, int64_t rows, int64_t vocab, int64_t width, int64_t ignore,
                                 int64_t chunk, double count, const float *x, int64_t ldx, const float *w,
                                 const float *bias, const int32_t *targets, double *loss, float *dx, int64_t lddx,
                                 int add_x, void *dw, int add_w, void *dbias, int add_b, float *row_loss,
                                 float *logits, int64_t ld) {
  RUN(linear_cross_entropy, rows, vocab, width, ignore, chunk, count, IN(x, rows, width, ldx), VECTOR(w, vocab * width),
      VECTOR(bias, vocab), targets, loss, OUT(dx, rows, width, lddx), add_x, GRADIENT(dw, vocab, width, width), add_w,
      GRADIENT(dbias, 1, vocab, vocab), add_b, row_loss, OUT(logits, chunk, vocab, ld));
}

static void mse(const KernelContext *k, int64_t rows, int64_t cols, double count, const float *x, int64_t ldx,
                const float *y, int64_t ldy, double *loss, float *dx, int64_t lddx, int add, float *row_loss) {
  RUN(mse, rows, cols, count, IN(x, rows, cols, ldx), IN(y, rows, cols, ldy), loss, OUT(dx, rows, cols, lddx), add,
      row_loss);
}

static void sum_squares(const KernelContext *k, int64_t n, const void *g, int64_t *acc) {
  RUN(sum_squares, n, GRADIENT((void *)(uintptr_t)g, 1, n, n), acc);
}

static void adamw(const KernelContext *k, int64_t n, const AdamwRates *rates, const void *g, void *w, float *m, float *v) {
  RUN(adamw, n, rates, GRADIENT((void *)(uintptr_t)g, 1, n, n), w, m, v);
}

static void lion(const KernelContext *k, int64_t n, const LionRates *rates, const void *g, void *w, float *m) {
  RUN(lion, n, rates, GRADIENT((void *)(uintptr_t)g, 1, n, n), w, m);
}

static void sgd(const KernelContext *k, int64_t n, const SgdRates *rates, const void *g, void *w, float *m) {
  RUN(sgd, n, rates, GRADIENT((void *)(uintptr_t)g, 1, n, n), w, m);
}

static void adafactor_sums(const KernelContext *k, int64_t first, int64_t n, int64_t cols, double grid, const void *g,
                           int64_t *row_sums, int64_t *col_sums) {
  RUN(adafactor_sums, first, n, cols, grid, GRADIENT((void *)(uintptr_t)g, 1, n, n), row_sums, col_sums);
}

static void adafactor_norm(const KernelContext *k, const AdafactorRates *rates, int64_t first, int64_t n, int64_t cols,
                           const float *row, const float *col, const void *g, int64_t *acc) {
  RUN(adafactor_norm, rates, first, n, cols, row, col, GRADIENT((void *)(uintptr_t)g, 1, n, n), acc);
}

static void adafactor(const KernelContext *k, const AdafactorRates *rates, int64_t first, int64_t n, int64_t cols,
                      const float *row, const float *col, const void *g, void *w) {
  RUN(adafactor, rates, first, n, cols, row, col, GRADIENT((void *)(uintptr_t)g, 1, n, n), w);
}

/* Without a context or an operand of 16 bits: nothing to adapt. */
static void adafactor_average(int64_t n, double weight, double factor, const int64_t *sums, float *v) {
  kernels_cpu_named("portable")->adafactor_average(n, weight, factor, sums, v);
}

/* These know their types themselves; half_test.c calls them as they are. */
static void tree_sum(int64_t n, int32_t ranks, FloatType type, const void *const *sources, void *y, int add) {
  kernels_cpu_named("portable")->tree_sum(n, ranks, type, sources, y, add);
}

static void narrow(const KernelContext *k, int64_t n, FloatType type, const float *x, Half *y) {
  ((const HalfAdapter *)k)->table->narrow(k, n, type, x, y);
}

static void init_fill(const KernelContext *k, const InitFill *fill, int64_t first, int64_t n, float *w) {
  ((const HalfAdapter *)k)->table->init_fill(k, fill, first, n, w);
}

const KernelTable half_adapter = {
    .name = "half",
#define KERNEL(name, arguments) .name = name,
#include "kernels/kernels.def"
#undef KERNEL
};
