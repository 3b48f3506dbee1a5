/* Owns: the last steps over the whole graph: names of unlabelled layers, dropping what does not reach the
 * loss, and checks that need every op. */
#include "frontend/sema.h"

#include "base/checked.h"

enum { GRAPH_MAX_NUMEL_LOG2 = 50 };

/* --- the loss ------------------------------------------------------------------------------------------- */

static bool is_loss(LayerKind kind) {
  return kind == LAYER_CROSS_ENTROPY || kind == LAYER_MSE;
}

bool is_own_loss(const Sema *sema, int32_t tensor) {
  const Graph *graph = sema->graph;
  int32_t op = graph->tensors.data[tensor].op;
  return op >= 0 && is_loss(graph->ops.data[op].kind) && graph->ops.data[op].span.file == graph->modules.data[0].span.file;
}

static bool find_loss(Sema *sema, Env *env) {
  Graph *graph = sema->graph;
  Var *loss = env_find_here(env, "loss");
  graph->loss_op = -1;
  if (!loss) {
    Diag *diag = sema_error(sema, graph->modules.data[0].span, "model \"%s\" has no loss", graph->name);
    for (uint32_t i = 0; i < env->vars.count; i++)
      if (text_nearest("loss", &env->vars.data[i].name, 1))
        diag_note(diag, env->vars.data[i].span, "the loss must be named `loss`, not \"%s\"",
                  env->vars.data[i].name);
    diag_help(diag, "end it with `loss = cross_entropy(logits, targets)` or `loss = mse(x, y)`");
    return false;
  }
  loss->used = true;
  int32_t op = loss->kind == VAR_LOCAL && loss->value.kind == VALUE_TENSOR
                   ? graph->tensors.data[loss->value.id].op
                   : -1;
  if (op >= 0 && is_loss(graph->ops.data[op].kind)) {
    graph->loss_op = op;
    return true;
  }
  Diag *diag =
      sema_error(sema, loss->span, "the loss must be the result of cross_entropy or mse, this is %s",
                 op >= 0 ? arena_printf(sema->arena, "the result of %s", layer_name(graph->ops.data[op].kind))
                         : value_describe(sema, loss->value));
  if (op >= 0) diag_note(diag, graph->ops.data[op].span, "it is computed here");
  if (op >= 0 && graph->ops.data[op].kind == LAYER_ADD) diag_help(diag, "a model has one loss; sums of losses cannot be said");
  return false;
}

static bool contains(const TensorList *list, int32_t tensor) {
  for (uint32_t i = 0; i < list->count; i++)
    if (list->data[i] == tensor) return true;
  return false;
}

/* What is written as if it were trained too. As `_aux` it would be plain that it is not. */
static bool has_one_loss(Sema *sema) {
  const Graph *graph = sema->graph;
  bool one = true;
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const GraphOp *op = &graph->ops.data[i];
    if (op == loss || !is_own_loss(sema, op->output) || contains(&sema->set_aside, op->output)) continue;
    Diag *diag = sema_error(sema, op->span, "a model has one loss, and \"%s\" is another", op->name);
    diag_note(diag, loss->span, "the loss is \"%s\", computed here", loss->name);
    diag_help(diag, "leave out one of them, or name what is not to be trained with a leading '_', as in `_aux = %s(...)`", layer_name(op->kind));
    one = false;
  }
  return one;
}

/* --- names ---------------------------------------------------------------------------------------------- */

/* base, base_1, base_2, ...: the first that is free. */
static const char *free_name(Sema *sema, Map *next, const char *base) {
  if (map_add(sema->arena, &sema->taken, base, 0) == MAP_NONE) return base;
  int32_t n = map_get(next, base);
  for (n = n == MAP_NONE ? 1 : n;; n++) {
    const char *name = arena_printf(sema->arena, "%s_%d", base, n);
    if (map_add(sema->arena, &sema->taken, name, 0) != MAP_NONE) continue;
    map_put(sema->arena, next, base, n + 1);
    return name;
  }
}

