/* Owns: what started this process, by the variables that torchrun, Open MPI and Slurm leave. Where one of them started
 * several processes, each is one rank and they must find each other: a process that ran alone would train a
 * model of its own without a word. So variables that do not make sense together are errors, never ignored. */
#ifndef FSDPC_RUNTIME_LAUNCHER_H
#define FSDPC_RUNTIME_LAUNCHER_H

#include "runtime/failure.h"
#include <stdint.h>

typedef struct Launcher {
  const char *name;     /* "torchrun", ...; NULL: none, or a Slurm step of one task, as an interactive shell is */
  uint32_t rank, ranks; /* of the job */
  uint32_t local_rank, local_ranks; /* of the job's processes on this host; all of them where there is one host */
  int32_t starter;      /* the process that started this one, and with whose end the job is at its own; 0: one that may go, as a shell does */
  char job[512];        /* what the processes of this job, and no others, have in common */
} Launcher;

/* Whether the job has ranks on other hosts. */
static inline bool launcher_spans_hosts(const Launcher *launcher) { return launcher->local_ranks < launcher->ranks; }

/* By this process's environment. Precedence: torchrun, Open MPI, Slurm step. */
bool launcher_detect(Launcher *launcher, Failure *failure);

#endif
