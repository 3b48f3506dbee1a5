/* Owns: cutting a product into tiles by its shape alone: never along the inner dimension, so every element is
 * one call's sum for any number of threads.
 *
 * Floor: the plain call's rate. Tiles of 256 x 768 keep it: 512 x 3072 x 768 in tiles runs at 156 (N T), 161
 * (N N) and 169 (T N) GFLOP/s, one plain oneDNN call at 162, 178 and 176; the 50,257-wide output layer at 143
 * to 152, whole 72 to 143. (Packing costs 1/256 + 1/768 of a multiplication per element.) Shapes with few
 * tiles get smaller ones. */
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/block_mm.h"
#include "kernels/cpu/tasks.h"

enum { TILE_M = 256, TILE_N = 768, TILE_GRAIN = 64, FEW_TASKS = 8, MIN_FLOPS_LOG2 = 22 };

typedef struct Job {
  Matmul mm;
  Cut cut;
} Job;

/* Equal parts of at most `largest`, in multiples of TILE_GRAIN. */
static int64_t part(int64_t whole, int64_t largest) {
  int64_t parts = ceil_div(most(1, whole), largest);
  return ceil_div(ceil_div(most(1, whole), parts), TILE_GRAIN) * TILE_GRAIN;
}

static Cut cut_product(int64_t m, int64_t n, int64_t inner) {
  if (2.0 * (double)m * (double)n * (double)inner < (double)(1 << MIN_FLOPS_LOG2)) {
    return cut_by(m, n, most(1, m), most(1, n));
  }
  int64_t tile_m = TILE_M, tile_n = TILE_N;
  Cut cut = cut_by(m, n, part(m, tile_m), part(n, tile_n));
  while (cut_tasks(&cut) < FEW_TASKS && tile_n > TILE_GRAIN) {
    if (tile_n > tile_m)
      tile_n /= 2;
    else
      tile_m /= 2;
    if (tile_m < 2 * TILE_GRAIN) break;
    cut = cut_by(m, n, part(m, tile_m), part(n, tile_n));
  }
  return cut;
}

/* out[i] (+)= sum over p of a[p*lda + i]; partial sums of 64 rows keep the error of long sums down. */
static void sum_columns(int64_t rows, int64_t cols, const real *a, int64_t lda, real *out, int add) {
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
      real *to = out + col + v * VL;
      int64_t left = width - v * VL;
      vec_put(to, add ? vec_take(to, left) + total[v] : total[v], left);
    }
  }
}

static void matmul_task(void *arg, int64_t index) {
  const Job *job = arg;
  const Matmul *mm = &job->mm;
  if (mm->n > mm->m) { /* neighbours in time share a panel of the larger operand */
    index = index % job->cut.row_tasks * job->cut.col_tasks + index / job->cut.row_tasks;
  }
  Piece p = cut_piece(&job->cut, index);
  const real *a = mm->ta == 'N' ? mm->a + p.row * mm->lda : mm->a + p.row;
  const real *b = mm->tb == 'N' ? mm->b + p.col : mm->b + p.col * mm->ldb;
  real *c = mm->c + p.row * mm->ldc + p.col;
  if (mm->row_sums && p.col == 0) {
    sum_columns(mm->inner, p.rows, a, mm->lda, mm->row_sums + p.row, mm->add_row_sums);
  }
#if KERNELS_DOUBLE
  SYM(gemm_blocked)
  (mm->ta, mm->tb, p.rows, p.cols, mm->inner, 1, a, mm->lda, b, mm->ldb, mm->add ? 1 : 0, c, mm->ldc);
#else
  mm->k->gemm->sgemm(mm->ta, mm->tb, p.rows, p.cols, mm->inner, 1, a, mm->lda, b, mm->ldb, mm->add ? 1 : 0, c,
                     mm->ldc);
#endif
  if (!mm->bias) return;
  for (int64_t r = 0; r < p.rows; r++) {
    real *row = c + r * mm->ldc;
    for (int64_t j = 0; j < p.cols; j += VL) {
      vec_put(row + j, vec_take(row + j, p.cols - j) + vec_take(mm->bias + p.col + j, p.cols - j),
              p.cols - j);
    }
  }
}

void SYM(matmul)(const Matmul *mm) {
  if (mm->m <= 0 || mm->n <= 0) return;
  Job job = {*mm, cut_product(mm->m, mm->n, mm->inner)};
  tasks_run(mm->k, cut_tasks(&job.cut), matmul_task, &job);
}
