/* Owns: what a parent knows of the ranks it watches, its own and the others'. */
#ifndef FSDPC_RUNTIME_WATCH_H
#define FSDPC_RUNTIME_WATCH_H

#include "runtime/launch/bridge.h"
#include "runtime/launch/launch.h"

#include <signal.h>
#include <sys/types.h>

typedef struct Watch {
  const LaunchJob *job;
  SharedMemory memory;
  Bridge *bridge;              /* to other hosts, where this process leads on its own; else NULL */
  pid_t *pids;                 /* 0: not started, or reaped */
  uint32_t first_own, end_own; /* the ranks that are started here */
  uint32_t alive;
  sigset_t signals, old_mask;
  struct sigaction old_child;
  int signal;     /* that asked us to stop at once, or 0 */
  int asked;      /* that asked the ranks to save and stop, or 0 */
  uint64_t asked_ms; /* when */
  bool orphaned;  /* what started this process is gone */
  bool peer_failed; /* the job stopped before a signal asked for it: launchers end the rest of a broken job by one */
  bool died;      /* a rank ended other than well */
  uint32_t first; /* which */
  int first_status;
  uint64_t mark, mark_ms; /* the ranks' progress, and since when it is that */
  uint64_t looked_ms;     /* when it was last looked at; 0: not yet */
  uint32_t *polls;        /* one a rank: CommLane.polls when half of what is waited before a word was over */
  uint64_t noted_ms;      /* how long it had been that when a note last said so; 0: none has */
  uint64_t longest_ms;    /* that it ever was with every rank free to run: what this job is known to take */
} Watch;

/* "in step 7 at ..." */
void watch_place(const Watch *watch, uint32_t rank, char *out, size_t bytes);
/* Each fails the job when it finds a reason to. */
void watch_progress(Watch *watch, uint64_t now_ms); /* nobody gets on: notes, and after the job's timeout */
void watch_peers(Watch *watch);    /* another process of this host ended though its rank had not */
void watch_hosts(Watch *watch);    /* tells other hosts and hears from them; one is gone, or cannot be reached */

#endif
