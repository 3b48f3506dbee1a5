/* Owns: every layer's backward against central differences of its forward, in double.
 *
 * A case gives a loss (the forward's outputs weighted with fixed numbers, or the kernel's own loss) and a
 * backward. The backward runs into NaN without `add` and into known numbers with it; both must agree. */
#include "kernels/random.h"
#include "tests/kernels/support.h"
#include <math.h>

static const double STEP = 1e-5, TOLERANCE = 1e-6;

typedef struct Matrix {
  double *x;
  int64_t rows, cols, ld;
} Matrix;

static uint64_t state = 1;

static Matrix matrix(int64_t rows, int64_t cols) {
  int64_t ld = cols == 1 || rows == 1 ? cols : cols + 3; /* vectors are dense */
  Matrix m = {memory_get((size_t)(rows * ld) * sizeof(double)), rows, cols, ld};
  fill_f64(&state, rows * ld, m.x);
  return m;
}

static Matrix dense(int64_t rows, int64_t cols) {
  Matrix m = {memory_get((size_t)(rows * cols) * sizeof(double)), rows, cols, cols};
  fill_f64(&state, rows * cols, m.x);
  return m;
}

static Matrix alike(Matrix m, double value) {
  Matrix c = {memory_get((size_t)(m.rows * m.ld) * sizeof(double)), m.rows, m.cols, m.ld};
  for (int64_t i = 0; i < m.rows * m.ld; i++) c.x[i] = value;
  return c;
}

/* Everything a case may use; input is what is differentiated, weight the loss's fixed numbers. */
typedef struct Case {
  KernelContext k;
  Matrix in[4], out, weight, d_in[4];
  int32_t *tokens;
  int64_t a, b, c;
  int flag, add;
  double real;
  RopeShape rope;
  AttentionShape attention;
  DropoutSite site;
  Matrix scratch[4];
  void (*forward)(struct Case *);
  double (*loss)(struct Case *);
  void (*backward)(struct Case *);
  int inputs;
} Case;

static const KernelTable64 *t(void) {
  return kernels_cpu_f64();
}

static double weighted_loss(Case *c) {
  c->forward(c);
  double sum = 0;
  for (int64_t i = 0; i < c->out.rows; i++) {
    for (int64_t j = 0; j < c->out.cols; j++) {
      sum += c->out.x[i * c->out.ld + j] * c->weight.x[i * c->weight.ld + j];
    }
  }
  return sum;
}

static double at(Matrix m, int64_t i, int64_t j) {
  return m.x[i * m.ld + j];
}

static void check_add(Case *c) {
  Matrix once[4];
  for (int n = 0; n < c->inputs; n++) {
    once[n] = c->d_in[n];
    c->d_in[n] = alike(c->in[n], 3);
  }
  c->add = 1;
  c->backward(c);
  for (int n = 0; n < c->inputs; n++) {
    for (int64_t i = 0; i < once[n].rows; i++) {
      for (int64_t j = 0; j < once[n].ld; j++) {
        if (j >= once[n].cols)
          assert_true(c->d_in[n].x[i * c->d_in[n].ld + j] == 3 && isnan(at(once[n], i, j)));
        else
          assert_true(fabs(at(c->d_in[n], i, j) - 3 - at(once[n], i, j)) <
                      1e-12 * (3 + fabs(at(once[n], i, j))));
      }
    }
  }
}

static void check(Case *c, const char *what) {
  if (!c->loss) c->loss = weighted_loss;
  if (c->forward) {
    c->weight = matrix(c->out.rows, c->out.cols);
    c->forward(c);
  }
  for (int n = 0; n < c->inputs; n++) c->d_in[n] = alike(c->in[n], NAN);
  c->add = 0;
  c->backward(c);
  for (int n = 0; n < c->inputs; n++) {
    for (int64_t i = 0; i < c->in[n].rows; i++) {
      for (int64_t j = 0; j < c->in[n].cols; j++) {
        double *x = &c->in[n].x[i * c->in[n].ld + j], old = *x, got = at(c->d_in[n], i, j);
        *x = old + STEP;
        double up = c->loss(c);
        *x = old - STEP;
        double down = c->loss(c), expected = (up - down) / (2 * STEP);
        *x = old;
        if (fabs(got - expected) <= TOLERANCE * fmax(1, fabs(expected))) continue;
        fail_msg("%s: input %d (%d, %d): got %.9g, differences say %.9g", what, n, (int)i, (int)j, got,
                 expected);
      }
    }
  }
  c->loss(c); /* leave saved statistics as of the unmoved inputs */
  check_add(c);
  memory_free();
}

