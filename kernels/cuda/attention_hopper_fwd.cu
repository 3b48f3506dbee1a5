/* Owns: attention's forward pass on Hopper (compute 9.0): causal, heads of 64 or 128 dimensions, 16 bits; results repeat bit by bit.
 *
 * A block has 192 queries of a head at a time (128 of 128 dimensions, or where that divides few better), a warpgroup 64 of them, and walks the keys
 * that they see from the diagonal back to the first, in tiles of 128 (arXiv 2407.08608). Scores are products out of shared memory, rounded weights
 * left operands of the values without leaving registers. Two things keep the tensor cores busy while exponents are taken: a warpgroup starts the next tile's
 * scores and this tile's sums before it takes the next exponents, and warpgroups start theirs in turn, so that one's exponents run under the
 * others' products. Instructions are the third bottleneck: only of its first tile a row's maximum is looked for. Exponents stay relative to it
 * until a tile's weights are so large that 16 bits or sums might overflow; then, seldom, the tile's are computed again from its scores, relative to
 * the new maximum, and sums multiplied. Warps of the last warpgroup copy a tile each, two of keys and two of values.
 *
 * Blocks have a fixed list of work, the longest first, dealt out there and back, of so many heads at a time as the L2 holds the keys of.
 * Where other kernels wait for multiprocessors, as collectives do, lists are short and blocks many.
 *
 * Moves q, k, v, o once and k, v once more per 192 queries out of L2; 2 T^2 d flops a head. Bound: tensor cores, and as much exponents, of which
 * 16 a clock and multiprocessor are taken: with heads of 64 a tile has as many clocks of either. Rate: not measured yet. */
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/hopper.cuh"

/* What tools/attention/forward.cu tries other values of. */
#ifndef FORWARD_GROUPS
#define FORWARD_GROUPS 0 /* of 64 queries a block, for heads of 64; 0: 2 or 3, by the shape */
#endif
#ifndef FORWARD_STAGES
#define FORWARD_STAGES 4 /* tiles of keys on their way, for heads of 64 */
#endif
#ifndef FORWARD_SUMS
#define FORWARD_SUMS 0 /* of 64 exponents, how many are taken by multiply-adds */
#endif
#ifndef FORWARD_TURNS
#define FORWARD_TURNS 1 /* warpgroups start products in turn */
#endif
#ifndef FORWARD_GROWTH
#define FORWARD_GROWTH 8 /* in powers of 2, of a maximum that is looked for, before sums are multiplied */
#endif
#ifndef FORWARD_MAXIMA
#define FORWARD_MAXIMA 0 /* of every tile; else of the first, and where weights become large */
#endif
#ifndef FORWARD_EARLY
#define FORWARD_EARLY 2 /* of 8 pieces of weights, how many are computed before the sums of the tile before are waited for */
#endif
#ifndef FORWARD_TMA
#define FORWARD_TMA 0 /* tiles come by tensor maps, asked for by one thread */
#endif

