/* Owns: formulas of the cost model against values computed by hand, and the properties that search and bounds
 * rely on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/cost.h"

#include <math.h>

#define MiB (1024.0 * 1024.0)

static void near(double value, double expected) {
  assert_true(fabs(value - expected) <= 1e-9 * fabs(expected));
}

/* Round figures: 100 TFLOP/s of products, 1 TB/s, 100 tile units. */
static Cluster round_cluster(void) {
  Cluster cluster = {.name = "round", .node_devices = 8, .nodes = 16};
  cluster.device = (Device){.kind = DEVICE_GPU,
                            .bandwidth = 2e12,
                            .bandwidth_share = 0.5,
                            .clock = 0.5,
                            .gemm_share = 0.5,
                            .attention_share = 0.25,
                            .attention_backward = 0.5,
                            .attention_tokens = 1000,
                            .tile_units = 100,
                            .launch_ns = 2000,
                            .host_link = 1e10};
  cluster.device.peak[DTYPE_BF16] = 4e14;
  cluster.node = (Link){.bandwidth = 2e11, .reduce_bandwidth = 1e11, .latency_ns = 10000, .efficiency = 1};
  cluster.network = (Link){.bandwidth = 1e11, .latency_ns = 3000, .efficiency = 0.8};
  return cluster;
}

static void test_product(void **state) {
  (void)state;
  Cluster cluster = round_cluster();
  Rates rates = cost_rates(&cluster, DTYPE_BF16);
  near(rates.product, 1e14);
  near(rates.memory, 1e12);
  /* 2 * 4096^3 flop: 1.37439 ms, prologue 1 + 128/4096; half a wave is 128 * 256 * 4096 flop on 1 of 100
   * units. */
  double work = 2 * 4096.0 * 4096 * 4096 / 1e5, wave = 128.0 * 256 * 4096 / 1e3;
  near(cost_product_ns(&rates, 4096, 4096, 4096, 2), work * (1 + 128.0 / 4096) + wave + 2000);
  /* A matrix times a vector is bound by its bytes. */
  near(cost_product_ns(&rates, 1, 65536, 4096, 2), 2 * (4096.0 + 65536.0 * 4096 + 65536) / 1e3 + 2000);
  rates.tile_units = 0;
  near(cost_product_ns(&rates, 4096, 4096, 4096, 2), work * (1 + 128.0 / 4096) + 2000);
}

static void test_attention(void **state) {
  (void)state;
  Cluster cluster = round_cluster();
  Rates rates = cost_rates(&cluster, DTYPE_BF16);
  near(rates.attention_forward, 5e13);
  near(cost_attention_ns(&rates, 5e10, 1000, false), 2e6 + 2000); /* half the rate at s0 */
  near(cost_attention_ns(&rates, 5e10, 9000, false), 1e6 / 0.9 + 2000);
  near(cost_attention_ns(&rates, 5e10, 1000, true), 4e6 + 2000); /* backward at half of forward */
  near(cost_move_ns(&rates, 3e9), 3e6 + 2000);
}

static void test_work_of_instructions(void **state) {
  (void)state;
  Cluster cluster = round_cluster();
  Arena *arena = arena_new();
  const InstrSpec *specs = instr_specs(arena);
  Rates rates = cost_rates(&cluster, DTYPE_BF16);
  int64_t product[INSTR_MAX_INTS] = {2048, 1024, 512};
  uint64_t flops, ns;
  cost_work(&cluster, specs, INSTR_LINEAR_FWD, product, DTYPE_BF16, 100, &flops, &ns);
  assert_int_equal(flops, 2ull * 2048 * 1024 * 512);
  assert_int_equal(ns, (uint64_t)cost_product_ns(&rates, 2048, 1024, 512, 0));
  cost_work(&cluster, specs, INSTR_LINEAR_FWD, product, DTYPE_BF16, 1u << 30, &flops, &ns);
  assert_int_equal(ns, (uint64_t)cost_move_ns(&rates, (double)(1u << 30))); /* what it moves binds */
  arena_free(arena);
}

