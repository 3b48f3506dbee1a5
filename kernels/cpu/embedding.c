/* Owns: table rows by token, and their gradient. A token outside the table reads as NaN, so that it shows in
 * the loss, and receives no gradient.
 *
 * Floor: forward 8 d bytes a row; backward 4 vocab d bytes to overwrite the gradient and 12 d a row. Achieved
 * with GPT-2's table, one thread: forward 29 GB/s, backward 47 into an old gradient, 13 when overwriting
 * (memory's rate of stores). Into a gradient of 16 bits, each token is compared with all. */
#include "kernels/cpu/gradient.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"
#include <stdbool.h>

enum { OWN_COLUMNS = 8, LOOKED_AT = 256 }; /* vectors of a row that one backward task owns; tokens compared at a time */

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

static bool any_is(const int32_t *tokens, int64_t n, int32_t token) {
  int found = 0;
  for (int64_t i = 0; i < n; i++) found |= tokens[i] == token;
  return found;
}

static bool seen_before(const int32_t *tokens, int64_t row) {
  for (int64_t i = 0; i < row; i += LOOKED_AT)
    if (any_is(tokens + i, least(LOOKED_AT, row - i), tokens[row])) return true;
  return false;
}

static void add_row(const Embedding *e, const Piece *p, int64_t row) {
  const stored *dy = e->from + row * e->ld_from + p->col;
  real *to = (real *)e->dtable + e->tokens[row] * e->d + p->col;
  for (int64_t j = 0; j < p->cols; j += VL) {
    int64_t left = p->cols - j;
    vec_put(to + j, vec_take(to + j, left) + vec_take(dy + j, left), left);
  }
}

/* Adds the rows of [row, end) that have this token to its sums, in order. */
static void sum_rows(const Embedding *e, const Piece *p, int64_t row, int64_t end, int32_t token, vec sum[OWN_COLUMNS]) {
  for (int64_t r = row; r < end; r++) {
    if (e->tokens[r] != token) continue;
    const stored *dy = e->from + r * e->ld_from + p->col;
    for (int v = 0; v * VL < p->cols; v++) sum[v] += vec_take(dy + v * VL, p->cols - v * VL);
  }
}

/* All rows of the token that is first at `row`. */
static void add_token(const Embedding *e, const Piece *p, int64_t row) {
  int32_t token = e->tokens[row];
  int64_t to = token * e->d + p->col;
  vec sum[OWN_COLUMNS];
  for (int v = 0; v * VL < p->cols; v++) sum[v] = typed_take(e->type, e->dtable, to + v * VL, p->cols - v * VL);
  for (int64_t r = row; r < e->rows; r += LOOKED_AT) {
    int64_t n = least(LOOKED_AT, e->rows - r);
    if (any_is(e->tokens + r, n, token)) sum_rows(e, p, r, r + n, token, sum);
  }
  for (int v = 0; v * VL < p->cols; v++) typed_put(e->type, e->dtable, to + v * VL, sum[v], p->cols - v * VL);
}

/* Tokens repeat, so a task owns columns of the whole table and walks all rows in order. A sum of 16 bits takes in no more rows
 * once it is some hundred times as large as they are: there a token's rows are added up first and rounded once. */
static void add_task(void *arg, int64_t index) {
  const Embedding *e = arg;
  Piece p = cut_piece(&e->cut, index);
  for (int64_t r = 0; r < e->rows; r++) {
    if (e->tokens[r] < 0 || e->tokens[r] >= e->vocab) continue;
    if (e->type == FLOAT_REAL)
      add_row(e, &p, r);
    else if (!seen_before(e->tokens, r))
      add_token(e, &p, r);
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
