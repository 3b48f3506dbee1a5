/* Owns: see world.h. */
#include "planner/world.h"

#include "base/checked.h"

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
  if (ranks > per_node && cluster->network.bandwidth <= 0) {
    Diag *diag = diag_error(sink, SPAN_NONE, "%llu ranks need %llu nodes, but cluster \"%s\" states no network between nodes",
                            (unsigned long long)ranks, (unsigned long long)(ranks / per_node), cluster->name);
    diag_help(diag, "add a `network { bandwidth ... latency ... }` block to the cluster, or pass --ranks-per-node %llu",
              (unsigned long long)ranks);
    return false;
  }
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
