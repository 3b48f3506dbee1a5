/* Owns: profile.h. Everything is measured in ranks started as for training, kernels in all of them at once, since cores
 * that compute side by side share power and memory; rank 0 leaves its times in memory shared with this process. */
#include "cli/profile.h"

#include "kernels/kernels.h"
#include "runtime/comm_shm.h"
#include "runtime/launch.h"
#include "runtime/pool.h"
#include "runtime/runtime.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { REPEATS = 7, FLOATS = 16 << 20, COMM_FLOATS = 16 << 20 };

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef struct Times {
  double best, median, slow;
} Times;

static Times sorted(double ns[REPEATS]) {
  qsort(ns, REPEATS, sizeof *ns, compare);
  return (Times){ns[0], ns[REPEATS / 2],
                 ns[REPEATS - 2]}; /* the very slowest says more about other processes */
}

/* --- kernels -------------------------------------------------------------------------------------------- */

typedef struct Bench {
  KernelContext context;
  const KernelTable *kernels;
  float *a, *b, *c, *d; /* FLOATS each */
} Bench;

typedef struct Shape {
  int64_t m, n, k;
} Shape;

static void multiply(const Bench *bench, const void *arg) {
  const Shape *s = arg;
  bench->context.gemm->sgemm('N', 'T', s->m, s->n, s->k, 1, bench->a, s->k, bench->b, s->k, 0, bench->c,
                             s->n);
}

static void add(const Bench *bench, const void *arg) {
  (void)arg;
  int64_t rows = FLOATS / 1024;
  bench->kernels->add_fwd(&bench->context, rows, 1024, rows, bench->a, 1024, bench->b, 1024, bench->c, 1024);
}

static void update(const Bench *bench, const void *arg) {
  static const AdamwRates rates = {1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1};
  (void)arg;
  bench->kernels->adamw(&bench->context, FLOATS, &rates, bench->a, bench->b, bench->c, bench->d);
}

static void smallest(const Bench *bench, const void *arg) {
  (void)arg;
  for (int i = 0; i < 1000; i++) bench->kernels->copy(&bench->context, 1, 16, bench->a, 16, bench->c, 16, 0);
}

static AttentionShape attention_shape(int64_t tokens) {
  return (AttentionShape){.batch = 1,
                          .tq = tokens,
                          .tk = tokens,
                          .heads = 12,
                          .kv_heads = 12,
                          .head_dim = 64,
                          .causal = 1,
                          .scale = 0.125};
}

static void attend(const Bench *bench, const void *arg) {
  const AttentionShape *shape = arg;
  float *lse = bench->d;
  bench->kernels->attention_fwd(&bench->context, shape, bench->a, 768, bench->b, 768, bench->b, 768, bench->c,
                                768, lse);
}

static void attend_back(const Bench *bench, const void *arg) {
  const AttentionShape *shape = arg;
  int64_t step = shape->tq * 768;
  float *lse = bench->d, *dq = bench->d + step, *dk = dq + step, *dv = dk + step;
  bench->kernels->attention_bwd(&bench->context, shape, bench->a, 768, bench->b, 768, bench->b, 768, bench->c,
                                768, lse, bench->a, 768, dq, 768, 0, dk, 768, 0, dv, 768, 0);
}

static Times measure(const Bench *bench, void (*run)(const Bench *, const void *), const void *arg) {
  double ns[REPEATS];
  run(bench, arg);
  for (int i = 0; i < REPEATS; i++) {
    double start = now_ns();
    run(bench, arg);
    ns[i] = now_ns() - start;
  }
  return sorted(ns);
}

typedef enum { FORWARD, BACKWARD_X, BACKWARD_W, PASSES } Pass;

typedef struct Linear {
  Pass pass;
  int64_t rows, out, in;
} Linear;

static void pass_through(const Bench *bench, const void *arg) {
  const Linear *l = arg;
  const KernelContext *k = &bench->context;
  int64_t rows = l->rows, out = l->out, in = l->in;
  if (l->pass == FORWARD) bench->kernels->linear_fwd(k, rows, out, in, bench->a, in, bench->b, bench->d, bench->c, out);
  if (l->pass == BACKWARD_X) bench->kernels->linear_bwd_x(k, rows, out, in, bench->a, out, bench->b, bench->c, in, 0);
  if (l->pass == BACKWARD_W)
    bench->kernels->linear_bwd_w(k, rows, out, in, bench->a, in, bench->b, out, bench->c, bench->d, 0, 0);
}

static int64_t inner_length(const Linear *l) {
  return l->pass == FORWARD ? l->in : l->pass == BACKWARD_X ? l->out : l->rows;
}

