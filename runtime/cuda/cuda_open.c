/* Owns: opening the CUDA backend: device, memory, streams, events, communicator, operands, algorithms; and closing it.
 * Device memory is the arena, as planned, and beside it what beside.h says. */
#include "runtime/cuda/cuda_state.h"

#include "base/checked.h"
#include "base/text.h"
#include "runtime/beside.h"
#include "runtime/cuda/cuda_algorithms.h"
#include "runtime/environment.h"
#include "runtime/runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifndef FSDPC_CUDA_DRIVER /* tests put a fake CUDA runtime in its place */
#define FSDPC_CUDA_DRIVER "libcuda.so.1"
#endif

enum { GPU_PAGE_BYTES = 2 << 20 };

bool backend_cuda_check(const Plan *plan, Failure *failure) {
  void *driver = dlopen(FSDPC_CUDA_DRIVER, RTLD_NOW | RTLD_LOCAL);
  Failure scratch = {0};
  CudaLibs libs;
  if (driver == NULL)
    return fail(failure, RUN_INVALID,
                "backend \"cuda\": no NVIDIA driver here (libcuda.so.1 does not load); install it, or train with --backend "
                "cpu; `fsdpc doctor` says what this machine has");
  if (!cuda_libs_cublaslt(&libs, failure)) return false;
  if (plan->world.ranks > 1 && !cuda_libs_nccl(&libs, &scratch))
    fprintf(stderr, "note: %s; ranks can only share one GPU without it\n", scratch.text);
  return true;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static bool allocate(void **to, uint64_t bytes, const char *what, Failure *failure) {
  char size[32];
  cudaError_t error = cudaMalloc(to, bytes == 0 ? 256 : bytes);
  if (error == cudaSuccess) return true;
  return fail(failure, RUN_NO_FIT, "cuda: %s of %s: %s; plan with a smaller --memory, or use an emptier GPU", what,
              text_bytes(size, bytes), cudaGetErrorString(error));
}

static bool allocate_beside(CudaBackend *cuda, void **to, uint64_t bytes, const char *what, Failure *failure) {
  cuda->beside_bytes += bytes;
  return allocate(to, bytes, what, failure);
}

/* One more thing that the run's header says of the device. */
static void say(CudaBackend *cuda, const char *what) {
  size_t length = strlen(cuda->device_name);
  snprintf(cuda->device_name + length, sizeof cuda->device_name - length, ", %s", what);
}

#ifndef FSDPC_PINNED_NOTE_BYTES /* tests pin little */
#define FSDPC_PINNED_NOTE_BYTES (UINT64_C(4) << 30)
#endif

/* Pages are cleared and pinned one after the other: 34 GiB took some 20 s on an H200's host. */
static void say_pinning(const CudaBackend *cuda, uint64_t bytes) {
  char size[32];
  if (cuda->config.quiet || cuda->config.host->rank != 0 || bytes < FSDPC_PINNED_NOTE_BYTES) return;
  fprintf(stderr, "note: pinning %s of host memory a rank for what is offloaded, which takes a second for every 2 GiB or so\n", text_bytes(size, bytes));
}

static bool open_host(CudaBackend *cuda, Failure *failure) {
  const Plan *plan = cuda->config.plan;
  char size[32];
  void *host = NULL;
  if (plan->host_bytes == 0) return true;
  say_pinning(cuda, plan->host_bytes);
  cudaError_t error = cudaHostAlloc(&host, plan->host_bytes, cudaHostAllocDefault);
  if (error != cudaSuccess)
    return fail(failure, RUN_NO_FIT, "cuda: %s of pinned host memory for what is offloaded: %s; plan with less --offload",
                text_bytes(size, plan->host_bytes), cudaGetErrorString(error));
  cuda->host = host;
  memset(host, 0, plan->host_bytes);
  return true;
}

unsigned char *cuda_address(const CudaBackend *cuda, const PlanBuf *buf) {
  return (buf->host ? cuda->host : cuda->arena) + buf->offset;
}

static bool spans_hosts(const CudaBackendConfig *config) {
  for (uint32_t r = 0; r < config->plan->world.ranks; r++)
    if (config->exchange[r] == NULL) return true;
  return false;
}

static uint64_t gathers_a_step(const Plan *plan) {
  uint64_t gathers = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++)
    for (int32_t i = plan->segments.data[s].first; i < plan->segments.data[s].end; i++)
      if (plan->instrs.data[i].op == INSTR_ALLGATHER) gathers += plan->segments.data[s].count;
  return gathers;
}

