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
} RankStatus;

enum { CONTROL_FREE, CONTROL_CLAIMED, CONTROL_SAID };

typedef struct Control {
  _Atomic uint32_t stop;   /* not 0: give up at once, without a word */
  _Atomic uint32_t failed; /* CONTROL_* : who claims it may write the fields below, once */
  uint32_t failed_rank;
  Failure failure;
  /* The file being saved, for the other ranks: /proc/<pid>/fd/<fd> of rank 0. */
  _Atomic int32_t save_pid, save_fd;
  char save_temp[4096]; /* a temporary file that the parent must remove when the job dies; "" when there is none */
} Control;

/* Makes this the job's failure unless another came first, and stops every rank. */
void control_fail(Control *control, uint32_t rank, const Failure *failure);

#endif
