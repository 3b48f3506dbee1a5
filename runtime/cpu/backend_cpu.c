/* Owns: executing a plan's instructions on CPU threads.
 *
 * Everything is resolved at open: operands to addresses, instructions to functions, each queue's share of a segment to a
 * list. An event is a counter that holds the number of the run (call of run_segment) that recorded it last, so
 * events need no reset between repetitions. */
#include "runtime/cpu/backend_cpu.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/remedy.h"
#include "runtime/cpu/cpu_dispatch.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* List positions of one queue in one segment. */
typedef struct QueueList {
  int32_t *instrs;
  uint32_t count;
} QueueList;

typedef struct CpuBackend CpuBackend;

typedef struct QueueWorker {
  CpuBackend *backend;
  uint32_t queue;
  KernelContext context;
  bool started; /* it has a thread of its own */
  pthread_t thread;
  uint64_t high_water;
  _Alignas(64) Counter go;   /* run to execute */
  _Alignas(64) Counter done; /* run finished */
} QueueWorker;

struct CpuBackend {
  Backend base; /* first: methods are given &cpu->base */
  CpuMachine machine;
  CpuBackendConfig config;
  CpuFunction (*function)(InstrOp op); /* by the compute dtype */
  CpuOperand *operands; /* parallel to plan->operands */
  uint64_t *reach;      /* of each instruction: the offset in the device's arena that its operands end at */
  Counter *events;
  QueueList *lists; /* segment * STREAM_COUNT + queue */
  QueueWorker *workers; /* STREAM_COUNT; the compute queue's has no thread */
  _Atomic uint32_t closing, failed;
  pthread_mutex_t failing;
  Failure failure;
  /* The run: written before the workers' go. */
  uint32_t run;
  int32_t segment;
  const StepState *state;
  InstrTime *times;
};

void cpu_thread_init(void *gemm) {
  const Gemm *library = gemm;
  kernels_thread_init();
  if (library != NULL && library->thread_init != NULL) library->thread_init();
}

/* --- running --------------------------------------------------------------------------------------------------------- */

static void set_failed(CpuBackend *cpu, int32_t position) {
  const Plan *plan = cpu->machine.plan;
  const PlanInstr *instr = &plan->instrs.data[position];
  pthread_mutex_lock(&cpu->failing);
  fail(&cpu->failure, RUN_PEER_FAILED, "rank %u, stream %s, instruction %d (%s): another rank failed", cpu->machine.comm->rank,
       stream_name(instr->stream), (int)position, plan_str(plan, instr->name));
  pthread_mutex_unlock(&cpu->failing);
  atomic_store(&cpu->failed, 1);
}

static bool must_stop(CpuBackend *cpu, int32_t position) {
  const _Atomic uint32_t *stop = cpu->config.stop;
  if (stop != NULL && atomic_load_explicit(stop, memory_order_acquire) != 0) set_failed(cpu, position);
  return atomic_load_explicit(&cpu->failed, memory_order_acquire) != 0;
}

static bool wait_events(CpuBackend *cpu, const PlanInstr *instr) {
  const int32_t *waits = &cpu->machine.plan->waits.data[instr->waits];
  for (uint32_t i = 0; i < instr->wait_count; i++)
    if (!counter_wait(&cpu->events[waits[i]], cpu->run, cpu->config.spins, &cpu->failed)) return false;
  return true;
}

static CommStatus execute(CpuBackend *cpu, QueueWorker *worker, int32_t position) {
  const Plan *plan = cpu->machine.plan;
  const PlanInstr *instr = &plan->instrs.data[position];
  CpuCall call = {.machine = &cpu->machine,
                  .k = &worker->context,
                  .state = cpu->state,
                  .instr = instr,
                  .o = &cpu->operands[instr->operands],
                  .n = plan->ints.data + instr->ints,
                  .x = plan->reals.data + instr->reals};
  if (cpu->config.position != NULL) atomic_store_explicit(cpu->config.position, position + 1, memory_order_relaxed);
  if (cpu->times != NULL) cpu->times[position].start_ns = clock_ns();
  CommStatus status = cpu->function(instr->op)(&call);
  if (cpu->times != NULL) cpu->times[position].end_ns = clock_ns();
  if (cpu->reach[position] > worker->high_water) worker->high_water = cpu->reach[position];
  return status;
}