static void name_params(Sema *sema, const GraphOp *op) {
  GraphParam *params = sema->graph->params.data;
  if (op->weight >= 0 && !params[op->weight].name)
    params[op->weight].name = path_join(sema, op->name, "weight");
  if (op->bias >= 0 && !params[op->bias].name) params[op->bias].name = path_join(sema, op->name, "bias");
}

static void name_all(Sema *sema) {
  Graph *graph = sema->graph;
  Map next = {0}, views = {0};
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    GraphOp *op = &graph->ops.data[i];
    if (!op->name)
      op->name =
          free_name(sema, &next, path_join(sema, graph->modules.data[op->module].name, layer_name(op->kind)));
    graph->tensors.data[op->output].name = op->name;
    name_params(sema, op);
  }
  for (uint32_t i = 0; i < graph->tensors.count; i++) {
    GraphTensor *tensor = &graph->tensors.data[i];
    if (tensor->name) continue;
    const char *base = graph->tensors.data[tensor->view_of].name;
    int32_t n = map_get(&views, base);
    map_put(sema->arena, &views, base, n == MAP_NONE ? 1 : n + 1);
    tensor->name = free_name(sema, &next, arena_printf(sema->arena, "%s.%d", base, n == MAP_NONE ? 0 : n));
  }
}

/* --- what reaches the loss ------------------------------------------------------------------------------ */

typedef struct Live {
  bool *ops, *tensors, *params, *modules;
  int32_t *op_id, *tensor_id, *param_id, *module_id; /* new ids; op_id has one more entry, for range ends */
} Live;

static Live live_new(Sema *sema) {
  const Graph *graph = sema->graph;
  Live live = {.ops = ARENA_ARRAY(sema->arena, bool, graph->ops.count),
               .tensors = ARENA_ARRAY(sema->arena, bool, graph->tensors.count),
               .params = ARENA_ARRAY(sema->arena, bool, graph->params.count),
               .modules = ARENA_ARRAY(sema->arena, bool, graph->modules.count),
               .op_id = ARENA_ARRAY(sema->arena, int32_t, graph->ops.count + 1),
               .tensor_id = ARENA_ARRAY(sema->arena, int32_t, graph->tensors.count),
               .param_id = ARENA_ARRAY(sema->arena, int32_t, graph->params.count),
               .module_id = ARENA_ARRAY(sema->arena, int32_t, graph->modules.count)};
  return live;
}

/* Backwards from the loss; ops are in execution order, so one pass is enough. */
static void mark(Graph *graph, Live *live) {
  live->ops[graph->loss_op] = true;
  for (int32_t i = graph->loss_op; i >= 0; i--) {
    const GraphOp *op = &graph->ops.data[i];
    if (!live->ops[i]) continue;
    live->tensors[op->output] = true;
    for (int32_t k = 0; k < op->input_count; k++) {
      const GraphTensor *tensor = &graph->tensors.data[op->inputs[k]];
      live->tensors[op->inputs[k]] = true;
      if (tensor->view_of >= 0) live->tensors[tensor->view_of] = true;
      if (tensor->op >= 0) live->ops[tensor->op] = true;
    }
    if (op->weight >= 0) live->params[op->weight] = true;
    if (op->bias >= 0) live->params[op->bias] = true;
    for (int32_t m = op->module; m >= 0 && !live->modules[m]; m = graph->modules.data[m].parent)
      live->modules[m] = true;
  }
  live->modules[0] = true;
}

