/* Owns: attention's forward pass for single rows of queries, as decoding has them (flash-decoding): o and the logarithm of the
 * softmax's denominators. Keys are cut into parts by cuda_attention_parts; a block takes one part for the heads of queries that
 * share a head of keys, 16 at most on tensor cores and 8 else. Each part leaves its result in scratch memory; a second kernel
 * joins them in order. bf16 and f16 with head dimensions 64, 96, 128 on tensor cores, anything else in f32 arithmetic.
 *
 * Moves k and v once, 16 bytes an access where rows allow it: on tensor cores by asynchronous copies to shared memory; else each
 * head's warps read them, at the same pace, so that all but the first find them in L1. 4 tk head_dim flops a head. Parts cost 2 parts (head_dim + 2)
 * floats a head more, written and read in L2: at most 512 (heads / kv_heads) of them for a sample. Bound: memory; of few keys,
 * the latency of two launches. Rate: not measured; compared with float64 on an H200. */
#include "kernels/cuda/attention_mma.cuh"

/* Where parts leave their results, by rows of queries (a sample's head) and by parts. */
struct Parts {
  int count, ld;   /* of a row; floats of a result, from head_dim on zeros */
  float *acc;      /* [row][part][ld]: sums of values times 2^(score - top) */
  RowState *state; /* [row][part] */
};

/* What a block computes: heads of queries from `head` on that share head kv of keys; keys in [begin, end). */
struct Task {
  int part, kv, head, heads, begin, end;
  int64_t sample;
};

/* The grid: parts, chunks of `most` heads, samples. */
template <class T> DEVICE Task task_of(const Attention<T> &a, int parts, int most) {
  int group = a.heads / a.kv_heads, chunks = (group + most - 1) / most, part = blockIdx.x;
  int kv = blockIdx.y / chunks, first = blockIdx.y % chunks * most, left = group - first;
  int64_t tiles = (a.tk + SPLIT_TILE - 1) / SPLIT_TILE, end = tiles * (part + 1) / parts * SPLIT_TILE;
  return Task{part, kv, kv * group + first, left < most ? left : most, (int)(tiles * part / parts * SPLIT_TILE), end < a.tk ? (int)end : a.tk,
              blockIdx.z};
}

/* Joins the results of `members` warps, or parts of warps, in their order: in shared memory, of head h state[m pitch + h] and
 * acc[m pitch + h][ld]. */
template <class T>
DEVICE void store_part(const Attention<T> &a, const Parts &to, const Task &task, int members, int pitch, const RowState *state,
                       const float *acc, int ld) {
  for (int i = threadIdx.x * 4; i < task.heads * to.ld; i += blockDim.x * 4) {
    int h = i / to.ld, d = i % to.ld;
    float top = -INFINITY, sum = 0;
    float4 x = {0, 0, 0, 0};
    for (int m = 0; m < members; m++) top = fmaxf(top, state[m * pitch + h].top);
    for (int m = 0; m < members; m++) {
      RowState from = state[m * pitch + h];
      float4 y = *(const float4 *)(acc + (m * pitch + h) * ld + d);
      float weight = exp2f(from.top - base_of(top));
      sum += weight * from.sum;
      x.x += weight * y.x, x.y += weight * y.y, x.z += weight * y.z, x.w += weight * y.w;
    }
    int64_t at = (task.sample * a.heads + task.head + h) * to.count + task.part;
    store_whole((float4 *)(to.acc + at * to.ld + d), x);
    if (d == 0) to.state[at] = RowState{top, sum};
  }
}

/* --- on tensor cores ------------------------------------------------------------------------------------------------ */

/* Heads of queries are the rows of a product, those that are missing zero; of each tile of keys a warp takes its quarter. */
constexpr int MMA_HEADS = 16, MMA_WARPS = MMA_THREADS / WARP, MMA_KEYS = SPLIT_TILE / MMA_WARPS;

