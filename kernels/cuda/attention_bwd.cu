/* Owns: attention's backward pass (arXiv 2205.14135 appendix B) in f32 arithmetic, as attention.cu. Deterministic: no
 * atomics; one pass owns queries and makes dq, another owns keys and makes dk and dv, walking the query heads of its
 * group in order. Both compute the scores again.
 *
 * Moves q, k, v, o, do, dq, dk, dv once, and the walked side again per 64 owned rows out of L2; 14 tq tk head_dim flops
 * a head, half when causal. Four elements an access where rows allow it. Bound: f32 multiply-adds and shared memory; of
 * delta, which is also tensor cores', memory. Rate: not measured; compared with float64 on an H200. */
#include "kernels/cuda/attention_mma.cuh"

/* Eight threads a row and head: delta = sum of o do. Each takes pieces of 16 bytes, or as many single elements: the order of the
 * sum is the same. */
template <class T> __global__ void delta_kernel(Attention<T> a) {
  constexpr int N = Wide<T>::N;
  int64_t i = (int64_t)blockIdx.x * (blockDim.x / 8) + threadIdx.x / 8;
  bool there = i < (int64_t)a.batch * a.tq * a.heads;
  int64_t row = i / a.heads, head = i % a.heads, b = row / a.tq, t = row % a.tq;
  const T *o = a.o + row * a.ldo + head * a.head_dim, *d_o = a.d_o + row * a.lddo + head * a.head_dim;
  float sum = 0;
  for (int d = threadIdx.x % 8 * N; there && d < a.head_dim; d += 8 * N) {
    float x[N] = {0}, y[N] = {0};
    if (a.wide) load<T, N>(o + d, x), load<T, N>(d_o + d, y);
#pragma unroll
    for (int j = 0; j < N; j++)
      if (!a.wide && d + j < a.head_dim) load<T, 1>(o + d + j, x + j), load<T, 1>(d_o + d + j, y + j);
#pragma unroll
    for (int j = 0; j < N; j++) sum += x[j] * y[j];
  }
  sum = eight_sum(sum);
  if (there && threadIdx.x % 8 == 0) a.delta[(b * a.heads + head) * a.tq + t] = sum;
}

/* Where one head begins: of queries and what is like them, of keys and what is like them. */
template <class T> struct Head {
  const T *q, *d_o, *k, *v;
  const float *lse, *delta;
};

template <class T> DEVICE Head<T> head_of(const Attention<T> &a, int b, int head) {
  int64_t kv = head / (a.heads / a.kv_heads), rows = (int64_t)b * a.tq, keys = (int64_t)b * a.tk;
  int64_t from = (int64_t)head * a.head_dim, stats = ((int64_t)b * a.heads + head) * a.tq;
  return Head<T>{a.q + rows * a.ldq + from, a.d_o + rows * a.lddo + from, a.k + keys * a.ldk + kv * a.head_dim,
                 a.v + keys * a.ldv + kv * a.head_dim, a.lse + stats, a.delta + stats};
}

/* One tile of keys: s, scores, becomes their gradients, of own queries; dp: gradients of the probabilities. */
template <class T, class S>
DEVICE void query_tile(const Attention<T> &a, int first, int key, const float lse[2], const float delta[2],
                       float s[2][S::PAIRS], const float dp[2][S::PAIRS], S) {
  Own own = own_part();
  for (int i = 0; i < 2; i++) {
    int query = first + own.group + i * (S::ROWS / 2);
#pragma unroll
    for (int j = 0; j < S::PAIRS; j++) {
      bool seen = visible(a, query, key + own.lane + 8 * j);
      s[i][j] = seen ? expf(s[i][j] * a.scale - lse[i]) * (dp[i][j] - delta[i]) * a.scale : 0;
    }
  }
}

