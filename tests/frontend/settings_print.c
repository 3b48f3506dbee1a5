/* Owns: settings_print.h. */
#include "tests/frontend/settings_print.h"

#include "frontend/settings.h"

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
  text_printf(out, "  launch_ns %g host_link %g host_contention %g host_memory %llu shared_queue %s\n", device->launch_ns, device->host_link,
              device->host_contention,
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
