/* Owns: the order of one micro-batch and what it costs, before anything is emitted: steps of forward, recompute and backward,
 * when each unit is gathered and reduced, live bytes at every step, and simulated time.
 *
 * Memory is exact: the sum of live sizes at each step is what the emitted plan will hold there. Time is close to the simulated
 * time of the emitted plan: a gather waits for the end of the step before its issue slot, and a step waits for every
 * reduction whose buffer was released before it, where the plan waits only for true address reuse.
 * A gradient is held until its first collective has read it, going by simulated time, at most for as long as the issue rule allows; what
 * that delivers until it has been summed over the replicas and is in host memory; a value that goes to the host until it is there. It is fetched as late as is harmless where durations may be off as the cluster admits, at most
 * FETCHES_AHEAD fetches ahead. A fetched shard is held until it is gathered, where there is room. */
#ifndef FSDPC_PLANNER_SCHEDULE_H
#define FSDPC_PLANNER_SCHEDULE_H

#include "planner/program/decisions.h"

typedef struct Step {
  int32_t op;
  Phase phase;
} Step;

/* A unit's parameters are needed in steps [first, last]; its gather is issued just before step `issue`. The shard that it reads,
 * where that is fetched, is held through step `held`. */
typedef struct Use {
  int32_t unit, first, last, issue, held;
} Use;

/* A unit's gradient is first written by step `first` and whole after step `after`; its buffer is held through step `release`, what it is
 * reduced to beside that (schedule_reduced_bytes) from `after` through step `landed`, no earlier. Where earlier micro-batches have left
 * something in host memory to add to (schedule_adds_from_host), that is fetched just before step `issue`. */
typedef struct Reduction {
  int32_t unit, issue, first, after, release, landed;
} Reduction;

/* A value's stay in host memory: stored after step `after`, its device buffer held through `release`; fetched just before step
 * `issue`, read again first by step `first`. */
typedef struct Trip {
  int32_t op, value, after, release, issue, first;
} Trip;

typedef struct Schedule {
  Arena *arena;
  Step *steps;
  int32_t step_count;
  Use *uses; /* by issue: order of the gather queue */
  uint32_t use_count;
  Reduction *reductions; /* in order of the reduce queue */
  const uint32_t *brought; /* numbers of reductions in the order in which what they add to is fetched */
  uint32_t reduction_count;
  Trip *trips; /* in order of the stores */
  uint32_t *returns; /* numbers of trips in order of the fetches */
  uint32_t trip_count;
  uint64_t *copying_ns; /* by step: what compute loses to the stores that follow it, and to the fetches that it waits for; NULL: nothing */
  uint64_t host_bytes; /* of what is away at once: all trips */
  int64_t *live; /* bytes of non-persistent buffers at each step */
  int64_t max_live;
  uint64_t step_ns; /* all segments */
} Schedule;

/* A run of like micro-batches: a segment of the plan. They all run the same steps. */
typedef struct MicroPass {
  const char *name;
  uint64_t count;
  bool gathers, reduces;
} MicroPass;

enum { MICRO_PASSES = 3, FETCHES_AHEAD = 16 };

/* The micro-batches of a step, in order. Returns how many passes there are. */
uint32_t schedule_passes(const Decisions *decisions, MicroPass out[MICRO_PASSES]);

enum { FACTORED_PASSES = 2 };

