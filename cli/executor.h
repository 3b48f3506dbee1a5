/* Owns: what `predict` and `plan --executor` share. */
#ifndef FSDPC_CLI_EXECUTOR_H
#define FSDPC_CLI_EXECUTOR_H

#include "cli/cli.h"
#include "planner/executor/executor_search.h"

/* executor_plan, said on a terminal while it takes long (progress.c). */
bool plan_executor_watched(Cli *cli, const Graph *graph, const PlannerOptions *options, ExecutorPlan *out);
/* A note on stderr where no published run calibrates what times rest on. */
void executor_note_assumed(const Graph *graph, const PlanSettings *settings, const ExecutorWorld *world);
/* "shard 8, units block, ..." but those that are NULL. */
void executor_print_decisions(const char *const *words);
/* Whether the host cannot hold what is offloaded, said on stderr. */
bool executor_print_host_lack(const ExecutorPrediction *prediction);
/* Why no policy fits, and what would, on stderr. */
void executor_print_infeasible(const ExecutorPlan *plan);

/* PLAN -> its model, whose plan block pins what FSDP2 can be told of the plan, and options over it (carry.c). What cannot be told is noted
 * on stderr. An exit code. */
int carry_plan(Cli *cli, const char *path, Graph **graph, PlannerOptions *options, const Plan **from);

typedef enum { EXPORT_SAFETENSORS, EXPORT_TORCH, EXPORT_TRANSFORMERS, EXPORT_ACCELERATE } ExportTarget;
/* Plans the file, or the model of a plan with what that decided, for its executor and writes the policy for a target other than SAFETENSORS. */
int export_policy(Cli *cli, const char *path, ExportTarget target);

#endif
