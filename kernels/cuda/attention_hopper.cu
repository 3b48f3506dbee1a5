/* Owns: attention's backward pass on Hopper (compute 9.0): causal, heads of 64 dimensions, 16 bits; results repeat bit by bit.
 *
 * A block owns 128 keys of one head of keys at a time and walks the queries that see them, of all heads that share the keys, in tiles of
 * 128: five products a tile, one pass (arXiv 2407.08608, without its atomics). dk and dv stay in registers; dq is a sum over blocks, which lies in
 * device memory in f32, in the order of registers. What makes it repeat: a tile of queries has a turn, and keys add to it in one order,
 * whichever block has them: from the first on, while each walks from the last tile of queries back to the diagonal, so that one that begins
 * after another stays behind it. Blocks take keys by a counter, longest work first and of many heads in turns, so that those of one head
 * seldom begin together; and each waits for earlier ones only, so nothing hangs, however few blocks run at a time. Where other kernels wait for
 * multiprocessors, as collectives do, a block ends after a while and leaves the rest to another.
 *
 * Warps 0 and 1 copy tiles to shared memory, 2 and 3 add dq to device memory, the other two warpgroups compute 64 keys each: scores and their
 * gradients transposed, keys by queries, so that they are left operands of dv and dk without leaving registers.
 *
 * Moves, for 128 keys of a head, q, do (16 bits) and dq (f32, twice) once out of L2; 5 T^2 d flops a head. Bound: tensor cores.
 * Rate, bf16: 381 TFLOP/s over 8192 tokens and 242 over 1024 in training steps, at the GPU's power limit; 478 and 284 in bursts. */
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/hopper.cuh"

constexpr int ROWS = HOPPER_TILE, WIDTH = TILE_WIDTH, TILE_BYTES = ROWS * TILE_ROW_BYTES;
constexpr int LOADERS = 64, THREADS = 3 * GROUP_THREADS, COMPUTERS = 2 * GROUP_THREADS;
constexpr int LOADER_REGISTERS = 40, COMPUTER_REGISTERS = 232; /* of the 168 a thread that 384 may have */
constexpr int TILE_FLOATS = ROWS * WIDTH, HALF_FLOATS = TILE_FLOATS / 2; /* of dq's sums; a warpgroup computes a half */
constexpr int WOVEN_STEPS = 2048, WOVEN_LEAST = 8, WOVEN_MOST = 32;
#ifdef FSDPC_SHIM
constexpr int STINT = 8;
#else
constexpr int STINT = 128; /* some 0.4 ms */
#endif
enum { BARRIER_COMPUTERS = 1, BARRIER_LOADERS };

template <class T> struct HopperBackward {
  Attention<T> a;
  int tiles;             /* of queries, and of keys */
  int first, groups;     /* heads of keys of all samples, counted through, that this launch has */
  int stint;             /* a block that has done so many steps takes no more work */
  float *sums;           /* [head][tile][half][HALF_FLOATS]: heads of this launch */
  float *lse, *delta;    /* [head][tiles * ROWS]; lse in units of ln 2 */
  uint32_t *turns;       /* [head][tile]: how many tiles of keys have added */
  uint32_t *next;        /* work that nobody has taken */
};

/* Keys and values of a work. Of a step, two that take turns: queries and gradients of results; gradients of scores, [keys][64 queries] in
 * halves of queries; and dq. */
struct Shared {
  alignas(1024) unsigned char keys[2][TILE_BYTES], queries[2][2][TILE_BYTES], gradients[2][2][TILE_BYTES];
  float dq[TILE_FLOATS], lse[2][ROWS], delta[2][ROWS];
  uint64_t keys_full, keys_empty, full[2], empty[2], sums_full[2], sums_empty;
  int item, taken[2];
};
static_assert(sizeof(Shared) <= 227 * 1024, "what a block may have");

/* --- work: a tile of keys ---------------------------------------------------------------------------------------------------- */

