/* Owns: turning a call of a layer that passed its shape rule into an op with its parameters, or, for split, into views. */
#include "frontend/sema.h"

/* --- parameters ----------------------------------------------------------------------------------------- */

static bool param_fits(LayerCall *call, const Shape *s) {
  uint64_t numel = 0;
  if (shape_numel(s, 1, &numel) && numel >> SEMA_MAX_NUMEL_LOG2 == 0) return true;
  sema_error(call->sema, call->span, "the weight of this %s would have shape %s: more than 2^%d elements",
             call->spec->name, shape_text(call->sema, s), SEMA_MAX_NUMEL_LOG2);
  return false;
}

static int32_t new_param(LayerCall *call, Shape s, Init init) {
  Sema *sema = call->sema;
  GraphParam param = {.shape = s, .init = init, .module = sema->instance, .span = call->span};
  vec_push(sema->arena, &sema->graph->params, param);
  return (int32_t)sema->graph->params.count - 1;
}

/* The parameter of another layer, when the call says `weight = label`. */
static bool tie(LayerCall *call, const Bound *bound) {
  Sema *sema = call->sema;
  const GraphOp *owner = &sema->graph->ops.data[bound->value.id];
  if (owner->weight < 0 || sema->graph->params.data[owner->weight].shape.rank != WEIGHT_DIMS) {
    Diag *diag = sema_error(sema, bound->span, "\"%s\" has no weight matrix to share, it is a %s",
                            bound->value.text, layer_name(owner->kind));
    diag_note(diag, owner->span, "it is declared here");
    return false;
  }
  const Shape *have = &sema->graph->params.data[owner->weight].shape;
  if (!shape_same(have, &call->weight_shape)) {
    Diag *diag = sema_error(sema, bound->span, "the weight of \"%s\" has shape %s, but this linear needs %s",
                            bound->value.text, shape_text(call->sema, have), shape_text(call->sema, &call->weight_shape));
    diag_note(diag, owner->span, "\"%s\" is declared here", bound->value.text);
    layer_note_operand(call, diag, "x");
    return false;
  }
  call->op.weight = owner->weight;
  return true;
}

static bool add_params(LayerCall *call) {
  call->op.weight = call->op.bias = -1;
  if (!call->has_weight) return true;
  if (!param_fits(call, &call->weight_shape)) return false;
  if (call->spec->kind == LAYER_LINEAR && layer_arg(call, "weight")->given) {
    if (!tie(call, layer_arg(call, "weight"))) return false;
  } else {
    call->op.weight = new_param(call, call->weight_shape, call->weight_init);
  }
  Shape bias = {1, {call->weight_shape.dim[0]}};
  if (call->has_bias) call->op.bias = new_param(call, bias, (Init){INIT_ZEROS, 0});
  return true;
}

/* --- ops ---------------------------------------------------------------------------------------------------------- */

static int32_t new_tensor(LayerCall *call, int32_t op, int32_t base, int64_t column, const char *name) {
  Sema *sema = call->sema;
  GraphTensor t = {
      .name = name, .shape = call->out, .op = op, .view_of = base, .view_column = column, .span = call->span};
  vec_push(sema->arena, &sema->graph->tensors, t);
  return (int32_t)sema->graph->tensors.count - 1;
}

static bool output_fits(LayerCall *call) {
  uint64_t numel = 0;
  if (shape_numel(&call->out, 1, &numel) && numel >> SEMA_MAX_NUMEL_LOG2 == 0) return true;
  sema_error(call->sema, call->span,
             "the result of this %s would have shape %s: more than 2^%d elements a sample", call->spec->name,
             shape_text(call->sema, &call->out), SEMA_MAX_NUMEL_LOG2);
  return false;
}

static Value emit(LayerCall *call) {
  Sema *sema = call->sema;
  GraphOp *op = &call->op;
  if (sema->graph->ops.count >= SEMA_MAX_OPS) {
    sema_stop(sema, call->span, "the model expands to more than 200,000 layers",
              "lower the count of a repeat");
    return value_error();
  }
  if (!output_fits(call) || !add_params(call)) return value_error();
  int32_t index = (int32_t)sema->graph->ops.count;
  if (call->label.text) {
    op->name = path_join(sema, sema->scope, call->label.text);
    if (!label_take(sema, op->name, ENTITY_LAYER, index, call->label.span)) return value_error();
  }
  op->kind = call->spec->kind;
  op->module = sema->instance;
  op->span = call->span;
  for (uint32_t i = 0; i < call->spec->arg_count; i++)
    if (call->spec->args[i].type == ARG_TENSOR || call->spec->args[i].type == ARG_INDEX)
      op->inputs[op->input_count++] = call->args[i].value.id;
  op->output = new_tensor(call, index, -1, 0, op->name);
  vec_push(sema->arena, &sema->graph->ops, *op);
  return value_tensor(op->output);
}

