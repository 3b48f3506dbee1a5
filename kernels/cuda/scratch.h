/* Owns: scratch memory that kernels on a GPU are handed, in bytes; also where there is no CUDA, for it is part of what a run
 * takes. */
#ifndef FSDPC_KERNELS_CUDA_SCRATCH_H
#define FSDPC_KERNELS_CUDA_SCRATCH_H

#include "kernels/kernels.h"

/* Sums of columns: pieces of so many rows, each with two rows of sums in scratch. */
enum { COLUMN_PIECE_ROWS = 128, COLUMN_MOST_PIECES = 256 };

static inline int64_t cuda_column_pieces(int64_t rows) {
  int64_t pieces = (rows + COLUMN_PIECE_ROWS - 1) / COLUMN_PIECE_ROWS;
  if (pieces > COLUMN_MOST_PIECES) pieces = COLUMN_MOST_PIECES;
  return pieces < 1 ? 1 : pieces;
}

static inline uint64_t cuda_column_scratch(int64_t rows, int64_t cols) { /* for norm_bwd too */
  return (uint64_t)cuda_column_pieces(rows) * 2 * (uint64_t)cols * sizeof(float);
}

static inline uint64_t cuda_attention_scratch(const AttentionShape *shape) { /* of the backward pass */
  return (uint64_t)(shape->batch * shape->heads * shape->tq) * sizeof(float);
}

static inline uint64_t cuda_adafactor_scratch(int64_t params) { return (uint64_t)(1 + 3 * params) * sizeof(double); }

#endif
