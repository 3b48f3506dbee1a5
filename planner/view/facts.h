/* Owns: figures about a plan that the views share: which unit an instruction serves, what each unit costs in each
 * pass of each segment, which communication compute waits for, what is live when, where the time of a step goes.
 *
 * Everything is derived from the plan and one simulation (or one measurement) of it. */
#ifndef FSDPC_PLANNER_VIEW_FACTS_H
#define FSDPC_PLANNER_VIEW_FACTS_H

#include "base/text.h"
#include "planner/plan/plan.h"
#include "planner/plan/sim.h"

/* Phases as people count them: recomputation is part of backward. */
typedef enum { PASS_BEGIN, PASS_FORWARD, PASS_BACKWARD, PASS_UPDATE, PASS_COUNT } Pass;

/* One unit in one pass of one segment; ns of one repetition. */
typedef struct PassFact {
  int32_t segment;
  Pass pass;
  int32_t unit; /* PLAN_NONE: instructions that serve no unit */
  int32_t first_use; /* list position */
  uint64_t compute_ns, recompute_ns, gather_ns, reduce_ns; /* reduce: with the all-reduce between replicas */
  uint64_t exposed_ns;                                     /* of its communication */
  uint64_t gather_bytes, reduce_bytes;                     /* of the full tensor, 0: none */
  uint64_t live_bytes;                                     /* most while it computes */
} PassFact;

/* One unit in the whole step. */
typedef struct UnitFact {
  int32_t first_use;                     /* list position of compute, INT32_MAX: never */
  uint64_t gathers, reduces, replicates; /* over all repetitions */
  uint64_t gathers_again, again_ns;      /* of these, for backward */
  uint64_t gather_bytes, reduce_bytes;   /* of one */
  uint64_t gather_ns, reduce_ns, replicate_ns, exposed_ns, compute_ns, recompute_ns, update_ns;
  DType dtype; /* as gathered */
} UnitFact;

/* Where a step's time goes. The shares add up to step_ns. */
#define SHARES(X)                                                                                            \
  X(FORWARD, "forward")                                                                                      \
  X(BACKWARD, "backward")                                                                                    \
  X(RECOMPUTE, "recompute")                                                                                  \
  X(UPDATE, "optimizer")                                                                                     \
  X(BEGIN, "begin")                                                                                          \
  X(GATHER, "exposed gather")                                                                                \
  X(REDUCE, "exposed reduce")                                                                                \
  X(REPLICATE, "exposed replicate")                                                                          \
  X(OTHER, "other waiting")
typedef enum {
#define X(id, name) SHARE_##id,
  SHARES(X)
#undef X
      SHARE_COUNT
} Share;

/* Device memory that a run takes beside the arena, which the plan does not place. */
typedef struct Beside {
  uint64_t bytes;
  const char *parts; /* in words; NULL: there is none, or it is not known */
} Beside;

typedef struct Facts {
  Arena *arena;
  const Plan *plan;
  const SimResult *sim;
  const InstrSpec *specs;
  int32_t *segment_of, *unit_of; /* by instruction */
  int32_t *recorder;             /* by event: the instruction that records it */
  uint64_t *exposed_ns;          /* by instruction: compute idle that this communication answers for, one repetition */
  uint64_t *live_bytes;          /* by list position */
  uint64_t segment_begin[8];     /* ns, first repetition */
  VEC(PassFact) passes;          /* in order of segment, pass and first use */
  UnitFact *units;
  uint64_t share_ns[SHARE_COUNT];
  uint32_t launches;             /* kernels of a step */
  uint64_t launch_ns;            /* predicted time of launching them, part of the shares of compute */
  Beside beside;                 /* whoever knows it fills it in */
} Facts;

/* All memory is arena's. */
Facts *facts_of(Arena *arena, const Plan *plan, const SimResult *sim);

const char *share_name(Share share);
const char *pass_name(Pass pass);
/* Index of the int attribute "unit", or -1. */
int instr_unit_index(const InstrSpec *spec);

/* Units that differ in nothing but their name, by policy and sizes. */
bool units_alike(const Plan *plan, int32_t a, int32_t b);
/* The number of a unit's colour: alike units share one, so that colours tell kinds apart.
 * report.css and timeline.c have UNIT_HUES of them. */
enum { UNIT_HUES = 8 };
int unit_hue(const Plan *plan, int32_t unit);
/* units in the order of their first use. */
int32_t *units_by_use(const Facts *facts);

/* How a sequence goes on from `first`: a pattern of `period` neighbours that occurs `count` times. The shortest of those that
 * cover most, give or take a tenth; 1 and 1 where nothing repeats. */
typedef struct Repeat {
  uint32_t period, count;
} Repeat;
Repeat find_repeat(uint32_t first, uint32_t end, bool (*alike)(const void *context, uint32_t a, uint32_t b), const void *context);
/* The same for units in some order. */
typedef struct UnitOrder {
  const Plan *plan;
  const int32_t *units;
} UnitOrder;
Repeat find_unit_repeat(const UnitOrder *order, uint32_t first);

/* The step if work of one kind took no time, all else as planned: a ceiling for what improving it can bring. */
typedef enum { WITHOUT_GATHER, WITHOUT_REDUCE, WITHOUT_RECOMPUTE, WITHOUT_UPDATE, WITHOUT_COMPUTE, WITHOUT_LAUNCH } Without;
uint64_t step_without(const Plan *plan, Without what);
/* How many times as fast a step of `ns` is: "1.04"; of one in which hardly anything is left, "over 100". */
const char *speed_up(Arena *arena, uint64_t step_ns, uint64_t ns);

/* Buffers live at one list position, those of repeated blocks together: "h.*.mlp.c_fc". */
typedef struct LiveGroup {
  const char *name;
  BufClass class;
  uint32_t count;
  uint64_t bytes, least, most; /* of all, of the smallest and of the largest */
} LiveGroup;
typedef VEC(LiveGroup) LiveGroups;
/* Largest first. */
LiveGroups live_groups(Arena *arena, const Plan *plan, int32_t at);

uint64_t tensor_numel(const PlanParam *param);
/* How long units that are not released after forward stay gathered: "until backward", or "over all micro-batches". */
const char *gathered_until(const Plan *plan);

/* "model.layers.*.mlp": numbers between dots, and that of a unit's buffer ("u3.full"), become '*'. */
const char *name_pattern(Arena *arena, const char *name);
/* "h.0 .. 11": what both begin with is said once; "h.*.attn" where they differ within */
const char *range_name(Arena *arena, const char *first, const char *last);

#endif