namespace {

constexpr int KEYS = HOPPER_KEYS, PART_BYTES = KEYS * TILE_ROW_BYTES, GROUP_ROWS = 64, LOADERS = 4 /* warps */;
constexpr int64_t WOVEN_BYTES = 16 << 20;
constexpr int BARRIER_TURN = 1; /* and the next ones, one a warpgroup */
#ifdef FSDPC_SHIM
constexpr int STINT = 6;
#else
constexpr int STINT = 256; /* tiles of keys: some 0.2 ms */
#endif

template <class T_, int D_, int GROUPS_> struct Forward {
  typedef T_ T;
  static constexpr int D = D_, PARTS = D / TILE_WIDTH, GROUPS = GROUPS_, ROWS = GROUPS * GROUP_ROWS;
  static constexpr int STAGES = D == 64 ? FORWARD_STAGES : 2, THREADS = (GROUPS + 1) * GROUP_THREADS;
  static constexpr int LOADER_REGISTERS = GROUPS == 2 ? 40 : 32, COMPUTER_REGISTERS = GROUPS == 2 ? 232 : 160;
  Attention<T> a;
  int tiles;         /* of queries */
  TileMap q, k, v;   /* for FORWARD_TMA */
  int woven, heads;  /* heads whose work takes turns, and all of them; of all samples, counted through */
};

/* Tiles of 64 dimensions, side by side for heads of 128. */
template <class F> struct ForwardShared {
  alignas(1024) unsigned char queries[2][F::PARTS][F::ROWS * TILE_ROW_BYTES], keys[F::STAGES][F::PARTS][PART_BYTES], values[F::STAGES][F::PARTS][PART_BYTES];
  uint64_t queries_full[2], queries_empty[2], full[2][F::STAGES], empty[2][F::STAGES]; /* of keys, of values */
};

/* --- work: a tile of queries ------------------------------------------------------------------------------------------------- */

struct Queries {
  int sample, head, kv;
  int first; /* query */
  int all;   /* the head, counted through all samples */
};

/* The nth work of this block, by number: there and back. */
DEVICE int nth_item(int n) { return n * (int)gridDim.x + (int)(n % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x); }
template <class F> DEVICE int items_of(const F &p) { return p.heads * p.tiles; }

template <class F> DEVICE Queries queries_of(const F &p, int item) {
  int set = item / (p.woven * p.tiles) * p.woven, of_set = item - set * p.tiles, heads = p.heads - set < p.woven ? p.heads - set : p.woven;
  int all = set + of_set % heads, head = all % p.a.heads;
  return Queries{all / p.a.heads, head, head / (p.a.heads / p.a.kv_heads), (p.tiles - 1 - of_set / heads) * F::ROWS, all};
}

/* Tiles of keys that a warpgroup's queries see; that the block's do. */
template <class F> DEVICE int tiles_of_group(const F &p, const Queries &w, int group) {
  int first = w.first + group * GROUP_ROWS, last = first + GROUP_ROWS - 1 < p.a.tq ? first + GROUP_ROWS - 1 : p.a.tq - 1;
  return first < p.a.tq ? last / KEYS + 1 : 0;
}
template <class F> DEVICE int tiles_of(const F &p, const Queries &w) {
  int last = w.first + F::ROWS - 1 < p.a.tq ? w.first + F::ROWS - 1 : p.a.tq - 1;
  return last / KEYS + 1;
}

/* --- copies: each warp tiles of its own ------------------------------------------------------------------------------------------ */

/* Rows [0, ROWS) of x to a tile's from a multiple of 8 on; those from `there` on are zeros. Eight lanes a row. */
template <int ROWS, class T> DEVICE void load_part(unsigned char *to, const T *x, int64_t ld, int there) {
  int row = threadIdx.x % WARP / 8, piece = threadIdx.x % 8;
  const T *from = x + row * ld + piece * 8;
  unsigned char *low = to + tile_at(row, piece), *high = to + tile_at(row + 4, piece);
#pragma unroll 4
  for (int r = 0; r < ROWS; r += 8, from += 8 * ld) {
    copy_async<16>(low + r * TILE_ROW_BYTES, r + row < there ? from : x, r + row < there);
    copy_async<16>(high + r * TILE_ROW_BYTES, r + row + 4 < there ? from + 4 * ld : x, r + row + 4 < there);
  }
}

DEVICE void loaded(uint64_t *full) {
  copies_wait();
  fence_async_shared();
  mbarrier_arrive(full);
}

/* A quarter of an item's queries. */
template <class F> DEVICE void load_queries(const F &p, unsigned char (&to)[F::PARTS][F::ROWS * TILE_ROW_BYTES], const Queries &w, int warp) {
  const auto &a = p.a;
  constexpr int QUARTER = F::ROWS / LOADERS;
  int there = a.tq - w.first - warp * QUARTER, first = there > 0 ? w.first + warp * QUARTER : 0;
  const typename F::T *x = a.q + ((int64_t)w.sample * a.tq + first) * a.ldq + w.head * F::D;
#pragma unroll 1
  for (int i = 0; i < F::PARTS; i++) load_part<QUARTER>(to[i] + warp * QUARTER * TILE_ROW_BYTES, x + i * TILE_WIDTH, a.ldq, there);
}

template <class F> DEVICE void forward_load(const F &p, ForwardShared<F> &s) {
  const auto &a = p.a;
  int warp = __shfl_sync(WHOLE_WARP, (int)threadIdx.x / WARP, 0), side = warp % 2, own = warp / 2, turn = 0;
  int64_t ld = side == 0 ? a.ldk : a.ldv;
  Ring<2> queries;
  Ring<F::STAGES> stage;
#pragma unroll 1
  for (int n = 0, item; (item = nth_item(n)) < items_of(p); n++, queries.next()) {
    Queries w = queries_of(p, item);
    const typename F::T *x = (side == 0 ? a.k : a.v) + (int64_t)w.sample * a.tk * ld + w.kv * F::D;
    mbarrier_wait(&s.queries_empty[queries.at], queries.parity ^ 1);
    load_queries(p, s.queries[queries.at], w, warp);
    loaded(&s.queries_full[queries.at]);
#pragma unroll 1
    for (int tile = tiles_of(p, w) - 1; tile >= 0; tile--, stage.next(), turn ^= 1) {
      if (turn != own) continue;
      mbarrier_wait(&s.empty[side][stage.at], stage.parity ^ 1);
#pragma unroll 1
      for (int i = 0; i < F::PARTS; i++)
        load_part<KEYS>((side == 0 ? s.keys : s.values)[stage.at][i], x + (int64_t)tile * KEYS * ld + i * TILE_WIDTH, ld, a.tk - tile * KEYS);
      loaded(&s.full[side][stage.at]);
    }
  }
}

/* The same by one thread. */
template <class F> DEVICE void forward_tiles(const F &p, ForwardShared<F> &s) {
  Ring<2> queries;
  Ring<F::STAGES> stage;
#pragma unroll 1
  for (int n = 0, item; (item = nth_item(n)) < items_of(p); n++, queries.next()) {
    Queries w = queries_of(p, item);
    mbarrier_wait(&s.queries_empty[queries.at], queries.parity ^ 1);
    mbarrier_expect(&s.queries_full[queries.at], F::ROWS * F::D * 2);
    for (int i = 0; i < F::PARTS; i++)
      tile_load(s.queries[queries.at][i], p.q, w.head * F::D + i * TILE_WIDTH, w.first, w.sample, &s.queries_full[queries.at]);
#pragma unroll 1
    for (int tile = tiles_of(p, w) - 1; tile >= 0; tile--, stage.next())
#pragma unroll
      for (int side = 0; side < 2; side++) {
        mbarrier_wait(&s.empty[side][stage.at], stage.parity ^ 1);
        mbarrier_expect(&s.full[side][stage.at], KEYS * F::D * 2);
        for (int i = 0; i < F::PARTS; i++)
          tile_load((side == 0 ? s.keys : s.values)[stage.at][i], side == 0 ? p.k : p.v, w.kv * F::D + i * TILE_WIDTH, tile * KEYS, w.sample,
                    &s.full[side][stage.at]);
      }
  }
}

/* --- softmax: of own part of 64 queries x 128 keys, rows g and g + 8 of the warp's ------------------------------------------------ */

struct Rows {
  float top[2], sum[2]; /* top: the score that exponents are relative to; sum: of own columns' weights */
};

/* At the diagonal: keys beyond a query are not seen. row: own first, in the tile. */
DEVICE void hide(float (&s)[16][4], int row, int t) {
#pragma unroll
  for (int j = 0; j < 16; j++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (8 * j + 2 * t + i % 2 > row + i / 2 * 8) s[j][i] = -INFINITY;
}

/* New tops, and what sums shrink by; false: by nothing, in the whole warp. */
template <bool BEGINS> DEVICE bool find_tops(const float (&s)[16][4], Rows &rows, float scale, float (&shrink)[2]) {
  bool grows = false;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float even = s[0][2 * i], odd = s[0][2 * i + 1];
#pragma unroll
    for (int j = 1; j < 16; j++) even = fmaxf(even, s[j][2 * i]), odd = fmaxf(odd, s[j][2 * i + 1]);
    float most = four_max(fmaxf(even, odd));
    shrink[i] = 1;
    if (BEGINS) {
      rows.top[i] = most;
    } else if ((most - rows.top[i]) * scale > FORWARD_GROWTH) {
      shrink[i] = fast_exp2((rows.top[i] - most) * scale);
      rows.top[i] = most, grows = true;
    }
  }
  return !BEGINS && __ballot_sync(WHOLE_WARP, grows) != 0;
}

/* 2^x by additions and multiplications: x = n + f, a polynomial of f, n added to its exponent. Relative error 3e-6. */
DEVICE float sums_exp2(float x) {
  constexpr float ROUNDS = 12582912; /* 1.5 * 2^23: what is added to it is rounded to integers */
  uint32_t n, bits;
  x = x < -127 ? -127 : x > 127 ? 127 : x; /* its power is zero, or found to be too large */
  float rounded = x + ROUNDS, f = x - (rounded - ROUNDS);
  float power = fmaf(fmaf(fmaf(fmaf(0.00958285094f, f, 0.0559064524f), f, 0.240240988f), f, 0.69312419f), f, 1.0f);
  memcpy(&n, &rounded, sizeof n), memcpy(&bits, &power, sizeof bits);
  bits += n << 23;
  memcpy(&power, &bits, sizeof power);
  return x == x ? power : x;
}
/* Spread evenly among the 64. */
DEVICE constexpr bool taken_by_sums(int nth) { return (nth + 1) * FORWARD_SUMS / 64 != nth * FORWARD_SUMS / 64; }

/* Weights exp(scale s - top) of pieces FROM to TO - 1, 16 columns each; s stays. sum: of them. */
template <int FROM, int TO> DEVICE void weigh(const float (&s)[16][4], const Rows &rows, float scale, float (&sum)[2], float (*weights)[8]) {
  float base[2] = {rows.top[0] * scale, rows.top[1] * scale};
#pragma unroll
  for (int k = FROM; k < TO; k++)
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float x = fmaf(s[2 * k + i / 4][i % 4], scale, -base[i / 2 % 2]);
      float weight = taken_by_sums(8 * k + i) ? sums_exp2(x) : fast_exp2(x);
      weights[k][i] = weight, sum[i / 2 % 2] += weight;
    }
}

