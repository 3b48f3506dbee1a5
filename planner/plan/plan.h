/* Owns: THE CONTRACT. A Plan is everything a training step does, on every stream, at every address: what the planner
 * emits, the verifier checks, the simulator times, the drawings show and both runtimes execute.
 *
 * - Flat arrays and integer ids; strings are offsets into one table. Read-only after emission.
 * - SPMD: one plan for all ranks. A rank knows its own number; nothing else differs.
 * - `instrs` is one list in an order in which a single thread could issue everything: every wait names an event
 *   recorded earlier in the same segment. Instructions of one queue run in list order; queues run concurrently;
 *   events are the only other ordering. Several streams may share a queue (one communication thread on CPUs).
 * - A segment is a range of instrs run `count` times. Between segments, and between repetitions, all queues join.
 *   Non-persistent buffers live within one segment. Each repetition of a segment with an `input` is a micro-batch.
 * - A forward plan generates. Segments, any of which but the last may be missing: "begin" clears the caches; "prefill" takes
 *   several rows of the one sample and only fills the caches; "decode" takes one row and ends with its logits. The runtime runs
 *   the first once and then, at whatever `position` (see instr.def) each time, the others as often as it likes.
 * - Addresses: one arena a rank on its device, `arena_bytes` long, at the same offsets on every rank, and where something is
 *   offloaded a second one in host memory, `host_bytes` long. Only `fetch` and `store` touch buffers of the host arena: they copy
 *   whole buffers. Persistent buffers keep their
 *   contents between steps; others exist from instruction `first` to `last` (list positions, inclusive), which covers
 *   every access, asynchronous ones until the event that orders their end.
 *
 * Files that change together: plan.h, instr.def, fields.c, plan_write.c, read_*.c, verify*.c, emit*.c, docs/plan-format.md. */
#ifndef FSDPC_PLANNER_PLAN_PLAN_H
#define FSDPC_PLANNER_PLAN_PLAN_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/recipe.h"
#include "base/vec.h"

enum {
  PLAN_VERSION = 1,
  PLAN_ALIGN_BYTES = 256,   /* of every buffer's offset */
  PLAN_ALIGN_ELEMENTS = 64, /* of every parameter's offset in its unit, and of a shard's length; also the block over
                               which squares are summed before exact accumulation */
  EXACT_DIGITS = 40,        /* i64 words of an exact sum; instr.def spells it as the literal 40 */
  PLAN_NONE = -1,
  PLAN_MAX_RANK = 4,        /* of a tensor's shape */
  PLAN_MAX_BYTES_LOG2 = 50  /* larger sizes in a plan file are refused */
};

#define STREAMS(X)                                                                                           \
  X(COMPUTE, "compute")                                                                                      \
  X(GATHER, "gather")                                                                                        \
  X(REDUCE, "reduce")                                                                                        \
  X(REPLICATE, "replicate")                                                                                  \
  X(COPY_IN, "copy_in")                                                                                      \
  X(COPY_OUT, "copy_out")

typedef enum {
#define X(id, name) STREAM_##id,
  STREAMS(X)
#undef X
      STREAM_COUNT
} StreamId;

typedef enum {
#define INSTR(id, name, stream, operands, ints, reals, meaning) INSTR_##id,
#include "planner/plan/instr.def"
#undef INSTR
  INSTR_COUNT
} InstrOp;

/* What a buffer holds; memory is reported by these classes. */
#define BUF_CLASSES(X)                                                                                       \
  X(PARAM, "parameters")      /* persistent: master shard, and its copy in the compute dtype */              \
  X(GRAD, "gradients")        /* persistent: reduced gradient shard */                                       \
  X(OPTIM, "optimizer")       /* persistent: moments, loss scaling */                                                      \
  X(SCALAR, "scalars")        /* persistent: loss, count, norm */                                            \
  X(GATHERED, "gathered")     /* a unit's full parameters */                                                 \
  X(GRADFULL, "full_gradients") /* a unit's unreduced gradients */                                           \
  X(ACTIVATION, "activations") /* values of forward, saved or recomputed; gradients of activations */        \
  X(INPUT, "inputs")                                                                                         \
  X(WORKSPACE, "workspace")                                                                                  \
  X(CACHE, "cache") /* persistent, forward plans: keys and values of the context so far */

