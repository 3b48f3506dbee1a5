/* Owns: what one policy costs under one executor, as the parts of executor.c hand it on: the graph becomes parts with times and
 * kept bytes (executor_model.c), parts become units (executor_units.c), these a step's timeline (executor_step.c) and its peaks (executor_memory.c).
 * Nobody else includes this. */
#ifndef FSDPC_PLANNER_EXECUTOR_MODEL_H
#define FSDPC_PLANNER_EXECUTOR_MODEL_H

#include "planner/executor/executor.h"

/* What one block costs on one micro-batch. Part 0 is what comes before the blocks (and between), the last part what comes after. */
typedef struct Part {
  const char *name;
  uint32_t first_op, end_op; /* of a block: its own lie between */
  double numel;                        /* parameters; of part 0: all that lie outside of blocks, on whichever side */
  double gradient_numel, updated_numel; /* of these such as get a gradient; such as learn */
  double forward, backward, recompute; /* ns */
  double operators, operators_back, operators_again; /* issued in one forward; in backward; there to recompute */
  double saved;                        /* bytes kept from forward to backward */
  double whole;                        /* what would be kept without recompute: held while the block's backward runs */
  double widest, width;                /* bytes of the widest tensor and of the output */
  bool again;                          /* checkpointed as a whole: without an early stop all of it runs again, needed or not */
  bool backs;                          /* a gradient passes through it */
} Part;

/* Parameters of one layer outside of blocks. */
typedef struct Outside {
  const char *module; /* "norm" */
  unsigned sides;     /* SIDE_ bits */
  double numel, gradient_numel;
} Outside;

enum { SIDE_BEFORE = 1, SIDE_AFTER = 2, SIDE_ELSE = 4 }; /* of the blocks; between them, or in one as well */

/* Gathered and reduced together: neighbouring blocks, or what a rule names of one side of them. Unit 0 is the root: what is left. */
typedef struct ExecutorUnit {
  uint32_t first, end; /* parts that wait for it; of the root without those after the blocks, which are its own where all is one unit */
  int32_t rule;        /* of the settings' units, -1: none */
  double numel, gradient_numel;
  int32_t reshard; /* after forward: 0 kept gathered, 1 back to the shards, N > 1 to groups of N ranks */
} ExecutorUnit;

typedef struct ExecutorUnits {
  ExecutorUnit *data; /* 0 is the root, then in the order of forward */
  uint32_t count;
} ExecutorUnits;

typedef struct Model {
  const Graph *graph;
  const PlanSettings *settings;
  const ExecutorProfile *profile;
  const AttentionClass *attention;
  const Cluster *cluster;
  int64_t micro_batch;
  Rates rates;
  double element;       /* bytes of the compute dtype */
  double state;         /* of a kept parameter, its gradient and each of its moments */
  double moments;       /* of a parameter that learns */
  double gathered;      /* of a gathered parameter */
  double wire;          /* of a gradient as it is reduced */
  int32_t *part_of;     /* by op */
  int32_t *producer;    /* by base tensor */
  uint32_t *readers;    /* products that read a tensor */
  bool *graded;         /* by parameter: gets a gradient */
  bool *flows;          /* by base tensor: its gradient is asked for */
  bool *again;          /* by op: computed again in backward */
  bool *rerun;          /* by op: again, and somebody needs it */
  bool *kept, *counted; /* by base tensor: saved; saved if nothing were recomputed */
  Part *parts;          /* [part_count], blocks 1 .. block_count */
  uint32_t part_count, block_count;
  VEC(Outside) outside;
  int32_t first_block_op; /* number of ops: none */
  int32_t head;           /* op: the product that yields the logits, or -1 */
  double numel, gradient_numel, updated_numel; /* of all parts */
  double saved, saved_here; /* bytes kept for backward: in all; on the device */
  double working;           /* beside them in the worst block's backward */
  double logits, logit_width;
  double flops; /* of products and attention on one micro-batch, both passes, nothing again */
} Model;

/* How the ranks divide parameters and what crosses the links when. */
typedef struct Sharding {
  const ExecutorWorld *world;
  Strategy strategy;
  uint32_t shard, replicas;
  bool gathers;     /* parameters are gathered by unit */
  bool scatters;    /* gradients end up sharded */
  bool offloads;    /* shards, their gradients and moments lie in host memory, and the optimizer runs there */
  bool reduce_each; /* micro-batch */
  uint32_t prefetch; /* units gathered ahead of the one that computes */
  uint32_t owners;   /* ranks that the optimizer's whole tensors are dealt to; 0: its shards are even */
  double updated;    /* parameters that a rank's optimizer updates: of owners, the one that has most */
  const ExecutorUnit *units; /* [unit_count], 0 is the root */
  uint32_t unit_count;
  bool entry_apart, exit_apart; /* units of their own before the blocks, after them; else the root */
  double *gather_ns, *regather_ns, *reduce_ns; /* by unit, 0: nothing to do */
  double *whole_bytes, *partly_bytes; /* up to a unit, kept gathered between forward and backward: by each rank, by groups */
  double *fetch_ns, *refetch_ns, *store_ns;    /* of its shards before a gather, in forward and in backward; of its gradients */
} Sharding;

/* Whether graph, settings and world are such that a prediction makes sense; diagnostics otherwise. */
bool executor_check(DiagSink *sink, const Graph *graph, const PlanSettings *settings, const ExecutorWorld *world);
/* Describes every block under the settings' recompute choices, which `out` borrows. */
void model_open(Arena *arena, const Graph *graph, const PlanSettings *settings, int64_t micro_batch, Model *out);
LossHabit model_loss(const Model *model);
/* Of an element of gradients that add up before they are reduced. */
double model_sum_bytes(const Model *model);
UpdateKind model_update(const Model *model);

/* Whether blocks are units; else, as without any, the root is all there is. */
static inline bool model_gathers_blocks(const Model *m) {
  return m->block_count > 0 && m->settings->wrap != WRAP_WHOLE;
}

static inline bool model_is_block(const Model *m, int32_t part) {
  return part > 0 && part <= (int32_t)m->block_count;
}

/* Fills m->outside, after parts and what gets a gradient are known. */
void units_find_outside(Arena *arena, Model *m);
/* Of the settings' units the first that names it, by itself and not by the block around it, which does not hold what others share; or -1. */
int32_t units_rule_outside(const Model *model, const Outside *outside);
/* False with a diagnostic when units by hand are none that an executor can gather. Reads names and sizes only. */
bool units_find(Arena *arena, DiagSink *sink, const Model *model, ExecutorUnits *out);
void sharding_open(Arena *arena, const Model *model, const ExecutorWorld *world, const ExecutorUnits *units, Sharding *out);
/* The size of a group of ranks that a unit is to be resharded to, and that does not part its shards; 0: there is none. */
int32_t sharding_unparted(const Sharding *sharding);
/* No step of this model takes less than its compute and, on a host, its optimizer. */
double step_floor_ns(const Model *model, const Sharding *sharding);
void predict_time(Arena *arena, const Model *model, const Sharding *sharding, ExecutorPrediction *out);
/* ZeRO-1's: every rank computes with a copy in the compute dtype, and whoever updates has the masters too. */
bool sharding_copies(const Model *model, const Sharding *sharding);
double retried_bytes(const Model *model, const Sharding *sharding); /* a micro-batch: given back by the allocator and asked for again */
void model_sum_memory(Model *model); /* over its parts, once these are described */
/* No less is reserved by this model. */
double reserved_floor_bytes(const Model *model, const Sharding *sharding);
void predict_memory(const Model *model, const Sharding *sharding, ExecutorPrediction *out);

#endif