static void run_queue(CpuBackend *cpu, QueueWorker *worker) {
  const QueueList *list = &cpu->lists[(uint32_t)cpu->segment * STREAM_COUNT + worker->queue];
  for (uint32_t i = 0; i < list->count; i++) {
    int32_t position = list->instrs[i];
    const PlanInstr *instr = &cpu->machine.plan->instrs.data[position];
    if (cpu->state->forward_only && position > cpu->state->turn) return; /* the same on every rank and queue */
    if (must_stop(cpu, position) || !wait_events(cpu, instr)) return;
    if (execute(cpu, worker, position) != COMM_OK) {
      set_failed(cpu, position);
      return;
    }
    if (instr->record != PLAN_NONE) counter_set(&cpu->events[instr->record], cpu->run);
  }
}

static void *worker_main(void *arg) {
  QueueWorker *worker = arg;
  CpuBackend *cpu = worker->backend;
  cpu_thread_init((void *)(uintptr_t)cpu->config.gemm);
  for (uint32_t next = 1;; next++) {
    counter_wait(&worker->go, next, cpu->config.spins, &cpu->closing);
    if (atomic_load(&cpu->closing) != 0) return NULL;
    next = counter_get(&worker->go);
    run_queue(cpu, worker);
    counter_set(&worker->done, next);
  }
}

static bool run_segment(Backend *base, int32_t segment, const StepState *state, InstrTime *times) {
  CpuBackend *cpu = (CpuBackend *)base;
  const QueueList *lists = &cpu->lists[(uint32_t)segment * STREAM_COUNT];
  cpu->run++;
  cpu->segment = segment;
  cpu->state = state;
  cpu->times = times;
  for (uint32_t q = 0; q < STREAM_COUNT; q++)
    if (cpu->workers[q].started && lists[q].count > 0) counter_set(&cpu->workers[q].go, cpu->run);
  run_queue(cpu, &cpu->workers[cpu->machine.plan->queue[STREAM_COMPUTE]]);
  for (uint32_t q = 0; q < STREAM_COUNT; q++)
    if (cpu->workers[q].started && lists[q].count > 0)
      counter_wait(&cpu->workers[q].done, cpu->run, cpu->config.spins, NULL);
  return atomic_load(&cpu->failed) == 0;
}

/* --- the other methods ----------------------------------------------------------------------------------------------- */

static bool inside(CpuBackend *cpu, int32_t buf, uint64_t first, uint64_t bytes) {
  const PlanBuf *b = &cpu->machine.plan->bufs.data[buf];
  if (bytes <= b->bytes && first <= b->bytes - bytes) return true;
  pthread_mutex_lock(&cpu->failing);
  fail(&cpu->failure, RUN_INVALID, "buffer \"%s\" has %llu bytes; %llu from %llu on do not lie in it",
       plan_str(cpu->machine.plan, b->name), (unsigned long long)b->bytes, (unsigned long long)bytes,
       (unsigned long long)first);
  pthread_mutex_unlock(&cpu->failing);
  return false;
}

static unsigned char *address(const CpuBackend *cpu, const PlanBuf *buf) {
  return cpu->machine.arena + plan_address(cpu->machine.plan, buf);
}

