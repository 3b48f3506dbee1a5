/* Owns: attention's backward pass on Hopper (compute 9.0): causal, heads of D = 64 or 128 dimensions, 16 bits; results repeat bit by bit.
 *
 * A block owns 128 keys of one head of keys at a time and walks the queries that see them, of all heads that share the keys, in tiles of
 * 8192 / D: five products a tile, one pass (arXiv 2407.08608, without its atomics). dk and dv stay in registers; dq is a sum over blocks, which lies in
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
 * Rate, bf16, heads of 64: 381 TFLOP/s over 8192 tokens and 242 over 1024 in training steps, at the GPU's power limit; 478 and 284 in bursts.
 * Heads of 128 have not run on a GPU yet. */
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/hopper.cuh"

constexpr int KEYS = HOPPER_KEYS, OWN_KEYS = KEYS / 2; /* of a block, of a warpgroup */
constexpr int LOADERS = 64, THREADS = 3 * GROUP_THREADS, COMPUTERS = 2 * GROUP_THREADS;
constexpr int LOADER_REGISTERS = 40, COMPUTER_REGISTERS = 232; /* of the 168 a thread that 384 may have */
constexpr int SUMS = HOPPER_SUMS, HALF_SUMS = SUMS / 2; /* of dq, of a tile of queries; a warpgroup computes a half */
constexpr int WOVEN_STEPS = 2048, WOVEN_LEAST = 8, WOVEN_MOST = 32;
#ifdef FSDPC_SHIM
constexpr int STINT = 8;
#else
constexpr int STINT = 128; /* some 0.4 ms */
#endif
enum { BARRIER_COMPUTERS = 1, BARRIER_LOADERS };

/* Rows of D elements are D / 64 tiles side by side. */
template <int D> struct Sizes {
  static constexpr int QUERIES = HOPPER_SUMS / D, SIDES = D / TILE_WIDTH, LANES = D / 8 /* 16 bytes each */;
  static constexpr int KEY_TILE = KEYS * TILE_ROW_BYTES, QUERY_TILE = QUERIES * TILE_ROW_BYTES;
  static constexpr int COLUMNS = QUERIES / TILE_WIDTH; /* tiles of gradients of scores, side by side */
  static constexpr int DIAGONAL = KEYS / QUERIES;      /* tiles of queries that see some of the keys */
};

template <class T> struct HopperBackward {
  Attention<T> a;
  int query_tiles, key_tiles;
  int first, groups;     /* heads of keys of all samples, counted through, that this launch has */
  int stint;             /* a block that has done so many steps takes no more work */
  float *sums;           /* [head][tile of queries][half][HALF_SUMS]: heads of this launch; halves are of queries (D = 64) or dimensions (128) */
  float *lse, *delta;    /* [head][tiles of queries * QUERIES]; lse in units of ln 2 */
  uint32_t *turns;       /* [head][tile of queries]: how many tiles of keys have added */
  uint32_t *next;        /* work that nobody has taken */
};

/* Keys and values of a work. Of a step, two that take turns: queries and gradients of results; gradients of scores, [keys][64 queries]; and
 * dq. */
template <int D> struct Shared {
  typedef Sizes<D> S;
  alignas(1024) unsigned char keys[2][S::SIDES][S::KEY_TILE], queries[2][2][S::SIDES][S::QUERY_TILE], gradients[2][S::COLUMNS][S::KEY_TILE];
  float dq[SUMS], lse[2][S::QUERIES], delta[2][S::QUERIES];
  uint64_t keys_full, keys_empty, full[2], empty[2], sums_full[2], sums_empty;
  int item, taken[2];
};
static_assert(sizeof(Shared<64>) <= 227 * 1024 && sizeof(Shared<128>) <= 227 * 1024, "what a block may have");

/* --- work: a tile of keys ---------------------------------------------------------------------------------------------------- */

struct Keys {
  int sample, kv, group; /* group: of this launch */
  int tile, count;       /* count: of the tiles of queries that see it, which are the last */
};

/* Heads of keys whose work takes turns. The more, the fewer blocks of a head run at a time, and wait less for the one before, where work is
 * short; the fewer, the more is found in the L2. */
template <class T> DEVICE int woven(const HopperBackward<T> &p) {
  int heads = WOVEN_STEPS / (p.query_tiles * (p.a.heads / p.a.kv_heads));
  return heads < WOVEN_LEAST ? WOVEN_LEAST : heads > WOVEN_MOST ? WOVEN_MOST : heads;
}