struct Keys {
  int sample, kv, group; /* group: of this launch */
  int tile, count;       /* count: of the tiles of queries that see it */
};

/* Heads of keys whose work takes turns. The more, the fewer blocks of a head run at a time, and wait less for the one before, where work is
 * short; the fewer, the more is found in the L2. */
template <class T> DEVICE int woven(const HopperBackward<T> &p) {
  int heads = WOVEN_STEPS / (p.tiles * (p.a.heads / p.a.kv_heads));
  return heads < WOVEN_LEAST ? WOVEN_LEAST : heads > WOVEN_MOST ? WOVEN_MOST : heads;
}

/* Longest first; of one tile after another those of the heads that are woven. */
template <class T> DEVICE Keys keys_of(const HopperBackward<T> &p, int item) {
  int most = woven(p), set = item / (most * p.tiles) * most, of_set = item - set * p.tiles, heads = p.groups - set < most ? p.groups - set : most;
  int tile = of_set / heads, group = set + of_set % heads, all = p.first + group;
  return Keys{all / p.a.kv_heads, all % p.a.kv_heads, group, tile, p.tiles - tile};
}
template <class T> DEVICE int items_of(const HopperBackward<T> &p) { return p.groups * p.tiles; }

/* Which of two takes its turn, and the parity of its barriers' phase. */
struct Turn {
  int at = 0, parity = 0;
  DEVICE void next() { parity ^= at, at ^= 1; }
};

/* --- warps 0 and 1: tiles to shared memory -------------------------------------------------------------------------------------- */

/* 128 rows of x, of which `there` are there, the others zeros: eight threads a row. */
template <class T> DEVICE void load_rows(unsigned char *to, const T *x, int64_t ld, int there) {
  int first = threadIdx.x / 8, piece = threadIdx.x % 8;
  const T *from = x + first * ld + piece * 8;
  to += tile_at(first, piece);
#pragma unroll 4
  for (int r = first; r < ROWS; r += LOADERS / 8, from += LOADERS / 8 * ld, to += LOADERS / 8 * TILE_ROW_BYTES)
    copy_async<16>(to, r < there ? from : x, r < there);
}

/* The tiles of a step: queries and their gradients; at a work's first, keys and values, too. */
template <class T> DEVICE void load_tile_of(const HopperBackward<T> &p, Shared &s, int stage, const Keys &w, int member, int tile, int which) {
  const Attention<T> &a = p.a;
  bool keys = which >= 2;
  const T *x = which == 0 ? a.q : which == 1 ? a.d_o : which == 2 ? a.k : a.v;
  int64_t ld = which == 0 ? a.ldq : which == 1 ? a.lddo : which == 2 ? a.ldk : a.ldv;
  int head = keys ? w.kv : w.kv * (a.heads / a.kv_heads) + member, first = (keys ? w.tile : tile) * ROWS;
  load_rows(keys ? s.keys[which - 2] : s.queries[stage][which], x + ((int64_t)w.sample * a.tq + first) * ld + head * WIDTH, ld, a.tq - first);
}

template <class T> DEVICE void load_statistics(const HopperBackward<T> &p, Shared &s, int stage, const Keys &w, int member, int tile) {
  int64_t row = ((int64_t)(w.group * (p.a.heads / p.a.kv_heads) + member) * p.tiles + tile) * ROWS;
  int four = threadIdx.x % (ROWS / 4) * 4;
  bool lse = threadIdx.x < ROWS / 4;
  copy_async<16>((lse ? s.lse : s.delta)[stage] + four, (lse ? p.lse : p.delta) + row + four, true);
}

template <class T> DEVICE int take_item(const HopperBackward<T> &p, Shared &s, int turn) {
  int *taken = &s.taken[turn]; /* of two, so that the slowest has read one when it is written again */
  if (threadIdx.x == 0) *taken = (int)take_number(p.next);
  named_barrier(BARRIER_LOADERS, LOADERS);
  return *taken;
}

