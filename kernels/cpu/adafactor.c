/* Owns: Adafactor (arXiv 1804.04235, with the rates and floors of torch.optim.Adafactor) on ranges of a parameter's
 * elements, so that a shard updates what it holds.
 *
 * Sums of squared gradients over rows and columns go over shard borders. They are sums of integers: each square is cut
 * off at a fixed grid, so neither the order nor the partition of the sum changes a bit. `grid` is a power of two chosen
 * such that the squares of all gradients together stay below 2^62.
 *
 * Floor: memory, three passes over the gradient and one and a half over the parameter, 28 bytes an element. */
#include "kernels/cpu/gradient.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"
#include "kernels/cpu/weights.h"

enum { COLUMNS = 1024, CHUNK = 1024, SUM_TASKS = 16, SUM_CHUNK = 4096, RUN = 256, ROW_TASK = 4 * TASK_ELEMENTS };

/* --- sums over rows and columns ------------------------------------------------------------------------- */

typedef struct Squares {
  int64_t first, end, cols, rows_step; /* elements [first, end); rows of one task */
  double grid;
  FloatType type; /* of the gradient */
  const void *g;  /* of element `first` */
  int64_t *row_sums, *col_sums;
} Squares;

static inline int64_t on_grid(real g, double grid) {
  return (int64_t)((double)g * (double)g * grid);
}

/* Adds the squares of `n` elements from the gradient's element `at` on to `sums`, one by one; returns their sum. */
static int64_t add_squares(const Squares *s, int64_t at, int64_t n, int64_t *sums) {
  real run[RUN];
  int64_t total = 0;
  for (int64_t i = 0; i < n; i += RUN) {
    int64_t part = least(RUN, n - i);
    for (int64_t j = 0; j < part; j += VL) vec_put(run + j, typed_take(s->type, s->g, at + i + j, part - j), part - j);
    for (int64_t j = 0; j < part; j++) {
      int64_t square = on_grid(run[j], s->grid);
      sums[i + j] += square;
      total += square;
    }
  }
  return total;
}

/* Rows belong to one task alone, columns to all: integers may be added in any order. */
static void add_columns(const Squares *s, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  int64_t sums[COLUMNS] = {0};
  for (int64_t r = row; r < row + rows; r++) {
    int64_t begin = r * s->cols + column, low = most(begin, s->first), high = least(begin + columns, s->end);
    if (low < high) s->row_sums[r] += add_squares(s, low - s->first, high - low, sums + (low - begin));
  }
  for (int64_t j = 0; j < columns; j++) __atomic_fetch_add(&s->col_sums[column + j], sums[j], __ATOMIC_RELAXED);
}

static void squares_task(void *arg, int64_t index) {
  const Squares *s = arg;
  int64_t row = s->first / s->cols + index * s->rows_step, end = ceil_div(s->end, s->cols);
  int64_t rows = least(s->rows_step, end - row);
  for (int64_t c = 0; c < s->cols; c += COLUMNS) add_columns(s, row, rows, c, least(COLUMNS, s->cols - c));
}

static void elements_task(void *arg, int64_t index) {
  const Squares *s = arg;
  int64_t first = s->first + index * TASK_ELEMENTS, end = least(s->end, first + TASK_ELEMENTS);
  add_squares(s, first - s->first, end - first, s->row_sums + first);
}

void SYM(adafactor_sums)(const KernelContext *k, int64_t first, int64_t n, int64_t cols, double grid, const void *g,
                         int64_t *row_sums, int64_t *col_sums) {
  Squares s = {.first = first, .end = first + n, .cols = cols, .grid = grid, .g = g};
  s.type = gradient_type(k);
  s.row_sums = row_sums, s.col_sums = col_sums;
  if (col_sums == NULL) {
    tasks_run(k, ceil_div(n, TASK_ELEMENTS), elements_task, &s);
    return;
  }
  s.rows_step = most(1, ROW_TASK / cols);
  tasks_run(k, ceil_div(ceil_div(s.end, cols) - first / cols, s.rows_step), squares_task, &s);
}

