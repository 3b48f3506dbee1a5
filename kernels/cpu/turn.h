/* Owns: transposing on the way into a packed block, a square of vectors at a time. */
#ifndef FSDPC_KERNELS_CPU_TURN_H
#define FSDPC_KERNELS_CPU_TURN_H

#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"

/* Swaps the blocks of `s` lanes and rows that lie off the diagonal. */
#define TURN_STAGE(rows, s)                                                                                  \
  for (int i = 0; s < VL && i < VL; i++) {                                                                   \
    if (i & (s)) continue;                                                                                   \
    ivec upper = ((lanes & (lane_int)(s)) != 0) & (lane_int)(VL - (s));                                      \
    vec a = (rows)[i], b = (rows)[i + (s)];                                                                  \
    (rows)[i] = __builtin_shuffle(a, b, lanes + upper);                                                      \
    (rows)[i + (s)] = __builtin_shuffle(a, b, lanes + (lane_int)(s) + upper);                                \
  }

/* rows[i][j] becomes rows[j][i]. */
INLINE void vec_turn(vec rows[VL]) {
#if VEC_BYTES == 64
  const ivec lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  TURN_STAGE(rows, 8)
  TURN_STAGE(rows, 4)
#elif VEC_BYTES == 32
  const ivec lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  TURN_STAGE(rows, 4)
#elif KERNELS_DOUBLE
  const ivec lanes = {0, 1};
#else
  const ivec lanes = {0, 1, 2, 3};
#endif
#if !KERNELS_DOUBLE
  TURN_STAGE(rows, 2)
#endif
  TURN_STAGE(rows, 1)
}

/* to[j][i] = scale from[i][j] for `rows` rows of `cols`; lanes of `to` from `rows` to the next whole vector become zero. */
INLINE void turn_scaled(int64_t rows, int64_t cols, const real *from, int64_t ld, real scale, real *to, int64_t ldto) {
  vec block[VL];
  for (int64_t i = 0; i < rows; i += VL) {
    for (int64_t j = 0; j < cols; j += VL) {
      for (int64_t r = 0; r < VL; r++)
        block[r] = i + r < rows ? scale * vec_take(from + (i + r) * ld + j, cols - j) : (vec){0};
      vec_turn(block);
      for (int64_t r = 0; r < least(VL, cols - j); r++) vec_store(to + (j + r) * ldto + i, block[r]);
    }
  }
}

#endif
