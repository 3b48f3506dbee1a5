/* Owns: reading launchers' variables. */
#include "runtime/launch/launcher.h"

#include "runtime/runtime.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 1 << 20 };

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value != NULL && *value != '\0' ? value : NULL;
}

/* A number in [least, most]; it must be there. `why` names who should have set it. */
static bool number(const char *name, const char *why, long least, long most, uint32_t *out, Failure *failure) {
  const char *text = variable(name);
  char *end;
  if (text == NULL)
    return fail(failure, RUN_INVALID, "launch: %s, but %s is not set; start again or unset the others", why, name);
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno != 0 || !isdigit((unsigned char)*text) || *end != '\0' || value < least || value > most)
    return fail(failure, RUN_INVALID, "launch: %s is \"%.40s\", but must be a number from %ld to %ld", name, text,
                least, most);
  *out = (uint32_t)value;
  return true;
}

/* A launcher's names for the same things. local_ranks: how many of the job's processes are on this host, NULL: told
 * otherwise. */
typedef struct Dialect {
  const char *name, *rank, *ranks, *local_rank, *local_ranks, *why;
} Dialect;

static const Dialect torchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                 "RANK or WORLD_SIZE says that torchrun started this process"};
static const Dialect open_mpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                 "an OMPI_COMM_WORLD variable says that Open MPI started this process"};
static const Dialect slurm = {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL,
                              "SLURM_STEP_ID says that a Slurm step started this process"};

static bool contradict(const char *a, uint32_t a_is, const char *b, uint32_t b_is, Failure *failure) {
  return fail(failure, RUN_INVALID, "launch: %s is %u, but %s is %u: the two contradict each other", a, a_is, b, b_is);
}

/* This host has local_ranks of the ranks. */
static bool read_place(const Dialect *dialect, uint32_t local_ranks, Launcher *out, Failure *failure) {
  out->local_ranks = local_ranks;
  if (!launcher_spans_hosts(out)) {
    out->local_rank = out->rank;
    return true;
  }
  if (!number(dialect->local_rank, dialect->why, 0, MOST_RANKS, &out->local_rank, failure)) return false;
  return out->local_rank < local_ranks ||
         fail(failure, RUN_INVALID, "launch: %s is %u, but this host has %u of the ranks: the two contradict each other",
              dialect->local_rank, out->local_rank, local_ranks);
}

static bool read_world(const Dialect *dialect, Launcher *out, Failure *failure) {
  uint32_t local;
  if (!number(dialect->ranks, dialect->why, 1, MOST_RANKS, &out->ranks, failure) ||
      !number(dialect->rank, dialect->why, 0, MOST_RANKS, &out->rank, failure))
    return false;
  if (out->rank >= out->ranks) return contradict(dialect->rank, out->rank, dialect->ranks, out->ranks, failure);
  out->name = dialect->name;
  local = out->ranks;
  if (dialect->local_ranks != NULL && out->ranks > 1 && variable(dialect->local_ranks) != NULL &&
      !number(dialect->local_ranks, dialect->why, 1, MOST_RANKS, &local, failure))
    return false;
  if (local > out->ranks) return contradict(dialect->local_ranks, local, dialect->ranks, out->ranks, failure);
  return read_place(dialect, local, out, failure);
}

/* --- one function a launcher -------------------------------------------------------------------------------------- */

static const char *or_nothing(const char *text) {
  return text != NULL ? text : "";
}

/* Open MPI connects the hosts, and torchrun starts no job of Open MPI. */
static bool read_torchrun(Launcher *out, Failure *failure) {
  if (!read_world(&torchrun, out, failure)) return false;
  if (launcher_spans_hosts(out))
    return fail(failure, RUN_INVALID,
                "launch: torchrun started this job on several hosts, between which ranks talk through Open MPI; start it "
                "with mpirun -n %u --map-by ppr:%u:node, or with srun --mpi=pmix",
                out->ranks, out->local_ranks);
  const char *address = variable("MASTER_ADDR"), *port = variable("MASTER_PORT");
  if (out->ranks > 1 && (address == NULL || port == NULL))
    return fail(failure, RUN_INVALID,
                "launch: WORLD_SIZE is %u, but MASTER_ADDR or MASTER_PORT is not set; start the "
                "ranks with torchrun",
                out->ranks);
  snprintf(out->job, sizeof out->job, "torchrun %.100s %.20s %.100s %.20s", or_nothing(address), or_nothing(port),
           or_nothing(variable("TORCHELASTIC_RUN_ID")), or_nothing(variable("TORCHELASTIC_RESTART_COUNT")));
  return true;
}

