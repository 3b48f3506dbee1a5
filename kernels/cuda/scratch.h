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

/* Columns of a linear layer's result that are no multiple of LINEAR_ALIGN are computed by kernels of our own, whose weights' gradients are
 * sums of columns of x; below LINEAR_LEAST of them the product is tiny either way. */
enum { LINEAR_ALIGN = 8, LINEAR_LEAST = 64 };

static inline uint64_t cuda_narrow_scratch(int64_t rows, int64_t out, int64_t in) {
  return out % LINEAR_ALIGN != 0 && out >= LINEAR_LEAST ? cuda_column_scratch(rows, in) : 0;
}

/* Of single rows of queries, keys are cut into parts of whole tiles: into so many that the blocks, one a part and head of keys, keep any
 * GPU busy. The shape alone decides, so results are the same on all GPUs. */
enum { SPLIT_TILE = 64, SPLIT_BLOCKS = 512, SPLIT_ALIGN = 8 /* floats of a part's result */ };

static inline int64_t cuda_attention_parts(const AttentionShape *shape) {
  int64_t tiles = (shape->tk + SPLIT_TILE - 1) / SPLIT_TILE, parts = SPLIT_BLOCKS / (shape->batch * shape->kv_heads);
  if (parts > tiles) parts = tiles;
  return parts < 1 ? 1 : parts;
}

static inline int64_t cuda_attention_part_floats(const AttentionShape *shape) {
  return (shape->head_dim + SPLIT_ALIGN - 1) / SPLIT_ALIGN * SPLIT_ALIGN;
}

/* Grows with tk, and so is enough for every position of a context. Of a part: a row of o, a maximum and a sum. */
static inline uint64_t cuda_attention_fwd_scratch(const AttentionShape *shape) {
  if (shape->batch < 1 || shape->tq != 1) return 0;
  return (uint64_t)(shape->batch * shape->heads * cuda_attention_parts(shape) * (cuda_attention_part_floats(shape) + 2)) * sizeof(float);
}

static inline uint64_t cuda_attention_bwd_scratch(const AttentionShape *shape) {
  return (uint64_t)(shape->batch * shape->heads * shape->tq) * sizeof(float);
}

/* The backward pass on Hopper: sums of dq in f32, two numbers of each row, one of each tile. A launch has as many heads of keys, of all samples
 * and with the heads that share them, as fit into `most` bytes, and launches are alike. */
enum { HOPPER_KEYS = 128 /* of a tile */, HOPPER_SUMS = 8192 /* of a tile of queries: as many of them as that has heads' dimensions */ };

static inline uint64_t cuda_attention_hopper_scratch(const AttentionShape *shape, int64_t groups) {
  int64_t queries = HOPPER_SUMS / shape->head_dim;
  uint64_t tiles = (uint64_t)((shape->tq + queries - 1) / queries) * (uint64_t)(groups * (shape->heads / shape->kv_heads));
  return (tiles * (uint64_t)(HOPPER_SUMS + 2 * queries + 1) + 1) * sizeof(float);
}

/* 0: this shape is not for it. */
static inline int64_t cuda_attention_hopper_groups(const AttentionShape *shape, uint64_t most) {
  int64_t all = shape->batch * shape->kv_heads, groups;
  if (!shape->causal || shape->tq != shape->tk || (shape->head_dim != 64 && shape->head_dim != 128) || all < 1 || shape->tq < 1) return 0;
  groups = (int64_t)(most / cuda_attention_hopper_scratch(shape, 1)); /* each has one number too many */
  if (groups < 1) return 0;
  int64_t launches = (all + groups - 1) / groups;
  return (all + launches - 1) / launches;
}

static inline uint64_t cuda_adafactor_scratch(int64_t params) { return (uint64_t)(1 + 3 * params) * sizeof(double); }

#endif
