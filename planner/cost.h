/* Owns: the only place where work becomes time. Seconds come from the cluster's figures, work from the
 * instruction.
 *
 *   product of M x N x K   2MNK/(share peak) (1 + prologue/K) + half a wave of tiles + launch, at least its bytes
 *   attention              2 or 5 products of B H Tq Tk D, halved when causal, at the attention share times
 * Tk/(Tk + s0) everything else        bytes/(share bandwidth) + launch; copies to and from the host at the
 * host link collectives in a node  the cluster's measured table of that group size (log bytes -> log time),
 * else latency + bytes/bandwidth collectives beyond     the fastest of a ring, a tree and a hierarchy of node
 * and network docs/cost-model.md derives each and says where its constants come from.
 *
 * Kernels whose measured times the cluster file states (PassRate, HeadRate, Device.moves) take those instead. */
#ifndef FSDPC_PLANNER_COST_H
#define FSDPC_PLANNER_COST_H

#include "frontend/cluster.h"
#include "planner/plan/plan.h"

/* --- formulas; executor.c uses them with rates of its own ----------------------------------------------- */

/* How fast one device runs one executor's kernels in one dtype. */
typedef struct Rates {
  double product;    /* flop/s of large products */
  double prologue;   /* inner length at which they run at half of that */
  double tile_units; /* that tiles of a product spread over; 0: waves of tiles do not matter */
  double memory;     /* bytes/s of element-wise kernels */
  double attention_forward, attention_backward; /* flop/s over long sequences */
  double attention_tokens;                      /* length at half of that */
  double launch_ns;
} Rates;

Rates cost_rates(const Cluster *cluster, DType dtype);
double cost_product_ns(const Rates *rates, double m, double n, double k, double element_bytes);
/* flops: of this pass; tokens: keys that a query sees at most. */
double cost_attention_ns(const Rates *rates, double flops, double tokens, bool backward);
double cost_move_ns(const Rates *rates, double bytes);

/* A group of `ranks` ranks that lie `stride` apart; bytes of the full tensor (ALLREDUCE: of what is reduced).
 * Alone on its links. Never falls when bytes grow, and never exceeds the sum over parts of the message. */
double cost_group_ns(const Cluster *cluster, Collective kind, double bytes, uint32_t ranks, uint32_t stride,
                     uint32_t ranks_per_node);
/* The same without the hierarchy: what NCCL does for gathers and reductions over several nodes. */
double cost_flat_ns(const Cluster *cluster, Collective kind, double bytes, uint32_t ranks, uint32_t stride,
                    uint32_t ranks_per_node);

/* Seconds of compute lost for a second of a collective beside it that takes `ns` among these ranks: in a node the cluster's `contention`;
 * across nodes as much as its bytes would cost within one, but not less than `far`. */
double cost_contention(const Cluster *cluster, double far, Collective kind, double bytes, uint32_t ranks, uint32_t stride,
                       uint32_t ranks_per_node, double ns);
/* The same of all communication where shards lie in a node and replicas across, by the time that each takes: of a tensor of so many bytes as it
 * is gathered, in forward and backward, and as its gradient is reduced. */
double cost_hybrid_contention(const Cluster *cluster, double far, double gathered, double reduced, uint32_t shard, uint32_t replicas,
                              uint32_t ranks_per_node);

/* --- work of an instruction, as measured rates see it ---------------------------------------------------- */

typedef struct Product {
  ProductPass pass;
  double m, n, k, count; /* count products of this shape */
} Product;

/* Products that an instruction is made of; 0 when it is not a product. */
int cost_products(InstrOp op, const int64_t *ints, Product out[PRODUCT_PASSES]);
/* The kernel whose time by bytes stands for this instruction's; MOVE_COUNT: none does. */
MoveKind cost_move(InstrOp op);
/* Bytes that it is timed by, of those that its operands hold: lookups touch some rows of their table. */
double cost_moved(InstrOp op, const int64_t *ints, DType compute, double bytes);

/* --- what the planner asks ------------------------------------------------------------------------------ */

/* Flops and time alone on the device of a compute or copy instruction with these attributes, whose operands
 * move `bytes`. */
void cost_work(const Cluster *cluster, const InstrSpec *specs, InstrOp op, const int64_t *ints, DType compute,
               uint64_t bytes, uint64_t *flops, uint64_t *ns);
/* Of a copy between the device and the host, one way. Without a host link (CPUs) it is one within memory. */
uint64_t cost_transfer(const Cluster *cluster, uint64_t bytes);
/* Time of a collective instruction of a plan with this world; bytes: of the full tensor (ALLREDUCE: of what
 * is reduced). */
uint64_t cost_collective(const Cluster *cluster, const PlanWorld *world, InstrOp op, uint64_t bytes);

/* What streams of a plan with this world cost each other. */
PlanOverlap cost_overlap(const Cluster *cluster, const PlanWorld *world);
/* Fills instr->flops, bytes and ns of an instruction in a plan; operands and attributes are set. */
void cost_instr(const Cluster *cluster, const Plan *plan, const InstrSpec *specs, PlanInstr *instr);

#endif
