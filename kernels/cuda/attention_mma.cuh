/* Owns: attention on tensor cores: tiles of 16-bit elements in shared memory, and products of blocks by mma.m16n8k16.
 *
 * A block has 4 warps; each owns 16 of the block's 64 rows (queries, or keys in the pass for dk and dv). Fragments, with
 * g = lane / 4 and t = lane % 4: of a 16 x 8 result a lane holds columns 2t, 2t+1 of rows g and g + 8. Results of one
 * product, rounded to 16 bits, are left operands of the next without leaving registers. Rows in shared memory are padded
 * by 16 bytes, so that ldmatrix meets no bank twice. */
#ifndef FSDPC_KERNELS_CUDA_ATTENTION_MMA_CUH
#define FSDPC_KERNELS_CUDA_ATTENTION_MMA_CUH

#include "kernels/cuda/attention.cuh"

constexpr int MMA_ROWS = 64, MMA_THREADS = 128, MMA_PAD = 8;

/* May these tensors be attended on tensor cores? */
static inline bool attention_mma_ok(const AttentionShape *s, CudaTensor a, CudaTensor b, CudaTensor c, CudaTensor d) {
  const CudaTensor all[] = {a, b, c, d};
  if (s->head_dim != 64 && s->head_dim != 96 && s->head_dim != 128) return false;
  for (int i = 0; i < 4; i++)
    if (all[i].type == CUDA_F32 || (uintptr_t)all[i].x % 16 != 0 || all[i].ld % 8 != 0) return false;
  return true;
}

/* For bf16 and f16 only. */
template <class T> int attention_mma_fwd(CudaStream stream, const Attention<T> &a);
template <class T> int attention_mma_bwd(CudaStream stream, const Attention<T> &a);

/* Of single rows of queries, of any type: tq is 1. mma: on tensor cores. scratch: cuda_attention_fwd_scratch(shape) bytes. */
template <class T>
int attention_split_fwd(CudaStream stream, const AttentionShape *shape, const Attention<T> &a, bool mma, void *scratch);

#ifndef FSDPC_SHIM
template <class T> struct Pair;
template <> struct Pair<bf16> {
  typedef __nv_bfloat162 type;
  DEVICE static type of(float low, float high) { return __floats2bfloat162_rn(low, high); }
};
template <> struct Pair<f16> {
  typedef __half2 type;
  DEVICE static type of(float low, float high) { return __floats2half2_rn(low, high); }
};

/* Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8. */
template <bool TRANSPOSE> DEVICE void ldmatrix(uint32_t r[4], const void *row) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  if constexpr (TRANSPOSE)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* c += a b */
template <class T> DEVICE void mma(float c[4], const uint32_t a[4], const uint32_t b[2]) {
  if constexpr (sizeof(T) == 2 && Wide<T>::BF16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

/* Exponents are of 2: the factor goes into the scale. */
#define LOG2_E 1.44269504f
#define LN_2 0.69314718f

struct Lane {
  int warp, lane, g, t;
};
DEVICE Lane lane_of() {
  int lane = threadIdx.x % WARP;
  return Lane{(int)threadIdx.x / WARP, lane, lane / 4, lane % 4};
}

/* Starts copies: to[i][0, D) = x[first + i][0, D) for ROWS rows; those at or beyond `limit` become zero. */
template <int ROWS, int D, class T> DEVICE void tile_copy(T *to, const T *x, int64_t ld, int first, int limit) {
  constexpr int CHUNKS = D / 8;
  for (int i = threadIdx.x; i < ROWS * CHUNKS; i += MMA_THREADS) {
    int r = i / CHUNKS, c = i % CHUNKS * 8;
    bool there = first + r < limit;
    copy_async<16>(to + r * (D + MMA_PAD) + c, there ? x + (int64_t)(first + r) * ld + c : x, there);
  }
}

/* s[16 own rows][COLS] = rows of a (own warp's from `a` on) . rows of b. s[j]: columns 8 j to 8 j + 7. */
template <int COLS, int D, class T> DEVICE void tile_scores(const T *a, const T *b, float s[COLS / 8][4]) {
  constexpr int LD = D + MMA_PAD;
  int lane = lane_of().lane;
  const T *left = a + lane % 16 * LD + lane / 16 * 8, *right = b + (lane % 8 + lane / 16 * 8) * LD + lane / 8 % 2 * 8;
#pragma unroll
  for (int j = 0; j < COLS / 8; j++) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
#pragma unroll 4 /* all at once, keys of 128 dimensions spill */
  for (int d = 0; d < D; d += 16) {
    uint32_t x[4], y[4];
    ldmatrix<false>(x, left + d);
#pragma unroll
    for (int j = 0; j < COLS / 8; j += 2) {
      ldmatrix<false>(y, right + j * 8 * LD + d);
      mma<T>(s[j], x, y);
      mma<T>(s[j + 1], x, y + 2);
    }
  }
}

/* Two at once: one by one, nvcc converts in the unit that also computes exponents. */
template <class T> DEVICE uint32_t pack(float low, float high) {
#ifdef FSDPC_SHIM
  T pair[2] = {from_float<T>(low), from_float<T>(high)};
#else
  typename Pair<T>::type pair = Pair<T>::of(low, high);
#endif
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

/* acc[16 own rows][D] += p[16][COLS], rounded to T, times b[COLS][D] */
template <int COLS, int D, class T> DEVICE void tile_accumulate(const float p[COLS / 8][4], const T *b, float acc[D / 8][4]) {
  constexpr int LD = D + MMA_PAD;
  int lane = lane_of().lane;
  const T *right = b + lane % 16 * LD + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < COLS / 16; k++) {
    uint32_t x[4] = {pack<T>(p[2 * k][0], p[2 * k][1]), pack<T>(p[2 * k][2], p[2 * k][3]),
                     pack<T>(p[2 * k + 1][0], p[2 * k + 1][1]), pack<T>(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      uint32_t y[4];
      ldmatrix<true>(y, right + k * 16 * LD + n * 8);
      mma<T>(acc[n], x, y);
      mma<T>(acc[n + 1], x, y + 2);
    }
  }
}

/* acc: columns 8 j of four results, j below 4, times factor; of row g (i = 0) or g + 8, of which lanes t hold two columns each.
 * out: all eight columns of j = t. Lanes with another last bit of t exchange first, then those with another first bit. */
DEVICE void own_eight(const float (*acc)[4], int i, float factor, float out[8]) {
  int t = lane_of().t;
#pragma unroll
  for (int j = 0; j < 4; j++) out[2 * j] = acc[j][2 * i] * factor, out[2 * j + 1] = acc[j][2 * i + 1] * factor;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) /* halves of pairs, then of all four */
#pragma unroll
    for (int low = 0; low < 8; low++) {
      int high = low + 2 * bit;
      if ((low & 2 * bit) != 0) continue;
      float other = __shfl_xor_sync(WHOLE_WARP, (t & bit) != 0 ? out[low] : out[high & 7], bit);
      if ((t & bit) != 0) out[low] = other;
      else out[high & 7] = other;
    }
}

/* Rows first + 16 warp + g and + 8, below `limit`, (+)= factor acc, eight columns at a time. */
template <int D, class T>
DEVICE void tile_store(T *to, int64_t ld, int first, int limit, const float factor[2], const float acc[D / 8][4], int add) {
  Lane l = lane_of();
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int row = first + l.warp * 16 + l.g + i * 8;
#pragma unroll
    for (int n = 0; n < D / 8; n += 4) {
      float x[8];
      own_eight(acc + n, i, factor[i], x);
      if (row < limit) put<T, 8>(to + (int64_t)row * ld + (n + l.t) * 8, x, add);
    }
  }
}

/* Over the four lanes of a row. */
DEVICE float four_sum(float x) {
  x += __shfl_xor_sync(WHOLE_WARP, x, 1);
  return x + __shfl_xor_sync(WHOLE_WARP, x, 2);
}
DEVICE float four_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(WHOLE_WARP, x, 1));
  return fmaxf(x, __shfl_xor_sync(WHOLE_WARP, x, 2));
}

/* Do all of these queries see all of these keys? Only tiles at the diagonal or at an end ask pair by pair. */
template <class T> DEVICE bool all_visible(const Attention<T> &a, int query, int queries, int key, int keys) {
  return query + queries <= a.tq && visible(a, query, key + keys - 1);
}

/* One row's softmax over a tile of scores, in place: new maximum and sum, and what earlier results shrink by. */
struct RowState {
  float top, sum; /* of scores in units of ln 2 */
};

/* The own row `half` of scores, scaled; whole: all of it is seen. */
template <int COLS, class T>
DEVICE float soften(const Attention<T> &a, int query, int key, bool whole, float s[COLS / 8][4], int half, RowState &row) {
  int t = lane_of().t;
  float scale = a.scale * LOG2_E, most = row.top, total = 0;
#pragma unroll
  for (int j = 0; j < COLS / 8; j++)
    for (int c = 0; c < 2; c++) s[j][2 * half + c] *= scale;
  if (!whole)
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
      for (int c = 0; c < 2; c++)
        if (!visible(a, query, key + 8 * j + 2 * t + c)) s[j][2 * half + c] = -INFINITY;
#pragma unroll
  for (int j = 0; j < COLS / 8; j++)
    for (int c = 0; c < 2; c++) most = fmaxf(most, s[j][2 * half + c]);
  most = four_max(most);
  float base = base_of(most), shrink = fast_exp2(row.top - base);
#pragma unroll
  for (int j = 0; j < COLS / 8; j++)
    for (int c = 0; c < 2; c++) {
      float &x = s[j][2 * half + c];
      x = fast_exp2(x - base);
      total += x;
    }
  row.sum = row.sum * shrink + four_sum(total);
  row.top = most;
  return shrink;
}

#define FOR_MMA_DIM(head_dim, ...)                                                                           \
  if ((head_dim) == 64) { constexpr int D = 64; __VA_ARGS__ }                                                \
  else if ((head_dim) == 96) { constexpr int D = 96; __VA_ARGS__ }                                           \
  else { constexpr int D = 128; __VA_ARGS__ }

#endif
