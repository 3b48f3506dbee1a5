/* Owns: initial values of parameters, random_normal and random_uniform of random.c for many indices at once.
 * Bits depend on seed, name and index only: not on variant, rank, shard or thread.
 *
 * Once per run, so without a floor: 3.5 ns a normal value on one thread, 0.45 s for GPT-2 124M. */
#include "kernels/cpu/tasks.h"
#include "kernels/cpu/variant.h"
#include "kernels/random.h"

enum { FILL_ZEROS, FILL_ONES, FILL_NORMAL, FILL_UNIFORM }; /* InitFill.kind, as kernels.h says */
enum { BATCH = 64 }; /* elements generated together: whole Philox blocks, so that the loops vectorise */

typedef struct Fill {
  InitFill init;
  int64_t first;
  real *w;
  Cut cut;
} Fill;

/* Elements [index, index + BATCH), index a multiple of BATCH. */
static void normal_batch(const InitFill *init, uint64_t index, real *out) {
  uint32_t radius[BATCH / 2], angle[BATCH / 2];
#pragma omp simd
  for (int i = 0; i < BATCH / 4; i++) {
    Philox p = philox(init->seed, init->name_hash, index / 4 + (uint64_t)i);
    radius[i] = p.word[0], angle[i] = p.word[1];
    radius[i + BATCH / 4] = p.word[2], angle[i + BATCH / 4] = p.word[3];
  }
  double sine[BATCH / 2], cosine[BATCH / 2];
#pragma omp simd
  for (int i = 0; i < BATCH / 2; i++) {
    SinCos pair = normal_pair(radius[i], angle[i]);
    sine[i] = init->a * pair.sin, cosine[i] = init->a * pair.cos;
  }
  for (int i = 0; i < BATCH / 4; i++) {
    out[4 * i] = (real)cosine[i], out[4 * i + 1] = (real)sine[i];
    out[4 * i + 2] = (real)cosine[i + BATCH / 4], out[4 * i + 3] = (real)sine[i + BATCH / 4];
  }
}

/* Rounded down, so that a itself is never reached. */
static real below(double value, double a) {
  real x = (real)value;
  if (a <= 0 || (double)x < a) return x;
#if KERNELS_DOUBLE
  return nextafter(x, -INFINITY);
#else
  return nextafterf(x, -INFINITY);
#endif
}

static void uniform_batch(const InitFill *init, uint64_t index, real *out) {
  for (int i = 0; i < BATCH; i++) {
    out[i] =
        below(init->a * (2 * random_uniform(init->seed, init->name_hash, index + (uint64_t)i) - 1), init->a);
  }
}

static void fill_task(void *arg, int64_t index) {
  const Fill *f = arg;
  Piece p = cut_piece(&f->cut, index);
  if (f->init.kind == FILL_ZEROS || f->init.kind == FILL_ONES) {
    for (int64_t i = p.col; i < p.col + p.cols; i++) f->w[i] = f->init.kind == FILL_ONES;
    return;
  }
  real batch[BATCH];
  int64_t end = f->first + p.col + p.cols;
  for (int64_t at = f->first + p.col; at < end;) {
    int64_t base = at / BATCH * BATCH, upto = least(end, base + BATCH);
    if (f->init.kind == FILL_NORMAL)
      normal_batch(&f->init, (uint64_t)base, batch);
    else
      uniform_batch(&f->init, (uint64_t)base, batch);
    memcpy(f->w + (at - f->first), batch + (at - base), (size_t)(upto - at) * sizeof(real));
    at = upto;
  }
}

void SYM(init_fill)(const KernelContext *k, const InitFill *fill, int64_t first, int64_t n, real *w) {
  Fill f = {*fill, first, w, cut_elements(1, n)};
  tasks_run(k, cut_tasks(&f.cut), fill_task, &f);
}
