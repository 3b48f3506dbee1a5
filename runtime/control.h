/* Owns: what the ranks of a job and their parent share besides the arenas: the stop flag, the first failure, where each
 * rank is, and the counters of the communicator. Lies in anonymous shared memory mapped before the fork, so nothing
 * has a name that could be left behind. All zero is its start. */
#ifndef FSDPC_RUNTIME_CONTROL_H
#define FSDPC_RUNTIME_CONTROL_H

#include "runtime/counter.h"
#include "runtime/failure.h"

/* How often this rank has arrived at, and departed from, a collective. A cache line each: peers poll them. */
typedef struct CommLane {
  _Alignas(64) Counter arrived;
  _Alignas(64) Counter departed;
} CommLane;

typedef struct RankStatus {
  _Alignas(64) _Atomic uint64_t step; /* 0: not in a step yet */
  _Atomic int32_t instr;              /* list position + 1 of the latest instruction started, 0: none */
  _Atomic uint64_t beats;             /* grows while something slow but healthy goes on, such as writing a file */
  /* The latest checkpoint file of this rank; valid once `saved` has reached the checkpoint's number. */
  uint64_t saved_bytes;
  uint32_t saved_crc;
  Counter saved;
  double loss_sum; /* of this rank in the evaluation under way: read by all between two barriers */
  _Atomic uint32_t finished; /* not 0: ended well, so that its process may end too */
} RankStatus;

/* What the parent asks for and rank 0 makes the decision of one step, which all ranks then carry out after it. */
enum { REQUEST_SAVE = 1, REQUEST_STOP = 2, DECISIONS = 4 /* ranks are never more than a step apart */ };

enum { CONTROL_FREE, CONTROL_CLAIMED, CONTROL_SAID };

typedef struct Control {
  _Atomic uint32_t stop;   /* not 0: give up at once, without a word */
  _Atomic uint32_t failed; /* CONTROL_* : who claims it may write the fields below, once */
  uint32_t failed_rank;    /* whose process says so */
  Failure failure;
  _Atomic uint32_t request;              /* REQUEST_* */
  _Atomic uint64_t decision[DECISIONS];  /* of step n at n % DECISIONS: n * 4 + REQUEST_* */
  Counter committed;                     /* checkpoints of this run that are in their place */
  _Atomic uint64_t saved_step;           /* of the latest of them, 0: none */
  /* The file being saved, for the other ranks: /proc/<pid>/fd/<fd> of rank 0. */
  _Atomic int32_t save_pid, save_fd;
  char save_temp[4096]; /* a temporary file that the parent must remove when the job dies; "" when there is none */
} Control;

/* Makes this the job's failure unless another came first, and stops every rank. */
void control_fail(Control *control, uint32_t rank, const Failure *failure);

#endif