/* Longest first; of one tile after another those of the heads that are woven. */
template <int D, class T> DEVICE Keys keys_of(const HopperBackward<T> &p, int item) {
  int most = woven(p), set = item / (most * p.key_tiles) * most, of_set = item - set * p.key_tiles, heads = p.groups - set < most ? p.groups - set : most;
  int tile = of_set / heads, group = set + of_set % heads, all = p.first + group;
  return Keys{all / p.a.kv_heads, all % p.a.kv_heads, group, tile, p.query_tiles - tile * Sizes<D>::DIAGONAL};
}
template <class T> DEVICE int items_of(const HopperBackward<T> &p) { return p.groups * p.key_tiles; }

/* --- warps 0 and 1: tiles to shared memory -------------------------------------------------------------------------------------- */

/* So many rows of x, of which `there` are there, the others zeros: eight threads a row. */
template <class T> DEVICE void load_rows(unsigned char *to, const T *x, int64_t ld, int rows, int there) {
  int first = threadIdx.x / 8, piece = threadIdx.x % 8;
  const T *from = x + first * ld + piece * 8;
  to += tile_at(first, piece);
#pragma unroll 4
  for (int r = first; r < rows; r += LOADERS / 8, from += LOADERS / 8 * ld, to += LOADERS / 8 * TILE_ROW_BYTES)
    copy_async<16>(to, r < there ? from : x, r < there);
}

/* The tiles of a step: queries and their gradients; at a work's first, keys and values, too. */
template <int D, class T> DEVICE void load_tile_of(const HopperBackward<T> &p, Shared<D> &s, int stage, const Keys &w, int member, int tile, int which) {
  typedef Sizes<D> S;
  const Attention<T> &a = p.a;
  bool keys = which >= 2;
  const T *x = which == 0 ? a.q : which == 1 ? a.d_o : which == 2 ? a.k : a.v;
  int64_t ld = which == 0 ? a.ldq : which == 1 ? a.lddo : which == 2 ? a.ldk : a.ldv;
  int head = keys ? w.kv : w.kv * (a.heads / a.kv_heads) + member, rows = keys ? KEYS : S::QUERIES, first = (keys ? w.tile : tile) * rows;
  unsigned char *to = keys ? s.keys[which - 2][0] : s.queries[stage][which][0];
  x += ((int64_t)w.sample * a.tq + first) * ld + head * D;
#pragma unroll 1
  for (int side = 0; side < S::SIDES; side++, to += rows * TILE_ROW_BYTES, x += TILE_WIDTH) load_rows(to, x, ld, rows, a.tq - first);
}

template <int D, class T> DEVICE void load_statistics(const HopperBackward<T> &p, Shared<D> &s, int stage, const Keys &w, int member, int tile) {
  constexpr int QUERIES = Sizes<D>::QUERIES, FOURS = QUERIES / 4;
  int64_t row = ((int64_t)(w.group * (p.a.heads / p.a.kv_heads) + member) * p.query_tiles + tile) * QUERIES;
  int four = threadIdx.x % FOURS * 4;
  bool lse = threadIdx.x < FOURS;
  if (threadIdx.x < 2 * FOURS) copy_async<16>((lse ? s.lse : s.delta)[stage] + four, (lse ? p.lse : p.delta) + row + four, true);
}

template <int D, class T> DEVICE int take_item(const HopperBackward<T> &p, Shared<D> &s, int turn) {
  int *taken = &s.taken[turn]; /* of two, so that the slowest has read one when it is written again */
  if (threadIdx.x == 0) *taken = (int)take_number(p.next);
  named_barrier(BARRIER_LOADERS, LOADERS);
  return *taken;
}

