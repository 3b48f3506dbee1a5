/* Owns: the backends this build has. CUDA is there when the build found a toolkit (FSDPC_HAVE_CUDA). */
#include "runtime/backends.h"

#include "runtime/cpu/backend_cpu.h"
#include "runtime/runtime.h"
#if FSDPC_HAVE_CUDA
#include "runtime/cuda/backend_cuda.h"
#endif

#include <string.h>

static uint64_t cpu_shared(const Plan *plan) { return plan->arena_bytes + plan->host_bytes; }

static bool cpu_open(Arena *arena, RankMachine *machine, const RankSetup *setup, Failure *failure) {
  const RankEnv *env = setup->env;
  machine->backend = backend_cpu_open(arena,
                                      &(CpuBackendConfig){.plan = setup->plan,
                                                          .arena = env->arenas[env->rank],
                                                          .comm = machine->comm,
                                                          .feed = setup->feed,
                                                          .kernels = machine->kernels,
                                                          .gemm = machine->gemm,
                                                          .pool = machine->pool,
                                                          .ranges = machine->ranges,
                                                          .spins = machine->spins,
                                                          .stop = &env->control->stop,
                                                          .position = &env->status->instr},
                                      failure);
  return machine->backend != NULL;
}

#if FSDPC_HAVE_CUDA
static uint64_t cuda_shared(const Plan *plan) {
  (void)plan;
  return CUDA_EXCHANGE_BYTES; /* arenas are on the devices */
}

static bool cuda_open(Arena *arena, RankMachine *machine, const RankSetup *setup, Failure *failure) {
  const RankEnv *env = setup->env;
  machine->backend = backend_cuda_open(arena,
                                       &(CudaBackendConfig){.plan = setup->plan,
                                                            .host = machine->comm,
                                                            .exchange = env->arenas,
                                                            .feed = setup->feed,
                                                            .ranges = machine->ranges,
                                                            .stop = &env->control->stop,
                                                            .position = &env->status->instr,
                                                            .quiet = setup->quiet},
                                       failure);
  if (machine->backend == NULL) return false;
  machine->gemm_name = "cuBLASLt";
  machine->kernels_name = backend_cuda_device(machine->backend);
  machine->beside_bytes = backend_cuda_beside(machine->backend);
  return true;
}
#endif

const BackendKind *backend_find(const char *name, Failure *failure) {
  static const BackendKind kinds[] = {
      {"cpu", PLAN_DEVICE_CPU, NULL, cpu_shared, cpu_open, true},
#if FSDPC_HAVE_CUDA
      {"cuda", PLAN_DEVICE_GPU, backend_cuda_check, cuda_shared, cuda_open, false},
#endif
  };
  if (name == NULL) name = "cpu";
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
  if (strcmp(name, "cuda") == 0)
    fail(failure, RUN_INVALID,
         "backend \"cuda\" is not in this build; build with -DFSDPC_CUDA=ON, which needs nvcc of the CUDA toolkit, or use "
         "--backend cpu");
  else fail(failure, RUN_INVALID, "there is no backend \"%s\"; use cpu or cuda", name);
  return NULL;
}
