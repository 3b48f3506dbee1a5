/* Owns: attention's forward pass (arXiv 2205.14135): o = softmax(scale q k^T) v and the logarithm of the softmax's
 * denominators, block by block, without the scores ever reaching memory. Causal or full, grouped queries, any head
 * dimension up to 256, in f32 arithmetic without tensor cores: the reference and the path of f32 and of odd shapes;
 * attention_mma.cu is the fast one, attention_split.cu that of single rows.
 *
 * Moves q, k, v, o once and k, v once more per 64 queries out of L2; 4 tq tk head_dim flops a head, half when causal.
 * Four elements an access where rows allow it, 16 bytes of f32, which saves instructions.
 * Bound: f32 multiply-adds and shared memory. Rate: not measured; compared with float64 on an H200. */
#include "kernels/cuda/attention_mma.cuh"

template <class T, int DP> __global__ void __launch_bounds__(Tile<DP>::THREADS) forward_kernel(Attention<T> a) {
  typedef Tile<DP> S;
  const S shape = {};
  DYNAMIC_SHARED(shared);
  float *q = (float *)shared, *k = q + S::ROW_FLOATS, *v = k + S::COL_FLOATS, *p = v + S::COL_FLOATS;
  int first = blockIdx.x * S::ROWS, head = blockIdx.y, kv = head / (a.heads / a.kv_heads), b = blockIdx.z;
  const T *from_k = a.k + (int64_t)b * a.tk * a.ldk + (int64_t)kv * a.head_dim;
  const T *from_v = a.v + (int64_t)b * a.tk * a.ldv + (int64_t)kv * a.head_dim;
  load_tile(a, q, a.q + (int64_t)b * a.tq * a.ldq + (int64_t)head * a.head_dim, a.ldq, first, S::ROWS, a.tq, shape);
  Own own = own_part();
  float acc[2][S::PARTS][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, s[2][S::PAIRS];
  int keys = keys_seen(a, first + S::ROWS);
  for (int key = 0; key < keys; key += S::COLS) {
    __syncthreads(); /* the tiles have been read */
    load_tile(a, k, from_k, a.ldk, key, S::COLS, a.tk, shape);
    load_tile(a, v, from_v, a.ldv, key, S::COLS, a.tk, shape);
    __syncthreads();
    scores(q, k, s, shape);
    for (int i = 0; i < 2; i++) {
      int query = first + own.group + i * (S::ROWS / 2);
      float most = top[i], total = 0;
#pragma unroll
      for (int j = 0; j < S::PAIRS; j++) {
        s[i][j] = visible(a, query, key + own.lane + 8 * j) ? s[i][j] * a.scale : -INFINITY;
        most = fmaxf(most, s[i][j]);
      }
      most = eight_max(most);
      float base = base_of(most), shrink = expf(top[i] - base);
#pragma unroll
      for (int j = 0; j < S::PAIRS; j++) total += s[i][j] = expf(s[i][j] - base);
      sum[i] = sum[i] * shrink + eight_sum(total);
      top[i] = most;
#pragma unroll
      for (int n = 0; n < S::PARTS; n++)
        for (int j = 0; j < 4; j++) acc[i][n][j] *= shrink;
    }
    share(p, s, shape);
    accumulate(p, v, acc, shape);
  }
  float factor[2];
  for (int i = 0; i < 2; i++) {
    int query = first + own.group + i * (S::ROWS / 2);
    factor[i] = sum[i] > 0 ? 1 / sum[i] : 0;
    if (query < a.tq && own.lane == 0) a.lse[((int64_t)b * a.heads + head) * a.tq + query] = top[i] + logf(sum[i]);
  }
  store_rows(a, a.out + (int64_t)b * a.tq * a.ldout + (int64_t)head * a.head_dim, a.ldout, first, a.tq, factor, acc, 0, shape);
}

template <class T, int DP> static int forward(CudaStream stream, const Attention<T> &a) {
  typedef Tile<DP> S;
  int64_t bytes = (S::ROW_FLOATS + 2 * S::COL_FLOATS + S::P_FLOATS) * (int64_t)sizeof(float);
  dim3 grid((unsigned)ceil_of(a.tq, S::ROWS), (unsigned)a.heads, (unsigned)a.batch);
  int failed = ALLOW_SHARED((forward_kernel<T, DP>), bytes);
  if (failed) return failed;
  LAUNCH((forward_kernel<T, DP>), grid, S::THREADS, bytes, stream, a);
  return LAUNCHED();
}

int cuda_attention_fwd(CudaStream stream, const AttentionShape *shape, CudaTensor q, CudaTensor k, CudaTensor v,
                       CudaTensor o, float *lse, void *scratch) {
  if (q.type != o.type || k.type != o.type || v.type != o.type) return CUDA_UNSUPPORTED;
  if (shape->batch * shape->tq == 0) return 0;
  FOR_TYPE(o.type, false, (void)N; Attention<T> a = attention_of<T>(shape, q, k, v); a.out = (T *)o.x; a.ldout = o.ld;
           a.lse = lse; a.wide = attention_wide(shape, q, k, v, o);
           bool mma = attention_mma_ok(shape, q, k, v, o);
           if (shape->tq == 1) return attention_split_fwd<T>(stream, shape, a, mma, scratch);
           if constexpr (sizeof(T) == 2) {
             if (mma) return attention_mma_fwd<T>(stream, a);
           }
           FOR_HEAD_DIM(shape->head_dim, return forward<T, DP>(stream, a);))
}
