/* Owns: what the files of semantic analysis share. Nobody else includes it.
 *
 * Sema is an interpreter: it runs the model's statements once, with shapes in place of data, and every layer
 * call appends an op to the graph. Modules are inlined where they are called.
 *
 *   sema.c         the door; files, lets, --set; order of the steps
 *   sema_eval.c    expressions
 *   sema_module.c  calls of modules
 *   sema_exec.c    statements, repeat
 *   sema_value.c   values, environments, errors with their calls
 *   sema_bind.c    arguments of layer calls, driven by layers.def
 *   sema_shapes.c  one shape rule a layer
 *   sema_layers.c  calls of layers become ops
 *   sema_finish.c  names, dropping what does not reach the loss, checks of the whole
 *   sema_rules.c   init and freeze: rules by name pattern
 *   settings*.c    train, cluster and plan blocks */
#ifndef FSDPC_FRONTEND_SEMA_H
#define FSDPC_FRONTEND_SEMA_H

#include "frontend/ast.h"
#include "frontend/files.h"
#include "frontend/graph.h"
#include "frontend/map.h"

enum {
  SEMA_MAX_OPS = 200000,    /* layers of an expanded model */
  SEMA_MAX_STEPS = 2000000, /* expressions evaluated: bounds nested repeats and modules */
  SEMA_CALL_STEPS = 20,     /* what a call of a module or a round of a repeat counts for */
  SEMA_MAX_DEPTH = 1000,    /* evaluations inside one another */
  SEMA_MAX_REPEAT = 100000,
  SEMA_MAX_ARGS = 10,
  SEMA_MAX_DIM = INT32_MAX,
  SEMA_MAX_NUMEL_LOG2 = 46 /* elements of a parameter, of a tensor per sample */
};

/* --- values --------------------------------------------------------------------------------------------- */

typedef enum {
  VALUE_ERROR, /* reported already: whoever sees it stays silent */
  VALUE_NUMBER,
  VALUE_TENSOR, /* id: tensor */
  VALUE_TUPLE,  /* items: several results of a call, or a list */
  VALUE_LAYER,  /* id: op; its weight can be tied */
  VALUE_SCOPE,  /* text: path of a module or repeat */
  VALUE_WORD,   /* text: causal, tanh, true, ... */
  VALUE_STRING  /* text */
} ValueKind;

typedef struct Value Value;
struct Value {
  ValueKind kind;
  bool exact; /* NUMBER: integer holds it */
  int32_t id;
  uint32_t count; /* of items */
  union {
    int64_t integer;
    const char *text;
    const Value *items;
  };
  double real;
};

typedef enum { VAR_LET, VAR_INPUT, VAR_PARAMETER, VAR_LOCAL, VAR_INDEX } VarKind;

typedef struct Var {
  const char *name;
  VarKind kind;
  Value value;
  Span span; /* of its name where it was first set */
  bool used;
} Var;

/* Names visible at one point. A module's body sees its own names, and the lets, inputs and modules around its
 * declaration. */
typedef struct Env Env;
struct Env {
  Env *parent;
  bool barrier; /* body of a module: only lets and inputs are seen beyond it */
  bool quiet;   /* unused names are none of the user's concern: another file's */
  Map names;    /* -> vars */
  VEC(Var) vars;
  Map modules; /* -> Sema.modules */
};

typedef struct Module {
  const Stmt *stmt;
  Env *env;    /* where it is declared */
  bool active; /* being expanded: calling it again would never end */
  bool used;
  Span called_at;
} Module;

/* A name in the hierarchy that is taken: by a layer, a module instance, a repeat, an input. */
typedef struct Entity {
  enum { ENTITY_LAYER, ENTITY_SCOPE, ENTITY_OTHER, ENTITY_FAILED } kind; /* FAILED: reported; who names it stays silent */
  int32_t op;
  Span span, call; /* where the name is given; the module's call that this is part of, SPAN_NONE in the model itself */
} Entity;

typedef struct InitRule {
  const char *scope;
  const char *pattern;
  Init init;
  Span span;
  bool model; /* stated by the model itself: wins over those in modules */
} InitRule;

typedef struct FreezeRule {
  const char *scope, *pattern;
  Span span;
} FreezeRule;

/* A module being expanded. */
typedef struct PendingCall {
  const char *module;
  Span span;
} PendingCall;