template <class T> DEVICE void load(const HopperBackward<T> &p, Shared &s) {
  Turn stage;
  for (int round = 0, steps = 0;; round++) {
    int item = steps < p.stint ? take_item(p, s, round % 2) : items_of(p);
    if (item >= items_of(p)) { /* the others hear of it */
      mbarrier_wait(&s.keys_empty, round % 2 ^ 1);
      if (threadIdx.x == 0) s.item = item;
      mbarrier_arrive(&s.keys_full);
      return;
    }
    Keys w = keys_of(p, item);
    steps += w.count * (p.a.heads / p.a.kv_heads);
#pragma unroll 1
    for (int nth = 0; nth < w.count; nth++)
#pragma unroll 1
      for (int member = 0; member < p.a.heads / p.a.kv_heads; member++, stage.next()) {
        bool begins = member + nth == 0;
        mbarrier_wait(&s.empty[stage.at], stage.parity ^ 1);
        load_statistics(p, s, stage.at, w, member, p.tiles - 1 - nth);
#pragma unroll 1
        for (int which = 0; which < (begins ? 4 : 2); which++) {
          if (which == 2) mbarrier_wait(&s.keys_empty, round % 2 ^ 1);
          load_tile_of(p, s, stage.at, w, member, p.tiles - 1 - nth, which);
        }
        if (begins && threadIdx.x == 0) s.item = item;
        copies_wait();
        fence_async_shared();
        if (begins) mbarrier_arrive(&s.keys_full);
        mbarrier_arrive(&s.full[stage.at]);
      }
  }
}

/* --- warps 2 and 3, one thread each: dq to device memory, in turn, every other tile: one's memory has it while the other's is on its way --- */

template <class T> DEVICE void add_sums(const HopperBackward<T> &p, Shared &s, int own) {
  int shared_by = p.a.heads / p.a.kv_heads;
  Turn sums;
  for (int round = 0;; round++) {
    mbarrier_wait(&s.keys_full, round % 2);
    int item = s.item;
    mbarrier_arrive(&s.keys_empty);
    if (item >= items_of(p)) return;
    Keys w = keys_of(p, item);
    for (int nth = 0; nth < w.count; nth++)
      for (int member = 0; member < shared_by; member++, sums.next()) {
        if (sums.at != own) continue;
        int64_t at = (int64_t)(w.group * shared_by + member) * p.tiles + p.tiles - 1 - nth;
        if (w.tile > 0) await_value(p.turns + at, (uint32_t)w.tile);
        mbarrier_wait(&s.sums_full[own], sums.parity);
        float *to = p.sums + at * TILE_FLOATS;
        if (w.tile == 0) bulk_store(to, s.dq, sizeof s.dq);
        else bulk_add(to, s.dq, sizeof s.dq);
        bulk_commit();
        bulk_wait_read();
        mbarrier_arrive(&s.sums_empty);
        bulk_wait();
        release_value(p.turns + at, (uint32_t)w.tile + 1);
      }
  }
}

/* --- warpgroups 1 and 2 ---------------------------------------------------------------------------------------------------------- */

/* Own part of 64 keys x 128 queries: rows are keys. */
template <class T> DEVICE void pack_rows(const float (&x)[16][4], uint32_t (&held)[8][4]) {
#pragma unroll
  for (int k = 0; k < 8; k++) {
    held[k][0] = pack<T>(x[2 * k][0], x[2 * k][1]), held[k][1] = pack<T>(x[2 * k][2], x[2 * k][3]);
    held[k][2] = pack<T>(x[2 * k + 1][0], x[2 * k + 1][1]), held[k][3] = pack<T>(x[2 * k + 1][2], x[2 * k + 1][3]);
  }
}