/* As left operands, of 16 bits. */
template <class T, int FROM, int TO> DEVICE void hold_weights(const float (*weights)[8], uint32_t (&held)[8][4]) {
#pragma unroll
  for (int k = FROM; k < TO; k++)
#pragma unroll
    for (int i = 0; i < 4; i++) held[k][i] = pack<T>(weights[k][2 * i], weights[k][2 * i + 1]);
}

/* So that the compiler does not compute them later. */
template <int PIECES> DEVICE void computed(float (*weights)[8]) {
#ifndef FSDPC_SHIM
#pragma unroll
  for (int k = 0; k < PIECES; k++)
#pragma unroll
    for (int i = 0; i < 8; i++) asm volatile("" : "+f"(weights[k][i]));
#else
  (void)weights;
#endif
}
DEVICE void held_now(uint32_t (&held)[8][4]) {
#ifndef FSDPC_SHIM
#pragma unroll
  for (int k = 0; k < 8; k++)
#pragma unroll
    for (int i = 0; i < 4; i++) asm volatile("" : "+r"(held[k][i]));
#else
  (void)held;
#endif
}

/* Weights are not so large that rounding to 16 bits, or sums of products, could overflow. */
template <class T> DEVICE bool are_small(const float (&sum)[2]) {
  constexpr float MOST = Wide<T>::BF16 ? 1 << 30 : 1 << 15;
  return __ballot_sync(WHOLE_WARP, !(sum[0] <= MOST && sum[1] <= MOST)) == 0;
}

