/* Owns: copy, product, multiplication by a number, broadcast sum and its gradient, and the frame of elementwise.h.
 *
 * Floor: memory, 8 to 16 bytes an element; memcpy moves 28 GB/s here from L3. Achieved at 512 x 3072, one
 * thread: copy 30 GB/s, copy with add 45, mul 31, add_fwd 32, broadcast_bwd 46; scale takes as long as copy. */
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/gradient.h"

typedef struct Elementwise {
  RunFunction run;
  const stored *a, *b;
  int64_t lda, ldb, brows;
  stored *y;
  int64_t ldy;
  int add;
  Cut cut;
} Elementwise;

static void elementwise_task(void *arg, int64_t index) {
  const Elementwise *e = arg;
  Piece p = cut_piece(&e->cut, index);
  for (int64_t r = p.row; r < p.row + p.rows; r++) {
    const stored *b = e->b ? e->b + r % e->brows * e->ldb + p.col : NULL;
    e->run(p.cols, e->a + r * e->lda + p.col, b, e->y + r * e->ldy + p.col, e->add);
  }
}

void SYM(elementwise)(const KernelContext *k, int64_t rows, int64_t cols, RunFunction run, const stored *a,
                      int64_t lda, const stored *b, int64_t ldb, int64_t brows, stored *y, int64_t ldy, int add) {
  Elementwise e = {run, a, b, lda, ldb, most(1, brows), y, ldy, add, cut_elements(rows, cols)};
  tasks_run(k, cut_tasks(&e.cut), elementwise_task, &e);
}

RUN_FUNCTION(run_mul, a *b)
RUN_FUNCTION(run_add, a + b)

typedef struct Copy {
  const stored *x;
  int64_t ldx;
  FloatType type; /* of y */
  void *y;
  int64_t ldy;
  int add;
  Cut cut;
} Copy;

static void copy_task(void *arg, int64_t index) {
  const Copy *c = arg;
  Piece p = cut_piece(&c->cut, index);
  for (int64_t r = p.row; r < p.row + p.rows; r++) {
    const stored *x = c->x + r * c->ldx;
    for (int64_t j = p.col; j < p.col + p.cols; j += VL) {
      int64_t left = p.col + p.cols - j, to = r * c->ldy + j;
      vec v = vec_take(x + j, left);
      typed_put(c->type, c->y, to, c->add ? typed_take(c->type, c->y, to, left) + v : v, left);
    }
  }
}

void SYM(copy)(const KernelContext *k, int64_t rows, int64_t cols, const stored *x, int64_t ldx, void *y,
               int64_t ldy, int add) {
  Copy c = {x, ldx, gradient_type(k), y, ldy, add, cut_elements(rows, cols)};
  tasks_run(k, cut_tasks(&c.cut), copy_task, &c);
}

void SYM(mul)(const KernelContext *k, int64_t rows, int64_t cols, const stored *a, int64_t lda, const stored *b,
              int64_t ldb, stored *y, int64_t ldy, int add) {
  SYM(elementwise)(k, rows, cols, run_mul, a, lda, b, ldb, rows, y, ldy, add);
}

typedef struct Scale {
  real by;
  const stored *x;
  int64_t ldx;
  stored *y;
  int64_t ldy;
  int add;
  Cut cut;
} Scale;

static void scale_task(void *arg, int64_t index) {
  const Scale *c = arg;
  Piece p = cut_piece(&c->cut, index);
  for (int64_t r = p.row; r < p.row + p.rows; r++) {
    for (int64_t j = p.col; j < p.col + p.cols; j += VL) {
      int64_t left = p.col + p.cols - j;
      stored *y = c->y + r * c->ldy + j;
      vec value = c->by * vec_take(c->x + r * c->ldx + j, left);
      vec_put(y, c->add ? vec_take(y, left) + value : value, left);
    }
  }
}

void SYM(scale)(const KernelContext *k, int64_t rows, int64_t cols, double by, const stored *x, int64_t ldx, stored *y,
                int64_t ldy, int add) {
  Scale c = {(real)by, x, ldx, y, ldy, add, cut_elements(rows, cols)};
  tasks_run(k, cut_tasks(&c.cut), scale_task, &c);
}

void SYM(add_fwd)(const KernelContext *k, int64_t rows, int64_t cols, int64_t brows, const stored *a,
                  int64_t lda, const stored *b, int64_t ldb, stored *y, int64_t ldy) {
  SYM(elementwise)(k, rows, cols, run_add, a, lda, b, ldb, brows, y, ldy, 0);
}

typedef struct Broadcast {
  int64_t rows, brows;
  const stored *dy;
  int64_t lddy;
  FloatType type; /* of db */
  void *db;
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
      int64_t to = b * c->lddb + j;
      typed_put(c->type, c->db, to, c->add ? typed_take(c->type, c->db, to, left) + sum : sum, left);
    }
  }
}

void SYM(broadcast_bwd)(const KernelContext *k, int64_t rows, int64_t cols, int64_t brows, const stored *dy,
                        int64_t lddy, void *db, int64_t lddb, int add) {
  int64_t col_step = brows < 8 ? 16 * VL : TASK_ELEMENTS; /* few rows to own: share the columns */
  Broadcast c = {rows, brows, dy,  lddy, gradient_type(k),
                 db,   lddb,  add, cut_by(brows, cols, 1, least(most(1, cols), col_step))};
  if (brows >= 8)
    c.cut = cut_by(brows, cols, most(1, TASK_ELEMENTS / most(1, cols * ceil_div(rows, brows))), col_step);
  tasks_run(k, cut_tasks(&c.cut), broadcast_task, &c);
}