/* One device with measured kernels, f32 at 100 GFLOP/s and bf16 at twice that. */
static Cluster measured_cluster(Arena *arena) {
  static const TimedSize points[] = {{1024, 100}, {4096, 400}, {1 << 20, 1 << 20}};
  Cluster cluster = round_cluster();
  cluster.device.launch_ns = 0, cluster.device.clock = 1;
  cluster.device.peak[DTYPE_F32] = cluster.device.peak[DTYPE_BF16] / 2;
  cluster.device.products[PRODUCT_FORWARD] = (PassRate){1e11, 10, 20, 40};
  cluster.device.products[PRODUCT_BACKWARD_X] = (PassRate){2e11, 0, 0, 0};
  cluster.device.products[PRODUCT_BACKWARD_W] = (PassRate){4e11, 0, 0, 0};
  cluster.device.attention[1] = (HeadRate){.rate = 1e10, .tokens = 64, .dims = 32};
  for (int i = 0; i < 3; i++) {
    vec_push(arena, &cluster.device.moves[MOVE_GELU_FWD], points[i]);
    vec_push(arena, &cluster.device.moves[MOVE_EMBEDDING_FWD], points[i]);
    vec_push(arena, &cluster.device.moves[MOVE_CROSS_ENTROPY], points[i]);
  }
  return cluster;
}

static double work_ns(const Cluster *cluster, InstrOp op, DType compute, uint64_t bytes, const int64_t *ints) {
  Arena *arena = arena_new();
  uint64_t flops, ns;
  cost_work(cluster, instr_specs(arena), op, ints, compute, bytes, &flops, &ns);
  arena_free(arena);
  return (double)ns;
}

static void whole(double ns, double expected) {
  assert_true(fabs(ns - expected) <= 1);
}

static void test_measured_kernels(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Cluster cluster = measured_cluster(arena);
  int64_t product[INSTR_MAX_INTS] = {1000, 500, 200}; /* rows out in: M 1000, N 500, K 200 */
  double flops = 2e8;
  whole(work_ns(&cluster, INSTR_LINEAR_FWD, DTYPE_F32, 0, product), flops / 100 * (1 + 0.01 + 0.04 + 0.2));
  whole(work_ns(&cluster, INSTR_LINEAR_FWD, DTYPE_BF16, 0, product), flops / 200 * (1 + 0.01 + 0.04 + 0.2));
  whole(work_ns(&cluster, INSTR_LINEAR_BWD_X, DTYPE_F32, 0, product), flops / 200);
  whole(work_ns(&cluster, INSTR_LINEAR_BWD_W, DTYPE_F32, 0, product), flops / 400);
  int64_t heads[INSTR_MAX_INTS] = {1, 64, 64, 1, 1, 32, 0}; /* batch tq tk heads kv_heads head_dim causal */
  double backward = 2.5 * 4 * 64 * 64 * 32 / 10 * 2 * 2;
  whole(work_ns(&cluster, INSTR_ATTENTION_BWD, DTYPE_F32, 0, heads), backward);
  whole(work_ns(&cluster, INSTR_ATTENTION_BWD, DTYPE_BF16, 0, heads), backward / 2);
  /* Heads of 64, and only they, have a kernel of their own. */
  cluster.device.attention[2] = (HeadRate){.rate = 4e10, .tokens = 64};
  whole(work_ns(&cluster, INSTR_ATTENTION_BWD, DTYPE_F32, 0, heads), backward);
  heads[5] = 64;
  whole(work_ns(&cluster, INSTR_ATTENTION_BWD, DTYPE_F32, 0, heads), 2.5 * 4 * 64 * 64 * 64 / 40 * 2);
  heads[5] = 32;
  /* Measured in bf16, it holds for what has the same peak; f32 goes by the shares. */
  double by_share = work_ns(&cluster, INSTR_ATTENTION_FWD, DTYPE_F32, 0, heads);
  cluster.device.attention[0] = cluster.device.attention[1];
  cluster.device.attention[0].type = DTYPE_BF16;
  cluster.device.peak[DTYPE_F16] = cluster.device.peak[DTYPE_BF16];
  whole(work_ns(&cluster, INSTR_ATTENTION_FWD, DTYPE_BF16, 0, heads), backward / 2.5);
  whole(work_ns(&cluster, INSTR_ATTENTION_FWD, DTYPE_F16, 0, heads), backward / 2.5);
  whole(work_ns(&cluster, INSTR_ATTENTION_FWD, DTYPE_F32, 0, heads), by_share);
  cluster.device.clock = 0.5;
  whole(work_ns(&cluster, INSTR_ATTENTION_FWD, DTYPE_BF16, 0, heads), 2 * backward / 2.5);
  cluster.device.clock = 1;
  int64_t gelu[INSTR_MAX_INTS] = {0};
  whole(work_ns(&cluster, INSTR_GELU_FWD, DTYPE_F32, 512, gelu), 50);
  whole(work_ns(&cluster, INSTR_GELU_FWD, DTYPE_F32, 2048, gelu), 200);
  whole(work_ns(&cluster, INSTR_GELU_FWD, DTYPE_F32, 2 << 20, gelu), 2 << 20);
  int64_t lookup[INSTR_MAX_INTS] = {4, 1000000, 128}; /* 4 of a million rows of 512 bytes, read and written */
  whole(work_ns(&cluster, INSTR_EMBEDDING_FWD, DTYPE_F32, 512004096, lookup), 400);
  int64_t fused[INSTR_MAX_INTS] = {256, 512, 128, -100, 64}; /* rows vocab in ignore chunk: four chunks */
  double one = 2.0 * 64 * 512 * 128, logits = 2 * 4 * 64 * 512;
  double forward = one / 100 * (1 + 10.0 / 64 + 20.0 / 512 + 40.0 / 128), loss = 400 * pow(1048576 / 400.0, log(logits / 4096) / log(256));
  whole(work_ns(&cluster, INSTR_LINEAR_CROSS_ENTROPY, DTYPE_F32, 0, fused), 4 * (forward + one / 200 + one / 400 + loss));
  arena_free(arena);
}