/* --- warpgroups that compute ------------------------------------------------------------------------------------------------------- */

/* s = own queries . a tile of keys */
template <class F> DEVICE void start_keys(float (&s)[16][4], ForwardShared<F> &sh, int of_two, int group, int stage) {
  products_hold(s);
  products_open();
#pragma unroll
  for (int part = 0; part < F::PARTS; part++) {
    Operand q = operand_of(sh.queries[of_two][part] + group * GROUP_ROWS * TILE_ROW_BYTES), k = operand_of(sh.keys[stage][part]);
#pragma unroll
    for (int i = 0; i < 4; i++) product_rows<typename F::T>(s, operand_at(q, 32 * i), operand_at(k, 32 * i), part + i > 0);
  }
  products_commit();
}

template <int PARTS> DEVICE void hold_sums(float (&acc)[PARTS][8][4]) {
#pragma unroll
  for (int part = 0; part < PARTS; part++) products_hold(acc[part]);
}

template <int PARTS> DEVICE void shrink_sums(float (&acc)[PARTS][8][4], const float (&shrink)[2]) {
#pragma unroll
  for (int part = 0; part < PARTS; part++)
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) acc[part][j][i] *= shrink[i / 2];
}

/* acc += weights . a tile of values */
template <class F> DEVICE void start_values(float (&acc)[F::PARTS][8][4], const uint32_t (&held)[8][4], ForwardShared<F> &sh, int stage) {
  hold_sums(acc);
  products_open();
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int part = 0; part < F::PARTS; part++)
      product_64_held<typename F::T>(acc[part], held[i], operand_at(operand_of(sh.values[stage][part]), 2048 * i));
  products_commit();
}

