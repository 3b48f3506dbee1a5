/* Owns: a graph as text: --dump=graph, one op a line, and the settings in effect. The format is for people
 * and goldens; nothing reads it back. */
#include "frontend/settings.h"

static void print_init(Text *out, Init init) {
  static const char *const names[] = {"zeros", "ones", "normal", "uniform"};
  text_printf(out, "%s", names[init.kind]);
  if (init.kind == INIT_NORMAL || init.kind == INIT_UNIFORM) text_printf(out, " %g", init.a);
}

static void print_attributes(Text *out, const GraphOp *op) {
  switch (op->kind) {
  case LAYER_LAYERNORM:
  case LAYER_RMSNORM:
    text_printf(out, " eps=%g", op->as.norm.eps);
    break;
  case LAYER_ROPE:
    text_printf(out, " heads=%lld theta=%g", (long long)op->as.rope.heads, op->as.rope.theta);
    if (op->as.rope.llama3)
      text_printf(out, " llama3 factor=%g low=%g high=%g original=%lld", op->as.rope.factor, op->as.rope.low,
                  op->as.rope.high, (long long)op->as.rope.original);
    break;
  case LAYER_ATTENTION:
    text_printf(out, " heads=%lld kv_heads=%lld head_dim=%lld %s", (long long)op->as.attention.heads,
                (long long)op->as.attention.kv_heads, (long long)op->as.attention.head_dim,
                op->as.attention.causal ? "causal" : "full");
    break;
  case LAYER_GELU:
    text_printf(out, " %s", op->as.gelu.erf ? "erf" : "tanh");
    break;
  case LAYER_DROPOUT:
    text_printf(out, " p=%g", op->as.dropout.p);
    break;
  case LAYER_CROSS_ENTROPY:
    text_printf(out, " ignore_index=%lld", (long long)op->as.cross_entropy.ignore_index);
    if (op->as.cross_entropy.chunk) text_printf(out, " chunk=%lld", (long long)op->as.cross_entropy.chunk);
    break;
  default:
    break;
  }
}

/* h.0.mlp.c_fc = linear(h.0.ln_2) -> [batch, 8, 64] weight h.0.mlp.c_fc.weight bias h.0.mlp.c_fc.bias */
static void print_op(Text *out, const Graph *graph, const GraphOp *op) {
  text_printf(out, "%s = %s(", op->name, layer_name(op->kind));
  for (int32_t i = 0; i < op->input_count; i++)
    text_printf(out, "%s%s", i ? ", " : "", graph->tensors.data[op->inputs[i]].name);
  text_printf(out, ")");
  print_attributes(out, op);
  text_printf(out, " -> ");
  shape_print(out, &graph->tensors.data[op->output].shape);
  if (op->weight >= 0) text_printf(out, " weight %s", graph->params.data[op->weight].name);
  if (op->bias >= 0) text_printf(out, " bias %s", graph->params.data[op->bias].name);
  text_printf(out, "\n");
}

static uint64_t total_numel(const Graph *graph) {
  uint64_t total = 0, numel = 0;
  for (uint32_t i = 0; i < graph->params.count; i++)
    if (shape_numel(&graph->params.data[i].shape, 1, &numel)) total += numel;
  return total;
}

static void print_tensors(Text *out, const Graph *graph) {
  for (uint32_t i = 0; i < graph->inputs.count; i++) {
    const GraphTensor *tensor = &graph->tensors.data[graph->inputs.data[i].tensor];
    text_printf(out, "input %s %s", tensor->name, tensor->is_index ? "int" : "float");
    shape_print(out, &tensor->shape);
    text_printf(out, "\n");
  }
  for (uint32_t i = 0; i < graph->tensors.count; i++) {
    const GraphTensor *tensor = &graph->tensors.data[i];
    if (tensor->view_of < 0) continue;
    text_printf(out, "view %s = %s from column %lld ", tensor->name,
                graph->tensors.data[tensor->view_of].name, (long long)tensor->view_column);
    shape_print(out, &tensor->shape);
    text_printf(out, "\n");
  }
}

