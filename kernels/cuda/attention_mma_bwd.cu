/* Owns: attention's backward pass on tensor cores, as attention_bwd.cu but for the units that multiply: one pass owns
 * queries and makes dq, another owns keys and makes dk and dv; no atomics.
 *
 * Moves q, k, v, do, dq, dk, dv once, and the walked side again per 64 owned rows out of L2; 14 tq tk head_dim flops a
 * head, half when causal. A tile of the walked side is copied to shared memory while the one before is multiplied. Bound: tensor
 * cores. Rate on an H200: 195 TFLOP/s at 16 x 32/8 heads x 8192 x 64, bf16, causal, 24 % of a large product's 800, or 139 by the 10 of its
 * 14 flops that are needed where scores are computed once: both passes compute them. cuDNN has 211 of those, repeatable, and 334 else. */
#include "kernels/cuda/attention_mma.cuh"

constexpr int COLS = 32;

/* Of a row of queries: its softmax's logarithm in units of ln 2, and delta times the scale. */
struct RowStats {
  float lse, delta;
};
template <class T> DEVICE RowStats stats_of(const Attention<T> &a, float lse, float delta) { return RowStats{lse * LOG2_E, delta * a.scale}; }

/* A tile of the walked side: keys and values; or queries, gradients of o, and what stats_of takes. One is copied while another is read. */
template <class T, int D> struct alignas(16) Walked {
  T x[COLS * (D + MMA_PAD)], y[COLS * (D + MMA_PAD)];
  float lse[COLS], delta[COLS];
};

/* A score becomes its probability, d of a probability that of its score before scaling. */
DEVICE void slope(float scale, RowStats row, float &s, float &d) {
  s = fast_exp2(s * (scale * LOG2_E) - row.lse);
  d = s * (d * scale - row.delta);
}

template <class T, int D> __global__ void __launch_bounds__(MMA_THREADS) mma_query_kernel(Attention<T> a) {
  constexpr int LD = D + MMA_PAD;
  DYNAMIC_SHARED(shared);
  T *q = (T *)shared, *d_o = q + MMA_ROWS * LD;
  Walked<T, D> *tile = (Walked<T, D> *)(d_o + MMA_ROWS * LD);
  int first = blockIdx.x * MMA_ROWS, head = blockIdx.y, kv = head / (a.heads / a.kv_heads), b = blockIdx.z;
  int64_t stats = ((int64_t)b * a.heads + head) * a.tq;
  tile_copy<MMA_ROWS, D>(q, a.q + (int64_t)b * a.tq * a.ldq + (int64_t)head * D, a.ldq, first, a.tq);
  tile_copy<MMA_ROWS, D>(d_o, a.d_o + (int64_t)b * a.tq * a.lddo + (int64_t)head * D, a.lddo, first, a.tq);
  Lane l = lane_of();
  float acc[D / 8][4] = {}, s[COLS / 8][4], ds[COLS / 8][4];
  int query[2] = {first + l.warp * 16 + l.g, first + l.warp * 16 + l.g + 8};
  RowStats row[2] = {};
  for (int i = 0; i < 2; i++)
    if (query[i] < a.tq) row[i] = stats_of(a, a.lse[stats + query[i]], a.delta[stats + query[i]]);
  int keys = keys_seen(a, first + MMA_ROWS);
  auto copy = [&](int key) {
    Walked<T, D> &to = tile[key / COLS % 2];
    if (key >= keys) return;
    tile_copy<COLS, D>(to.x, a.k + (int64_t)b * a.tk * a.ldk + (int64_t)kv * D, a.ldk, key, a.tk);
    tile_copy<COLS, D>(to.y, a.v + (int64_t)b * a.tk * a.ldv + (int64_t)kv * D, a.ldv, key, a.tk);
  };
  copy(0);
  for (int key = 0; key < keys; key += COLS) {
    const T *k = tile[key / COLS % 2].x, *v = tile[key / COLS % 2].y;
    copies_wait();
    __syncthreads(); /* this tile is there, and the one before has been read */
    copy(key + COLS);
    tile_scores<COLS, D>(q + l.warp * 16 * LD, k, s);
    tile_scores<COLS, D>(d_o + l.warp * 16 * LD, v, ds);
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
      for (int c = 0; c < 4; c++) slope(a.scale, row[c / 2], s[j][c], ds[j][c]);
    if (!all_visible(a, first, MMA_ROWS, key, COLS))
#pragma unroll
      for (int j = 0; j < COLS / 8; j++)
        for (int c = 0; c < 4; c++)
          if (!visible(a, query[c / 2], key + 8 * j + 2 * l.t + c % 2)) ds[j][c] = 0;
    tile_accumulate<COLS, D>(ds, k, acc);
  }
  const float one[2] = {1, 1};
  tile_store<D>(a.dq + (int64_t)b * a.tq * a.lddq + (int64_t)head * D, a.lddq, first, a.tq, one, acc, a.add_q);
}