template <class F> DEVICE void turn_wait(int group) {
  if (FORWARD_TURNS) named_barrier(BARRIER_TURN + group, 2 * GROUP_THREADS);
}
template <class F> DEVICE void turn_pass(int group) {
  if (FORWARD_TURNS) named_arrive(BARRIER_TURN + (group + 1 == F::GROUPS ? 0 : group + 1), 2 * GROUP_THREADS);
}

/* o and lse of own queries. */
template <class F> DEVICE void store_queries(const F &p, const Queries &w, int group, const Rows &rows, float (&acc)[F::PARTS][8][4]) {
  const auto &a = p.a;
  Lane l = lane_of();
  float factor[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float sum = four_sum(rows.sum[i]);
    int query = w.first + group * GROUP_ROWS + l.warp % 4 * 16 + l.g + 8 * i;
    factor[i] = 1 / sum;
    if (query < a.tq && l.t == 0) a.lse[(int64_t)w.all * a.tq + query] = rows.top[i] * a.scale + logf(sum);
  }
#pragma unroll
  for (int part = 0; part < F::PARTS; part++)
    tile_store<TILE_WIDTH>(a.out + (int64_t)w.sample * a.tq * a.ldout + w.head * F::D + part * TILE_WIDTH, a.ldout, w.first - GROUP_ROWS, a.tq, factor,
                           acc[part], 0); /* own warps are counted from 4 on */
}

/* Tiles that others of the block see, but no query of this warpgroup; of each, its turn to start products, as long as there are turns: the
 * others may need it to get on to the next tile. */
template <class F> DEVICE void pass_over(ForwardShared<F> &s, Ring<F::STAGES> &stage, int count, int turns, int group) {
#pragma unroll 1
  for (int i = 0; i < count; i++, stage.next()) {
    for (int side = 0; side < 2; side++) {
      mbarrier_wait(&s.full[side][stage.at], stage.parity);
      warp_arrives(&s.empty[side][stage.at]);
    }
    if (i < turns) turn_wait<F>(group), turn_pass<F>(group);
  }
}

