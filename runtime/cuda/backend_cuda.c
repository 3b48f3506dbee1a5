/* Owns: executing a plan's segments on CUDA streams, waiting for a step, reading and writing buffers. */
#include "runtime/cuda/backend_cuda.h"

#include "base/clock.h"
#include "runtime/cuda/cuda_state.h"
#include "runtime/runtime.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { SPINS = 2000, NAP_NS = 50000 }; /* of the wait for a step: polls in a row, then naps between polls */
enum { CAUSE_MS = 2000 };              /* for the news of who failed to come, after NCCL has noticed */

static const char *reason_of(int error) {
  return error == CUDA_UNSUPPORTED ? "the GPU has no kernel for these element types or this shape" : cudaGetErrorString((cudaError_t)error);
}

bool cuda_ok(int error, const char *what, Failure *failure) {
  if (error == 0) return true;
  return fail(failure, RUN_INVALID, "cuda: %s: %s", what, reason_of(error));
}

/* --- issuing ------------------------------------------------------------------------------------------------------ */

bool cuda_instr_failed(const CudaBackend *cuda, int32_t position, const char *reason, int code, Failure *failure) {
  const Plan *plan = cuda->config.plan;
  const PlanInstr *instr = &plan->instrs.data[position];
  return fail(failure, code, "rank %u, stream %s, instruction %d (%s): %s", cuda->machine.rank,
              stream_name(instr->stream), (int)position, plan_str(plan, instr->name), reason);
}

bool cuda_stopped(const CudaBackend *cuda) {
  return cuda->config.stop != NULL && atomic_load_explicit(cuda->config.stop, memory_order_acquire) != 0;
}

void cuda_await_cause(const CudaBackend *cuda, const Failure *failure) {
  const struct timespec pause = {.tv_nsec = 1000000};
  for (int ms = 0; ms < CAUSE_MS && failure->code == RUN_PEER_FAILED && !cuda_stopped(cuda); ms++) nanosleep(&pause, NULL);
}

/* why: of a call that failed. What an earlier kernel did wrong is heard of by whoever calls CUDA next, in libraries too. */
static bool instr_ok(CudaBackend *cuda, int32_t position, int error, const Failure *why) {
  char text[FAILURE_TEXT_BYTES + 128];
  if (error == 0) return true;
  if (error == CUDA_COMM_FAILED) {
    const Failure *of_comm = &cuda->machine.comm->failure;
    cuda_await_cause(cuda, of_comm);
    return cuda_instr_failed(cuda, position, of_comm->text, of_comm->code, &cuda->failure);
  }
  bool own = cuda->sync_each || error == CUDA_UNSUPPORTED, no_fit = error == (int)cudaErrorMemoryAllocation;
  snprintf(text, sizeof text, "%s%s", error == CUDA_CALL_FAILED ? why->text : reason_of(error),
           no_fit ? "; kernels are loaded beside what is planned: plan with a smaller --memory, or use an emptier GPU"
           : own  ? ""
                  : "; it may be of an earlier instruction: FSDPC_CUDA_SYNC=1 names it");
  return cuda_instr_failed(cuda, position, text, no_fit ? RUN_NO_FIT : RUN_INVALID, &cuda->failure);
}

static int execute(CudaBackend *cuda, int32_t position, cudaStream_t stream, Failure *why) {
  const Plan *plan = cuda->config.plan;
  const PlanInstr *instr = &plan->instrs.data[position];
  CudaCall call = {.machine = &cuda->machine,
                   .stream = stream,
                   .position = position,
                   .instr = instr,
                   .o = &cuda->operands[instr->operands],
                   .n = plan->ints.data + instr->ints,
                   .x = plan->reals.data + instr->reals,
                   .failure = why};
  return cuda_function(instr->op)(&call);
}

static void note_position(const CudaBackend *cuda, int32_t position) {
  if (cuda->config.position != NULL) atomic_store_explicit(cuda->config.position, position, memory_order_relaxed);
}