/* One warning for each dead end in the user's own file. */
static void warn_dropped(Sema *sema, const Live *live) {
  const Graph *graph = sema->graph;
  bool *consumed = ARENA_ARRAY(sema->arena, bool, graph->tensors.count);
  for (uint32_t i = 0; i < graph->ops.count; i++)
    for (int32_t k = 0; k < graph->ops.data[i].input_count; k++) {
      int32_t input = graph->ops.data[i].inputs[k];
      consumed[input] = true;
      if (graph->tensors.data[input].view_of >= 0) consumed[graph->tensors.data[input].view_of] = true;
    }
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const GraphOp *op = &graph->ops.data[i];
    if (live->ops[i] || consumed[op->output] || op->span.file != graph->modules.data[0].span.file ||
        contains(&sema->unused, op->output))
      continue;
    sema_warning(sema, op->span, "the result of this %s does not reach the loss, so it is left out",
                 layer_name(op->kind));
  }
  for (uint32_t i = 0; i < graph->inputs.count; i++) {
    int32_t input = graph->inputs.data[i].tensor;
    if (live->tensors[input] || contains(&sema->unused, input)) continue;
    sema_warning(sema, graph->tensors.data[input].span,
                 "input \"%s\" does not reach the loss, so it is left out", graph->inputs.data[i].name);
  }
}

static int32_t number(const bool *live, int32_t *id, uint32_t count) {
  int32_t next = 0;
  for (uint32_t i = 0; i < count; i++) {
    id[i] = next;
    next += live[i];
  }
  return next;
}

static void keep_ops(Graph *graph, const Live *live) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    if (!live->ops[i]) continue;
    GraphOp *op = &graph->ops.data[kept++];
    *op = graph->ops.data[i];
    for (int32_t k = 0; k < op->input_count; k++) op->inputs[k] = live->tensor_id[op->inputs[k]];
    op->output = live->tensor_id[op->output];
    op->module = live->module_id[op->module];
    if (op->weight >= 0) op->weight = live->param_id[op->weight];
    if (op->bias >= 0) op->bias = live->param_id[op->bias];
  }
  graph->ops.count = kept;
}

static void keep_tensors(Graph *graph, const Live *live) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < graph->tensors.count; i++) {
    if (!live->tensors[i]) continue;
    GraphTensor *tensor = &graph->tensors.data[kept++];
    *tensor = graph->tensors.data[i];
    if (tensor->op >= 0) tensor->op = live->op_id[tensor->op];
    if (tensor->view_of >= 0) tensor->view_of = live->tensor_id[tensor->view_of];
  }
  graph->tensors.count = kept;
  uint32_t inputs = 0;
  for (uint32_t i = 0; i < graph->inputs.count; i++) {
    GraphInput input = graph->inputs.data[i];
    if (!live->tensors[input.tensor]) continue;
    input.tensor = live->tensor_id[input.tensor];
    graph->inputs.data[inputs++] = input;
  }
  graph->inputs.count = inputs;
}

/* A tied weight may outlive the layer that declared it: its module is then the nearest one left. */
static void keep_params(Graph *graph, const Live *live) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < graph->params.count; i++) {
    if (!live->params[i]) continue;
    GraphParam *param = &graph->params.data[kept++];
    *param = graph->params.data[i];
    while (!live->modules[param->module]) param->module = graph->modules.data[param->module].parent;
    param->module = live->module_id[param->module];
  }
  graph->params.count = kept;
}

static void keep_modules(Graph *graph, const Live *live) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < graph->modules.count; i++) {
    if (!live->modules[i]) continue;
    GraphModule *module = &graph->modules.data[kept++];
    *module = graph->modules.data[i];
    if (module->parent >= 0) module->parent = live->module_id[module->parent];
    module->first_op = live->op_id[module->first_op];
    module->end_op = live->op_id[module->end_op];
  }
  graph->modules.count = kept;
}