template <class T, int D> __global__ void __launch_bounds__(MMA_THREADS) mma_split_kernel(Attention<T> a, Parts parts) {
  constexpr int LD = D + MMA_PAD;
  DYNAMIC_SHARED(shared);
  T *q = (T *)shared, *k = q + MMA_HEADS * LD, *v = k + SPLIT_TILE * LD;
  Task task = task_of(a, parts.count, MMA_HEADS);
  const T *from_k = a.k + task.sample * a.tk * a.ldk + (int64_t)task.kv * D, *from_v = a.v + task.sample * a.tk * a.ldv + (int64_t)task.kv * D;
  tile_copy<MMA_HEADS, D>(q, a.q + task.sample * a.ldq + (int64_t)task.head * D, D, 0, task.heads);
  Lane l = lane_of();
  RowState row[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
  float acc[D / 8][4] = {}, s[MMA_KEYS / 8][4];
  tile_copy<SPLIT_TILE, D>(k, from_k, a.ldk, task.begin, a.tk);
  for (int key = task.begin; key < task.end; key += SPLIT_TILE) { /* as in attention_mma.cu */
    copies_wait();
    __syncthreads();
    tile_copy<SPLIT_TILE, D>(v, from_v, a.ldv, key, a.tk);
    tile_scores<MMA_KEYS, D>(q, k + l.warp * MMA_KEYS * LD, s);
    int own = key + l.warp * MMA_KEYS;
    bool whole = all_visible(a, 0, 1, own, MMA_KEYS);
    for (int i = 0; i < 2; i++) {
      float shrink = soften<MMA_KEYS>(a, 0, own, whole, s, i, row[i]);
#pragma unroll
      for (int n = 0; n < D / 8; n++) acc[n][2 * i] *= shrink, acc[n][2 * i + 1] *= shrink;
    }
    copies_wait();
    __syncthreads();
    if (key + SPLIT_TILE < task.end) tile_copy<SPLIT_TILE, D>(k, from_k, a.ldk, key + SPLIT_TILE, a.tk);
    tile_accumulate<MMA_KEYS, D>(s, v + l.warp * MMA_KEYS * LD, acc);
  }
  copies_wait(); /* where there were no keys */
  __syncthreads();
  static_assert(MMA_WARPS * MMA_HEADS * sizeof(float) <= 2 * SPLIT_TILE * sizeof(T), "the warps' results fit where keys and values were");
  float *sums = (float *)k;
  RowState *state = (RowState *)q;
  for (int i = 0; i < 2; i++) {
    int own = l.warp * MMA_HEADS + l.g + 8 * i;
    if (l.t == 0) state[own] = row[i];
#pragma unroll
    for (int n = 0; n < D / 8; n++)
      for (int c = 0; c < 2; c++) sums[own * LD + 8 * n + 2 * l.t + c] = acc[n][2 * i + c];
  }
  __syncthreads();
  store_part(a, parts, task, MMA_WARPS, MMA_HEADS, state, sums, LD);
}

template <class T, int D> static int split_mma(CudaStream stream, const Attention<T> &a, const Parts &parts) {
  int64_t bytes = (MMA_HEADS + 2 * SPLIT_TILE) * (D + MMA_PAD) * (int64_t)sizeof(T);
  dim3 grid((unsigned)parts.count, (unsigned)(a.kv_heads * ceil_of(a.heads / a.kv_heads, MMA_HEADS)), (unsigned)a.batch);
  LAUNCH((mma_split_kernel<T, D>), grid, MMA_THREADS, bytes, stream, a, parts);
  return LAUNCHED();
}

/* --- in f32 arithmetic ------------------------------------------------------------------------------------------------ */

/* LANES of a warp hold a row: pieces of N elements, from (j LANES + lane) N on. A warp so takes KEYS at a time, and AHEAD times as
 * many before it waits for the first. The block's warps are dealt to the heads, then to stripes of keys. */
template <int N, int DP> struct Split {
  static constexpr int LANES = DP / N < WARP ? DP / N : WARP, PER = DP / LANES, KEYS = WARP / LANES, AHEAD = 4, WARPS = 8;
};

template <class T, int N, class S> DEVICE void take_row(const Attention<T> &a, const T *x, bool there, float out[S::PER], S) {
#pragma unroll
  for (int j = 0; j < S::PER; j += N) {
    int d = j * S::LANES + threadIdx.x % S::LANES * N;
#pragma unroll
    for (int c = 0; c < N; c++) out[j + c] = 0;
    if (there && d < a.head_dim) load<T, N>(x + d, out + j);
  }
}

template <class S> DEVICE float row_dot(const float x[S::PER], const float y[S::PER], S) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < S::PER; i++) sum += x[i] * y[i];
#pragma unroll
  for (int offset = S::LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(WHOLE_WARP, sum, offset);
  return sum;
}

