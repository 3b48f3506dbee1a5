/* Owns: attention forward, softmax(scale q k^T) v without the matrix of scores (arXiv 2205.14135). A task is
 * 64 queries of one head; it walks the keys in blocks of 64, skips blocks that the causal mask hides, and
 * rescales what it has when the running maximum grows. The output row is the accumulator.
 *
 * Queries that see no key (causal with fewer keys than queries) give 0 and lse = -infinity.
 *
 * Floor: 4 batch heads tq tk head_dim flops (half when causal) at the rate of block_mm, plus tq tk exps.
 * Achieved with head_dim 64 and tq = tk = 256, one thread: 128 GFLOP/s, causal 101 (of what the mask
 * hides in diagonal blocks, half is computed). */
#include "kernels/cpu/attention.h"

typedef struct Forward {
  AttentionShape shape;
  const real *q, *k, *v;
  real *o, *lse;
  int64_t ldq, ldk, ldv, ldo;
  int64_t blocks; /* of queries */
} Forward;

static void finish_rows(const Forward *f, int64_t queries, const AttRunning *run, real *o, real *lse) {
  int64_t d = f->shape.head_dim;
  for (int64_t i = 0; i < queries; i++) {
    real factor = run->sum[i] > 0 ? 1 / run->sum[i] : run->sum[i] == 0 ? 0 : (real)NAN;
    for (int64_t j = 0; j < d; j += VL) {
      real *to = o + i * f->ldo + j;
      vec_put(to, vec_take(to, d - j) * factor, d - j);
    }
    lse[i] = run->sum[i] == 0 ? (real)-INFINITY : (real)((double)run->top[i] + log((double)run->sum[i]));
  }
}

static void forward_task(void *arg, int64_t index) {
  const Forward *f = arg;
  const AttentionShape *a = &f->shape;
  real packed[ATT_DIMS][ATT_BLOCK], s[ATT_BLOCK][ATT_BLOCK];
  AttRunning run;
  int64_t first = index % f->blocks * ATT_BLOCK, head = index / f->blocks % a->heads,
          b = index / f->blocks / a->heads;
  int64_t kv_head = head / (a->heads / a->kv_heads), d = a->head_dim,
          queries = least(ATT_BLOCK, a->tq - first);
  int64_t reach = a->causal ? first + (a->tk - a->tq) : a->tk; /* last key that the first query sees */
  int64_t end = a->causal ? least(a->tk, reach + queries) : a->tk;
  const real *q = f->q + att_at(b, first, a->tq, head, d, f->ldq);
  real *o = f->o + att_at(b, first, a->tq, head, d, f->ldo);
  for (int64_t i = 0; i < ATT_BLOCK; i++) run.top[i] = (real)-1e30, run.sum[i] = 0;
  if (d <= ATT_DIMS) att_pack(q, f->ldq, queries, 0, d, (real)a->scale, packed);
  for (int64_t key = 0; key < end; key += ATT_BLOCK) {
    int64_t keys = least(ATT_BLOCK, end - key), near = att_near(a->causal, reach - key, keys, queries);
    att_scores(f->k + att_at(b, key, a->tk, kv_head, d, f->ldk), f->ldk, keys, near, q, f->ldq, queries, d,
               (real)a->scale, packed, s);
    if (a->causal) att_mask(keys, queries, reach - key, s);
    att_softmax(keys, near, att_lanes(queries), s, &run);
    att_over_keys(keys, near, queries, d, s, f->v + att_at(b, key, a->tk, kv_head, d, f->ldv), f->ldv, o, f->ldo,
                  key == 0 ? BLOCK_SET : BLOCK_SCALE, run.keep);
  }
  if (end <= 0) {
    for (int64_t i = 0; i < queries; i++) memset(o + i * f->ldo, 0, (size_t)d * sizeof(real));
  }
  finish_rows(f, queries, &run, o, f->lse + (b * a->heads + head) * a->tq + first);
}

void SYM(attention_fwd)(const KernelContext *k, const AttentionShape *shape, const real *q, int64_t ldq,
                        const real *key, int64_t ldk, const real *v, int64_t ldv, real *o, int64_t ldo,
                        real *lse) {
  Forward f = {*shape, q, key, v, o, lse, ldq, ldk, ldv, ldo, ceil_div(shape->tq, ATT_BLOCK)};
  tasks_run(k, shape->batch * shape->heads * f.blocks, forward_task, &f);
}