/* s = exp(scale s - lse). HIDES: at the diagonal, where keys beyond a query are not seen. row: own first, in the tile. */
template <bool HIDES> DEVICE void weights_of(float (&s)[16][4], const float *lse, float scale, int row, int t) {
#pragma unroll
  for (int j = 0; j < 16; j++) {
    float2 l = *(const float2 *)(lse + 8 * j + 2 * t);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      s[j][i] = fast_exp2(fmaf(s[j][i], scale, i % 2 == 0 ? -l.x : -l.y));
      if (HIDES && row + i / 2 * 8 > 8 * j + 2 * t + i % 2) s[j][i] = 0;
    }
  }
}

template <class T> DEVICE float2 unpack(uint32_t bits) {
  T pair[2];
  memcpy(pair, &bits, sizeof bits);
  return float2{to_float(pair[0]), to_float(pair[1])};
}

/* ds = weights (ds - delta). The weights are the rounded ones, which dv takes: there are no registers for others. */
template <class T> DEVICE void gradients_of(const uint32_t (&weights)[8][4], float (&ds)[16][4], const float *delta, int t) {
#pragma unroll
  for (int j = 0; j < 16; j++) {
    float2 d = *(const float2 *)(delta + 8 * j + 2 * t);
    float2 low = unpack<T>(weights[j / 2][j % 2 * 2]), high = unpack<T>(weights[j / 2][j % 2 * 2 + 1]); /* rows g, g + 8 */
    ds[j][0] = low.x * (ds[j][0] - d.x), ds[j][1] = low.y * (ds[j][1] - d.y);
    ds[j][2] = high.x * (ds[j][2] - d.x), ds[j][3] = high.y * (ds[j][3] - d.y);
  }
}

