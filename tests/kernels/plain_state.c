/* Owns: the tests of plain_test.c for kernels that know no activations: optimizers, sums of squares, sums over ranks, copies in
 * 16 bits, initial values. */
#include "kernels/random.h"
#include "tests/kernels/plain.h"
#include <string.h>

/* Around vectors of 4, 8 and 16; around one task and in several. */
static const int64_t COUNTS[] = {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 1003, 32767, 32768, 32769, 70001};

/* --- sums of squares ---------------------------------------------------------------------------------------------- */

static void sum_squares_case(int64_t n) {
  Mat g = plain_dense(1, n);
  double sum = 6.25;
  for (int64_t i = 0; i < n; i++) sum += (double)g.x[i] * (double)g.x[i];
  NOW("sum of %d squares", (int)n);
  for (int i = 0; i < mode_count; i++) {
    int64_t acc[EXACT_WORDS] = {0};
    exact_add(acc, 6.25);
    MODES[i].t->sum_squares(&MODES[i].a.context, n, plain_lend(&MODES[i], g), acc);
    plain_check_number(&MODES[i], "sum", exact_value(acc), (Sum){sum, 0}, EXACT);
  }
  memory_free();
}

void test_sum_squares(void **unused) {
  (void)unused;
  sum_squares_case(0);
  for (int i = 0; i < COUNT(COUNTS); i++) sum_squares_case(COUNTS[i]);
  sum_squares_case(16 * 32768 + 1000); /* more than the most tasks take */
}

/* --- updates ------------------------------------------------------------------------------------------------------ */

typedef enum { ADAMW, LION, SGD, SGD_PLAIN, OPTIMIZERS } Optimizer;

static const char *const OPTIMIZER_NAMES[] = {"adamw", "lion", "sgd with momentum", "sgd"};
static const AdamwRates ADAMW_RATES = {1e-2, 0.9, 0.95, 1e-8, 0.1, 0.271, 0.142625, 0.5};
static const LionRates LION_RATES = {1e-2, 0.5, 0.75, 0.1, 0.5}; /* sums are exact, and so are their signs */
static const SgdRates SGD_RATES = {1e-2, 0.9, 0.1, 0.5};

typedef struct Update {
  Mat g, w, m, v;
  Sum *new_w, *new_m, *new_v;
} Update;

static void adamw_element(Update *u, int64_t i) {
  const AdamwRates *r = &ADAMW_RATES;
  double g = r->grad_scale * (double)u->g.x[i], w = (double)u->w.x[i];
  plain_add(&u->new_m[i], r->beta1 * (double)u->m.x[i]), plain_add(&u->new_m[i], (1 - r->beta1) * g);
  plain_add(&u->new_v[i], r->beta2 * (double)u->v.x[i]), plain_add(&u->new_v[i], (1 - r->beta2) * g * g);
  double root = sqrt(u->new_v[i].value / r->bias2) + r->eps, step = r->lr * u->new_m[i].value / r->bias1 / root;
  u->new_w[i] = (Sum){w - r->lr * r->decay * w - step, fabs(w) + r->lr * u->new_m[i].size / r->bias1 / root};
}

static void lion_element(Update *u, int64_t i) {
  const LionRates *r = &LION_RATES;
  double g = r->grad_scale * (double)u->g.x[i], w = (double)u->w.x[i], m = (double)u->m.x[i];
  double c = r->beta1 * m + (1 - r->beta1) * g;
  plain_add(&u->new_m[i], r->beta2 * m), plain_add(&u->new_m[i], (1 - r->beta2) * g);
  plain_add(&u->new_w[i], w), plain_add(&u->new_w[i], -r->lr * r->decay * w), plain_add(&u->new_w[i], -r->lr * ((c > 0) - (c < 0)));
}

static void sgd_element(Update *u, int64_t i, int momentum) {
  const SgdRates *r = &SGD_RATES;
  double w = (double)u->w.x[i];
  if (momentum) plain_add(&u->new_m[i], r->momentum * (double)u->m.x[i]);
  plain_add(&u->new_m[i], r->grad_scale * (double)u->g.x[i]);
  u->new_w[i] = (Sum){w - r->lr * (u->new_m[i].value + r->decay * w), fabs(w) + r->lr * u->new_m[i].size};
}