template <class F> DEVICE void forward_compute(const F &p, ForwardShared<F> &s, int group) {
  typedef typename F::T T;
  Lane l = lane_of();
  float scale = p.a.scale * LOG2_E;
  Ring<2> queries;
  Ring<F::STAGES> keys;
  if (group == F::GROUPS - 1) turn_pass<F>(group);
  for (int n = 0, item; (item = nth_item(n)) < items_of(p); n++, queries.next()) {
    Queries w = queries_of(p, item);
    int all = tiles_of(p, w), count = tiles_of_group(p, w, group);
    if (count == 0) {
      mbarrier_wait(&s.queries_full[queries.at], queries.parity);
      warp_arrives(&s.queries_empty[queries.at]);
      pass_over(s, keys, all, all - 1, group);
      continue;
    }
    pass_over(s, keys, all - count, all - count, group);
    float x[16][4], acc[F::PARTS][8][4] = {}, w32[8][8], shrink[2];
    uint32_t weights[8][4];
    Rows rows = {};
    Ring<F::STAGES> values = keys;
    mbarrier_wait(&s.queries_full[queries.at], queries.parity);
    mbarrier_wait(&s.full[0][keys.at], keys.parity);
    start_keys(x, s, queries.at, group, keys.at);
    products_wait<0>();
    products_hold(x);
    warp_arrives(&s.empty[0][keys.at]);
    hide(x, w.first + group * GROUP_ROWS + l.warp % 4 * 16 + l.g - (count - 1) * KEYS, l.t);
    find_tops<true>(x, rows, scale, shrink);
    weigh<0, 8>(x, rows, scale, rows.sum, w32);
    hold_weights<T, 0, 8>(w32, weights);
    held_now(weights);
#pragma unroll 1
    for (int left = count - 1; left > 0; left--) {
      keys.next();
      mbarrier_wait(&s.full[0][keys.at], keys.parity);
      turn_wait<F>(group);
      start_keys(x, s, queries.at, group, keys.at);
      mbarrier_wait(&s.full[1][values.at], values.parity);
      start_values(acc, weights, s, values.at);
      turn_pass<F>(group);
      products_wait<1>();
      products_hold(x);
      warp_arrives(&s.empty[0][keys.at]);
      bool shrinks = FORWARD_MAXIMA && find_tops<false>(x, rows, scale, shrink);
      if (FORWARD_MAXIMA) rows.sum[0] *= shrink[0], rows.sum[1] *= shrink[1];
      float sum[2] = {};
      weigh<0, FORWARD_EARLY>(x, rows, scale, sum, w32);
      computed<FORWARD_EARLY>(w32);
      products_wait<0>();
      hold_sums(acc);
      warp_arrives(&s.empty[1][values.at]);
      values.next();
      hold_weights<T, 0, FORWARD_EARLY>(w32, weights);
      weigh<FORWARD_EARLY, 8>(x, rows, scale, sum, w32);
      hold_weights<T, FORWARD_EARLY, 8>(w32, weights);
      if (!FORWARD_MAXIMA && !are_small<T>(sum)) { /* seldom: they are computed again */
        find_tops<false>(x, rows, scale, shrink), shrinks = true;
        rows.sum[0] *= shrink[0], rows.sum[1] *= shrink[1], sum[0] = sum[1] = 0;
        weigh<0, 8>(x, rows, scale, sum, w32);
        hold_weights<T, 0, 8>(w32, weights);
      }
      held_now(weights);
      rows.sum[0] += sum[0], rows.sum[1] += sum[1];
      if (shrinks) shrink_sums(acc, shrink);
    }
    keys.next();
    warp_arrives(&s.queries_empty[queries.at]);
    mbarrier_wait(&s.full[1][values.at], values.parity);
    start_values(acc, weights, s, values.at);
    products_wait<0>();
    hold_sums(acc);
    warp_arrives(&s.empty[1][values.at]);
    store_queries(p, w, group, rows, acc);
  }
}

template <class F> __global__ void __launch_bounds__(F::THREADS, 1) hopper_forward_kernel(const __grid_constant__ F p) {
#ifndef NOT_HOPPER
  DYNAMIC_TILES(memory);
  ForwardShared<F> &s = *(ForwardShared<F> *)memory;
  int group = __shfl_sync(WHOLE_WARP, (int)threadIdx.x / GROUP_THREADS, 0); /* so that nvcc knows that it is the same in a warp */
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) mbarrier_init(&s.queries_full[i], FORWARD_TMA ? 1 : LOADERS * WARP), mbarrier_init(&s.queries_empty[i], F::GROUPS * GROUP_THREADS / WARP);
    for (int side = 0; side < 2; side++)
      for (int i = 0; i < F::STAGES; i++)
        mbarrier_init(&s.full[side][i], FORWARD_TMA ? 1 : WARP), mbarrier_init(&s.empty[side][i], F::GROUPS * GROUP_THREADS / WARP);
    mbarriers_ready();
  }
  __syncthreads();
  if (group == 0) {
    registers_give<F::LOADER_REGISTERS>();
    if (!FORWARD_TMA) forward_load(p, s);
    else if (threadIdx.x == 0) forward_tiles(p, s);
  } else {
    registers_take<F::COMPUTER_REGISTERS>();
    forward_compute(p, s, group - 1);
  }
#endif
}

/* --- launches ------------------------------------------------------------------------------------------------------------------------- */

/* As many as run at a time; where multiprocessors are shared, so many more that each has little to do. */
int64_t blocks_for(int64_t items, int64_t tiles_of_keys, int64_t at_a_time, int shares) {
  int64_t work = items * (tiles_of_keys + 1) / 2, blocks = shares ? ceil_of(work, STINT) : 0;
  if (blocks < at_a_time) blocks = at_a_time;
  return blocks < items ? blocks : items;
}

