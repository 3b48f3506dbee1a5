/* Owns: bound.h. */
#include "planner/bound.h"

#include "planner/cost.h"

typedef struct Sums {
  double compute, gather, reduce; /* ns of a step */
} Sums;

static Sums sum_step(const Cluster *cluster, const Plan *plan) {
  Sums sums = {0};
  uint64_t gathered = 0, reduced = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    for (int32_t i = segment->first; i < segment->end; i++) {
      const PlanInstr *instr = &plan->instrs.data[i];
      if (instr->stream != STREAM_COMPUTE || instr->phase == PHASE_RECOMPUTE) continue;
      bool per_unit = instr->phase == PHASE_UPDATE || instr->phase == PHASE_BEGIN; /* fewer units, fewer launches */
      double ns = (double)instr->ns - (per_unit ? cluster->device.launch_ns : 0);
      sums.compute += ns > 0 ? ns * (double)segment->count : 0;
    }
  }
  for (uint32_t u = 0; u < plan->units.count; u++) {
    const PlanUnit *unit = &plan->units.data[u];
    gathered += unit->numel * dtype_bytes(plan->recipe.compute);
    reduced += unit->numel * dtype_bytes(plan->recipe.reduce);
  }
  const PlanWorld *world = &plan->world;
  double repeats = (double)world->accumulation;
  sums.gather = repeats * cost_collective_ns(cluster, gathered, world->shard, 1, world->ranks_per_node);
  if (!plan->training) return sums;
  sums.reduce = repeats * (cost_collective_ns(cluster, reduced, world->shard, 1, world->ranks_per_node) +
                           cost_collective_ns(cluster, 2 * reduced / world->shard, world->replicas, world->shard,
                                              world->ranks_per_node));
  return sums;
}

Bound bound_of(const Cluster *cluster, const Plan *plan) {
  Sums sums = sum_step(cluster, plan);
  bool shared = plan->queue[STREAM_GATHER] == plan->queue[STREAM_REDUCE];
  Bound bound = {(uint64_t)sums.compute, "compute"};
  if (shared && sums.gather + sums.reduce > (double)bound.ns)
    bound = (Bound){(uint64_t)(sums.gather + sums.reduce), "communication"};
  if (!shared && sums.gather > (double)bound.ns) bound = (Bound){(uint64_t)sums.gather, "gather"};
  if (!shared && sums.reduce > (double)bound.ns) bound = (Bound){(uint64_t)sums.reduce, "reduce"};
  return bound;
}