static bool issue_instr(CudaBackend *cuda, int32_t position, CudaTimer *timer) {
  const Plan *plan = cuda->config.plan;
  const PlanInstr *instr = &plan->instrs.data[position];
  cudaStream_t stream = cuda->streams[plan->queue[instr->stream]];
  Failure why = {0};
  int error = 0;
  note_position(cuda, position + 1);
  for (uint32_t i = 0; i < instr->wait_count && error == 0; i++)
    error = (int)cudaStreamWaitEvent(stream, cuda->events[plan->waits.data[instr->waits + i]], 0);
  if (error == 0 && timer != NULL) error = (int)cudaEventRecord(timer->start, stream);
  if (error == 0) error = execute(cuda, position, stream, &why);
  if (error == 0 && timer != NULL) error = (int)cudaEventRecord(timer->end, stream);
  if (error == 0 && instr->record != PLAN_NONE) error = (int)cudaEventRecord(cuda->events[instr->record], stream);
  if (error == 0 && cuda->sync_each) error = (int)cudaStreamSynchronize(stream);
  if (cuda->reach[position] > cuda->high_water) cuda->high_water = cuda->reach[position];
  return instr_ok(cuda, position, error, &why);
}

/* All queues start when the compute queue's earlier work is done, and it goes on when all are. */
static bool issue_segment(CudaBackend *cuda, int32_t index, CudaTimer *timers) {
  const PlanSegment *segment = &cuda->config.plan->segments.data[index];
  cudaStream_t origin = cuda->streams[cuda->origin];
  int error = (int)cudaEventRecord(cuda->fork, origin);
  for (uint32_t q = 0; q < STREAM_COUNT && error == 0; q++)
    if (q != cuda->origin && cuda->streams[q] != NULL) error = (int)cudaStreamWaitEvent(cuda->streams[q], cuda->fork, 0);
  if (!cuda_ok(error, "starting the streams", &cuda->failure)) return false;
  const StepState *state = cuda->machine.state;
  int32_t end = state->forward_only && state->turn < segment->end ? state->turn + 1 : segment->end;
  for (int32_t i = segment->first; i < end; i++)
    if (!issue_instr(cuda, i, timers != NULL ? &timers[i] : NULL)) return false;
  for (uint32_t q = 0; q < STREAM_COUNT && error == 0; q++) {
    if (q == cuda->origin || cuda->streams[q] == NULL) continue;
    error = (int)cudaEventRecord(cuda->join[q], cuda->streams[q]);
    if (error == 0) error = (int)cudaStreamWaitEvent(origin, cuda->join[q], 0);
  }
  if (error == 0 && plan_segment_feeds(cuda->config.plan, (uint32_t)index))
    error = cuda_advance(origin, (CudaStep *)(void *)cuda->staging_device, cuda->config.plan->world.accumulation);
  return cuda_ok(error, "joining the streams", &cuda->failure);
}

static bool graph_ok(CudaBackend *cuda, int error, const char *what) {
  if (error == 0) return true;
  return fail(&cuda->failure, RUN_INVALID, "cuda: %s: %s; FSDPC_CUDA_GRAPH=0 runs steps without graphs", what,
              cudaGetErrorString((cudaError_t)error));
}

/* Segments [first, end) as one graph, kept as that of the first. Kernels keep the priorities of their streams, which a graph otherwise takes from the
 * stream that it is launched on. */
static bool capture(CudaBackend *cuda, int32_t first, int32_t end) {
  cudaStream_t origin = cuda->streams[cuda->origin];
  cudaGraph_t graph = NULL;
  bool issued = true;
  if (!graph_ok(cuda, (int)cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal), "capturing")) return false;
  for (int32_t i = first; i < end && issued; i++) issued = issue_segment(cuda, i, NULL);
  int error = (int)cudaStreamEndCapture(origin, &graph); /* also after a failure: the stream must leave the mode */
  bool ok = issued && graph_ok(cuda, error, "capturing a step") &&
            graph_ok(cuda, (int)cudaGraphInstantiate(&cuda->graphs[first], graph, cudaGraphInstantiateFlagUseNodePriority),
                     "building a step's graph");
  if (graph != NULL) cudaGraphDestroy(graph);
  return ok;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static bool watch(CudaBackend *cuda, uint64_t begin, uint64_t step) {
  CudaComm *comm = cuda->machine.comm;
  if (cuda_stopped(cuda)) return fail(&cuda->failure, RUN_PEER_FAILED, "rank %u: another rank failed", cuda->machine.rank);
  if (comm != NULL && !comm->poll(comm)) {
    cuda_await_cause(cuda, &comm->failure);
    return fail(&cuda->failure, comm->failure.code, "rank %u: %s", cuda->machine.rank, comm->failure.text);
  }
  if (clock_ns() - begin < (uint64_t)cuda->timeout_s * 1000000000u) return true;
  return fail(&cuda->failure, RUN_PEER_FAILED,
              "rank %u: the GPU has not finished step %llu after %u s; is another rank stuck? FSDPC_CUDA_SYNC=1 names the "
              "instruction, FSDPC_CUDA_TIMEOUT=SECONDS waits longer",
              cuda->machine.rank, (unsigned long long)step, cuda->timeout_s);
}