/* Copy engines gather within a host. NCCL's ranks tell each other that they are ready by a number, which counts calls, but is 1 in graphs: where the
 * first step, outside graphs, has one call, a rank that is late in the second would seem ready (ce_coll.cc of NCCL 2.28). */
static bool wants_window(const CudaBackend *cuda) {
  return cuda->nccl && environment_setting(SETTING_FSDPC_NCCL_WINDOWS) == 1 && !spans_hosts(&cuda->config) &&
         gathers_a_step(cuda->config.plan) > 1;
}

/* From ncclMemAlloc where gathers can make use of it, which the communicator sees to; else, or if it cannot, as always. */
static bool open_arena(CudaBackend *cuda, Failure *failure) {
  const CudaLibs *libs = &cuda->libs;
  void *arena = NULL;
  cuda->arena_bytes = round_up(cuda->config.plan->arena_bytes, GPU_PAGE_BYTES); /* sharing it shares nothing else */
  cuda->nccl_memory = wants_window(cuda) && libs->ncclMemAlloc != NULL && libs->ncclMemFree != NULL && libs->ncclCommWindowRegister != NULL &&
                      libs->ncclCommWindowDeregister != NULL &&
                      libs->ncclMemAlloc(&arena, cuda->arena_bytes) == ncclSuccess && arena != NULL;
  if (!cuda->nccl_memory && !allocate(&arena, cuda->arena_bytes, "the arena", failure)) return false;
  cuda->arena = arena;
  return true;
}

static bool open_memory(CudaBackend *cuda, Failure *failure) {
  const Plan *plan = cuda->config.plan;
  BesideArena beside = beside_arena(plan);
  if (!open_arena(cuda, failure) || !allocate_beside(cuda, &cuda->workspace, beside.products, "the workspace of products", failure) ||
      !allocate_beside(cuda, &cuda->scratch, beside.scratch, "scratch memory", failure))
    return false;
  cuda->machine.scratch = cuda->scratch;
  return open_host(cuda, failure) && cuda_ok((int)cudaMemset(cuda->arena, 0, plan->arena_bytes), "clearing the arena", failure);
}

static bool open_streams(CudaBackend *cuda, Arena *arena, Failure *failure) {
  const Plan *plan = cuda->config.plan;
  int least = 0, greatest = 0, error = (int)cudaDeviceGetStreamPriorityRange(&least, &greatest);
  cuda->origin = plan->queue[STREAM_COMPUTE];
  for (uint32_t s = 0; s < STREAM_COUNT && error == 0; s++) {
    uint32_t q = plan->queue[s];
    /* Communication is launched where it can start at once: its kernels are few and others wait for them. */
    if (cuda->streams[q] == NULL)
      error = (int)cudaStreamCreateWithPriority(&cuda->streams[q], cudaStreamNonBlocking,
                                                q == cuda->origin ? least : greatest);
  }
  cuda->events = ARENA_ARRAY(arena, cudaEvent_t, plan->event_count);
  for (uint32_t i = 0; i < plan->event_count && error == 0; i++)
    error = (int)cudaEventCreateWithFlags(&cuda->events[i], cudaEventDisableTiming);
  for (uint32_t q = 0; q < STREAM_COUNT && error == 0; q++)
    error = (int)cudaEventCreateWithFlags(&cuda->join[q], cudaEventDisableTiming);
  if (error == 0) error = (int)cudaEventCreateWithFlags(&cuda->fork, cudaEventDisableTiming);
  if (error == 0) error = (int)cudaEventCreateWithFlags(&cuda->done, cudaEventDisableTiming);
  return cuda_ok(error, "streams and events", failure);
}

/* --- the plan's operands ------------------------------------------------------------------------------------------- */

