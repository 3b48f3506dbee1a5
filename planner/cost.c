/* Owns: cost.h's formulas. */
#include "planner/cost.h"

#include <math.h>

enum { GEMM_PROLOGUE = 128, TILE_M = 128, TILE_N = 256, TILE_K_CAP = 4096 };

/* Share of the network that a tree over nodes reaches, beside a ring [A]. */
static const double tree_share = 0.75;

/* Straight lines between the logarithms of the points; beyond the first and the last a byte costs what it costs there. */
static double sizes_ns(const TimedSizes *sizes, double bytes) {
  const TimedSize *points = sizes->data;
  uint32_t low = 0, high = sizes->count - 1;
  if (bytes <= points[0].bytes) return points[0].ns * bytes / points[0].bytes;
  if (bytes >= points[high].bytes) return points[high].ns * bytes / points[high].bytes;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (points[middle].bytes <= bytes)
      low = middle;
    else
      high = middle;
  }
  double share = log(bytes / points[low].bytes) / log(points[high].bytes / points[low].bytes);
  return points[low].ns * pow(points[high].ns / points[low].ns, share);
}

/* --- one device ----------------------------------------------------------------------------------------- */

static double sustained_clock(const Device *device) { return device->clock > 0 ? device->clock : 1; }

Rates cost_rates(const Cluster *cluster, DType dtype) {
  const Device *device = &cluster->device;
  double peak = device->peak[dtype] * sustained_clock(device);
  return (Rates){.product = peak * device->gemm_share,
                 .prologue = device->gemm_prologue > 0 ? device->gemm_prologue : GEMM_PROLOGUE,
                 .tile_units = device->kind == DEVICE_GPU ? device->tile_units : 0,
                 .memory = device->bandwidth * device->bandwidth_share,
                 .attention_forward = peak * device->attention_share,
                 .attention_backward = peak * device->attention_share * device->attention_backward,
                 .attention_tokens = device->attention_tokens,
                 .launch_ns = device->launch_ns};
}

/* Without the launch. The cap on K stands for split-K: a long reduction does not leave units idle for longer.
 */
static double product_alone_ns(const Rates *rates, Product p) {
  double wave = rates->tile_units > 0
                    ? 0.5 * 2 * TILE_M * TILE_N * fmin(p.k, TILE_K_CAP) / (rates->product / rates->tile_units)
                    : 0;
  return 1e9 * (2 * p.m * p.n * p.k / rates->product * (1 + rates->prologue / p.k) + wave);
}

double cost_product_ns(const Rates *rates, double m, double n, double k, double element_bytes) {
  double work = product_alone_ns(rates, (Product){.m = m, .n = n, .k = k});
  double bytes = 1e9 * element_bytes * (m * k + k * n + m * n) / rates->memory;
  return fmax(work, bytes) + rates->launch_ns;
}

static double attention_alone_ns(const Rates *rates, double flops, double tokens, bool backward) {
  double rate = backward ? rates->attention_backward : rates->attention_forward;
  return 1e9 * flops / rate * (tokens + rates->attention_tokens) / tokens;
}

double cost_attention_ns(const Rates *rates, double flops, double tokens, bool backward) {
  return attention_alone_ns(rates, flops, tokens, backward) + rates->launch_ns;
}

double cost_move_ns(const Rates *rates, double bytes) {
  return 1e9 * bytes / rates->memory + rates->launch_ns;
}

int cost_products(InstrOp op, const int64_t *ints, Product out[PRODUCT_PASSES]) {
  double rows = (double)ints[0];
  switch (op) {
  case INSTR_LINEAR_FWD:
    out[0] = (Product){PRODUCT_FORWARD, rows, (double)ints[1], (double)ints[2], 1};
    return 1;
  case INSTR_LINEAR_BWD_X:
    out[0] = (Product){PRODUCT_BACKWARD_X, rows, (double)ints[2], (double)ints[1], 1};
    return 1;
  case INSTR_LINEAR_BWD_W:
    out[0] = (Product){PRODUCT_BACKWARD_W, (double)ints[1], (double)ints[2], rows, 1};
    return 1;
  case INSTR_LINEAR_CROSS_ENTROPY:
  case INSTR_LINEAR_CROSS_ENTROPY_X: {
    double vocab = (double)ints[1], in = (double)ints[2];
    double chunk = (double)ints[4], chunks = ceil(rows / chunk);
    out[0] = (Product){PRODUCT_FORWARD, chunk, vocab, in, chunks};
    out[1] = (Product){PRODUCT_BACKWARD_X, chunk, in, vocab, chunks};
    out[2] = (Product){PRODUCT_BACKWARD_W, vocab, in, chunk, chunks};
    return op == INSTR_LINEAR_CROSS_ENTROPY ? 3 : 2;
  }
  default:
    return 0;
  }
}