/* A pattern of the plan block, checked once the graph is complete. */
typedef struct PatternUse {
  const char *pattern, *key;
  Span span;
} PatternUse;

typedef struct SetOption {
  const char *name;
  Value value;
  bool used;
} SetOption;

typedef VEC(int32_t) TensorList;

typedef struct LayerSpec LayerSpec;

typedef struct Sema {
  Arena *arena;
  DiagSink *sink;
  Files files;
  Graph *graph;
  LayerSpec *specs; /* LAYER_COUNT */
  Map layers;       /* their names */
  Map words;        /* all words that some layer takes */

  VEC(Module) modules;
  VEC(SetOption) sets;
  VEC(const char *) lets; /* names that --set may override */
  Env *file_env;          /* lets and modules of all files */
  VEC(Env *) spare;       /* of expansions that are complete: a model has very many, but few at a time */

  const char *scope; /* path of the current instance, "" for the model */
  int32_t instance;  /* GraphModule */
  Map taken;         /* path -> entities */
  VEC(Entity) entities;
  VEC(char) probe;   /* of label_find */
  VEC(InitRule) inits;
  VEC(FreezeRule) freezes;

  VEC(PendingCall) calls; /* of modules, outermost first */
  Diag *last;             /* the calls around it become its notes once its own are complete */
  VEC(PendingCall) last_calls;
  Map reported; /* places of errors: one each, however often a module is expanded */
  uint64_t steps;
  uint32_t depth;
  bool stop; /* a limit was reached */

  TensorList unused;    /* of unused variables: a warning names them, or their name begins with '_' */
  TensorList set_aside; /* the latter */

  int64_t tokens_per_step; /* 0: not stated */
  Span tokens_span;
  VEC(PatternUse) patterns;
} Sema;

/* sema_value.c */
Value value_error(void);
Value value_integer(int64_t integer);
Value value_real(double real);
Value value_text(ValueKind kind, const char *text);
Value value_tensor(int32_t tensor);
const char *value_describe(Sema *sema, Value value);
const char *shape_text(Sema *sema, const Shape *shape);
/* An error at span, or one that nobody sees when there was one already. Notes about calls follow by
 * themselves. */