static bool resolve(CudaBackend *cuda, const InstrSpec *specs, int32_t position, Failure *failure) {
  const Plan *plan = cuda->config.plan;
  const PlanInstr *instr = &plan->instrs.data[position];
  const InstrSpec *spec = &specs[instr->op];
  for (int k = 0; k < spec->operand_count; k++) {
    const PlanOperand *operand = plan_operand(plan, instr, k);
    uint64_t rows, cols;
    if (operand->buf == PLAN_NONE) continue;
    if (!plan_operand_dims(plan, specs, instr, k, &rows, &cols))
      return fail(failure, RUN_INVALID, "plan: instruction %d (%s) has sizes that overflow", (int)position, spec->name);
    const PlanBuf *buf = &plan->bufs.data[operand->buf];
    uint64_t size = dtype_bytes(buf->dtype), ld = operand->ld != 0 ? operand->ld : cols;
    uint64_t end = buf->offset + (operand->offset + (rows - 1) * ld + cols) * size;
    bool is_float = buf->dtype == DTYPE_F32 || buf->dtype == DTYPE_BF16 || buf->dtype == DTYPE_F16;
    cuda->operands[instr->operands + (uint32_t)k] = (CudaTensor){
        cuda_address(cuda, buf) + operand->offset * size, (int64_t)ld, is_float ? (int)buf->dtype : -1, operand->add};
    end = round_up(end, PLAN_ALIGN_BYTES);
    if (!buf->host && end > cuda->reach[position]) cuda->reach[position] = end;
  }
  return true;
}

static bool prepare(CudaBackend *cuda, int32_t position, const char **refused, Failure *failure) {
  const Plan *plan = cuda->config.plan;
  const PlanInstr *instr = &plan->instrs.data[position];
  Failure why = {0};
  CudaCall call = {.machine = &cuda->machine,
                   .position = position,
                   .instr = instr,
                   .o = &cuda->operands[instr->operands],
                   .n = plan->ints.data + instr->ints,
                   .x = plan->reals.data + instr->reals,
                   .prepare = true,
                   .refused = refused,
                   .failure = &why};
  if (!cuda_needs_preparing(instr->op) || cuda_function(instr->op)(&call) == 0) return true;
  return cuda_instr_failed(cuda, position, why.text, why.code, failure);
}

/* --- attention: by cuDNN, its backward pass on Hopper by an own kernel, the rest by own kernels ---------------------------------------- */

static bool wants(uint32_t attention) { return environment_setting(SETTING_FSDPC_CUDA_ATTENTION) == attention; }

/* False: FSDPC_CUDA_ATTENTION=cudnn, and cuDNN does not do it all. */
static bool without_flash(const char *why, Failure *failure) {
  if (!wants(CUDA_ATTENTION_CUDNN)) return true;
  return fail(failure, RUN_INVALID, "cuda: FSDPC_CUDA_ATTENTION=cudnn, but cuDNN: %s; unset it to use own kernels", why);
}

/* Of f32 it takes nothing, and opening it loads some hundred MB: then only who insists on it is told so. */
static bool open_flash(CudaBackend *cuda, Arena *arena, Failure *failure) {
  const char *why = "";
  bool half = cuda->config.plan->recipe.compute != DTYPE_F32;
  cuda->machine.hopper_all = cuda->compute == 90 && half && wants(CUDA_ATTENTION_OWN);
  cuda->machine.hopper = cuda->machine.hopper_all || (cuda->compute == 90 && half && wants(CUDA_ATTENTION_AUTO));
  if (wants(CUDA_ATTENTION_OWN) || (!half && !wants(CUDA_ATTENTION_CUDNN))) return true;
  cuda->machine.flash = cuda_flash_open(arena, cuda->config.plan, cuda->device, cuda->compute, wants(CUDA_ATTENTION_FAST), &why);
  return cuda->machine.flash != NULL || without_flash(why, failure);
}

/* What is Hopper's kernels'. memory: of their backward passes, one at a time; 0: none is theirs. */
typedef struct HopperPart {
  bool forward;
  uint64_t memory;
} HopperPart;

static HopperPart hopper_part(const CudaBackend *cuda) {
  const Plan *plan = cuda->config.plan;
  HopperPart part = {0};
  for (uint32_t i = 0; i < plan->instrs.count && cuda->machine.hopper; i++) {
    bool backward = plan->instrs.data[i].op == INSTR_ATTENTION_BWD;
    if (!backward && plan->instrs.data[i].op != INSTR_ATTENTION_FWD) continue;
    AttentionShape shape = attention_shape(plan, &plan->instrs.data[i]);
    if (!cuda->machine.hopper_all && !(backward && hopper_leads(&shape))) continue;
    uint64_t bytes = hopper_bytes(&shape);
    if (!backward) part.forward |= bytes > 0;
    else if (bytes > part.memory) part.memory = bytes;
  }
  return part;
}

