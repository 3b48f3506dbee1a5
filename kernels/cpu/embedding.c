/* Owns: table rows by token, and their gradient. A token outside the table reads as NaN, so that it shows in
 * the loss, and receives no gradient.
 *
 * Floor: forward 8 d bytes a row; backward 4 vocab d bytes to overwrite the gradient and 12 d a row. Achieved
 * with GPT-2's table, one thread: forward 29 GB/s, backward 47 into an old gradient, 13 when overwriting
 * (memory's rate of stores). */
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"

enum { OWN_COLUMNS = 8 }; /* vectors of a row that one backward task owns */

typedef struct Embedding {
  int64_t rows, vocab, d;
  const int32_t *tokens;
  const real *from;
  int64_t ld_from;
  real *to;
  int64_t ld_to;
  Cut cut;
} Embedding;

static void forward_task(void *arg, int64_t index) {
  const Embedding *e = arg;
  Piece p = cut_piece(&e->cut, index);
  for (int64_t r = p.row; r < p.row + p.rows; r++) {
    int64_t token = e->tokens[r];
    real *y = e->to + r * e->ld_to;
    if (token >= 0 && token < e->vocab) {
      memcpy(y, e->from + token * e->d, (size_t)e->d * sizeof(real));
    } else {
      for (int64_t j = 0; j < e->d; j++) y[j] = (real)NAN;
    }
  }
}

void SYM(embedding_fwd)(const KernelContext *k, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens,
                        const real *table, real *y, int64_t ldy) {
  Embedding e = {rows, vocab, d, tokens, table, d, y, ldy, cut_rows(rows, d)};
  tasks_run(k, cut_tasks(&e.cut), forward_task, &e);
}

static void zero_task(void *arg, int64_t index) {
  const Embedding *e = arg;
  Piece p = cut_piece(&e->cut, index);
  memset(e->to + p.row * e->d, 0, (size_t)(p.rows * e->d) * sizeof(real));
}

/* Tokens repeat, so a task owns columns of the whole table and walks all rows in order. */
static void add_task(void *arg, int64_t index) {
  const Embedding *e = arg;
  Piece p = cut_piece(&e->cut, index);
  for (int64_t r = 0; r < e->rows; r++) {
    int64_t token = e->tokens[r];
    if (token < 0 || token >= e->vocab) continue;
    const real *dy = e->from + r * e->ld_from + p.col;
    real *to = e->to + token * e->d + p.col;
    for (int64_t j = 0; j < p.cols; j += VL) {
      vec_put(to + j, vec_take(to + j, p.cols - j) + vec_take(dy + j, p.cols - j), p.cols - j);
    }
  }
}

void SYM(embedding_bwd)(const KernelContext *k, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens,
                        const real *dy, int64_t lddy, real *dtable, int add) {
  Embedding e = {rows, vocab, d, tokens, dy, lddy, dtable, d, cut_rows(vocab, d)};
  if (!add) tasks_run(k, cut_tasks(&e.cut), zero_task, &e);
  e.cut = cut_by(1, d, 1, OWN_COLUMNS * VL);
  tasks_run(k, cut_tasks(&e.cut), add_task, &e);
}
