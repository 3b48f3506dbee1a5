/* Owns: the checked layer graph, the frontend's result and the planner's input.
 *
 * Everything here passed sema: names resolve, shapes agree, sizes do not overflow, ops are in execution order (every
 * operand is produced before it is used). Flat arrays and integer ids; all memory belongs to one Arena. */
#ifndef FSDPC_FRONTEND_GRAPH_H
#define FSDPC_FRONTEND_GRAPH_H

#include "base/diag.h"
#include "base/recipe.h"
#include "base/text.h"
#include "frontend/cluster.h"

enum { GRAPH_MAX_RANK = 4, GRAPH_MAX_INPUTS = 4, DIM_BATCH = -1 };

typedef enum {
#define LAYER(id, name, arguments, meaning) LAYER_##id,
#include "frontend/layers.def"
#undef LAYER
  LAYER_COUNT
} LayerKind;

/* dim[0] may be DIM_BATCH (samples of one micro-batch on one rank); all other dims are positive constants. */
typedef struct Shape {
  int32_t rank;
  int64_t dim[GRAPH_MAX_RANK];
} Shape;

/* Every tensor is seen as rows x cols: cols is the last dim, rows the product of the others. A view (from split)
 * shares its base's rows: element (r, c) of the view is element (r, view_column + c) of the base, which is never
 * itself a view. */
typedef struct GraphTensor {
  const char *name; /* "h.3.mlp.c_fc", unique; for dumps and explanations */
  Shape shape;
  bool is_index;       /* int32 token ids, else the compute dtype */
  int32_t op;          /* producer, -1: a model input */
  int32_t view_of;     /* base tensor, or -1 */
  int64_t view_column; /* first column in the base */
  Span span;
} GraphTensor;

typedef struct GraphParam {
  const char *name; /* "h.3.mlp.c_fc.weight" */
  Shape shape;      /* rank 1 or 2, no batch */
  Init init;
  int32_t module;
  int32_t first_op, last_op; /* uses, in execution order; a tied weight has several */
  bool frozen;      /* never learns: no gradient, no moments, no update */
  Span span;
} GraphParam;

typedef struct GraphOp {
  LayerKind kind;
  const char *name; /* hierarchical, "h.3.mlp.c_fc"; unnamed layers get one such as "h.3.mlp.gelu" */
  int32_t module;
  int32_t inputs[GRAPH_MAX_INPUTS], input_count;
  int32_t output;             /* tensor; SPLIT produces no op: its results are views */
  int32_t weight, bias;       /* params, -1: none */
  union {
    struct {
      double eps;
      int64_t heads; /* equal parts of the last axis, each normalised by itself; they share weight and bias */
    } norm;
    struct {
      int64_t heads, dims; /* dims: of each head's, the first that turn */
      double theta;
      bool llama3;
      double factor, low, high; /* llama3 scaling, as in Hugging Face rope_type "llama3" */
      int64_t original;
    } rope;
    struct {
      int64_t heads, kv_heads, head_dim;
      bool causal;
    } attention;
    struct {
      bool erf;
    } gelu;
    struct {
      double by;
    } scale;
    struct {
      double p;
    } dropout;
    struct {
      int64_t ignore_index;
      int64_t chunk; /* rows, 0: none */
    } cross_entropy;
  } as;
  Span span;
} GraphOp;

/* A module instance: the model itself (0), a call of a module, or one iteration of a repeat. */
typedef struct GraphModule {
  const char *name;   /* "" for the model, "h.3", "h.3.attn" */
  const char *kind;   /* declared module: "block", "attn"; the model's name for 0 */
  int32_t parent;     /* -1 for the model */
  int32_t repeat;     /* iteration number, -1: not an iteration */
  int32_t first_op, end_op; /* ops [first, end) of this instance and everything inside */
  Span span;
} GraphModule;

typedef struct GraphInput {
  const char *name;
  int32_t tensor;
} GraphInput;

/* --- plan {} block: what the file pins ----------------------------------------------------------------------- */

typedef enum { STRATEGY_AUTO, STRATEGY_FULL_SHARD, STRATEGY_SHARD_GRAD_OP, STRATEGY_NO_SHARD,
               STRATEGY_SHARD_OPTIM, STRATEGY_HYBRID_SHARD } Strategy;
