/* Owns: the operations of attention forward and backward (arXiv 2205.14135), written so that cuDNN finds one fused kernel
 * for them: it recognises patterns, so the order of operations and the views of intermediate results are those of
 * NVIDIA's own front end (cudnn-frontend 1.18). No score ever reaches memory in the forward pass.
 *
 * The backward pass writes dq by a product instead of atomic additions, so sums have one order; but other than on compute 10 that
 * costs a workspace of 2 tq tk bytes a head. A fast one adds to f32 sums by atomics, as NVIDIA's front end does unless told otherwise. */
#include "runtime/cuda/cuda_flash_plan.h"

#include "base/checked.h"
#include "runtime/beside.h"

#include <stdio.h>

enum { STEP_BYTES = 256 };

/* A graph while it is written. */
typedef struct Sketch {
  DnnGraph *g;
  const CudaFlashCall *call;
  AttentionShape s; /* of the part */
  cudnnDataType_t io;
  DnnView scores, rows; /* [batch, heads, tq, tk] and [.., tq, 1], whole in memory if they were there */
  DnnTensor q, kt, scale;
  bool fast;
  int64_t next;
} Sketch;

/* --- views -------------------------------------------------------------------------------------------------------- */

static DnnView dense(int64_t batch, int64_t heads, int64_t rows, int64_t cols) {
  return (DnnView){{batch, heads, rows, cols}, {heads * rows * cols, rows * cols, cols, 1}};
}

/* Heads side by side in rows that are ld apart. */
static DnnView packed(const Sketch *k, int64_t heads, int64_t rows, int64_t ld) {
  return (DnnView){{k->s.batch, heads, rows, k->s.head_dim}, {rows * ld, k->s.head_dim, ld, 1}};
}

