/* Owns: the only place where work becomes time. Seconds come from the cluster's figures, work from the instruction.
 *
 *   product of M x N x K   2MNK/(share peak) (1 + 128/K) + half a wave of tiles + launch, at least its bytes
 *   attention              2 or 4 products of B H Tq Tk D, halved when causal, at the attention share
 *   everything else        bytes/(share bandwidth) + launch
 *   all-gather, reduce-scatter over n ranks   latency + S (n-1)/n / bus bandwidth; across nodes a ring at the slower of node
 *                          and network, plus a hop for each rank
 * after the model of cost-notes (GEMM prologue 128, half a wave: assumed; shares: the cluster file says where from). */
#ifndef FSDPC_PLANNER_COST_H
#define FSDPC_PLANNER_COST_H

#include "frontend/cluster.h"
#include "planner/plan/plan.h"

/* Flops and time alone on the device of a compute or copy instruction with these attributes, whose operands move `bytes`. */
void cost_work(const Cluster *cluster, const InstrSpec *specs, InstrOp op, const int64_t *ints, DType compute, uint64_t bytes,
               uint64_t *flops, uint64_t *ns);
/* Time of a collective instruction of a plan with this world; bytes: of the full tensor (ALLREDUCE: of what is reduced). */
uint64_t cost_collective(const Cluster *cluster, const PlanWorld *world, InstrOp op, uint64_t bytes);

/* Fills instr->flops, bytes and ns of an instruction in a plan; operands and attributes are set. */
void cost_instr(const Cluster *cluster, const Plan *plan, const InstrSpec *specs, PlanInstr *instr);
/* A collective that moves `bytes` (the full tensor) over `ranks` ranks that lie `stride` apart. */
double cost_collective_ns(const Cluster *cluster, uint64_t bytes, uint32_t ranks, uint32_t stride, uint32_t ranks_per_node);

#endif
