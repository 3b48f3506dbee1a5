/* Owns: what the ranks on a host and their parents share besides the arenas: the stop flag, the first failure, where each
 * rank is, and the counters of the communicator. Lies in anonymous shared memory mapped before the fork, so nothing
 * has a name that could be left behind. All zero is its start. */
#ifndef FSDPC_RUNTIME_CONTROL_H
#define FSDPC_RUNTIME_CONTROL_H

#include "runtime/counter.h"
#include "runtime/failure.h"
#include <netinet/in.h>

/* How often this rank has arrived at, and departed from, a collective. A cache line each: peers poll them. */
typedef struct CommLane {
  _Alignas(64) Counter arrived;
  uint64_t word; /* that this rank shares: read by all between the two */
  _Alignas(64) Counter departed;
  _Atomic uint32_t polls; /* grows while this rank waits for messages: of those who met equally often, it is not stuck */
} CommLane;

/* Whether a rank's process is kept from running, and so comes to nothing until someone lets it. */
enum { HELD_NOT, HELD_BY_SIGNAL, HELD_BY_DEBUGGER };

typedef struct RankStatus {
  _Alignas(64) _Atomic uint64_t step; /* 0: not in a step yet */
  _Atomic int32_t instr;              /* list position + 1 of the latest instruction started, 0: none */
  _Atomic uint64_t beats;             /* grows while something slow but healthy goes on, such as reading or writing a file */
  /* The latest checkpoint file of this rank; valid once `saved` has reached the checkpoint's number. */
  uint64_t saved_bytes;
  uint32_t saved_crc;
  Counter saved;
  _Atomic uint32_t held;     /* HELD_*, as its parent last saw it */
  _Atomic uint32_t finished; /* not 0: ended well, so that its process may end too */
} RankStatus;

/* What a parent asks of the ranks; they share it after each step and carry it out together. */
enum { REQUEST_SAVE = 1, REQUEST_STOP = 2 };

/* Where rank 0's host awaits the other hosts, and the proof that they are of this job. */
enum { OFFER_ADDRESSES = 8 };
typedef struct Offer {
  struct sockaddr_in6 addresses[OFFER_ADDRESSES]; /* or sockaddr_in, by their family */
  uint32_t count;
  unsigned char token[32];
} Offer;

enum { CONTROL_FREE, CONTROL_CLAIMED, CONTROL_SAID };

typedef struct Control {
  _Atomic uint32_t stop;   /* not 0: give up at once, without a word */
  _Atomic uint32_t failed; /* CONTROL_* : who claims it may write the fields below, once */
  uint32_t failed_rank;    /* whose process says so */
  Failure failure;
  _Atomic uint32_t request;              /* REQUEST_* */
  Offer offer;                           /* on several hosts: rank 0's host's from the start, elsewhere once `offered` */
  _Atomic uint32_t offered;
  Counter committed;                     /* checkpoints of this run that are in their place */
  _Atomic uint64_t saved_step;           /* of the latest of them, 0: none */
  _Atomic uint32_t orphaned;             /* not 0: a parent has said that what started the run is gone */
  _Atomic uint32_t line_open;            /* rank 0's line of progress stands on the terminal, unended */
  /* The file being saved, for the other ranks: /proc/<pid>/fd/<fd> of rank 0. */
  _Atomic int32_t save_pid, save_fd;
  char save_temp[4096]; /* a temporary file that the parent must remove when the job dies; "" when there is none */
} Control;

/* Makes this the job's failure unless another came first, and stops every rank. */
void control_fail(Control *control, uint32_t rank, const Failure *failure);
/* Before anything else is said: ends the line of progress, whose rank may not be there to do it. */
void control_end_line(Control *control);
/* Adds to a failure of files, where there is a checkpoint to go on from, which that is. */
void control_name_saved(Control *control, Failure *failure);

#endif
