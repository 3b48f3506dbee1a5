/* Owns: nothing; what the files that build a program share. program.c lists operators, program_layers.c says which a layer becomes,
 * program_gradient.c where gradients go, and program_flow.c what schedules need of the whole. */
#ifndef FSDPC_PLANNER_PROGRAM_BUILDER_H
#define FSDPC_PLANNER_PROGRAM_BUILDER_H

#include "planner/program/program.h"

typedef struct ProgramBuilder {
  Program *program;
  const Graph *graph;
  int32_t *view_head, *view_next; /* by tensor: chain of a base's views, in order */
  int32_t *value_of;    /* by tensor: value of a non-view tensor */
  int32_t *gradient_of; /* by tensor: value holding its gradient, PLAN_NONE before the first contribution */
  int32_t *holders;     /* by value: tensors whose gradient it is and whose producer is still to come */
  bool *written;        /* by tensor: its columns of the gradient hold something */
  bool *needs_gradient; /* by tensor */
  bool *mixed;          /* by tensor: a base whose gradient must start at zero */
  bool *parameter_written; /* by param */
  int32_t *forward_of;     /* by graph op: its (last) forward op */
  const int32_t *fused_with; /* by graph op: fusion.h */
  int32_t fused_linear; /* graph op swallowed by LINEAR_CROSS_ENTROPY, or PLAN_NONE */
  Ref logits;           /* the copy that cross_entropy turns into its gradient, or absent: it turns its operand */
  uint32_t value_capacity; /* of `holders` */
} ProgramBuilder;

typedef struct Rows {
  int64_t rows, cols;
} Rows;

Rows builder_rows(const ProgramBuilder *builder, int32_t tensor); /* of a float tensor */
/* A tensor's columns of its base's value. */
Ref builder_view(const ProgramBuilder *builder, int32_t tensor, int32_t value);
/* The tensor itself where it is no view. */
int32_t builder_base(const ProgramBuilder *builder, int32_t tensor);
Ref builder_read(ProgramBuilder *builder, int32_t tensor);
Ref builder_param(ProgramBuilder *builder, int32_t param);          /* PLAN_NONE gives an absent ref */
bool builder_learns(const ProgramBuilder *builder, int32_t param); /* is there, and not frozen */
int32_t builder_value(ProgramBuilder *builder, ValueKind kind, DType dtype, uint64_t numel, const char *name,
                      const char *suffix);
/* A new value of `rows` rows of an operator's output, as far apart as that output's. */
Ref builder_part(ProgramBuilder *builder, ValueKind kind, int32_t tensor, int64_t rows, const char *name, const char *suffix);
Ref builder_output(ProgramBuilder *builder, int32_t graph_op);
/* Appends an op; refs and ints are filled by the caller through the returned pointer (valid until the next one). */
ProgramOp *builder_op(ProgramBuilder *builder, InstrOp op, int32_t graph_op);

/* --- program_layers.c: one row a layer ---------------------------------------------------------------------------- */

typedef struct LayerRules {
  void (*forward)(ProgramBuilder *, int32_t graph_op);
  void (*backward)(ProgramBuilder *, int32_t graph_op, Ref dy);
} LayerRules;

extern const LayerRules layer_rules[LAYER_COUNT];

/* --- program_gradient.c ------------------------------------------------------------------------------------------- */

/* requires: graph, program. provides: views, which tensors need a gradient, which of these must start at zero. */
void builder_prepare_gradients(ProgramBuilder *builder);
/* Add from the second time on; absent for what does not learn. */
Ref builder_param_gradient(ProgramBuilder *builder, int32_t param);
/* Where a contribution to d(tensor) goes, or an absent ref when nobody needs it. */
Ref builder_gradient(ProgramBuilder *builder, int32_t tensor);
/* d(tensor) += dy where dy's buffer may simply become d(tensor)'s (residual additions). */
void builder_pass_gradient(ProgramBuilder *builder, int32_t tensor, Ref dy);

/* --- program_flow.c ----------------------------------------------------------------------------------------------- */

/* requires: all ops and the turn. provides: producers of values, Program.flow but for its costs. */
void program_find_flow(Program *program);

#endif
