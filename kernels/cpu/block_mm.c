/* Owns: block_mm, register tiles of 6 rows by 4 vectors (AVX-512, 24 of 32 registers) or 2 (12 of 16), and
 * gemm_blocked around it, which packs B into panels that stay in L1.
 *
 * Floor: 2 m n k flops at the FMA rate (oneDNN reaches 165 to 190 GFLOP/s where these were taken: one core of
 * a 2.3 GHz Sapphire Rapids class server, shared). Achieved as gemm at GPT-2's sizes, GFLOP/s: AVX-512 120 N
 * T, 145 N N, 125 T N; AVX2 64, 70, 54; portable SSE2 23, 25, 20. */
#include "kernels/cpu/block_mm.h"
#include "kernels/cpu/tasks.h"

enum { TILE_ROWS = 6, TILE_VECS = BLOCK_COLS / VL, PACK_K = 128, PACK_N = KERNELS_DOUBLE ? 128 : 512 };

typedef struct Operands {
  int64_t k;
  const real *a;
  int64_t ar, ap;
  const real *b;
  int64_t ldb;
  real *c;
  int64_t ldc;
  BlockMode mode;
  const real *scale;
  int64_t tail; /* lanes of the last vector */
} Operands;

/* `rows`, `vecs`, `partial` are constants at every call, so the loops over them unroll and acc lives in
 * registers. */
INLINE void tile(const Operands *o, const int rows, const int vecs, const int partial, int64_t row,
                 int64_t col) {
  vec acc[TILE_ROWS][TILE_VECS];
  for (int r = 0; r < rows; r++) {
    for (int v = 0; v < vecs; v++) acc[r][v] = (vec){0};
  }
  const real *a = o->a + row * o->ar, *b = o->b + col;
  const int64_t ar = o->ar, ap = o->ap, ldb = o->ldb;
  for (int64_t p = 0; p < o->k; p++, a += ap, b += ldb) {
    vec bv[TILE_VECS];
    for (int v = 0; v < vecs; v++) {
      bv[v] = partial && v == vecs - 1 ? vec_load_some(b + v * VL, o->tail) : vec_load(b + v * VL);
    }
    for (int r = 0; r < rows; r++) {
      for (int v = 0; v < vecs; v++) acc[r][v] += a[r * ar] * bv[v];
    }
  }
  for (int r = 0; r < rows; r++) {
    real *c = o->c + (row + r) * o->ldc + col;
    for (int v = 0; v < vecs; v++) {
      int64_t left = partial && v == vecs - 1 ? o->tail : VL;
      vec sum = acc[r][v];
      if (o->mode == BLOCK_ADD) sum = vec_take(c + v * VL, left) + sum;
      if (o->mode == BLOCK_SCALE) sum = o->scale[row + r] * vec_take(c + v * VL, left) + sum;
      vec_put(c + v * VL, sum, left);
    }
  }
}

INLINE void strip(const Operands *o, int64_t m, const int vecs, const int partial, int64_t col) {
  int64_t row = 0;
  for (; row + TILE_ROWS <= m; row += TILE_ROWS) tile(o, TILE_ROWS, vecs, partial, row, col);
  switch (m - row) {
  case 5:
    tile(o, 5, vecs, partial, row, col);
    break;
  case 4:
    tile(o, 4, vecs, partial, row, col);
    break;
  case 3:
    tile(o, 3, vecs, partial, row, col);
    break;
  case 2:
    tile(o, 2, vecs, partial, row, col);
    break;
  case 1:
    tile(o, 1, vecs, partial, row, col);
    break;
  default:
    break;
  }
}

void SYM(block_mm)(int64_t m, int64_t n, int64_t k, const real *a, int64_t ar, int64_t ap, const real *b,
                   int64_t ldb, real *c, int64_t ldc, BlockMode mode, const real *scale) {
  Operands o = {k, a, ar, ap, b, ldb, c, ldc, mode, scale, n % VL};
  int64_t col = 0;
  for (; col + BLOCK_COLS <= n; col += BLOCK_COLS) strip(&o, m, TILE_VECS, 0, col);
  for (; col + BLOCK_COLS / 2 <= n; col += BLOCK_COLS / 2) strip(&o, m, TILE_VECS / 2, 0, col);
  for (; col + VL <= n; col += VL) strip(&o, m, 1, 0, col);
  if (col < n) strip(&o, m, 1, 1, col);
}

/* Panels of BLOCK_COLS columns, each k rows, zero beyond n. */
static void pack_b(char tb, int64_t k, int64_t n, real alpha, const real *b, int64_t ldb, real *packed) {
  for (int64_t col = 0; col < n; col += BLOCK_COLS, packed += k * BLOCK_COLS) {
    int64_t width = least(BLOCK_COLS, n - col);
    if (tb == 'N') {
      for (int64_t p = 0; p < k; p++) {
        const real *from = b + p * ldb + col;
        for (int64_t j = 0; j < width; j++) packed[p * BLOCK_COLS + j] = alpha * from[j];
      }
    } else {
      for (int64_t j = 0; j < width; j++) {
        const real *from = b + (col + j) * ldb;
        for (int64_t p = 0; p < k; p++) packed[p * BLOCK_COLS + j] = alpha * from[p];
      }
    }
  }
}

static void scale_c(int64_t m, int64_t n, real beta, real *c, int64_t ldc) {
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
  }
}

void SYM(gemm_blocked)(char ta, char tb, int64_t m, int64_t n, int64_t k, real alpha, const real *a,
                       int64_t lda, const real *b, int64_t ldb, real beta, real *c, int64_t ldc) {
  real packed[PACK_K * PACK_N];
  int64_t ar = ta == 'N' ? lda : 1, ap = ta == 'N' ? 1 : lda;
  if (k == 0 || (beta != 0 && beta != 1)) scale_c(m, n, beta, c, ldc);
  for (int64_t p = 0; p < k; p += PACK_K) {
    int64_t depth = least(PACK_K, k - p);
    BlockMode mode = p == 0 && beta == 0 ? BLOCK_SET : BLOCK_ADD;
    for (int64_t col = 0; col < n; col += PACK_N) {
      int64_t width = least(PACK_N, n - col);
      pack_b(tb, depth, width, alpha, tb == 'N' ? b + p * ldb + col : b + col * ldb + p, ldb, packed);
      for (int64_t j = 0; j < width; j += BLOCK_COLS) {
        SYM(block_mm)
        (m, least(BLOCK_COLS, width - j), depth, a + p * ap, ar, ap, packed + j * depth, BLOCK_COLS,
         c + col + j, ldc, mode, NULL);
      }
    }
  }
}