/* bytes: of workspace, which Hopper's forward kernel needs none of. */
static void say_attention(CudaBackend *cuda, bool flash, HopperPart part, uint64_t bytes) {
  char size[32], with[40] = "", what[128];
  const char *by = !flash ? "" : wants(CUDA_ATTENTION_FAST) ? "fast attention by cuDNN" : "attention by cuDNN";
  if (flash || part.memory > 0) snprintf(with, sizeof with, " with %s", text_bytes(size, bytes));
  if (part.forward) snprintf(what, sizeof what, "attention by Hopper's kernels%s", with); /* cuDNN has none */
  else if (part.memory == 0) snprintf(what, sizeof what, "%s%s", by, with);
  else snprintf(what, sizeof what, "%s%s by Hopper's kernel%s", by, flash ? ", backward" : "backward attention", with);
  say(cuda, what);
}

/* After all attentions are prepared. refused: why one was left to own kernels, or NULL. */
static bool bind_attention(CudaBackend *cuda, const char *refused, Failure *failure) {
  CudaFlash *flash = cuda->machine.flash;
  if (refused != NULL && !without_flash(refused, failure)) return false;
  if (flash != NULL && cuda->config.host->rank == 0 && environment_setting(SETTING_FSDPC_CUDA_PRODUCTS) == 1) cuda_flash_list(flash, stderr);
  bool takes = flash != NULL && cuda_flash_takes_any(flash);
  HopperPart hopper = hopper_part(cuda);
  uint64_t bytes = takes ? cuda_flash_workspace_bytes(flash) : 0;
  if (bytes < hopper.memory) bytes = hopper.memory;
  if (!takes && !hopper.forward && hopper.memory == 0) return true;
  if ((takes || hopper.memory > 0) && !allocate_beside(cuda, &cuda->attention_memory, bytes, "the workspace of attention", failure)) return false;
  if (hopper.memory > 0) cuda->machine.attention = cuda->attention_memory;
  if (takes && !cuda_flash_bind(flash, cuda->attention_memory, &refused)) return fail(failure, RUN_INVALID, "cuda: cuDNN: %s", refused);
  say_attention(cuda, takes, hopper, bytes);
  return true;
}

/* What products there are and how they are computed: the run's header says it in a word, so that runs whose bits differ can
 * be compared; ranks that choose otherwise are told of. */
static bool tell_products(CudaBackend *cuda, Arena *arena, Failure *failure) {
  Comm *host = cuda->config.host;
  uint64_t own = cuda_products_fingerprint(cuda->machine.products), *all = ARENA_ARRAY(arena, uint64_t, host->ranks);
  char what[64];
  bool same = true;
  all[0] = own;
  if (host->ranks > 1 && host->share(host, own, all) != COMM_OK) return fail(failure, RUN_PEER_FAILED, "another rank failed");
  for (uint32_t r = 1; r < host->ranks; r++) same = same && all[r] == all[0];
  if (host->rank == 0 && environment_setting(SETTING_FSDPC_CUDA_PRODUCTS) == 1) cuda_products_list(cuda->machine.products, stderr);
  if (host->rank == 0 && !same)
    fputs("note: ranks compute the same products by different algorithms (other GPUs, or another cuBLASLt): bits will differ from a "
          "run where they agree\n", stderr);
  snprintf(what, sizeof what, "products %08x", (unsigned)(own ^ own >> 32));
  say(cuda, what);
  return true;
}

/* The products' memory is zero, and what is written there comes after opening. */
static bool settle_products(CudaBackend *cuda, Failure *failure) {
  const char *path = environment_file(SETTING_FSDPC_CUDA_ALGORITHMS);
  if (path == NULL) return true;
  CudaAlgorithmsConfig config = {.path = path,
                                 .place = {cuda->gpu, cuda->multiprocessors, cuda->libs.cublasLtGetVersion(), BESIDE_PRODUCTS_BYTES},
                                 .stream = cuda->streams[cuda->origin],
                                 .stop = cuda->config.stop,
                                 .beat = cuda->config.position,
                                 .quiet = cuda->config.quiet};
  return cuda_algorithms_settle(cuda->machine.products, &config, failure);
}

