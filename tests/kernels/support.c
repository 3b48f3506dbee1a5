/* Owns: the helpers of support.h. */
#include "tests/kernels/support.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void **blocks;
static size_t block_count;

void *memory_get(size_t bytes) {
  blocks = realloc(blocks, (block_count + 1) * sizeof *blocks);
  assert_non_null(blocks);
  void *p = NULL;
  assert_int_equal(posix_memalign(&p, 64, bytes ? bytes : 1), 0);
  memset(p, 0, bytes);
  blocks[block_count++] = p;
  return p;
}

void memory_free(void) {
  for (size_t i = 0; i < block_count; i++) free(blocks[i]);
  free(blocks);
  blocks = NULL;
  block_count = 0;
}

double value_next(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(int64_t)(*state >> 43) * 0x1p-20 - 1;
}

void fill_f64(uint64_t *state, int64_t n, double *x) {
  for (int64_t i = 0; i < n; i++) x[i] = value_next(state);
}

void fill_f32(uint64_t *state, int64_t n, float *x) {
  for (int64_t i = 0; i < n; i++) x[i] = (float)value_next(state);
}

typedef struct Run {
  atomic_llong left;
  void (*task)(void *, int64_t);
  void *arg;
} Run;

static void *run_thread(void *arg) {
  Run *run = arg;
  kernels_thread_init();
  for (long long i; (i = atomic_fetch_sub(&run->left, 1) - 1) >= 0;) run->task(run->arg, i);
  return NULL;
}

static void pool_run(Parallel *self, int64_t tasks, void (*task)(void *, int64_t), void *arg) {
  Pool *pool = (Pool *)self;
  Run run = {.task = task, .arg = arg};
  atomic_init(&run.left, tasks);
  pthread_t thread[8];
  int threads = pool->threads > 8 ? 8 : pool->threads;
  for (int i = 1; i < threads; i++) assert_int_equal(pthread_create(&thread[i], NULL, run_thread, &run), 0);
  run_thread(&run);
  for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
}

Pool pool_of(int threads) {
  return (Pool){{pool_run}, threads};
}
