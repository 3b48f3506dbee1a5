/* Owns: attention's backward pass (arXiv 2205.14135 appendix B) in f32 arithmetic, as attention.cu. Deterministic: no
 * atomics; one pass owns queries and makes dq, another owns keys and makes dk and dv, walking the query heads of its
 * group in order. Both compute the scores again.
 *
 * Moves q, k, v, o, do, dq, dk, dv once, and the walked side again per 64 owned rows out of L2; 14 tq tk head_dim flops
 * a head, half when causal. Bound: f32 multiply-adds and shared memory. Rate: not measured yet (no GPU). */
#include "kernels/cuda/attention_mma.cuh"

/* A warp a row and head: delta = sum of o do. */
template <class T> __global__ void delta_kernel(Attention<T> a) {
  int64_t i = (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, rows = (int64_t)a.batch * a.tq;
  if (i >= rows * a.heads) return;
  int64_t row = i / a.heads, head = i % a.heads, b = row / a.tq, t = row % a.tq;
  float sum = 0;
  for (int d = threadIdx.x % WARP; d < a.head_dim; d += WARP)
    sum += to_float(a.o[row * a.ldo + head * a.head_dim + d]) * to_float(a.d_o[row * a.lddo + head * a.head_dim + d]);
  sum = warp_sum(sum);
  if (threadIdx.x % WARP == 0) a.delta[(b * a.heads + head) * a.tq + t] = sum;
}

template <class T, int DP> __global__ void __launch_bounds__(Tile<DP>::THREADS) query_kernel(Attention<T> a) {
  typedef Tile<DP> S;
  const S shape = {};
  DYNAMIC_SHARED(shared);
  float *q = (float *)shared, *d_o = q + S::ROW_FLOATS, *k = d_o + S::ROW_FLOATS, *v = k + S::COL_FLOATS;
  float *p = v + S::COL_FLOATS;
  int first = blockIdx.x * S::ROWS, head = blockIdx.y, kv = head / (a.heads / a.kv_heads), b = blockIdx.z;
  int64_t column = (int64_t)head * a.head_dim, stats = ((int64_t)b * a.heads + head) * a.tq;
  load_tile(q, a.q + (int64_t)b * a.tq * a.ldq + column, a.ldq, first, S::ROWS, a.tq, a.head_dim, shape);
  load_tile(d_o, a.d_o + (int64_t)b * a.tq * a.lddo + column, a.lddo, first, S::ROWS, a.tq, a.head_dim, shape);
  Own own = own_part();
  float acc[2][S::PARTS][4] = {}, s[2][S::PAIRS], dp[2][S::PAIRS], lse[2] = {0, 0}, delta[2] = {0, 0};
  for (int i = 0; i < 2; i++) {
    int query = first + own.group + i * (S::ROWS / 2);
    if (query < a.tq) lse[i] = a.lse[stats + query], delta[i] = a.delta[stats + query];
  }
  int keys = keys_seen(a, first + S::ROWS);
  for (int key = 0; key < keys; key += S::COLS) {
    __syncthreads();
    load_tile(k, a.k + (int64_t)b * a.tk * a.ldk + (int64_t)kv * a.head_dim, a.ldk, key, S::COLS, a.tk, a.head_dim, shape);
    load_tile(v, a.v + (int64_t)b * a.tk * a.ldv + (int64_t)kv * a.head_dim, a.ldv, key, S::COLS, a.tk, a.head_dim, shape);
    __syncthreads();
    scores(q, k, s, shape);
    scores(d_o, v, dp, shape);
    for (int i = 0; i < 2; i++) {
      int query = first + own.group + i * (S::ROWS / 2);
#pragma unroll
      for (int j = 0; j < S::PAIRS; j++) {
        bool seen = visible(a, query, key + own.lane + 8 * j);
        s[i][j] = seen ? expf(s[i][j] * a.scale - lse[i]) * (dp[i][j] - delta[i]) * a.scale : 0;
      }
    }
    share(p, s, shape);
    accumulate(p, k, acc, shape);
  }
  const float one[2] = {1, 1};
  store_rows(a.dq + (int64_t)b * a.tq * a.lddq + column, a.lddq, first, a.tq, a.head_dim, one, acc, a.add_q, shape);
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

template <class T, int DP> __global__ void __launch_bounds__(Tile<DP>::THREADS) key_kernel(Attention<T> a) {
  typedef Tile<DP> S;
  const S shape = {};
  DYNAMIC_SHARED(shared);
  float *k = (float *)shared, *v = k + S::ROW_FLOATS, *q = v + S::ROW_FLOATS, *d_o = q + S::COL_FLOATS;
  float *p = d_o + S::COL_FLOATS;
  int first = blockIdx.x * S::ROWS, kv = blockIdx.y, b = blockIdx.z, group = a.heads / a.kv_heads;
  int64_t column = (int64_t)kv * a.head_dim;
  load_tile(k, a.k + (int64_t)b * a.tk * a.ldk + column, a.ldk, first, S::ROWS, a.tk, a.head_dim, shape);
  load_tile(v, a.v + (int64_t)b * a.tk * a.ldv + column, a.ldv, first, S::ROWS, a.tk, a.head_dim, shape);
  float dk[2][S::PARTS][4] = {}, dv[2][S::PARTS][4] = {}, s[2][S::PAIRS], ds[2][S::PAIRS];
  int begin = a.causal && first > a.tk - a.tq ? (first - (a.tk - a.tq)) / S::COLS * S::COLS : 0;
  for (int head = kv * group; head < (kv + 1) * group; head++) {
    int64_t stats = ((int64_t)b * a.heads + head) * a.tq, from = (int64_t)head * a.head_dim;
    for (int query = begin; query < a.tq; query += S::COLS) {
      __syncthreads();
      load_tile(q, a.q + (int64_t)b * a.tq * a.ldq + from, a.ldq, query, S::COLS, a.tq, a.head_dim, shape);
      load_tile(d_o, a.d_o + (int64_t)b * a.tq * a.lddo + from, a.lddo, query, S::COLS, a.tq, a.head_dim, shape);
      __syncthreads();
      scores(k, q, s, shape);
      scores(v, d_o, ds, shape);
      key_tile(a, first, query, a.lse + stats, a.delta + stats, s, ds, shape);
      share(p, s, shape);
      accumulate(p, d_o, dv, shape);
      share(p, ds, shape);
      accumulate(p, q, dk, shape);
    }
  }
  const float one[2] = {1, 1};
  store_rows(a.dk + (int64_t)b * a.tk * a.lddk + column, a.lddk, first, a.tk, a.head_dim, one, dk, a.add_k, shape);
  store_rows(a.dv + (int64_t)b * a.tk * a.lddv + column, a.lddv, first, a.tk, a.head_dim, one, dv, a.add_v, shape);
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
           LAUNCH((delta_kernel<T>), (unsigned)ceil_of(shape->batch * shape->tq * shape->heads, 8), 8 * WARP, 0, stream, a);
           int failed = LAUNCHED(); if (failed) return failed;
           if constexpr (sizeof(T) == 2) {
             if (attention_mma_ok(shape, q, k, v, o) && attention_mma_ok(shape, dq, dk, dv, d_o))
               return attention_mma_bwd<T>(stream, a);
           }
           FOR_HEAD_DIM(shape->head_dim, return backward<T, DP>(stream, a);))
}
