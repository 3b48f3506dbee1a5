/* Owns: starting the ranks of a job as processes, watching them, and leaving nothing behind. Where a launcher has started
 * a process a rank, each starts and watches its own rank, and the job's memory is what they share.
 *
 * Arenas and control block are anonymous mappings made before the fork: they die with the last process. Ranks die with
 * their parent (PR_SET_PDEATHSIG), so even `kill -9` of the parent ends the job. */
#ifndef FSDPC_RUNTIME_LAUNCH_H
#define FSDPC_RUNTIME_LAUNCH_H

#include "base/arena.h"
#include "runtime/launch/control.h"
#include "runtime/launch/join.h"

#include <stddef.h>

/* One rank's view of the job. */
typedef struct RankEnv {
  uint32_t rank, ranks, local_ranks; /* local: on this host */
  unsigned char *const *arenas; /* of local ranks, else NULL; arena_bytes each, zeroed; a guard page follows */
  CommLane *lanes;
  RankStatus *status;           /* own */
  RankStatus *statuses;         /* of all ranks */
  Control *control;
} RankEnv;

typedef struct LaunchJob {
  uint32_t ranks;
  uint64_t arena_bytes;
  /* Runs in the rank's process; the result is its exit code. Failures are said through control_fail. */
  int (*rank_main)(void *user, const RankEnv *env);
  /* What list position `instr` is, for the message about a rank that died there; NULL: not said. */
  void (*describe)(void *user, int32_t instr, char *out, size_t bytes);
  void *user;
  bool saves;          /* SIGHUP and the first SIGTERM ask the ranks to save and stop, SIGUSR1 to save */
  uint32_t timeout_s;  /* of no progress in any rank, after which the job fails; 0: none */
  const Join *join;    /* with processes that were started elsewhere, one a rank; NULL: all ranks are started here */
} LaunchJob;

enum { LAUNCH_INTERRUPTED = 128 }; /* + number of the signal that stopped the job */

/* Starts, waits, cleans up. Returns RUN_OK; or the failure's code, RUN_PEER_FAILED when a rank died by itself, or 128 + n
 * after signal n, with one message on stderr. The calling process has one thread. */
int launch_run(const LaunchJob *job);

#endif