/* --- linear ------------------------------------------------------------------------------------------------------- */

static double *bias_of(const Case *c, const Matrix *m) {
  return c->flag ? m[2].x : NULL;
}

static void linear_forward(Case *c) {
  t()->linear_fwd(&c->k, c->out.rows, c->out.cols, c->in[0].cols, c->in[0].x, c->in[0].ld, c->in[1].x,
                  bias_of(c, c->in), c->out.x, c->out.ld);
}

static void linear_backward(Case *c) {
  int64_t rows = c->out.rows, out = c->out.cols, in = c->in[0].cols;
  t()->linear_bwd_x(&c->k, rows, out, in, c->weight.x, c->weight.ld, c->in[1].x, c->d_in[0].x, c->d_in[0].ld,
                    c->add);
  t()->linear_bwd_w(&c->k, rows, out, in, c->in[0].x, c->in[0].ld, c->weight.x, c->weight.ld, c->d_in[1].x,
                    bias_of(c, c->d_in), c->add, c->add);
}

static void test_linear(void **unused) {
  (void)unused;
  for (int bias = 0; bias < 2; bias++) {
    Case c = {.forward = linear_forward, .backward = linear_backward, .flag = bias, .inputs = 2 + bias};
    c.in[0] = matrix(7, 5), c.in[1] = dense(9, 5), c.in[2] = dense(1, 9), c.out = matrix(7, 9);
    check(&c, "linear");
  }
}

/* One weight used as an embedding and, tied, as the last layer: the gradients add up. */
static void tied_forward(Case *c) {
  Matrix hidden = c->scratch[0];
  t()->embedding_fwd(&c->k, hidden.rows, c->in[0].rows, hidden.cols, c->tokens, c->in[0].x, hidden.x,
                     hidden.ld);
  t()->linear_fwd(&c->k, c->out.rows, c->in[0].rows, hidden.cols, hidden.x, hidden.ld, c->in[0].x, NULL,
                  c->out.x, c->out.ld);
}

static void tied_backward(Case *c) {
  Matrix hidden = c->scratch[0], d_hidden = c->scratch[1];
  int64_t rows = c->out.rows, vocab = c->in[0].rows, d = hidden.cols;
  t()->linear_bwd_w(&c->k, rows, vocab, d, hidden.x, hidden.ld, c->weight.x, c->weight.ld, c->d_in[0].x, NULL,
                    c->add, 0);
  t()->linear_bwd_x(&c->k, rows, vocab, d, c->weight.x, c->weight.ld, c->in[0].x, d_hidden.x, d_hidden.ld, 0);
  t()->embedding_bwd(&c->k, rows, vocab, d, c->tokens, d_hidden.x, d_hidden.ld, c->d_in[0].x, 1);
}

static void test_tied(void **unused) {
  (void)unused;
  int32_t tokens[6] = {3, 1, 4, 1, 0, 3};
  Case c = {.forward = tied_forward, .backward = tied_backward, .inputs = 1, .tokens = tokens};
  c.in[0] = dense(5, 4), c.out = matrix(6, 5), c.scratch[0] = matrix(6, 4), c.scratch[1] = matrix(6, 4);
  check(&c, "tied weights");
}

static void embedding_forward(Case *c) {
  t()->embedding_fwd(&c->k, c->out.rows, c->in[0].rows, c->out.cols, c->tokens, c->in[0].x, c->out.x,
                     c->out.ld);
}

static void embedding_backward(Case *c) {
  t()->embedding_bwd(&c->k, c->out.rows, c->in[0].rows, c->out.cols, c->tokens, c->weight.x, c->weight.ld,
                     c->d_in[0].x, c->add);
}