/* Own rows, from `row` on, into the two halves of queries. */
DEVICE void share_gradients(unsigned char (*to)[TILE_BYTES], const uint32_t (&held)[8][4], int row, int t) {
#pragma unroll
  for (int k = 0; k < 8; k++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      *(uint32_t *)(to[k / 4] + tile_at(row + i % 2 * 8, (2 * k + i / 2) % 8) + 4 * t) = held[k][i];
}

/* Of the whole warp. */
DEVICE void warp_arrives(uint64_t *b) {
  __syncwarp();
  if (threadIdx.x % WARP == 0) mbarrier_arrive(b);
}

/* x = own 64 rows of a . 128 rows of b */
template <class T> DEVICE void start_scores(float (&x)[16][4], Operand a, Operand b) {
  products_hold(x);
  products_open();
#pragma unroll
  for (int i = 0; i < 4; i++) product_128<T>(x, operand_at(a, 32 * i), operand_at(b, 32 * i), i > 0);
  products_commit();
}
/* acc += held b, over 128 rows of b */
template <class T> DEVICE void start_sums(float (&acc)[8][4], const uint32_t (&held)[8][4], Operand b) {
  products_hold(acc);
  products_open();
#pragma unroll
  for (int i = 0; i < 8; i++) product_64_held<T>(acc, held[i], operand_at(b, 2048 * i));
  products_commit();
}
template <class T> DEVICE void start_query_sums(float (&dq)[8][4], Operand gradients, Operand k) {
  products_hold(dq);
  products_open();
#pragma unroll
  for (int i = 0; i < 8; i++) product_64_transposed<T>(dq, operand_at(gradients, 2048 * i), operand_at(k, 2048 * i), i > 0);
  products_commit();
}

/* dk and dv of own keys. */
template <class T> DEVICE void store_keys(const HopperBackward<T> &p, const Keys &w, const float (&dk)[8][4], const float (&dv)[8][4]) {
  const Attention<T> &a = p.a;
  const float one[2] = {1, 1}, factor[2] = {a.scale, a.scale};
  int first = w.tile * ROWS - GROUP_THREADS / WARP * 16; /* own warps are counted from 4 or 8 on */
  tile_store<WIDTH>(a.dk + (int64_t)w.sample * a.tk * a.lddk + w.kv * WIDTH, a.lddk, first, a.tk, factor, dk, 0);
  tile_store<WIDTH>(a.dv + (int64_t)w.sample * a.tk * a.lddv + w.kv * WIDTH, a.lddv, first, a.tk, one, dv, 0);
}

template <class T> DEVICE void compute(const HopperBackward<T> &p, Shared &s, int group) {
  Lane l = lane_of();
  int own = (int)threadIdx.x % GROUP_THREADS, row = group * (ROWS / 2) + own / WARP * 16 + l.g;
  float scale = p.a.scale * LOG2_E;
  Operand k_all = operand_of(s.keys[0]), k_own = operand_at(k_all, group * (TILE_BYTES / 2)), v_own = operand_of(s.keys[1] + group * (TILE_BYTES / 2));
  Turn stage;
  for (int round = 0;; round++) {
    mbarrier_wait(&s.keys_full, round % 2);
    int item = s.item;
    if (item >= items_of(p)) return;
    Keys w = keys_of(p, item);
    float dk[8][4] = {}, dv[8][4] = {}, x[16][4];
    int shared_by = p.a.heads / p.a.kv_heads, steps = w.count * shared_by;
    mbarrier_wait(&s.full[stage.at], stage.parity);
    start_scores<T>(x, k_own, operand_of(s.queries[stage.at][0]));
    for (int step = 0;;) {
      float ds[16][4], dq[8][4];
      uint32_t weights[8][4], gradients[8][4];
      Operand q = operand_of(s.queries[stage.at][0]), d_o = operand_of(s.queries[stage.at][1]);
      start_scores<T>(ds, v_own, d_o);
      products_wait<1>();
      products_hold(x);
      if (step >= steps - shared_by) { /* the diagonal */
        weights_of<true>(x, s.lse[stage.at], scale, row, l.t);
        pack_rows<T>(x, weights);
      } else {
        weights_of<false>(x, s.lse[stage.at], scale, row, l.t);
        pack_rows<T>(x, weights);
      }
      start_sums<T>(dv, weights, d_o);
      products_wait<1>();
      products_hold(ds);
      gradients_of<T>(weights, ds, s.delta[stage.at], l.t);
      pack_rows<T>(ds, gradients);
      share_gradients(s.gradients[stage.at], gradients, row, l.t);
      fence_async_shared();
      named_barrier(BARRIER_COMPUTERS, COMPUTERS);
      start_query_sums<T>(dq, operand_of(s.gradients[stage.at][group]), k_all);
      start_sums<T>(dk, gradients, q);
      products_wait<1>();
      products_hold(dq), products_hold(dv);
      mbarrier_wait(&s.sums_empty, stage.at ^ 1);
#pragma unroll
      for (int j = 0; j < 8; j++)
        *(float4 *)(s.dq + group * HALF_FLOATS + (j * GROUP_THREADS + own) * 4) = float4{dq[j][0], dq[j][1], dq[j][2], dq[j][3]};
      fence_async_shared();
      warp_arrives(&s.sums_full[stage.at]);
      products_wait<0>();
      products_hold(dk);
      warp_arrives(&s.empty[stage.at]);
      stage.next();
      if (++step == steps) break;
      mbarrier_wait(&s.full[stage.at], stage.parity);
      start_scores<T>(x, k_own, operand_of(s.queries[stage.at][0]));
    }
    warp_arrives(&s.keys_empty);
    store_keys(p, w, dk, dv);
  }
}

template <class T> __global__ void __launch_bounds__(THREADS, 1) hopper_kernel(const HopperBackward<T> p) {
#ifndef NOT_HOPPER
  DYNAMIC_TILES(memory);
  Shared &s = *(Shared *)memory;
  int group = (int)threadIdx.x / GROUP_THREADS, warp = (int)threadIdx.x / WARP;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) {
      mbarrier_init(&s.full[i], LOADERS), mbarrier_init(&s.empty[i], COMPUTERS / WARP), mbarrier_init(&s.sums_full[i], COMPUTERS / WARP);
    }
    mbarrier_init(&s.keys_full, LOADERS), mbarrier_init(&s.keys_empty, COMPUTERS / WARP + 2), mbarrier_init(&s.sums_empty, 1);
    mbarriers_ready();
  }
  __syncthreads();
  if (group == 0) {
    registers_give<LOADER_REGISTERS>();
    if (warp < 2) load(p, s);
    else if (threadIdx.x % WARP == 0) add_sums(p, s, warp - 2);
  } else {
    registers_take<COMPUTER_REGISTERS>();
    compute(p, s, group - 1);
  }
