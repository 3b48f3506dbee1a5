/* Owns: executor.h's prediction: what is asked is checked, described, timed and summed. */
#include "planner/executor/executor_model.h"

#include "planner/pins.h"

/* What is asked to lie in host memory must be what the executor can put there. */
static void check_offload(DiagSink *sink, const Graph *graph, const PlanSettings *settings) {
  ExecutorId id = settings->executor.id;
  if (settings->offload == SETTING_AUTO || !settings->offload) return;
  if (id == EXECUTOR_NATIVE)
    diag_help(diag_error(sink, SPAN_NONE, "offload is not predicted for the native executor"),
              "'fsdpc plan' plans it, copy by copy; or --offload none");
  else if (settings->offload != OFFLOAD_STATES)
    diag_help(diag_error(sink, SPAN_NONE, "%s offloads parameters, gradients and optimizer together (%s), and no activations",
                         executor_name(id), executor_is_fsdp2(id) ? "CPUOffloadPolicy" : "CPUOffload"),
              "--offload parameters,gradients,optimizer, or none; of a trainer that moves moments itself say executor %s { offload m v }",
              executor_name(id));
  else if (settings->executor.offload)
    diag_help(diag_error(sink, SPAN_NONE, "the plan offloads all states and the executor's block some of them"), "leave one of the two out");
  else if (graph->cluster.device.host_link <= 0)
    diag_help(diag_error(sink, SPAN_NONE, "cluster \"%s\" states no link to host memory", graph->cluster.name),
              "device { host_link 25GB/s }, or --offload none");
}

/* Owners are of what all ranks have; groups of them part the ranks. */
static void check_owners(DiagSink *sink, const PlanSettings *settings, const ExecutorWorld *world) {
  int64_t owners = settings->executor.owners;
  if (!owners) return;
  if (settings->strategy != STRATEGY_NO_SHARD)
    diag_help(diag_error(sink, SPAN_NONE, "owners of whole tensors are of strategy no_shard: all ranks keep the parameters"),
              "strategy no_shard; shards of shard_optim are even");
  else if (world->ranks % owners)
    diag_help(diag_error(sink, SPAN_NONE, "%u ranks are no groups of %lld owners", world->ranks, (long long)owners),
              "owners must divide the number of ranks");
}

/* Groups of ranks that parameters are resharded to, whether they fit the shards or not (check_groups). */
static void check_partly(DiagSink *sink, const PlanSettings *settings) {
  ExecutorId id = settings->executor.id;
  bool partly = settings->reshard > 1;
  for (uint32_t u = 0; u < settings->units.count; u++) partly |= settings->units.data[u].reshard > 1;
  if (partly && !executor_is_fsdp2(id))
    diag_help(diag_error(sink, SPAN_NONE, "resharding to fewer ranks is what PyTorch FSDP2 can do, %s cannot", executor_name(id)),
              "use reshard yes, no or auto; or --executor pytorch-fsdp2");
}

/* What backward needs is on the device, or is made again there. */
static void check_hosted(DiagSink *sink, const PlanSettings *settings) {
  for (uint32_t r = 0; r < settings->checkpoints.count; r++) {
    const CheckpointRule *rule = &settings->checkpoints.data[r];
    if (!rule->host) continue;
    diag_help(diag_error(sink, rule->span, "host \"%s\" is planned for this runtime only: no prediction moves activations to host memory", rule->pattern),
              "say save or recompute of it, or leave it out");
    return;
  }
}

/* FSDP1's forward_prefetch and backward_prefetch are on or off. */
static void check_prefetch(DiagSink *sink, const PlanSettings *settings) {
  ExecutorId id = settings->executor.id;
  if (settings->prefetch > 1 && id != EXECUTOR_NATIVE && !executor_is_fsdp2(id))
    diag_help(diag_error(sink, SPAN_NONE, "%s gathers at most one unit ahead, not %lld", executor_name(id), (long long)settings->prefetch),
              "use prefetch 0, 1 or auto; or --executor pytorch-fsdp2");
}

static void check_width(DiagSink *sink, const ExecutorWorld *world) {
  if (world->shard && world->ranks % world->shard == 0) return;
  diag_help(diag_error(sink, SPAN_NONE, "%u rank%s cannot be sharded in groups of %u", world->ranks, text_plural(world->ranks), world->shard),
            "the shard group's size must divide the number of ranks; one node's is %u", world->ranks_per_node);
}

bool executor_check(DiagSink *sink, const Graph *graph, const PlanSettings *settings, const ExecutorWorld *world) {
  uint32_t errors = sink->errors;
  pins_agree(sink, settings);
  check_partly(sink, settings);
  check_prefetch(sink, settings);
  check_offload(sink, graph, settings);
  check_hosted(sink, settings);
  check_owners(sink, settings, world);
  check_width(sink, world);
  if (settings->gather == CADENCE_STEP)
    diag_help(diag_error(sink, SPAN_NONE, "%s is predicted to gather for every micro-batch, not once a step", executor_name(settings->executor.id)),
              "use gather micro_batch or auto");
  if (!graph->inputs.count || world->micro_batch < 1 || world->accumulation < 1)
    diag_error(sink, SPAN_NONE, "a prediction needs a model with inputs, and at least one sample a rank");
  return sink->errors == errors;
}

int32_t sharding_unparted(const Sharding *s) {
  const uint32_t shard = s->world->shard;
  for (uint32_t u = 0; u < s->unit_count && s->gathers; u++) {
    int32_t reshard = s->units[u].reshard;
    if (reshard >= 2 && (reshard >= (int32_t)shard || shard % (uint32_t)reshard != 0)) return reshard;
  }
  return 0;
}

static bool check_groups(DiagSink *sink, const Sharding *s) {
  const uint32_t shard = s->world->shard;
  const int32_t group = sharding_unparted(s);
  if (!group) return true;
  Diag *diag = diag_error(sink, SPAN_NONE, "shards of %u rank%s cannot be resharded to groups of %d", shard, text_plural(shard), group);
  diag_help(diag, shard > 1 ? "the group's size must divide %u and be less" : "use reshard yes or no", shard);
  return false;
}

bool executor_predict(Arena *arena, DiagSink *sink, const Graph *graph, const PlanSettings *settings,
                      const ExecutorWorld *world, ExecutorPrediction *out) {
  *out = (ExecutorPrediction){0};
  if (!executor_check(sink, graph, settings, world)) return false;
  Model model;
  ExecutorUnits units;
  Sharding sharding;
  model_open(arena, graph, settings, world->micro_batch, &model);
  if (!units_find(arena, sink, &model, &units)) return false;
  sharding_open(arena, &model, world, &units, &sharding);
  if (!check_groups(sink, &sharding)) return false;
  predict_time(arena, &model, &sharding, out);
  predict_memory(&model, &sharding, out);
  return true;
}