typedef enum {
#define X(id, name) BUF_##id,
  BUF_CLASSES(X)
#undef X
      BUF_CLASS_COUNT
} BufClass;

#define PHASES(X) X(BEGIN, "begin") X(FORWARD, "forward") X(BACKWARD, "backward") X(RECOMPUTE, "recompute") X(UPDATE, "update")
typedef enum {
#define X(id, name) PHASE_##id,
  PHASES(X)
#undef X
      PHASE_COUNT
} Phase;

/* Loss scaling in f16: what the persistent buffer of SCALE_COUNT and CLIP_SCALED holds. */
typedef enum {
  SCALER_SCALE,   /* what gradients are multiplied by */
  SCALER_GOOD,    /* steps since it changed or a step was skipped */
  SCALER_SKIPPED, /* steps skipped so far */
  SCALER_WORDS    /* instr.def spells it as the literal 3 */
} ScalerWord;

typedef uint32_t StrId; /* offset into Plan.strings; 0 is "" */

typedef struct StrSlot {
  uint32_t hash;
  StrId id; /* 0: free */
} StrSlot;

typedef struct PlanSpan {
  StrId path; /* 0: no position */
  uint32_t line, column;
} PlanSpan;

typedef struct PlanParam {
  StrId name;
  int32_t unit;
  uint64_t offset; /* elements from the start of the unit's flat tensor, multiple of PLAN_ALIGN_ELEMENTS */
  int32_t rank;
  int64_t dim[PLAN_MAX_RANK];
  Init init;
  bool decay; /* weight decay applies */
} PlanParam;

typedef struct PlanUnit {
  StrId name;
  int32_t first_param, param_count; /* params of a unit are contiguous in Plan.params */
  uint64_t numel;                   /* elements of its parameters */
  uint64_t shard;                   /* elements on one rank, padded; full = shard * world.shard */
  bool reshard;                     /* released after forward and gathered again for backward */
  int32_t param_buf, grad_buf, m_buf, v_buf, cast_buf; /* persistent shards, PLAN_NONE where absent.
                                       param: in the recipe's master dtype, or the compute dtype where there is no gradient;
                                       cast: copy in the compute dtype where that is another;
                                       v of Adafactor: no shard, but the unit's factored moments */
} PlanUnit;

typedef struct PlanBuf {
  StrId name; /* "u3.full", "h.2.attn.c_attn.y" */
  BufClass class;
  DType dtype;
  uint64_t numel, bytes; /* bytes = numel * dtype size */
  uint64_t offset;       /* in its arena, multiple of PLAN_ALIGN_BYTES */
  bool host;             /* lies in the host arena */
  bool persistent;
  int32_t first, last;   /* list positions; 0 and the last instruction when persistent */
  int32_t unit;          /* or PLAN_NONE */
} PlanBuf;

typedef struct PlanOperand {
  int32_t buf; /* PLAN_NONE: absent */
  uint32_t ld; /* elements between rows; 0: rows are contiguous (= cols) */
  uint64_t offset : 63; /* elements; there are so many operands that each byte counts */
  bool add : 1;         /* mode 'a': add into */
} PlanOperand;

typedef struct PlanInstr {
  InstrOp op;
  StreamId stream;
  Phase phase;
  uint32_t operands, ints, reals; /* first index in Plan.operands/ints/reals; counts come from instr.def */
  uint32_t waits, wait_count;     /* range of Plan.waits: events */
  int32_t record;                 /* event, or PLAN_NONE */
  StrId name;                     /* the layer or unit it serves: "h.3.mlp.c_fc" */
  PlanSpan span;
  uint64_t ns;                    /* predicted, alone on its device */
  uint64_t flops, bytes;          /* work and memory or wire traffic it was predicted from */
} PlanInstr;

typedef struct PlanSegment {
  StrId name; /* "begin", "first", "micro", "last", "update" */
  int32_t first, end; /* instrs [first, end) */
  uint64_t count;
} PlanSegment;

/* A model input, fed by instruction INPUT. */
typedef enum { FEED_TOKENS, FEED_TARGETS } FeedKind; /* targets are tokens shifted by one */
typedef struct PlanInput {
  StrId name;
  FeedKind feed;
  int64_t sample_numel; /* values of one sample: ctx */
  int64_t vocab;        /* ids are below this */
} PlanInput;

