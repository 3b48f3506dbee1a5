/* Owns: opening and closing a rank's parts in order. */
#include "runtime/rank.h"

#include "runtime/backend_cpu.h"
#include "runtime/comm_shm.h"
#include "runtime/runtime.h"

#include <sched.h>

static uint32_t core_count(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return (uint32_t)CPU_COUNT(&set);
}

static bool open_kernels(RankMachine *machine, const char *gemm, Failure *failure) {
  const char *why = "";
  machine->kernels = kernels_cpu();
  if (machine->kernels == NULL)
    return fail(failure, RUN_INVALID, "FSDPC_ISA names kernels that this processor cannot run");
  machine->gemm = gemm_open(gemm, &why);
  if (machine->gemm != NULL) return true;
  return fail(failure, RUN_INVALID, "gemm \"%s\": %s; leave it out to take the best there is, or name \"builtin\"", gemm,
              why);
}

bool rank_open(Arena *arena, RankMachine *machine, const Plan *plan, const RankEnv *env, Feed *feed, const char *gemm,
               uint32_t threads, Failure *failure) {
  const PlanWorld *world = &plan->world;
  *machine = (RankMachine){0};
  if (!open_kernels(machine, gemm, failure)) return false;
  cpu_thread_init((void *)(uintptr_t)machine->gemm);

  uint32_t cores = core_count() / env->ranks;
  machine->threads = threads != 0 ? threads : cores > 1 ? cores : 1;
  /* The communication thread of a lone rank has nobody to wait for. */
  uint32_t spins = machine->threads + (env->ranks > 1) <= cores ? SPIN_LONG : SPIN_SHORT;
  machine->pool =
      pool_open(arena, machine->threads, spins, cpu_thread_init, (void *)(uintptr_t)machine->gemm, failure);
  if (machine->pool == NULL) return false;
  machine->context = (KernelContext){pool_parallel(machine->pool), machine->gemm};
  machine->ranges = unit_ranges(arena, plan, env->rank % world->shard);
  machine->comm = comm_shm_open(arena, &(CommShmConfig){.rank = env->rank,
                                                        .ranks = world->ranks,
                                                        .shard = world->shard,
                                                        .replicas = world->replicas,
                                                        .arenas = env->arenas,
                                                        .lanes = env->lanes,
                                                        .stop = &env->control->stop,
                                                        .kernels = machine->kernels,
                                                        .spins = spins});
  machine->backend = backend_cpu_open(arena,
                                      &(CpuBackendConfig){.plan = plan,
                                                          .arena = env->arenas[env->rank],
                                                          .comm = machine->comm,
                                                          .feed = feed,
                                                          .kernels = machine->kernels,
                                                          .gemm = machine->gemm,
                                                          .pool = machine->pool,
                                                          .ranges = machine->ranges,
                                                          .spins = spins,
                                                          .stop = &env->control->stop,
                                                          .position = &env->status->instr},
                                      failure);
  if (machine->backend != NULL) return true;
  rank_close(machine);
  return false;
}

void rank_close(RankMachine *machine) {
  if (machine->backend != NULL) machine->backend->close(machine->backend);
  if (machine->pool != NULL) pool_close(machine->pool);
  *machine = (RankMachine){0};
}