#endif
}

/* --- before: sums of o do, lse in units of ln 2, nobody's turn ---------------------------------------------------------------------- */

constexpr int PREPARE_THREADS = 256, ROW_LANES = 8;

/* Eight lanes a row of a head, [head][tiles * ROWS]; rows beyond the last weigh nothing. */
template <class T> __global__ void __launch_bounds__(PREPARE_THREADS) prepare_kernel(HopperBackward<T> p) {
  const Attention<T> &a = p.a;
  int64_t rows = (int64_t)p.tiles * ROWS, i = ((int64_t)blockIdx.x * PREPARE_THREADS + threadIdx.x) / ROW_LANES;
  int shared_by = a.heads / a.kv_heads, lane = threadIdx.x % ROW_LANES, head = (int)(i / rows), row = (int)(i % rows);
  int all = p.first * shared_by + head, sample = all / a.heads, of_sample = all % a.heads;
  float sum = 0;
  if (row < a.tq) {
    float x[8], y[8];
    load<T, 8>(a.o + ((int64_t)sample * a.tq + row) * a.ldo + of_sample * WIDTH + lane * 8, x);
    load<T, 8>(a.d_o + ((int64_t)sample * a.tq + row) * a.lddo + of_sample * WIDTH + lane * 8, y);
#pragma unroll
    for (int j = 0; j < 8; j++) sum += x[j] * y[j];
  }
  for (int offset = 1; offset < ROW_LANES; offset *= 2) sum += __shfl_xor_sync(WHOLE_WARP, sum, offset);
  if (lane == 0) p.delta[i] = sum;
  if (lane == 1) p.lse[i] = row < a.tq ? a.lse[(int64_t)all * a.tq + row] * LOG2_E : INFINITY;
  if (lane == 0 && row % ROWS == 0) p.turns[i / ROWS] = 0;
  if (i == 0 && lane == 0) *p.next = 0;
}

/* --- after: dq ------------------------------------------------------------------------------------------------------------------------ */

template <class T> __global__ void __launch_bounds__(GROUP_THREADS) finish_kernel(HopperBackward<T> p) {
  const Attention<T> &a = p.a;
  int half = blockIdx.x % 2, tile = blockIdx.x / 2, head = blockIdx.y;
  int all = p.first * (a.heads / a.kv_heads) + head, sample = all / a.heads, of_sample = all % a.heads;
  const float *sums = p.sums + (((int64_t)head * p.tiles + tile) * 2 + half) * HALF_FLOATS, factor[2] = {a.scale, a.scale};
  float x[8][4];
#pragma unroll
  for (int j = 0; j < 8; j++) {
    float4 four = *(const float4 *)(sums + (j * GROUP_THREADS + (int)threadIdx.x) * 4);
    x[j][0] = four.x, x[j][1] = four.y, x[j][2] = four.z, x[j][3] = four.w;
  }
  tile_store<WIDTH>(a.dq + (int64_t)sample * a.tq * a.lddq + of_sample * WIDTH, a.lddq, tile * ROWS + half * (ROWS / 2), a.tq, factor, x, 0);
}

/* --- launches ------------------------------------------------------------------------------------------------------------------------- */

int cuda_attention_hopper_takes(const AttentionShape *s, CudaTensor q, CudaTensor k, CudaTensor v, CudaTensor o, CudaTensor d_o, CudaTensor dq,
                                CudaTensor dk, CudaTensor dv) {
  const CudaTensor all[] = {q, k, v, o, d_o, dq, dk, dv};
  if (cuda_attention_hopper_groups(s, UINT64_MAX) == 0 || q.type == CUDA_F32) return 0;
  for (int i = 0; i < 8; i++)
    if (all[i].type != q.type || all[i].add || (uintptr_t)all[i].x % 16 != 0 || all[i].ld % 8 != 0) return 0;
  return 1;
}

