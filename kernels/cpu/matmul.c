/* Owns: cutting a product into tiles by its shape alone: never along the inner dimension, so every element is
 * one task's sum, taken in one order, for any number of threads.
 *
 * Floor: the rate of one plain call. Two threads on 2 cores of a shared Sapphire Rapids, GFLOP/s, within training
 * steps of a 10M model: N N 330 to 380, T N 285 to 300 (229 to 300 where the library reads A in place), N T 300 to 320
 * (286 to 310 where it transposes B). The 50,257-wide output layer, 1024 rows of 768: 269, 285, 296. Which tiles
 * are taken matters little: 36 sizes of them were tried. Shapes with few tiles get smaller ones.
 *
 * One thread, operands and results in the shared cache, GFLOP/s of 2048 rows, 384 to 1536 and back: T N 188 and 192, N T
 * 185 and 193, N N 214 and 195, and 215 in any of these forms where all lies in the core's own cache. */
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/block_mm.h"
#include "kernels/cpu/tasks.h"
#include "kernels/cpu/turn.h"
#include <stdbool.h>

enum { TILE_M = 256, TILE_N = 768, ROW_GRAIN = 8, COL_GRAIN = 64, EVEN_TASKS = 8, MANY_TASKS = 64, MIN_FLOPS_LOG2 = 22 };
/* A panel takes 192 to 288 KiB in float, and pays from so many rows or columns of a tile on. What is transposed serves
 * all rows of a tile: so its columns are the panel's, and tall; what is gathered, all its columns. A product that is one tile
 * whatever its size may have more rows than a gathered panel has columns. */
enum { PANEL = 192, PANEL_DEPTH = 384, PANEL_PAYS = 128, PANEL_TILE_M = 512, GATHERED_DEPTH = 192 };
enum { STAGE = 256 }; /* rows and columns of a panel that is widened: three of them are 768 KiB of stack */

typedef struct Job {
  Matmul mm;
  Cut cut;
} Job;

/* A dimension in about equal parts, in multiples of `grain`. */
static int64_t part(int64_t whole, int64_t parts, int64_t grain) {
  return ceil_div(ceil_div(most(1, whole), parts), grain) * grain;
}

static int64_t common_divisor(int64_t a, int64_t b) {
  return b == 0 ? a : common_divisor(b, a % b);
}

/* Few tasks are a multiple of EVEN_TASKS, so that 2, 4 or 8 threads share them evenly. */
static Cut cut_product(const Matmul *mm) {
  int64_t m = mm->m, n = mm->n, inner = mm->inner;
  bool turned = KERNELS_STORED == 0 && mm->ta == 'N' && mm->tb == 'T';
  if (2.0 * (double)m * (double)n * (double)inner < (double)(1 << MIN_FLOPS_LOG2)) {
    return cut_by(m, n, most(1, m), most(1, n));
  }
  int64_t rows = ceil_div(m, turned ? PANEL_TILE_M : TILE_M), cols = ceil_div(n, turned ? PANEL : TILE_N);
  while (rows * cols < EVEN_TASKS) {
    if (n * rows > m * cols)
      cols *= 2;
    else
      rows *= 2;
  }
  int64_t multiple = EVEN_TASKS / common_divisor(cols, EVEN_TASKS);
  if (rows * cols < MANY_TASKS) rows = ceil_div(rows, multiple) * multiple;
  return cut_by(m, n, part(m, rows, ROW_GRAIN), part(n, cols, COL_GRAIN));
}

/* out[first + i] (+)= sum over p of a[p*lda + i]; partial sums of 64 rows keep the error of long sums down. */
static void sum_columns(int64_t rows, int64_t cols, const stored *a, int64_t lda, FloatType type, void *out,
                        int64_t first, int add) {
  for (int64_t col = 0; col < cols; col += 4 * VL) {
    int64_t width = least(4 * VL, cols - col);
    vec total[4] = {{0}};
    for (int64_t r0 = 0; r0 < rows; r0 += 64) {
      vec sum[4] = {{0}};
      for (int64_t r = r0; r < least(rows, r0 + 64); r++) {
        for (int v = 0; v < 4; v++) {
          if (v * VL < width) sum[v] += vec_take(a + r * lda + col + v * VL, width - v * VL);
        }
      }
      for (int v = 0; v < 4; v++) total[v] += sum[v];
    }
    for (int v = 0; v < 4 && v * VL < width; v++) {
      int64_t to = first + col + v * VL, left = width - v * VL;
      typed_put(type, out, to, add ? typed_take(type, out, to, left) + total[v] : total[v], left);
    }
  }
}