/* A flop takes (1 + prologue/K)/rate: a straight line in 1/K, fitted by least squares. */
static void measure_linears(const Bench *bench, ProfileResult *out) {
  static const Linear shapes[] = {{.rows = 1024, .out = 2304, .in = 768}, {.rows = 1024, .out = 768, .in = 768},
                                  {.rows = 1024, .out = 3072, .in = 768}, {.rows = 1024, .out = 768, .in = 3072},
                                  {.rows = 2048, .out = 384, .in = 128},  {.rows = 2048, .out = 512, .in = 128},
                                  {.rows = 2048, .out = 128, .in = 512}};
  enum { SHAPES = sizeof shapes / sizeof *shapes };
  double n = SHAPES * PASSES, x_sum = 0, y_sum = 0, xx_sum = 0, xy_sum = 0;
  for (int i = 0; i < SHAPES * PASSES; i++) {
    Linear l = shapes[i / PASSES];
    l.pass = (Pass)(i % PASSES);
    Times times = measure(bench, pass_through, &l);
    double x = 1 / (double)inner_length(&l), y = times.median / (2.0 * (double)(l.rows * l.out * l.in));
    x_sum += x, y_sum += y, xx_sum += x * x, xy_sum += x * y;
    out->compute_spread = fmax(out->compute_spread, times.slow / times.median - 1);
  }
  double slope = fmax(0, (n * xy_sum - x_sum * y_sum) / (n * xx_sum - x_sum * x_sum));
  double best = (y_sum - slope * x_sum) / n; /* ns a flop of an endless product */
  out->gemm_share = fmin(1, 1e9 / (best * out->peak));
  out->gemm_prologue = fmax(1, slope / best);
  out->compute_spread = fmin(0.9, out->compute_spread);
}

static void measure_peak(const Bench *bench, ProfileResult *out) {
  static const Shape large[] = {{1024, 1024, 1024}, {2048, 1024, 1024}, {512, 2048, 2048}};
  for (int i = 0; i < 3; i++) {
    double flops = 2.0 * (double)(large[i].m * large[i].n * large[i].k);
    out->peak = fmax(out->peak, 1e9 * flops / measure(bench, multiply, &large[i]).best);
  }
}

static double attention_rate(const Bench *bench, int64_t tokens, bool backward) {
  AttentionShape shape = attention_shape(tokens);
  double flops = 2.0 * 768 * (double)(tokens * tokens) * (backward ? 2.5 : 1);
  return 1e9 * flops / measure(bench, backward ? attend_back : attend, &shape).median;
}

/* rate = a s/(s + s0) through two lengths, the shorter of two blocks of the kernel. */
static void measure_attention(const Bench *bench, ProfileResult *out) {
  double near = attention_rate(bench, 128, false), far = attention_rate(bench, 1024, false);
  double saturation = (far - near) / (near / 128 - far / 1024);
  out->attention_tokens = saturation > 0 && isfinite(saturation) ? saturation : 0;
  double most = far * (1 + out->attention_tokens / 1024);
  out->attention_share = fmin(1, most / out->peak);
  out->attention_backward = fmin(1, attention_rate(bench, 1024, true) / far);
}

static const char *measure_kernels(Arena *arena, ProfileResult *out) {
  const char *why = NULL;
  Bench bench = {.kernels = kernels_cpu(), .context = {parallel_serial(arena), gemm_open(NULL, &why)}};
  float *block = calloc(4ull * FLOATS, sizeof(float));
  if (!block || !bench.context.gemm) {
    free(block);
    return why ? why : "not enough memory";
  }
  bench.a = block, bench.b = block + FLOATS, bench.c = bench.b + FLOATS, bench.d = bench.c + FLOATS;
  for (size_t i = 0; i < 4ull * FLOATS; i++) block[i] = (float)(i % 1024) / 1024;
  kernels_thread_init();
  if (bench.context.gemm->thread_init) bench.context.gemm->thread_init();
  out->gemm = bench.context.gemm->name;
  measure_peak(&bench, out);
  measure_linears(&bench, out);
  measure_attention(&bench, out);
  out->bandwidth =
      28e9 * FLOATS / measure(&bench, update, NULL).best; /* four reads and three writes of 4 bytes */
  out->bandwidth_share = fmin(1, 12e9 * FLOATS / measure(&bench, add, NULL).median / out->bandwidth);
  out->launch_ns = measure(&bench, smallest, NULL).median / 1000;
  free(block);
  return NULL;
}

/* --- collectives ---------------------------------------------------------------------------------------- */

/* Lies in memory that ranks share with the process that started them. */
typedef struct Shared {
  ProfileResult result;
  const char *failure; /* a literal: ranks are forks */
} Shared;

/* An arena holds full tensors and, behind them, shards. */
enum { SHARD_AT = COMM_FLOATS * 4, ARENA_AT_MOST = 2 * COMM_FLOATS * 4 };

