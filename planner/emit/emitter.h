/* Owns: emission under way, and what its files share. emit.c is the order of segments; emit_state.c lists what persists between
 * micro-batches, emit_micro.c these, and emit_update.c the step's end. */
#ifndef FSDPC_PLANNER_EMITTER_H
#define FSDPC_PLANNER_EMITTER_H

#include "planner/emit/emit.h"

/* A buffer lives at least to this list position. */
typedef struct Hold {
  int32_t buf, last;
} Hold;

typedef struct Emitter {
  Arena *arena;
  const EmitInput *in;
  const Program *program;
  const Decisions *decisions;
  Plan *plan;
  Schedule schedule;
  int32_t *buf_of;       /* by value: its present buffer */
  int32_t *away;         /* by value: the host buffer that it was stored to */
  int32_t *left;         /* by trip: the device buffer that was stored */
  int32_t *gathered;     /* by unit: its present full buffer */
  int32_t *shard_image;  /* by use: the fetched shard that it gathers, in this micro-batch */
  int32_t *grad_full;    /* by unit */
  int32_t *grad_part;    /* by unit: a gradient summed over the shard group and not yet over the replicas, in this micro-batch */
  int32_t *grad_image;   /* by unit: the device's side of a gradient that is offloaded, in this micro-batch */
  int32_t *cache;        /* by number of the cache */
  uint64_t *param_offset; /* by graph param */
  int32_t *step_instr;     /* by step, of the pass that is emitted */
  StrId *layer_name, *value_name; /* by graph op and by value of the program; 0: not in the plan yet */
  const char *path;            /* the last step's source */
  StrId path_id;
  VEC(Hold) holds;
  int32_t scale_buf, acc_buf, scaler_buf, scaled_count_buf; /* the last two: where the loss is scaled */
} Emitter;

/* A non-persistent buffer's lifetime is found from its accesses and holds. */
int32_t emit_named_buf(Emitter *e, StrId name, BufClass class, DType dtype, uint64_t numel, int32_t unit, bool persistent);
int32_t emit_buf(Emitter *e, const char *name, BufClass class, DType dtype, uint64_t numel, int32_t unit, bool persistent);
int32_t emit_instr(Emitter *e, InstrOp op, Phase phase, const char *name, const PlanOperand *operands, const int64_t *ints,
                   const double *reals);
/* The same without its cost; valid until the next one. */
PlanInstr *emit_costless(Emitter *e, InstrOp op, Phase phase, StrId name, const PlanOperand *operands, const int64_t *ints,
                         const double *reals);
/* "u3.full" */
const char *emit_unit_text(Emitter *e, uint32_t unit, const char *suffix);
void emit_hold(Emitter *e, int32_t buf, int32_t last);
void emit_begin_segment(Emitter *e, const char *name, uint64_t count);
void emit_end_segment(Emitter *e);

/* --- offload: a persistent buffer's image on the device ------------------------------------------------------------ */

/* The buffer itself where it lies on the device; else a new buffer, fetched where `reads`. */
int32_t emit_image(Emitter *e, int32_t buf, Phase phase, bool reads);
/* Stores the image back, where it is one. */
void emit_store_image(Emitter *e, int32_t buf, int32_t image, Phase phase);
void emit_fetch(Emitter *e, int32_t host, int32_t device, Phase phase, const char *name);
void emit_store(Emitter *e, int32_t device, int32_t host, Phase phase, const char *name);

/* --- emit_state.c --------------------------------------------------------------------------------------------------- */

void emit_units(Emitter *e);
void emit_scalars(Emitter *e);
/* What is held over micro-batches. */
void emit_held(Emitter *e);
/* Segment "begin". */
void emit_begin(Emitter *e);
/* The same for inference: caches hold zeros until they are filled, since attention over a cache is handed all of it. */
void emit_caches(Emitter *e);
bool emit_gathers_once(const Emitter *e);
/* Contributions go straight into the persistent gradient: nothing is reduced, or all of it in place, once. */
bool emit_adds_straight(const Emitter *e);
int32_t emit_full(Emitter *e, int32_t u, bool persistent);
int32_t emit_gradfull(Emitter *e, int32_t u, bool persistent);

/* --- emit_micro.c ---------------------------------------------------------------------------------------------------- */

/* The segment of a pass. requires: the program's schedule. */
void emit_pass(Emitter *e, const MicroPass *pass);

/* --- emit_update.c --------------------------------------------------------------------------------------------------- */

/* Segment "update". */
void emit_update(Emitter *e);

#define OPERANDS(...) ((const PlanOperand[]){__VA_ARGS__})
#define WHOLE(b)      {.buf = (b)}
#define ADDING(b, a)  {.buf = (b), .add = (a)}
#define INTS(...)     ((const int64_t[]){__VA_ARGS__})

#endif