static Update open_update(Optimizer optimizer, int64_t n) {
  Update u = {plain_dense(1, n), plain_dense(1, n), plain_dense(1, n), plain_dense(1, n), plain_sums(n), plain_sums(n), plain_sums(n)};
  for (int64_t i = 0; i < n; i++) {
    u.v.x[i] = u.v.x[i] * u.v.x[i] + 0x1p-6f;
    if (i % 11 == 3) u.g.x[i] = u.m.x[i] = u.v.x[i] = 0;
    if (optimizer == ADAMW) adamw_element(&u, i);
    if (optimizer == LION) lion_element(&u, i);
    if (optimizer >= SGD) sgd_element(&u, i, optimizer == SGD);
  }
  return u;
}

static Mat copy_of(Mat m) {
  Mat copy = plain_output_dense(m.rows, m.cols, 0);
  memcpy(copy.x, m.x, (size_t)(m.rows * m.cols) * sizeof(float));
  return copy;
}

/* Weights of this type; stochastic ones become one of their two neighbours. */
static void check_update(const Update *u, Optimizer optimizer, const Mode *mode, const WeightStore *store) {
  FloatType type = store ? store->type : FLOAT_REAL;
  int64_t n = u->g.cols;
  HalfAdapter a = mode->a; /* first in it: the context, which half_adapter takes the rest from */
  a.context.weights = store;
  const KernelContext *k = &a.context;
  const void *g = plain_lend(mode, u->g);
  Mat w = copy_of(u->w), m = copy_of(u->m), v = copy_of(u->v);
  Half *half = memory_get((size_t)n * sizeof *half);
  for (int64_t i = 0; i < n; i++) half[i] = half_of_float(type, w.x[i]);
  void *at = type == FLOAT_REAL ? (void *)w.x : half;
  if (optimizer == ADAMW) mode->t->adamw(k, n, &ADAMW_RATES, g, at, m.x, v.x);
  if (optimizer == LION) mode->t->lion(k, n, &LION_RATES, g, at, m.x);
  if (optimizer >= SGD) mode->t->sgd(k, n, &SGD_RATES, g, at, optimizer == SGD ? m.x : NULL);
  for (int64_t i = 0; i < n && type != FLOAT_REAL; i++) w.x[i] = float_of_half(type, half[i]);
  plain_check(mode, "w", type, w, 0, u->new_w, FLOAT_ERROR + (store && store->stochastic ? 0x1p-8 : 0));
  if (optimizer != SGD_PLAIN) plain_check(mode, "m", FLOAT_REAL, m, 0, u->new_m, FLOAT_ERROR);
  if (optimizer == ADAMW) plain_check(mode, "v", FLOAT_REAL, v, 0, u->new_v, FLOAT_ERROR);
}

void test_optimizers(void **unused) {
  (void)unused;
  const WeightStore stores[] = {{.type = FLOAT_BF16}, {.type = FLOAT_F16}, {.type = FLOAT_BF16, .stochastic = 1, .seed = 7, .first = 9}};
  for (Optimizer optimizer = 0; optimizer < OPTIMIZERS; optimizer++)
    for (int c = 0; c < COUNT(COUNTS); c++) {
      Update u = open_update(optimizer, COUNTS[c]);
      NOW("%s of %d", OPTIMIZER_NAMES[optimizer], (int)COUNTS[c]);
      for (int i = 0; i < mode_count; i++) {
        check_update(&u, optimizer, &MODES[i], NULL);
        for (int s = 0; s < COUNT(stores); s++)
          if (COUNTS[c] < 2000 || s == i % COUNT(stores)) check_update(&u, optimizer, &MODES[i], &stores[s]);
      }
      memory_free();
    }
}

/* --- Adafactor ---------------------------------------------------------------------------------------------------- */

/* Elements [first, first + n) of a parameter of rows x cols, or of a vector of `rows` elements, where cols is 1. */
typedef struct Range {
  int64_t rows, cols, first, n;
  int vector;
} Range;

static const double GRID = 0x1p30;
static const int64_t SUMMED = 5; /* what sums begin as */

static int64_t *begun_sums(int64_t n) {
  int64_t *sums = memory_get((size_t)n * sizeof *sums);
  for (int64_t i = 0; i < n; i++) sums[i] = SUMMED;
  return sums;
}