static CommStatus collect(Comm *comm, Collective kind, uint64_t elements) {
  uint64_t count = elements / comm->shard;
  if (kind == COLLECTIVE_GATHER) return comm->allgather(comm, SHARD_AT, 0, count, 4);
  if (kind == COLLECTIVE_REDUCE) return comm->reduce_scatter(comm, 0, SHARD_AT, count, DTYPE_F32, false);
  return comm->allreduce(comm, 0, SHARD_AT, elements, DTYPE_F32, false);
}

static Times time_collective(Comm *comm, Collective kind, uint64_t elements) {
  double ns[REPEATS];
  collect(comm, kind, elements);
  for (int i = 0; i < REPEATS; i++) {
    comm->barrier(comm);
    double start = now_ns();
    collect(comm, kind, elements);
    ns[i] = now_ns() - start;
  }
  return sorted(ns);
}

typedef struct Beside {
  Comm *comm;
  _Atomic bool done;
  double ns; /* spent in collectives */
} Beside;

static void *keep_collecting(void *arg) {
  Beside *beside = arg;
  double start = now_ns();
  for (int i = 0; i < 12; i++) collect(beside->comm, COLLECTIVE_GATHER, COMM_FLOATS);
  beside->ns = now_ns() - start;
  beside->done = true;
  return NULL;
}

/* Share of its speed that a product loses while this rank's communication thread gathers. */
static double measure_contention(Arena *arena, Comm *comm, unsigned char *scratch) {
  const char *why = NULL;
  const Gemm *gemm = gemm_open(NULL, &why);
  Bench bench = {.context = {parallel_serial(arena), gemm}};
  Shape shape = {128, 128, 128};
  Beside beside = {.comm = comm};
  pthread_t thread;
  if (!gemm) return 0.5;
  bench.a = (float *)scratch, bench.b = bench.a + 128 * 128, bench.c = bench.b + 128 * 128;
  if (gemm->thread_init) gemm->thread_init();
  double alone = measure(&bench, multiply, &shape).median;
  comm->barrier(comm);
  if (pthread_create(&thread, NULL, keep_collecting, &beside)) return 0.5;
  double start = now_ns(), products = 0;
  while (!beside.done) multiply(&bench, &shape), products++;
  double lost = 1 - products * alone / (now_ns() - start);
  pthread_join(thread, NULL);
  return fmin(1, fmax(0, lost));
}

static int rank_main(void *user, const RankEnv *env) {
  Shared *shared = user;
  Arena *arena = arena_new();
  CommShmConfig config = {.rank = env->rank,
                          .ranks = env->ranks,
                          .shard = env->ranks,
                          .replicas = 1,
                          .arenas = env->arenas,
                          .lanes = env->lanes,
                          .stop = &env->control->stop,
                          .kernels = kernels_cpu(),
                          .spins = SPIN_SHORT};
  kernels_thread_init();
  Comm *comm = comm_shm_open(arena, &config);
  ProfileResult mine = {.ranks = env->ranks};
  for (int kind = 0; kind < COLLECTIVE_COUNT; kind++) {
    /* Groups of any shape share one communicator; all-reduce goes over replicas. */
    comm->shard = kind == COLLECTIVE_ALLREDUCE ? 1 : env->ranks;
    comm->replicas = env->ranks / comm->shard;
    for (int i = 0; i < PROFILE_SIZES; i++) {
      Times times = time_collective(comm, (Collective)kind, 1ull << (18 + 2 * i));
      mine.collective_ns[kind][i] = times.median;
      mine.comm_spread = fmin(0.9, fmax(mine.comm_spread, i > 0 ? times.slow / times.median - 1 : 0));
    }
  }
  comm->shard = env->ranks, comm->replicas = 1;
  mine.latency_ns = time_collective(comm, COLLECTIVE_GATHER, 1024).median;
  mine.contention = measure_contention(arena, comm, env->arenas[env->rank] + ARENA_AT_MOST);
  comm->barrier(comm);
  const char *failure = measure_kernels(arena, &mine);
  if (env->rank == 0) *shared = (Shared){mine, failure};
  comm->barrier(comm);
  arena_free(arena);
  return 0;
}

static const char *measure_ranks(uint32_t ranks, ProfileResult *out) {
  Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return "not enough memory";
  LaunchJob job = {
      .ranks = ranks, .arena_bytes = ARENA_AT_MOST + (1 << 20), .rank_main = rank_main, .user = shared};
  const char *failure = launch_run(&job) == 0 ? shared->failure : "a rank failed";
  *out = shared->result;
  munmap(shared, sizeof *shared);
  return failure;
}

const char *profile_measure(Arena *arena, uint32_t ranks, ProfileResult *result) {
  *result = (ProfileResult){.ranks = ranks};
  return ranks > 1 ? measure_ranks(ranks, result) : measure_kernels(arena, result);
}
