/* Owns: profile.h. Everything is measured in ranks started as for training, in all of them at once, since cores that compute
 * side by side share power and memory; rank 0 leaves its times in memory shared with this process. */
#include "cli/profile.h"

#include "base/clock.h"
#include "kernels/kernels.h"
#include "runtime/cpu/backend_cpu.h"
#include "runtime/comm/comm_shm.h"
#include "runtime/counter.h"
#include "runtime/launch/launch.h"
#include "runtime/cpu/pool.h"
#include "runtime/rank.h"
#include "runtime/runtime.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef struct Times {
  double best, quiet, median, slow;
} Times;

/* quiet: when other processes hardly interfere; the very slowest says more about them. */
static Times sorted(double ns[PROFILE_REPEATS]) {
  qsort(ns, PROFILE_REPEATS, sizeof *ns, compare);
  return (Times){ns[0], ns[PROFILE_REPEATS / 4], ns[PROFILE_REPEATS / 2], ns[PROFILE_REPEATS - 2]};
}

/* --- products -------------------------------------------------------------------------------------------- */

typedef struct Bench {
  KernelContext context;
  const KernelTable *kernels;
} Bench;

typedef struct Square {
  int64_t n;
  float *a, *b, *c; /* n x n */
} Square;

static void multiply(const Bench *bench, const Square *s) {
  bench->kernels->linear_bwd_x(&bench->context, s->n, s->n, s->n, s->a, s->n, s->b, s->c, s->n, 0);
}

static Times time_products(const Bench *bench, const Square *s) {
  double ns[PROFILE_REPEATS];
  multiply(bench, s);
  for (int i = 0; i < PROFILE_REPEATS; i++) {
    uint64_t start = clock_ns();
    multiply(bench, s);
    ns[i] = (double)(clock_ns() - start);
  }
  return sorted(ns);
}

/* Of all threads of a rank together; `floats` has room for three matrices. */
static void measure_peak(const Bench *bench, float *floats, ProfileResult *out) {
  for (int64_t n = 512; n <= PROFILE_PRODUCT; n *= 2) {
    Square s = {n, floats, floats + n * n, floats + 2 * n * n};
    Times times = time_products(bench, &s);
    out->peak = fmax(out->peak, 2e9 * pow((double)n, 3) / times.best);
    out->compute_spread = fmin(0.9, fmax(out->compute_spread, times.slow / times.median - 1));
  }
}

/* --- collectives ---------------------------------------------------------------------------------------- */

/* Lies in memory that ranks share with the process that started them. */
typedef struct Shared {
  ProfileResult result;
  const char *failure; /* a literal: ranks are forks */
} Shared;

/* An arena holds full tensors and, behind them, shards. */
enum { SHARD_AT = PROFILE_FLOATS * 4, ARENA_AT_MOST = 2 * PROFILE_FLOATS * 4 };

static void collect(Comm *comm, Collective kind, uint64_t elements) {
  uint64_t count = elements / comm->shard;
  if (kind == COLLECTIVE_GATHER) comm->allgather(comm, SHARD_AT, 0, count, 4);
  if (kind == COLLECTIVE_REDUCE) comm->reduce_scatter(comm, 0, SHARD_AT, count, DTYPE_F32, false);
  if (kind == COLLECTIVE_ALLREDUCE) comm->allreduce(comm, 0, SHARD_AT, elements, DTYPE_F32, false);
}

/* The thread that communicates while its rank's others compute or, as here, wait for it: handing over takes time too. */
typedef struct Courier {
  Comm *comm;
  uint32_t spins;
  Collective kind;
  uint64_t elements; /* 0: the end */
  Counter asked, done;
} Courier;

static void *courier_main(void *arg) {
  Courier *courier = arg;
  for (uint32_t next = 1;; next++) {
    counter_wait(&courier->asked, next, courier->spins, NULL);
    if (courier->elements == 0) return NULL;
    collect(courier->comm, courier->kind, courier->elements);
    counter_set(&courier->done, next);
  }
}

static void ask(Courier *courier, Collective kind, uint64_t elements) {
  courier->kind = kind, courier->elements = elements;
  counter_add(&courier->asked, 1);
}

static void await(Courier *courier) {
  counter_wait(&courier->done, counter_get(&courier->asked), courier->spins, NULL);
}

static Times time_collective(Courier *courier, Collective kind, uint64_t elements) {
  double ns[PROFILE_REPEATS];
  for (int i = -1; i < PROFILE_REPEATS; i++) {
    courier->comm->barrier(courier->comm);
    uint64_t start = clock_ns();
    ask(courier, kind, elements);
    await(courier);
    if (i >= 0) ns[i] = (double)(clock_ns() - start);
  }
  return sorted(ns);
}

/* Groups of any shape share one communicator; all-reduce goes over replicas. */
static void measure_collectives(Courier *courier, uint32_t ranks, ProfileResult *out) {
  for (int kind = 0; kind < COLLECTIVE_COUNT; kind++) {
    courier->comm->shard = kind == COLLECTIVE_ALLREDUCE ? 1 : ranks;
    courier->comm->replicas = ranks / courier->comm->shard;
    for (int i = 0; i < PROFILE_SIZES; i++) {
      uint64_t elements = (uint64_t)PROFILE_FLOATS >> 3 * (PROFILE_SIZES - 1 - i);
      elements = elements / ranks * ranks;
      Times times = time_collective(courier, (Collective)kind, elements);
      out->collectives[kind][i] = (TimedSize){4 * (double)elements, times.quiet};
      if (4 * elements > 1 << 20) out->comm_spread = fmin(0.9, fmax(out->comm_spread, times.slow / times.median - 1));
    }
  }
  courier->comm->shard = ranks, courier->comm->replicas = 1;
  out->latency_ns = out->collectives[COLLECTIVE_GATHER][0].ns;
}