template <class T, int N, int DP> __global__ void __launch_bounds__(Split<N, DP>::WARPS *WARP) split_kernel(Attention<T> a, Parts parts) {
  typedef Split<N, DP> S;
  const S shape = {};
  SHARED_ARRAY(float4, space, S::WARPS * S::KEYS * DP / 4);
  SHARED_ARRAY(RowState, state, S::WARPS * S::KEYS);
  Task task = task_of(a, parts.count, S::WARPS);
  int warp = threadIdx.x / WARP, lane = threadIdx.x % S::LANES, sub = threadIdx.x % WARP / S::LANES;
  int h = warp % task.heads, stripe = warp / task.heads, stripes = S::WARPS / task.heads, step = stripes * S::KEYS;
  const T *from_k = a.k + task.sample * a.tk * a.ldk + (int64_t)task.kv * a.head_dim;
  const T *from_v = a.v + task.sample * a.tk * a.ldv + (int64_t)task.kv * a.head_dim;
  float q[S::PER], acc[S::PER] = {}, k[S::AHEAD][S::PER], v[S::AHEAD][S::PER], s[S::AHEAD], scale = a.scale * LOG2_E;
  RowState row = {-INFINITY, 0};
  take_row<T, N>(a, a.q + task.sample * a.ldq + (int64_t)(task.head + h) * a.head_dim, true, q, shape);
  for (int first = task.begin + stripe * S::KEYS; stripe < stripes && first < task.end; first += S::AHEAD * step) {
    float top = row.top;
#pragma unroll
    for (int i = 0; i < S::AHEAD; i++) {
      int key = first + sub + i * step;
      take_row<T, N>(a, from_k + key * a.ldk, key < task.end, k[i], shape);
      take_row<T, N>(a, from_v + key * a.ldv, key < task.end, v[i], shape);
    }
#pragma unroll
    for (int i = 0; i < S::AHEAD; i++) {
      s[i] = row_dot(q, k[i], shape) * scale;
      if (first + sub + i * step >= task.end) s[i] = -INFINITY;
      top = fmaxf(top, s[i]);
    }
    float base = base_of(top), shrink = exp2f(row.top - base);
    row = RowState{top, row.sum * shrink};
#pragma unroll
    for (int d = 0; d < S::PER; d++) acc[d] *= shrink;
#pragma unroll
    for (int i = 0; i < S::AHEAD; i++) {
      float p = exp2f(s[i] - base);
      row.sum += p;
#pragma unroll
      for (int d = 0; d < S::PER; d++) acc[d] += p * v[i][d];
    }
  }
  int own = (stripe * S::KEYS + sub) * task.heads + h;
  if (stripe < stripes) {
    if (lane == 0) state[own] = row;
#pragma unroll
    for (int d = 0; d < S::PER; d++) ((float *)space)[own * DP + (d / N * S::LANES + lane) * N + d % N] = acc[d];
  }
  __syncthreads();
  store_part(a, parts, task, step, task.heads, state, (const float *)space, DP);
}

template <class T, int N, int DP> static int split(CudaStream stream, const Attention<T> &a, const Parts &parts) {
  constexpr int WARPS = Split<N, DP>::WARPS;
  dim3 grid((unsigned)parts.count, (unsigned)(a.kv_heads * ceil_of(a.heads / a.kv_heads, WARPS)), (unsigned)a.batch);
  LAUNCH((split_kernel<T, N, DP>), grid, WARPS * WARP, 0, stream, a, parts);
  return LAUNCHED();
}

/* --- joining ------------------------------------------------------------------------------------------------------------ */

constexpr int JOIN_THREADS = 256;