void graph_print(Text *out, const Graph *graph) {
  text_printf(out, "model %s: %llu parameters in %u tensors, %u ops\n", graph->name,
              (unsigned long long)total_numel(graph), graph->params.count, graph->ops.count);
  print_tensors(out, graph);
  for (uint32_t i = 0; i < graph->params.count; i++) {
    const GraphParam *param = &graph->params.data[i];
    text_printf(out, "param %s ", param->name);
    shape_print(out, &param->shape);
    text_printf(out, " ");
    print_init(out, param->init);
    text_printf(out, " ops %d..%d%s\n", param->first_op, param->last_op, param->frozen ? " frozen" : "");
  }
  for (uint32_t i = 0; i < graph->modules.count; i++) {
    const GraphModule *module = &graph->modules.data[i];
    text_printf(out, "module %s %s ops %d..%d\n", *module->name ? module->name : "-", module->kind,
                module->first_op, module->end_op);
  }
  for (uint32_t i = 0; i < graph->ops.count; i++) print_op(out, graph, &graph->ops.data[i]);
}

/* --- settings ------------------------------------------------------------------------------------------- */

static void print_recipe(Text *out, const Recipe *recipe) {
  static const char *const schedules[] = {SCHEDULE_NAMES};
  static const char *const optimizers[] = {OPTIMIZER_NAMES};
  text_printf(out, "optimizer %s lr %g %s min_lr %g warmup %llu",
              optimizers[recipe->optimizer], recipe->lr, schedules[recipe->schedule],
              recipe->min_lr, (unsigned long long)recipe->warmup_steps);
  if (recipe->optimizer == OPTIMIZER_ADAMW)
    text_printf(out, " betas %g %g eps %g", recipe->beta1, recipe->beta2, recipe->eps);
  else if (recipe->optimizer == OPTIMIZER_LION)
    text_printf(out, " betas %g %g", recipe->beta1, recipe->beta2);
  else if (recipe->optimizer == OPTIMIZER_ADAFACTOR)
    text_printf(out, " beta2_decay %g eps %g eps2 %g threshold %g", recipe->beta2_decay, recipe->eps, recipe->eps2,
                recipe->threshold);
  else
    text_printf(out, " momentum %g", recipe->momentum);
  if (recipe->schedule == SCHEDULE_WSD) text_printf(out, " cooldown %llu", (unsigned long long)recipe->cooldown_steps);
  text_printf(out, " decay %g\n", recipe->decay);
  text_printf(out, "train samples_per_step %llu precision %s reduce %s", (unsigned long long)recipe->samples_per_step,
              dtype_name(recipe->compute), dtype_name(recipe->reduce));
  if (recipe->master != DTYPE_F32)
    text_printf(out, " master %s rounding %s", dtype_name(recipe->master),
                recipe->rounding == ROUNDING_STOCHASTIC ? "stochastic" : "nearest");
  text_printf(
      out, " clip %g seed %llu steps %llu order %s\n",
      recipe->clip, (unsigned long long)recipe->seed, (unsigned long long)recipe->steps,
      recipe->order == ORDER_SEQUENTIAL ? "sequential" : "shuffled");
}

static void print_link(Text *out, const char *name, const Link *link) {
  if (link->bandwidth == 0) return;
  text_printf(out, "  %s bandwidth %g latency_ns %g efficiency %g\n", name, link->bandwidth, link->latency_ns,
              link->efficiency);
}

