/* Owns: what is known about the machine a plan is made for: one device, its node, the network between nodes.
 * Read from a cluster block or file; every rate is a sustained rate unless it says peak. Zero means "not stated". */
#ifndef FSDPC_FRONTEND_CLUSTER_H
#define FSDPC_FRONTEND_CLUSTER_H

#include "base/dtype.h"
#include "base/source.h"
#include "base/vec.h"
#include <stdbool.h>

typedef enum { DEVICE_NONE, DEVICE_CPU, DEVICE_GPU } DeviceKind;

/* Kernel classes are rated by generation (planner/executor/executor_profiles.c), so that a new board of a known one needs no new constants. */
typedef enum { GENERATION_OTHER, GENERATION_VOLTA, GENERATION_AMPERE, GENERATION_ADA, GENERATION_HOPPER, GENERATION_BLACKWELL,
               GENERATION_COUNT } Generation;

/* A measured time by size. */
typedef struct TimedSize {
  double bytes, ns;
} TimedSize;
typedef VEC(TimedSize) TimedSizes; /* both ascend */

/* What `fsdpc profile` measures of the kernels of a CPU, in f32, or what was measured of a GPU's attention; rates of 0: not measured. */
typedef enum { PRODUCT_FORWARD, PRODUCT_BACKWARD_X, PRODUCT_BACKWARD_W, PRODUCT_PASSES } ProductPass;
/* 2MNK/rate (1 + m/M + n/N + k/K) */
typedef struct PassRate {
  double rate, m, n, k;
} PassRate;
/* flops/rate (1 + tokens/T)(1 + dims/D), measured with operands of `type`: of f32, which stands for other types by their peaks, or of one
 * with whose peak others run alike. */
typedef struct HeadRate {
  double rate, tokens, dims;
  DType type;
} HeadRate;
typedef enum {
#define MOVE(id, word) MOVE_##id,
#include "frontend/moves.def"
#undef MOVE
  MOVE_COUNT
} MoveKind;

/* What cluster files call them, in the order of the enumerators, NULL at the end; attention: forward, backward
 * (settings_cluster.c). */
extern const char *const cluster_products[], *const cluster_attention[], *const cluster_moves[];

typedef struct Device {
  DeviceKind kind;
  Generation generation;
  const char *name;
  uint64_t memory_bytes;     /* usable by the arena of one rank */
  uint64_t allocator_bytes;  /* what a framework's allocator can reserve before the device says no; 0: memory_bytes */
  double bandwidth;          /* bytes/s of device memory, peak */
  double bandwidth_share;    /* sustained share of it in element-wise kernels (cost-model constant) */
  double peak[DTYPE_COUNT];  /* flop/s in matrix products by operand dtype */
  double clock;              /* sustained share of the clock that peak is stated for, default 1 */
  double gemm_share;         /* sustained share of peak in large products */
  double gemm_prologue;      /* inner length at which a product takes twice as long as at that rate; 0: 128 */
  double attention_share;    /* the same for fused attention over long sequences, forward */
  double attention_backward; /* backward rate relative to forward */
  double attention_tokens;   /* sequence length at which attention runs at half that rate, 0: length does not matter */
  double tile_units;         /* SMs or cores that a product's tiles are spread over */
  double launch_ns;          /* fixed cost of one kernel */
  double host_link;          /* bytes/s between device and host, each way */
  double host_contention;    /* seconds of compute lost for a second of copying results over that link */
  uint64_t host_memory;      /* bytes of the host's memory that one rank may take for what is offloaded; 0: not stated */
  bool shared_queue;         /* gathers and reduces share one communicator and serialise */
  PassRate products[PRODUCT_PASSES]; /* where stated, instead of the shares above */
  HeadRate attention[3];       /* forward, backward, and backward of heads of 64 where another kernel computes those */
  TimedSizes moves[MOVE_COUNT];     /* by bytes moved; empty: not measured */
} Device;

typedef enum { COLLECTIVE_GATHER, COLLECTIVE_REDUCE, COLLECTIVE_ALLREDUCE, COLLECTIVE_COUNT } Collective;

/* Measured times by bytes of the full tensor. The cost of a byte never grows from one point to the next (see
 * settings_cluster.c), so that splitting a message never pays: lower bounds rely on it. */
typedef struct CollectiveTable {
  Collective kind;
  uint32_t ranks;
  TimedSizes points;
} CollectiveTable;

typedef struct Link {
  double bandwidth;  /* bytes/s of one device's bus bandwidth (node) or of a whole node (network) */
  double reduce_bandwidth; /* the same in reduce-scatter, 0: equal */
  double latency_ns; /* fixed cost of one collective (node), of one hop (network) */
  double efficiency; /* share of bandwidth reached by large collectives, default 1 */
} Link;

typedef struct Cluster {
  const char *name;
  Device device;
  int64_t node_devices; /* devices in a node */
  int64_t nodes;
  Link node, network;
  VEC(CollectiveTable) tables; /* within a node; where one fits it replaces bandwidth and latency */
  double contention;    /* seconds of compute lost for a second of communication over the node's links beside it */
  double network_contention; /* the same where communication crosses the network */
  double comm_slowdown;  /* seconds a collective loses for a second of compute beside it */
  double compute_spread, comm_spread; /* relative uncertainty of predicted durations */
  double price_per_hour; /* USD per device-hour, 0: unknown */
} Cluster;

#endif