/* What is fixed while decisions vary: figures of units under one world. */
typedef struct UnitFigures {
  uint64_t full_bytes, gradient_bytes; /* gathered; unreduced */
  uint64_t part_bytes;                 /* reduced over the shard group, not yet over the replicas */
  uint64_t gather_ns, reduce_ns, replicate_ns; /* of its gradient: over the shard group, then over the replicas */
  uint64_t clear_ns, squares_ns, optimizer_ns; /* its gradient to zero as the step begins, 0 where it is written; at the end */
  uint64_t factored_ns[FACTORED_PASSES], factored_sum_ns[FACTORED_PASSES]; /* before Adafactor's update: compute; sums over the shard group */
  /* Of what is offloaded; 0 where nothing is: */
  uint64_t shard_bytes, fetch_ns;           /* the shard that a gather reads, where it must be fetched */
  uint64_t image_bytes, image_ns;           /* the reduced gradient; one way */
  uint64_t state_bytes, brought_bytes;       /* images of everything that the optimizer touches; of what is fetched for it */
  uint64_t bring_ns, return_ns;              /* all it fetches; all it stores */
  bool clears_image;                         /* what is cleared goes to the host */
} UnitFigures;

/* Of the segments "begin" and "update", what no unit causes. */
typedef struct StepFigures {
  uint64_t count_ns, norm_ns, loss_ns; /* collectives: of the targets' count as a step begins; between squares and optimizers; beside these */
  uint64_t rest_ns;                    /* of scalars; may run beside something else */
} StepFigures;

/* Where units are touched, in ops: the same for all decisions about one grouping. */
typedef struct UnitOps {
  int32_t first_forward, last_forward, first_backward, last_backward; /* its parameters are read; PLAN_NONE: never */
  int32_t first_gradient, last_gradient;
} UnitOps;

typedef struct Skeleton {
  const Program *program;
  const UnitSet *units;
  const UnitFigures *figures;
  StepFigures step;
  const uint64_t *op_ns; /* by op, as gradients are written under these outer choices */
  const uint64_t *slowed_ns; /* likewise, all of it beside communication */
  bool shared_queue; /* gathers and reductions serialise */
  bool shared_sums;  /* sums over shards and sums over replicas do */
  bool copies_beside; /* fetches and stores run beside compute; else they take its time */
  double host_contention; /* seconds of compute that a second of them costs beside it */
  uint64_t update_bytes; /* images that the update has on the device at once */
  uint64_t ends_ns;      /* of the segments "begin" and "update" without StepFigures.rest_ns; no plan's take less */
  UnitOps *ops;      /* by unit */
  uint32_t *reduced, reduced_count; /* units that have a gradient, by its last operator: the order of the reduce queue */
  uint32_t *brought; /* places in `reduced`, by the operator that needs what is added to: one rank's the first one, which adds to it */
  uint32_t *first;   /* by op, and one past the last: range of touched */
  int32_t *touched;  /* units whose parameters an op reads, each once */
} Skeleton;

/* Of what a unit's gradient is reduced to on its way to where it stays. */
uint64_t schedule_reduced_bytes(const Decisions *decisions, const UnitFigures *figures);
/* Whether what earlier micro-batches left of a gradient is fetched for this one: one rank's operators add to it, else the last collective does. */
bool schedule_adds_from_host(const Decisions *decisions);
/* outer: ranks, shard, replicas, accumulation, offload, gather_once, reduce_once and overlap are set. */
const Skeleton *schedule_prepare(Arena *arena, const Program *program, const UnitSet *units, const UnitFigures *figures,
                                 StepFigures step, const Decisions *outer, const Device *device);
/* requires: decisions complete. Gathers are issued by the rule, as early as decisions->room bytes of live buffers allow. Deterministic:
 * emission repeats it. */
void schedule_build(Schedule *schedule, Arena *arena, const Skeleton *skeleton, const Decisions *decisions);
/* For schedules of decisions that differ by nothing but their issue rules: what these share is done once. Under any rule at least
 * schedule->step_ns and max_live are needed; NULL where that is more than there is room for. The builder lives in the arena, and reads
 * the decisions. */
typedef struct Builder Builder;
Builder *schedule_open(Schedule *schedule, Arena *arena, const Skeleton *skeleton, const Decisions *decisions, uint64_t room, uint64_t host_room);
/* The schedule under this rule; whether it fits the room. */
bool schedule_under(Builder *builder, IssueRule rule);

#endif
