/* Owns: attention's forward pass on tensor cores (arXiv 2307.08691): head dimensions 64,
 * 96, 128 in bf16 or f16, causal or full, grouped queries.
 *
 * Moves q, k, v, o once and k, v once more per 64 queries out of L2; 4 tq tk head_dim flops a head, half when causal.
 * Values are copied to shared memory while scores are computed, the next keys while values are added up: one tile of each is enough.
 * Bound: tensor cores. Rate on an H200: 182 TFLOP/s at 16 x 32/8 heads x 8192 x 64, bf16, causal, 23 % of a large product's 800; cuDNN
 * has 394. By mma.sync, during which a warp takes no exponents; Hopper's asynchronous products (wgmma) would leave it free. */
#include "kernels/cuda/attention_mma.cuh"

constexpr int COLS = 64;

template <class T, int D> __global__ void __launch_bounds__(MMA_THREADS) mma_forward_kernel(Attention<T> a) {
  DYNAMIC_SHARED(shared);
  T *q = (T *)shared, *k = q + MMA_ROWS * (D + MMA_PAD), *v = k + COLS * (D + MMA_PAD);
  int first = blockIdx.x * MMA_ROWS, head = blockIdx.y, kv = head / (a.heads / a.kv_heads), b = blockIdx.z;
  const T *from_k = a.k + (int64_t)b * a.tk * a.ldk + (int64_t)kv * D, *from_v = a.v + (int64_t)b * a.tk * a.ldv + (int64_t)kv * D;
  tile_copy<MMA_ROWS, D>(q, a.q + (int64_t)b * a.tq * a.ldq + (int64_t)head * D, a.ldq, first, a.tq);
  Lane l = lane_of();
  RowState row[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
  float acc[D / 8][4] = {}, s[COLS / 8][4];
  int keys = keys_seen(a, first + MMA_ROWS);
  tile_copy<COLS, D>(k, from_k, a.ldk, 0, a.tk);
  for (int key = 0; key < keys; key += COLS) {
    copies_wait();
    __syncthreads(); /* these keys are there, and the values before them have been read */
    tile_copy<COLS, D>(v, from_v, a.ldv, key, a.tk);
    tile_scores<COLS, D>(q + l.warp * 16 * (D + MMA_PAD), k, s);
    bool whole = all_visible(a, first, MMA_ROWS, key, COLS);
    for (int i = 0; i < 2; i++) {
      float shrink = soften<COLS>(a, first + l.warp * 16 + l.g + 8 * i, key, whole, s, i, row[i]);
#pragma unroll
      for (int n = 0; n < D / 8; n++) acc[n][2 * i] *= shrink, acc[n][2 * i + 1] *= shrink;
    }
    copies_wait();
    __syncthreads(); /* the values are there, and the keys have been read */
    if (key + COLS < keys) tile_copy<COLS, D>(k, from_k, a.ldk, key + COLS, a.tk);
    tile_accumulate<COLS, D>(s, v, acc);
  }
  float factor[2];
  for (int i = 0; i < 2; i++) {
    int query = first + l.warp * 16 + l.g + 8 * i;
    factor[i] = row[i].sum > 0 ? 1 / row[i].sum : 0;
    if (query < a.tq && l.t == 0) a.lse[((int64_t)b * a.heads + head) * a.tq + query] = row[i].top * LN_2 + logf(row[i].sum);
  }
  tile_store<D>(a.out + (int64_t)b * a.tq * a.ldout + (int64_t)head * D, a.ldout, first, a.tq, factor, acc, 0);
}

template <class T, int D> static int forward(CudaStream stream, const Attention<T> &a) {
  int64_t bytes = (MMA_ROWS + 2 * COLS) * (D + MMA_PAD) * (int64_t)sizeof(T);
  dim3 grid((unsigned)ceil_of(a.tq, MMA_ROWS), (unsigned)a.heads, (unsigned)a.batch);
  int failed = ALLOW_SHARED((mma_forward_kernel<T, D>), bytes);
  if (failed) return failed;
  LAUNCH((mma_forward_kernel<T, D>), grid, MMA_THREADS, bytes, stream, a);
  return LAUNCHED();
}

template <class T> int attention_mma_fwd(CudaStream stream, const Attention<T> &a) {
  FOR_MMA_DIM(a.head_dim, return forward<T, D>(stream, a);)
}
template int attention_mma_fwd<bf16>(CudaStream, const Attention<bf16> &);
template int attention_mma_fwd<f16>(CudaStream, const Attention<f16> &);
