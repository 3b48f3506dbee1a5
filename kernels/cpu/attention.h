/* Owns: what attention's forward and backward share: blocks of 64 queries by 64 keys held transposed (a row
 * per key, a lane per query), so that softmax statistics are vertical and no product needs a transpose but
 * the packed queries'. */
#ifndef FSDPC_KERNELS_CPU_ATTENTION_H
#define FSDPC_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/block_mm.h"
#include "kernels/cpu/simd_math.h"
#include "kernels/cpu/tasks.h"
#include "kernels/cpu/turn.h"

enum { ATT_BLOCK = 64, ATT_HALF = ATT_BLOCK / 2, ATT_DIMS = 128 }; /* queries or keys of a block; dimensions packed at a time */

/* Keys of a block that the first ATT_HALF queries see at most, key 0 being visible to query j from j + reach on. The rest of
 * them is left out for these queries, which adds no term but zeros: the bits are those of the whole block. */
INLINE int64_t att_near(int causal, int64_t reach, int64_t keys, int64_t queries) {
  return causal && reach <= 0 && keys > ATT_HALF && queries > ATT_HALF ? ATT_HALF : keys;
}

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

/* s[key][query] = scale (rows of x at keys) . (rows of y at queries), but of keys from `near` on only with queries from
 * ATT_HALF on. `packed` holds y's first dimensions
 * already when head_dim fits in it, which is nearly always. */
INLINE void att_scores(const real *x, int64_t ldx, int64_t keys, int64_t near, const real *y, int64_t ldy, int64_t queries,
                       int64_t head_dim, real scale, real packed[ATT_DIMS][ATT_BLOCK],
                       real s[ATT_BLOCK][ATT_BLOCK]) {
  for (int64_t d = 0; d < head_dim; d += ATT_DIMS) {
    int64_t dims = least(ATT_DIMS, head_dim - d);
    if (head_dim > ATT_DIMS) att_pack(y, ldy, queries, d, dims, scale, packed);
    BlockMode mode = d == 0 ? BLOCK_SET : BLOCK_ADD;
    BASE(block_mm)(near, att_lanes(queries), dims, x + d, ldx, 1, packed[0], ATT_BLOCK, s[0], ATT_BLOCK, mode, NULL);
    if (near == keys) continue;
    BASE(block_mm)(keys - near, att_lanes(queries) - ATT_HALF, dims, x + near * ldx + d, ldx, 1, packed[0] + ATT_HALF, ATT_BLOCK,
                   &s[near][ATT_HALF], ATT_BLOCK, mode, NULL);
  }
}

/* Scores of keys that a query may not see become -infinity; key k0 + i is visible to query q0 + j up to j +
 * reach. */
INLINE void att_mask(int64_t keys, int64_t queries, int64_t reach, real s[ATT_BLOCK][ATT_BLOCK]) {
  for (int64_t i = 0; i < keys; i++) {
    for (int64_t j = 0; j < least(i - reach, att_lanes(queries)); j++) s[i][j] = (real)-INFINITY;
  }
}

/* y[query][dims] = sum over keys of s[key][query] x[key], by mode (scale: of queries). */
INLINE void att_over_keys(int64_t keys, int64_t near, int64_t queries, int64_t dims, real s[ATT_BLOCK][ATT_BLOCK], const real *x,
                          int64_t ldx, real *y, int64_t ldy, BlockMode mode, const real *scale) {
  int64_t first = near < keys ? ATT_HALF : queries;
  BASE(block_mm)(first, dims, near, s[0], 1, ATT_BLOCK, x, ldx, y, ldy, mode, scale);
  if (first == queries) return;
  BASE(block_mm)(queries - first, dims, keys, s[0] + first, 1, ATT_BLOCK, x, ldx, y + first * ldy, ldy, mode,
                 scale ? scale + first : NULL);
}

/* y[key][dims] = sum over queries of s[key][query] x[query], by mode. */
INLINE void att_over_queries(int64_t keys, int64_t near, int64_t queries, int64_t dims, real s[ATT_BLOCK][ATT_BLOCK], const real *x,
                             int64_t ldx, real *y, int64_t ldy, BlockMode mode) {
  BASE(block_mm)(near, dims, queries, s[0], ATT_BLOCK, 1, x, ldx, y, ldy, mode, NULL);
  if (near == keys) return;
  BASE(block_mm)(keys - near, dims, queries - ATT_HALF, &s[near][ATT_HALF], ATT_BLOCK, 1, x + ATT_HALF * ldx, ldx, y + near * ldy,
                 ldy, mode, NULL);
}

typedef struct AttRunning {
  real top[ATT_BLOCK], sum[ATT_BLOCK],
      keep[ATT_BLOCK]; /* per query: maximum, denominator, factor of what was there */
} AttRunning;

/* Scores of one block become exponentials under the new maximum. Scores below -1e30 count as masked. */
INLINE void att_softmax(int64_t keys, int64_t near, int64_t lanes, real s[ATT_BLOCK][ATT_BLOCK], AttRunning *run) {
  for (int64_t j = 0; j < lanes; j += VL) {
    vec old = vec_load(run->top + j), top = old, sum = {0};
    int64_t seen = j < ATT_HALF ? near : keys;
    for (int64_t i = 0; i < seen; i++) top = vec_max(top, vec_load(&s[i][j]));
    for (int64_t i = 0; i < seen; i++) {
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
INLINE void att_gradients(int64_t keys, int64_t near, int64_t queries, const real *lse, const real *dots, real scale,
                          real s[ATT_BLOCK][ATT_BLOCK], real dp[ATT_BLOCK][ATT_BLOCK]) {
  for (int64_t i = 0; i < keys; i++) {
    for (int64_t j = i < near ? 0 : ATT_HALF; j < att_lanes(queries); j += VL) {
      vec p = vec_exp(vec_load(&s[i][j]) - vec_load(lse + j));
      vec_store(&s[i][j], p);
      vec_store(&dp[i][j], p * (vec_load(&dp[i][j]) - vec_load(dots + j)) * scale);
    }
  }
}

#endif