/* Master weights that change take their copy in the compute dtype with them. */
static void refresh_cast(CpuBackend *cpu, int32_t buf, uint64_t first, uint64_t bytes) {
  const Plan *plan = cpu->machine.plan;
  const PlanBuf *master = &plan->bufs.data[buf];
  if (master->unit == PLAN_NONE || plan->units.data[master->unit].param_buf != buf) return;
  int32_t cast = plan->units.data[master->unit].cast_buf;
  if (cast == PLAN_NONE) return;
  const PlanBuf *copy = &plan->bufs.data[cast];
  uint64_t from = first / sizeof(float), end = (first + bytes + sizeof(float) - 1) / sizeof(float);
  const KernelContext serial = {.gemm = cpu->config.gemm};
  cpu->machine.half->narrow(&serial, (int64_t)(end - from), (FloatType)copy->dtype,
                            (const float *)address(cpu, master) + from, (Half *)address(cpu, copy) + from);
}

static bool write_buf(Backend *base, int32_t buf, uint64_t first, const void *data, uint64_t bytes) {
  CpuBackend *cpu = (CpuBackend *)base;
  if (!inside(cpu, buf, first, bytes)) return false;
  memcpy(address(cpu, &cpu->machine.plan->bufs.data[buf]) + first, data, bytes);
  refresh_cast(cpu, buf, first, bytes);
  return true;
}

static bool read_buf(Backend *base, int32_t buf, uint64_t first, void *data, uint64_t bytes) {
  CpuBackend *cpu = (CpuBackend *)base;
  if (!inside(cpu, buf, first, bytes)) return false;
  memcpy(data, address(cpu, &cpu->machine.plan->bufs.data[buf]) + first, bytes);
  return true;
}

static const char *error(Backend *base) { return ((CpuBackend *)base)->failure.text; }

static int exit_code(Backend *base) { return ((CpuBackend *)base)->failure.code; }

static uint64_t high_water(Backend *base) {
  const CpuBackend *cpu = (const CpuBackend *)base;
  uint64_t highest = 0;
  for (int q = 0; q < STREAM_COUNT; q++)
    if (cpu->workers[q].high_water > highest) highest = cpu->workers[q].high_water;
  return highest;
}

static void close_backend(Backend *base) {
  CpuBackend *cpu = (CpuBackend *)base;
  atomic_store(&cpu->closing, 1);
  for (int q = 0; q < STREAM_COUNT; q++) {
    if (!cpu->workers[q].started) continue;
    counter_add(&cpu->workers[q].go, 1);
    pthread_join(cpu->workers[q].thread, NULL);
  }
  pthread_mutex_destroy(&cpu->failing);
}

/* --- opening --------------------------------------------------------------------------------------------------------- */

static bool is_collective(InstrOp op) {
  return op == INSTR_ALLGATHER || op == INSTR_REDUCE_SCATTER || op == INSTR_ALLREDUCE || op == INSTR_ALLREDUCE_SUM ||
         op == INSTR_ALLREDUCE_EXACT || op == INSTR_ALLREDUCE_INT;
}

static bool is_float(DType dtype) { return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16; }

/* Gradients of parameters, as instr.def calls them. */
static bool is_gradient(const char *operand) {
  static const char *const names[] = {"dw", "db", "dtable", "g"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(operand, names[i]) == 0) return true;
  return false;
}

/* Kernels read activations and gathered parameters in the compute dtype, optimizers update parameters in the master dtype,
 * gradients of parameters in any, but all of one
 * instruction in the same. */
static bool check_operand(const Plan *plan, const InstrSpec *specs, const PlanInstr *instr, int k, Failure *failure) {
  const OperandSpec *spec = &specs[instr->op].operands[k];
  const PlanBuf *buf = &plan->bufs.data[plan_operand(plan, instr, k)->buf];
  if (spec->dtype != OPERAND_FLOAT) return true;
  bool updated = instr->phase == PHASE_UPDATE && strcmp(spec->name, "w") == 0;
  DType wanted = updated ? plan->recipe.master : plan->recipe.compute;
  bool any = is_collective(instr->op) || is_gradient(spec->name) || (instr->op == INSTR_COPY && spec->mode == MODE_ADD);
  if (any) wanted = is_float(buf->dtype) ? buf->dtype : wanted;
  for (int i = 0; i < k && is_gradient(spec->name); i++) {
    int32_t other = plan_operand(plan, instr, i)->buf;
    if (is_gradient(specs[instr->op].operands[i].name) && other != PLAN_NONE) wanted = plan->bufs.data[other].dtype;
  }
  if (buf->dtype == wanted) return true;
  return fail(failure, RUN_INVALID, "plan: \"%s\" of %s is %s, and the CPU backend needs it in %s", plan_str(plan, buf->name),
              plan_str(plan, instr->name), dtype_name(buf->dtype), dtype_name(wanted));
}

