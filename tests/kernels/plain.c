/* Owns: the helpers of plain.h. */
#include "tests/kernels/plain.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PADDED = 3 };
static const float PADDING = 77;

Mode MODES[MOST_MODES];
int mode_count;
char plain_now[256];

/* --- modes -------------------------------------------------------------------------------------------------------- */

static const char *const TYPES[] = {"float", "bf16", "f16"};

/* The product that is built into a variant. */
static const Gemm *gemm_of(const char *variant) {
  const char *chosen = getenv("FSDPC_ISA");
  char *kept = chosen ? strdup(chosen) : NULL;
  setenv("FSDPC_ISA", variant, 1);
  const Gemm *gemm = gemm_builtin();
  if (kept)
    setenv("FSDPC_ISA", kept, 1);
  else
    unsetenv("FSDPC_ISA");
  free(kept);
  return gemm;
}

static void add_mode(const char *variant, FloatType type, FloatType gradient, int threads) {
  const KernelTable *table = kernels_cpu_named(variant);
  if (!table) return;
  Mode *m = &MODES[mode_count++];
  *m = (Mode){.t = type == FLOAT_REAL ? table : &half_adapter, .pool = pool_of(threads)};
  m->a.context = (KernelContext){threads > 1 ? &m->pool.parallel : NULL, gemm_of(variant), gradient, NULL};
  m->a.type = type;
  if (type != FLOAT_REAL) m->a.table = kernels_cpu_half_named(type, variant);
  snprintf(m->name, sizeof m->name, "%s, %s, gradients %s, %d threads", variant, TYPES[type], TYPES[gradient], threads);
}

void modes_open(void) {
  const char *best = kernels_cpu()->name;
  add_mode(best, FLOAT_REAL, FLOAT_REAL, 1);
  add_mode(best, FLOAT_REAL, FLOAT_REAL, 3);
  add_mode(best, FLOAT_REAL, FLOAT_BF16, 3);
  add_mode(best, FLOAT_BF16, FLOAT_BF16, 1);
  add_mode(best, FLOAT_BF16, FLOAT_REAL, 3);
  add_mode(best, FLOAT_F16, FLOAT_F16, 3);
  if (strcmp(best, "avx2") != 0) add_mode("avx2", FLOAT_REAL, FLOAT_REAL, 1);
  if (strcmp(best, "portable") != 0) add_mode("portable", FLOAT_REAL, FLOAT_REAL, 1);
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

float plain_value(void) {
  static uint64_t state = 7;
  return (float)rint(value_next(&state) * 64) / 32;
}

static Mat open_matrix(int64_t rows, int64_t cols, int64_t ld) {
  Mat m = {memory_get((size_t)(rows * ld) * sizeof(float)), rows, cols, ld};
  for (int64_t i = 0; i < rows * ld; i++) m.x[i] = PADDING;
  return m;
}

static Mat filled(Mat m) {
  for (int64_t r = 0; r < m.rows; r++)
    for (int64_t j = 0; j < m.cols; j++) m.x[r * m.ld + j] = plain_value();
  return m;
}

Mat plain_input(int64_t rows, int64_t cols) {
  return filled(open_matrix(rows, cols, cols + PADDED));
}

Mat plain_dense(int64_t rows, int64_t cols) {
  return filled(open_matrix(rows, cols, cols));
}

void plain_scale(Mat m, float by) {
  for (int64_t r = 0; r < m.rows; r++)
    for (int64_t j = 0; j < m.cols; j++) m.x[r * m.ld + j] *= by;
}

double plain_before(int64_t row, int64_t col) {
  return (double)((row * 5 + col * 3) % 13 - 6) / 4;
}

static Mat begun(Mat m, int add) {
  for (int64_t r = 0; r < m.rows; r++)
    for (int64_t j = 0; j < m.cols; j++) m.x[r * m.ld + j] = add ? (float)plain_before(r, j) : NAN;
  return m;
}

Mat plain_output(int64_t rows, int64_t cols, int add) {
  return begun(open_matrix(rows, cols, cols + PADDED), add);
}

Mat plain_output_dense(int64_t rows, int64_t cols, int add) {
  return begun(open_matrix(rows, cols, cols), add);
}

Sum *plain_sums(int64_t n) {
  return memory_get((size_t)n * sizeof(Sum));
}

void plain_add(Sum *sum, double term) {
  sum->value += term;
  sum->size += fabs(term);
}

int32_t *plain_ids(int64_t n, int64_t vocab) {
  int32_t *id = memory_get((size_t)n * sizeof *id);
  for (int64_t i = 0; i < n; i++) id[i] = (int32_t)((i * 37 + i * i % 11 + 1) % vocab);
  return id;
}

float plain_round(FloatType type, double x) {
  return type == FLOAT_REAL ? (float)x : float_of_half(type, half_of_float(type, (float)x));
}

static bool lends_halves(const Mode *m) {
  return m->a.type == FLOAT_REAL && m->a.context.gradient != FLOAT_REAL;
}

void *plain_lend(const Mode *m, Mat y) {
  if (y.x == NULL || !lends_halves(m)) return y.x;
  Half *half = memory_get((size_t)(y.rows * y.ld) * sizeof *half);
  for (int64_t i = 0; i < y.rows * y.ld; i++) half[i] = half_of_float(m->a.context.gradient, y.x[i]);
  return half;
}

void plain_read(const Mode *m, Mat y, const void *lent) {
  if (y.x == NULL || !lends_halves(m)) return;
  for (int64_t i = 0; i < y.rows * y.ld; i++) y.x[i] = float_of_half(m->a.context.gradient, ((const Half *)lent)[i]);
}

/* --- comparison --------------------------------------------------------------------------------------------------- */

static bool near(FloatType type, double got, Sum want, double error) {
  static const double rounding[] = {0x1.01p-24, 0x1.01p-8, 0x1.01p-11}, least[] = {1e-37, 1e-37, 0x1p-25};
  if (isnan(want.value) || isinf(want.value)) return isnan(want.value) ? isnan(got) : got == want.value;
  return fabs(got - want.value) <= rounding[type] * fabs(want.value) + error * want.size + least[type];
}

void plain_check(const Mode *m, const char *what, FloatType type, Mat got, int add, const Sum *want, double error) {
  for (int64_t r = 0; r < got.rows; r++) {
    for (int64_t j = 0; j < got.cols; j++) {
      Sum sum = want[r * got.cols + j];
      if (add) plain_add(&sum, plain_before(r, j));
      double x = (double)plain_at(got, r, j);
      if (near(type, x, sum, error)) continue;
      fail_msg("%s (%s), add %d: %s at %d, %d is %.9g, not %.9g", plain_now, m->name, add, what, (int)r, (int)j, x, sum.value);
    }
    for (int64_t j = got.cols; j < got.ld; j++)
      if (plain_at(got, r, j) != PADDING) fail_msg("%s (%s): %s wrote beyond row %d", plain_now, m->name, what, (int)r);
  }
}

void plain_check_number(const Mode *m, const char *what, double got, Sum want, double error) {
  if (!near(FLOAT_REAL, got, want, error)) fail_msg("%s (%s): %s is %.17g, not %.17g", plain_now, m->name, what, got, want.value);
}