static void check_sums(const Mode *m, const char *what, int64_t n, const int64_t *got, const int64_t *want) {
  for (int64_t i = 0; i < n; i++)
    if (got[i] != want[i])
      fail_msg("%s (%s): sum over %s %d is %lld, not %lld", plain_now, m->name, what, (int)i, (long long)got[i], (long long)want[i]);
}

static void check_adafactor_sums(const Range *p, const Mode *m, Mat g) {
  int64_t *rows = begun_sums(p->rows), *cols = begun_sums(p->cols), *got_rows = begun_sums(p->rows), *got_cols = begun_sums(p->cols);
  for (int64_t i = 0; i < p->n; i++) {
    int64_t square = (int64_t)floor((double)g.x[i] * (double)g.x[i] * GRID);
    rows[(p->first + i) / p->cols] += square;
    if (!p->vector) cols[(p->first + i) % p->cols] += square;
  }
  m->t->adafactor_sums(&m->a.context, p->first, p->n, p->cols, GRID, plain_lend(m, g), got_rows, p->vector ? NULL : got_cols);
  check_sums(m, "row", p->rows, got_rows, rows);
  check_sums(m, "column", p->cols, got_cols, cols);
}

typedef struct Adafactor {
  Mat g, w, row, col;
  Sum *new_w, norm;
} Adafactor;

/* Of a vector, row holds the second moments themselves. Some lie below the floor. */
static Adafactor open_adafactor(const Range *p, const AdafactorRates *r) {
  Adafactor a = {plain_dense(1, p->n), plain_dense(1, p->n), plain_dense(1, p->rows), plain_dense(1, p->cols), plain_sums(p->n), {0, 0}};
  for (int64_t i = 0; i < p->rows; i++) a.row.x[i] = a.row.x[i] * a.row.x[i];
  for (int64_t j = 0; j < p->cols; j++) a.col.x[j] = a.col.x[j] * a.col.x[j];
  for (int64_t i = 0; i < p->n; i++) {
    int64_t e = p->first + i;
    double second = p->vector ? (double)a.row.x[e] : (double)a.row.x[e / p->cols] * (double)a.col.x[e % p->cols] * r->row_scale;
    double u = r->grad_scale * (double)a.g.x[i] / sqrt(fmax(second, r->floor));
    plain_add(&a.norm, u * u);
    plain_add(&a.new_w[i], r->keep * (double)a.w.x[i]), plain_add(&a.new_w[i], -r->step * u);
  }
  return a;
}

static void adafactor_case(Range p) {
  const AdafactorRates rates = {.grad_scale = 0.5, .row_scale = p.vector ? 1 : 0.75, .floor = 1e-2, .keep = 0.99, .step = 0.01};
  Adafactor a = open_adafactor(&p, &rates);
  NOW("adafactor of %d x %d, %d from %d on", (int)p.rows, (int)p.cols, (int)p.n, (int)p.first);
  for (int i = 0; i < mode_count; i++) {
    const Mode *m = &MODES[i];
    const float *col = p.vector ? NULL : a.col.x;
    int64_t acc[EXACT_WORDS] = {0};
    Mat w = copy_of(a.w);
    check_adafactor_sums(&p, m, a.g);
    m->t->adafactor_norm(&m->a.context, &rates, p.first, p.n, p.cols, a.row.x, col, plain_lend(m, a.g), acc);
    plain_check_number(m, "norm", exact_value(acc), a.norm, FLOAT_ERROR);
    m->t->adafactor(&m->a.context, &rates, p.first, p.n, p.cols, a.row.x, col, plain_lend(m, a.g), w.x);
    plain_check(m, "w", FLOAT_REAL, w, 0, a.new_w, FLOAT_ERROR);
  }
  memory_free();
}

/* v += weight (factor sums - v) */
static void average_case(int64_t n) {
  Mat v = plain_dense(1, n);
  int64_t *sums = begun_sums(n);
  Sum *want = plain_sums(n);
  for (int64_t i = 0; i < n; i++) {
    sums[i] += i * i << 20;
    plain_add(&want[i], 0.75 * (double)v.x[i]), plain_add(&want[i], 0.25 * 0x1p-30 * (double)sums[i]);
  }
  NOW("adafactor's average of %d", (int)n);
  for (int i = 0; i < mode_count; i++) {
    Mat got = copy_of(v);
    MODES[i].t->adafactor_average(n, 0.25, 0x1p-30, sums, got.x);
    plain_check(&MODES[i], "v", FLOAT_REAL, got, 0, want, FLOAT_ERROR);
  }
  memory_free();
}