typedef struct PlanWorld {
  uint32_t ranks, shard, replicas, ranks_per_node; /* ranks = shard * replicas */
  uint64_t micro_batch;  /* samples a rank takes in one repetition of "micro" */
  uint64_t accumulation; /* repetitions a step */
} PlanWorld;

/* What the plan was made for. */
typedef enum { PLAN_DEVICE_CPU, PLAN_DEVICE_GPU } PlanDevice;

/* What the planner knew and chose; not needed to run. */
typedef struct PlanSummary {
  StrId strategy, wrap, checkpoint;
  uint32_t prefetch;
  uint64_t budget_bytes;
  uint64_t step_ns;        /* simulated */
  uint64_t lower_bound_ns; /* no plan of the searched space is faster under this cost model */
  StrId bound_by;
  uint64_t kept_bytes;     /* activations saved from forward to backward */
  double model_flops_per_sample; /* forward and backward, without recompute */
  double peak_flops;             /* of one device in the compute dtype */
  uint64_t launch_ns;            /* part of every compute instruction's ns: starting one kernel; 0: unknown */
  PlanDevice device;
  uint64_t device_bytes; /* that a process can have on one GPU; 0: not stated */
} PlanSummary;

/* How predicted durations hold when streams run beside each other, and how far they may be off. All from 0 to 1. */
typedef struct PlanOverlap {
  double contention;    /* seconds of compute lost for a second of communication beside it */
  double comm_slowdown; /* seconds a collective loses for a second of compute beside it */
  double compute_spread, comm_spread; /* relative uncertainty of one duration */
} PlanOverlap;

typedef struct Plan {
  StrId model, source_path, cluster;
  uint64_t source_hash;
  bool training; /* false: a forward plan, for generate; the last instruction writes `output_buf` */
  int32_t output_buf;
  PlanWorld world;
  Recipe recipe;
  PlanSummary summary;
  PlanOverlap overlap;
  uint32_t layers; /* iterations of the outermost repeat, for reports */
  uint64_t param_numel;
  uint64_t arena_bytes, persistent_bytes, max_live_bytes; /* of the device. max_live <= arena: largest sum of live sizes */
  uint64_t host_bytes; /* of the host arena; 0: there is none */
  uint32_t queue[STREAM_COUNT]; /* stream -> queue; streams with one queue serialise in list order */
  int32_t loss_buf, count_buf, norm_buf; /* f64 scalars, after the update segment: sums over all ranks */
  uint32_t event_count;

  VEC(PlanInput) inputs;
  VEC(PlanParam) params;
  VEC(PlanUnit) units;
  VEC(PlanBuf) bufs;
  VEC(PlanInstr) instrs;
  VEC(PlanSegment) segments;
  VEC(PlanOperand) operands;
  VEC(int64_t) ints;
  VEC(double) reals;
  VEC(int32_t) waits;
  VEC(char) strings; /* starts with "\0" */
  VEC(StrSlot) string_index; /* plan_intern's hash table; no part of the plan's meaning */
} Plan;

/* --- instruction table ------------------------------------------------------------------------------------------- */

enum { INSTR_MAX_OPERANDS = 12, INSTR_MAX_INTS = 8, INSTR_MAX_REALS = 4, DIM_MAX_FACTORS = 3 };

typedef enum { MODE_READ, MODE_WRITE, MODE_UPDATE, MODE_ADD } OperandMode;

/* A factor of a dimension: an int attribute (index >= 0) or a literal or the world's F. */
typedef struct DimFactor {
  enum { FACTOR_INT, FACTOR_LITERAL, FACTOR_F } kind;
  int64_t value; /* index of the int, or the literal */
} DimFactor;

enum { OPERAND_FLOAT = -1, OPERAND_ANY = -2 };

typedef struct OperandSpec {
  char name[12];
  OperandMode mode;
  bool optional;
  int dtype; /* a DType, or OPERAND_FLOAT: any float, or OPERAND_ANY */
  DimFactor rows[DIM_MAX_FACTORS], cols[DIM_MAX_FACTORS];
  int rows_count, cols_count; /* rows_count 0: one row */
} OperandSpec;

typedef struct InstrSpec {
  const char *name;
  StreamId stream;
  int operand_count, int_count, real_count;
  OperandSpec operands[INSTR_MAX_OPERANDS];
  char ints[INSTR_MAX_INTS][16];
  int like[INSTR_MAX_INTS]; /* the int that this one equals where the text leaves it out; itself: it is never left out */
  char reals[INSTR_MAX_REALS][16];
  const char *meaning;
} InstrSpec;

