/* Owns: layer and root-mean-square normalisation over rows.
 *
 * Backward has two passes: weight gradients by column blocks (a task owns its columns, so no workspace and
 * one order of addition), then dx by rows. The first pass comes first so that dx may overwrite dy.
 *
 * Floor: forward 8 bytes an element, backward 16 (dx, added) + 8 (weights), where copy moves 30 GB/s.
 * Achieved at 512 x 768, one thread: layernorm 28 and 36 GB/s, rmsnorm 32 and 37. */
#include "kernels/cpu/gradient.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"

enum {
  COLUMNS = 8,
  ROW_BLOCK = 64
}; /* vectors a column task owns; rows whose partial sums are added as one */

typedef struct Norm {
  int64_t d;
  double eps;
  const stored *x, *w, *bias;
  stored *y;
  int64_t ldx, ldy;
  real *mean, *rstd; /* mean NULL: root mean square */
  const stored *dy;
  int64_t lddy;
  stored *dx;
  FloatType type; /* of dw and dbias */
  void *dw, *dbias;
  int64_t lddx;
  int add_x, add_w, add_b;
  Cut cut;
} Norm;

typedef struct Pair {
  vec a, b;
} Pair;

INLINE real row_sum(const stored *x, int64_t n) {
  vec sum[4] = {{0}};
  int64_t j = 0;
  for (; j + 4 * VL <= n; j += 4 * VL) {
    for (int v = 0; v < 4; v++) sum[v] += vec_load(x + j + v * VL);
  }
  for (; j < n; j += VL) sum[0] += vec_take(x + j, n - j);
  return vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Sum of (x - mean)^2; lanes beyond n count as mean. */
INLINE real row_squares(const stored *x, int64_t n, real mean) {
  vec sum[4] = {{0}};
  int64_t j = 0;
  for (; j + 4 * VL <= n; j += 4 * VL) {
    for (int v = 0; v < 4; v++) {
      vec d = vec_load(x + j + v * VL) - mean;
      sum[v] += d * d;
    }
  }
  for (; j < n; j += VL) {
    vec d = vec_take_filled(x + j, n - j, mean) - mean;
    sum[0] += d * d;
  }
  return vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static void forward_task(void *arg, int64_t index) {
  const Norm *l = arg;
  Piece p = cut_piece(&l->cut, index);
  int64_t d = l->d;
  for (int64_t r = p.row; r < p.row + p.rows; r++) {
    const stored *x = l->x + r * l->ldx;
    stored *y = l->y + r * l->ldy;
    real mean = l->mean ? row_sum(x, d) / (real)d : 0;
    real rstd = (real)(1 / sqrt((double)(row_squares(x, d, mean) / (real)d) + l->eps));
    for (int64_t j = 0; j < d; j += VL) {
      vec value = (vec_take(x + j, d - j) - mean) * rstd * vec_take(l->w + j, d - j);
      if (l->bias) value += vec_take(l->bias + j, d - j);
      vec_put(y + j, value, d - j);
    }
    if (l->mean) l->mean[r] = mean;
    l->rstd[r] = rstd;
  }
}

/* Sums of g and of g xhat over a row, g = dy w. */
INLINE Pair row_products(const Norm *l, const stored *x, const stored *dy, real mean, real rstd) {
  Pair s[2] = {{{0}, {0}}, {{0}, {0}}};
  int64_t j = 0, d = l->d;
  for (; j + 2 * VL <= d; j += 2 * VL) {
    for (int v = 0; v < 2; v++) {
      vec g = vec_load(dy + j + v * VL) * vec_load(l->w + j + v * VL);
      s[v].a += g;
      s[v].b += g * ((vec_load(x + j + v * VL) - mean) * rstd);
    }
  }
  for (; j < d; j += VL) {
    vec g = vec_take(dy + j, d - j) * vec_take(l->w + j, d - j);
    s[0].a += g;
    s[0].b += g * ((vec_take(x + j, d - j) - mean) * rstd);
  }
  return (Pair){s[0].a + s[1].a, s[0].b + s[1].b};
}

static void input_task(void *arg, int64_t index) {
  const Norm *l = arg;
  Piece p = cut_piece(&l->cut, index);
  int64_t d = l->d;
  for (int64_t r = p.row; r < p.row + p.rows; r++) {
    const stored *x = l->x + r * l->ldx, *dy = l->dy + r * l->lddy;
    stored *dx = l->dx + r * l->lddx;
    real mean = l->mean ? l->mean[r] : 0, rstd = l->rstd[r];
    Pair sums = row_products(l, x, dy, mean, rstd);
    real mean_g = l->mean ? vec_sum(sums.a) / (real)d : 0, mean_gx = vec_sum(sums.b) / (real)d;
    for (int64_t j = 0; j < d; j += VL) {
      vec xhat = (vec_take(x + j, d - j) - mean) * rstd;
      vec g = vec_take(dy + j, d - j) * vec_take(l->w + j, d - j);
      vec value = rstd * (g - mean_g - xhat * mean_gx);
      if (l->add_x) value += vec_take(dx + j, d - j);
      vec_put(dx + j, value, d - j);
    }
  }
}

/* Columns from `col` on of a gradient. */
INLINE void put_gradient(const Norm *l, void *gradient, int add, int64_t col, vec v, int64_t left) {
  typed_put(l->type, gradient, col, add ? typed_take(l->type, gradient, col, left) + v : v, left);
}

/* Adds the rows [row, row + rows) of one column block to its sums of dy xhat and dy. */
INLINE void column_sums(const Norm *l, int64_t row, int64_t rows, int64_t col, int64_t cols, Pair *total) {
  Pair sum[COLUMNS];
  for (int v = 0; v < COLUMNS; v++) sum[v] = (Pair){{0}, {0}};
  for (int64_t r = row; r < row + rows; r++) {
    const stored *x = l->x + r * l->ldx + col, *dy = l->dy + r * l->lddy + col;
    real mean = l->mean ? l->mean[r] : 0, rstd = l->rstd[r];
    for (int v = 0; v < COLUMNS; v++) {
      if (v * VL >= cols) break;
      vec g = vec_take(dy + v * VL, cols - v * VL);
      sum[v].a += g * ((vec_take(x + v * VL, cols - v * VL) - mean) * rstd);
      sum[v].b += g;
    }
  }
  for (int v = 0; v < COLUMNS; v++) {
    total[v].a += sum[v].a;
    total[v].b += sum[v].b;
  }
}

static void weight_task(void *arg, int64_t index) {
  const Norm *l = arg;
  Piece p = cut_piece(&l->cut, index);
  Pair total[COLUMNS];
  for (int v = 0; v < COLUMNS; v++) total[v] = (Pair){{0}, {0}};
  for (int64_t r = 0; r < p.rows; r += ROW_BLOCK)
    column_sums(l, r, least(ROW_BLOCK, p.rows - r), p.col, p.cols, total);
  for (int v = 0; v < COLUMNS && v * VL < p.cols; v++) {
    int64_t col = p.col + v * VL, left = p.cols - v * VL;
    put_gradient(l, l->dw, l->add_w, col, total[v].a, left);
    if (l->dbias) put_gradient(l, l->dbias, l->add_b, col, total[v].b, left);
  }
}

static void forward(const KernelContext *k, int64_t rows, Norm *l) {
  l->cut = cut_rows(rows, l->d);
  tasks_run(k, cut_tasks(&l->cut), forward_task, l);
}

static void backward(const KernelContext *k, int64_t rows, Norm *l) {
  l->cut = cut_by(most(rows, 0), l->d, most(rows, 1), COLUMNS * VL);
  l->cut.row_tasks = 1; /* also without rows: the gradients are then zero */
  tasks_run(k, cut_tasks(&l->cut), weight_task, l);
  l->cut = cut_rows(rows, l->d);
  tasks_run(k, cut_tasks(&l->cut), input_task, l);
}

void SYM(layernorm_fwd)(const KernelContext *k, int64_t rows, int64_t d, double eps, const stored *x,
                        int64_t ldx, const stored *w, const stored *bias, stored *y, int64_t ldy, real *mean,
                        real *rstd) {
  Norm l = {.d = d, .eps = eps, .x = x, .ldx = ldx, .w = w, .bias = bias, .y = y, .ldy = ldy};
  l.mean = mean, l.rstd = rstd;
  forward(k, rows, &l);
}

void SYM(rmsnorm_fwd)(const KernelContext *k, int64_t rows, int64_t d, double eps, const stored *x, int64_t ldx,
                      const stored *w, stored *y, int64_t ldy, real *rstd) {
  Norm l = {.d = d, .eps = eps, .x = x, .ldx = ldx, .w = w, .y = y, .ldy = ldy, .rstd = rstd};
  forward(k, rows, &l);
}

/* mean and rstd are only read in backward: the struct is shared with forward, which writes them. */
void SYM(layernorm_bwd)(const KernelContext *k, int64_t rows, int64_t d, const stored *x, int64_t ldx,
                        const stored *w, const real *mean, const real *rstd, const stored *dy, int64_t lddy,
                        stored *dx, int64_t lddx, void *dw, void *dbias, int add_x, int add_w, int add_b) {
  Norm l = {
      .d = d, .x = x, .ldx = ldx, .w = w, .mean = (real *)mean, .rstd = (real *)rstd, .dy = dy, .lddy = lddy};
  l.dx = dx, l.lddx = lddx, l.type = gradient_type(k), l.dw = dw, l.dbias = dbias;
  l.add_x = add_x, l.add_w = add_w, l.add_b = add_b;
  backward(k, rows, &l);
}

void SYM(rmsnorm_bwd)(const KernelContext *k, int64_t rows, int64_t d, const stored *x, int64_t ldx,
                      const stored *w, const real *rstd, const stored *dy, int64_t lddy, stored *dx, int64_t lddx,
                      void *dw, int add_x, int add_w) {
  Norm l = {.d = d, .x = x, .ldx = ldx, .w = w, .rstd = (real *)rstd, .dy = dy, .lddy = lddy};
  l.dx = dx, l.lddx = lddx, l.type = gradient_type(k), l.dw = dw, l.add_x = add_x, l.add_w = add_w;
  backward(k, rows, &l);
}