/* --- collectives ---------------------------------------------------------------------------------------- */

static void add_table(Arena *arena, Cluster *cluster, Collective kind, uint32_t ranks) {
  CollectiveTable *table = vec_add(arena, &cluster->tables);
  table->kind = kind;
  table->ranks = ranks;
  const TimedSize points[] = {{1 * MiB, 30000}, {4 * MiB, 60000}, {64 * MiB, 480000}};
  for (int i = 0; i < 3; i++) vec_push(arena, &table->points, points[i]);
}

static void test_table(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Cluster cluster = round_cluster();
  add_table(arena, &cluster, COLLECTIVE_GATHER, 8);
  near(cost_group_ns(&cluster, COLLECTIVE_GATHER, 1000, 8, 1, 8), 30000); /* floor */
  near(cost_group_ns(&cluster, COLLECTIVE_GATHER, 4 * MiB, 8, 1, 8), 60000);
  near(cost_group_ns(&cluster, COLLECTIVE_GATHER, 2 * MiB, 8, 1, 8),
       30000 * sqrt(2)); /* half way in logarithms */
  near(cost_group_ns(&cluster, COLLECTIVE_GATHER, 16 * MiB, 8, 1, 8), 60000 * sqrt(8));
  near(cost_group_ns(&cluster, COLLECTIVE_GATHER, 256 * MiB, 8, 1, 8), 4 * 480000); /* beyond the last */
  /* Another group size goes by what a rank moves; another collective by latency and bandwidth. */
  near(cost_group_ns(&cluster, COLLECTIVE_GATHER, 7 * MiB, 2, 1, 8), 60000);
  near(cost_group_ns(&cluster, COLLECTIVE_REDUCE, 8e8, 8, 1, 8), 10000 + 7e6);
  near(cost_group_ns(&cluster, COLLECTIVE_ALLREDUCE, 8e8, 8, 1, 8), 10000 + 14e6);
  assert_true(cost_group_ns(&cluster, COLLECTIVE_GATHER, 1e9, 1, 1, 8) == 0);
  arena_free(arena);
}