Diag *sema_error(Sema *sema, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
Diag *sema_warning(Sema *sema, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
void sema_flush(Sema *sema);
void sema_stop(Sema *sema, Span span, const char *reason, const char *help);
/* Where a tensor comes from; `what` is how the message calls it. Silent when that is the error's own place.
 */
void note_tensor(Sema *sema, Diag *diag, int32_t tensor, const char *what);

Env *env_new(Sema *sema, Env *parent, bool barrier, bool quiet);
Var *env_find(Env *env, const char *name);
Var *env_find_here(Env *env, const char *name);
Var *env_find_own(const Sema *sema, Env *env, const char *name);
Var *env_hidden(Env *env, const char *name); /* exists, but beyond a module's border */
Var *env_add(Sema *sema, Env *env, Name name, VarKind kind, Value value);
void env_finish(Sema *sema, Env *env); /* warns of names never used */
void env_close(Sema *sema, Env *env);  /* the same, and nobody looks at it again */
int32_t env_module(const Env *env, const char *name);
/* A suggestion among variables, modules, layers and labels in sight, or NULL. */
const char *env_nearest(Sema *sema, Env *env, const char *name, bool callable);

/* The entity called `name` in this instance or one around it; sets *path. NULL when there is none. */
Entity *label_find(Sema *sema, const char *name, const char **path);
/* Takes a full path; false after an error when it is taken. */
bool label_take(Sema *sema, const char *path, int kind, int32_t op, Span span);
/* Of a call in this scope that went wrong: the name counts as defined. */
void label_fail(Sema *sema, Name label);
const char *path_join(Sema *sema, const char *scope, const char *name);

/* sema_eval.c */
Value eval(Sema *sema, Env *env, const Expr *expr);
Value eval_list(Sema *sema, Env *env, const ExprList *list); /* a VALUE_TUPLE */
bool eval_integer(Sema *sema, Env *env, const Expr *expr, const char *what, int64_t least, int64_t most,
                  int64_t *out);
/* The values of a call's arguments, in the order written. */
Value *eval_args(Sema *sema, Env *env, const Expr *call);
void undefined_call(Sema *sema, Env *env, const Expr *expr);
/* False once the model has grown too large; the error is reported here. */
bool within_limits(Sema *sema, Span span);

/* sema_module.c */
/* An instance of a module or a round of a repeat, open while its body runs. */
typedef struct Instance {
  const char *outer_scope;
  int32_t outer, self; /* GraphModules */
} Instance;

Instance instance_open(Sema *sema, const char *path, const char *kind, int32_t repeat, Span span);
void instance_close(Sema *sema, Instance instance);
/* Calls modules[index]; path is the instance's full name or NULL when it has none. */
Value call_module(Sema *sema, const Expr *call, int32_t index, const char *path, int32_t repeat,
                  const Value *args);
int32_t parameter_index(const Stmt *module, const char *name);

/* sema_exec.c */
void declare_modules(Sema *sema, Env *env, const StmtList *body);
void exec_let(Sema *sema, Env *env, const Stmt *stmt, bool settable);
/* Runs statements in order; true when a return gave *result. */
bool exec_body(Sema *sema, Env *env, const StmtList *body, Value *result);
void exec_model(Sema *sema, Env *env, const Stmt *model);

/* sema_bind.c */
typedef enum { ARG_TENSOR, ARG_INDEX, ARG_INT, ARG_REAL, ARG_BOOL, ARG_SIZES, ARG_WORD, ARG_LAYER } ArgType;

typedef struct ArgSpec {
  const char *name;
  ArgType type;
  const char *fallback; /* default as spelled, NULL: required */
  Value value;          /* INT, REAL: the default */
  const char *words[4]; /* WORD */
  uint32_t word_count;
} ArgSpec;

struct LayerSpec {
  LayerKind kind;
  const char *name;
  ArgSpec args[SEMA_MAX_ARGS];
  uint32_t arg_count;
};

typedef struct Bound {
  bool given;       /* by the call or by a default that is not none or auto */
  const Expr *expr; /* NULL: default */
  Span span;
  Value value;      /* of the argument's type; BOOL: integer 0 or 1 */
  const char *side; /* "the left side" of an operator, else NULL */
  int32_t word;     /* WORD: index in ArgSpec.words */
} Bound;

enum { WEIGHT_DIMS = 2 }; /* of a weight that another layer may share */

/* A call of a layer on its way into the graph. Its shape rule fills op.as, out and the parameters wanted. */
typedef struct LayerCall {
  Sema *sema;
  const LayerSpec *spec;
  Bound args[SEMA_MAX_ARGS];
  Span span;
  Name label;
  GraphOp op;
  Shape out;
  bool has_weight, has_bias;
  Shape weight_shape;
  Init weight_init;
} LayerCall;

LayerSpec *layer_specs(Arena *arena, Map *layers, Map *words);
const LayerSpec *layer_find(const Sema *sema, const char *name);
bool bind_layer(LayerCall *call, Env *env, const Expr *expr);

/* sema_shapes.c */
/* By the layer's shape rule; split has none. False after an error. */
bool layer_check(LayerCall *call);
Bound *layer_arg(LayerCall *call, const char *name);
/* Where the operand is declared. Called by its variable when it has one, else by the argument's name. */
void layer_note_operand(LayerCall *call, Diag *diag, const char *name);

/* sema_layers.c */
Value layer_call(Sema *sema, Env *env, const Expr *expr, const LayerSpec *spec);
Value layer_binary(Sema *sema, const Expr *expr, LayerKind kind, const char *sign, Value left, Value right);

/* sema_finish.c */
/* requires: the model ran without errors; env is its environment. Provides a graph as graph.h promises. */
void finish_graph(Sema *sema, Env *env);
bool is_own_loss(const Sema *sema, int32_t tensor); /* computed in the model's file: other files' are not the user's concern */
/* sema_rules.c: requires names and uses of parameters */
void apply_rules(Sema *sema);
/* The weight of the first layer in the scope that a pattern means by that layer's name, or NULL: where it is another's, it has the other's
 * name. */
const char *shared_weight(Sema *sema, const char *scope, const char *pattern);

/* settings_train.c, settings_cluster.c, settings_plan.c */
void settings_defaults(Graph *graph);
void settings_train(Sema *sema, const Stmt *block);
void settings_cluster(Sema *sema, const Stmt *block);
void settings_cluster_file(Sema *sema, const char *path); /* --cluster */
void settings_plan(Sema *sema, const Stmt *block);
void settings_train_finish(Sema *sema); /* samples of a step, from the shape of an input */
void settings_plan_finish(Sema *sema);  /* patterns match something */

#endif