/* --- split: views, no op -------------------------------------------------------------------------------- */

/* Widths of the parts, or NULL after an error. */
static const int64_t *split_widths(LayerCall *call, uint32_t *count) {
  const Value *parts = &layer_arg(call, "parts")->value;
  Span span = layer_arg(call, "parts")->span;
  int64_t width = shape_cols(&call->sema->graph->tensors.data[layer_arg(call, "x")->value.id].shape), sum = 0;
  bool equal =
      parts->count == 1 && !(layer_arg(call, "parts")->expr && layer_arg(call, "parts")->expr->kind == EXPR_LIST);
  int64_t n = equal ? parts->items[0].integer : (int64_t)parts->count;
  if (equal && width % n) {
    Diag *diag = sema_error(call->sema, span, "%lld parts do not divide the width %lld", (long long)n,
                            (long long)width);
    layer_note_operand(call, diag, "x");
    return NULL;
  }
  if (n > 1024) {
    sema_error(call->sema, span, "split makes at most 1024 parts, this asks for %lld", (long long)n);
    return NULL;
  }
  int64_t *widths = ARENA_ARRAY(call->sema->arena, int64_t, (size_t)n);
  for (int64_t i = 0; i < n; i++) {
    widths[i] = equal ? width / n : parts->items[i].integer;
    sum += widths[i];
  }
  *count = (uint32_t)n;
  if (sum == width) return widths;
  Diag *diag = sema_error(call->sema, span, "the parts add up to %lld, but the width is %lld", (long long)sum,
                          (long long)width);
  layer_note_operand(call, diag, "x");
  return NULL;
}

static Value split(LayerCall *call) {
  Sema *sema = call->sema;
  uint32_t count = 0;
  const int64_t *widths = split_widths(call, &count);
  int32_t x = layer_arg(call, "x")->value.id;
  const GraphTensor *t = &sema->graph->tensors.data[x];
  const Shape shape = t->shape;
  if (!widths) return value_error();
  if (count == 1) return value_tensor(x);
  int32_t base = t->view_of >= 0 ? t->view_of : x;
  int64_t column = t->view_of >= 0 ? t->view_column : 0;
  const char *path = call->label.text ? path_join(sema, sema->scope, call->label.text) : NULL;
  if (path && !label_take(sema, path, ENTITY_OTHER, -1, call->label.span)) return value_error();
  Value *items = ARENA_ARRAY(sema->arena, Value, count);
  for (uint32_t i = 0; i < count; i++) {
    call->out = shape;
    call->out.dim[shape.rank - 1] = widths[i];
    const char *name = path ? arena_printf(sema->arena, "%s.%u", path, i) : NULL; /* else named in the end */
    items[i] = value_tensor(new_tensor(call, sema->graph->tensors.data[base].op, base, column, name));
    column += widths[i];
  }
  return (Value){.kind = VALUE_TUPLE, .items = items, .count = count};
}

/* --- the doors ------------------------------------------------------------------------------------------ */

Value layer_call(Sema *sema, Env *env, const Expr *expr, const LayerSpec *spec) {
  LayerCall call = {.sema = sema, .spec = spec, .span = expr->span, .label = expr->label};
  Value value = value_error();
  if (bind_layer(&call, env, expr) && (spec->kind == LAYER_SPLIT || layer_check(&call)))
    value = spec->kind == LAYER_SPLIT ? split(&call) : emit(&call);
  if (value.kind == VALUE_ERROR) label_fail(sema, expr->label);
  return value;
}

/* An operand of an operator; false where it is integers. */
static bool bind_side(LayerCall *call, int arg, const Expr *expr, Value value, const char *side, const char *sign) {
  call->args[arg] = (Bound){.given = true, .expr = expr, .span = expr->span, .value = value, .side = side};
  if (value.kind != VALUE_TENSOR || !call->sema->graph->tensors.data[value.id].is_index) return true;
  Diag *diag = sema_error(call->sema, expr->span, "integers cannot be combined with '%s'", sign);
  note_tensor(call->sema, diag, value.id, "it");
  diag_help(diag, "embedding turns ids into vectors");
  return false;
}

Value layer_binary(Sema *sema, const Expr *expr, LayerKind kind, const char *sign, Value left, Value right) {
  LayerCall call = {.sema = sema, .spec = &sema->specs[kind], .span = expr->span};
  int first = left.kind == VALUE_NUMBER; /* a number is the second argument on whichever side it stands */
  bool good = bind_side(&call, first, expr->left, left, "the left side", sign) &&
              bind_side(&call, !first, expr->right, right, "the right side", sign);
  return good && layer_check(&call) ? emit(&call) : value_error();
}