typedef enum { WRAP_AUTO, WRAP_BLOCK, WRAP_SIZE, WRAP_WHOLE } WrapKind;
/* What plan { offload ... } names: the first three lie in host memory between uses, activations may. */
enum { OFFLOAD_PARAMETERS = 1, OFFLOAD_GRADIENTS = 2, OFFLOAD_OPTIMIZER = 4, OFFLOAD_ACTIVATIONS = 8, OFFLOAD_KINDS = 4 };
/* All state; what FSDP2's CPUOffloadPolicy keeps in host memory. */
enum { OFFLOAD_STATES = OFFLOAD_PARAMETERS | OFFLOAD_GRADIENTS | OFFLOAD_OPTIMIZER };
/* Their names in the order of the bits, then "auto" and "none"; NULL at the end. */
const char *const *offload_names(void);
typedef enum { CADENCE_AUTO, CADENCE_MICRO_BATCH, CADENCE_STEP } Cadence; /* how often collectives run in a step */
typedef enum { CHECKPOINT_AUTO, CHECKPOINT_NONE, CHECKPOINT_FULL } CheckpointKind;

enum { SETTING_AUTO = -1, SETTING_MOST_PREFETCH = 1000, SETTING_MOST_SAMPLES = 1 << 20 };

/* unit NAME { pattern ... }: params whose module path matches one of the patterns form one unit. A pattern is a
 * path ("h.0"), with '*' standing for any one component. A path matches itself and everything inside. */
typedef struct UnitRule {
  const char *name;
  VEC(const char *) patterns;
  int32_t reshard; /* 0, 1, N > 1, SETTING_AUTO: as below */
  Span span;
} UnitRule;

/* save / recompute / host PATTERN ...: overrides the checkpoint policy for outputs of ops whose name matches. Later wins. */
typedef struct CheckpointRule {
  const char *pattern;
  bool recompute;
  bool host; /* kept in host memory */
  Span span;
} CheckpointRule;

typedef enum {
#define EXECUTOR(id, name, meaning) EXECUTOR_##id,
#include "frontend/executors.def"
#undef EXECUTOR
  EXECUTOR_COUNT
} ExecutorId;

typedef enum { STATES_RECIPE, STATES_F32, STATES_BF16 } StatesDType; /* master parameters, gradients and moments; RECIPE: its master */
typedef enum { LOSS_DEFAULT, LOSS_EAGER, LOSS_COMPILED, LOSS_UPCAST, LOSS_CHUNKED, LOSS_FUSED, LOSS_NARROW, LOSS_JOINT, LOSS_SHIFTED, LOSS_SHIFTED_FUSED, LOSS_SHIFTED_NARROW, LOSS_SHIFTED_NARROW_FUSED } LossKind;
typedef enum { REDUCE_DEFAULT, REDUCE_MICRO_BATCH, REDUCE_STEP } ReduceWhen;
typedef enum { SELECTIVE_NONE, SELECTIVE_OPERATORS, SELECTIVE_BLOCKS, SELECTIVE_MODULES } SelectiveKind;
typedef enum { UPDATE_DEFAULT, UPDATE_UNFUSED, UPDATE_FOREACH, UPDATE_FUSED } UpdateKind;
typedef enum { ATTENTION_DEFAULT, ATTENTION_FLASH1, ATTENTION_FLASH2, ATTENTION_CUDNN, ATTENTION_UNFUSED, ATTENTION_KIND_COUNT } AttentionKind;
enum { TRAINER_OFFLOADS_M = 1, TRAINER_OFFLOADS_V = 2, TRAINER_OFFLOADS_MASTER = 4, TRAINER_OFFLOADS_RESIDUAL = 8 };

/* executor NAME { ... }: who runs the plan, and what that trainer was told. Zero is "native, as it comes". */
typedef struct ExecutorSettings {
  ExecutorId id;
  StatesDType states;
  AttentionKind attention; /* kernel class */
  LossKind loss;
  int64_t loss_chunks;     /* logits exist a chunk at a time; 0: 1 */
  ReduceWhen reduce;
  SelectiveKind selective; /* with checkpoint none: operators as torchtitan's per-op policy, every second block, or a block's modules each by itself */
  UpdateKind update;
  bool update_in_backward;
  bool packed;              /* one product for q, k and v, whose output is kept beside what attention reads */
  bool reentrant;           /* checkpointing repeats all of a block, whatever backward needs of it */
  bool fused_norms;         /* one kernel a pass, as Transformer Engine's and Apex's */
  bool fused_layers;        /* one kernel a pass for norms, rotary positions and gates, as Liger's */
  bool fused_sums;          /* the product that makes a weight's gradient adds it to the sum, as Megatron's */
  bool expandable_segments; /* of PyTorch's allocator: a stream's memory serves any size */
  int64_t owners;           /* every so many ranks share the optimizer, each with whole tensors, and broadcast them; 0: shards are even */
  uint32_t offload; /* TRAINER_OFFLOADS_ bits */
} ExecutorSettings;

const char *executor_name(ExecutorId id);
/* Takes "pytorch-fsdp2" for its eager form too. -1 when there is none of this name. */
int executor_find(const char *name);
/* All names that executor_find takes, NULL at the end. */
const char *const *executor_names(void);
/* What one of these names stands for, in words. */
const char *executor_meaning(const char *name);
/* The name that was meant, or NULL. */
const char *executor_nearest(const char *name);