static void drop_unreached(Sema *sema) {
  Graph *graph = sema->graph;
  Live live = live_new(sema);
  mark(graph, &live);
  warn_dropped(sema, &live);
  live.op_id[graph->ops.count] = number(live.ops, live.op_id, graph->ops.count);
  number(live.tensors, live.tensor_id, graph->tensors.count);
  number(live.params, live.param_id, graph->params.count);
  number(live.modules, live.module_id, graph->modules.count);
  graph->loss_op = live.op_id[graph->loss_op];
  keep_params(graph, &live); /* reads the old modules */
  keep_ops(graph, &live);
  keep_tensors(graph, &live);
  keep_modules(graph, &live);
}

static void use_param(Graph *graph, int32_t param, int32_t op) {
  if (param < 0) return;
  GraphParam *p = &graph->params.data[param];
  if (p->first_op < 0) p->first_op = op;
  p->last_op = op;
}

static void find_uses(Graph *graph) {
  for (uint32_t i = 0; i < graph->params.count; i++) graph->params.data[i].first_op = -1;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    use_param(graph, graph->ops.data[i].weight, (int32_t)i);
    use_param(graph, graph->ops.data[i].bias, (int32_t)i);
  }
}

/* --- checks --------------------------------------------------------------------------------------------- */

/* With chunk, logits are computed piece by piece inside the loss. Nobody else wants them: what does not lead
 * to the loss is gone, and nothing but the loss can use them on the way there. */
static void check_chunk(Sema *sema) {
  const Graph *graph = sema->graph;
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  if (loss->kind != LAYER_CROSS_ENTROPY || !loss->as.cross_entropy.chunk) return;
  int32_t logits = loss->inputs[0], op = graph->tensors.data[logits].op;
  if (graph->tensors.data[logits].view_of >= 0 || op < 0 || graph->ops.data[op].kind != LAYER_LINEAR) {
    Diag *diag = sema_error(
        sema, loss->span,
        "with `chunk` the logits must be the result of a linear, which is then computed in pieces");
    note_tensor(sema, diag, logits, "it");
    if (op >= 0 && graph->ops.data[op].kind == LAYER_SCALE) diag_help(diag, "multiply what the linear reads: without a bias its result is the same");
  }
}

/* What is fed to the loss is each token's successor, so that what reads it too sees its own answer. */
static void warn_answered(Sema *sema) {
  const Graph *graph = sema->graph;
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  if (loss->kind != LAYER_CROSS_ENTROPY) return;
  for (int32_t i = 0; i < graph->loss_op; i++)
    for (int32_t k = 0; k < graph->ops.data[i].input_count; k++) {
      if (graph->ops.data[i].inputs[k] != loss->inputs[1]) continue;
      Diag *diag = sema_warning(sema, loss->span, "this loss asks for \"%s\", which the model reads itself",
                                graph->tensors.data[loss->inputs[1]].name);
      diag_help(diag, "declare another input of its shape for the targets");
      return;
    }
}

static void check_total(Sema *sema) {
  uint64_t total = 0, numel = 0;
  for (uint32_t i = 0; i < sema->graph->params.count; i++)
    if (!shape_numel(&sema->graph->params.data[i].shape, 1, &numel) || !checked_add(total, numel, &total) ||
        total >> GRAPH_MAX_NUMEL_LOG2) {
      sema_error(sema, sema->graph->modules.data[0].span, "the model has more than 2^%d parameters",
                 GRAPH_MAX_NUMEL_LOG2);
      return;
    }
}

static bool learns(Sema *sema) {
  if (sema->graph->params.count) return true;
  sema_error(sema, sema->graph->modules.data[0].span,
             "model \"%s\" has no parameters, so there is nothing to train", sema->graph->name);
  return false;
}

void finish_graph(Sema *sema, Env *env) {
  if (!find_loss(sema, env)) return;
  env_finish(sema, env);
  name_all(sema);
  if (!has_one_loss(sema)) return;
  drop_unreached(sema);
  if (!learns(sema)) return;
  find_uses(sema->graph);
  check_chunk(sema);
  warn_answered(sema);
  check_total(sema);
  apply_rules(sema);
}
