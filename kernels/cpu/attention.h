/* Owns: what attention's forward and backward share: blocks of 64 queries by 64 keys held transposed (a row
 * per key, a lane per query), so that softmax statistics are vertical and no product needs a transpose but
 * the packed queries'. */
#ifndef FSDPC_KERNELS_CPU_ATTENTION_H
#define FSDPC_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/block_mm.h"
#include "kernels/cpu/simd_math.h"
#include "kernels/cpu/tasks.h"
#include "kernels/cpu/turn.h"

enum { ATT_BLOCK = 64, ATT_DIMS = 128 }; /* queries or keys of a block; dimensions packed at a time */

/* Row of a [rows, dims] matrix, for batch b, position t, head h. */
INLINE int64_t att_at(int64_t b, int64_t t, int64_t positions, int64_t h, int64_t head_dim, int64_t ld) {
  return (b * positions + t) * ld + h * head_dim;
}

/* Queries of a block, rounded up to whole vectors: the width of transposed blocks. */
INLINE int64_t att_lanes(int64_t queries) {
  return ceil_div(queries, VL) * VL;
}

/* to[i][j] = scale x[j][first + i] for `dims` dimensions of `queries` rows; lanes beyond are zero. */
INLINE void att_pack(const real *x, int64_t ld, int64_t queries, int64_t first, int64_t dims, real scale,
                     real to[ATT_DIMS][ATT_BLOCK]) {
  turn_scaled(queries, dims, x + first, ld, scale, to[0], ATT_BLOCK);
}

/* s[key][query] = scale (rows of x at keys) . (rows of y at queries). `packed` holds y's first dimensions
 * already when head_dim fits in it, which is nearly always. */
INLINE void att_scores(const real *x, int64_t ldx, int64_t keys, const real *y, int64_t ldy, int64_t queries,
                       int64_t head_dim, real scale, real packed[ATT_DIMS][ATT_BLOCK],
                       real s[ATT_BLOCK][ATT_BLOCK]) {
  for (int64_t d = 0; d < head_dim; d += ATT_DIMS) {
    int64_t dims = least(ATT_DIMS, head_dim - d);
    if (head_dim > ATT_DIMS) att_pack(y, ldy, queries, d, dims, scale, packed);
    BASE(block_mm)
    (keys, att_lanes(queries), dims, x + d, ldx, 1, packed[0], ATT_BLOCK, s[0], ATT_BLOCK,
     d == 0 ? BLOCK_SET : BLOCK_ADD, NULL);
  }
}

/* Scores of keys that a query may not see become -infinity; key k0 + i is visible to query q0 + j up to j +
 * reach. */
INLINE void att_mask(int64_t keys, int64_t queries, int64_t reach, real s[ATT_BLOCK][ATT_BLOCK]) {
  for (int64_t i = 0; i < keys; i++) {
    for (int64_t j = 0; j < least(i - reach, att_lanes(queries)); j++) s[i][j] = (real)-INFINITY;
  }
}

typedef struct AttRunning {
  real top[ATT_BLOCK], sum[ATT_BLOCK],
      keep[ATT_BLOCK]; /* per query: maximum, denominator, factor of what was there */
} AttRunning;

/* Scores of one block become exponentials under the new maximum. Scores below -1e30 count as masked. */
INLINE void att_softmax(int64_t keys, int64_t lanes, real s[ATT_BLOCK][ATT_BLOCK], AttRunning *run) {
  for (int64_t j = 0; j < lanes; j += VL) {
    vec old = vec_load(run->top + j), top = old, sum = {0};
    for (int64_t i = 0; i < keys; i++) top = vec_max(top, vec_load(&s[i][j]));
    for (int64_t i = 0; i < keys; i++) {
      vec p = vec_exp(vec_load(&s[i][j]) - top);
      vec_store(&s[i][j], p);
      sum += p;
    }
    vec keep = vec_exp(old - top);
    vec_store(run->top + j, top);
    vec_store(run->keep + j, keep);
    vec_store(run->sum + j, vec_load(run->sum + j) * keep + sum);
  }
}

/* Scores become P, products dP become ds = P (dP - D) scale. */
INLINE void att_gradients(int64_t keys, int64_t queries, const real *lse, const real *dots, real scale,
                          real s[ATT_BLOCK][ATT_BLOCK], real dp[ATT_BLOCK][ATT_BLOCK]) {
  for (int64_t i = 0; i < keys; i++) {
    for (int64_t j = 0; j < att_lanes(queries); j += VL) {
      vec p = vec_exp(vec_load(&s[i][j]) - vec_load(lse + j));
      vec_store(&s[i][j], p);
      vec_store(&dp[i][j], p * (vec_load(&dp[i][j]) - vec_load(dots + j)) * scale);
    }
  }
}

#endif