/* Own keys against a tile of queries: s becomes the probabilities, ds their gradients. */
template <class T, int D>
DEVICE void key_scores(const Attention<T> &a, int first, int query, const Walked<T, D> &tile, float s[COLS / 8][4], float ds[COLS / 8][4]) {
  Lane l = lane_of();
#pragma unroll
  for (int j = 0; j < COLS / 8; j++)
    for (int c = 0; c < 4; c++) {
      int t = 8 * j + 2 * l.t + c % 2;
      slope(a.scale, stats_of(a, tile.lse[t], tile.delta[t]), s[j][c], ds[j][c]);
    }
  if (all_visible(a, query, COLS, first, MMA_ROWS)) return;
#pragma unroll
  for (int j = 0; j < COLS / 8; j++)
    for (int c = 0; c < 4; c++)
      if (!visible(a, query + 8 * j + 2 * l.t + c % 2, first + l.warp * 16 + l.g + c / 2 * 8)) s[j][c] = ds[j][c] = 0;
}

template <class T, int D> __global__ void __launch_bounds__(MMA_THREADS) mma_key_kernel(Attention<T> a) {
  constexpr int LD = D + MMA_PAD;
  DYNAMIC_SHARED(shared);
  T *k = (T *)shared, *v = k + MMA_ROWS * LD;
  Walked<T, D> *tile = (Walked<T, D> *)(v + MMA_ROWS * LD);
  int first = blockIdx.x * MMA_ROWS, kv = blockIdx.y, b = blockIdx.z, group = a.heads / a.kv_heads;
  tile_copy<MMA_ROWS, D>(k, a.k + (int64_t)b * a.tk * a.ldk + (int64_t)kv * D, a.ldk, first, a.tk);
  tile_copy<MMA_ROWS, D>(v, a.v + (int64_t)b * a.tk * a.ldv + (int64_t)kv * D, a.ldv, first, a.tk);
  Lane l = lane_of();
  float dk[D / 8][4] = {}, dv[D / 8][4] = {}, s[COLS / 8][4], ds[COLS / 8][4];
  int begin = a.causal && first > a.tk - a.tq ? (first - (a.tk - a.tq)) / COLS * COLS : 0;
  int of_head = (a.tq - begin + COLS - 1) / COLS, tiles = group * of_head;
  auto copy = [&](int n) {
    if (n >= tiles) return;
    Walked<T, D> &to = tile[n % 2];
    int head = kv * group + n / of_head, query = begin + n % of_head * COLS, own = query + threadIdx.x;
    int64_t stats = ((int64_t)b * a.heads + head) * a.tq + (own < a.tq ? own : 0);
    tile_copy<COLS, D>(to.x, a.q + (int64_t)b * a.tq * a.ldq + (int64_t)head * D, a.ldq, query, a.tq);
    tile_copy<COLS, D>(to.y, a.d_o + (int64_t)b * a.tq * a.lddo + (int64_t)head * D, a.lddo, query, a.tq);
    if (threadIdx.x >= COLS) return;
    copy_async<4>(to.lse + threadIdx.x, a.lse + stats, own < a.tq);
    copy_async<4>(to.delta + threadIdx.x, a.delta + stats, own < a.tq);
  };
  copy(0);
  for (int n = 0; n < tiles; n++) {
    const Walked<T, D> &now = tile[n % 2];
    copies_wait();
    __syncthreads(); /* as above */
    copy(n + 1);
    tile_scores<COLS, D>(k + l.warp * 16 * LD, now.x, s);
    tile_scores<COLS, D>(v + l.warp * 16 * LD, now.y, ds);
    key_scores(a, first, begin + n % of_head * COLS, now, s, ds);
    tile_accumulate<COLS, D>(s, now.y, dv);
    tile_accumulate<COLS, D>(ds, now.x, dk);
  }
  const float one[2] = {1, 1};
  tile_store<D>(a.dk + (int64_t)b * a.tk * a.lddk + (int64_t)kv * D, a.lddk, first, a.tk, one, dk, a.add_k);
  tile_store<D>(a.dv + (int64_t)b * a.tk * a.lddv + (int64_t)kv * D, a.lddv, first, a.tk, one, dv, a.add_v);
}

template <class T, int D> static int backward(CudaStream stream, const Attention<T> &a) {
  int64_t bytes = 2 * MMA_ROWS * (D + MMA_PAD) * (int64_t)sizeof(T) + 2 * (int64_t)sizeof(Walked<T, D>);
  int failed = ALLOW_SHARED((mma_query_kernel<T, D>), bytes);
  if (!failed) failed = ALLOW_SHARED((mma_key_kernel<T, D>), bytes);
  if (failed) return failed;
  dim3 queries((unsigned)ceil_of(a.tq, MMA_ROWS), (unsigned)a.heads, (unsigned)a.batch);
  dim3 keys((unsigned)ceil_of(a.tk, MMA_ROWS), (unsigned)a.kv_heads, (unsigned)a.batch);
  LAUNCH((mma_query_kernel<T, D>), queries, MMA_THREADS, bytes, stream, a);
  LAUNCH((mma_key_kernel<T, D>), keys, MMA_THREADS, bytes, stream, a);
  return LAUNCHED();
}

template <class T> int attention_mma_bwd(CudaStream stream, const Attention<T> &a) {
  FOR_MMA_DIM(a.head_dim, return backward<T, D>(stream, a);)
}
template int attention_mma_bwd<bf16>(CudaStream, const Attention<bf16> &);
template int attention_mma_bwd<f16>(CudaStream, const Attention<f16> &);
