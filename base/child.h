/* Owns: that no child process outlives the one that started it. */
#ifndef FSDPC_BASE_CHILD_H
#define FSDPC_BASE_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <unistd.h>

/* In the child: from now on it is killed when the parent ends, however that does. False: the parent has ended already. */
static inline bool child_ends_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return getppid() == parent;
}

#endif