static int blocks_of(int *blocks) {
#ifdef FSDPC_SHIM
  *blocks = 3;
  return 0;
#else
  int device;
  int failed = (int)cudaGetDevice(&device);
  return failed ? failed : (int)cudaDeviceGetAttribute(blocks, cudaDevAttrMultiProcessorCount, device);
#endif
}

/* Enough that some are left for as long as there is work: each that has ended has done its stint. */
static int64_t blocks_for(int64_t heads, int64_t tiles, int64_t items, int64_t at_a_time, int64_t stint) {
  int64_t blocks = at_a_time + heads * tiles * (tiles + 1) / 2 / stint;
  return blocks < items ? blocks : items;
}

/* Heads of keys [first, first + groups), of all samples. */
template <class T> static int backward_part(CudaStream stream, HopperBackward<T> p, int first, int groups, void *scratch) {
  int64_t heads = (int64_t)groups * (p.a.heads / p.a.kv_heads), tiles = heads * p.tiles;
  int at_a_time, failed = ALLOW_SHARED_HOPPER(hopper_kernel<T>, sizeof(Shared));
  if (!failed) failed = blocks_of(&at_a_time);
  if (failed) return failed;
  p.first = first, p.groups = groups;
  p.sums = (float *)scratch, p.lse = p.sums + tiles * ROWS * WIDTH, p.delta = p.lse + tiles * ROWS;
  p.turns = (uint32_t *)(p.delta + tiles * ROWS), p.next = p.turns + tiles;
  LAUNCH((prepare_kernel<T>), (unsigned)(tiles * ROWS * ROW_LANES / PREPARE_THREADS), PREPARE_THREADS, 0, stream, p);
  int64_t blocks = blocks_for(heads, p.tiles, (int64_t)groups * p.tiles, at_a_time, p.stint);
  LAUNCH((hopper_kernel<T>), (unsigned)blocks, THREADS, sizeof(Shared), stream, p);
  LAUNCH((finish_kernel<T>), dim3((unsigned)(2 * p.tiles), (unsigned)heads), GROUP_THREADS, 0, stream, p);
  return LAUNCHED();
}

int cuda_attention_hopper_bwd(CudaStream stream, const AttentionShape *shape, int64_t groups, int shares, CudaTensor q, CudaTensor k, CudaTensor v,
                              CudaTensor o, const float *lse, CudaTensor d_o, CudaTensor dq, CudaTensor dk, CudaTensor dv, void *scratch) {
  if (groups < 1 || !cuda_attention_hopper_takes(shape, q, k, v, o, d_o, dq, dk, dv)) return CUDA_UNSUPPORTED;
  int64_t all = shape->batch * shape->kv_heads;
  FOR_TYPE(o.type, false, (void)N; if constexpr (sizeof(T) == 2) {
    HopperBackward<T> p = {};
    Attention<T> &a = p.a;
    a = attention_of<T>(shape, q, k, v);
    a.o = (const T *)o.x, a.ldo = o.ld, a.d_o = (const T *)d_o.x, a.lddo = d_o.ld, a.lse = (float *)lse;
    a.dq = (T *)dq.x, a.lddq = dq.ld, a.dk = (T *)dk.x, a.lddk = dk.ld, a.dv = (T *)dv.x, a.lddv = dv.ld;
    p.tiles = (int)ceil_of(shape->tq, ROWS), p.stint = shares ? STINT : INT32_MAX;
    for (int64_t first = 0; first < all; first += groups) {
      int failed = backward_part<T>(stream, p, (int)first, (int)(all - first < groups ? all - first : groups), scratch);
      if (failed) return failed;
    }
    return 0;
  })
  return CUDA_UNSUPPORTED;
}
