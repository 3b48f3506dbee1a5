/* Owns: attention over elements of 16 bits, in the blocks of attention.h. Rows are widened block by block; what is summed
 * over blocks stays in float on the stack and is rounded once.
 *
 * Backward walks the blocks twice: a task of the first pass owns 64 queries of one head and sums dq over the keys; a task
 * of the second owns 64 keys of one kv head and sums dk and dv over the queries of the heads that share it. That is seven
 * products where attention_bwd.c has five, but needs no memory beside the stack (460 KiB). */
#include "kernels/cpu/attention.h"

typedef real Rows[ATT_BLOCK][HALF_MAX_HEAD_DIM];

/* One head's matrices: row t of sample b at b * positions + t. */
typedef struct Attention {
  AttentionShape shape;
  const stored *q, *k, *v, *o, *d_o;
  stored *out, *dq, *dk, *dv;
  real *lse;
  const real *lse_in;
  int64_t ldq, ldk, ldv, ldo, lddo, lddq, lddk, lddv;
  int add_q, add_k, add_v;
  int64_t blocks; /* that a head's rows are cut into */
} Attention;

static void widen_rows(const stored *x, int64_t ld, int64_t rows, int64_t dims, Rows to) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < dims; j += VL) vec_put(&to[r][j], vec_take(x + r * ld + j, dims - j), dims - j);
  }
}

static void put_rows(int64_t rows, int64_t dims, Rows from, stored *y, int64_t ld, int add) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < dims; j += VL) {
      stored *to = y + r * ld + j;
      vec v = vec_take(&from[r][j], dims - j);
      vec_put(to, add ? vec_take(to, dims - j) + v : v, dims - j);
    }
  }
}

/* Query rows of one head that a task looks at, widened, and the same packed for scores. */
typedef struct Queries {
  int64_t count, reach, end; /* last key that the first query sees; one past the last key that any sees */
  Rows q;
  real packed[ATT_DIMS][ATT_BLOCK];
} Queries;

static void load_queries(const Attention *h, int64_t b, int64_t head, int64_t first, Queries *x) {
  const AttentionShape *a = &h->shape;
  int64_t d = a->head_dim;
  x->count = least(ATT_BLOCK, a->tq - first);
  x->reach = a->causal ? first + (a->tk - a->tq) : a->tk;
  x->end = a->causal ? least(a->tk, x->reach + x->count) : a->tk;
  widen_rows(h->q + att_at(b, first, a->tq, head, d, h->ldq), h->ldq, x->count, d, x->q);
  if (d <= ATT_DIMS) att_pack(x->q[0], HALF_MAX_HEAD_DIM, x->count, 0, d, (real)a->scale, x->packed);
}

