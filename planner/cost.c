/* Owns: cost.h's formulas. */
#include "planner/cost.h"

#include <math.h>

enum { GEMM_PROLOGUE = 128, TILE_M = 128, TILE_N = 256, TILE_K_CAP = 4096 };

typedef struct Product {
  double m, n, k, count; /* count products of this shape */
} Product;

static double product_ns(const Device *device, DType dtype, Product p) {
  double rate = device->peak[dtype] * device->gemm_share;
  double flops = 2 * p.m * p.n * p.k;
  double wave = device->kind == DEVICE_GPU
                    ? 0.5 * 2 * TILE_M * TILE_N * fmin(p.k, TILE_K_CAP) / (rate / device->tile_units)
                    : 0;
  return 1e9 * p.count * (flops / rate * (1 + GEMM_PROLOGUE / p.k) + wave);
}

static double attention_ns(const Device *device, DType dtype, double flops, bool backward) {
  double rate = device->peak[dtype] * device->attention_share * (backward ? device->attention_backward : 1);
  return 1e9 * flops / rate;
}

/* Products an instruction is made of; 0 when it is not a product. */
static int products_of(InstrOp op, const int64_t *ints, Product out[3]) {
  double rows = (double)ints[0];
  switch (op) {
  case INSTR_LINEAR_FWD:
    out[0] = (Product){rows, (double)ints[1], (double)ints[2], 1};
    return 1;
  case INSTR_LINEAR_BWD_X:
    out[0] = (Product){rows, (double)ints[2], (double)ints[1], 1};
    return 1;
  case INSTR_LINEAR_BWD_W:
    out[0] = (Product){(double)ints[1], (double)ints[2], rows, 1};
    return 1;
  case INSTR_LINEAR_CROSS_ENTROPY: {
    double vocab = (double)ints[1], in = (double)ints[2];
    double chunk = (double)ints[4], chunks = ceil(rows / chunk);
    out[0] = (Product){chunk, vocab, in, chunks};
    out[1] = (Product){chunk, in, vocab, chunks};
    out[2] = (Product){vocab, in, chunk, chunks};
    return 3;
  }
  default: return 0;
  }
}

static double attention_flops(InstrOp op, const int64_t *ints) {
  double batch = (double)ints[0], tq = (double)ints[1];
  double tk = (double)ints[2], heads = (double)ints[3];
  double dim = (double)ints[5], causal = ints[6] ? 0.5 : 1;
  double forward = 4 * batch * heads * tq * tk * dim * causal;
  return op == INSTR_ATTENTION_BWD ? 2.5 * forward : forward;
}

static uint64_t operand_bytes(const Plan *plan, const InstrSpec *specs, const PlanInstr *instr) {
  uint64_t bytes = 0;
  for (int k = 0; k < specs[instr->op].operand_count; k++) {
    const PlanOperand *operand = plan_operand(plan, instr, k);
    uint64_t rows, cols;
    if (operand->buf < 0 || !plan_operand_dims(plan, specs, instr, k, &rows, &cols)) continue;
    OperandMode mode = specs[instr->op].operands[k].mode;
    bool twice = mode == MODE_UPDATE || (mode == MODE_ADD && operand->add);
    bytes += rows * cols * dtype_bytes(plan->bufs.data[operand->buf].dtype) * (twice ? 2 : 1);
  }
  return bytes;
}

double cost_collective_ns(const Cluster *cluster, uint64_t bytes, uint32_t ranks, uint32_t stride,
                          uint32_t ranks_per_node) {
  if (ranks <= 1) return 0;
  double moved = (double)bytes * (ranks - 1) / ranks;
  double bandwidth = cluster->node.bandwidth * cluster->node.efficiency, latency = cluster->node.latency_ns;
  if ((uint64_t)ranks * stride > ranks_per_node) {
    /* Groups that lie side by side in a node share its network: `stride` of them at a time. */
    double sharing = stride < ranks_per_node ? stride : ranks_per_node;
    double network = cluster->network.bandwidth * cluster->network.efficiency / sharing;
    if (network < bandwidth) bandwidth = network;
    latency += cluster->network.latency_ns * (ranks - 1);
  }
  return latency + 1e9 * moved / bandwidth;
}

uint64_t cost_collective(const Cluster *cluster, const PlanWorld *world, InstrOp op, uint64_t bytes) {
  uint32_t per_node = world->ranks_per_node;
  double ns = op == INSTR_ALLGATHER || op == INSTR_REDUCE_SCATTER
                  ? cost_collective_ns(cluster, bytes, world->shard, 1, per_node)
              : op == INSTR_ALLREDUCE ? cost_collective_ns(cluster, 2 * bytes, world->replicas, world->shard, per_node)
                                      : cost_collective_ns(cluster, bytes, world->ranks, 1, per_node);
  return (uint64_t)ns;
}

static bool is_collective(StreamId stream) {
  return stream == STREAM_GATHER || stream == STREAM_REDUCE || stream == STREAM_REPLICATE;
}

void cost_work(const Cluster *cluster, const InstrSpec *specs, InstrOp op, const int64_t *ints, DType compute, uint64_t bytes,
               uint64_t *flops_out, uint64_t *ns_out) {
  const Device *device = &cluster->device;
  double bandwidth = specs[op].stream == STREAM_COMPUTE ? device->bandwidth * device->bandwidth_share : device->host_link;
  if (bandwidth <= 0) bandwidth = device->bandwidth * device->bandwidth_share;
  double ns = 1e9 * (double)bytes / bandwidth, work = 0, flops = 0;
  Product products[3];
  int count = specs[op].int_count ? products_of(op, ints, products) : 0;
  for (int i = 0; i < count; i++) {
    work += product_ns(device, compute, products[i]);
    flops += 2 * products[i].m * products[i].n * products[i].k * products[i].count;
  }
  if (op == INSTR_ATTENTION_FWD || op == INSTR_ATTENTION_BWD) {
    flops = attention_flops(op, ints);
    work = attention_ns(device, compute, flops, op == INSTR_ATTENTION_BWD);
  }
  *flops_out = (uint64_t)flops;
  *ns_out = (uint64_t)((ns > work ? ns : work) + device->launch_ns);
}

void cost_instr(const Cluster *cluster, const Plan *plan, const InstrSpec *specs, PlanInstr *instr) {
  if (is_collective(instr->stream)) {
    int full = instr->op == INSTR_ALLGATHER ? 1 : 0;
    instr->bytes = plan->bufs.data[plan_operand(plan, instr, full)->buf].bytes;
    instr->ns = cost_collective(cluster, &plan->world, instr->op, instr->bytes);
    return;
  }
  instr->bytes = operand_bytes(plan, specs, instr);
  const int64_t *ints = plan->ints.data + instr->ints;
  cost_work(cluster, specs, instr->op, ints, plan->recipe.compute, instr->bytes, &instr->flops, &instr->ns);
}
