/* Owns: the program of one micro-batch: every operator of forward and backward, with the values it reads and writes,
 * before any decision about units, recompute or addresses.
 *
 * Order: forward ops [0, turn), the loss op at `turn`, backward ops after it. Backward needs some forward values; which
 * of them are kept and which computed again is decided later (checkpoint.h), so ops name values, not buffers. */
#ifndef FSDPC_PLANNER_PROGRAM_H
#define FSDPC_PLANNER_PROGRAM_H

#include "frontend/graph.h"
#include "planner/plan/plan.h"

typedef enum {
  VALUE_INPUT,      /* tokens, targets */
  VALUE_ACTIVATION, /* written by a forward op; may be saved or recomputed */
  VALUE_GRADIENT,   /* of an activation; lives in backward only */
  VALUE_PARAM,      /* a parameter, inside its unit's gathered tensor */
  VALUE_PARAM_GRADIENT,
  VALUE_COUNT, /* f64 scalars */
  VALUE_LOSS,
  VALUE_WORKSPACE, /* written and used by one op */
  VALUE_CACHE      /* keys or values of the whole context; inference only, outlives the program */
} ValueKind;

typedef struct Value {
  ValueKind kind;
  const char *name; /* "h.3.mlp.c_fc", "h.3.mlp.c_fc.grad" */
  DType dtype;
  uint64_t numel;
  int32_t param;    /* PARAM, PARAM_GRADIENT: index in Graph.params */
  int32_t input;    /* INPUT: index in Graph.inputs; CACHE: its number, in order of the ops that append to them */
  int32_t producer; /* ACTIVATION: the forward op that writes it; else PLAN_NONE */
} Value;

/* Columns [column, ..) of a value whose rows are ld elements apart; ld 0: contiguous. */
typedef struct Ref {
  int32_t value; /* PLAN_NONE: absent */
  uint32_t column, ld;
  bool add;
} Ref;

typedef struct ProgramOp {
  InstrOp op;
  Phase phase; /* FORWARD or BACKWARD (the turn is BACKWARD) */
  int32_t graph_op;
  const char *name;
  int32_t ref_count, int_count; /* as the table of instructions says; so for reals */
  Ref *refs;
  int64_t *ints;
  double *reals;
  uint64_t flops, bytes, ns; /* filled by cost.c */
} ProgramOp;

/* What schedules need of an op's ref to a value that is no parameter, packed: they walk them for every candidate. */
typedef struct FlowRef {
  int32_t value;
  bool transient; /* activation, gradient of one, workspace or input */
  bool reads, writes;
} FlowRef;

/* An op reads a parameter or adds to its gradient. */
typedef struct ParamRef {
  int32_t op, param;
  bool gradient;
} ParamRef;

/* The program as its schedules see it. */
typedef struct Flow {
  FlowRef *refs;
  uint32_t *first; /* by op, and one past the last: range of refs */
  ParamRef *params; /* by op */
  uint32_t param_count;
  uint64_t *value_bytes;                       /* by value: what it takes in the arena */
  bool *transient;                             /* by value: it takes room while it lives */
  int32_t *producer;                           /* by value: forward op that writes it, PLAN_NONE */
  int32_t *first_op, *last_forward, *last_op;  /* by value: ops that touch it; PLAN_NONE: none; inputs start with op 0 */
  int32_t *first_backward;                     /* by value: first op from the turn on that touches it, PLAN_NONE */
  int32_t *moved;                              /* by forward op: its result that offloading moves to the host, PLAN_NONE */
  uint64_t *op_ns, *adding_ns;                 /* the ops' costs; where every write of a parameter's gradient adds to it */
  uint64_t *moved_ns;                          /* by forward op: of moving it one way; 0 where nothing can be moved */
} Flow;

/* Inference takes `rows` consecutive tokens of one sample at a time; what attention needs of earlier ones is in caches. */
typedef struct Window {
  int64_t ctx, rows; /* of the sample */
  bool output;       /* ends with the input of the loss, else with the last append to a cache */
} Window;

typedef struct Program {
  Arena *arena;
  const Graph *graph;
  const InstrSpec *specs;
  int64_t batch;          /* samples */
  const Window *window;   /* NULL: training */
  VEC(Value) values;
  VEC(ProgramOp) ops;
  int32_t turn;           /* the loss op; ops.count for inference */
  int32_t count_value, loss_value, output_value; /* output: inference only */
  int32_t caches;
  int32_t *param_value, *param_gradient; /* by graph param; the gradient is PLAN_NONE where it is frozen */
  Flow flow;
  int32_t *block;         /* by graph op: its outermost repeat iteration (module), or PLAN_NONE */
} Program;

/* requires: a checked graph, batch >= 1; with a window, batch 1 and a model that inference.c accepts. settings: what may pin a
 * layer by itself; NULL: nothing does. NULL with a diagnostic when sizes overflow. */
Program *program_build(Arena *arena, DiagSink *sink, const Graph *graph, const InstrSpec *specs, const PlanSettings *settings,
                       int64_t batch, const Window *window);
/* A graph op's outermost repeat iteration (module), or PLAN_NONE. */
int32_t program_block(const Graph *graph, int32_t op);
void program_print(Text *out, const Program *program);

#endif