static void print_cluster(Text *out, const Cluster *cluster) {
  const Device *device = &cluster->device;
  if (device->kind == DEVICE_NONE) return;
  text_printf(out, "cluster \"%s\" nodes %lld devices %lld contention %g price %g\n", cluster->name,
              (long long)cluster->nodes, (long long)cluster->node_devices, cluster->contention,
              cluster->price_per_hour);
  text_printf(out, "  device %s \"%s\" memory %llu bandwidth %g share %g\n",
              device->kind == DEVICE_CPU ? "cpu" : "gpu", device->name,
              (unsigned long long)device->memory_bytes, device->bandwidth, device->bandwidth_share);
  text_printf(out, "  peak");
  for (int i = DTYPE_F32; i <= DTYPE_F16; i++)
    text_printf(out, " %s %g", dtype_name((DType)i), device->peak[i]);
  text_printf(out, " gemm_share %g attention_share %g attention_backward %g tile_units %g\n",
              device->gemm_share, device->attention_share, device->attention_backward, device->tile_units);
  if (device->gemm_prologue > 0) text_printf(out, "  gemm_prologue %g\n", device->gemm_prologue);
  text_printf(out, "  launch_ns %g host_link %g host_memory %llu shared_queue %s\n", device->launch_ns, device->host_link,
              (unsigned long long)device->host_memory,
              device->shared_queue ? "yes" : "no");
  print_link(out, "node", &cluster->node);
  print_link(out, "network", &cluster->network);
  static const char *const kinds[] = {"gather", "reduce", "all_reduce"};
  for (uint32_t i = 0; i < cluster->tables.count; i++) {
    const CollectiveTable *table = &cluster->tables.data[i];
    text_printf(out, "  table %s %u points %u\n", kinds[table->kind], table->ranks, table->points.count);
  }
}

static void print_setting(Text *out, const char *name, int64_t value) {
  if (value == SETTING_AUTO)
    text_printf(out, " %s auto", name);
  else
    text_printf(out, " %s %lld", name, (long long)value);
}

static void print_executor(Text *out, const ExecutorSettings *executor) {
  static const ExecutorSettings plain = {0};
  if (!memcmp(executor, &plain, sizeof plain)) return;
  text_printf(out, "  executor %s states %s attention %d loss %d chunks %lld reduce %d selective %d update %d in_backward %d offload %u\n",
              executor_name(executor->id), settings_states[executor->states], (int)executor->attention,
              (int)executor->loss, (long long)executor->loss_chunks, (int)executor->reduce, (int)executor->selective,
              (int)executor->update, executor->update_in_backward, executor->offload);
  if (executor->packed) text_printf(out, "  executor packed\n");
  if (executor->expandable_segments) text_printf(out, "  executor expandable_segments\n");
}

static void print_plan(Text *out, const PlanSettings *plan) {
  static const char *const strategies[] = {"auto",     "full_shard",  "shard_grad_op",
                                           "no_shard", "shard_optim", "hybrid_shard"};
  static const char *const wraps[] = {"auto", "block", "size", "whole"};
  static const char *const checkpoints[] = {"auto", "none", "full"};
  text_printf(out, "plan memory %llu strategy %s", (unsigned long long)plan->memory_bytes,
              strategies[plan->strategy]);
  if (plan->strategy == STRATEGY_HYBRID_SHARD) text_printf(out, ":%lld", (long long)plan->shard);
  text_printf(out, " wrap %s", wraps[plan->wrap]);
  if (plan->wrap == WRAP_SIZE) text_printf(out, ":%llu", (unsigned long long)plan->wrap_numel);
  text_printf(out, " checkpoint %s", checkpoints[plan->checkpoint]);
  print_setting(out, "prefetch", plan->prefetch);
  print_setting(out, "micro_batch", plan->micro_batch);
  print_setting(out, "reshard", plan->reshard);
  text_printf(out, "\n");
  for (uint32_t i = 0; i < plan->units.count; i++) {
    const UnitRule *unit = &plan->units.data[i];
    text_printf(out, "  unit %s", unit->name);
    for (uint32_t k = 0; k < unit->patterns.count; k++) text_printf(out, " %s", unit->patterns.data[k]);
    print_setting(out, "reshard", unit->reshard);
    text_printf(out, "\n");
  }
  for (uint32_t i = 0; i < plan->checkpoints.count; i++)
    text_printf(out, "  %s %s\n", plan->checkpoints.data[i].host ? "host" : plan->checkpoints.data[i].recompute ? "recompute" : "save",
                plan->checkpoints.data[i].pattern);
  print_executor(out, &plan->executor);
}

void settings_print(Text *out, const Graph *graph) {
  print_recipe(out, &graph->recipe);
  if (graph_scales_loss(graph))
    text_printf(out, "loss_scale init %g growth %g backoff %g interval %llu\n", graph->loss_scaling.init,
                graph->loss_scaling.growth, graph->loss_scaling.backoff, (unsigned long long)graph->loss_scaling.interval);
  print_cluster(out, &graph->cluster);
  print_plan(out, &graph->plan);
}
