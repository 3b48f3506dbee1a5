/* Owns: how kernels cut their work. Tasks are rectangles of rows and columns whose sizes follow from the
 * shape alone, so results cannot depend on the number of threads. */
#ifndef FSDPC_KERNELS_CPU_TASKS_H
#define FSDPC_KERNELS_CPU_TASKS_H

#include "kernels/kernels.h"

enum { TASK_ELEMENTS = 32768 }; /* 128 KiB of float: long beside a thread's wake-up, small beside L2 */

typedef struct Cut {
  int64_t rows, cols;         /* whole */
  int64_t row_step, col_step; /* of one task */
  int64_t row_tasks, col_tasks;
} Cut;

typedef struct Piece {
  int64_t row, rows, col, cols; /* first and count */
} Piece;

static inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static inline int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static inline Cut cut_by(int64_t rows, int64_t cols, int64_t row_step, int64_t col_step) {
  return (Cut){rows, cols, row_step, col_step, ceil_div(rows, row_step), ceil_div(cols, col_step)};
}

/* Whole rows, for what needs a row at a time. */
static inline Cut cut_rows(int64_t rows, int64_t cols) {
  return cut_by(rows, cols, most(1, TASK_ELEMENTS / most(1, cols)), most(1, cols));
}

/* Rows and, where they are long, columns. */
static inline Cut cut_elements(int64_t rows, int64_t cols) {
  int64_t col_step = least(most(1, cols), TASK_ELEMENTS);
  return cut_by(rows, cols, TASK_ELEMENTS / col_step, col_step);
}

static inline int64_t cut_tasks(const Cut *cut) {
  return cut->row_tasks * cut->col_tasks;
}

static inline Piece cut_piece(const Cut *cut, int64_t index) {
  Piece p = {.row = index / cut->col_tasks * cut->row_step, .col = index % cut->col_tasks * cut->col_step};
  p.rows = least(cut->row_step, cut->rows - p.row);
  p.cols = least(cut->col_step, cut->cols - p.col);
  return p;
}

/* Without a pool (NULL) tasks run in line, as a single one always does. */
static inline void tasks_run(const KernelContext *k, int64_t tasks, void (*task)(void *, int64_t),
                             void *arg) {
  if (tasks > 1 && k && k->parallel) {
    k->parallel->run(k->parallel, tasks, task, arg);
    return;
  }
  for (int64_t i = 0; i < tasks; i++) task(arg, i);
}

#endif
