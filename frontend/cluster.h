/* Owns: what is known about the machine a plan is made for: one device, its node, the network between nodes.
 * Read from a cluster block or file; every rate is a sustained rate unless it says peak. Zero means "not stated". */
#ifndef FSDPC_FRONTEND_CLUSTER_H
#define FSDPC_FRONTEND_CLUSTER_H

#include "base/dtype.h"
#include "base/source.h"
#include <stdbool.h>

typedef enum { DEVICE_NONE, DEVICE_CPU, DEVICE_GPU } DeviceKind;

typedef struct Device {
  DeviceKind kind;
  const char *name;
  uint64_t memory_bytes;     /* usable by the arena of one rank */
  double bandwidth;          /* bytes/s of device memory, peak */
  double bandwidth_share;    /* sustained share of it in element-wise kernels (cost-model constant) */
  double peak[DTYPE_COUNT];  /* flop/s in matrix products by operand dtype */
  double gemm_share;         /* sustained share of peak in large products */
  double attention_share;    /* the same for fused attention, forward */
  double attention_backward; /* backward rate relative to forward */
  double tile_units;         /* SMs or cores that a product's tiles are spread over */
  double launch_ns;          /* fixed cost of one kernel */
  double host_link;          /* bytes/s between device and host */
  bool shared_queue;         /* gathers and reduces share one communicator and serialise */
} Device;

typedef struct Link {
  double bandwidth;  /* bytes/s of one device's bus bandwidth (node) or of a whole node (network) */
  double latency_ns; /* fixed cost of one collective (node), of one hop (network) */
  double efficiency; /* share of bandwidth reached by large collectives, default 1 */
} Link;

typedef struct Cluster {
  const char *name;
  Device device;
  int64_t node_devices; /* devices in a node */
  int64_t nodes;
  Link node, network;
  double contention;    /* seconds of compute lost for a second of overlapped communication */
  double price_per_hour; /* USD per device-hour, 0: unknown */
} Cluster;

#endif