void SYM(adafactor_average)(int64_t n, double weight, double factor, const int64_t *sums, real *v) {
  for (int64_t i = 0; i < n; i++) v[i] = (real)((double)v[i] + weight * ((double)sums[i] * factor - (double)v[i]));
}

/* --- the update ------------------------------------------------------------------------------------------- */

typedef struct Update {
  const AdafactorRates *rates;
  int64_t first, n, cols;
  const real *row, *col; /* col NULL: row holds a second moment for every element */
  FloatType type;
  const void *g;
  Weights w;
  int64_t acc[SUM_TASKS][EXACT_WORDS];
  int64_t step;
} Update;

/* u = g / sqrt(second moment), of `n` elements from `at` on that share `row_factor`; var: the rest of their second moments. */
static void divide(const Update *u, real row_factor, const real *var, int64_t n, int64_t at, real *out) {
  const vec floor = vec_all((real)u->rates->floor);
  const real scale = (real)u->rates->grad_scale;
  for (int64_t i = 0; i < n; i += VL) {
    vec second = vec_max(row_factor * vec_take(var + i, n - i), floor);
    vec_put(out + i, scale * typed_take(u->type, u->g, at + i, n - i) / vec_sqrt(second), n - i);
  }
}

/* Elements [at, at + n) of the range. */
static void updates(const Update *u, int64_t at, int64_t n, real *out) {
  if (u->col == NULL) {
    divide(u, 1, u->row + u->first + at, n, at, out);
    return;
  }
  for (int64_t i = 0, run; i < n; i += run) {
    int64_t element = u->first + at + i, column = element % u->cols;
    run = least(n - i, u->cols - column);
    real row_factor = (real)((double)u->row[element / u->cols] * u->rates->row_scale);
    divide(u, row_factor, u->col + column, run, at + i, out + i);
  }
}

static void norm_task(void *arg, int64_t index) {
  Update *u = arg;
  KernelContext serial = {0};
  real chunk[SUM_CHUNK];
  int64_t end = least(u->n, (index + 1) * u->step);
  for (int64_t i = index * u->step; i < end; i += SUM_CHUNK) {
    int64_t n = least(SUM_CHUNK, end - i);
    updates(u, i, n, chunk);
    SYM(sum_squares)(&serial, n, chunk, u->acc[index]);
  }
}

void SYM(adafactor_norm)(const KernelContext *k, const AdafactorRates *rates, int64_t first, int64_t n, int64_t cols,
                         const real *row, const real *col, const void *g, int64_t *acc) {
  Update u = {.rates = rates, .first = first, .n = n, .cols = cols, .row = row, .col = col, .g = g};
  u.type = gradient_type(k);
  int64_t tasks = least(SUM_TASKS, ceil_div(n, TASK_ELEMENTS));
  if (tasks == 0) return;
  u.step = ceil_div(ceil_div(n, tasks), SUM_CHUNK) * SUM_CHUNK;
  tasks = ceil_div(n, u.step);
  tasks_run(k, tasks, norm_task, &u);
  for (int64_t i = 0; i < tasks; i++) exact_merge(acc, u.acc[i]);
}

static void adafactor_task(void *arg, int64_t index) {
  const Update *u = arg;
  const real keep = (real)u->rates->keep, step = (real)u->rates->step;
  real chunk[CHUNK];
  int64_t end = least(u->n, (index + 1) * TASK_ELEMENTS);
  for (int64_t at = index * TASK_ELEMENTS; at < end; at += CHUNK) {
    int64_t n = least(CHUNK, end - at);
    updates(u, at, n, chunk);
    for (int64_t i = 0; i < n; i += VL)
      weights_put(&u->w, at + i, keep * weights_take(&u->w, at + i, n - i) - step * vec_take(chunk + i, n - i), n - i);
  }
}

void SYM(adafactor)(const KernelContext *k, const AdafactorRates *rates, int64_t first, int64_t n, int64_t cols,
                    const real *row, const real *col, const void *g, void *w) {
  Update u = {.rates = rates, .first = first, .n = n, .cols = cols, .row = row, .col = col, .g = g, .w = weights_of(k, w)};
  u.type = gradient_type(k);
  tasks_run(k, ceil_div(n, TASK_ELEMENTS), adafactor_task, &u);
}
