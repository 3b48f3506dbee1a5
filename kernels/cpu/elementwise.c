/* Owns: copy, product, broadcast sum and its gradient, and the frame of elementwise.h.
 *
 * Floor: memory, 8 to 16 bytes an element; memcpy moves 28 GB/s here from L3. Achieved at 512 x 3072, one
 * thread: copy 30 GB/s, copy with add 45, mul 31, add_fwd 32, broadcast_bwd 46. */
#include "kernels/cpu/elementwise.h"

typedef struct Elementwise {
  RunFunction run;
  const real *a, *b;
  int64_t lda, ldb, brows;
  real *y;
  int64_t ldy;
  int add;
  Cut cut;
} Elementwise;

static void elementwise_task(void *arg, int64_t index) {
  const Elementwise *e = arg;
  Piece p = cut_piece(&e->cut, index);
  for (int64_t r = p.row; r < p.row + p.rows; r++) {
    const real *b = e->b ? e->b + r % e->brows * e->ldb + p.col : NULL;
    e->run(p.cols, e->a + r * e->lda + p.col, b, e->y + r * e->ldy + p.col, e->add);
  }
}

void SYM(elementwise)(const KernelContext *k, int64_t rows, int64_t cols, RunFunction run, const real *a,
                      int64_t lda, const real *b, int64_t ldb, int64_t brows, real *y, int64_t ldy, int add) {
  Elementwise e = {run, a, b, lda, ldb, most(1, brows), y, ldy, add, cut_elements(rows, cols)};
  tasks_run(k, cut_tasks(&e.cut), elementwise_task, &e);
}

RUN_FUNCTION(run_copy, a)
RUN_FUNCTION(run_mul, a *b)
RUN_FUNCTION(run_add, a + b)

void SYM(copy)(const KernelContext *k, int64_t rows, int64_t cols, const real *x, int64_t ldx, real *y,
               int64_t ldy, int add) {
  SYM(elementwise)(k, rows, cols, run_copy, x, ldx, NULL, 0, 0, y, ldy, add);
}

void SYM(mul)(const KernelContext *k, int64_t rows, int64_t cols, const real *a, int64_t lda, const real *b,
              int64_t ldb, real *y, int64_t ldy, int add) {
  SYM(elementwise)(k, rows, cols, run_mul, a, lda, b, ldb, rows, y, ldy, add);
}

void SYM(add_fwd)(const KernelContext *k, int64_t rows, int64_t cols, int64_t brows, const real *a,
                  int64_t lda, const real *b, int64_t ldb, real *y, int64_t ldy) {
  SYM(elementwise)(k, rows, cols, run_add, a, lda, b, ldb, brows, y, ldy, 0);
}

typedef struct Broadcast {
  int64_t rows, brows;
  const real *dy;
  int64_t lddy;
  real *db;
  int64_t lddb;
  int add;
  Cut cut;
} Broadcast;

/* A task owns some rows and columns of db and adds the rows of dy that went into them in row order. */
static void broadcast_task(void *arg, int64_t index) {
  const Broadcast *c = arg;
  Piece p = cut_piece(&c->cut, index);
  for (int64_t b = p.row; b < p.row + p.rows; b++) {
    for (int64_t j = p.col; j < p.col + p.cols; j += VL) {
      int64_t left = p.col + p.cols - j;
      vec sum = {0};
      for (int64_t r = b; r < c->rows; r += c->brows) sum += vec_take(c->dy + r * c->lddy + j, left);
      real *to = c->db + b * c->lddb + j;
      vec_put(to, c->add ? vec_take(to, left) + sum : sum, left);
    }
  }
}

void SYM(broadcast_bwd)(const KernelContext *k, int64_t rows, int64_t cols, int64_t brows, const real *dy,
                        int64_t lddy, real *db, int64_t lddb, int add) {
  int64_t col_step = brows < 8 ? 16 * VL : TASK_ELEMENTS; /* few rows to own: share the columns */
  Broadcast c = {rows, brows, dy,  lddy,
                 db,   lddb,  add, cut_by(brows, cols, 1, least(most(1, cols), col_step))};
  if (brows >= 8)
    c.cut = cut_by(brows, cols, most(1, TASK_ELEMENTS / most(1, cols * ceil_div(rows, brows))), col_step);
  tasks_run(k, cut_tasks(&c.cut), broadcast_task, &c);
}
