/* Owns: the tests of plain_test.c for kernels that go element by element, and for mean squared error. */
#include "kernels/random.h"
#include "tests/kernels/plain.h"

/* --- element by element ------------------------------------------------------------------------------------------- */

typedef enum { MUL, SCALE, ADD, COPY, RELU, SILU, GELU, GELU_ERF, SILU_MUL, RELU_BWD, SILU_BWD, GELU_BWD, GELU_ERF_BWD, KINDS } Kind;

static const char *const KIND_NAMES[] = {"mul", "scale", "add", "copy", "relu", "silu", "gelu", "gelu erf", "silu mul",
                                         "relu bwd", "silu bwd", "gelu bwd", "gelu erf bwd"};
static const double BY = -0.75;

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

static double cdf(double x) {
  return 0.5 * erfc(-x * sqrt(0.5));
}

/* 0.5 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), and its slope. */
static double tanh_gate(double x) {
  return sigmoid(2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x));
}

static double tanh_gate_slope(double x) {
  double s = tanh_gate(x);
  return s * (1 - s) * 2 * sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
}

/* (x gate(x))' = gate + x gate' */
static Sum gated_slope(double x, double gate, double slope, double dy) {
  return (Sum){(gate + x * slope) * dy, (gate + fabs(x) * slope * (1 + fabs(x))) * fabs(dy)};
}

static Sum formula(Kind kind, double a, double b) {
  Sum y = {0, 0};
  switch (kind) {
  case MUL: plain_add(&y, a * b); break;
  case SCALE: plain_add(&y, BY * a); break;
  case ADD: plain_add(&y, a), plain_add(&y, b); break;
  case COPY: plain_add(&y, a); break;
  case RELU: plain_add(&y, a > 0 ? a : 0); break;
  case SILU: plain_add(&y, a * sigmoid(a)); break;
  case GELU: plain_add(&y, a * tanh_gate(a)); break;
  case GELU_ERF: plain_add(&y, a * cdf(a)); break;
  case SILU_MUL: plain_add(&y, a * sigmoid(a) * b); break;
  case RELU_BWD: plain_add(&y, a > 0 ? b : 0); break;
  case SILU_BWD: return gated_slope(a, sigmoid(a), sigmoid(a) * (1 - sigmoid(a)), b);
  case GELU_BWD: return gated_slope(a, tanh_gate(a), tanh_gate_slope(a), b);
  case GELU_ERF_BWD: return gated_slope(a, cdf(a), exp(-a * a / 2) / sqrt(2 * acos(-1)), b);
  case KINDS: break;
  }
  return y;
}

static int can_add(Kind kind) {
  return kind == MUL || kind == SCALE || kind == COPY || kind >= RELU_BWD;
}

static void call(Kind kind, const Mode *m, int64_t brows, Mat a, Mat b, Mat y, int add) {
  const KernelContext *k = &m->a.context;
  const KernelTable *t = m->t;
  int64_t rows = a.rows, cols = a.cols;
  void *lent = NULL;
  switch (kind) {
  case MUL: t->mul(k, rows, cols, a.x, a.ld, b.x, b.ld, y.x, y.ld, add); break;
  case SCALE: t->scale(k, rows, cols, BY, a.x, a.ld, y.x, y.ld, add); break;
  case ADD: t->add_fwd(k, rows, cols, brows, a.x, a.ld, b.x, b.ld, y.x, y.ld); break;
  case COPY:
    lent = plain_lend(m, y);
    t->copy(k, rows, cols, a.x, a.ld, lent, y.ld, add);
    plain_read(m, y, lent);
    break;
  case RELU: t->relu_fwd(k, rows, cols, a.x, a.ld, y.x, y.ld); break;
  case SILU: t->silu_fwd(k, rows, cols, a.x, a.ld, y.x, y.ld); break;
  case GELU:
  case GELU_ERF: t->gelu_fwd(k, rows, cols, kind == GELU_ERF, a.x, a.ld, y.x, y.ld); break;
  case SILU_MUL: t->silu_mul_fwd(k, rows, cols, a.x, a.ld, b.x, b.ld, y.x, y.ld); break;
  case RELU_BWD: t->relu_bwd(k, rows, cols, a.x, a.ld, b.x, b.ld, y.x, y.ld, add); break;
  case SILU_BWD: t->silu_bwd(k, rows, cols, a.x, a.ld, b.x, b.ld, y.x, y.ld, add); break;
  case GELU_BWD:
  case GELU_ERF_BWD: t->gelu_bwd(k, rows, cols, kind == GELU_ERF_BWD, a.x, a.ld, b.x, b.ld, y.x, y.ld, add); break;
  case KINDS: break;
  }
}