/* Asynchronous errors surface here, too late to say where they arose. */
static bool wait_step(CudaBackend *cuda, const StepState *state) {
  uint64_t begin = clock_ns();
  const struct timespec nap = {.tv_nsec = NAP_NS};
  note_position(cuda, 0); /* all is launched, and which of it runs nobody knows */
  if (!cuda_ok((int)cudaEventRecord(cuda->done, cuda->streams[cuda->origin]), "ending a step", &cuda->failure)) return false;
  for (uint64_t polls = 0;; polls++) {
    cudaError_t error = cudaEventQuery(cuda->done);
    if (error == cudaSuccess) return true;
    if (error != cudaErrorNotReady)
      return fail(&cuda->failure, RUN_INVALID,
                  "rank %u: the GPU failed in step %llu: %s; FSDPC_CUDA_SYNC=1 names the instruction", cuda->machine.rank,
                  (unsigned long long)state->step, cudaGetErrorString(error));
    cudaGetLastError(); /* "not ready" counts as an error, which the next launch would find */
    if (polls < SPINS) continue;
    if (!watch(cuda, begin, state->step)) return false;
    nanosleep(&nap, NULL);
  }
}

/* --- times: only in steps that are asked for them ----------------------------------------------------------------- */

static bool make_timers(CudaBackend *cuda) {
  int error = 0;
  for (uint32_t i = 0; i < cuda->config.plan->instrs.count && error == 0; i++) {
    if (cuda->timers[i].end != NULL) continue;
    error = (int)cudaEventCreate(&cuda->timers[i].start);
    if (error == 0) error = (int)cudaEventCreate(&cuda->timers[i].end);
  }
  return cuda_ok(error, "timers", &cuda->failure);
}

static bool run_timed(CudaBackend *cuda, int32_t index, const StepState *state, InstrTime *times) {
  const PlanSegment *segment = &cuda->config.plan->segments.data[index];
  if (!make_timers(cuda)) return false;
  uint64_t begin = clock_ns();
  if (!issue_segment(cuda, index, cuda->timers) || !wait_step(cuda, state)) return false;
  cudaEvent_t base = cuda->timers[segment->first].start;
  for (int32_t i = segment->first; i < segment->end; i++) {
    float start = 0, end = 0; /* milliseconds */
    int error = (int)cudaEventElapsedTime(&start, base, cuda->timers[i].start);
    if (error == 0) error = (int)cudaEventElapsedTime(&end, base, cuda->timers[i].end);
    if (!cuda_ok(error, "timing an instruction", &cuda->failure)) return false;
    times[i] = (InstrTime){begin + (uint64_t)(1e6 * (double)(start > 0 ? start : 0)),
                           begin + (uint64_t)(1e6 * (double)(end > 0 ? end : 0))};
  }
  return true;
}

/* --- methods ------------------------------------------------------------------------------------------------------ */

/* Without segments that repeat (micro-batches to accumulate over) a step is one graph. */
static bool is_one_graph(const Plan *plan) {
  for (uint32_t s = 0; s < plan->segments.count; s++)
    if (plan->segments.data[s].count > 1) return false;
  return true;
}

/* Evaluation and sampling leave no graphs: what they run ends, or stands, elsewhere. NCCL wants all ranks to launch a collective from
 * a graph or none, so a step that is timed on one rank is launched as there on the others. */
static bool queue_segment(CudaBackend *cuda, int32_t index) {
  const StepState *state = cuda->machine.state;
  if (!cuda->use_graphs || !cuda->warm || state->forward_only || state->timed) return issue_segment(cuda, index, NULL);
  bool one = is_one_graph(cuda->config.plan);
  if (one && index > 0) return true; /* went with the first */
  if (cuda->graphs[index] == NULL && !capture(cuda, index, one ? (int32_t)cuda->config.plan->segments.count : index + 1)) return false;
  return graph_ok(cuda, (int)cudaGraphLaunch(cuda->graphs[index], cuda->streams[cuda->origin]), "launching a step's graph");
}