static bool open_plan(CudaBackend *cuda, Arena *arena, Failure *failure) {
  const Plan *plan = cuda->config.plan;
  const InstrSpec *specs = instr_specs(arena);
  cuda->operands = ARENA_ARRAY(arena, CudaTensor, plan->operands.count);
  cuda->reach = ARENA_ARRAY(arena, uint64_t, plan->instrs.count);
  const char *refused = NULL;
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    const char *why = NULL;
    if (!resolve(cuda, specs, i, failure) || !prepare(cuda, i, &why, failure)) return false;
    if (why != NULL) refused = why;
  }
  return settle_products(cuda, failure) && tell_products(cuda, arena, failure) && bind_attention(cuda, refused, failure);
}

/* Every unit's parameters, side by side in device memory. */
static bool open_ranges(CudaBackend *cuda, Arena *arena, Failure *failure) {
  const Plan *plan = cuda->config.plan;
  CudaRanges *ranges = ARENA_ARRAY(arena, CudaRanges, plan->units.count);
  uint64_t total = 0, at = 0;
  void *memory = NULL;
  for (uint32_t u = 0; u < plan->units.count; u++) total += cuda->config.ranges[u].count;
  CudaRange *host = ARENA_ARRAY(arena, CudaRange, total);
  if (!allocate_beside(cuda, &memory, total * sizeof *host, "ranges of parameters", failure)) return false;
  cuda->range_memory = memory;
  for (uint32_t u = 0; u < plan->units.count; u++) {
    const UnitRanges *own = &cuda->config.ranges[u];
    ranges[u] = (CudaRanges){cuda->range_memory + at, (int32_t)own->count};
    for (uint32_t i = 0; i < own->count; i++)
      host[at++] = (CudaRange){(int64_t)own->data[i].local, (int64_t)own->data[i].count,
                               plan->params.data[own->data[i].param].decay ? plan->recipe.decay : 0,
                               (int64_t)own->data[i].first, param_name_hash(plan, &plan->params.data[own->data[i].param])};
  }
  cuda->machine.ranges = ranges;
  CudaFactoreds *factored = NULL;
  int error = cuda_adafactor_open(arena, plan, cuda->config.ranges, &cuda->factored_memory, &factored);
  if (!cuda_ok(error, "Adafactor's parameters", failure)) return false;
  cuda->machine.factored = factored;
  if (factored != NULL) cuda->beside_bytes += plan->params.count * sizeof(CudaFactored);
  return total == 0 || cuda_ok((int)cudaMemcpy(memory, host, total * sizeof *host, cudaMemcpyHostToDevice),
                               "ranges of parameters", failure);
}

/* --- communicator -------------------------------------------------------------------------------------------------- */

/* Before memory is allocated: the communicators want it from different places. */
static bool choose_comm(CudaBackend *cuda, Failure *failure) {
  uint32_t ranks = cuda->config.plan->world.ranks, wanted = environment_setting(SETTING_FSDPC_CUDA_COMM);
  cuda->nccl = ranks > 1 && (wanted == CUDA_COMM_NCCL || (wanted == CUDA_COMM_AUTO && cuda->own_gpus));
  if (ranks > 1 && !cuda->nccl && spans_hosts(&cuda->config))
    return fail(failure, RUN_INVALID, cuda->own_gpus
                                          ? "cuda: FSDPC_CUDA_COMM=local, but ranks on several hosts need NCCL; unset it"
                                          : "cuda: ranks on several hosts need a GPU each, and some share one here; start at "
                                            "most as many processes on a host as it has GPUs");
  return !cuda->nccl || cuda_libs_nccl(&cuda->libs, failure);
}

static bool open_comm(CudaBackend *cuda, Arena *arena, Failure *failure) {
  CudaCommConfig config = {&cuda->libs, cuda->config.host, cuda->config.exchange, spans_hosts(&cuda->config), cuda->arena, cuda->arena_bytes,
                           cuda->nccl_memory};
  if (cuda->config.plan->world.ranks == 1) return true;
  cuda->machine.comm =
      cuda->nccl ? cuda_comm_nccl_open(arena, &config, failure) : cuda_comm_local_open(arena, &config, failure);
  if (cuda->machine.comm == NULL) return false;
  cuda->beside_bytes += cuda->machine.comm->device_bytes;
  say(cuda, cuda->machine.comm->name);
  cuda->use_graphs = cuda->use_graphs && cuda->machine.comm->capturable;
  return true;
}

/* --- the whole ----------------------------------------------------------------------------------------------------- */