static void test_embedding(void **unused) {
  (void)unused;
  int32_t tokens[7] = {6, 0, 2, 2, 5, 2, 0};
  Case c = {.forward = embedding_forward, .backward = embedding_backward, .inputs = 1, .tokens = tokens};
  c.in[0] = dense(7, 5), c.out = matrix(7, 5);
  check(&c, "embedding");
}

/* --- normalisation ------------------------------------------------------------------------------------------------ */

static void layernorm_forward(Case *c) {
  t()->layernorm_fwd(&c->k, c->out.rows, c->out.cols, 1e-3, c->in[0].x, c->in[0].ld, c->in[1].x,
                     bias_of(c, c->in), c->out.x, c->out.ld, c->scratch[0].x, c->scratch[1].x);
}

static void layernorm_backward(Case *c) {
  t()->layernorm_bwd(&c->k, c->out.rows, c->out.cols, c->in[0].x, c->in[0].ld, c->in[1].x, c->scratch[0].x,
                     c->scratch[1].x, c->weight.x, c->weight.ld, c->d_in[0].x, c->d_in[0].ld, c->d_in[1].x,
                     bias_of(c, c->d_in), c->add, c->add, c->add);
}

static void rmsnorm_forward(Case *c) {
  t()->rmsnorm_fwd(&c->k, c->out.rows, c->out.cols, 1e-3, c->in[0].x, c->in[0].ld, c->in[1].x, c->out.x,
                   c->out.ld, c->scratch[1].x);
}

static void rmsnorm_backward(Case *c) {
  t()->rmsnorm_bwd(&c->k, c->out.rows, c->out.cols, c->in[0].x, c->in[0].ld, c->in[1].x, c->scratch[1].x,
                   c->weight.x, c->weight.ld, c->d_in[0].x, c->d_in[0].ld, c->d_in[1].x, c->add, c->add);
}

static void test_norms(void **unused) {
  (void)unused;
  for (int kind = 0; kind < 3; kind++) { /* layernorm without and with bias, rmsnorm */
    Case c = {.forward = kind < 2 ? layernorm_forward : rmsnorm_forward};
    c.backward = kind < 2 ? layernorm_backward : rmsnorm_backward;
    c.flag = kind == 1, c.inputs = kind == 1 ? 3 : 2;
    c.in[0] = matrix(6, 11), c.in[1] = dense(1, 11), c.in[2] = dense(1, 11), c.out = matrix(6, 11);
    c.scratch[0] = dense(1, 6), c.scratch[1] = dense(1, 6);
    check(&c, kind < 2 ? "layernorm" : "rmsnorm");
  }
}

/* --- positions and attention -------------------------------------------------------------------------------------- */

static void rope_forward(Case *c) {
  t()->rope(&c->k, &c->rope, 0, c->in[0].x, c->in[0].ld, c->out.x, c->out.ld, 0);
}

static void rope_backward(Case *c) {
  t()->rope(&c->k, &c->rope, 1, c->weight.x, c->weight.ld, c->d_in[0].x, c->d_in[0].ld, c->add);
}

static void test_rope(void **unused) {
  (void)unused;
  for (int llama3 = 0; llama3 < 2; llama3++)
    for (int dims = 2; dims <= 6; dims += 2) {
      Case c = {.forward = rope_forward, .backward = rope_backward, .inputs = 1};
      c.rope = (RopeShape){2, 5, 3, 6, dims, llama3, 16, 100, 8, 1, 4, 3};
      c.in[0] = matrix(10, 18), c.out = matrix(10, 18);
      check(&c, "rope");
    }
}

static void attention_forward(Case *c) {
  t()->attention_fwd(&c->k, &c->attention, c->in[0].x, c->in[0].ld, c->in[1].x, c->in[1].ld, c->in[2].x,
                     c->in[2].ld, c->out.x, c->out.ld, c->scratch[0].x);
}

static void attention_backward(Case *c) {
  t()->attention_bwd(&c->k, &c->attention, c->in[0].x, c->in[0].ld, c->in[1].x, c->in[1].ld, c->in[2].x,
                     c->in[2].ld, c->out.x, c->out.ld, c->scratch[0].x, c->weight.x, c->weight.ld,
                     c->d_in[0].x, c->d_in[0].ld, c->add, c->d_in[1].x, c->d_in[1].ld, c->add, c->d_in[2].x,
                     c->d_in[2].ld, c->add);
}

