/* Owns: one shape rule a layer.
 *
 * A rule checks the operands' shapes, fills op.as and the output's shape, and says which parameters it
 * wants. */
#include "frontend/sema.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* --- reading arguments ---------------------------------------------------------------------------------- */

Bound *layer_arg(LayerCall *call, const char *name) {
  for (uint32_t i = 0; i < call->spec->arg_count; i++)
    if (!strcmp(call->spec->args[i].name, name)) return &call->args[i];
  abort();
}

static const GraphTensor *tensor(LayerCall *call, const char *name) {
  return &call->sema->graph->tensors.data[layer_arg(call, name)->value.id];
}

static const Shape *shape(LayerCall *call, const char *name) {
  return &tensor(call, name)->shape;
}

/* An int argument within bounds. */
static bool whole(LayerCall *call, const char *name, int64_t least, int64_t *out) {
  const Bound *bound = layer_arg(call, name);
  *out = bound->value.integer;
  if (*out >= least && *out <= SEMA_MAX_DIM) return true;
  if (*out < least)
    sema_error(call->sema, bound->span, "\"%s\" of %s must be at least %lld, this is %lld", name,
               call->spec->name, (long long)least, (long long)*out);
  else
    sema_error(call->sema, bound->span, "\"%s\" of %s must be at most %lld, this is %lld", name,
               call->spec->name, (long long)SEMA_MAX_DIM, (long long)*out);
  return false;
}

/* A real argument above 0, also as the f32 that kernels take. */
static bool positive(LayerCall *call, const char *name, double *out) {
  const Bound *bound = layer_arg(call, name);
  *out = bound->value.real;
  if (*out >= RECIPE_LEAST_EPS) return true;
  const char *where = *out > 0 ? arena_printf(call->sema->arena, " in f32, so at least %g", RECIPE_LEAST_EPS) : "";
  sema_error(call->sema, bound->span, "\"%s\" of %s must be above 0%s, this is %g", name, call->spec->name, where, *out);
  return false;
}

void layer_note_operand(LayerCall *call, Diag *diag, const char *name) {
  const Bound *bound = layer_arg(call, name);
  bool variable = bound->expr && bound->expr->kind == EXPR_NAME;
  const char *what = arena_printf(call->sema->arena, "\"%s\"", variable ? bound->expr->name.text : name);
  note_tensor(call->sema, diag, bound->value.id, bound->side && !variable ? bound->side : what);
}

static const char *text_of(LayerCall *call, const Shape *s) {
  return shape_text(call->sema, s);
}

static void want_weight(LayerCall *call, Shape s, InitKind kind, double a) {
  call->has_weight = true;
  call->weight_shape = s;
  call->weight_init = (Init){kind, a};
}

static Shape with_cols(Shape s, int64_t cols) {
  s.dim[s.rank - 1] = cols;
  return s;
}

/* [batch, seq, width] */
static bool is_sequence(LayerCall *call, const char *name) {
  const Shape *s = shape(call, name);
  if (s->rank == 3 && s->dim[0] == DIM_BATCH) return true;
  Diag *diag = sema_error(call->sema, layer_arg(call, name)->span,
                          "\"%s\" of %s must have shape [batch, length, width], this has %s", name,
                          call->spec->name, text_of(call, s));
  layer_note_operand(call, diag, name);
  return false;
}

/* b equals the last axes of a. */
static bool is_suffix(const Shape *a, const Shape *b) {
  return b->rank && b->rank < a->rank &&
         !memcmp(a->dim + (a->rank - b->rank), b->dim, (size_t)b->rank * sizeof *b->dim);
}

/* --- rules ---------------------------------------------------------------------------------------------- */

static const double weight_deviation = 0.02; /* GPT-2's and Llama's */

static bool rule_embedding(LayerCall *call) {
  int64_t vocab, d;
  if (!whole(call, "vocab", 1, &vocab) || !whole(call, "d", 1, &d)) return false;
  const GraphTensor *x = tensor(call, "x");
  if (x->shape.rank >= GRAPH_MAX_RANK) {
    Diag *diag = sema_error(call->sema, layer_arg(call, "x")->span,
                            "embedding adds an axis, but \"x\" has %d already", x->shape.rank);
    layer_note_operand(call, diag, "x");
    return false;
  }
  call->out = x->shape;
  call->out.dim[call->out.rank++] = d;
  want_weight(call, (Shape){WEIGHT_DIMS, {vocab, d}}, INIT_NORMAL, weight_deviation);
  return true;
}

static bool rule_positions(LayerCall *call) {
  int64_t n, d;
  if (!whole(call, "n", 1, &n) || !whole(call, "d", 1, &d)) return false;
  call->out = (Shape){WEIGHT_DIMS, {n, d}};
  want_weight(call, call->out, INIT_NORMAL, weight_deviation);
  return true;
}