template <class T, int DP> __global__ void __launch_bounds__(Tile<DP>::THREADS) query_kernel(Attention<T> a) {
  typedef Tile<DP> S;
  const S shape = {};
  DYNAMIC_SHARED(shared);
  float *q = (float *)shared, *d_o = q + S::ROW_FLOATS, *k = d_o + S::ROW_FLOATS, *v = k + S::COL_FLOATS;
  float *p = v + S::COL_FLOATS;
  int first = blockIdx.x * S::ROWS, head = blockIdx.y, b = blockIdx.z;
  Head<T> from = head_of(a, b, head);
  load_tile(a, q, from.q, a.ldq, first, S::ROWS, a.tq, shape);
  load_tile(a, d_o, from.d_o, a.lddo, first, S::ROWS, a.tq, shape);
  float acc[2][S::PARTS][4] = {}, s[2][S::PAIRS], dp[2][S::PAIRS], lse[2] = {0, 0}, delta[2] = {0, 0};
  for (int i = 0; i < 2; i++) {
    int query = first + own_part().group + i * (S::ROWS / 2);
    if (query < a.tq) lse[i] = from.lse[query], delta[i] = from.delta[query];
  }
  int keys = keys_seen(a, first + S::ROWS);
  for (int key = 0; key < keys; key += S::COLS) {
    __syncthreads();
    load_tile(a, k, from.k, a.ldk, key, S::COLS, a.tk, shape);
    load_tile(a, v, from.v, a.ldv, key, S::COLS, a.tk, shape);
    __syncthreads();
    scores(q, k, s, shape);
    scores(d_o, v, dp, shape);
    query_tile(a, first, key, lse, delta, s, dp, shape);
    share(p, s, shape);
    accumulate(p, k, acc, shape);
  }
  const float one[2] = {1, 1};
  store_rows(a, a.dq + (int64_t)b * a.tq * a.lddq + (int64_t)head * a.head_dim, a.lddq, first, a.tq, one, acc, a.add_q, shape);
}

/* One tile of queries of one head: s becomes the probabilities, ds their gradients, of own keys. */
template <class T, class S>
DEVICE void key_tile(const Attention<T> &a, int first, int query, const float *lse, const float *delta,
                     float s[2][S::PAIRS], float ds[2][S::PAIRS], S) {
  Own own = own_part();
#pragma unroll
  for (int j = 0; j < S::PAIRS; j++) {
    int t = query + own.lane + 8 * j;
    float l = t < a.tq ? lse[t] : 0, d = t < a.tq ? delta[t] : 0;
    for (int i = 0; i < 2; i++) {
      bool seen = visible(a, t, first + own.group + i * (S::ROWS / 2));
      s[i][j] = seen ? expf(s[i][j] * a.scale - l) : 0;
      ds[i][j] = s[i][j] * (ds[i][j] - d) * a.scale;
    }
  }
}

/* The first query of a tile that sees keys from `first` on. */
template <class T> DEVICE int queries_before(const Attention<T> &a, int first, int cols) {
  return a.causal && first > a.tk - a.tq ? (first - (a.tk - a.tq)) / cols * cols : 0;
}

