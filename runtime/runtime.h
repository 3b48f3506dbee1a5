/* Owns: the runtime's door: train with a plan, or run a forward plan to generate. Knows nothing of the planner but the
 * plan. The caller has verified the plan. */
#ifndef FSDPC_RUNTIME_RUNTIME_H
#define FSDPC_RUNTIME_RUNTIME_H

#include "planner/plan/plan.h"

#include "runtime/launch/launcher.h"

/* Exit codes shared with the command line. */
enum { RUN_OK = 0, RUN_INVALID = 1, RUN_NO_FIT = 3, RUN_PEER_FAILED = 4 };

/* A step as rank 0 ran it. */
typedef struct MeasuredRun {
  int32_t segment;
  const struct InstrTime *times; /* (runtime/backend.h) of the segment's instructions, its first one's first */
} MeasuredRun;

typedef struct MeasuredStep {
  uint64_t number;
  const MeasuredRun *runs; /* one a repetition of a segment, in the order they ran; none overlaps the next */
  uint64_t run_count;
} MeasuredStep;

/* Who wants the last step as it was measured, once the run has ended. */
typedef struct StepObserver StepObserver;
struct StepObserver {
  const char *(*take)(StepObserver *, const Plan *plan, const MeasuredStep *step); /* why it failed, or NULL */
};

typedef struct TrainOptions {
  const char *backend;          /* "cpu" (NULL) or "cuda" */
  const char *const *data;      /* paths: llm.c .bin, nanoGPT .bin, text file, folder */
  uint32_t data_count;
  uint64_t steps;               /* 0: the recipe's */
  const char *init_path;        /* weights, as of GenerateOptions, or NULL: initialise from the seed */
  const char *save_dir;         /* for checkpoints, and at the end DIR/model.safetensors; NULL: nothing is saved */
  uint64_t save_every;          /* steps between checkpoints; 0: at the end only */
  uint32_t keep;                /* newest checkpoints that stay; 0: all */
  const char *resume;           /* a checkpoint, or a folder of them; "auto": the newest in save_dir, if any; or NULL */
  bool restarted;               /* after a rank died: from the newest in save_dir, or as above where there is none yet */
  uint32_t timeout_s;           /* without progress in any rank; 0: never */
  const char *metrics_path;     /* JSON Lines, or NULL */
  const char *const *eval_data; /* held-out data, as `data` */
  uint32_t eval_count;
  uint64_t eval_every;          /* steps between evaluations; 0: at the end only */
  uint64_t eval_batches;        /* at most so many steps' worth of samples; 0: all */
  StepObserver *observer;       /* called in the process of rank 0, or NULL */
  const char *tensorboard;      /* folder of event files, or NULL */
  bool analyze;                 /* print predicted beside measured */
  const char *gemm;             /* NULL: best */
  uint32_t threads;             /* compute threads a rank; 0: cores / ranks, at least 1 */
  bool quiet;
  const Launcher *launcher;     /* that started this process as one rank of several; NULL, or ranks 1: start all here */
} TrainOptions;

/* After so many seconds without progress a rank counts as stuck: `least`, or three steps as the plan predicts them, since on a GPU all of a step
 * is launched at once and nothing is seen before its end. */
uint32_t runtime_patience_s(const Plan *plan, uint32_t least);

/* Host memory beside the arena that a rank needs to save checkpoints: a copy of its parameters and moments. */
uint64_t runtime_checkpoint_bytes(const Plan *plan);

/* Starts plan->world.ranks processes, trains, waits. One message on stderr and an exit code on failure; no child,
 * thread or shared memory outlives the call, whatever happens to any rank. */
int runtime_train(const Plan *plan, const TrainOptions *options);

typedef struct GenerateOptions {
  const char *weights;  /* .safetensors, a folder or index of those, a checkpoint, or a run's folder (the latest) */
  const char *prompt;   /* bytes (vocabulary 256) */
  uint64_t tokens;
  double temperature;   /* 0: greedy */
  uint32_t top_k;       /* 0: off */
  const char *backend;  /* NULL: cpu */
  uint64_t seed;
  const char *gemm;
  uint32_t threads;
} GenerateOptions;

typedef struct ExportOptions {
  const char *weights; /* as of GenerateOptions */
  const char *dir;     /* to write to */
  DType dtype;         /* F32, BF16 or F16 */
  uint64_t max_bytes;  /* of one file; 0: one file */
  bool force;          /* overwrite */
} ExportOptions;

/* Writes DIR/model.safetensors, or several with their index, as Hugging Face's loaders want them; their names to stdout. */
int runtime_export(const Plan *plan, const ExportOptions *options);

/* Forward plan (plan->training false). Writes prompt and continuation to stdout as they come. */
int runtime_generate(const Plan *plan, const GenerateOptions *options);

#endif
