/* Owns: the backend interface: where arenas live and how a segment's instructions are executed. The CPU backend runs
 * each queue on a thread; the CUDA backend launches on streams. */
#ifndef FSDPC_RUNTIME_BACKEND_H
#define FSDPC_RUNTIME_BACKEND_H

#include "planner/plan/plan.h"
#include "runtime/comm.h"

/* What changes from step to step; everything else is in the plan. */
typedef struct StepState {
  uint64_t step;         /* 1-based */
  uint64_t skipped;      /* steps before this one that an overflow in f16 skipped: the optimizer does not count them */
  double lr;
  uint64_t repetition;   /* of the current segment */
  uint64_t micro_batch;  /* number in the step: segments with an `input` take one each time they run */
  uint64_t first_sample; /* global number of the first sample of the step */
  bool forward_only;     /* evaluation: nothing after list position `turn` runs, nothing is dropped out */
  int32_t turn;          /* of the last instruction that adds to the loss */
  bool timed;            /* on some rank: collectives are issued alike on all, by graphs or one by one */
  uint64_t position;     /* of the first row in its context (instr.def); 0 in training */
} StepState;

typedef struct InstrTime {
  uint64_t start_ns, end_ns; /* monotonic clock */
} InstrTime;

/* Gives INPUT and COUNT their data. Called from the queue that runs them; must not allocate. */
typedef struct Feed Feed;
struct Feed {
  /* Fills `count` ids for input `input` of the micro-batch `micro_batch` of step state `state` on this rank. */
  void (*fill)(Feed *, const StepState *state, int32_t input, int32_t *out, uint64_t count);
  /* Valid (not `ignore`) values of input `input` over the whole step on this rank. */
  uint64_t (*count)(Feed *, const StepState *state, int32_t input, int64_t ignore);
};

typedef struct Backend Backend;
struct Backend {
  const char *name;
  _Atomic uint64_t *beats; /* RankStatus.beats, which what moves many values between steps lets grow; NULL: nobody watches */
  /* Runs one repetition of a segment; calls come in the order of the plan, step after step. Every queue has finished when
   * the call for a step's last repetition of its last segment returns; earlier calls may return as soon as the work is
   * queued (with times: never). False on failure, with a message in error() naming rank, stream, instruction and layer.
   * times: one an instruction, or NULL. */
  bool (*run_segment)(Backend *, int32_t segment, const StepState *state, InstrTime *times);
  bool (*write)(Backend *, int32_t buf, uint64_t first_byte, const void *data, uint64_t bytes);
  bool (*read)(Backend *, int32_t buf, uint64_t first_byte, void *data, uint64_t bytes);
  const char *(*error)(Backend *); /* of the first failure */
  int (*exit_code)(Backend *);     /* that it calls for: RUN_PEER_FAILED where another rank is to blame */
  uint64_t (*high_water)(Backend *); /* largest arena offset + 1 that any executed instruction's operands reached */
  void (*close)(Backend *);
};

#endif
