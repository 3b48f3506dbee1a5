/* Owns: opening and closing a rank's parts in order. */
#include "runtime/rank.h"

#include "base/cores.h"
#include "base/text.h"
#include "runtime/cpu/backend_cpu.h"
#include "runtime/backends.h"
#include "runtime/comm/comm_mpi.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static bool open_kernels(RankMachine *machine, const char *gemm, Failure *failure) {
  const char *why = "";
  machine->kernels = kernels_cpu();
  if (machine->kernels == NULL)
    return fail(failure, RUN_INVALID, "environment: FSDPC_ISA names kernels that this processor cannot run; unset it to have the best there are");
  machine->gemm = gemm_open(gemm, &why);
  if (machine->gemm != NULL) return true;
  return fail(failure, RUN_INVALID, "gemm \"%s\": %s; leave it out to take the best there is, or name \"builtin\"", gemm,
              why);
}

RankThreads rank_threads(const RankEnv *env, uint32_t wanted) {
  uint32_t cores = cores_available() / env->local_ranks, threads = wanted != 0 ? wanted : cores > 1 ? cores : 1;
  /* The communication thread of a lone rank has nobody to wait for. */
  return (RankThreads){threads, threads + (env->ranks > 1) <= cores ? SPIN_LONG : SPIN_SHORT};
}

static bool open_pool(Arena *arena, RankMachine *machine, const RankSetup *setup, Failure *failure) {
  RankThreads threads = rank_threads(setup->env, setup->threads);
  machine->threads = threads.count, machine->spins = threads.spins;
  machine->pool =
      pool_open(arena, machine->threads, machine->spins, cpu_thread_init, (void *)(uintptr_t)machine->gemm, failure);
  if (machine->pool == NULL) return false;
  machine->context = (KernelContext){.parallel = pool_parallel(machine->pool), .gemm = machine->gemm};
  return true;
}

/* Tells the process that leads on this host where rank 0's is. */
static void pass_on(const RankEnv *env, const Offer *offer) {
  uint32_t lowest = 0;
  while (env->arenas[lowest] == NULL) lowest++;
  if (env->rank != lowest || env->rank == 0) return;
  env->control->offer = *offer;
  atomic_store(&env->control->offered, 1);
}

static Comm *open_comm_of_hosts(Arena *arena, const CommShmConfig *local, const RankEnv *env, Failure *failure) {
  Offer offer = env->rank == 0 ? env->control->offer : (Offer){0};
  Comm *comm = comm_mpi_open(arena, &(CommMpiConfig){*local, &offer, sizeof offer}, failure);
  if (comm != NULL) pass_on(env, &offer);
  return comm;
}

static bool open_comm(Arena *arena, RankMachine *machine, const RankSetup *setup, Failure *failure) {
  const PlanWorld *world = &setup->plan->world;
  const RankEnv *env = setup->env;
  const CommShmConfig config = {.rank = env->rank,
                                .ranks = world->ranks,
                                .shard = world->shard,
                                .replicas = world->replicas,
                                .arenas = env->arenas,
                                .lanes = env->lanes,
                                .stop = &env->control->stop,
                                .kernels = machine->kernels,
                                .spins = machine->spins};
  machine->comm = env->local_ranks < env->ranks ? open_comm_of_hosts(arena, &config, env, failure)
                                                : comm_shm_open(arena, &config);
  return machine->comm != NULL;
}

/* Last of all, since what is opened takes address space too. */
static bool find_gemm_bytes(const RankMachine *machine, const RankEnv *env, Failure *failure) {
  uint64_t bytes = machine->gemm->thread_bytes * machine->threads;
  char need[32];
  if (bytes == 0) return true;
  void *found = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED)
    return fail(failure, RUN_INVALID, "rank %u: memory: %s needs %s of address space for %u thread%s: %s; raise the limit (ulimit -v), use fewer threads, or "
                "take --gemm builtin",
                env->rank, machine->gemm->name, text_bytes(need, bytes), machine->threads, text_plural(machine->threads), strerror(errno));
  munmap(found, bytes);
  return true;
}

bool rank_open(Arena *arena, RankMachine *machine, const RankSetup *setup, Failure *failure) {
  *machine = (RankMachine){0};
  if (!open_kernels(machine, setup->gemm, failure)) return false;
  machine->kernels_name = machine->kernels->name;
  machine->gemm_name = machine->gemm->name;
  cpu_thread_init((void *)(uintptr_t)machine->gemm);
  if (!open_pool(arena, machine, setup, failure)) return false;
  machine->ranges = unit_ranges(arena, setup->plan, setup->env->rank % setup->plan->world.shard);
  if (open_comm(arena, machine, setup, failure) && setup->kind->open(arena, machine, setup, failure) &&
      find_gemm_bytes(machine, setup->env, failure)) {
    machine->backend->beats = &setup->env->status->beats;
    return true;
  }
  rank_close(machine);
  return false;
}

void rank_close(RankMachine *machine) {
  if (machine->backend != NULL) machine->backend->close(machine->backend);
  if (machine->pool != NULL) pool_close(machine->pool);
  *machine = (RankMachine){0};
}
