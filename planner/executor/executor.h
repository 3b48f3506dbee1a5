/* Owns: how a plan performs when somebody else runs it. A pinned policy (one unit a block and one for the
 * rest) is timed and its peak memory summed from the layer graph, under the habits of an executor: its
 * kernels, what they keep for backward, its stream rules, how many gathered units live at once, its
 * allocator. Habits are rows of executor_profiles.c; nothing here knows a model. */
#ifndef FSDPC_PLANNER_EXECUTOR_H
#define FSDPC_PLANNER_EXECUTOR_H

#include "frontend/graph.h"
#include "planner/cost.h"

/* --- profiles (executor_profiles.c) --------------------------------------------------------------------- */

typedef struct AttentionRate {
  double share;    /* of peak over long sequences, forward; 0: the cluster's own figures */
  double backward; /* rate relative to forward */
  double tokens;   /* sequence length at half the rate */
} AttentionRate;

typedef struct AttentionClass {
  const char *name;
  AttentionRate rates[GENERATION_COUNT];
  double score_bytes; /* kept for each query-key pair and head; 0: fused */
} AttentionClass;

enum { SAVE_INPUT = 1, SAVE_SECOND = 2, SAVE_THIRD = 4, SAVE_OUTPUT = 8 };

/* One layer's memory traffic and what it keeps for backward. Inputs and outputs are counted once, however
 * many layers keep them. */
typedef struct LayerHabit {
  double forward, backward; /* bytes moved by element of the output, in a dtype of 16 bits */
  unsigned saves;           /* SAVE_ bits: tensors */
  double extra;             /* further bytes kept by element of the output */
  bool upcasts;             /* works in f32 whatever the compute dtype: the bytes above hold for any */
} LayerHabit;

typedef struct LossHabit {
  double moved; /* bytes a logit, both passes */
  double held;  /* at the peak */
} LossHabit;

typedef struct ExecutorProfile {
  double gemm_share[GENERATION_COUNT]; /* 0: the cluster's gemm_share */
  AttentionKind attention;
  const LayerHabit *layers; /* [LAYER_COUNT] */
  LossKind loss;
  LossHabit loss_extra; /* for metrics and copies beside the loss */
  UpdateKind update;
  double stream_bytes;   /* by element of sums and embeddings, the residual stream; 0: the compute dtype's */
  double gathered_bytes; /* by element of gathered parameters, on the wire and in memory; 0: the compute
                            dtype's */
  double layout_bytes;   /* by element of q around attention, each way */
  double expand_bytes;   /* by element of q and k where heads share keys, each way */
  bool expands;          /* keys and values are kept at the width of q */
  bool fused_swiglu;     /* silu(a) b is one kernel that keeps a and b only */
  bool keeps_unread;     /* a checkpointing policy's tensors, though backward reads them not */
  double sum_first, sum_more; /* bytes by element where several products read a tensor: the second reader,
                                 each further one */
  double bias_bytes;          /* by output element, backward */
  double copies; /* passes over gathered parameters and over gradients to reduce, on the compute stream of a step */
  double live_units; /* gathered at once: one fetched ahead, the one that computes, the buffer it came in */
  double back_units; /* in backward; 0: as many */
  bool frees_first;  /* what is reduced is copied when the unit and what was sent before it are gone */
  bool flat_units;   /* a unit has one gradient for all of it where any of it learns */
  bool keep_last;    /* the last block stays gathered */
  bool stops_early;  /* a checkpointed block runs again only as far as its backward needs */
  bool reduce_each;  /* gradients are reduced every micro-batch */
  bool accumulates;                /* ... else into a tensor of their own; not: in the states */
  double host_op_ns, host_unit_ns; /* issuing one operator; one unit's hooks a pass */
  double update_ns;                /* fixed cost of the optimizer step */
  double network_contention;       /* compute lost for a second of a collective across the network; 0: the cluster's */
  double straggle;                 /* of a step, for each doubling of nodes: all wait for the slowest */
  double retry_factor; /* of backward's transients: what must find room beside forward's without the logits */
  double retry_room; /* with less left, the allocator frees what it keeps and asks again, unit by unit */
  double retry_ns;   /* by byte of the units of a micro-batch; 0: not predicted */
  double reserved_factor; /* of backward's transients that do not reuse forward's segments; 0: an arena */
  double workspace_bytes;
} ExecutorProfile;

const ExecutorProfile *executor_profile(ExecutorId id);

bool executor_is_fsdp2(ExecutorId id);
/* Its profile's, but for norms that the trainer was told to fuse. */
const LayerHabit *executor_layer(const ExecutorSettings *executor, LayerKind kind);
/* What a rank's share of its host moves in a fused optimizer step there, bytes/s. */
double executor_host_rate(Generation generation);
/* Of an optimizer that runs there, by local parameter: bytes that take as long in a fused one. */
double executor_host_update_bytes(UpdateKind kind, double state);
LossHabit executor_loss(LossKind kind, bool eager, DType compute);
/* state: bytes of a parameter, a gradient, a moment */
double executor_update_bytes(UpdateKind kind, double state); /* moved by local parameter */
double executor_update_held(UpdateKind kind, double state);  /* temporaries by local parameter */
double executor_unretried_bytes(const Device *device);       /* reserved beyond: retries of the allocator, whose time is not predicted */
const AttentionClass *executor_attention(const ExecutorSettings *executor);
Rates executor_rates(const Cluster *cluster, const ExecutorSettings *executor, DType compute);

/* --- prediction ----------------------------------------------------------------------------------------- */

typedef struct ExecutorWorld {
  uint32_t ranks, shard, ranks_per_node; /* ranks = shard * replicas */
  int64_t micro_batch, accumulation;
} ExecutorWorld;

/* Live bytes of one rank by class. */
typedef struct ExecutorBytes {
  double parameters, gradients, optimizer, gathered, activations, workspace;
} ExecutorBytes;

typedef struct ExecutorPrediction {
  double step_ns;
  double tokens_per_s_per_rank;
  double mfu; /* share of the device's stated peak */
  /* of the first block of those that run most again, one pass each (0 without blocks) */
  double block_forward_ns, block_backward_ns, block_recompute_ns, gather_ns, reduce_ns;
  double head_ns, update_ns;           /* head: what follows the last block, both passes */
  double recompute_ns;                 /* of a step */
  double exposed_ns;                   /* of a step: compute waiting for communication */
  double retried_ns;                   /* of a step: an allocator without room; only where its executor's are known */
  double active_bytes, reserved_bytes; /* peaks; without context and communicator buffers */
  const char *peak_at;                 /* of the active bytes */
  ExecutorBytes peak;                  /* active bytes there */
  double states_bytes, saved_bytes; /* states: on the device */
  double host_bytes;     /* of a rank, in host memory */
  double capacity_bytes; /* what the device lets an allocator reserve */
  bool crowded;          /* reserves more than executor_unretried_bytes() */
  double limit_bytes;    /* what must hold it: a budget stands for the device, as in executor_plan */
  bool fits, host_fits;  /* host: unless the cluster states no host_memory */
} ExecutorPrediction;

/* Strategy auto counts as full_shard (no_shard on one rank), checkpoint and offload auto as none. False with a diagnostic when the model
 * is none that a profile can describe, the world does not fit the cluster, or the executor cannot offload so. */
bool executor_predict(Arena *arena, DiagSink *sink, const Graph *graph, const PlanSettings *settings,
                      const ExecutorWorld *world, ExecutorPrediction *out);

#endif