static void attention_case(int64_t batch, int64_t tq, int64_t tk, int64_t heads, int64_t kv_heads, int64_t d,
                           int causal) {
  Case c = {.forward = attention_forward, .backward = attention_backward, .inputs = 3};
  c.attention = (AttentionShape){batch, tq, tk, heads, kv_heads, d, causal, 1 / sqrt((double)d)};
  c.in[0] = matrix(batch * tq, heads * d), c.in[1] = matrix(batch * tk, kv_heads * d);
  c.in[2] = matrix(batch * tk, kv_heads * d), c.out = matrix(batch * tq, heads * d);
  c.scratch[0] = dense(batch * heads, tq);
  check(&c, "attention");
}

static void test_attention(void **unused) {
  (void)unused;
  attention_case(2, 5, 5, 2, 2, 4, 1);
  attention_case(2, 5, 5, 4, 2, 3, 0);   /* grouped queries */
  attention_case(1, 3, 7, 2, 1, 4, 0);   /* cross */
  attention_case(1, 3, 7, 2, 1, 4, 1);   /* causal, keys from before */
  attention_case(1, 6, 4, 1, 1, 2, 1);   /* causal, the first queries see nothing */
  attention_case(1, 70, 70, 1, 1, 2, 1); /* several blocks */
  attention_case(1, 3, 66, 2, 1, 5, 0);
  attention_case(1, 2, 3, 1, 1, 131, 0); /* dimensions beyond what is packed at a time */
}

/* --- element by element ------------------------------------------------------------------------------------------- */

static void activation_forward(Case *c) {
  int64_t rows = c->out.rows, cols = c->out.cols, ldx = c->in[0].ld, ldy = c->out.ld;
  if (c->flag < 2) t()->gelu_fwd(&c->k, rows, cols, c->flag, c->in[0].x, ldx, c->out.x, ldy);
  if (c->flag == 2) t()->relu_fwd(&c->k, rows, cols, c->in[0].x, ldx, c->out.x, ldy);
  if (c->flag == 3) t()->silu_fwd(&c->k, rows, cols, c->in[0].x, ldx, c->out.x, ldy);
}

static void activation_backward(Case *c) {
  int64_t rows = c->out.rows, cols = c->out.cols, ldx = c->in[0].ld, lddy = c->weight.ld,
          lddx = c->d_in[0].ld;
  const double *x = c->in[0].x, *dy = c->weight.x;
  double *dx = c->d_in[0].x;
  if (c->flag < 2) t()->gelu_bwd(&c->k, rows, cols, c->flag, x, ldx, dy, lddy, dx, lddx, c->add);
  if (c->flag == 2) t()->relu_bwd(&c->k, rows, cols, x, ldx, dy, lddy, dx, lddx, c->add);
  if (c->flag == 3) t()->silu_bwd(&c->k, rows, cols, x, ldx, dy, lddy, dx, lddx, c->add);
}

static void test_activations(void **unused) {
  (void)unused;
  for (int kind = 0; kind < 4; kind++) {
    Case c = {.forward = activation_forward, .backward = activation_backward, .flag = kind, .inputs = 1};
    c.in[0] = matrix(9, 13), c.out = matrix(9, 13);
    for (int64_t i = 0; i < 9 * c.in[0].ld; i++) c.in[0].x[i] *= 4;
    check(&c, "activation");
  }
}

static void silu_mul_forward(Case *c) {
  t()->silu_mul_fwd(&c->k, c->out.rows, c->out.cols, c->in[0].x, c->in[0].ld, c->in[1].x, c->in[1].ld, c->out.x,
                    c->out.ld);
}

/* flag: each gradient by a call of its own. */
static void silu_mul_backward(Case *c) {
  for (int n = 0; n < (c->flag ? 2 : 1); n++)
    t()->silu_mul_bwd(&c->k, c->out.rows, c->out.cols, c->in[0].x, c->in[0].ld, c->in[1].x, c->in[1].ld, c->weight.x,
                      c->weight.ld, c->flag && n == 1 ? NULL : c->d_in[0].x, c->d_in[0].ld, c->add,
                      c->flag && n == 0 ? NULL : c->d_in[1].x, c->d_in[1].ld, c->add);
}