void test_adafactor(void **unused) {
  (void)unused;
  for (int i = 0; i < COUNT(COUNTS); i++) adafactor_case((Range){COUNTS[i] + 9, 1, i % 9, COUNTS[i], 1}), average_case(COUNTS[i] % 300);
  static const int64_t cols[] = {1, 3, 15, 16, 17, 255, 256, 257, 1023, 1024, 1025, 2100};
  for (int i = 0; i < COUNT(cols); i++) {
    adafactor_case((Range){7, cols[i], 0, 7 * cols[i], 0});
    if (cols[i] > 1) adafactor_case((Range){7, cols[i], cols[i] + 1, 4 * cols[i], 0}); /* from within a row to within another */
    adafactor_case((Range){7, cols[i], 2 * cols[i], 1 + cols[i] / 2, 0});
  }
  adafactor_case((Range){7, 30, 0, 0, 0});
  adafactor_case((Range){2000, 70, 64, 139000, 0}); /* several tasks of rows */
  adafactor_case((Range){2, 140000, 999, 150000, 0}); /* a row is more than a task */
  adafactor_case((Range){16 * 32768 + 1000, 1, 0, 16 * 32768 + 1000, 1}); /* more than the most tasks take */
}

/* --- sums over ranks ---------------------------------------------------------------------------------------------- */

/* sum(lo, n) = sum(lo, p) + sum(lo + p, n - p), p the largest power of two below n; each addition rounded. */
static float tree(FloatType type, Mat sources, int64_t i, int32_t lo, int32_t n) {
  int32_t p = 1;
  if (n == 1) return plain_at(sources, lo, i);
  while (2 * p < n) p *= 2;
  double left = (double)tree(type, sources, i, lo, p), right = (double)tree(type, sources, i, lo + p, n - p);
  return plain_round(type, left + right);
}

static void tree_case(FloatType type, int64_t n, int32_t ranks) {
  Mat sources = plain_input(ranks, n);
  for (int32_t r = 0; r < ranks; r++) /* far enough apart that 16 bits round */
    for (int64_t i = 0; i < n; i++) sources.x[r * sources.ld + i] *= (float)(1 << (r * 3 + i) % 7);
  Sum *want = plain_sums(n);
  const void **pointers = memory_get((size_t)ranks * sizeof *pointers);
  for (int64_t i = 0; i < n; i++) want[i].value = (double)tree(type, sources, i, 0, ranks);
  for (int32_t r = 0; r < ranks; r++) {
    Half *half = memory_get((size_t)n * sizeof *half);
    for (int64_t i = 0; i < n; i++) half[i] = half_of_float(type, plain_at(sources, r, i));
    pointers[r] = type == FLOAT_REAL ? (const void *)(sources.x + r * sources.ld) : half;
  }
  NOW("sum of %d numbers of type %d over %d ranks", (int)n, (int)type, (int)ranks);
  for (int i = 0; i < mode_count; i++) {
    if (MODES[i].a.type != FLOAT_REAL) continue; /* the same kernel */
    for (int add = 0; add < 2; add++) {
      Mat y = plain_output_dense(1, n, add);
      Half *half = memory_get((size_t)(n + 1) * sizeof *half);
      for (int64_t j = 0; j < n; j++) half[j] = half_of_float(type, y.x[j]);
      half[n].bits = 77;
      MODES[i].t->tree_sum(n, ranks, type, pointers, type == FLOAT_REAL ? (void *)y.x : half, add);
      for (int64_t j = 0; j < n && type != FLOAT_REAL; j++) y.x[j] = float_of_half(type, half[j]);
      plain_check(&MODES[i], "y", type, y, add, want, EXACT);
      assert_int_equal(half[n].bits, 77);
    }
  }
  memory_free();
}