/* Over the whole cache: what it holds is known only when it runs. */
static double cached_flops(const int64_t *ints) {
  double rows = (double)ints[0], ctx = (double)ints[1], heads = (double)ints[2], dim = (double)ints[4];
  return 4 * heads * rows * ctx * dim;
}

static double attention_flops(InstrOp op, const int64_t *ints) {
  if (op == INSTR_ATTENTION_CACHED) return cached_flops(ints);
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

/* --- collectives in a node ------------------------------------------------------------------------------ */

/* The table of this kind with as many ranks or the fewest more, or NULL. */
static const CollectiveTable *find_table(const Cluster *cluster, Collective kind, uint32_t ranks) {
  const CollectiveTable *best = NULL;
  for (uint32_t i = 0; i < cluster->tables.count; i++) {
    const CollectiveTable *table = &cluster->tables.data[i];
    if (table->kind == kind && table->ranks >= ranks && (!best || table->ranks < best->ranks)) best = table;
  }
  return best;
}

static double node_bandwidth(const Cluster *cluster, Collective kind) {
  double bandwidth = kind == COLLECTIVE_GATHER || cluster->node.reduce_bandwidth <= 0
                         ? cluster->node.bandwidth
                         : cluster->node.reduce_bandwidth;
  return bandwidth * cluster->node.efficiency;
}

/* What a rank sends and receives of a tensor of this size. */
static double moved(Collective kind, double bytes, double ranks) {
  return (kind == COLLECTIVE_ALLREDUCE ? 2 : 1) * bytes * (ranks - 1) / ranks;
}

static double node_ns(const Cluster *cluster, Collective kind, double bytes, uint32_t ranks) {
  if (ranks <= 1) return 0;
  const CollectiveTable *table = find_table(cluster, kind, ranks);
  if (!table)
    return cluster->node.latency_ns + 1e9 * moved(kind, bytes, ranks) / node_bandwidth(cluster, kind);
  /* A group that was not measured moves less than the next larger one that was. */
  bytes *= moved(kind, 1, ranks) / moved(kind, 1, table->ranks);
  return sizes_ns(&table->points, fmax(bytes, table->points.data[0].bytes));
}

/* --- collectives across nodes --------------------------------------------------------------------------- */

/* Where a group lies: `local` ranks on each of `nodes` nodes, whose network it shares with the groups beside
 * it. */
typedef struct Placing {
  double nodes, bandwidth;
  uint32_t local;
} Placing;

static Placing place_group(const Cluster *cluster, uint32_t ranks, uint32_t stride, uint32_t ranks_per_node) {
  uint32_t beside = stride < ranks_per_node ? stride : ranks_per_node;
  uint32_t local = ranks_per_node / beside;
  return (Placing){.nodes = ceil((double)ranks / local),
                   .bandwidth = cluster->network.bandwidth * cluster->network.efficiency / beside,
                   .local = local};
}

/* Over the network alone, one rank a node; a tree where a ring's hops cost more than its fuller bandwidth
 * saves. */
static double network_ns(const Cluster *cluster, Collective kind, double bytes, const Placing *at) {
  double passes = kind == COLLECTIVE_ALLREDUCE ? 2 : 1, hop = cluster->network.latency_ns;
  double wire = 1e9 * moved(kind, bytes, at->nodes) / at->bandwidth;
  return fmin(passes * hop * (at->nodes - 1) + wire,
              2 * passes * hop * ceil(log2(at->nodes)) + wire / tree_share);
}

/* One ring through all ranks, every node entered and left once by each of its channels. */
static double ring_ns(const Cluster *cluster, Collective kind, double bytes, uint32_t ranks,
                      const Placing *at) {
  double passes = kind == COLLECTIVE_ALLREDUCE ? 2 : 1, bandwidth = at->bandwidth;
  if (at->local > 1) bandwidth = fmin(bandwidth, node_bandwidth(cluster, kind));
  return cluster->node.latency_ns + passes * cluster->network.latency_ns * (ranks - 1) +
         1e9 * moved(kind, bytes, ranks) / bandwidth;
}

/* Pipelined through node and network: as fast as the slower, with the hops of a tree. */
static double tree_ns(const Cluster *cluster, Collective kind, double bytes, uint32_t ranks,
                      const Placing *at) {
  double passes = kind == COLLECTIVE_ALLREDUCE ? 2 : 1, bandwidth = tree_share * at->bandwidth;
  if (at->local > 1) bandwidth = fmin(bandwidth, node_bandwidth(cluster, kind));
  return cluster->node.latency_ns + 2 * passes * cluster->network.latency_ns * ceil(log2(at->nodes)) +
         1e9 * moved(kind, bytes, ranks) / bandwidth;
}

static double hierarchy_ns(const Cluster *cluster, Collective kind, double bytes, const Placing *at) {
  double inside = kind == COLLECTIVE_ALLREDUCE ? node_ns(cluster, COLLECTIVE_REDUCE, bytes, at->local) +
                                                     node_ns(cluster, COLLECTIVE_GATHER, bytes, at->local)
                                               : node_ns(cluster, kind, bytes, at->local);
  return inside + network_ns(cluster, kind, bytes, at);
}

double cost_flat_ns(const Cluster *cluster, Collective kind, double bytes, uint32_t ranks, uint32_t stride,
                    uint32_t ranks_per_node) {
  if (ranks <= 1) return 0;
  if ((uint64_t)ranks * stride <= ranks_per_node) return node_ns(cluster, kind, bytes, ranks);
  Placing at = place_group(cluster, ranks, stride, ranks_per_node);
  return fmin(ring_ns(cluster, kind, bytes, ranks, &at), tree_ns(cluster, kind, bytes, ranks, &at));
}

double cost_group_ns(const Cluster *cluster, Collective kind, double bytes, uint32_t ranks, uint32_t stride,
                     uint32_t ranks_per_node) {
  double flat = cost_flat_ns(cluster, kind, bytes, ranks, stride, ranks_per_node);
  if (ranks <= 1 || (uint64_t)ranks * stride <= ranks_per_node) return flat;
  Placing at = place_group(cluster, ranks, stride, ranks_per_node);
  return fmin(flat, hierarchy_ns(cluster, kind, bytes, &at));
}

double cost_contention(const Cluster *cluster, double far, Collective kind, double bytes, uint32_t ranks, uint32_t stride,
                       uint32_t ranks_per_node, double ns) {
  double near = cluster->contention;
  if ((uint64_t)ranks * stride <= ranks_per_node || ns <= 0) return near;
  uint32_t most = cluster->node_devices > 2 ? (uint32_t)cluster->node_devices : 2;
  double inside = node_ns(cluster, kind, bytes, ranks < most ? ranks : most);
  return fmax(near * fmin(1, inside / ns), fmin(near, far));
}

/* Rates that are off by powers of ten give times that no integer holds: they stay too long for the planner to take. */
static uint64_t whole_ns(double ns) {
  return ns < 0x1p62 ? (uint64_t)ns : UINT64_C(1) << 62;
}

uint64_t cost_collective(const Cluster *cluster, const PlanWorld *world, InstrOp op, uint64_t bytes) {
  bool sharded = op == INSTR_ALLGATHER || op == INSTR_REDUCE_SCATTER, replicated = op == INSTR_ALLREDUCE;
  Collective kind = op == INSTR_ALLGATHER        ? COLLECTIVE_GATHER
                    : op == INSTR_REDUCE_SCATTER ? COLLECTIVE_REDUCE
                                                 : COLLECTIVE_ALLREDUCE;
  uint32_t ranks = sharded ? world->shard : replicated ? world->replicas : world->ranks;
  return whole_ns(cost_group_ns(cluster, kind, (double)bytes, ranks, replicated ? world->shard : 1, world->ranks_per_node));
}

double cost_hybrid_contention(const Cluster *cluster, double far, double gathered, double reduced, uint32_t shard, uint32_t replicas,
                              uint32_t ranks_per_node) {
  double part = reduced / shard;
  double within = 2 * node_ns(cluster, COLLECTIVE_GATHER, gathered, shard) + node_ns(cluster, COLLECTIVE_REDUCE, reduced, shard);
  double across = cost_group_ns(cluster, COLLECTIVE_ALLREDUCE, part, replicas, shard, ranks_per_node);
  double lost = cost_contention(cluster, far, COLLECTIVE_ALLREDUCE, part, replicas, shard, ranks_per_node, across);
  return (within * cluster->contention + across * lost) / (within + across);
}

/* Of messages so large that latency, in which a link is idle, counts for nothing. */
static double world_contention(const Cluster *cluster, const PlanWorld *world) {
  static const double bytes = 0x1p40;
  const bool gathers = world->shard > 1;
  if (world->ranks <= world->ranks_per_node) return cluster->contention;
  if (gathers && world->shard <= world->ranks_per_node)
    return cost_hybrid_contention(cluster, cluster->network_contention, bytes, bytes, world->shard, world->replicas, world->ranks_per_node);
  const Collective kind = gathers ? COLLECTIVE_GATHER : COLLECTIVE_ALLREDUCE;
  const uint32_t ranks = gathers ? world->shard : world->ranks;
  double ns = cost_group_ns(cluster, kind, bytes, ranks, 1, world->ranks_per_node);
  return cost_contention(cluster, cluster->network_contention, kind, bytes, ranks, 1, world->ranks_per_node, ns);
}

PlanOverlap cost_overlap(const Cluster *cluster, const PlanWorld *world) {
  return (PlanOverlap){.contention = world_contention(cluster, world),
                       .comm_slowdown = cluster->comm_slowdown,
                       .compute_spread = cluster->compute_spread,
                       .comm_spread = cluster->comm_spread};
}

/* --- instructions --------------------------------------------------------------------------------------- */

static bool is_collective(StreamId stream) {
  return stream == STREAM_GATHER || stream == STREAM_REDUCE || stream == STREAM_REPLICATE;
}

/* --- measured kernels ------------------------------------------------------------------------------------ */

MoveKind cost_move(InstrOp op) {
  static const uint8_t kinds[INSTR_COUNT] = {/* + 1 */
#define LIKE(op, kind) [INSTR_##op] = MOVE_##kind + 1
                                             LIKE(ZERO, COPY),
                                             LIKE(COPY, COPY),
                                             LIKE(PACK, COPY),
                                             LIKE(POSITIONS_FWD, COPY),
                                             LIKE(CACHE_APPEND, COPY),
                                             LIKE(SCALE_FWD, COPY),
                                             LIKE(SCALE_BWD, COPY),
                                             LIKE(ADD_FWD, ADD),
                                             LIKE(RELU_FWD, COPY),
                                             LIKE(RELU_BWD, ADD),
                                             LIKE(MUL_FWD, MUL_FWD),
                                             LIKE(MUL_BWD, MUL_BWD),
                                             LIKE(GELU_FWD, GELU_FWD),
                                             LIKE(GELU_BWD, GELU_BWD),
                                             LIKE(SILU_FWD, SILU_FWD),
                                             LIKE(SILU_BWD, SILU_BWD),
                                             LIKE(SILU_MUL_FWD, SILU_MUL_FWD),
                                             LIKE(SILU_MUL_BWD, SILU_MUL_BWD),
                                             LIKE(LAYERNORM_FWD, LAYERNORM_FWD),
                                             LIKE(LAYERNORM_BWD, LAYERNORM_BWD),
                                             LIKE(RMSNORM_FWD, RMSNORM_FWD),
                                             LIKE(RMSNORM_BWD, RMSNORM_BWD),
                                             LIKE(ROPE_FWD, ROPE_FWD),
                                             LIKE(ROPE_BWD, ROPE_BWD),
                                             LIKE(EMBEDDING_FWD, EMBEDDING_FWD),
                                             LIKE(EMBEDDING_BWD, EMBEDDING_BWD),
                                             LIKE(BROADCAST_BWD, BROADCAST_BWD),
                                             LIKE(CROSS_ENTROPY, CROSS_ENTROPY),
                                             LIKE(SUM_SQUARES, SUM_SQUARES),
                                             LIKE(ADAMW, ADAMW),
                                             LIKE(LION, ADAMW),
                                             LIKE(SGD, ADAMW)};
#undef LIKE
  return kinds[op] ? (MoveKind)(kinds[op] - 1) : MOVE_COUNT;
}

/* Times of f32 by the peaks of the types. */
static double product_ns(const Device *device, const Rates *rates, double speed, const Product *p) {
  const PassRate *r = &device->products[p->pass];
  if (r->rate <= 0) return p->count * product_alone_ns(rates, *p);
  return 1e9 * p->count * 2 * p->m * p->n * p->k / (r->rate * speed) * (1 + r->m / p->m + r->n / p->n + r->k / p->k);
}

/* Tensor cores' rates say nothing of f32. */
static bool attention_measured(const Device *device, const HeadRate *r, DType compute) {
  return r->rate > 0 && (r->type == DTYPE_F32 || device->peak[compute] == device->peak[r->type]);
}

static const HeadRate *head_rate(const Device *device, bool backward, double dims) {
  return backward && dims == 64 && device->attention[2].rate > 0 ? &device->attention[2] : &device->attention[backward];
}

static double attention_ns(const Device *device, const Rates *rates, DType compute, InstrOp op, const int64_t *ints, double flops) {
  bool cached = op == INSTR_ATTENTION_CACHED, backward = op == INSTR_ATTENTION_BWD;
  double tokens = (double)ints[cached ? 1 : 2], dims = (double)ints[cached ? 4 : 5];
  const HeadRate *r = head_rate(device, backward, dims);
  if (!attention_measured(device, r, compute)) return attention_alone_ns(rates, flops, tokens, backward);
  double rate = r->rate * sustained_clock(device) * device->peak[compute] / device->peak[r->type];
  return 1e9 * flops / rate * (1 + r->tokens / tokens) * (1 + r->dims / dims);
}

/* Between the products of a fused output layer: the loss of every chunk of logits. */
static double fused_loss_ns(const Device *device, const Product *logits) {
  const TimedSizes *sizes = &device->moves[MOVE_CROSS_ENTROPY];
  return sizes->count ? logits->count * sizes_ns(sizes, 2 * 4 * logits->m * logits->n) : 0;
}

double cost_moved(InstrOp op, const int64_t *ints, DType compute, double bytes) {
  if (op != INSTR_EMBEDDING_FWD && op != INSTR_EMBEDDING_BWD) return bytes;
  double width = (double)ints[2] * dtype_bytes(compute), table = (double)ints[1] * width;
  bool clears = op == INSTR_EMBEDDING_BWD && bytes < 2 * table; /* what it adds into is read and written */
  return clears ? bytes : fmin(bytes, (op == INSTR_EMBEDDING_FWD ? 2 : 3) * (double)ints[0] * width);
}

static double moves_ns(const Device *device, InstrOp op, const int64_t *ints, DType compute, double bandwidth, double bytes) {
  MoveKind kind = cost_move(op);
  const TimedSizes *sizes = kind < MOVE_COUNT ? &device->moves[kind] : NULL;
  return sizes && sizes->count ? sizes_ns(sizes, cost_moved(op, ints, compute, bytes)) : 1e9 * bytes / bandwidth;
}

void cost_work(const Cluster *cluster, const InstrSpec *specs, InstrOp op, const int64_t *ints, DType compute,
               uint64_t bytes, uint64_t *flops_out, uint64_t *ns_out) {
  const Device *device = &cluster->device;
  Rates rates = cost_rates(cluster, compute);
  double bandwidth = specs[op].stream == STREAM_COMPUTE ? rates.memory : device->host_link;
  if (bandwidth <= 0) bandwidth = rates.memory;
  double ns = moves_ns(device, op, ints, compute, bandwidth, (double)bytes), work = 0, flops = 0;
  double speed = device->peak[compute] / device->peak[DTYPE_F32];
  Product products[PRODUCT_PASSES];
  int count = specs[op].int_count ? cost_products(op, ints, products) : 0;
  for (int i = 0; i < count; i++) {
    work += product_ns(device, &rates, speed, &products[i]);
    flops += 2 * products[i].m * products[i].n * products[i].k * products[i].count;
  }
  if (count > 1) work += fused_loss_ns(device, &products[0]);
  if (op == INSTR_ATTENTION_FWD || op == INSTR_ATTENTION_BWD || op == INSTR_ATTENTION_CACHED) {
    flops = attention_flops(op, ints);
    work = attention_ns(device, &rates, compute, op, ints, flops);
  }
  *flops_out = (uint64_t)flops;
  *ns_out = whole_ns((ns > work ? ns : work) + rates.launch_ns);
}

uint64_t cost_transfer(const Cluster *cluster, uint64_t bytes) {
  Rates rates = cost_rates(cluster, DTYPE_F32);
  double ns = 1e9 * (double)bytes / cluster->device.host_link;
  if (cluster->device.host_link <= 0) ns = 2e9 * (double)bytes / rates.memory; /* read and written in one memory */
  return whole_ns(ns + rates.launch_ns);
}

void cost_instr(const Cluster *cluster, const Plan *plan, const InstrSpec *specs, PlanInstr *instr) {
  if (is_collective(instr->stream)) {
    int full = instr->op == INSTR_ALLGATHER ? 1 : 0;
    instr->bytes = plan->bufs.data[plan_operand(plan, instr, full)->buf].bytes;
    instr->ns = cost_collective(cluster, &plan->world, instr->op, instr->bytes);
    return;
  }
  if (instr->op == INSTR_FETCH || instr->op == INSTR_STORE) {
    instr->bytes = plan->bufs.data[plan_operand(plan, instr, 0)->buf].bytes;
    instr->ns = cost_transfer(cluster, instr->bytes);
    return;
  }
  instr->bytes = operand_bytes(plan, specs, instr);
  const int64_t *ints = plan->ints.data + instr->ints;
  cost_work(cluster, specs, instr->op, ints, plan->recipe.compute, instr->bytes, &instr->flops, &instr->ns);
}
