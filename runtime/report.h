/* Owns: everything that a training run says: header, progress, footer, and the metrics file.
 * Only rank 0 has a Report. Header and progress go to stderr, the footer to stdout. */
#ifndef FSDPC_RUNTIME_REPORT_H
#define FSDPC_RUNTIME_REPORT_H

#include "planner/plan/plan.h"
#include "runtime/launch/control.h"
#include "runtime/data.h"
#include "runtime/runtime.h"

#include <stdio.h>

typedef struct ReportConfig {
  const Plan *plan;
  const TrainOptions *options;
  const TokenData *data;
  uint64_t plan_hash, steps, samples_per_step, samples, ctx; /* samples: of the data */
  uint64_t checkpoint_bytes; /* of a rank's host buffer for checkpoints */
  uint64_t beside_bytes;     /* of device memory beside the arena; 0: there is none */
  const char *backend, *gemm, *kernels;
  PlanDevice device; /* that the backend computes on */
  uint32_t threads;
  Control *control;
  FILE *metrics; /* or NULL */
  bool goes_on;  /* with the metrics that are there, from a checkpoint */
} ReportConfig;

typedef struct StepResult {
  uint64_t step;
  double loss, grad_norm, lr;
  uint64_t step_ns, peak_bytes;
  double loss_scale; /* 0: the loss is not scaled */
  bool skipped;      /* gradients overflowed: nothing was updated, and grad_norm is no number */
} StepResult;

typedef struct Report Report;

/* The file of metrics, locked against other runs and as it was. */
FILE *report_open_metrics(const char *path, bool goes_on, Failure *failure);
/* NULL when the folder of event files cannot be written. */
Report *report_open(Arena *arena, const ReportConfig *config, Failure *failure);
void report_close(Report *report);
/* Each false when the metrics file cannot be written. What stood in it goes at the start, or, where the run goes on, the line that a
 * full disk or a kill cut short. */
bool report_start(Report *report, Failure *failure);
bool report_step(Report *report, const StepResult *result, Failure *failure);
/* Mean loss over `tokens` held-out tokens, after a step. */
bool report_eval(Report *report, uint64_t step, double loss, uint64_t tokens, Failure *failure);
/* It was broken off. */
void report_no_eval(Report *report, uint64_t step);
bool report_end(Report *report, const char *saved, Failure *failure);
/* Ends an unfinished progress line, before something else is printed. */
void report_break(Report *report);

#endif
