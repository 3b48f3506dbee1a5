/* Owns: the copy of master weights in 16 bits.
 *
 * Floor: memory, 6 bytes an element. */
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"

typedef struct Narrow {
  FloatType type;
  const real *x;
  Half *y;
  Cut cut;
} Narrow;

static void narrow_task(void *arg, int64_t index) {
  const Narrow *w = arg;
  Piece p = cut_piece(&w->cut, index);
  for (int64_t i = p.col; i < p.col + p.cols; i += VL) {
    int64_t left = p.col + p.cols - i;
    typed_put(w->type, w->y, i, vec_take(w->x + i, left), left);
  }
}

void SYM(narrow)(const KernelContext *k, int64_t n, FloatType type, const real *x, Half *y) {
  Narrow w = {type, x, y, cut_elements(1, n)};
  tasks_run(k, cut_tasks(&w.cut), narrow_task, &w);
}