template <class T, int DP> __global__ void __launch_bounds__(Tile<DP>::THREADS) key_kernel(Attention<T> a) {
  typedef Tile<DP> S;
  const S shape = {};
  DYNAMIC_SHARED(shared);
  float *k = (float *)shared, *v = k + S::ROW_FLOATS, *q = v + S::ROW_FLOATS, *d_o = q + S::COL_FLOATS;
  float *p = d_o + S::COL_FLOATS;
  int first = blockIdx.x * S::ROWS, kv = blockIdx.y, b = blockIdx.z, group = a.heads / a.kv_heads;
  Head<T> own = head_of(a, b, kv * group);
  load_tile(a, k, own.k, a.ldk, first, S::ROWS, a.tk, shape);
  load_tile(a, v, own.v, a.ldv, first, S::ROWS, a.tk, shape);
  float dk[2][S::PARTS][4] = {}, dv[2][S::PARTS][4] = {}, s[2][S::PAIRS], ds[2][S::PAIRS];
  for (int head = kv * group; head < (kv + 1) * group; head++) {
    Head<T> from = head_of(a, b, head);
    for (int query = queries_before(a, first, S::COLS); query < a.tq; query += S::COLS) {
      __syncthreads();
      load_tile(a, q, from.q, a.ldq, query, S::COLS, a.tq, shape);
      load_tile(a, d_o, from.d_o, a.lddo, query, S::COLS, a.tq, shape);
      __syncthreads();
      scores(k, q, s, shape);
      scores(v, d_o, ds, shape);
      key_tile(a, first, query, from.lse, from.delta, s, ds, shape);
      share(p, s, shape);
      accumulate(p, d_o, dv, shape);
      share(p, ds, shape);
      accumulate(p, q, dk, shape);
    }
  }
  const float one[2] = {1, 1};
  int64_t keys = (int64_t)b * a.tk, column = (int64_t)kv * a.head_dim;
  store_rows(a, a.dk + keys * a.lddk + column, a.lddk, first, a.tk, one, dk, a.add_k, shape);
  store_rows(a, a.dv + keys * a.lddv + column, a.lddv, first, a.tk, one, dv, a.add_v, shape);
}

template <class T, int DP> static int backward(CudaStream stream, const Attention<T> &a) {
  typedef Tile<DP> S;
  int64_t bytes = (2 * S::ROW_FLOATS + 2 * S::COL_FLOATS + S::P_FLOATS) * (int64_t)sizeof(float);
  int failed = ALLOW_SHARED((query_kernel<T, DP>), bytes);
  if (!failed) failed = ALLOW_SHARED((key_kernel<T, DP>), bytes);
  if (failed) return failed;
  dim3 queries((unsigned)ceil_of(a.tq, S::ROWS), (unsigned)a.heads, (unsigned)a.batch);
  dim3 keys((unsigned)ceil_of(a.tk, S::ROWS), (unsigned)a.kv_heads, (unsigned)a.batch);
  LAUNCH((query_kernel<T, DP>), queries, S::THREADS, bytes, stream, a);
  LAUNCH((key_kernel<T, DP>), keys, S::THREADS, bytes, stream, a);
  return LAUNCHED();
}

int cuda_attention_bwd(CudaStream stream, const AttentionShape *shape, CudaTensor q, CudaTensor k, CudaTensor v,
                       CudaTensor o, const float *lse, CudaTensor d_o, CudaTensor dq, CudaTensor dk, CudaTensor dv,
                       void *scratch) {
  if (q.type != o.type || k.type != o.type || v.type != o.type || d_o.type != o.type || dq.type != o.type ||
      dk.type != o.type || dv.type != o.type)
    return CUDA_UNSUPPORTED;
  if (shape->batch * shape->tq == 0) return 0;
  FOR_TYPE(o.type, false, (void)N; Attention<T> a = attention_of<T>(shape, q, k, v); a.o = (const T *)o.x; a.ldo = o.ld;
           a.d_o = (const T *)d_o.x; a.lddo = d_o.ld; a.lse = (float *)lse; a.delta = (float *)scratch;
           a.dq = (T *)dq.x; a.lddq = dq.ld; a.add_q = dq.add; a.dk = (T *)dk.x; a.lddk = dk.ld; a.add_k = dk.add;
           a.dv = (T *)dv.x; a.lddv = dv.ld; a.add_v = dv.add;
           a.wide = attention_wide(shape, q, k, v, o) && attention_wide(shape, dq, dk, dv, d_o);
           LAUNCH((delta_kernel<T>), (unsigned)ceil_of(shape->batch * shape->tq * shape->heads, WARP), 8 * WARP, 0, stream, a);
           int failed = LAUNCHED(); if (failed) return failed;
           if constexpr (sizeof(T) == 2) {
             if (attention_mma_ok(shape, q, k, v, o) && attention_mma_ok(shape, dq, dk, dv, d_o))
               return attention_mma_bwd<T>(stream, a);
           }
           FOR_HEAD_DIM(shape->head_dim, return backward<T, DP>(stream, a);))
}