typedef struct PlanSettings {
  uint64_t memory_bytes; /* 0: what the cluster's device can use */
  Strategy strategy;
  int64_t shard;         /* hybrid_shard:F, else 0 */
  WrapKind wrap;
  uint64_t wrap_numel;   /* WRAP_SIZE: elements */
  CheckpointKind checkpoint;
  int64_t prefetch;      /* depth in units, or SETTING_AUTO */
  int64_t micro_batch;   /* samples, or SETTING_AUTO */
  int32_t reshard;       /* after forward: 0 no, 1 yes, N > 1 to groups of N ranks (other executors only), SETTING_AUTO */
  Cadence gather, reduce;
  int32_t offload; /* OFFLOAD_ bits, or SETTING_AUTO */
  VEC(UnitRule) units;
  VEC(CheckpointRule) checkpoints;
  ExecutorSettings executor;
  Span span; /* of the plan block, SPAN_NONE: the file has none */
} PlanSettings;

typedef struct Graph {
  const char *name;
  const char *path;          /* file as the user wrote it */
  uint64_t source_hash;      /* FNV-1a over all files read and --set values, in order */
  VEC(GraphTensor) tensors;
  VEC(GraphParam) params;
  VEC(GraphOp) ops;
  VEC(GraphModule) modules;
  VEC(GraphInput) inputs;
  int32_t loss_op;           /* last op, a CROSS_ENTROPY or MSE */
  Recipe recipe;
  LossScaling loss_scaling; /* used where the recipe computes or reduces in f16 */
  Cluster cluster;           /* cluster.device.kind DEVICE_NONE when the file names none */
  PlanSettings plan;
  VEC(const char *) no_decay; /* patterns of parameters without weight decay, whatever their rank */
} Graph;

typedef struct FrontendOptions {
  const char *const *sets; /* "name=value" from --set */
  uint32_t set_count;
  const char *cluster_path; /* --cluster FILE replaces the file's cluster block, or NULL */
  const char *models_path;  /* folder where `use` looks last, or NULL: frontend_models() */
} FrontendOptions;

/* models/ of the source tree. */
const char *frontend_models(void);

/* Reads, parses and checks FILE. NULL when sink->errors > 0 afterwards. Sources are added to `sources`. */
Graph *frontend_compile(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path,
                        const FrontendOptions *options);
/* The same for `check`: a file without a model (a family of modules, a cluster) is fine. */
const Graph *frontend_check(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path, const FrontendOptions *options);
/* Canonical layout of a file that parses; NULL and diagnostics otherwise. */
const char *frontend_format(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path);
/* The same of a text; messages call it by this name. */
const char *frontend_format_text(Arena *arena, SourceSet *sources, DiagSink *sink, const char *name, const char *text);
/* --dump=graph: one op a line with shapes and parameters. */
void graph_print(Text *out, const Graph *graph);

/* Settings as a `plan { ... }` block that reads back as the same settings. */
void settings_write_plan(Text *out, const PlanSettings *settings);
/* The text of a file with this plan block instead of its own, in the canonical layout, to be written at `place`: what it uses is named as
 * from there, unless the models folder has it. NULL and diagnostics when it does not parse. */
const char *frontend_with_plan(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path, const char *block, const char *place,
                               const char *models);

/* Which of the words that a setting takes was meant: what others call it ("zero3"), else the nearest; or NULL. */
const char *setting_meant(const char *word, const char *const *words, uint32_t count);

const char *layer_name(LayerKind kind);
/* Elements of a shape with `batch` samples; false on overflow. */
bool shape_numel(const Shape *shape, int64_t batch, uint64_t *out);
int64_t shape_rows(const Shape *shape, int64_t batch); /* product of all dims but the last */
int64_t shape_cols(const Shape *shape);                /* last dim; 1 for rank 0 */
bool shape_same(const Shape *a, const Shape *b);
/* "[batch, 1024, 768]" */
void shape_print(Text *out, const Shape *shape);
/* Two tensors are one, or parts of one that overlap. */
bool graph_share_columns(const Graph *graph, int32_t a, int32_t b);
/* An iteration of an outermost repeat: a block, as other executors gather and checkpoint them. */
bool graph_is_block(const Graph *graph, uint32_t module);
/* True when path equals pattern or lies inside it, component by component, '*' matching any one component. */
bool path_matches(const char *pattern, const char *path);
/* What counts as tokens of a sample: the elements of the first input of integers; 0 where there is none. */
uint64_t graph_sample_tokens(const Graph *graph);
/* f16 has too few exponents for gradients as they are. */
bool graph_scales_loss(const Graph *graph);
/* True when a pattern of no_decay matches the parameter. */
bool graph_excepts_decay(const Graph *graph, const char *param);

#endif