/* From -8 to 8, where functions of one argument do something. */
static void elementwise_case(Kind kind, int64_t rows, int64_t cols, int64_t brows) {
  Mat a = plain_input(rows, cols), b = plain_input(brows, cols);
  plain_scale(a, 4);
  Sum *want = plain_sums(rows * cols);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < cols; j++)
      want[r * cols + j] = formula(kind, (double)plain_at(a, r, j), (double)plain_at(b, r % brows, j));
  NOW("%s of %d x %d, %d rows of b", KIND_NAMES[kind], (int)rows, (int)cols, (int)brows);
  for (int i = 0; i < mode_count; i++)
    for (int add = 0; add <= can_add(kind); add++) {
      Mat y = plain_output(rows, cols, add);
      call(kind, &MODES[i], brows, a, b, y, add);
      FloatType type = kind == COPY ? MODES[i].a.context.gradient : MODES[i].a.type;
      plain_check(&MODES[i], "y", type, y, add, want, kind >= SILU && kind != RELU_BWD ? 1e-5 : EXACT);
    }
  memory_free();
}

/* Around whole vectors; two tasks of rows; two of columns. */
static const int64_t SHAPES[][2] = {{1, 1}, {3, 2}, {2, 3}, {2, 4}, {2, 5}, {5, 7}, {5, 8}, {5, 9}, {3, 15}, {3, 16}, {3, 17}, {3, 33},
                                    {1, 2049}, {35, 1003}, {2, 32769}};

void test_elementwise(void **unused) {
  (void)unused;
  for (Kind kind = 0; kind < KINDS; kind++)
    for (int i = 0; i < COUNT(SHAPES); i++) elementwise_case(kind, SHAPES[i][0], SHAPES[i][1], SHAPES[i][0]);
  elementwise_case(ADD, 12, 37, 1), elementwise_case(ADD, 12, 37, 4), elementwise_case(ADD, 36, 1003, 18);
}

/* Both gradients, or one of them. */
static void silu_mul_bwd_case(int64_t rows, int64_t cols) {
  Mat x = plain_input(rows, cols), u = plain_input(rows, cols), dy = plain_input(rows, cols);
  plain_scale(x, 4);
  Sum *dx = plain_sums(rows * cols), *du = plain_sums(rows * cols);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < cols; j++) {
      double at = (double)plain_at(x, r, j), g = (double)plain_at(dy, r, j);
      dx[r * cols + j] = formula(SILU_BWD, at, (double)plain_at(u, r, j) * g);
      plain_add(&du[r * cols + j], at * sigmoid(at) * g);
    }
  NOW("silu mul bwd of %d x %d", (int)rows, (int)cols);
  for (int i = 0; i < mode_count; i++)
    for (int option = 0; option < 4; option++) {
      int add_x = option % 2, add_u = option == 0 || option == 3;
      Mat got_x = plain_output(rows, cols, add_x), got_u = plain_output(rows, cols, add_u);
      if (option == 2) got_x.x = NULL;
      if (option == 3) got_u.x = NULL;
      MODES[i].t->silu_mul_bwd(&MODES[i].a.context, rows, cols, x.x, x.ld, u.x, u.ld, dy.x, dy.ld, got_x.x, got_x.ld, add_x, got_u.x,
                               got_u.ld, add_u);
      if (got_x.x) plain_check(&MODES[i], "dx", MODES[i].a.type, got_x, add_x, dx, FLOAT_ERROR);
      if (got_u.x) plain_check(&MODES[i], "du", MODES[i].a.type, got_u, add_u, du, FLOAT_ERROR);
    }
  memory_free();
}

void test_silu_mul_bwd(void **unused) {
  (void)unused;
  for (int i = 0; i < COUNT(SHAPES); i++) silu_mul_bwd_case(SHAPES[i][0], SHAPES[i][1]);
}

static void broadcast_case(int64_t rows, int64_t cols, int64_t brows) {
  Mat dy = plain_input(rows, cols);
  Sum *want = plain_sums(brows * cols);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < cols; j++) plain_add(&want[r % brows * cols + j], (double)plain_at(dy, r, j));
  NOW("broadcast bwd of %d x %d into %d rows", (int)rows, (int)cols, (int)brows);
  for (int i = 0; i < mode_count; i++)
    for (int add = 0; add < 2; add++) {
      Mat db = plain_output(brows, cols, add);
      void *lent = plain_lend(&MODES[i], db);
      MODES[i].t->broadcast_bwd(&MODES[i].a.context, rows, cols, brows, dy.x, dy.ld, lent, db.ld, add);
      plain_read(&MODES[i], db, lent);
      plain_check(&MODES[i], "db", MODES[i].a.context.gradient, db, add, want, EXACT);
    }
  memory_free();
}