template <int D, class T> DEVICE void load(const HopperBackward<T> &p, Shared<D> &s) {
  Ring<2> stage;
  for (int round = 0, steps = 0;; round++) {
    int item = steps < p.stint ? take_item(p, s, round % 2) : items_of(p);
    if (item >= items_of(p)) { /* the others hear of it */
      mbarrier_wait(&s.keys_empty, round % 2 ^ 1);
      if (threadIdx.x == 0) s.item = item;
      mbarrier_arrive(&s.keys_full);
      return;
    }
    Keys w = keys_of<D>(p, item);
    steps += w.count * (p.a.heads / p.a.kv_heads);
#pragma unroll 1
    for (int nth = 0; nth < w.count; nth++)
#pragma unroll 1
      for (int member = 0; member < p.a.heads / p.a.kv_heads; member++, stage.next()) {
        bool begins = member + nth == 0;
        mbarrier_wait(&s.empty[stage.at], stage.parity ^ 1);
        load_statistics(p, s, stage.at, w, member, p.query_tiles - 1 - nth);
#pragma unroll 1
        for (int which = 0; which < (begins ? 4 : 2); which++) {
          if (which == 2) mbarrier_wait(&s.keys_empty, round % 2 ^ 1);
          load_tile_of(p, s, stage.at, w, member, p.query_tiles - 1 - nth, which);
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

template <int D, class T> DEVICE void add_sums(const HopperBackward<T> &p, Shared<D> &s, int own) {
  int shared_by = p.a.heads / p.a.kv_heads;
  Ring<2> sums;
  for (int round = 0;; round++) {
    mbarrier_wait(&s.keys_full, round % 2);
    int item = s.item;
    mbarrier_arrive(&s.keys_empty);
    if (item >= items_of(p)) return;
    Keys w = keys_of<D>(p, item);
    for (int nth = 0; nth < w.count; nth++)
      for (int member = 0; member < shared_by; member++, sums.next()) {
        if (sums.at != own) continue;
        int64_t at = (int64_t)(w.group * shared_by + member) * p.query_tiles + p.query_tiles - 1 - nth;
        if (w.tile > 0) await_value(p.turns + at, (uint32_t)w.tile);
        mbarrier_wait(&s.sums_full[own], sums.parity);
        float *to = p.sums + at * SUMS;
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

/* Own part of 64 keys x 16 N queries: rows are keys. */
template <class T, int N> DEVICE void pack_rows(const float (&x)[2 * N][4], uint32_t (&held)[N][4]) {
#pragma unroll
  for (int k = 0; k < N; k++) {
    held[k][0] = pack<T>(x[2 * k][0], x[2 * k][1]), held[k][1] = pack<T>(x[2 * k][2], x[2 * k][3]);
    held[k][2] = pack<T>(x[2 * k + 1][0], x[2 * k + 1][1]), held[k][3] = pack<T>(x[2 * k + 1][2], x[2 * k + 1][3]);
  }
}

/* s = exp(scale s - lse). HIDES: at the diagonal, where keys beyond a query are not seen. row: own first, counted from the first query. */
template <bool HIDES, int N> DEVICE void weights_of(float (&s)[N][4], const float *lse, float scale, int row, int t) {
#pragma unroll
  for (int j = 0; j < N; j++) {
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
template <class T, int N> DEVICE void gradients_of(const uint32_t (&weights)[N][4], float (&ds)[2 * N][4], const float *delta, int t) {
#pragma unroll
  for (int j = 0; j < 2 * N; j++) {
    float2 d = *(const float2 *)(delta + 8 * j + 2 * t);
    float2 low = unpack<T>(weights[j / 2][j % 2 * 2]), high = unpack<T>(weights[j / 2][j % 2 * 2 + 1]); /* rows g, g + 8 */
    ds[j][0] = low.x * (ds[j][0] - d.x), ds[j][1] = low.y * (ds[j][1] - d.y);
    ds[j][2] = high.x * (ds[j][2] - d.x), ds[j][3] = high.y * (ds[j][3] - d.y);
  }
}

/* Own rows, from `row` on, into tiles of 64 queries. */
template <int N> DEVICE void share_gradients(unsigned char (*to)[KEYS * TILE_ROW_BYTES], const uint32_t (&held)[N][4], int row, int t) {
#pragma unroll
  for (int k = 0; k < N; k++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      *(uint32_t *)(to[k / 4] + tile_at(row + i % 2 * 8, (2 * k + i / 2) % 8) + 4 * t) = held[k][i];
}

/* x = own 64 keys of a . queries of b, both of D dimensions */
template <int D, class T, int N> DEVICE void start_scores(float (&x)[N][4], Operand a, Operand b) {
  products_hold(x);
  products_open();
#pragma unroll
  for (int i = 0; i < D / 16; i++)
    product_rows<T>(x, operand_at(a, i / 4 * Sizes<D>::KEY_TILE + i % 4 * 32), operand_at(b, i / 4 * Sizes<D>::QUERY_TILE + i % 4 * 32), i > 0);
  products_commit();
}
/* acc += held b: own 64 keys, over the queries of b */
template <int D, class T, int N> DEVICE void start_sums(float (&acc)[D / 8][4], const uint32_t (&held)[N][4], Operand b) {
  products_hold(acc);
  products_open();
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int side = 0; side < Sizes<D>::SIDES; side++)
      product_64_held<T>(*(float(*)[8][4])acc[8 * side], held[i], operand_at(b, side * Sizes<D>::QUERY_TILE + 2048 * i));
  products_commit();
}
/* dq = 64 queries of gradients . 64 dimensions of k, over all keys */
template <class T> DEVICE void start_query_sums(float (&dq)[8][4], Operand gradients, Operand k) {
  products_hold(dq);
  products_open();
#pragma unroll
  for (int i = 0; i < KEYS / 16; i++) product_64_transposed<T>(dq, operand_at(gradients, 2048 * i), operand_at(k, 2048 * i), i > 0);
  products_commit();
}

/* dk and dv of own keys. */
template <int D, class T> DEVICE void store_keys(const HopperBackward<T> &p, const Keys &w, const float (&dk)[D / 8][4], const float (&dv)[D / 8][4]) {
  const Attention<T> &a = p.a;
  const float one[2] = {1, 1}, factor[2] = {a.scale, a.scale};
  int first = w.tile * KEYS - GROUP_THREADS / WARP * 16; /* own warps are counted from 4 or 8 on */
  tile_store<D>(a.dk + (int64_t)w.sample * a.tk * a.lddk + w.kv * D, a.lddk, first, a.tk, factor, dk, 0);
  tile_store<D>(a.dv + (int64_t)w.sample * a.tk * a.lddv + w.kv * D, a.lddv, first, a.tk, one, dv, 0);
}

/* dq of a step, once that of the step before has left. */
template <int D> DEVICE void share_sums(Shared<D> &s, const float (&dq)[8][4], int group, int own, int stage) {
  mbarrier_wait(&s.sums_empty, stage ^ 1);
#pragma unroll
  for (int j = 0; j < 8; j++)
    *(float4 *)(s.dq + group * HALF_SUMS + (j * GROUP_THREADS + own) * 4) = float4{dq[j][0], dq[j][1], dq[j][2], dq[j][3]};
  fence_async_shared();
  warp_arrives(&s.sums_full[stage]);
}

template <int D, class T> DEVICE void compute(const HopperBackward<T> &p, Shared<D> &s, int group) {
  typedef Sizes<D> S;
  constexpr int N = S::QUERIES / 16;
  Lane l = lane_of();
  int own = (int)threadIdx.x % GROUP_THREADS, row = group * OWN_KEYS + own / WARP * 16 + l.g;
  float scale = p.a.scale * LOG2_E;
  Operand k_own = operand_of(s.keys[0][0] + group * OWN_KEYS * TILE_ROW_BYTES), v_own = operand_of(s.keys[1][0] + group * OWN_KEYS * TILE_ROW_BYTES);
  Operand k_side = operand_of(s.keys[0][S::COLUMNS == 1 ? group : 0]); /* of dq a group has half the queries, or the dimensions */
  Ring<2> stage;
  for (int round = 0;; round++) {
    mbarrier_wait(&s.keys_full, round % 2);
    int item = s.item;
    if (item >= items_of(p)) return;
    Keys w = keys_of<D>(p, item);
    float dk[D / 8][4] = {}, dv[D / 8][4] = {}, x[2 * N][4];
    int shared_by = p.a.heads / p.a.kv_heads, steps = w.count * shared_by;
    mbarrier_wait(&s.full[stage.at], stage.parity);
    start_scores<D, T>(x, k_own, operand_of(s.queries[stage.at][0][0]));
    for (int step = 0;;) {
      float ds[2 * N][4], dq[8][4];
      uint32_t weights[N][4], gradients[N][4];
      Operand q = operand_of(s.queries[stage.at][0][0]), d_o = operand_of(s.queries[stage.at][1][0]);
      start_scores<D, T>(ds, v_own, d_o);
      products_wait<1>();
      products_hold(x);
      int left = steps - 1 - step;
      if (left < S::DIAGONAL * shared_by) {
        weights_of<true>(x, s.lse[stage.at], scale, left < shared_by ? row : row - S::QUERIES, l.t);
        pack_rows<T>(x, weights);
      } else {
        weights_of<false>(x, s.lse[stage.at], scale, row, l.t);
        pack_rows<T>(x, weights);
      }
      start_sums<D, T>(dv, weights, d_o);
      products_wait<1>();
      products_hold(ds);
      gradients_of<T>(weights, ds, s.delta[stage.at], l.t);
      pack_rows<T>(ds, gradients);
      share_gradients(s.gradients[stage.at], gradients, row, l.t);
      fence_async_shared();
      named_barrier(BARRIER_COMPUTERS, COMPUTERS);
      start_query_sums<T>(dq, operand_of(s.gradients[stage.at][S::COLUMNS == 1 ? 0 : group]), k_side);
      start_sums<D, T>(dk, gradients, q);
      products_wait<1>();
      products_hold(dq), products_hold(dv);
      share_sums(s, dq, group, own, stage.at);
      products_wait<0>();
      products_hold(dk);
      warp_arrives(&s.empty[stage.at]);
      stage.next();
      if (++step == steps) break;
      mbarrier_wait(&s.full[stage.at], stage.parity);
      start_scores<D, T>(x, k_own, operand_of(s.queries[stage.at][0][0]));
    }
    warp_arrives(&s.keys_empty);
    store_keys<D>(p, w, dk, dv);
  }
}

template <int D, class T> __global__ void __launch_bounds__(THREADS, 1) hopper_kernel(const HopperBackward<T> p) {
#ifndef NOT_HOPPER
  DYNAMIC_TILES(memory);
  Shared<D> &s = *(Shared<D> *)memory;
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
    if (warp < 2) load<D>(p, s);
    else if (threadIdx.x % WARP == 0) add_sums<D>(p, s, warp - 2);
  } else {
    registers_take<COMPUTER_REGISTERS>();
    compute<D>(p, s, group - 1);
  }
#endif
}

/* --- before: sums of o do, lse in units of ln 2, nobody's turn ---------------------------------------------------------------------- */

constexpr int PREPARE_THREADS = 256;

/* So many lanes a row of a head as it has pieces of 16 bytes, [head][tiles * QUERIES]; rows beyond the last weigh nothing. */
template <int D, class T> __global__ void __launch_bounds__(PREPARE_THREADS) prepare_kernel(HopperBackward<T> p) {
  typedef Sizes<D> S;
  const Attention<T> &a = p.a;
  int64_t rows = (int64_t)p.query_tiles * S::QUERIES, i = ((int64_t)blockIdx.x * PREPARE_THREADS + threadIdx.x) / S::LANES;
  int shared_by = a.heads / a.kv_heads, lane = threadIdx.x % S::LANES, head = (int)(i / rows), row = (int)(i % rows);
  int all = p.first * shared_by + head, sample = all / a.heads, of_sample = all % a.heads;
  float sum = 0;
  if (row < a.tq) {
    float x[8], y[8];
    load<T, 8>(a.o + ((int64_t)sample * a.tq + row) * a.ldo + of_sample * D + lane * 8, x);
    load<T, 8>(a.d_o + ((int64_t)sample * a.tq + row) * a.lddo + of_sample * D + lane * 8, y);
#pragma unroll
    for (int j = 0; j < 8; j++) sum += x[j] * y[j];
  }
  for (int offset = 1; offset < S::LANES; offset *= 2) sum += __shfl_xor_sync(WHOLE_WARP, sum, offset);
  if (lane == 0) p.delta[i] = sum;
  if (lane == 1) p.lse[i] = row < a.tq ? a.lse[(int64_t)all * a.tq + row] * LOG2_E : INFINITY;
  if (lane == 0 && row % S::QUERIES == 0) p.turns[i / S::QUERIES] = 0;
  if (i == 0 && lane == 0) *p.next = 0;
}

/* --- after: dq ------------------------------------------------------------------------------------------------------------------------ */

template <int D, class T> __global__ void __launch_bounds__(GROUP_THREADS) finish_kernel(HopperBackward<T> p) {
  constexpr bool OF_QUERIES = Sizes<D>::COLUMNS == 2; /* a half is */
  const Attention<T> &a = p.a;
  int half = blockIdx.x % 2, tile = blockIdx.x / 2, head = blockIdx.y;
  int all = p.first * (a.heads / a.kv_heads) + head, sample = all / a.heads, of_sample = all % a.heads;
  const float *sums = p.sums + (((int64_t)head * p.query_tiles + tile) * 2 + half) * HALF_SUMS, factor[2] = {a.scale, a.scale};
  int first = tile * Sizes<D>::QUERIES + (OF_QUERIES ? half * 64 : 0), dimension = OF_QUERIES ? 0 : half * 64;
  float x[8][4];
#pragma unroll
  for (int j = 0; j < 8; j++) {
    float4 four = *(const float4 *)(sums + (j * GROUP_THREADS + (int)threadIdx.x) * 4);
    x[j][0] = four.x, x[j][1] = four.y, x[j][2] = four.z, x[j][3] = four.w;
  }
  tile_store<TILE_WIDTH>(a.dq + (int64_t)sample * a.tq * a.lddq + of_sample * D + dimension, a.lddq, first, a.tq, factor, x, 0);
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

/* Enough that some are left for as long as there is work: each that has ended has done its stint. */
static int64_t blocks_for(int64_t steps, int64_t items, int64_t at_a_time, int64_t stint) {
  int64_t blocks = at_a_time + steps / stint;
  return blocks < items ? blocks : items;
}

/* Heads of keys [first, first + groups), of all samples. */
template <int D, class T> static int backward_part(CudaStream stream, HopperBackward<T> p, int first, int groups, void *scratch) {
  constexpr int QUERIES = Sizes<D>::QUERIES;
  int64_t heads = (int64_t)groups * (p.a.heads / p.a.kv_heads), tiles = heads * p.query_tiles, rows = tiles * QUERIES;
  int at_a_time, failed = ALLOW_SHARED_HOPPER((hopper_kernel<D, T>), sizeof(Shared<D>));
  if (!failed) failed = hopper_multiprocessors(&at_a_time);
  if (failed) return failed;
  p.first = first, p.groups = groups;
  p.sums = (float *)scratch, p.lse = p.sums + tiles * SUMS, p.delta = p.lse + rows;
  p.turns = (uint32_t *)(p.delta + rows), p.next = p.turns + tiles;
  LAUNCH((prepare_kernel<D, T>), (unsigned)(rows * Sizes<D>::LANES / PREPARE_THREADS), PREPARE_THREADS, 0, stream, p);
  int64_t hidden = (int64_t)Sizes<D>::DIAGONAL * p.key_tiles * (p.key_tiles - 1) / 2, steps = heads * ((int64_t)p.key_tiles * p.query_tiles - hidden);
  int64_t blocks = blocks_for(steps, (int64_t)groups * p.key_tiles, at_a_time, p.stint);
  LAUNCH((hopper_kernel<D, T>), (unsigned)blocks, THREADS, sizeof(Shared<D>), stream, p);
  LAUNCH((finish_kernel<D, T>), dim3((unsigned)(2 * p.query_tiles), (unsigned)heads), GROUP_THREADS, 0, stream, p);
  return LAUNCHED();
}

template <int D, class T> static int backward(CudaStream stream, HopperBackward<T> p, int64_t groups, void *scratch) {
  int64_t all = (int64_t)p.a.batch * p.a.kv_heads;
  p.query_tiles = (int)ceil_of(p.a.tq, Sizes<D>::QUERIES), p.key_tiles = (int)ceil_of(p.a.tk, KEYS);
  for (int64_t first = 0; first < all; first += groups) {
    int failed = backward_part<D>(stream, p, (int)first, (int)(all - first < groups ? all - first : groups), scratch);
    if (failed) return failed;
  }
  return 0;
}

int cuda_attention_hopper_bwd(CudaStream stream, const AttentionShape *shape, int64_t groups, int shares, CudaTensor q, CudaTensor k, CudaTensor v,
                              CudaTensor o, const float *lse, CudaTensor d_o, CudaTensor dq, CudaTensor dk, CudaTensor dv, void *scratch) {
  if (groups < 1 || !cuda_attention_hopper_takes(shape, q, k, v, o, d_o, dq, dk, dv)) return CUDA_UNSUPPORTED;
  FOR_TYPE(o.type, false, (void)N; if constexpr (sizeof(T) == 2) {
    HopperBackward<T> p = {};
    Attention<T> &a = p.a;
    a = attention_of<T>(shape, q, k, v);
    a.o = (const T *)o.x, a.ldo = o.ld, a.d_o = (const T *)d_o.x, a.lddo = d_o.ld, a.lse = (float *)lse;
    a.dq = (T *)dq.x, a.lddq = dq.ld, a.dk = (T *)dk.x, a.lddk = dk.ld, a.dv = (T *)dv.x, a.lddv = dv.ld;
    p.stint = shares ? STINT : INT32_MAX;
    return shape->head_dim == 64 ? backward<64>(stream, p, groups, scratch) : backward<128>(stream, p, groups, scratch);
  })
  return CUDA_UNSUPPORTED;
}