static void mul_forward(Case *c) {
  t()->mul(&c->k, c->out.rows, c->out.cols, c->in[0].x, c->in[0].ld, c->in[1].x, c->in[1].ld, c->out.x,
           c->out.ld, 0);
}

static void mul_backward(Case *c) {
  for (int n = 0; n < 2; n++) {
    t()->mul(&c->k, c->out.rows, c->out.cols, c->in[1 - n].x, c->in[1 - n].ld, c->weight.x, c->weight.ld,
             c->d_in[n].x, c->d_in[n].ld, c->add);
  }
}

static void scale_forward(Case *c) {
  t()->scale(&c->k, c->out.rows, c->out.cols, c->real, c->in[0].x, c->in[0].ld, c->out.x, c->out.ld, 0);
}

static void scale_backward(Case *c) {
  t()->scale(&c->k, c->out.rows, c->out.cols, c->real, c->weight.x, c->weight.ld, c->d_in[0].x, c->d_in[0].ld, c->add);
}

static void add_forward(Case *c) {
  t()->add_fwd(&c->k, c->out.rows, c->out.cols, c->in[1].rows, c->in[0].x, c->in[0].ld, c->in[1].x,
               c->in[1].ld, c->out.x, c->out.ld);
}

static void add_backward(Case *c) {
  t()->copy(&c->k, c->out.rows, c->out.cols, c->weight.x, c->weight.ld, c->d_in[0].x, c->d_in[0].ld, c->add);
  t()->broadcast_bwd(&c->k, c->out.rows, c->out.cols, c->in[1].rows, c->weight.x, c->weight.ld, c->d_in[1].x,
                     c->d_in[1].ld, c->add);
}

static void dropout_forward(Case *c) {
  t()->dropout(&c->k, &c->site, c->out.rows, c->out.cols, c->in[0].x, c->in[0].ld, c->out.x, c->out.ld, 0);
}

static void dropout_backward(Case *c) {
  t()->dropout(&c->k, &c->site, c->out.rows, c->out.cols, c->weight.x, c->weight.ld, c->d_in[0].x,
               c->d_in[0].ld, c->add);
}