static void test_nodes(void **state) {
  (void)state;
  Cluster cluster = round_cluster();
  /* 16 ranks of 2 nodes, ring: 15 hops of 3 us and 15/16 of the bytes at the network's 80 GB/s. */
  near(cost_flat_ns(&cluster, COLLECTIVE_GATHER, 1.6e10, 16, 1, 8), 10000 + 45000 + 1.5e10 / 80);
  /* A hierarchy moves half of the bytes over the network, 7/8 at the node's 200 GB/s. */
  near(cost_group_ns(&cluster, COLLECTIVE_GATHER, 1.6e10, 16, 1, 8), 3000 + 8e9 / 80 + 10000 + 1.4e10 / 200);
  /* Two replicas that lie 8 apart share the network with 7 neighbours; all-reduce moves 2 (R-1)/R. */
  near(cost_group_ns(&cluster, COLLECTIVE_ALLREDUCE, 1e9, 2, 8, 8), 6000 + 1e9 / 10);
  /* At 16,384 ranks a ring's hops alone would take 49 ms. */
  double far = cost_group_ns(&cluster, COLLECTIVE_GATHER, 1e6, 16384, 1, 8);
  assert_true(far < 200000);
  assert_true(cost_group_ns(&cluster, COLLECTIVE_ALLREDUCE, 8, 16384, 1, 8) < 400000);
}

/* Across nodes a collective costs compute no less than its bytes would within one: the same ranks on more nodes make no step faster. */
static void test_contention(void **state) {
  (void)state;
  Cluster cluster = round_cluster();
  cluster.contention = 0.4;
  cluster.node_devices = 8;
  for (int kind = 0; kind < COLLECTIVE_COUNT; kind++)
    for (uint32_t ranks = 2; ranks <= 64; ranks *= 2)
      for (uint32_t per_node = 1; per_node <= 8; per_node *= 2) {
        double ns = cost_group_ns(&cluster, (Collective)kind, 1e9, ranks, 1, per_node);
        double inside = cost_group_ns(&cluster, (Collective)kind, 1e9, ranks < 8 ? ranks : 8, 1, 8);
        double share = cost_contention(&cluster, 0.1, (Collective)kind, 1e9, ranks, 1, per_node, ns);
        if (ranks <= per_node) near(share, 0.4);
        assert_true(share >= 0.1 && share <= 0.4);
        assert_true(ns < inside || share * ns >= 0.4 * inside * (1 - 1e-12));
      }
  near(cost_contention(&cluster, 0.1, COLLECTIVE_GATHER, 1e9, 16, 1, 8, 1e12), 0.1); /* however slow the link */
  PlanWorld world = {.ranks = 64, .shard = 64, .replicas = 1, .ranks_per_node = 8};
  const double near_by = cost_overlap(&cluster, &world).contention;
  cluster.network.latency_ns *= 100; /* a link that waits takes nothing from compute */
  assert_true(near_by > 0 && fabs(cost_overlap(&cluster, &world).contention - near_by) < 1e-3);
  near(cost_contention(&cluster, 0.9, COLLECTIVE_GATHER, 1e9, 16, 1, 8, 1e12), 0.4);
}

/* More bytes are never faster, nor cheaper in two messages than in one; every kind, group and size. */
static void test_monotone(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Cluster cluster = round_cluster();
  add_table(arena, &cluster, COLLECTIVE_GATHER, 8);
  const uint32_t ranks[] = {2, 3, 8, 16, 64, 1024, 16384};
  for (int kind = 0; kind < COLLECTIVE_COUNT; kind++)
    for (int r = 0; r < 7; r++)
      for (double bytes = 1; bytes < 1e12; bytes *= 1.7) {
        double one = cost_group_ns(&cluster, (Collective)kind, bytes, ranks[r], 1, 8);
        double more = cost_group_ns(&cluster, (Collective)kind, 1.3 * bytes, ranks[r], 1, 8);
        assert_true(one > 0 && more >= one);
        assert_true(cost_group_ns(&cluster, (Collective)kind, 2 * bytes, ranks[r], 1, 8) <=
                    2 * one * (1 + 1e-12));
      }
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_product),
                                     cmocka_unit_test(test_attention),
                                     cmocka_unit_test(test_work_of_instructions),
                                     cmocka_unit_test(test_measured_kernels),
                                     cmocka_unit_test(test_table),
                                     cmocka_unit_test(test_nodes),
                                     cmocka_unit_test(test_contention),
                                     cmocka_unit_test(test_monotone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