static bool rule_linear(LayerCall *call) {
  int64_t out;
  const Shape *x = shape(call, "x");
  if (!whole(call, "out", 1, &out)) return false;
  if (x->rank < 2) {
    Diag *diag = sema_error(call->sema, layer_arg(call, "x")->span,
                            "linear needs at least 2 axes, this has shape %s", text_of(call, x));
    layer_note_operand(call, diag, "x");
    return false;
  }
  call->out = with_cols(*x, out);
  want_weight(call, (Shape){WEIGHT_DIMS, {out, shape_cols(x)}}, INIT_NORMAL, weight_deviation);
  const Bound *bias = layer_arg(call, "bias");
  call->has_bias = bias->given ? bias->value.integer != 0 : !layer_arg(call, "weight")->given;
  return true;
}

/* Heads that divide the width; sets *head_dim. */
static bool split_heads(LayerCall *call, const char *name, int64_t heads, int64_t *head_dim) {
  int64_t width = shape_cols(shape(call, name));
  *head_dim = width / heads;
  if (width % heads == 0) return true;
  Diag *diag =
      sema_error(call->sema, layer_arg(call, "heads")->span, "%lld heads do not divide the width %lld of \"%s\"",
                 (long long)heads, (long long)width, name);
  layer_note_operand(call, diag, name);
  return false;
}

static bool rule_norm(LayerCall *call) {
  const Shape *x = shape(call, "x");
  int64_t width;
  if (!positive(call, "eps", &call->op.as.norm.eps) || !whole(call, "heads", 1, &call->op.as.norm.heads)) return false;
  if (x->rank < 2) {
    Diag *diag = sema_error(call->sema, layer_arg(call, "x")->span, "%s needs at least 2 axes, this has shape %s",
                            call->spec->name, text_of(call, x));
    layer_note_operand(call, diag, "x");
    return false;
  }
  if (!split_heads(call, "x", call->op.as.norm.heads, &width)) return false;
  call->out = *x;
  want_weight(call, (Shape){1, {width}}, INIT_ONES, 0);
  call->has_bias = call->spec->kind == LAYER_LAYERNORM && layer_arg(call, "bias")->value.integer;
  return true;
}

/* How many of a head's dims turn; all of them where the call does not say. */
static bool rope_dims(LayerCall *call, int64_t head_dim, int64_t *dims) {
  const Bound *bound = layer_arg(call, "dims");
  *dims = head_dim;
  if (!bound->given) return true;
  if (!whole(call, "dims", 2, dims)) return false;
  if (*dims > head_dim) {
    Diag *diag = sema_error(call->sema, bound->span, "\"dims\" of rope must be at most a head's width %lld, this is %lld",
                            (long long)head_dim, (long long)*dims);
    layer_note_operand(call, diag, "x");
    diag_help(diag, "without \"dims\" all of a head turns");
    return false;
  }
  if (*dims % 2 == 0) return true;
  Diag *diag = sema_error(call->sema, bound->span, "\"dims\" of rope must be even, this is %lld", (long long)*dims);
  diag_help(diag, "what turns is pairs: dims = %lld or dims = %lld", (long long)*dims - 1, (long long)*dims + 1);
  return false;
}

/* The largest angle, of the last position, is one of which sine and cosine are known to f32's precision. */
static bool turns_are_told_apart(LayerCall *call) {
  static const double most = 0x1p30; /* radians: a double has 53 bits, and f32 24 of the fraction of a turn */
  const GraphOp *op = &call->op;
  double slowed = op->as.rope.llama3 ? fmin(op->as.rope.factor, 1) : 1, angle = (double)shape(call, "x")->dim[1] / slowed;
  const char *name = slowed < 1 ? "factor" : "theta";
  if (op->as.rope.theta < 1) angle *= pow(op->as.rope.theta, 2.0 / (double)op->as.rope.dims - 1), name = "theta";
  if (angle <= most) return true;
  Diag *diag = sema_error(call->sema, layer_arg(call, name)->span,
                          "\"%s\" of rope is too small: over %lld positions pairs turn by %.3g radians, of which f32 tells nothing apart", name,
                          (long long)shape(call, "x")->dim[1], angle);
  diag_help(diag, "models have a \"theta\" of 10000 or more, and a \"factor\" of 1 or more");
  return false;
}