void test_tree_sum(void **unused) {
  (void)unused;
  static const int64_t ns[] = {1, 3, 4, 7, 9, 15, 17, 1023, 1024, 1025, 2100};
  for (int32_t ranks = 1; ranks <= 21; ranks++)
    for (FloatType type = FLOAT_REAL; type <= FLOAT_F16; type++) tree_case(type, ns[ranks % COUNT(ns)], ranks);
  for (int i = 0; i < COUNT(ns); i++)
    for (FloatType type = FLOAT_REAL; type <= FLOAT_F16; type++) tree_case(type, ns[i], 5), tree_case(type, ns[i], 1);
}

/* --- copies in 16 bits -------------------------------------------------------------------------------------------- */

void test_narrow(void **unused) {
  (void)unused;
  for (int c = 0; c < COUNT(COUNTS); c++) {
    int64_t n = COUNTS[c];
    Mat x = plain_dense(1, n);
    for (int64_t i = 0; i < n; i++) x.x[i] *= 1 + (float)i / 1024;
    NOW("%d numbers in 16 bits", (int)n);
    for (int i = 0; i < mode_count; i++)
      for (FloatType type = FLOAT_BF16; type <= FLOAT_F16; type++) {
        Half *y = memory_get((size_t)(n + 1) * sizeof *y);
        y[n].bits = 77;
        MODES[i].t->narrow(&MODES[i].a.context, n, type, x.x, y);
        for (int64_t j = 0; j < n; j++) assert_int_equal(y[j].bits, half_of_float(type, x.x[j]).bits);
        assert_int_equal(y[n].bits, 77);
      }
    memory_free();
  }
}

/* --- initial values ----------------------------------------------------------------------------------------------- */

/* Zeros, ones, normal, uniform: InitFill.kind. */
static double initial(const InitFill *fill, uint64_t index) {
  switch (fill->kind) {
  case 2: return fill->a * random_normal(fill->seed, fill->name_hash, index);
  case 3: return fill->a * (2 * random_uniform(fill->seed, fill->name_hash, index) - 1);
  default: return fill->kind;
  }
}

static void init_case(int kind, double a, int64_t first, int64_t n) {
  const InitFill fill = {kind, a, 42, 12345};
  NOW("initial values of kind %d, %d from %d on", kind, (int)n, (int)first);
  Sum *want = plain_sums(n);
  for (int64_t i = 0; i < n; i++) want[i].value = initial(&fill, (uint64_t)(first + i));
  for (int i = 0; i < mode_count; i++) {
    Mat w = plain_output_dense(1, n, 0);
    MODES[i].t->init_fill(&MODES[i].a.context, &fill, first, n, w.x);
    plain_check(&MODES[i], "w", FLOAT_REAL, w, 0, want, EXACT);
  }
  memory_free();
}

/* Element 76737155 lies nearer to `a` than to the float below it, and must not become `a`. */
static void check_uniform_stays_below(double a) {
  const InitFill fill = {3, a, 42, 12345};
  enum { NEAR_TOP = 76737155, N = 21 };
  Sum want[N] = {{0, 0}};
  NOW("uniform values just below %g", a);
  for (int i = 0; i < N; i++) want[i].value = initial(&fill, (uint64_t)(NEAR_TOP - 10 + i)), want[i].size = a;
  assert_true((double)(float)want[10].value >= a);
  for (int i = 0; i < mode_count; i++) {
    Mat w = plain_output_dense(1, N, 0);
    MODES[i].t->init_fill(&MODES[i].a.context, &fill, NEAR_TOP - 10, N, w.x);
    plain_check(&MODES[i], "w", FLOAT_REAL, w, 0, want, 0x1p-24);
    for (int j = 0; j < N; j++) assert_true((double)w.x[j] < a);
  }
  memory_free();
}

void test_init(void **unused) {
  (void)unused;
  static const int64_t ns[] = {1, 3, 63, 64, 65, 200, 32768, 33000}, firsts[] = {0, 1, 63, 64, 130};
  for (int kind = 0; kind < 4; kind++)
    for (int i = 0; i < 2 * COUNT(ns); i++) init_case(kind, 0.1, firsts[i % COUNT(firsts)], ns[i % COUNT(ns)]);
  init_case(3, 0, 5, 100);
  check_uniform_stays_below(0.5), check_uniform_stays_below(0.1);
}