static bool run_segment(Backend *base, int32_t index, const StepState *state, InstrTime *times) {
  CudaBackend *cuda = (CudaBackend *)base;
  const Plan *plan = cuda->config.plan;
  if (cuda->failure.code != 0) return false;
  cuda->machine.state = state;
  bool begins = plan->training ? index == 0 && state->repetition == 0 : true; /* of a sampled position, whatever the segment */
  if (begins && !cuda_stage_step(cuda, state, index)) return false;
  if (times != NULL) {
    if (!run_timed(cuda, index, state, times)) return false;
  } else if (!queue_segment(cuda, index)) {
    return false;
  }
  if (state->forward_only) return wait_step(cuda, state);
  bool last = (uint32_t)index + 1 == plan->segments.count && state->repetition + 1 == plan->segments.data[index].count;
  if (!last) return true;
  cuda->warm = times != NULL || wait_step(cuda, state);
  return cuda->warm;
}

static bool inside(CudaBackend *cuda, int32_t buf, uint64_t first, uint64_t bytes) {
  const PlanBuf *b = &cuda->config.plan->bufs.data[buf];
  if (bytes <= b->bytes && first <= b->bytes - bytes) return true;
  return fail(&cuda->failure, RUN_INVALID, "buffer \"%s\" has %llu bytes; %llu from %llu on do not lie in it",
              plan_str(cuda->config.plan, b->name), (unsigned long long)b->bytes, (unsigned long long)bytes,
              (unsigned long long)first);
}

/* Master weights that change take their copy in the compute dtype with them. */
static int refresh_cast(CudaBackend *cuda, int32_t buf, uint64_t first, uint64_t bytes) {
  const Plan *plan = cuda->config.plan;
  const PlanBuf *master = &plan->bufs.data[buf];
  if (master->unit == PLAN_NONE || plan->units.data[master->unit].param_buf != buf) return 0;
  int32_t cast = plan->units.data[master->unit].cast_buf;
  if (cast == PLAN_NONE) return 0;
  int64_t from = (int64_t)(first / sizeof(float)), count = (int64_t)((bytes + first % sizeof(float)) / sizeof(float));
  const PlanBuf *copy = &plan->bufs.data[cast];
  CudaTensor x = {cuda_address(cuda, master) + (uint64_t)from * sizeof(float), count, CUDA_F32, 0};
  CudaTensor y = {cuda_address(cuda, copy) + (uint64_t)from * dtype_bytes(copy->dtype), count, (int)copy->dtype, 0};
  return cuda_copy(cuda->streams[cuda->origin], 1, count, x, y);
}

static bool write_buf(Backend *base, int32_t buf, uint64_t first, const void *data, uint64_t bytes) {
  CudaBackend *cuda = (CudaBackend *)base;
  cudaStream_t stream = cuda->streams[cuda->origin];
  if (!inside(cuda, buf, first, bytes)) return false;
  int error = (int)cudaMemcpyAsync(cuda_address(cuda, &cuda->config.plan->bufs.data[buf]) + first, data, bytes, cudaMemcpyDefault,
                                   stream);
  if (error == 0) error = refresh_cast(cuda, buf, first, bytes);
  if (error == 0) error = (int)cudaStreamSynchronize(stream);
  return cuda_ok(error, "writing to the GPU", &cuda->failure);
}

static bool read_buf(Backend *base, int32_t buf, uint64_t first, void *data, uint64_t bytes) {
  CudaBackend *cuda = (CudaBackend *)base;
  cudaStream_t stream = cuda->streams[cuda->origin];
  if (!inside(cuda, buf, first, bytes)) return false;
  int error = (int)cudaMemcpyAsync(data, cuda_address(cuda, &cuda->config.plan->bufs.data[buf]) + first, bytes, cudaMemcpyDefault,
                                   stream);
  if (error == 0) error = (int)cudaStreamSynchronize(stream);
  return cuda_ok(error, "reading from the GPU", &cuda->failure);
}

static const char *error_text(Backend *base) { return ((CudaBackend *)base)->failure.text; }

static int exit_code(Backend *base) { return ((CudaBackend *)base)->failure.code; }

static uint64_t high_water(Backend *base) { return ((CudaBackend *)base)->high_water; }

static void close_backend(Backend *base) { cuda_release((CudaBackend *)base); }

const char *backend_cuda_device(const Backend *backend) { return ((const CudaBackend *)backend)->device_name; }
uint64_t backend_cuda_beside(const Backend *backend) { return ((const CudaBackend *)backend)->beside_bytes; }

const Backend cuda_methods = {.name = "cuda",
                              .run_segment = run_segment,
                              .write = write_buf,
                              .read = read_buf,
                              .error = error_text,
                              .exit_code = exit_code,
                              .high_water = high_water,
                              .close = close_backend};
