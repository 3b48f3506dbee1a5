/* Owns: attention backward (arXiv 2205.14135 appendix B). Probabilities are recomputed from lse. A task is
 * one kv head of one sample with all query heads that share it, one after the other, so dk and dv have one
 * order of addition.
 *
 * With P and dP held transposed (a row per key): dv += P^T do, ds = P (dP - D) scale, dk += ds^T q, dq += ds
 * k, where D = rowsum(do o). Blocks of queries are walked from the last, which sees every key, so the first
 * visit of a block of keys is known: it overwrites (or adds, as asked), later ones add.
 *
 * Floor: 10 batch heads tq tk head_dim flops (half when causal) at the rate of block_mm, plus tq tk exps.
 * Achieved with head_dim 64 and tq = tk = 256, causal, one thread: 106 GFLOP/s. */
#include "kernels/cpu/attention.h"

typedef struct Backward {
  AttentionShape shape;
  const real *q, *k, *v, *o, *lse, *d_o;
  real *dq, *dk, *dv;
  int64_t ldq, ldk, ldv, ldo, lddo, lddq, lddk, lddv;
  int add_q, add_k, add_v;
} Backward;

/* One block of queries of one head and what is kept of it while the keys go by. */
typedef struct QueryBlock {
  int64_t queries, reach, end;
  const real *q, *d_o;
  real *dq;
  real lse[ATT_BLOCK], dots[ATT_BLOCK]; /* dots: D */
  real q_packed[ATT_DIMS][ATT_BLOCK], do_packed[ATT_DIMS][ATT_BLOCK];
} QueryBlock;

static void load_block(const Backward *w, int64_t b, int64_t head, int64_t first, QueryBlock *x) {
  const AttentionShape *a = &w->shape;
  int64_t d = a->head_dim;
  x->queries = least(ATT_BLOCK, a->tq - first);
  x->reach = a->causal ? first + (a->tk - a->tq) : a->tk;
  x->end = a->causal ? least(a->tk, x->reach + x->queries) : a->tk;
  x->q = w->q + att_at(b, first, a->tq, head, d, w->ldq);
  x->d_o = w->d_o + att_at(b, first, a->tq, head, d, w->lddo);
  x->dq = w->dq + att_at(b, first, a->tq, head, d, w->lddq);
  const real *o = w->o + att_at(b, first, a->tq, head, d, w->ldo);
  const real *lse = w->lse + (b * a->heads + head) * a->tq + first;
  for (int64_t i = 0; i < ATT_BLOCK; i++) {
    vec sum = {0};
    if (i < x->queries) {
      for (int64_t j = 0; j < d; j += VL) {
        sum += vec_take(o + i * w->ldo + j, d - j) * vec_take(x->d_o + i * w->lddo + j, d - j);
      }
    }
    x->dots[i] = vec_sum(sum);
    /* Rows that saw nothing have lse -infinity and must get P = exp(s - lse) = 0. */
    x->lse[i] = i < x->queries && lse[i] != (real)-INFINITY ? lse[i] : (real)INFINITY;
  }
  if (d > ATT_DIMS) return;
  att_pack(x->q, w->ldq, x->queries, 0, d, (real)a->scale, x->q_packed);
  att_pack(x->d_o, w->lddo, x->queries, 0, d, 1, x->do_packed);
}

static void key_block(const Backward *w, QueryBlock *x, int64_t b, int64_t kv_head, int64_t key,
                      int visited) {
  const AttentionShape *a = &w->shape;
  real s[ATT_BLOCK][ATT_BLOCK], dp[ATT_BLOCK][ATT_BLOCK];
  int64_t d = a->head_dim, keys = least(ATT_BLOCK, x->end - key), near = att_near(a->causal, x->reach - key, keys, x->queries);
  const real *k = w->k + att_at(b, key, a->tk, kv_head, d, w->ldk);
  const real *v = w->v + att_at(b, key, a->tk, kv_head, d, w->ldv);
  real *dk = w->dk + att_at(b, key, a->tk, kv_head, d, w->lddk);
  real *dv = w->dv + att_at(b, key, a->tk, kv_head, d, w->lddv);
  att_scores(k, w->ldk, keys, near, x->q, w->ldq, x->queries, d, (real)a->scale, x->q_packed, s);
  if (a->causal) att_mask(keys, x->queries, x->reach - key, s);
  att_scores(v, w->ldv, keys, near, x->d_o, w->lddo, x->queries, d, 1, x->do_packed, dp);
  att_gradients(keys, near, x->queries, x->lse, x->dots, (real)a->scale, s, dp);
  att_over_queries(keys, near, x->queries, d, s, x->d_o, w->lddo, dv, w->lddv, visited || w->add_v ? BLOCK_ADD : BLOCK_SET);
  att_over_queries(keys, near, x->queries, d, dp, x->q, w->ldq, dk, w->lddk, visited || w->add_k ? BLOCK_ADD : BLOCK_SET);
  att_over_keys(keys, near, x->queries, d, dp, k, w->ldk, x->dq, w->lddq, key > 0 || w->add_q ? BLOCK_ADD : BLOCK_SET, NULL);
}

static void backward_task(void *arg, int64_t index) {
  const Backward *w = arg;
  const AttentionShape *a = &w->shape;
  QueryBlock x;
  int64_t kv_head = index % a->kv_heads, b = index / a->kv_heads, group = a->heads / a->kv_heads;
  int64_t last = (a->tq - 1) / ATT_BLOCK * ATT_BLOCK;
  for (int64_t g = 0; g < group; g++) {
    for (int64_t first = last; first >= 0; first -= ATT_BLOCK) {
      load_block(w, b, kv_head * group + g, first, &x);
      for (int64_t key = 0; key < x.end; key += ATT_BLOCK)
        key_block(w, &x, b, kv_head, key, g > 0 || first < last);
      if (x.end > 0 || w->add_q) continue;
      for (int64_t i = 0; i < x.queries; i++)
        memset(x.dq + i * w->lddq, 0, (size_t)a->head_dim * sizeof(real));
    }
  }
}

void SYM(attention_bwd)(const KernelContext *k, const AttentionShape *shape, const real *q, int64_t ldq,
                        const real *key, int64_t ldk, const real *v, int64_t ldv, const real *o, int64_t ldo,
                        const real *lse, const real *d_o, int64_t lddo, real *dq, int64_t lddq, int add_q,
                        real *dk, int64_t lddk, int add_k, real *dv, int64_t lddv, int add_v) {
  Backward w = {
      .shape = *shape, .q = q, .k = key, .v = v, .o = o, .lse = lse, .d_o = d_o, .dq = dq, .dk = dk};
  w.dv = dv, w.ldq = ldq, w.ldk = ldk, w.ldv = ldv, w.ldo = ldo, w.lddo = lddo;
  w.lddq = lddq, w.lddk = lddk, w.lddv = lddv, w.add_q = add_q, w.add_k = add_k, w.add_v = add_v;
  tasks_run(k, shape->batch * shape->kv_heads, backward_task, &w);
}