/* weight[i] = 2^(the top of part i - the top of all); returns the row's state. */
DEVICE RowState weigh(const RowState *state, int count, float *weight) {
  SHARED_ARRAY(float, space, JOIN_THREADS / WARP);
  float top = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < count; i += JOIN_THREADS) top = fmaxf(top, state[i].top);
  top = block_max(top, space);
  for (int i = threadIdx.x; i < count; i += JOIN_THREADS) {
    weight[i] = exp2f(state[i].top - base_of(top));
    sum += weight[i] * state[i].sum;
  }
  return RowState{top, block_sum(sum, space)}; /* whose barriers let all see the weights */
}

/* A block a row of o: threads own four neighbours of every so manieth part, and those of all groups are then added. */
template <class T, int N> __global__ void __launch_bounds__(JOIN_THREADS) join_kernel(Attention<T> a, Parts parts) {
  SHARED_ARRAY(float, weight, SPLIT_BLOCKS);
  SHARED_ARRAY(float4, space, JOIN_THREADS);
  int64_t index = (int64_t)blockIdx.y * a.heads + blockIdx.x;
  RowState row = weigh(parts.state + index * parts.count, parts.count, weight);
  int pieces = parts.ld / 4, groups = JOIN_THREADS / pieces, group = threadIdx.x / pieces, piece = threadIdx.x % pieces;
  const float *acc = parts.acc + index * parts.count * parts.ld + piece * 4;
  float4 x = {0, 0, 0, 0};
#pragma unroll 4
  for (int i = group; group < groups && i < parts.count; i += groups) {
    float4 y = *(const float4 *)(acc + (int64_t)i * parts.ld);
    x.x += weight[i] * y.x, x.y += weight[i] * y.y, x.z += weight[i] * y.z, x.w += weight[i] * y.w;
  }
  space[threadIdx.x] = x;
  __syncthreads();
  float factor = row.sum > 0 ? 1 / row.sum : 0;
  int d = threadIdx.x * N;
  if (d < a.head_dim) {
    float out[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
      float sum = 0;
      for (int g = 0; g < groups; g++) sum += ((const float *)space)[g * parts.ld + d + j];
      out[j] = sum * factor;
    }
    store<T, N>(a.out + blockIdx.y * a.ldout + (int64_t)blockIdx.x * a.head_dim + d, out);
  }
  if (threadIdx.x == 0) a.lse[index] = row.top * LN_2 + logf(row.sum);
}

/* --- launching ------------------------------------------------------------------------------------------------------------ */

template <class T, int N> static int leave_parts(CudaStream stream, const Attention<T> &a, bool mma, const Parts &parts) {
  if constexpr (sizeof(T) == 2 && N > 1) {
    if (mma) { FOR_MMA_DIM(a.head_dim, return (split_mma<T, D>(stream, a, parts));) }
  }
  (void)mma;
  FOR_HEAD_DIM(a.head_dim, return (split<T, N, DP>(stream, a, parts));)
}

template <class T, int N> static int split_and_join(CudaStream stream, const Attention<T> &a, bool mma, const Parts &parts) {
  int failed = leave_parts<T, N>(stream, a, mma, parts);
  if (failed) return failed;
  LAUNCH((join_kernel<T, N>), dim3((unsigned)a.heads, (unsigned)a.batch), JOIN_THREADS, 0, stream, a, parts);
  return LAUNCHED();
}

template <class T>
int attention_split_fwd(CudaStream stream, const AttentionShape *shape, const Attention<T> &a, bool mma, void *scratch) {
  int64_t count = cuda_attention_parts(shape), ld = cuda_attention_part_floats(shape);
  float *acc = (float *)scratch;
  Parts parts = {(int)count, (int)ld, acc, (RowState *)(acc + shape->batch * shape->heads * count * ld)};
  if (a.wide) return split_and_join<T, Wide<T>::N>(stream, a, mma, parts);
  return split_and_join<T, 1>(stream, a, false, parts);
}
template int attention_split_fwd<float>(CudaStream, const AttentionShape *, const Attention<float> &, bool, void *);
template int attention_split_fwd<bf16>(CudaStream, const AttentionShape *, const Attention<bf16> &, bool, void *);
template int attention_split_fwd<f16>(CudaStream, const AttentionShape *, const Attention<f16> &, bool, void *);