static DnnView turned(DnnView v) {
  return (DnnView){{v.dim[0], v.dim[1], v.dim[3], v.dim[2]}, {v.stride[0], v.stride[1], v.stride[3], v.stride[2]}};
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static DnnTensor stored(Sketch *k, FlashId id, DnnView view) { return dnn_tensor(k->g, id, k->io, DNN_STORED, view); }
static DnnTensor fresh(Sketch *k, cudnnDataType_t type, DnnView view) {
  return dnn_tensor(k->g, k->next++, type, DNN_VIRTUAL, view);
}
static DnnTensor scalar(Sketch *k, FlashId id) {
  return dnn_tensor(k->g, id, CUDNN_DATA_FLOAT, DNN_SCALAR, dense(1, 1, 1, 1));
}
/* Those of a part begin where those of the part before end, which may be anywhere. */
static DnnTensor row_values(Sketch *k, FlashId id) { return dnn_tensor(k->g, id, CUDNN_DATA_FLOAT, DNN_LOOSE, k->rows); }

/* --- operations --------------------------------------------------------------------------------------------------- */

/* mode(x, b) as a new virtual tensor. */
static DnnTensor apply(Sketch *k, cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnView view) {
  DnnTensor y = fresh(k, CUDNN_DATA_FLOAT, view);
  dnn_pointwise(k->g, mode, x, b, NULL, -1, CUDNN_DATA_FLOAT, y);
  return y;
}

static DnnTensor product(Sketch *k, DnnTensor a, DnnTensor b, cudnnDataType_t type, DnnView view) {
  DnnTensor c = fresh(k, type, view);
  dnn_matmul(k->g, a, b, c);
  return c;
}

static DnnTensor reduce(Sketch *k, cudnnReduceTensorOp_t op, DnnTensor x) {
  DnnTensor y = fresh(k, CUDNN_DATA_FLOAT, k->rows);
  dnn_reduce(k->g, op, x, y);
  return y;
}

static DnnTensor number(Sketch *k, int64_t axis, DnnTensor like) {
  DnnTensor y = fresh(k, CUDNN_DATA_INT32, k->scores);
  dnn_pointwise(k->g, CUDNN_POINTWISE_GEN_INDEX, like, NULL, NULL, axis, CUDNN_DATA_FLOAT, y);
  return y;
}

/* Scores of keys after the query become -infinity. */
static DnnTensor mask(Sketch *k, DnnTensor s) {
  if (!k->s.causal) return s;
  DnnTensor hidden = scalar(k, FLASH_HIDDEN), row = number(k, 2, s), col = number(k, 3, s);
  DnnTensor seen = fresh(k, CUDNN_DATA_BOOLEAN, k->scores), y = fresh(k, CUDNN_DATA_FLOAT, k->scores);
  dnn_pointwise(k->g, CUDNN_POINTWISE_CMP_GE, row, col, NULL, -1, CUDNN_DATA_BOOLEAN, seen);
  dnn_pointwise(k->g, CUDNN_POINTWISE_BINARY_SELECT, s, hidden, seen, -1, CUDNN_DATA_FLOAT, y);
  return y;
}

static DnnTensor scaled_scores(Sketch *k) {
  DnnTensor s = product(k, k->q, k->kt, CUDNN_DATA_FLOAT, k->scores);
  return apply(k, CUDNN_POINTWISE_MUL, s, k->scale, k->scores);
}

/* --- the graphs --------------------------------------------------------------------------------------------------- */

static void forward(Sketch *k) {
  const CudaFlashCall *c = k->call;
  DnnTensor s = mask(k, scaled_scores(k));
  DnnTensor most = reduce(k, CUDNN_REDUCE_TENSOR_MAX, s);
  DnnTensor e = apply(k, CUDNN_POINTWISE_SUB, s, most, k->scores);
  e = apply(k, CUDNN_POINTWISE_EXP, e, NULL, k->scores);
  DnnTensor sum = reduce(k, CUDNN_REDUCE_TENSOR_ADD, e);
  DnnTensor log = apply(k, CUDNN_POINTWISE_LOG, sum, NULL, k->rows);
  dnn_pointwise(k->g, CUDNN_POINTWISE_ADD, most, log, NULL, -1, CUDNN_DATA_FLOAT, row_values(k, FLASH_LSE));
  DnnTensor p = fresh(k, k->io, k->scores);
  dnn_pointwise(k->g, CUDNN_POINTWISE_DIV, e, sum, NULL, -1, CUDNN_DATA_FLOAT, p);
  dnn_matmul(k->g, p, stored(k, FLASH_V, packed(k, k->s.kv_heads, k->s.tk, c->v.ld)),
             stored(k, FLASH_O, packed(k, k->s.heads, k->s.tq, c->o.ld)));
}

/* Gradient of k or v: the transpose of `scores` times `other`, summed over the queries' heads that share it. */
static void key_gradient(Sketch *k, DnnTensor scores, DnnTensor other, FlashId id, int64_t ld) {
  DnnView across = dense(k->s.batch, k->s.heads, k->s.tq, k->s.tk);
  DnnTensor turn = fresh(k, k->io, turned(across)), y = stored(k, id, packed(k, k->s.kv_heads, k->s.tk, ld));
  dnn_reshape(k->g, scores, turn);
  if (k->s.heads == k->s.kv_heads) {
    dnn_matmul(k->g, turn, other, y);
    return;
  }
  DnnTensor all = product(k, turn, other, k->io, dense(k->s.batch, k->s.heads, k->s.tk, k->s.head_dim));
  dnn_reduce(k->g, CUDNN_REDUCE_TENSOR_ADD, all, y);
}

/* Sum of o do, as it is subtracted from the gradients of probabilities. */
static DnnTensor delta(Sketch *k, DnnTensor d_o) {
  const AttentionShape *s = &k->s;
  DnnTensor o = stored(k, FLASH_O, packed(k, s->heads, s->tq, k->call->o.ld)), y = row_values(k, FLASH_DELTA);
  DnnTensor x = apply(k, CUDNN_POINTWISE_MUL, d_o, o, dense(s->batch, s->heads, s->tq, s->head_dim));
  x = reduce(k, CUDNN_REDUCE_TENSOR_ADD, x);
  dnn_pointwise(k->g, CUDNN_POINTWISE_MUL, x, scalar(k, FLASH_ONE), NULL, -1, CUDNN_DATA_FLOAT, y);
  return y;
}

static void backward(Sketch *k) {
  const CudaFlashCall *c = k->call;
  DnnView keys = packed(k, k->s.kv_heads, k->s.tk, c->k.ld);
  DnnTensor d_o = stored(k, FLASH_D_O, packed(k, k->s.heads, k->s.tq, c->d_o.ld));
  DnnTensor vt = stored(k, FLASH_V, turned(packed(k, k->s.kv_heads, k->s.tk, c->v.ld)));
  DnnTensor sums = delta(k, d_o);
  DnnTensor p = apply(k, CUDNN_POINTWISE_SUB, scaled_scores(k), row_values(k, FLASH_LSE), k->scores);
  p = apply(k, CUDNN_POINTWISE_EXP, mask(k, p), NULL, k->scores);
  key_gradient(k, p, d_o, FLASH_DV, c->dv.ld);
  DnnTensor ds = product(k, d_o, vt, CUDNN_DATA_FLOAT, k->scores);
  ds = apply(k, CUDNN_POINTWISE_SUB, ds, sums, k->scores);
  ds = apply(k, CUDNN_POINTWISE_MUL, ds, p, k->scores);
  ds = apply(k, CUDNN_POINTWISE_MUL, ds, k->scale, k->scores);
  key_gradient(k, ds, k->q, FLASH_DK, c->dk.ld);
  DnnTensor own = fresh(k, CUDNN_DATA_FLOAT, keys);
  dnn_reshape(k->g, k->kt, own);
  DnnTensor dq = stored(k, FLASH_DQ, packed(k, k->s.heads, k->s.tq, c->dq.ld));
  if (!k->fast) {
    dnn_matmul(k->g, ds, own, dq);
    return;
  }
  DnnTensor sum = dnn_tensor(k->g, FLASH_DQ_SUMS, CUDNN_DATA_FLOAT, DNN_STORED, dense(k->s.batch, k->s.heads, k->s.tq, k->s.head_dim));
  dnn_matmul(k->g, ds, own, sum);
  dnn_pointwise(k->g, CUDNN_POINTWISE_IDENTITY, sum, NULL, NULL, -1, CUDNN_DATA_FLOAT, dq);
}

static void sketch(DnnGraph *g, const CudaFlashCall *call, const AttentionShape *part, bool fast) {
  Sketch k = {.g = g, .call = call, .s = *part, .next = FLASH_VIRTUAL, .fast = fast};
  k.io = call->q.type == CUDA_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
  k.scores = dense(k.s.batch, k.s.heads, k.s.tq, k.s.tk);
  k.rows = dense(k.s.batch, k.s.heads, k.s.tq, 1);
  k.q = stored(&k, FLASH_Q, packed(&k, k.s.heads, k.s.tq, call->q.ld));
  k.kt = stored(&k, FLASH_K, turned(packed(&k, k.s.kv_heads, k.s.tk, call->k.ld)));
  k.scale = scalar(&k, FLASH_SCALE);
  (call->backward ? backward : forward)(&k);
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static bool tensor_fits(CudaTensor t, int type) {
  return t.x != NULL && t.type == type && (uintptr_t)t.x % 16 == 0 && t.ld % 8 == 0 && !t.add;
}

bool flash_fits(const CudaFlashCall *c) {
  const AttentionShape *s = &c->shape;
  const CudaTensor outer[] = {c->q, c->k, c->v, c->o, c->d_o, c->dq, c->dk, c->dv};
  if (c->q.type != CUDA_BF16 && c->q.type != CUDA_F16) return false;
  if (s->head_dim != 64 && s->head_dim != 96 && s->head_dim != 128) return false;
  if (s->causal && s->tq != s->tk) return false;
  for (int i = 0; i < (c->backward ? 8 : 4); i++)
    if (!tensor_fits(outer[i], c->q.type)) return false;
  return s->batch > 0 && s->tq > 1 && s->tk > 1; /* NVIDIA's front end and PyTorch refuse single rows */
}

/* Where what the heuristic offers first is not to be relied on, NVIDIA's front end names a deterministic backward pass by hand
 * (cudnn-frontend, CompositeSDPABackwardNode::override_heuristics_query). Versions [from, below); the front end lets 9.18.0 pass,
 * TransformerEngine does not (pull request 2584). */
typedef struct Named {
  int first_compute, last_compute;
  size_t from, below;
  DnnEngine engine;
} Named;

static const DnnEngine *named_engine(const CudaFlashCall *call, const FlashTarget *target, size_t version) {
  static const Named table[] = {
      {100, 103, 91801, 92300, {5, 2, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}}}},
      {100, 103, 92300, SIZE_MAX,
       {5, 6, {{CUDNN_KNOB_TYPE_TILE_M, 3}, {CUDNN_KNOB_TYPE_TILE_N, 2}, {CUDNN_KNOB_TYPE_KERNEL_CFG, 2},
               {CUDNN_KNOB_TYPE_STREAM_K, 0}, {CUDNN_KNOB_TYPE_TILE_CGA_M, 0}, {CUDNN_KNOB_TYPE_STAGES, 2}}}},
  };
  int compute = target->compute;
  for (size_t i = 0; call->backward && !target->fast && i < sizeof table / sizeof *table; i++)
    if (compute >= table[i].first_compute && compute <= table[i].last_compute && version >= table[i].from && version < table[i].below)
      return &table[i].engine;
  return NULL;
}