/* What kernels for elements of 16 bits cannot do. */
static bool check_half(const Plan *plan, const InstrSpec *spec, const PlanInstr *instr, Failure *failure) {
  if (plan->recipe.compute == DTYPE_F32) return true;
  for (int k = 0; k < spec->int_count; k++) {
    if (strcmp(spec->ints[k], "head_dim") != 0 || plan_int(plan, instr, k) <= HALF_MAX_HEAD_DIM) continue;
    if (instr->op != INSTR_ATTENTION_FWD && instr->op != INSTR_ATTENTION_BWD && instr->op != INSTR_ATTENTION_CACHED) continue;
    return fail(failure, RUN_INVALID, "plan: %s has heads of %lld dimensions, and in %s the CPU backend has at most %d; set "
                "`precision f32`", plan_str(plan, instr->name), (long long)plan_int(plan, instr, k),
                dtype_name(plan->recipe.compute), HALF_MAX_HEAD_DIM);
  }
  return true;
}

static bool resolve(CpuBackend *cpu, const InstrSpec *specs, int32_t position, Failure *failure) {
  const Plan *plan = cpu->machine.plan;
  const PlanInstr *instr = &plan->instrs.data[position];
  const InstrSpec *spec = &specs[instr->op];
  if (!check_half(plan, spec, instr, failure)) return false;
  for (int k = 0; k < spec->operand_count; k++) {
    const PlanOperand *operand = plan_operand(plan, instr, k);
    CpuOperand *out = &cpu->operands[instr->operands + (uint32_t)k];
    uint64_t rows, cols;
    if (operand->buf == PLAN_NONE) continue;
    if (!check_operand(plan, specs, instr, k, failure)) return false;
    if (!plan_operand_dims(plan, specs, instr, k, &rows, &cols))
      return fail(failure, RUN_INVALID, "plan: instruction %d (%s) has sizes that overflow", (int)position, spec->name);
    const PlanBuf *buf = &plan->bufs.data[operand->buf];
    uint64_t size = dtype_bytes(buf->dtype), ld = operand->ld != 0 ? operand->ld : cols;
    uint64_t end = buf->offset + (operand->offset + (rows - 1) * ld + cols) * size;
    *out = (CpuOperand){address(cpu, buf) + operand->offset * size, (int64_t)ld, operand->add,
                        is_float(buf->dtype) ? (FloatType)buf->dtype : FLOAT_REAL};
    end = round_up(end, PLAN_ALIGN_BYTES); /* what a buffer occupies */
    if (!buf->host && end > cpu->reach[position]) cpu->reach[position] = end;
  }
  return true;
}

/* The ranks must meet in one order, so one queue has all collectives. */
static bool check_collectives(const Plan *plan, Failure *failure) {
  int32_t first = PLAN_NONE;
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    if (!is_collective(instr->op)) continue;
    if (first == PLAN_NONE) first = (int32_t)plan->queue[instr->stream];
    if (plan->queue[instr->stream] != (uint32_t)first)
      return fail(failure, RUN_INVALID,
                  "plan: its collectives are spread over several queues, and on CPUs one thread communicates; plan for a "
                  "cpu cluster");
  }
  return true;
}