void test_broadcast(void **unused) {
  (void)unused;
  static const int64_t cols[] = {1, 3, 15, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 600}, brows[] = {1, 2, 7, 8, 9};
  for (int i = 0; i < COUNT(cols); i++)
    for (int b = 0; b < COUNT(brows); b++) broadcast_case(brows[b] * (1 + i % 4), cols[i], brows[b]);
  broadcast_case(36, 3000, 9); /* several tasks of rows */
  broadcast_case(8, 32800, 8); /* of columns */
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* An element is dropped with the probability that its 32 bits, as a fraction, lie below p. */
static void dropout_case(int64_t rows, int64_t cols, DropoutSite site) {
  Mat x = plain_input(rows, cols);
  Sum *want = plain_sums(rows * cols);
  int64_t kept = 0;
  for (int64_t r = 0; r < rows; r++) {
    uint64_t sample = site.first_sample + (uint64_t)(r / site.rows_per_sample), row = (uint64_t)(r % site.rows_per_sample);
    RowKeys keys = random_row_keys(site.seed, site.step, site.site, sample, row);
    for (int64_t j = 0; j < cols; j++) {
      if ((double)random_mix((uint32_t)j, keys) < rint(site.p * 0x1p32)) continue;
      plain_add(&want[r * cols + j], (double)plain_at(x, r, j) / (1 - site.p));
      kept++;
    }
  }
  double n = (double)(rows * cols);
  assert_true(fabs((double)kept - n * (1 - site.p)) <= 5 * sqrt(n * site.p * (1 - site.p)));
  NOW("dropout of %d x %d, p %g", (int)rows, (int)cols, site.p);
  for (int i = 0; i < mode_count; i++)
    for (int add = 0; add < 2; add++) {
      Mat y = plain_output(rows, cols, add);
      MODES[i].t->dropout(&MODES[i].a.context, &site, rows, cols, x.x, x.ld, y.x, y.ld, add);
      plain_check(&MODES[i], "y", MODES[i].a.type, y, add, want, FLOAT_ERROR);
    }
  memory_free();
}

void test_dropout(void **unused) {
  (void)unused;
  static const double ps[] = {0, 0.1, 0.5, 0.9, 1};
  for (int i = 0; i < COUNT(SHAPES); i++)
    dropout_case(SHAPES[i][0], SHAPES[i][1], (DropoutSite){ps[i % 5], 1 + (uint64_t)i, 2, 3, 1000, 1 + i % 3});
}

/* --- mean squared error ------------------------------------------------------------------------------------------- */

/* loss += sum (x - y)^2; dx = 2 (x - y) / count */
static void mse_case(int64_t rows, int64_t cols, double count) {
  Mat x = plain_input(rows, cols), y = plain_input(rows, cols);
  Sum *dx = plain_sums(rows * cols), *row_loss = plain_sums(rows), loss = {3, 3};
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < cols; j++) {
      double difference = (double)plain_at(x, r, j) - (double)plain_at(y, r, j);
      plain_add(&dx[r * cols + j], count > 0 ? 2 * difference / count : 0);
      plain_add(&row_loss[r], difference * difference), plain_add(&loss, difference * difference);
    }
  NOW("mse of %d x %d, count %g", (int)rows, (int)cols, count);
  for (int i = 0; i < mode_count; i++)
    for (int add = 0; add < 2; add++) {
      Mat got = plain_output(rows, cols, add), row = plain_output_dense(1, rows, 0);
      double sum = 3;
      MODES[i].t->mse(&MODES[i].a.context, rows, cols, count, x.x, x.ld, y.x, y.ld, &sum, got.x, got.ld, add, row.x);
      plain_check(&MODES[i], "dx", MODES[i].a.type, got, add, dx, FLOAT_ERROR);
      plain_check(&MODES[i], "row_loss", FLOAT_REAL, row, 0, row_loss, FLOAT_ERROR);
      plain_check_number(&MODES[i], "loss", sum, loss, FLOAT_ERROR);
    }
  memory_free();
}

void test_mse(void **unused) {
  (void)unused;
  for (int i = 0; i < COUNT(SHAPES); i++) mse_case(SHAPES[i][0], SHAPES[i][1], i % 4 == 3 ? 0 : 7);
  mse_case(3, 2047, 100), mse_case(3, 2048, 100), mse_case(3, 4100, 100);
}