#if KERNELS_STORED == 0
/* C[m,n] (+)= op(A) op(B) of one tile, or a part of one; C is `real`, as all the rest. */
static void multiply(const Matmul *mm, char ta, char tb, int64_t m, int64_t n, int64_t inner, const real *a,
                     int64_t lda, const real *b, int64_t ldb, int add, real *c) {
#if KERNELS_DOUBLE
  SYM(gemm_blocked)(ta, tb, m, n, inner, 1, a, lda, b, ldb, add ? 1 : 0, c, mm->ldc);
#else
  mm->k->gemm->sgemm(ta, tb, m, n, inner, 1, a, lda, b, ldb, add ? 1 : 0, c, mm->ldc);
#endif
}

static void multiply_in_place(const Matmul *mm, const Piece *p, const real *a, const real *b, real *c) {
  if (mm->row_sums && p->col == 0)
    sum_columns(mm->inner, p->rows, a, mm->lda, FLOAT_REAL, mm->row_sums, p->row, mm->add_row_sums);
  multiply(mm, mm->ta, mm->tb, p->rows, p->cols, mm->inner, a, mm->lda, b, mm->ldb, mm->add, c);
}

/* B is transposed panel by panel, for all rows of the tile at once: the library's own packing of it costs more. */
static void multiply_turned_b(const Matmul *mm, const Piece *p, const real *a, const real *b, real *c) {
  real panel[PANEL_DEPTH * PANEL];
  for (int64_t k = 0; k < mm->inner; k += PANEL_DEPTH) {
    int64_t depth = least(PANEL_DEPTH, mm->inner - k);
    for (int64_t j = 0; j < p->cols; j += PANEL) {
      int64_t cols = least(PANEL, p->cols - j);
      turn_scaled(cols, depth, b + j * mm->ldb + k, mm->ldb, 1, panel, PANEL);
      multiply(mm, 'N', 'N', p->rows, cols, depth, a + k, mm->lda, panel, PANEL, k > 0 || mm->add, c + j);
    }
  }
}

/* A's columns are gathered panel by panel: read in place, rows a multiple of a large power of two apart evict each
 * other from the caches before the library has used the whole of a line. */
static void multiply_gathered_a(const Matmul *mm, const Piece *p, const real *a, const real *b, real *c) {
  real panel[GATHERED_DEPTH * TILE_M];
  for (int64_t k = 0; k < mm->inner; k += GATHERED_DEPTH) {
    int64_t depth = least(GATHERED_DEPTH, mm->inner - k);
    for (int64_t r = 0; r < depth; r++)
      memcpy(panel + r * TILE_M, a + (k + r) * mm->lda, (size_t)p->rows * sizeof(real));
    if (mm->row_sums && p->col == 0)
      sum_columns(depth, p->rows, panel, TILE_M, FLOAT_REAL, mm->row_sums, p->row, k > 0 || mm->add_row_sums);
    multiply(mm, 'T', 'N', p->rows, p->cols, depth, panel, TILE_M, b + k * mm->ldb, mm->ldb, k > 0 || mm->add, c);
  }
}

/* Short rows are read in place: none of A's or B's evicts another. So is what has none: gradients are then zero. */
static bool gathering_pays(const Matmul *mm, const Piece *p) {
  return mm->inner > 0 && p->rows <= TILE_M && p->cols >= PANEL_PAYS && (mm->lda >= 512 || mm->ldb >= 1024);
}

static void multiply_real(const Matmul *mm, const Piece *p) {
  const real *a = mm->ta == 'N' ? mm->a + p->row * mm->lda : mm->a + p->row;
  const real *b = mm->tb == 'N' ? mm->b + p->col : mm->b + p->col * mm->ldb;
  real *c = (real *)mm->c + p->row * mm->ldc + p->col;
  if (mm->ta == 'N' && mm->tb == 'T' && p->rows >= PANEL_PAYS)
    multiply_turned_b(mm, p, a, b, c);
  else if (mm->ta == 'T' && mm->tb == 'N' && gathering_pays(mm, p))
    multiply_gathered_a(mm, p, a, b, c);
  else
    multiply_in_place(mm, p, a, b, c);
  if (!mm->bias) return;
  for (int64_t r = 0; r < p->rows; r++) {
    real *row = c + r * mm->ldc;
    for (int64_t j = 0; j < p->cols; j += VL) {
      vec_put(row + j, vec_take(row + j, p->cols - j) + vec_take(mm->bias + p->col + j, p->cols - j),
              p->cols - j);
    }
  }
}
#endif