static void build_lists(CpuBackend *cpu, Arena *arena) {
  const Plan *plan = cpu->machine.plan;
  cpu->lists = ARENA_ARRAY(arena, QueueList, (size_t)plan->segments.count * STREAM_COUNT);
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    QueueList *lists = &cpu->lists[s * STREAM_COUNT];
    for (int32_t i = segment->first; i < segment->end; i++) lists[plan->queue[plan->instrs.data[i].stream]].count++;
    for (int q = 0; q < STREAM_COUNT; q++) {
      lists[q].instrs = ARENA_ARRAY(arena, int32_t, lists[q].count);
      lists[q].count = 0;
    }
    for (int32_t i = segment->first; i < segment->end; i++) {
      QueueList *list = &lists[plan->queue[plan->instrs.data[i].stream]];
      list->instrs[list->count++] = i;
    }
  }
}

static bool start_workers(CpuBackend *cpu, Arena *arena, Failure *failure) {
  const Plan *plan = cpu->machine.plan;
  uintptr_t raw = (uintptr_t)arena_alloc(arena, STREAM_COUNT * sizeof(QueueWorker) + 64);
  Parallel *serial = parallel_serial(arena);
  cpu->workers = (QueueWorker *)((raw + 63) / 64 * 64);
  for (uint32_t stream = 0; stream < STREAM_COUNT; stream++) {
    uint32_t queue = plan->queue[stream];
    QueueWorker *worker = &cpu->workers[queue];
    bool compute = queue == plan->queue[STREAM_COMPUTE];
    if (worker->backend != NULL) continue; /* another stream has the same queue */
    worker->backend = cpu;
    worker->queue = queue;
    worker->context = (KernelContext){.parallel = compute ? pool_parallel(cpu->config.pool) : serial,
                                      .gemm = cpu->config.gemm,
                                      .gradient = (FloatType)plan->recipe.compute}; /* unless an instruction has one */
    if (compute) continue;
    int error = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (error != 0)
      return fail(failure, RUN_INVALID, "rank %u: the thread of stream %s cannot be started: %s%s",
                  cpu->machine.comm->rank, stream_name((StreamId)stream), strerror(error), remedy_of(error));
    worker->started = true;
  }
  return true;
}

static bool choose_kernels(CpuBackend *cpu, Failure *failure) {
  const CpuBackendConfig *config = &cpu->config;
  DType compute = config->plan->recipe.compute;
  cpu->machine = (CpuMachine){.plan = config->plan,
                              .arena = config->arena,
                              .kernels = config->kernels,
                              .comm = config->comm,
                              .feed = config->feed,
                              .ranges = config->ranges};
  cpu->function = compute == DTYPE_F32 ? cpu_function : cpu_function_half;
  if (compute == DTYPE_F32) return true;
  if (is_float(compute)) cpu->machine.half = kernels_cpu_half((FloatType)compute);
  if (cpu->machine.half != NULL) return true;
  return fail(failure, RUN_INVALID, "plan: the CPU backend computes in f32, bf16 and f16, not in %s", dtype_name(compute));
}

Backend *backend_cpu_open(Arena *arena, const CpuBackendConfig *config, Failure *failure) {
  const Plan *plan = config->plan;
  CpuBackend *cpu = ARENA_NEW(arena, CpuBackend);
  const InstrSpec *specs = instr_specs(arena);
  cpu->config = *config;
  if (!choose_kernels(cpu, failure)) return NULL;
  cpu->operands = ARENA_ARRAY(arena, CpuOperand, plan->operands.count);
  cpu->reach = ARENA_ARRAY(arena, uint64_t, plan->instrs.count);
  cpu->events = ARENA_ARRAY(arena, Counter, plan->event_count);
  cpu->base = (Backend){.name = "cpu",
                        .run_segment = run_segment,
                        .write = write_buf,
                        .read = read_buf,
                        .error = error,
                        .exit_code = exit_code,
                        .high_water = high_water,
                        .close = close_backend};
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    if (!resolve(cpu, specs, (int32_t)i, failure)) return NULL;
  if (!check_collectives(plan, failure)) return NULL;
  build_lists(cpu, arena);
  pthread_mutex_init(&cpu->failing, NULL);
  if (start_workers(cpu, arena, failure)) return &cpu->base;
  close_backend(&cpu->base);
  return NULL;
}