static void test_elementwise(void **unused) {
  (void)unused;
  Case c = {.forward = mul_forward, .backward = mul_backward, .inputs = 2};
  c.in[0] = matrix(6, 7), c.in[1] = matrix(6, 7), c.out = matrix(6, 7);
  check(&c, "mul");
  for (int apart = 0; apart < 2; apart++) {
    Case s = {.forward = silu_mul_forward, .backward = silu_mul_backward, .flag = apart, .inputs = 2};
    s.in[0] = matrix(6, 7), s.in[1] = matrix(6, 7), s.out = matrix(6, 7);
    check(&s, "silu_mul");
  }
  Case e = {.forward = scale_forward, .backward = scale_backward, .inputs = 1, .real = -0.22};
  e.in[0] = matrix(6, 7), e.out = matrix(6, 7);
  check(&e, "scale");
  for (int64_t brows = 1; brows <= 12; brows = brows == 1 ? 3 : brows * 4) {
    Case a = {.forward = add_forward, .backward = add_backward, .inputs = 2};
    a.in[0] = matrix(12, 5), a.in[1] = matrix(brows, 5), a.out = matrix(12, 5);
    check(&a, "add");
  }
  Case d = {
      .forward = dropout_forward, .backward = dropout_backward, .inputs = 1, .site = {0.3, 1, 2, 3, 4, 5}};
  d.in[0] = matrix(12, 7), d.out = matrix(12, 7);
  check(&d, "dropout");
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

/* a: ignored target, b: chunk, real: count. The kernel gives the sum; its gradient is of sum / count. */
static double logits_loss(Case *c) {
  Matrix copy = alike(c->in[0], 0);
  for (int64_t i = 0; i < copy.rows * copy.ld; i++) copy.x[i] = c->in[0].x[i];
  double loss = 0;
  t()->cross_entropy(&c->k, copy.rows, copy.cols, c->a, c->real, copy.x, copy.ld, c->tokens, &loss,
                     c->scratch[0].x);
  return loss / c->real;
}

static void logits_backward(Case *c) {
  Matrix g = c->d_in[0];
  for (int64_t i = 0; i < g.rows; i++) {
    for (int64_t j = 0; j < g.cols; j++) g.x[i * g.ld + j] = at(c->in[0], i, j);
  }
  double loss = 0;
  t()->cross_entropy(&c->k, g.rows, g.cols, c->a, c->real, g.x, g.ld, c->tokens, &loss, c->scratch[0].x);
  if (!c->add) return;
  for (int64_t i = 0; i < g.rows; i++) { /* it has no add flag */
    for (int64_t j = 0; j < g.cols; j++) g.x[i * g.ld + j] += 3;
  }
}

static double fused_run(Case *c, double *dx, int64_t lddx, double *dw, double *db, int add) {
  double loss = 0;
  t()->linear_cross_entropy(&c->k, c->in[0].rows, c->in[1].rows, c->in[0].cols, c->a, c->b, c->real,
                            c->in[0].x, c->in[0].ld, c->in[1].x, bias_of(c, c->in), c->tokens, &loss, dx,
                            lddx, add, dw, add, db, add, c->scratch[0].x, c->scratch[1].x, c->scratch[1].ld);
  return loss / c->real;
}

static double fused_loss(Case *c) {
  return fused_run(c, c->scratch[2].x, c->scratch[2].ld, c->scratch[3].x, c->flag ? c->weight.x : NULL, 0);
}

static void fused_backward(Case *c) {
  fused_run(c, c->d_in[0].x, c->d_in[0].ld, c->d_in[1].x, bias_of(c, c->d_in), c->add);
}

static double mse_loss(Case *c) {
  double loss = 0;
  t()->mse(&c->k, c->in[0].rows, c->in[0].cols, c->real, c->in[0].x, c->in[0].ld, c->in[1].x, c->in[1].ld,
           &loss, c->scratch[0].x, c->scratch[0].ld, 0, c->scratch[1].x);
  return loss / c->real;
}

static void mse_backward(Case *c) {
  double loss = 0;
  t()->mse(&c->k, c->in[0].rows, c->in[0].cols, c->real, c->in[0].x, c->in[0].ld, c->in[1].x, c->in[1].ld,
           &loss, c->d_in[0].x, c->d_in[0].ld, c->add, c->scratch[1].x);
}

static void test_losses(void **unused) {
  (void)unused;
  int32_t targets[7] = {2, -100, 0, 8, 8, -100, 5};
  Case c = {
      .loss = logits_loss, .backward = logits_backward, .inputs = 1, .tokens = targets, .a = -100, .real = 5};
  c.in[0] = matrix(7, 9), c.scratch[0] = dense(1, 7);
  check(&c, "cross_entropy");
  for (int bias = 0; bias < 2; bias++) {
    Case f = {
        .loss = fused_loss, .backward = fused_backward, .inputs = 2 + bias, .tokens = targets, .a = -100};
    f.real = 5, f.b = 3, f.flag = bias; /* chunks of 3, 3 and 1 rows */
    f.in[0] = matrix(7, 4), f.in[1] = dense(9, 4), f.in[2] = dense(1, 9), f.weight = dense(1, 9);
    f.scratch[0] = dense(1, 7), f.scratch[1] = matrix(3, 9), f.scratch[2] = matrix(7, 4),
    f.scratch[3] = dense(9, 4);
    check(&f, "linear_cross_entropy");
  }
  Case m = {.loss = mse_loss, .backward = mse_backward, .inputs = 1, .real = 42};
  m.in[0] = matrix(6, 7), m.in[1] = matrix(6, 7), m.scratch[0] = matrix(6, 7), m.scratch[1] = dense(1, 6);
  check(&m, "mse");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),      cmocka_unit_test(test_tied),
      cmocka_unit_test(test_embedding),   cmocka_unit_test(test_norms),
      cmocka_unit_test(test_rope),        cmocka_unit_test(test_attention),
      cmocka_unit_test(test_activations), cmocka_unit_test(test_elementwise),
      cmocka_unit_test(test_losses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