/* Seconds of products lost for a second of a gather beside them, which here takes as long as it did alone. */
static double measure_contention(const Bench *bench, Courier *courier, float *floats) {
  enum { N = 128, GATHERS = 12 };
  Square s = {N, floats, floats + N * N, floats + 2 * N * N};
  double alone = time_products(bench, &s).quiet, gather = time_collective(courier, COLLECTIVE_GATHER, PROFILE_FLOATS).quiet;
  double lost = 0;
  for (int i = 0; i < GATHERS; i++) {
    courier->comm->barrier(courier->comm);
    uint64_t start = clock_ns();
    double products = 0;
    ask(courier, COLLECTIVE_GATHER, PROFILE_FLOATS);
    while (!counter_reached(&courier->done, counter_get(&courier->asked))) multiply(bench, &s), products++;
    lost += ((double)(clock_ns() - start) - products * alone) / gather / GATHERS;
  }
  return fmin(1, fmax(0, lost));
}

/* --- a rank ---------------------------------------------------------------------------------------------- */

typedef struct RankJob {
  Shared *shared;
  uint32_t threads;
} RankJob;

static Comm *open_comm(Arena *arena, const RankEnv *env, uint32_t spins) {
  CommShmConfig config = {.rank = env->rank,
                          .ranks = env->ranks,
                          .shard = env->ranks,
                          .replicas = 1,
                          .arenas = env->arenas,
                          .lanes = env->lanes,
                          .stop = &env->control->stop,
                          .kernels = kernels_cpu(),
                          .spins = spins};
  return comm_shm_open(arena, &config);
}

static const char *measure_rank(Arena *arena, const RankEnv *env, const Bench *bench, uint32_t spins, ProfileResult *out) {
  Courier courier = {.comm = open_comm(arena, env, spins), .spins = spins};
  float *floats = (float *)env->arenas[env->rank];
  pthread_t thread;
  courier.comm->barrier(courier.comm);
  measure_peak(bench, floats, out);
  if (env->ranks == 1) return NULL;
  if (pthread_create(&thread, NULL, courier_main, &courier)) return "no thread can be started";
  measure_collectives(&courier, env->ranks, out);
  out->contention = measure_contention(bench, &courier, floats + ARENA_AT_MOST / sizeof(float));
  ask(&courier, COLLECTIVE_GATHER, 0);
  pthread_join(thread, NULL);
  return NULL;
}

static int rank_main(void *user, const RankEnv *env) {
  const RankJob *job = user;
  Arena *arena = arena_new();
  const char *why = NULL;
  Failure failure = {0};
  RankThreads threads = rank_threads(env, job->threads);
  const Gemm *gemm = gemm_open(NULL, &why);
  cpu_thread_init((void *)(uintptr_t)gemm);
  Pool *pool = gemm ? pool_open(arena, threads.count, threads.spins, cpu_thread_init, (void *)(uintptr_t)gemm, &failure) : NULL;
  ProfileResult mine = {.ranks = env->ranks, .threads = threads.count};
  if (pool) {
    Bench bench = {{.parallel = pool_parallel(pool), .gemm = gemm}, kernels_cpu()};
    mine.gemm = gemm->name;
    why = measure_rank(arena, env, &bench, threads.spins, &mine);
    pool_close(pool);
  } else if (!why) {
    why = "not enough threads";
  }
  if (env->rank == 0) *job->shared = (Shared){mine, why};
  arena_free(arena);
  return 0;
}

static bool measure_ranks(uint32_t ranks, uint32_t threads, ProfileResult *out, Failure *failure) {
  Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return fail(failure, RUN_INVALID, "not enough memory");
  RankJob mine = {shared, threads};
  LaunchJob job = {.ranks = ranks, .arena_bytes = ARENA_AT_MOST + (1 << 20), .rank_main = rank_main, .user = &mine};
  if (profile_launch(&job, failure) && shared->failure) fail(failure, RUN_INVALID, "%s", shared->failure);
  *out = shared->result;
  munmap(shared, sizeof *shared);
  return failure->code == RUN_OK;
}

static double rate_of_last(const TimedSizes *sizes) {
  return sizes->count ? 1e9 * sizes->data[sizes->count - 1].bytes / sizes->data[sizes->count - 1].ns : 0;
}

bool profile_measure(Arena *arena, uint32_t ranks, uint32_t threads, ProfileResult *result, Failure *failure) {
  ProfileStep steps[PROFILE_MODELS];
  *result = (ProfileResult){.ranks = ranks};
  if (!measure_ranks(ranks, threads, result, failure) || !profile_steps(arena, ranks, threads, steps, failure)) return false;
  profile_fit(arena, steps, result);
  result->bandwidth = rate_of_last(&result->moves[MOVE_ADAMW]);
  result->bandwidth_share = fmin(1, rate_of_last(&result->moves[MOVE_ADD]) / result->bandwidth);
  return true;
}