static bool read_open_mpi(Launcher *out, Failure *failure) {
  static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"};
  const char *job = NULL;
  if (!read_world(&open_mpi, out, failure)) return false;
  for (size_t i = 0; job == NULL && i < sizeof names / sizeof *names; i++) job = variable(names[i]);
  if (job == NULL && out->ranks > 1)
    return fail(failure, RUN_INVALID,
                "launch: OMPI_COMM_WORLD_SIZE is %u, but neither PMIX_NAMESPACE nor "
                "OMPI_MCA_ess_base_jobid names the job; start the ranks with mpirun",
                out->ranks);
  out->starter = (int32_t)getppid(); /* mpirun, or its daemon on this host */
  snprintf(out->job, sizeof out->job, "ompi %.400s", or_nothing(job));
  return true;
}

/* Entry `node` of Slurm's "2(x3),1": two tasks on each of three nodes, one on the next. 0: there is none. */
static uint32_t tasks_on(const char *list, uint32_t node) {
  while (list != NULL && *list != '\0') {
    unsigned tasks = 0, times = 1;
    int used = 0;
    if (sscanf(list, "%u%n", &tasks, &used) != 1) return 0;
    list += used;
    used = 0;
    if (sscanf(list, "(x%u)%n", &times, &used) == 1 && used > 0) list += used;
    else times = 1;
    if (node < times) return tasks;
    node -= times;
    list += *list == ',';
  }
  return 0;
}

static bool read_slurm_hosts(Launcher *out, Failure *failure) {
  uint32_t node, local;
  if (!number("SLURM_NODEID", slurm.why, 0, MOST_RANKS, &node, failure)) return false;
  const char *list = variable("SLURM_STEP_TASKS_PER_NODE");
  local = tasks_on(list, node);
  if (local == 0 || local > out->ranks)
    return fail(failure, RUN_INVALID,
                "launch: SLURM_STEP_TASKS_PER_NODE is \"%.60s\", which does not say how many of %u tasks node %u has",
                or_nothing(list), out->ranks, node);
  if (variable("PMIX_NAMESPACE") == NULL)
    return fail(failure, RUN_INVALID,
                "launch: Slurm started this job on several hosts, between which ranks talk through Open MPI, but without "
                "PMIx for it; use srun --mpi=pmix, or mpirun inside the allocation");
  return read_place(&slurm, local, out, failure);
}

static bool read_slurm(Launcher *out, Failure *failure) {
  uint32_t nodes = 1;
  if (!read_world(&slurm, out, failure)) return false;
  if (variable("SLURM_STEP_NUM_NODES") != NULL &&
      !number("SLURM_STEP_NUM_NODES", slurm.why, 1, MOST_RANKS, &nodes, failure))
    return false;
  if (nodes > 1 && out->ranks > 1 && !read_slurm_hosts(out, failure)) return false;
  snprintf(out->job, sizeof out->job, "slurm %.100s %.100s %.20s", or_nothing(variable("SLURM_JOB_ID")),
           or_nothing(variable("SLURM_STEP_ID")), or_nothing(variable("SLURM_RESTART_COUNT")));
  return true;
}

/* --- choosing ----------------------------------------------------------------------------------------------------- */

static bool any(const char *a, const char *b) {
  return variable(a) != NULL || variable(b) != NULL;
}

static bool agree(const Launcher *a, const Launcher *b, Failure *failure) {
  if (a->ranks == 1 || b->ranks == 1 || (a->rank == b->rank && a->ranks == b->ranks)) return true;
  return fail(failure, RUN_INVALID,
              "launch: by %s's variables this is rank %u of %u, by %s's rank %u of %u; unset those "
              "that are left over",
              a->name, a->rank, a->ranks, b->name, b->rank, b->ranks);
}

bool launcher_detect(Launcher *launcher, Failure *failure) {
  const Launcher alone = {.ranks = 1, .local_ranks = 1};
  Launcher torch = alone, mpi = alone, step = alone;
  bool by_torch = any(torchrun.rank, torchrun.ranks), by_mpi = any(open_mpi.rank, open_mpi.ranks);
  *launcher = alone;
  if (by_torch && !read_torchrun(&torch, failure)) return false;
  if (by_mpi && !read_open_mpi(&mpi, failure)) return false;
  if (by_torch && by_mpi && !agree(&torch, &mpi, failure)) return false;
  /* torchrun and mpirun may themselves run in a step, one a node: then the step's numbers mean something else. */
  bool by_step = !by_torch && !by_mpi && variable("SLURM_STEP_ID") != NULL && variable(slurm.rank) != NULL;
  if (by_step && !read_slurm(&step, failure)) return false;
  const Launcher single = by_torch ? torch : by_mpi ? mpi : alone; /* their variables are in nothing but what they start */
  *launcher = torch.ranks > 1 ? torch : mpi.ranks > 1 ? mpi : step.ranks > 1 ? step : single;
  const char *size = variable("PMI_SIZE");
  if (!by_torch && !by_mpi && !by_step && size != NULL && strcmp(size, "1") != 0)
    return fail(failure, RUN_INVALID,
                "launch: PMI_SIZE is %.20s: an MPICH launcher started this process, which this version "
                "does not join; use torchrun, Open MPI or srun",
                size);
  return true;
}
