/* Owns: sums over ranks along one fixed binary tree: sum(lo, n) = sum(lo, p) + sum(lo + p, n - p), p the
 * largest power of two below n, so that an aligned power-of-two group of ranks is a subtree.
 *
 * Blocks of 1,024 elements stay in L1 while the ranks' blocks are added like carries of a binary counter. A
 * block's sources are read before it is written: y may be one of the sources.
 *
 * Floor: 4 (ranks + 1) bytes an element, where memcpy moves 28 GB/s. Achieved: 31 GB/s for 2 and 3 ranks, 18
 * to 24 for 8 (64 MiB). */
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"

enum { BLOCK = 1024, LEVELS = 32 };

static void add_block(int64_t n, const real *a, const real *b, real *y, int add) {
  for (int64_t i = 0; i < n; i += VL) {
    vec sum = vec_take(a + i, n - i) + vec_take(b + i, n - i);
    vec_put(y + i, add ? vec_take(y + i, n - i) + sum : sum, n - i);
  }
}

static void copy_block(int64_t n, const real *a, real *y, int add) {
  for (int64_t i = 0; i < n; i += VL) {
    vec x = vec_take(a + i, n - i);
    vec_put(y + i, add ? vec_take(y + i, n - i) + x : x, n - i);
  }
}

/* Partial sums wait on a stack, their sizes falling powers of two. A partial sum of one rank is that rank's
 * block itself; `sums` holds the others, one per level. */
static void sum_block(int64_t first, int64_t n, int32_t ranks, const real *const *sources, real *y, int add,
                      real sums[LEVELS][BLOCK]) {
  const real *stack[LEVELS + 1];
  int depth = 0;
  for (int32_t rank = 0; rank < ranks; rank++) {
    stack[depth++] = sources[rank] + first;
    for (uint32_t done = (uint32_t)rank + 1; done % 2 == 0 && depth > 2; done /= 2) {
      add_block(n, stack[depth - 2], stack[depth - 1], sums[depth - 2], 0);
      depth--;
      stack[depth - 1] = sums[depth - 1];
    }
    /* The last two of the stack are not added here but below, straight into y. */
    if (depth == 2 && rank + 1 < ranks && ((rank + 1) & rank) == 0) {
      add_block(n, stack[0], stack[1], sums[0], 0);
      stack[0] = sums[0];
      depth = 1;
    }
  }
  for (; depth > 2; depth--) {
    add_block(n, stack[depth - 2], stack[depth - 1], sums[depth - 2], 0);
    stack[depth - 2] = sums[depth - 2];
  }
  if (depth == 2)
    add_block(n, stack[0], stack[1], y + first, add);
  else
    copy_block(n, stack[0], y + first, add);
}

void SYM(tree_sum)(int64_t n, int32_t ranks, const real *const *sources, real *y, int add) {
  real sums[LEVELS][BLOCK]; /* only the first log2(ranks) rows are ever touched */
  for (int64_t first = 0; first < n; first += BLOCK) {
    sum_block(first, least(BLOCK, n - first), ranks, sources, y, add, sums);
  }
}