template <class T, int D, int GROUPS> int forward(CudaStream stream, const Attention<T> &a, int shares) {
  typedef Forward<T, D, GROUPS> F;
  int at_a_time, failed = ALLOW_SHARED_HOPPER(hopper_forward_kernel<F>, sizeof(ForwardShared<F>));
  if (!failed) failed = hopper_multiprocessors(&at_a_time);
  if (failed) return failed;
  static_assert(sizeof(ForwardShared<F>) <= 227 * 1024, "what a block may have");
  int64_t heads_of_keys = WOVEN_BYTES / ((int64_t)a.tk * D * 2 * (int64_t)sizeof(T));
  int shared_by = a.heads / a.kv_heads, heads = a.batch * a.heads;
  F p = {};
  p.a = a, p.tiles = (int)ceil_of(a.tq, F::ROWS), p.heads = heads;
  p.woven = heads_of_keys < 1 ? shared_by : heads_of_keys * shared_by < heads ? (int)heads_of_keys * shared_by : heads;
  if (FORWARD_TMA) {
    int64_t q_cols = (int64_t)a.heads * D, cols = (int64_t)a.kv_heads * D;
    failed = tile_map_of(&p.q, a.q, Wide<T>::BF16, a.ldq, q_cols, a.tq, a.batch, F::ROWS);
    if (!failed) failed = tile_map_of(&p.k, a.k, Wide<T>::BF16, a.ldk, cols, a.tk, a.batch, KEYS);
    if (!failed) failed = tile_map_of(&p.v, a.v, Wide<T>::BF16, a.ldv, cols, a.tk, a.batch, KEYS);
    if (failed) return failed;
  }
  int64_t blocks = blocks_for((int64_t)heads * p.tiles, ceil_of(a.tk, KEYS), at_a_time, shares);
  LAUNCH((hopper_forward_kernel<F>), (unsigned)blocks, F::THREADS, sizeof(ForwardShared<F>), stream, p);
  return LAUNCHED();
}

/* Of heads of 64 dimensions. Three warpgroups keep the tensor cores busier than two, unless the last of few tiles has work for one only. */
int groups_for(int64_t queries) {
  if (FORWARD_GROUPS != 0) return FORWARD_GROUPS;
  int64_t last = (queries - 1) % (3 * GROUP_ROWS) + 1;
  return queries <= 2 * GROUP_ROWS || (last <= GROUP_ROWS && queries < 2048) ? 2 : 3;
}

} // namespace

int cuda_attention_hopper_fwd_takes(const AttentionShape *s, CudaTensor q, CudaTensor k, CudaTensor v, CudaTensor o) {
  const CudaTensor all[] = {q, k, v, o};
  if (!s->causal || s->tq != s->tk || s->tq < 1 || s->tq > INT32_MAX / 2 || s->batch < 1 || (s->head_dim != 64 && s->head_dim != 128) || !(s->scale > 0)) return 0;
  if (s->batch * s->heads > INT32_MAX / 2 / ceil_of(s->tq, GROUP_ROWS)) return 0; /* work is counted in ints */
  for (int i = 0; i < 4; i++)
    if (all[i].type != q.type || all[i].type == CUDA_F32 || all[i].add || (uintptr_t)all[i].x % 16 != 0 || all[i].ld % 8 != 0) return 0;
  return 1;
}

int cuda_attention_hopper_fwd(CudaStream stream, const AttentionShape *shape, int shares, CudaTensor q, CudaTensor k, CudaTensor v, CudaTensor o,
                              float *lse) {
  if (!cuda_attention_hopper_fwd_takes(shape, q, k, v, o)) return CUDA_UNSUPPORTED;
  FOR_TYPE(o.type, false, (void)N; if constexpr (sizeof(T) == 2) {
    Attention<T> a = attention_of<T>(shape, q, k, v);
    a.out = (T *)o.x, a.ldout = o.ld, a.lse = lse;
    if (shape->head_dim == 128) return forward<T, 128, 2>(stream, a, shares);
    return groups_for(shape->tq) == 2 ? forward<T, 64, 2>(stream, a, shares) : forward<T, 64, 3>(stream, a, shares);
  })
  return CUDA_UNSUPPORTED;
}
