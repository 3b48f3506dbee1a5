/* Owns: tests of the CPU backend by itself, on one rank: instruction times respect order and events, the observed peak
 * comes from what ran, and a communicator that fails at any call ends the run with a message and without a hang. */
#include "testing.h"

#include "bigram.h"
#include "runtime/cpu/backend_cpu.h"
#include "runtime/backends.h"
#include "runtime/feed.h"
#include "runtime/rank.h"
#include "runtime/runtime.h"
#include "runtime/launch/shared.h"
#include "runtime/files/weights.h"

#include <string.h>

/* A communicator for one rank that fails at call `fail_at`, counted from 1. */
typedef struct FaultyComm {
  Comm comm;
  Comm *real;
  uint64_t calls, fail_at;
} FaultyComm;

static CommStatus count(Comm *comm) {
  FaultyComm *faulty = (FaultyComm *)comm;
  return ++faulty->calls == faulty->fail_at ? COMM_PEER_FAILED : COMM_OK;
}

#define FAULTY(name, parameters, arguments)                                                                  \
  static CommStatus name parameters {                                                                        \
    Comm *real = ((FaultyComm *)comm)->real;                                                                 \
    CommStatus status = count(comm);                                                                         \
    return status != COMM_OK ? status : real->name arguments;                                                \
  }
FAULTY(allgather, (Comm * comm, uint64_t a, uint64_t b, uint64_t n, uint32_t size), (real, a, b, n, size))
FAULTY(reduce_scatter, (Comm * comm, uint64_t a, uint64_t b, uint64_t n, DType dtype, bool add),
       (real, a, b, n, dtype, add))
FAULTY(allreduce_sum, (Comm * comm, uint64_t a, uint64_t n), (real, a, n))
FAULTY(allreduce_exact, (Comm * comm, uint64_t a), (real, a))

/* One rank in this process: memory, feed, machine, and a second backend behind the faulty communicator. */
typedef struct Single {
  Plan *plan;
  SharedMemory memory;
  TokenData data;
  TokenFeed feed;
  RankMachine machine;
  FaultyComm comm;
  Backend *backend;
} Single;

static void open_single(Scratch *scratch, Single *single, bool one_queue) {
  Failure failure = {0};
  BigramOptions options = {.shard = 1, .replicas = 1, .micro_batch = 4, .accumulation = 2, .steps = 5, .one_queue = one_queue};
  char text[2000];
  for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i * i % 26);
  const char *path = scratch_file(scratch, "text", text, sizeof text);
  memset(single, 0, sizeof *single);
  single->plan = bigram_plan(scratch->arena, &options);
  assert_true(shared_open(scratch->arena, &single->memory, 1, single->plan->arena_bytes, &failure));
  assert_true(data_open(scratch->arena, &single->data, &path, 1, BIGRAM_VOCAB, BIGRAM_CTX + 1, &failure));
  feed_open(&single->feed, single->plan, &single->data, BIGRAM_CTX, 0);
  RankEnv env = {.ranks = 1, .local_ranks = 1,
                 .arenas = single->memory.arenas,
                 .lanes = single->memory.lanes,
                 .status = single->memory.statuses,
                 .control = single->memory.control};
  RankSetup setup = {.plan = single->plan,
                     .kind = backend_find("cpu", &failure),
                     .env = &env,
                     .feed = &single->feed.feed,
                     .gemm = "builtin",
                     .threads = 2};
  assert_true(rank_open(scratch->arena, &single->machine, &setup, &failure));
  single->comm = (FaultyComm){.comm = *single->machine.comm, .real = single->machine.comm};
  single->comm.comm.allgather = allgather;
  single->comm.comm.reduce_scatter = reduce_scatter;
  single->comm.comm.allreduce_sum = allreduce_sum;
  single->comm.comm.allreduce_exact = allreduce_exact;
  CpuBackendConfig config = {.plan = single->plan,
                             .arena = single->memory.arenas[0],
                             .comm = &single->comm.comm,
                             .feed = &single->feed.feed,
                             .kernels = single->machine.kernels,
                             .gemm = single->machine.gemm,
                             .pool = single->machine.pool,
                             .ranges = single->machine.ranges,
                             .spins = SPIN_SHORT,
                             .position = &single->memory.statuses[0].instr};
  single->backend = backend_cpu_open(scratch->arena, &config, &failure);
  assert_non_null(single->backend);
}

static void close_single(Single *single) {
  single->backend->close(single->backend);
  rank_close(&single->machine);
  data_close(&single->data);
  shared_close(&single->memory);
}

static bool run_step(Single *single, InstrTime *times) {
  StepState state = {.step = 1, .lr = 0.01};
  for (uint32_t s = 0; s < single->plan->segments.count; s++)
    for (state.repetition = 0; state.repetition < single->plan->segments.data[s].count; state.repetition++) {
      if (!single->backend->run_segment(single->backend, (int32_t)s, &state, times)) return false;
      state.micro_batch += plan_segment_feeds(single->plan, s);
    }
  return true;
}

