/* Owns: the vocabulary of training shared by language, plan and runtime: how parameters start, how they are
 * updated, which samples a step consumes. Plain data and its limits, no behaviour. */
#ifndef FSDPC_BASE_RECIPE_H
#define FSDPC_BASE_RECIPE_H

#include "base/dtype.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum {
  INIT_ZEROS,
  INIT_ONES,
  INIT_NORMAL, /* mean 0, deviation a */
  INIT_UNIFORM /* in [-a, a) */
} InitKind;

typedef struct Init {
  InitKind kind;
  double a;
} Init;

#define OPTIMIZERS(X) X(ADAMW, "adamw") X(SGD, "sgd") X(LION, "lion") X(ADAFACTOR, "adafactor")
#define OPTIMIZER_ID_(id, name) OPTIMIZER_##id,
#define OPTIMIZER_NAME_(id, name) name,
typedef enum { OPTIMIZERS(OPTIMIZER_ID_) OPTIMIZER_COUNT } OptimizerKind;
#define OPTIMIZER_NAMES OPTIMIZERS(OPTIMIZER_NAME_) /* elements of an array of names */
#define SCHEDULES(X) X(CONSTANT, "constant") X(LINEAR, "linear") X(COSINE, "cosine") X(WSD, "wsd")
#define SCHEDULE_ID_(id, name) SCHEDULE_##id,
#define SCHEDULE_NAME_(id, name) name,
typedef enum { SCHEDULES(SCHEDULE_ID_) SCHEDULE_COUNT } ScheduleKind;
#define SCHEDULE_NAMES SCHEDULES(SCHEDULE_NAME_)
typedef enum { ORDER_SEQUENTIAL, ORDER_SHUFFLED } SampleOrder;

#define ROUNDINGS(X) X(NEAREST, "nearest") X(STOCHASTIC, "stochastic")
#define ROUNDING_ID_(id, name) ROUNDING_##id,
#define ROUNDING_NAME_(id, name) name,
typedef enum { ROUNDINGS(ROUNDING_ID_) ROUNDING_COUNT } Rounding;
#define ROUNDING_NAMES ROUNDINGS(ROUNDING_NAME_)

/* Of the loss in f16, so that small gradients do not vanish (arXiv 1710.03740); PyTorch's GradScaler. */
typedef struct LossScaling {
  double init;             /* loss scale of step 1 */
  double growth, backoff;  /* its factors after `interval` good steps in a row, and after a step that overflowed */
  uint64_t interval;
} LossScaling;

typedef struct Recipe {
  OptimizerKind optimizer;
  ScheduleKind schedule;
  double lr, min_lr;       /* peak rate; rate at the end of a decaying schedule (default 0.1 lr) */
  uint64_t warmup_steps;   /* linear from lr/warmup at step 1 */
  uint64_t cooldown_steps; /* of SCHEDULE_WSD: the last steps, over which the rate falls linearly; 0: a fifth of all */
  double beta1, beta2, eps; /* AdamW, arXiv 1711.05101, bias-corrected; Lion, arXiv 2302.06675, has no eps */
  double momentum;         /* SGD */
  double beta2_decay, eps2, threshold; /* Adafactor, arXiv 1804.04235 as torch.optim.Adafactor: step^beta2_decay is the
                                          weight of new second moments; least RMS of a parameter; largest RMS of an
                                          update. eps is epsilon1. Zero with other optimizers */
  double decay;            /* decoupled, on parameters that have PlanParam.decay: of rank >= 2, unless the recipe excepts them */
  double clip;             /* largest global gradient norm, 0: off */
  uint64_t steps;          /* length of the schedule and default of run --steps */
  uint64_t seed;
  SampleOrder order;
  uint64_t samples_per_step; /* over all ranks and micro-batches; 0: one micro-batch a rank */
  DType compute;           /* parameters as gathered, activations */
  DType reduce;            /* gradients on the wire and accumulated */
  DType master;            /* parameters as kept and updated: f32, or bf16 where `compute` is that too */
  Rounding rounding;       /* of updated parameters; nearest where `master` is f32 */
} Recipe;

/* What keeps a division from being by 0 is a normal number of f32, in which kernels divide; Adafactor's after squaring. */
#define RECIPE_LEAST_EPS 1.2e-38
static inline double recipe_least_eps(OptimizerKind kind) {
  return kind == OPTIMIZER_ADAMW ? RECIPE_LEAST_EPS : kind == OPTIMIZER_ADAFACTOR ? 1.1e-19 : 0;
}

#endif