static bool rule_rope(LayerCall *call) {
  int64_t heads, head_dim;
  GraphOp *op = &call->op;
  if (!is_sequence(call, "x") || !whole(call, "heads", 1, &heads) ||
      !split_heads(call, "x", heads, &head_dim))
    return false;
  if (head_dim % 2) {
    Diag *diag = sema_error(call->sema, layer_arg(call, "heads")->span,
                            "rope rotates pairs, but a head is %lld wide", (long long)head_dim);
    layer_note_operand(call, diag, "x");
    return false;
  }
  if (!rope_dims(call, head_dim, &op->as.rope.dims)) return false;
  op->as.rope.heads = heads;
  op->as.rope.llama3 = layer_arg(call, "scaling")->word == 1;
  if (!positive(call, "theta", &op->as.rope.theta) || !positive(call, "factor", &op->as.rope.factor) ||
      !positive(call, "low", &op->as.rope.low) || !positive(call, "high", &op->as.rope.high) ||
      !whole(call, "original", 1, &op->as.rope.original))
    return false;
  if (op->as.rope.llama3 && op->as.rope.high <= op->as.rope.low) {
    sema_error(call->sema, layer_arg(call, "high")->span, "\"high\" of rope must exceed \"low\" (%g), this is %g",
               op->as.rope.low, op->as.rope.high);
    return false;
  }
  call->out = *shape(call, "x");
  return turns_are_told_apart(call);
}

static bool rule_attention(LayerCall *call) {
  GraphOp *op = &call->op;
  int64_t heads, kv_heads, head_dim;
  if (!is_sequence(call, "q") || !is_sequence(call, "k") || !is_sequence(call, "v")) return false;
  if (!whole(call, "heads", 1, &heads) || !split_heads(call, "q", heads, &head_dim)) return false;
  kv_heads = heads;
  if (layer_arg(call, "kv_heads")->given && !whole(call, "kv_heads", 1, &kv_heads)) return false;
  const Shape *q = shape(call, "q"), *k = shape(call, "k"), *v = shape(call, "v");
  if (heads % kv_heads) {
    sema_error(call->sema, layer_arg(call, "kv_heads")->span, "%lld kv_heads do not divide %lld heads",
               (long long)kv_heads, (long long)heads);
    return false;
  }
  if (shape_cols(k) != kv_heads * head_dim) {
    Diag *diag = sema_error(call->sema, layer_arg(call, "k")->span,
                            "\"k\" must be %lld wide (%lld heads of %lld, as in \"q\"), but it is %lld wide",
                            (long long)(kv_heads * head_dim), (long long)kv_heads, (long long)head_dim,
                            (long long)shape_cols(k));
    layer_note_operand(call, diag, "q");
    layer_note_operand(call, diag, "k");
    if (!layer_arg(call, "kv_heads")->given && head_dim && shape_cols(k) % head_dim == 0 &&
        shape_cols(k) < shape_cols(q))
      diag_help(diag, "for grouped-query attention add kv_heads = %lld",
                (long long)(shape_cols(k) / head_dim));
    return false;
  }
  if (!shape_same(k, v)) {
    Diag *diag = sema_error(call->sema, layer_arg(call, "v")->span,
                            "\"k\" and \"v\" must have one shape, but these are %s and %s", text_of(call, k),
                            text_of(call, v));
    layer_note_operand(call, diag, "k");
    layer_note_operand(call, diag, "v");
    return false;
  }
  op->as.attention.causal = layer_arg(call, "mask")->word == 0;
  if (op->as.attention.causal && q->dim[1] != k->dim[1]) {
    Diag *diag = sema_error(call->sema, layer_arg(call, "k")->span,
                            "a causal mask needs \"q\" and \"k\" of one length, but these are %lld and %lld",
                            (long long)q->dim[1], (long long)k->dim[1]);
    layer_note_operand(call, diag, "q");
    layer_note_operand(call, diag, "k");
    diag_help(diag, "cross attention takes the mask `full`");
    return false;
  }
  op->as.attention.heads = heads;
  op->as.attention.kv_heads = kv_heads;
  op->as.attention.head_dim = head_dim;
  call->out = *q;
  return true;
}

static bool rule_activation(LayerCall *call) {
  if (call->spec->kind == LAYER_GELU) call->op.as.gelu.erf = layer_arg(call, "kind")->word == 1;
  call->out = *shape(call, "x");
  return true;
}

static Diag *shapes_differ(LayerCall *call, const char *a, const char *b) {
  Diag *diag = sema_error(call->sema, call->span, "%s needs two tensors of one shape, but these are %s and %s", call->spec->name,
                          text_of(call, shape(call, a)), text_of(call, shape(call, b)));
  layer_note_operand(call, diag, a);
  layer_note_operand(call, diag, b);
  return diag;
}

static bool rule_mul(LayerCall *call) {
  call->out = *shape(call, "a");
  if (shape_same(shape(call, "a"), shape(call, "b"))) return true;
  shapes_differ(call, "a", "b");
  return false;
}

