/* Owns: the floor under a step's time on CPUs: the matrix products of a plan's linear layers and nothing
 * else, on as many processes as the plan has ranks, one thread each, with the same library.
 *
 *   bench_products PLAN [GEMM]      prints {"products_ns": ..., "gemm": "..."}: the slowest rank's best of
 * three */
#include "base/clock.h"
#include "base/diag.h"
#include "kernels/gemm.h"
#include "planner/plan/plan_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPEATS = 3 };

typedef struct Bench {
  const Gemm *gemm;
  float *a, *b, *c; /* large enough for any operand */
} Bench;

static void forward(const Bench *bench, int64_t rows, int64_t out, int64_t in) {
  bench->gemm->sgemm('N', 'T', rows, out, in, 1, bench->a, in, bench->b, in, 0, bench->c, out);
}

static void backward_x(const Bench *bench, int64_t rows, int64_t out, int64_t in) {
  bench->gemm->sgemm('N', 'N', rows, in, out, 1, bench->a, out, bench->b, in, 0, bench->c, in);
}

static void backward_w(const Bench *bench, int64_t rows, int64_t out, int64_t in) {
  bench->gemm->sgemm('T', 'N', out, in, rows, 1, bench->a, out, bench->b, in, 1, bench->c, in);
}

static void all_three(const Bench *bench, int64_t rows, int64_t out, int64_t in, int64_t chunk) {
  for (int64_t done = 0; done < rows; done += chunk) {
    int64_t part = rows - done < chunk ? rows - done : chunk;
    forward(bench, part, out, in);
    backward_x(bench, part, out, in);
    backward_w(bench, part, out, in);
  }
}

static void without_w(const Bench *bench, int64_t rows, int64_t out, int64_t in, int64_t chunk) {
  for (int64_t done = 0; done < rows; done += chunk) {
    int64_t part = rows - done < chunk ? rows - done : chunk;
    forward(bench, part, out, in);
    backward_x(bench, part, out, in);
  }
}

static void run_instr(const Bench *bench, const Plan *plan, const PlanInstr *instr) {
  if (instr->op == INSTR_LINEAR_CROSS_ENTROPY)
    all_three(bench, plan_int(plan, instr, 0), plan_int(plan, instr, 1), plan_int(plan, instr, 2),
              plan_int(plan, instr, 4));
  if (instr->op == INSTR_LINEAR_CROSS_ENTROPY_X)
    without_w(bench, plan_int(plan, instr, 0), plan_int(plan, instr, 1), plan_int(plan, instr, 2),
              plan_int(plan, instr, 4));
  void (*product)(const Bench *, int64_t, int64_t, int64_t) = instr->op == INSTR_LINEAR_FWD     ? forward
                                                              : instr->op == INSTR_LINEAR_BWD_X ? backward_x
                                                              : instr->op == INSTR_LINEAR_BWD_W ? backward_w
                                                                                                : NULL;
  if (product) product(bench, plan_int(plan, instr, 0), plan_int(plan, instr, 1), plan_int(plan, instr, 2));
}

static void run_step(const Bench *bench, const Plan *plan) {
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    for (uint64_t i = 0; i < segment->count; i++)
      for (int32_t k = segment->first; k < segment->end; k++) run_instr(bench, plan, &plan->instrs.data[k]);
  }
}

/* Elements of the largest buffer: no operand is larger. */
static size_t largest(const Plan *plan) {
  size_t most = 1;
  for (uint32_t i = 0; i < plan->bufs.count; i++)
    if (plan->bufs.data[i].numel > most) most = plan->bufs.data[i].numel;
  return most;
}

static float *filled(size_t count) {
  float *x = malloc(count * sizeof *x);
  if (!x) exit(1);
  for (size_t i = 0; i < count; i++) x[i] = (float)(i % 17) * 0.01f;
  return x;
}

static uint64_t time_rank(const Plan *plan, const Gemm *gemm) {
  size_t count = largest(plan);
  Bench bench = {gemm, filled(count), filled(count), filled(count)};
  uint64_t best = UINT64_MAX;
  if (gemm->thread_init) gemm->thread_init();
  run_step(&bench, plan);
  for (int i = 0; i < REPEATS; i++) {
    uint64_t start = clock_ns();
    run_step(&bench, plan);
    uint64_t took = clock_ns() - start;
    if (took < best) best = took;
  }
  return best;
}

/* Fork first, load libraries after: their threads do not survive a fork. */
static bool time_ranks(const Plan *plan, const char *name, uint64_t *times) {
  uint32_t ranks = plan->world.ranks;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    if (fork() != 0) continue;
    const char *why = "";
    const Gemm *gemm = gemm_open(name, &why);
    if (!gemm) fprintf(stderr, "error: %s\n", why), _exit(1);
    times[rank] = time_rank(plan, gemm);
    _exit(0);
  }
  bool well = true;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    int status;
    if (wait(&status) < 0 || status != 0) well = false;
  }
  return well;
}

int main(int argc, char **argv) {
  Arena *arena = arena_new();
  SourceSet sources = {.arena = arena};
  DiagSink sink = {.arena = arena, .sources = &sources};
  if (argc < 2) return fprintf(stderr, "usage: bench_products PLAN [GEMM]\n"), 64;
  Plan *plan = plan_read(arena, &sources, &sink, argv[1]);
  if (!plan) return diag_print(&sink, stderr, false), 1;
  uint64_t *times = mmap(NULL, plan->world.ranks * sizeof *times, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (times == MAP_FAILED || !time_ranks(plan, argc > 2 ? argv[2] : NULL, times)) return 1;
  uint64_t slowest = 0;
  for (uint32_t rank = 0; rank < plan->world.ranks; rank++)
    if (times[rank] > slowest) slowest = times[rank];
  printf("{\"products_ns\": %" PRIu64 "}\n", slowest);
  arena_free(arena);
  return 0;
}