/* The parsed table, INSTR_COUNT rows; allocated once into the arena by whoever needs it. */
const InstrSpec *instr_specs(Arena *arena);
/* Adds to the loss and begins backward. */
static inline bool instr_is_loss(InstrOp op) {
  return op == INSTR_CROSS_ENTROPY || op == INSTR_LINEAR_CROSS_ENTROPY || op == INSTR_LINEAR_CROSS_ENTROPY_X ||
         op == INSTR_MSE;
}

/* rows x cols of an operand under these attributes and this shard group; false when a product overflows or a factor is <= 0. */
bool operand_dims(const OperandSpec *spec, const int64_t *ints, uint32_t shard, uint64_t *rows, uint64_t *cols);
/* rows x cols of operand k of an instruction; false when a product overflows or a factor is <= 0. */
bool plan_operand_dims(const Plan *plan, const InstrSpec *specs, const PlanInstr *instr, int k, uint64_t *rows,
                       uint64_t *cols);

const char *stream_name(StreamId stream);
const char *phase_name(Phase phase);
const char *buf_class_name(BufClass class);

/* --- building and reading -------------------------------------------------------------------------------------- */

Plan *plan_new(Arena *arena);
StrId plan_intern(Arena *arena, Plan *plan, const char *text); /* appends what no interned text equals */
/* Without looking for an equal text, which takes longer than anything else: for names that stand in the plan once. */
StrId plan_append(Arena *arena, Plan *plan, const char *text);
static inline const char *plan_str(const Plan *plan, StrId id) { return plan->strings.data + id; }
static inline const PlanOperand *plan_operand(const Plan *plan, const PlanInstr *instr, int k) {
  return &plan->operands.data[instr->operands + (uint32_t)k];
}
static inline int64_t plan_int(const Plan *plan, const PlanInstr *instr, int k) {
  return plan->ints.data[instr->ints + (uint32_t)k];
}
static inline double plan_real(const Plan *plan, const PlanInstr *instr, int k) {
  return plan->reals.data[instr->reals + (uint32_t)k];
}
/* A run of micro-batches: the segment has an `input`. */
bool plan_segment_feeds(const Plan *plan, uint32_t segment);
/* What was chosen as --strategy takes it: "hybrid_shard:8". */
const char *plan_strategy(Arena *arena, const Plan *plan);
/* How often collectives of this kind (STREAM_GATHER, STREAM_REDUCE) serve each unit: "micro_batch", "step", or NULL where there are none. */
const char *plan_cadence(const Plan *plan, StreamId stream);
/* All micro-batches run the same operators: the first segment of them speaks for the others. The
 * longest segment where none is fed. */
const PlanSegment *plan_first_micro(const Plan *plan);
/* Its parameters do not learn: no gradient, no moments, no reduction, no update. */
static inline bool plan_unit_frozen(const Plan *plan, const PlanUnit *unit) {
  return plan->training && unit->grad_buf == PLAN_NONE;
}
/* Second moments that Adafactor keeps of a tensor: of rows, then of columns (the last dimension); of each element below
 * rank 2. The dimensions have been checked. */
uint64_t factored_numel(int32_t rank, const int64_t *dim);
uint64_t plan_factored_numel(const Plan *plan, const PlanUnit *unit);
/* Words of adafactor_sums' result. */
static inline uint64_t plan_factored_words(const Plan *plan, const PlanUnit *unit) {
  return plan_factored_numel(plan, unit) + (uint64_t)unit->param_count * EXACT_DIGITS;
}
uint64_t plan_frozen_numel(const Plan *plan);
/* One number for both arenas: the host's addresses follow the device's. */
static inline uint64_t plan_address(const Plan *plan, const PlanBuf *buf) {
  return buf->offset + (buf->host ? plan->arena_bytes : 0);
}
/* Bytes of the host arena by class, in the segment that has most of it: "activations 12.0 GiB, optimizer 3.00 GiB"; "" where nothing is offloaded. */
const char *plan_host_text(Arena *arena, const Plan *plan);
/* Bytes of rank r's device arena by class at the instant of the peak, that is at list position *at where the sum of the sizes
 * of live buffers is largest. */
void plan_peak(const Plan *plan, uint64_t by_class[BUF_CLASS_COUNT], int32_t *at);

#endif
