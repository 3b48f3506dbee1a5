/* Owns: dropout, y = x/(1-p) with probability 1-p, else 0. Backward is the same map.
 *
 * The mask is a function of (seed, step, site, global sample, row in the sample, column): random_mix of random.h.
 *
 * Floor: 8 bytes an element, where copy moves 30 GB/s. Achieved at 512 x 3072, one thread: 29.5 GB/s. */
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"
#include "kernels/random.h"

typedef struct Dropout {
  DropoutSite site;
  const stored *x;
  stored *y;
  int64_t ldx, ldy;
  int add;
  uint32_t threshold; /* of the mix: below is dropped */
  real scale;
  Cut cut;
} Dropout;

static RowKeys row_keys(const DropoutSite *site, int64_t row) {
  uint64_t sample = site->first_sample + (uint64_t)(row / site->rows_per_sample);
  uint64_t in_sample = (uint64_t)(row % site->rows_per_sample);
  return random_row_keys(site->seed, site->step, site->site, sample, in_sample);
}

static void dropout_task(void *arg, int64_t index) {
  const Dropout *d = arg;
  Piece p = cut_piece(&d->cut, index);
  const uint32_t threshold = d->threshold;
  const real scale = d->scale, keep_old = d->add ? 1 : 0;
  for (int64_t r = p.row; r < p.row + p.rows; r++) {
    RowKeys keys = row_keys(&d->site, r);
    const stored *x = d->x + r * d->ldx;
    stored *y = d->y + r * d->ldy;
    int64_t end = p.col + p.cols;
    if (keep_old != 0) {
#pragma omp simd
      for (int64_t j = p.col; j < end; j++)
        y[j] = to_stored(to_real(y[j]) + (random_mix((uint32_t)j, keys) < threshold ? 0 : scale * to_real(x[j])));
    } else {
#pragma omp simd
      for (int64_t j = p.col; j < end; j++)
        y[j] = to_stored(random_mix((uint32_t)j, keys) < threshold ? 0 : scale * to_real(x[j]));
    }
  }
}

void SYM(dropout)(const KernelContext *k, const DropoutSite *site, int64_t rows, int64_t cols, const stored *x,
                  int64_t ldx, stored *y, int64_t ldy, int add) {
  Dropout d = {*site, x, y, ldx, ldy, add, 0, 0, cut_elements(rows, cols)};
  double threshold = site->p * 0x1p32 + 0.5;
  d.threshold = threshold >= 0x1p32 ? UINT32_MAX : (uint32_t)threshold;
  d.scale = site->p < 1 ? (real)(1 / (1 - site->p)) : 0;
  tasks_run(k, cut_tasks(&d.cut), dropout_task, &d);
}