static void check_times(const Plan *plan, const InstrTime *times) {
  uint64_t queue_free[STREAM_COUNT] = {0}, recorded[64] = {0};
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    uint64_t *queue = &queue_free[plan->queue[instr->stream]];
    assert_true(times[i].start_ns >= *queue && times[i].end_ns >= times[i].start_ns);
    for (uint32_t w = 0; w < instr->wait_count; w++)
      assert_true(times[i].start_ns >= recorded[plan->waits.data[instr->waits + w]]);
    *queue = times[i].end_ns;
    if (instr->record != PLAN_NONE) recorded[instr->record] = times[i].end_ns;
  }
}

static void instructions_keep_their_order(void **state) {
  for (int one_queue = 0; one_queue < 2; one_queue++) {
    Single single;
    open_single(*state, &single, one_queue != 0);
    InstrTime times[64];
    assert_true(single.plan->instrs.count <= 64);
    for (int step = 0; step < 50; step++) {
      assert_true(run_step(&single, times));
      check_times(single.plan, times);
    }
    close_single(&single);
  }
}

static void the_peak_is_what_ran(void **state) {
  Single single;
  open_single(*state, &single, false);
  StepState step = {.step = 1};
  assert_int_equal(single.backend->high_water(single.backend), 0);
  assert_true(single.backend->run_segment(single.backend, 0, &step, NULL));
  uint64_t begin = single.backend->high_water(single.backend);
  assert_true(begin > 0 && begin < single.plan->arena_bytes); /* no activation was touched yet */
  assert_true(run_step(&single, NULL));
  assert_int_equal(single.backend->high_water(single.backend), single.plan->arena_bytes);
  close_single(&single);
}

static void buffers_are_read_and_written_inside_only(void **state) {
  Single single;
  open_single(*state, &single, false);
  Backend *backend = single.backend;
  float out[4], in[4] = {1, 2, 3, 4};
  int32_t buf = single.plan->units.data[0].param_buf;
  uint64_t bytes = single.plan->bufs.data[buf].bytes;
  assert_true(backend->write(backend, buf, bytes - sizeof in, in, sizeof in));
  assert_true(backend->read(backend, buf, bytes - sizeof in, out, sizeof out));
  assert_memory_equal(in, out, sizeof in);
  assert_false(backend->write(backend, buf, bytes - sizeof in + 1, in, sizeof in));
  assert_said(backend->error(backend), "do not lie in it");
  assert_false(backend->read(backend, buf, UINT64_MAX, out, 1));
  close_single(&single);
}

static void every_failing_call_ends_the_run(void **state) {
  for (uint64_t fail_at = 1;; fail_at++) {
    Single single;
    open_single(*state, &single, false);
    single.comm.fail_at = fail_at;
    double begin = clock_seconds();
    bool ok = run_step(&single, NULL);
    assert_soon(begin);
    uint64_t calls = single.comm.calls;
    if (!ok) {
      assert_int_equal(single.backend->exit_code(single.backend), RUN_PEER_FAILED);
      assert_said(single.backend->error(single.backend), "rank 0, stream ");
      assert_said(single.backend->error(single.backend), ": another rank failed");
      assert_int_equal(calls, fail_at);
    }
    close_single(&single);
    if (!ok) continue;
    assert_int_equal(calls, fail_at - 1); /* a clean run: nothing left to break */
    break;
  }
}

static void spread_collectives_are_refused(void **state) {
  Scratch *scratch = *state;
  Single single;
  Failure failure = {0};
  open_single(scratch, &single, false);
  Plan plan = *single.plan;
  plan.queue[STREAM_REDUCE] = 2;
  CpuBackendConfig config = {.plan = &plan, .arena = single.memory.arenas[0], .comm = &single.comm.comm};
  assert_null(backend_cpu_open(scratch->arena, &config, &failure));
  assert_said(failure.text, "spread over several queues");
  close_single(&single);
}

/* A parent that sees nothing grow takes a rank that reads from a slow disk for stuck. */
static void loading_weights_is_progress(void **state) {
  Single single;
  Failure failure = {0};
  open_single(*state, &single, false);
  RankMachine *machine = &single.machine;
  uint64_t before = atomic_load(&single.memory.statuses[0].beats);
  assert_true(weights_init(single.plan, machine->ranges, machine->backend, machine->kernels, &machine->context, &failure));
  assert_true(atomic_load(&single.memory.statuses[0].beats) > before);
  close_single(&single);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(instructions_keep_their_order), SCRATCH_TEST(the_peak_is_what_ran),
      SCRATCH_TEST(buffers_are_read_and_written_inside_only), SCRATCH_TEST(every_failing_call_ends_the_run),
      SCRATCH_TEST(spread_collectives_are_refused), SCRATCH_TEST(loading_weights_is_progress),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
