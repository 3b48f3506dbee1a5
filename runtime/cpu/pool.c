/* Owns: the thread pool.
 *
 * A job is claimed task by task through one 64-bit ticket: its number above, the next task below. A worker reads the
 * job's fields and then advances the ticket by compare-and-swap; success proves that the fields belonged to that job,
 * because run closes the ticket before it changes them. So run never waits for a worker that is still asleep. */
#include "runtime/cpu/pool.h"

#include "runtime/counter.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <string.h>

typedef void (*PoolTask)(void *arg, int64_t index);

struct Pool {
  Parallel parallel; /* first: run is given &pool->parallel */
  uint32_t spins, started;
  void (*init)(void *arg);
  void *init_arg;
  pthread_t *threads;
  _Atomic uint32_t closing;
  Counter jobs;    /* number of the latest job: what idle workers sleep on */
  _Alignas(64) _Atomic uint64_t ticket;
  _Atomic uint32_t tasks; /* of the current job; beyond it the ticket is exhausted */
  _Atomic(PoolTask) task;
  _Atomic(void *) arg;
  _Alignas(64) Counter done; /* tasks finished, over all jobs */
};

enum { POOL_MAX_TASKS = 0x7fffffff }; /* the ticket's lower half, with room for late increments */

/* Works at the current job until its tasks are all claimed. */
static void work(Pool *pool) {
  uint64_t ticket = atomic_load(&pool->ticket);
  for (;;) {
    uint32_t index = (uint32_t)ticket;
    PoolTask task = atomic_load_explicit(&pool->task, memory_order_relaxed);
    void *arg = atomic_load_explicit(&pool->arg, memory_order_relaxed);
    if (index >= atomic_load_explicit(&pool->tasks, memory_order_relaxed)) return;
    if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1)) continue;
    task(arg, (int64_t)index);
    counter_add(&pool->done, 1);
    ticket = atomic_load(&pool->ticket);
  }
}

static void run_serial(Parallel *self, int64_t tasks, PoolTask task, void *arg) {
  (void)self;
  for (int64_t i = 0; i < tasks; i++) task(arg, i);
}

static void run(Parallel *self, int64_t tasks, PoolTask task, void *arg) {
  Pool *pool = (Pool *)self;
  if (tasks <= 1 || pool->started == 0 || tasks > POOL_MAX_TASKS) {
    run_serial(self, tasks, task, arg);
    return;
  }
  uint32_t job = counter_get(&pool->jobs) + 1, finished = counter_get(&pool->done) + (uint32_t)tasks;
  atomic_store(&pool->ticket, (uint64_t)job << 32 | UINT32_MAX); /* closed: no index is below any count */
  atomic_store(&pool->task, task);
  atomic_store(&pool->arg, arg);
  atomic_store(&pool->tasks, (uint32_t)tasks);
  atomic_store(&pool->ticket, (uint64_t)job << 32);
  counter_set(&pool->jobs, job);
  work(pool);
  counter_wait(&pool->done, finished, pool->spins, NULL);
}

static void *worker(void *arg) {
  Pool *pool = arg;
  if (pool->init != NULL) pool->init(pool->init_arg);
  for (uint32_t seen = 0;;) {
    counter_wait(&pool->jobs, seen + 1, pool->spins, &pool->closing);
    if (atomic_load(&pool->closing) != 0) return NULL;
    seen = counter_get(&pool->jobs);
    work(pool);
  }
}

Pool *pool_open(Arena *arena, uint32_t threads, uint32_t spins, void (*init)(void *arg), void *arg, Failure *failure) {
  /* The arena aligns to 16 bytes; the pool's cache lines want 64. */
  uintptr_t raw = (uintptr_t)arena_alloc(arena, sizeof(Pool) + 64);
  Pool *pool = (Pool *)((raw + 63) / 64 * 64);
  pool->parallel.run = run;
  pool->spins = spins;
  pool->init = init;
  pool->init_arg = arg;
  pool->threads = ARENA_ARRAY(arena, pthread_t, threads);
  for (; pool->started + 1 < threads; pool->started++) {
    int error = pthread_create(&pool->threads[pool->started], NULL, worker, pool);
    if (error == 0) continue;
    fail(failure, RUN_INVALID, "compute thread %u of %u cannot be started: %s; ask for fewer with --threads",
         pool->started + 1, threads, strerror(error));
    pool_close(pool);
    return NULL;
  }
  return pool;
}

Parallel *pool_parallel(Pool *pool) { return &pool->parallel; }

void pool_close(Pool *pool) {
  atomic_store(&pool->closing, 1);
  counter_add(&pool->jobs, 1);
  for (uint32_t i = 0; i < pool->started; i++) pthread_join(pool->threads[i], NULL);
  pool->started = 0;
}

Parallel *parallel_serial(Arena *arena) {
  Parallel *serial = ARENA_NEW(arena, Parallel);
  serial->run = run_serial;
  return serial;
}