#if !KERNELS_DOUBLE
/* A panel of STAGE x STAGE elements at most, widened. */
static void widen_panel(int64_t rows, int64_t cols, const stored *x, int64_t ld, real *to) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < cols; j += VL) vec_put(to + r * STAGE + j, vec_take(x + r * ld + j, cols - j), cols - j);
  }
}

/* Sums of one tile, rounded into C. */
static void put_tile(const Matmul *mm, const Piece *p, const real *tile) {
  for (int64_t r = 0; r < p->rows; r++) {
    for (int64_t j = 0; j < p->cols; j += VL) {
      int64_t left = p->cols - j, to = (p->row + r) * mm->ldc + p->col + j;
      vec sum = vec_take(tile + r * STAGE + j, left);
      if (mm->bias) sum += vec_take(mm->bias + p->col + j, left);
      if (mm->add) sum += typed_take(mm->c_type, mm->c, to, left);
      typed_put(mm->c_type, mm->c, to, sum, left);
    }
  }
}

/* Elements of 16 bits: panels are widened and multiplied in float, a stretch of the inner dimension after the other, and
 * the tile is rounded when it is whole. */
static void multiply_tile(const Matmul *mm, const Piece *p) {
  real a[STAGE * STAGE], b[STAGE * STAGE], tile[STAGE * STAGE];
  if (mm->inner <= 0) memset(tile, 0, sizeof tile);
  for (int64_t first = 0; first < mm->inner; first += STAGE) {
    int64_t depth = least(STAGE, mm->inner - first);
    if (mm->ta == 'N')
      widen_panel(p->rows, depth, mm->a + p->row * mm->lda + first, mm->lda, a);
    else
      widen_panel(depth, p->rows, mm->a + first * mm->lda + p->row, mm->lda, a);
    if (mm->tb == 'N')
      widen_panel(depth, p->cols, mm->b + first * mm->ldb + p->col, mm->ldb, b);
    else
      widen_panel(p->cols, depth, mm->b + p->col * mm->ldb + first, mm->ldb, b);
    mm->k->gemm->sgemm(mm->ta, mm->tb, p->rows, p->cols, depth, 1, a, STAGE, b, STAGE, first > 0 ? 1 : 0, tile, STAGE);
  }
  put_tile(mm, p, tile);
}

static void multiply_staged(const Matmul *mm, const Piece *p) {
  if (mm->row_sums && p->col == 0)
    sum_columns(mm->inner, p->rows, mm->a + p->row, mm->lda, mm->c_type, mm->row_sums, p->row, mm->add_row_sums);
  Cut cut = cut_by(p->rows, p->cols, STAGE, STAGE);
  for (int64_t i = 0; i < cut_tasks(&cut); i++) {
    Piece part = cut_piece(&cut, i);
    part.row += p->row, part.col += p->col;
    multiply_tile(mm, &part);
  }
}
#endif

static void matmul_task(void *arg, int64_t index) {
  const Job *job = arg;
  const Matmul *mm = &job->mm;
  if (mm->n > mm->m) { /* neighbours in time share a panel of the larger operand */
    index = index % job->cut.row_tasks * job->cut.col_tasks + index / job->cut.row_tasks;
  }
  Piece p = cut_piece(&job->cut, index);
#if KERNELS_STORED == 0
  if (mm->c_type == FLOAT_REAL) {
    multiply_real(mm, &p);
    return;
  }
#endif
#if !KERNELS_DOUBLE
  multiply_staged(mm, &p);
#endif
}

void SYM(matmul)(const Matmul *mm) {
  if (mm->m <= 0 || mm->n <= 0) return;
  Job job = {*mm, cut_product(mm)};
  tasks_run(mm->k, cut_tasks(&job.cut), matmul_task, &job);
}
