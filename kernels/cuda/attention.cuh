/* Owns: what attention's kernels share: operands, shapes, tiles in shared memory, and the two products of blocks.
 *
 * A block owns ROWS rows (queries, or keys in the pass for dk and dv) and walks the other side in tiles of COLS. Eight
 * neighbouring threads, always of one warp, own rows r and r + ROWS/2: of the scores they hold columns lane + 8 j, of the
 * accumulators four neighbouring columns in every 32. Tiles are f32 and padded with zeros to DP dimensions. */
#ifndef FSDPC_KERNELS_CUDA_ATTENTION_CUH
#define FSDPC_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/device.cuh"

template <class T> struct Attention {
  int batch, tq, tk, heads, kv_heads, head_dim, causal;
  float scale;
  const T *q, *k, *v, *o, *d_o;
  int64_t ldq, ldk, ldv, ldo, lddo;
  T *out, *dq, *dk, *dv;
  int64_t ldout, lddq, lddk, lddv;
  int add_q, add_k, add_v;
  bool wide; /* all of them may be accessed four elements at a time, and eight of 16 bits */
  float *lse, *delta; /* [batch heads][tq]; delta = sum of o do */
};

/* The backward pass holds two sides of ROWS and two of COLS: less than the 99 KiB that a block may have on any GPU. */
template <int DP_> struct Tile {
  static constexpr int DP = DP_, ROWS = DP <= 128 ? 64 : 32, COLS = DP <= 64 ? 32 : DP <= 128 ? 16 : 8, THREADS = ROWS * 4;
  static constexpr int LD = DP + 4, LDP = COLS + 1, PAIRS = COLS / 8, PARTS = DP / 32;
  static constexpr int ROW_FLOATS = ROWS * LD, COL_FLOATS = COLS * LD, P_FLOATS = ROWS * LDP + (4 - ROWS * LDP % 4) % 4;
};

/* Runs the statement with DP the smallest tile that holds head_dim. */
#define FOR_HEAD_DIM(head_dim, ...)                                                                          \
  if ((head_dim) <= 64) { constexpr int DP = 64; __VA_ARGS__ }                                               \
  else if ((head_dim) <= 128) { constexpr int DP = 128; __VA_ARGS__ }                                        \
  else if ((head_dim) <= CUDA_MAX_HEAD_DIM) { constexpr int DP = 256; __VA_ARGS__ }                          \
  else return CUDA_UNSUPPORTED;

struct Own {
  int group, lane; /* rows group and group + ROWS/2; lane 0..7 */
};
DEVICE Own own_part() { return Own{(int)threadIdx.x / 8, (int)threadIdx.x % 8}; }

/* to[i][d] = x[first + i][d] for `rows` rows, of which those at or beyond `limit` are zero: four dimensions at a time. */
template <class T, class S>
DEVICE void load_tile(const Attention<T> &a, float *to, const T *x, int64_t ld, int first, int rows, int limit, S) {
  for (int i = threadIdx.x * 4; i < rows * S::DP; i += S::THREADS * 4) {
    int r = i / S::DP, d = i % S::DP, there = first + r < limit ? a.head_dim - d : 0;
    const T *from = x + (int64_t)(first + r) * ld + d;
    float v[4] = {0};
    if (a.wide && there > 0) four_take(from, v);
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (!a.wide && j < there) v[j] = to_float(from[j]);
    *(float4 *)(to + r * S::LD + d) = float4{v[0], v[1], v[2], v[3]};
  }
}

/* s[i][j] = own row i of a . row lane + 8 j of b */
template <class S> DEVICE void scores(const float *a, const float *b, float s[2][S::PAIRS], S) {
  Own own = own_part();
#pragma unroll
  for (int j = 0; j < S::PAIRS; j++) s[0][j] = s[1][j] = 0;
  for (int d = 0; d < S::DP; d += 4) {
    float4 x = *(const float4 *)(a + own.group * S::LD + d);
    float4 y = *(const float4 *)(a + (own.group + S::ROWS / 2) * S::LD + d);
#pragma unroll
    for (int j = 0; j < S::PAIRS; j++) {
      float4 z = *(const float4 *)(b + (own.lane + 8 * j) * S::LD + d);
      s[0][j] += x.x * z.x + x.y * z.y + x.z * z.z + x.w * z.w;
      s[1][j] += y.x * z.x + y.y * z.y + y.z * z.z + y.w * z.w;
    }
  }
}

