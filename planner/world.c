/* Owns: see world.h. */
#include "planner/world.h"

#include "base/checked.h"

static const char *called(Arena *arena, const Cluster *cluster) {
  return *cluster->name ? arena_printf(arena, "cluster \"%s\"", cluster->name) : "the cluster";
}

bool world_knows_device(DiagSink *sink, const Graph *graph) {
  const Device *device = &graph->cluster.device;
  if (device->kind != DEVICE_NONE && device->peak[graph->recipe.compute] > 0) return true;
  if (device->kind == DEVICE_NONE)
    diag_help(diag_error(sink, SPAN_NONE, "%s names no cluster, so nothing is known about time and memory", graph->path),
              "add `cluster { use \"clusters/cpu.fsdp\" }` to the file or pass --cluster FILE");
  else
    diag_error(sink, SPAN_NONE, "cluster \"%s\" does not state the peak rate of its device in %s", graph->cluster.name,
               dtype_name(graph->recipe.compute));
  return false;
}

/* Of a cluster of one device, as a rank alone measures it, no link need be known. */
static bool check_links(DiagSink *sink, const Cluster *cluster, uint64_t ranks, uint64_t per_node) {
  if (per_node > 1 && cluster->node.bandwidth <= 0) {
    Diag *diag = diag_error(sink, SPAN_NONE, "%llu ranks in a node need a link between them, but %s states none",
                            (unsigned long long)per_node, called(sink->arena, cluster));
    diag_help(diag, cluster->device.kind == DEVICE_CPU ? "'fsdpc profile --ranks %llu' measures it; or add `bandwidth ... latency ...` to the cluster's node"
                                                       : "add `bandwidth ... latency ...` to the cluster's node, or plan for fewer than %llu ranks a node",
              (unsigned long long)per_node);
    return false;
  }
  if (ranks > per_node && cluster->network.bandwidth <= 0) {
    Diag *diag = diag_error(sink, SPAN_NONE, "%llu ranks need %llu nodes, but %s states no network between nodes",
                            (unsigned long long)ranks, (unsigned long long)(ranks / per_node), called(sink->arena, cluster));
    diag_help(diag, "add a `network { bandwidth ... latency ... }` block to the cluster, or pass --ranks-per-node %llu",
              (unsigned long long)ranks);
    return false;
  }
  return true;
}

bool world_choose(DiagSink *sink, const Graph *graph, const PlannerOptions *options, World *out) {
  const Cluster *cluster = &graph->cluster;
  uint64_t ranks = (uint64_t)options->ranks, per_node = (uint64_t)options->ranks_per_node, devices = 0;
  if (!checked_mul((uint64_t)cluster->node_devices, (uint64_t)cluster->nodes, &devices)) devices = MOST_RANKS_OF_A_JOB + 1;
  if (!ranks) ranks = devices ? devices : 1;
  /* On one host ranks are processes: any number of them fits, if slowly. */
  bool one_host = cluster->device.kind == DEVICE_CPU && cluster->nodes <= 1;
  if (!per_node) per_node = cluster->node_devices > 0 && !one_host ? (uint64_t)cluster->node_devices : ranks;
  if (!options->ranks_per_node && per_node > ranks) per_node = ranks;
  if (ranks > MOST_RANKS_OF_A_JOB) {
    diag_error(sink, SPAN_NONE, "%llu ranks are more than the %d this version plans for", (unsigned long long)ranks, MOST_RANKS_OF_A_JOB);
    return false;
  }
  if (ranks % per_node) {
    Diag *diag = diag_error(sink, SPAN_NONE, "%llu rank%s not fill nodes of %llu", (unsigned long long)ranks,
                            ranks == 1 ? " does" : "s do", (unsigned long long)per_node);
    diag_help(diag, "choose --ranks as a multiple of --ranks-per-node");
    return false;
  }
  if (!check_links(sink, cluster, ranks, per_node)) return false;
  *out = (World){(uint32_t)ranks, (uint32_t)per_node};
  return true;
}

/* "96 or 104 samples (98304 or 106496 tokens)", as files state either. */
static const char *counted(Arena *arena, uint64_t below, uint64_t above, uint64_t tokens) {
  const char *samples = below ? arena_printf(arena, "%llu or %llu samples", (unsigned long long)below, (unsigned long long)above)
                              : arena_printf(arena, "%llu sample%s", (unsigned long long)above, text_plural(above));
  if (tokens < 2) return samples;
  if (!below) return arena_printf(arena, "%s (%llu tokens)", samples, (unsigned long long)(above * tokens));
  return arena_printf(arena, "%s (%llu or %llu tokens)", samples, (unsigned long long)(below * tokens), (unsigned long long)(above * tokens));
}

bool world_cuts_step(DiagSink *sink, const Graph *graph, uint32_t ranks, int64_t micro_batch) {
  uint64_t samples = graph->recipe.samples_per_step, unit = ranks * (uint64_t)micro_batch, below = samples / unit * unit;
  if (samples == below) return true;
  Diag *diag = diag_error(sink, SPAN_NONE, "a step of %llu sample%s cannot be split into micro-batches of %lld on %u rank%s",
                          (unsigned long long)samples, text_plural(samples), (long long)micro_batch, ranks, text_plural(ranks));
  diag_help(diag, "a step %s %s%s; or change %s--ranks", below ? "of" : "needs at least",
            counted(sink->arena, below, below + unit, graph_sample_tokens(graph)), below ? " can" : "", micro_batch > 1 ? "--micro-batch or " : "");
  return false;
}

/* What is beyond them comes from a batch, or from rates, that are off by powers of ten. */
bool world_states_time(DiagSink *sink, const Graph *graph, double ns) {
  uint64_t samples = graph->recipe.samples_per_step;
  if (ns < 0x1p61) return true;
  Diag *diag = diag_error(sink, SPAN_NONE, "a step of %llu sample%s would take %.0f years or more by the cluster's rates, which no plan can state",
                          (unsigned long long)samples, text_plural(samples), ns * 1e-9 / 31557600);
  diag_help(diag, "look at the samples of a step (tokens_per_step, batch) and at the rates of the cluster");
  return false;
}