static bool open_all(CudaBackend *cuda, Arena *arena, Failure *failure) {
  if (!cuda_device_open(cuda, arena, failure) || !cuda_libs_cublaslt(&cuda->libs, failure) ||
      !choose_comm(cuda, failure) || !open_memory(cuda, failure) || !open_streams(cuda, arena, failure) ||
      !cuda_stage_open(cuda, arena, failure) || !open_ranges(cuda, arena, failure))
    return false;
  cuda->machine.products = cuda_products_open(arena, &cuda->libs, cuda->workspace, BESIDE_PRODUCTS_BYTES,
                                              environment_file(SETTING_FSDPC_CUDA_ALGORITHMS) != NULL, failure);
  if (cuda->machine.products == NULL || !open_comm(cuda, arena, failure) ||
      !open_flash(cuda, arena, failure))
    return false;
  if (!open_plan(cuda, arena, failure) || !cuda_ok((int)cudaDeviceSynchronize(), "opening", failure)) return false;
  cudaGetLastError(); /* what libraries have tried and recovered from is not for the first launch to find */
  return true;
}

Backend *backend_cuda_open(Arena *arena, const CudaBackendConfig *config, Failure *failure) {
  CudaBackend *cuda = ARENA_NEW(arena, CudaBackend);
  cuda->base = cuda_methods;
  cuda->config = *config;
  cuda->machine = (CudaMachine){.plan = config->plan, .rank = config->host->rank};
  cuda->graphs = ARENA_ARRAY(arena, cudaGraphExec_t, config->plan->segments.count);
  cuda->timers = ARENA_ARRAY(arena, CudaTimer, config->plan->instrs.count);
  cuda->sync_each = environment_setting(SETTING_FSDPC_CUDA_SYNC) == 1;
  cuda->use_graphs = environment_setting(SETTING_FSDPC_CUDA_GRAPH) == 1 && !cuda->sync_each;
  cuda->timeout_s = runtime_patience_s(config->plan, environment_setting(SETTING_FSDPC_CUDA_TIMEOUT));
  if (open_all(cuda, arena, failure)) return &cuda->base;
  cuda_await_cause(cuda, failure);
  cuda->failure = *failure;
  cuda_release(cuda);
  return NULL;
}

static void destroy_event(cudaEvent_t event) {
  if (event != NULL) cudaEventDestroy(event);
}

void cuda_release(CudaBackend *cuda) {
  const Plan *plan = cuda->config.plan;
  bool broken = cuda->failure.code != 0 || cuda_stopped(cuda); /* NCCL's ranks of a host meet when they close, and others may be gone */
  bool known = !broken || cuda_stopped(cuda); /* they meet to abort, too: where opening failed the others do not know yet, and the process ends */
  if (!broken) cudaDeviceSynchronize();
  for (uint32_t s = 0; s < plan->segments.count; s++) /* NCCL waits for the graphs that hold its collectives */
    if (cuda->graphs[s] != NULL) cudaGraphExecDestroy(cuda->graphs[s]);
  if (cuda->machine.comm != NULL && known) cuda->machine.comm->close(cuda->machine.comm, broken);
  if (cuda->machine.products != NULL) cuda_products_close(cuda->machine.products);
  if (cuda->machine.flash != NULL) cuda_flash_close(cuda->machine.flash);
  for (uint32_t i = 0; i < plan->instrs.count; i++) destroy_event(cuda->timers[i].start), destroy_event(cuda->timers[i].end);
  for (uint32_t i = 0; cuda->events != NULL && i < plan->event_count; i++) destroy_event(cuda->events[i]);
  for (uint32_t q = 0; q < STREAM_COUNT; q++) {
    destroy_event(cuda->join[q]);
    if (cuda->streams[q] != NULL) cudaStreamDestroy(cuda->streams[q]);
  }
  destroy_event(cuda->fork), destroy_event(cuda->done);
  cudaFreeHost(cuda->staging_host), cudaFreeHost(cuda->host);
  cudaFree(cuda->staging_device), cudaFree(cuda->range_memory), cudaFree(cuda->scratch), cudaFree(cuda->workspace);
  cudaFree(cuda->attention_memory), cudaFree(cuda->factored_memory);
  if (cuda->nccl_memory) cuda->libs.ncclMemFree(cuda->arena);
  else cudaFree(cuda->arena);
}