/* Own rows of p = s, where this warp's other threads can read them; the earlier contents must have been read. */
template <class S> DEVICE void share(float *p, const float s[2][S::PAIRS], S) {
  Own own = own_part();
  __syncwarp();
#pragma unroll
  for (int j = 0; j < S::PAIRS; j++) {
    p[own.group * S::LDP + own.lane + 8 * j] = s[0][j];
    p[(own.group + S::ROWS / 2) * S::LDP + own.lane + 8 * j] = s[1][j];
  }
  __syncwarp();
}

/* acc += p b, own rows */
template <class S> DEVICE void accumulate(const float *p, const float *b, float acc[2][S::PARTS][4], S) {
  Own own = own_part();
  for (int k = 0; k < S::COLS; k++) {
    float x = p[own.group * S::LDP + k], y = p[(own.group + S::ROWS / 2) * S::LDP + k];
#pragma unroll
    for (int n = 0; n < S::PARTS; n++) {
      float4 z = *(const float4 *)(b + k * S::LD + own.lane * 4 + 32 * n);
      acc[0][n][0] += x * z.x, acc[0][n][1] += x * z.y, acc[0][n][2] += x * z.z, acc[0][n][3] += x * z.w;
      acc[1][n][0] += y * z.x, acc[1][n][1] += y * z.y, acc[1][n][2] += y * z.z, acc[1][n][3] += y * z.w;
    }
  }
}

/* to (+)= x, four neighbours at once */
template <class T> DEVICE void put_four(T *to, float x[4], int add) {
  float old[4] = {0};
  T four[4];
  if (add) four_take(to, old);
#pragma unroll
  for (int j = 0; j < 4; j++) four[j] = from_float<T>(add ? x[j] + old[j] : x[j]);
  four_put(to, four);
}

/* Row first + own row (+)= factor acc, when it is below `limit`. */
template <class T, class S>
DEVICE void store_rows(const Attention<T> &a, T *to, int64_t ld, int first, int limit, const float factor[2],
                       float acc[2][S::PARTS][4], int add, S) {
  Own own = own_part();
#pragma unroll /* so that acc stays in registers */
  for (int i = 0; i < 2; i++) {
    int row = first + own.group + i * (S::ROWS / 2);
    if (row >= limit) continue;
#pragma unroll
    for (int n = 0; n < S::PARTS; n++) {
      int d = own.lane * 4 + 32 * n;
      float *x = acc[i][n];
#pragma unroll
      for (int j = 0; j < 4; j++) x[j] *= factor[i];
      if (a.wide && d < a.head_dim) put_four(to + row * ld + d, x, add);
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (!a.wide && d + j < a.head_dim) put<T, 1>(to + row * ld + d + j, x + j, add);
    }
  }
}

/* Over the eight threads of a row. */
DEVICE float eight_sum(float x) {
  for (int offset = 1; offset < 8; offset *= 2) x += __shfl_xor_sync(WHOLE_WARP, x, offset);
  return x;
}
DEVICE float eight_max(float x) {
  for (int offset = 1; offset < 8; offset *= 2) x = fmaxf(x, __shfl_xor_sync(WHOLE_WARP, x, offset));
  return x;
}

template <class T> DEVICE bool visible(const Attention<T> &a, int query, int key) {
  return query < a.tq && key < a.tk && (!a.causal || key <= query + a.tk - a.tq);
}

/* Keys that the queries below `query_end` see: [0, result). */
template <class T> DEVICE int keys_seen(const Attention<T> &a, int query_end) {
  int end = a.causal ? query_end + a.tk - a.tq : a.tk;
  return end < 0 ? 0 : end < a.tk ? end : a.tk;
}

/* May queries and keys be accessed 16 bytes at a time? */
static inline bool attention_wide(const AttentionShape *s, CudaTensor q, CudaTensor k, CudaTensor v, CudaTensor o) {
  const CudaTensor all[] = {q, k, v, o};
  int n = wide_of(q.type);
  bool wide = s->head_dim % n == 0;
  for (int i = 0; i < 4; i++) wide = wide && wide_ok(all[i], 2, n, n); /* rows of heads, whole pieces each */
  return wide;
}

template <class T>
static Attention<T> attention_of(const AttentionShape *s, CudaTensor q, CudaTensor k, CudaTensor v) {
  Attention<T> a = {};
  a.batch = (int)s->batch, a.tq = (int)s->tq, a.tk = (int)s->tk, a.heads = (int)s->heads;
  a.kv_heads = (int)s->kv_heads, a.head_dim = (int)s->head_dim, a.causal = s->causal, a.scale = (float)s->scale;
  a.q = (const T *)q.x, a.k = (const T *)k.x, a.v = (const T *)v.x;
  a.ldq = q.ld, a.ldk = k.ld, a.ldv = v.ld;
  return a;
}

#endif