/* By 0 nothing below would learn; kernels hold the number in f32. */
static bool rule_scale(LayerCall *call) {
  const Bound *by = layer_arg(call, "by");
  double size = fabs(by->value.real);
  call->op.as.scale.by = by->value.real;
  call->out = *shape(call, "x");
  if (size >= (double)FLT_MIN && size <= (double)FLT_MAX) return true;
  sema_error(call->sema, by->span, "\"by\" of scale must be a number other than 0 that f32 holds, this is %g", by->value.real);
  return false;
}

/* The operand with more axes comes first in the graph. */
static bool rule_add(LayerCall *call) {
  const Shape *a = shape(call, "a"), *b = shape(call, "b");
  if (a->rank < b->rank) {
    Bound swap = *layer_arg(call, "a");
    *layer_arg(call, "a") = *layer_arg(call, "b");
    *layer_arg(call, "b") = swap;
    a = shape(call, "a");
    b = shape(call, "b");
  }
  call->out = *a;
  if (shape_same(a, b) || is_suffix(a, b)) return true;
  Diag *diag = shapes_differ(call, "a", "b");
  if (a->rank != b->rank)
    diag_help(diag, "the smaller one may only lack leading axes: its shape must be the end of the other's");
  return false;
}

static bool rule_dropout(LayerCall *call) {
  const Bound *p = layer_arg(call, "p");
  call->op.as.dropout.p = p->value.real;
  call->out = *shape(call, "x");
  if (p->value.real < 0 || p->value.real >= 1) {
    sema_error(call->sema, p->span, "\"p\" of dropout must be at least 0 and below 1, this is %g",
               p->value.real);
    return false;
  }
  if (call->out.dim[0] == DIM_BATCH) return true;
  Diag *diag =
      sema_error(call->sema, layer_arg(call, "x")->span,
                 "dropout acts on samples, but \"x\" has shape %s, without batch", text_of(call, &call->out));
  layer_note_operand(call, diag, "x");
  return false;
}

/* y of mse and targets of cross_entropy come with the data. */
static bool is_input(LayerCall *call, const char *name) {
  const GraphTensor *t = tensor(call, name);
  if (t->op < 0 && t->view_of < 0) return true;
  Diag *diag = sema_error(call->sema, layer_arg(call, name)->span, "\"%s\" of %s must be an input of the model",
                          name, call->spec->name);
  layer_note_operand(call, diag, name);
  return false;
}

static bool rule_cross_entropy(LayerCall *call) {
  const Shape *logits = shape(call, "logits"), *targets = shape(call, "targets");
  if (!is_input(call, "targets")) return false;
  Shape rows = *logits;
  rows.rank--;
  if (logits->rank < 2 || logits->dim[0] != DIM_BATCH || !shape_same(&rows, targets)) {
    Diag *diag =
        sema_error(call->sema, call->span,
                   "cross_entropy needs logits %s with one more axis of classes, but they have shape %s",
                   text_of(call, targets), text_of(call, logits));
    layer_note_operand(call, diag, "logits");
    layer_note_operand(call, diag, "targets");
    return false;
  }
  const Bound *chunk = layer_arg(call, "chunk"), *ignore = layer_arg(call, "ignore_index");
  call->op.as.cross_entropy.ignore_index = ignore->value.integer;
  if (ignore->value.integer < INT32_MIN || ignore->value.integer > INT32_MAX) {
    sema_error(call->sema, ignore->span, "\"ignore_index\" of cross_entropy must fit 32 bits, this is %lld",
               (long long)ignore->value.integer);
    return false;
  }
  if (chunk->given && !whole(call, "chunk", 1, &call->op.as.cross_entropy.chunk)) return false;
  call->out = (Shape){0};
  return true;
}

static bool rule_mse(LayerCall *call) {
  if (!is_input(call, "y")) return false;
  call->out = (Shape){0};
  if (shape_same(shape(call, "x"), shape(call, "y"))) return true;
  shapes_differ(call, "x", "y");
  return false;
}

static bool (*const rules[LAYER_COUNT])(LayerCall *) = {
    [LAYER_EMBEDDING] = rule_embedding,
    [LAYER_POSITIONS] = rule_positions,
    [LAYER_LINEAR] = rule_linear,
    [LAYER_LAYERNORM] = rule_norm,
    [LAYER_RMSNORM] = rule_norm,
    [LAYER_ROPE] = rule_rope,
    [LAYER_ATTENTION] = rule_attention,
    [LAYER_GELU] = rule_activation,
    [LAYER_RELU] = rule_activation,
    [LAYER_SILU] = rule_activation,
    [LAYER_MUL] = rule_mul,
    [LAYER_SCALE] = rule_scale,
    [LAYER_ADD] = rule_add,
    [LAYER_DROPOUT] = rule_dropout,
    [LAYER_CROSS_ENTROPY] = rule_cross_entropy,
    [LAYER_MSE] = rule_mse,
};

bool layer_check(LayerCall *call) { return rules[call->spec->kind](call); }