/* What NVIDIA's front end refuses or works around, or its maintainers report, of these versions. */
bool flash_sound(const CudaFlashCall *call, const FlashTarget *target, size_t version, const char **why) {
  enum { TILE = 128 };
  const AttentionShape *s = &call->shape;
  *why = "versions up to 9.15.0 need keys in multiples of 128 for a right backward pass";
  if (call->backward && version <= 91500 && s->tk % TILE != 0) return false;
  /* Half a tile of keys too many enters sums unless the mask hides it; rows of low scores overflow (cudnn-frontend, pull request 628). */
  *why = "versions before 9.26 compute NaN where keys without a mask end in half a tile of 128, on compute 9";
  if (call->backward && version < 92600 && target->compute / 10 == 9 && !s->causal && s->tk % TILE == TILE / 2) return false;
  *why = "its backward pass is not known to be deterministic on this GPU, or only from version 9.18.1 on";
  return !call->backward || target->fast || target->compute / 10 != 10 || named_engine(call, target, version) != NULL;
}

static bool build(FlashPlan *plan, const Dnn *dnn, const FlashTarget *target, const CudaFlashCall *call) {
  const AttentionShape *s = &plan->part;
  plan->graph = (DnnGraph){.dnn = dnn};
  sketch(&plan->graph, call, s, target->fast);
  if (!dnn_build(&plan->graph, target->device, named_engine(call, target, dnn->cudnnGetVersion()))) return false;
  plan->delta_at = round_up((uint64_t)plan->graph.workspace_bytes, STEP_BYTES);
  plan->sums_at = plan->workspace_bytes = plan->delta_at;
  if (!call->backward) return true;
  uint64_t rows = (uint64_t)(s->batch * s->heads * s->tq);
  plan->sums_at += round_up(rows * sizeof(float), STEP_BYTES);
  plan->workspace_bytes = plan->sums_at + (target->fast ? round_up(rows * (uint64_t)s->head_dim * sizeof(float), STEP_BYTES) : 0);
  return true;
}

bool flash_plan(FlashPlan *plan, const Dnn *dnn, const FlashTarget *target, const CudaFlashCall *call) {
  FlashWay way = flash_way(target->compute, target->fast);
  uint64_t most = call->backward ? flash_most_bytes(&call->shape, target->bytes) : BESIDE_ATTENTION_MOST; /* as was stated before the run */
  plan->part = call->backward ? flash_part(&call->shape, way, most) : call->shape;
  while (plan->part.batch > 0) {
    if (!build(plan, dnn, target, call)) return false;
    if (plan->workspace_bytes <= most) return true; /* nearly always, for what it takes is known */
    double too_much = (double)plan->workspace_bytes / (double)most;
    dnn_destroy(&plan->graph);
    uint64_t less = (uint64_t)((double)flash_workspace_bytes(&plan->part, way) / too_much);
    plan->part = flash_part(&call->shape, way, less);
  }
  snprintf(plan->graph.error, sizeof plan->graph.error, "it needs a workspace of more than %d MiB for one head of keys", BESIDE_ATTENTION_GROUP >> 20);
  return false;
}
