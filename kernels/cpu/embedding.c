/* Owns: table rows by token, and their gradient. A token outside the table reads as NaN, so that it shows in
 * the loss, and receives no gradient.
 *
 * Floor: forward 8 d bytes a row; backward 4 vocab d bytes to overwrite the gradient and 12 d a row. Achieved
 * with GPT-2's table, one thread: forward 29 GB/s, backward 47 into an old gradient, 13 when overwriting
 * (memory's rate of stores). */
#include "kernels/cpu/gradient.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"

enum { OWN_COLUMNS = 8 }; /* vectors of a row that one backward task owns */

typedef struct Embedding {
  int64_t rows, vocab, d;
  const int32_t *tokens;
  const stored *from;
  int64_t ld_from;
  stored *to; /* forward */
  int64_t ld_to;
  FloatType type; /* of the table's gradient */
  void *dtable;
  Cut cut;
} Embedding;

static void forward_task(void *arg, int64_t index) {
  const Embedding *e = arg;
  Piece p = cut_piece(&e->cut, index);
  for (int64_t r = p.row; r < p.row + p.rows; r++) {
    int64_t token = e->tokens[r];
    stored *y = e->to + r * e->ld_to;
    if (token >= 0 && token < e->vocab) {
      memcpy(y, e->from + token * e->d, (size_t)e->d * sizeof *y);
    } else {
      for (int64_t j = 0; j < e->d; j++) y[j] = to_stored((real)NAN);
    }
  }
}

void SYM(embedding_fwd)(const KernelContext *k, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens,
                        const stored *table, stored *y, int64_t ldy) {
  Embedding e = {.rows = rows, .vocab = vocab, .d = d, .tokens = tokens, .from = table, .ld_from = d};
  e.to = y, e.ld_to = ldy, e.cut = cut_rows(rows, d);
  tasks_run(k, cut_tasks(&e.cut), forward_task, &e);
}

static void zero_task(void *arg, int64_t index) {
  const Embedding *e = arg;
  Piece p = cut_piece(&e->cut, index);
  size_t row = (size_t)e->d * typed_bytes(e->type);
  memset((char *)e->dtable + (size_t)p.row * row, 0, (size_t)p.rows * row);
}

/* Tokens repeat, so a task owns columns of the whole table and walks all rows in order. */
static void add_task(void *arg, int64_t index) {
  const Embedding *e = arg;
  Piece p = cut_piece(&e->cut, index);
  for (int64_t r = 0; r < e->rows; r++) {
    int64_t token = e->tokens[r];
    if (token < 0 || token >= e->vocab) continue;
    const stored *dy = e->from + r * e->ld_from + p.col;
    int64_t to = token * e->d + p.col;
    for (int64_t j = 0; j < p.cols; j += VL) {
      int64_t left = p.cols - j;
      vec sum = typed_take(e->type, e->dtable, to + j, left) + vec_take(dy + j, left);
      typed_put(e->type, e->dtable, to + j, sum, left);
    }
  }
}

void SYM(embedding_bwd)(const KernelContext *k, int64_t rows, int64_t vocab, int64_t d, const int32_t *tokens,
                        const stored *dy, int64_t lddy, void *dtable, int add) {
  Embedding e = {.rows = rows, .vocab = vocab, .d = d, .tokens = tokens, .from = dy, .ld_from = lddy};
  e.type = gradient_type(k), e.dtable = dtable, e.cut = cut_rows(vocab, d);
  if (!add) tasks_run(k, cut_tasks(&e.cut), zero_task, &e);
  e.cut = cut_by(1, d, 1, OWN_COLUMNS * VL);
  tasks_run(k, cut_tasks(&e.cut), add_task, &e);
}