static void scores(const Attention *h, Queries *x, Rows k, int64_t key, int64_t keys, real s[ATT_BLOCK][ATT_BLOCK]) {
  att_scores(k[0], HALF_MAX_HEAD_DIM, keys, keys, x->q[0], HALF_MAX_HEAD_DIM, x->count, h->shape.head_dim, (real)h->shape.scale,
             x->packed, s);
  if (h->shape.causal) att_mask(keys, x->count, x->reach - key, s);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void finish_rows(int64_t queries, int64_t d, const AttRunning *run, Rows o, real *lse) {
  for (int64_t i = 0; i < queries; i++) {
    real factor = run->sum[i] > 0 ? 1 / run->sum[i] : run->sum[i] == 0 ? 0 : (real)NAN;
    for (int64_t j = 0; j < d; j += VL) vec_put(&o[i][j], vec_take(&o[i][j], d - j) * factor, d - j);
    lse[i] = run->sum[i] == 0 ? (real)-INFINITY : (real)((double)run->top[i] + log((double)run->sum[i]));
  }
}

static void forward_task(void *arg, int64_t index) {
  const Attention *h = arg;
  const AttentionShape *a = &h->shape;
  Queries x;
  Rows rows, o;
  real s[ATT_BLOCK][ATT_BLOCK];
  AttRunning run;
  int64_t first = index % h->blocks * ATT_BLOCK, head = index / h->blocks % a->heads;
  int64_t b = index / h->blocks / a->heads, kv_head = head / (a->heads / a->kv_heads), d = a->head_dim;
  load_queries(h, b, head, first, &x);
  for (int64_t i = 0; i < ATT_BLOCK; i++) run.top[i] = (real)-1e30, run.sum[i] = 0;
  for (int64_t i = 0; i < x.count; i++) memset(o[i], 0, (size_t)d * sizeof(real));
  for (int64_t key = 0; key < x.end; key += ATT_BLOCK) {
    int64_t keys = least(ATT_BLOCK, x.end - key);
    widen_rows(h->k + att_at(b, key, a->tk, kv_head, d, h->ldk), h->ldk, keys, d, rows);
    scores(h, &x, rows, key, keys, s);
    att_softmax(keys, keys, att_lanes(x.count), s, &run);
    widen_rows(h->v + att_at(b, key, a->tk, kv_head, d, h->ldv), h->ldv, keys, d, rows);
    BASE(block_mm)
    (x.count, d, keys, s[0], 1, ATT_BLOCK, rows[0], HALF_MAX_HEAD_DIM, o[0], HALF_MAX_HEAD_DIM, BLOCK_SCALE, run.keep);
  }
  finish_rows(x.count, d, &run, o, h->lse + (b * a->heads + head) * a->tq + first);
  put_rows(x.count, d, o, h->out + att_at(b, first, a->tq, head, d, h->ldo), h->ldo, 0);
}

void SYM(attention_fwd)(const KernelContext *k, const AttentionShape *shape, const stored *q, int64_t ldq,
                        const stored *key, int64_t ldk, const stored *v, int64_t ldv, stored *o, int64_t ldo,
                        real *lse) {
  Attention h = {.shape = *shape, .q = q, .k = key, .v = v, .out = o, .lse = lse};
  h.ldq = ldq, h.ldk = ldk, h.ldv = ldv, h.ldo = ldo, h.blocks = ceil_div(shape->tq, ATT_BLOCK);
  tasks_run(k, shape->batch * shape->heads * h.blocks, forward_task, &h);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* The gradient's side of a block of queries. */
typedef struct Gradients {
  Rows d_o;
  real packed[ATT_DIMS][ATT_BLOCK];
  real lse[ATT_BLOCK], dots[ATT_BLOCK]; /* dots: D = rowsum(do o) */
} Gradients;

static void load_gradients(const Attention *h, int64_t b, int64_t head, int64_t first, int64_t queries, Gradients *g) {
  const AttentionShape *a = &h->shape;
  int64_t d = a->head_dim;
  const stored *o = h->o + att_at(b, first, a->tq, head, d, h->ldo);
  const real *lse = h->lse_in + (b * a->heads + head) * a->tq + first;
  widen_rows(h->d_o + att_at(b, first, a->tq, head, d, h->lddo), h->lddo, queries, d, g->d_o);
  for (int64_t i = 0; i < ATT_BLOCK; i++) {
    vec sum = {0};
    for (int64_t j = 0; i < queries && j < d; j += VL)
      sum += vec_take(o + i * h->ldo + j, d - j) * vec_take(&g->d_o[i][j], d - j);
    g->dots[i] = vec_sum(sum);
    /* Rows that saw nothing have lse -infinity and must get P = exp(s - lse) = 0. */
    g->lse[i] = i < queries && lse[i] != (real)-INFINITY ? lse[i] : (real)INFINITY;
  }
  if (d <= ATT_DIMS) att_pack(g->d_o[0], HALF_MAX_HEAD_DIM, queries, 0, d, 1, g->packed);
}

/* s becomes P, dp becomes ds of one block of queries and one of keys. */
static void block_gradients(const Attention *h, Queries *x, Gradients *g, Rows k, Rows v, int64_t key, int64_t keys,
                            real s[ATT_BLOCK][ATT_BLOCK], real dp[ATT_BLOCK][ATT_BLOCK]) {
  scores(h, x, k, key, keys, s);
  att_scores(v[0], HALF_MAX_HEAD_DIM, keys, keys, g->d_o[0], HALF_MAX_HEAD_DIM, x->count, h->shape.head_dim, 1, g->packed, dp);
  att_gradients(keys, keys, x->count, g->lse, g->dots, (real)h->shape.scale, s, dp);
}

static void query_task(void *arg, int64_t index) {
  const Attention *h = arg;
  const AttentionShape *a = &h->shape;
  Queries x;
  Gradients g;
  Rows k, v, dq;
  real s[ATT_BLOCK][ATT_BLOCK], dp[ATT_BLOCK][ATT_BLOCK];
  int64_t first = index % h->blocks * ATT_BLOCK, head = index / h->blocks % a->heads;
  int64_t b = index / h->blocks / a->heads, kv_head = head / (a->heads / a->kv_heads), d = a->head_dim;
  load_queries(h, b, head, first, &x);
  load_gradients(h, b, head, first, x.count, &g);
  for (int64_t i = 0; i < x.count; i++) memset(dq[i], 0, (size_t)d * sizeof(real));
  for (int64_t key = 0; key < x.end; key += ATT_BLOCK) {
    int64_t keys = least(ATT_BLOCK, x.end - key);
    widen_rows(h->k + att_at(b, key, a->tk, kv_head, d, h->ldk), h->ldk, keys, d, k);
    widen_rows(h->v + att_at(b, key, a->tk, kv_head, d, h->ldv), h->ldv, keys, d, v);
    block_gradients(h, &x, &g, k, v, key, keys, s, dp);
    BASE(block_mm)
    (x.count, d, keys, dp[0], 1, ATT_BLOCK, k[0], HALF_MAX_HEAD_DIM, dq[0], HALF_MAX_HEAD_DIM, BLOCK_ADD, NULL);
  }
  put_rows(x.count, d, dq, h->dq + att_at(b, first, a->tq, head, d, h->lddq), h->lddq, h->add_q);
}

/* Queries of every head that shares the kv head, those that see a key of the block. */
static void sum_keys(const Attention *h, int64_t b, int64_t kv_head, int64_t key, Rows k, Rows v, Rows dk, Rows dv) {
  const AttentionShape *a = &h->shape;
  Queries x;
  Gradients g;
  real s[ATT_BLOCK][ATT_BLOCK], dp[ATT_BLOCK][ATT_BLOCK];
  int64_t group = a->heads / a->kv_heads, d = a->head_dim;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
    for (int64_t first = 0; first < a->tq; first += ATT_BLOCK) {
      if (a->causal && first + ATT_BLOCK + (a->tk - a->tq) <= key) continue;
      load_queries(h, b, head, first, &x);
      int64_t keys = least(ATT_BLOCK, x.end - key);
      if (keys <= 0) continue;
      load_gradients(h, b, head, first, x.count, &g);
      block_gradients(h, &x, &g, k, v, key, keys, s, dp);
      BASE(block_mm)
      (keys, d, x.count, s[0], ATT_BLOCK, 1, g.d_o[0], HALF_MAX_HEAD_DIM, dv[0], HALF_MAX_HEAD_DIM, BLOCK_ADD, NULL);
      BASE(block_mm)
      (keys, d, x.count, dp[0], ATT_BLOCK, 1, x.q[0], HALF_MAX_HEAD_DIM, dk[0], HALF_MAX_HEAD_DIM, BLOCK_ADD, NULL);
    }
  }
}

static void key_task(void *arg, int64_t index) {
  const Attention *h = arg;
  const AttentionShape *a = &h->shape;
  Rows k, v, dk, dv;
  int64_t blocks = ceil_div(a->tk, ATT_BLOCK), key = index % blocks * ATT_BLOCK;
  int64_t kv_head = index / blocks % a->kv_heads, b = index / blocks / a->kv_heads, d = a->head_dim;
  int64_t keys = least(ATT_BLOCK, a->tk - key);
  widen_rows(h->k + att_at(b, key, a->tk, kv_head, d, h->ldk), h->ldk, keys, d, k);
  widen_rows(h->v + att_at(b, key, a->tk, kv_head, d, h->ldv), h->ldv, keys, d, v);
  for (int64_t i = 0; i < keys; i++) {
    memset(dk[i], 0, (size_t)d * sizeof(real));
    memset(dv[i], 0, (size_t)d * sizeof(real));
  }
  sum_keys(h, b, kv_head, key, k, v, dk, dv);
  put_rows(keys, d, dk, h->dk + att_at(b, key, a->tk, kv_head, d, h->lddk), h->lddk, h->add_k);
  put_rows(keys, d, dv, h->dv + att_at(b, key, a->tk, kv_head, d, h->lddv), h->lddv, h->add_v);
}

void SYM(attention_bwd)(const KernelContext *k, const AttentionShape *shape, const stored *q, int64_t ldq,
                        const stored *key, int64_t ldk, const stored *v, int64_t ldv, const stored *o, int64_t ldo,
                        const real *lse, const stored *d_o, int64_t lddo, stored *dq, int64_t lddq, int add_q,
                        stored *dk, int64_t lddk, int add_k, stored *dv, int64_t lddv, int add_v) {
  Attention h = {.shape = *shape, .q = q, .k = key, .v = v, .o = o, .lse_in = lse, .d_o = d_o, .dq = dq, .dk = dk};
  h.dv = dv, h.ldq = ldq, h.ldk = ldk, h.ldv = ldv, h.ldo = ldo, h.lddo = lddo;
  h.lddq = lddq, h.lddk = lddk, h.lddv = lddv, h.add_q = add_q, h.add_k = add_k, h.add_v = add_v;
  h.blocks = ceil_div(shape->tq, ATT_BLOCK);
  tasks_run(k, shape->batch * shape->heads * h.blocks, query_task, &h);
  tasks_run(k, shape->batch * shape->kv_heads * ceil_div(shape->tk, ATT_BLOCK), key_task, &h);
}
