/* Owns: tests of the thread pool. */
#include "testing.h"

#include "runtime/counter.h"
#include "runtime/cpu/pool.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_TASKS = 5000 };

typedef struct Work {
  int hits[MOST_TASKS]; /* plain ints: a task that ran twice would be a race */
} Work;

static void hit(void *arg, int64_t index) { ((Work *)arg)->hits[index]++; }

static void every_task_runs_once(void **state) {
  Scratch *scratch = *state;
  static const int64_t counts[] = {0, 1, 2, 3, 7, 64, 1000, MOST_TASKS};
  for (uint32_t threads = 1; threads <= 5; threads++) {
    Failure failure = {0};
    Pool *pool = pool_open(scratch->arena, threads, SPIN_SHORT, NULL, NULL, &failure);
    assert_non_null(pool);
    for (int round = 0; round < 200; round++) {
      Work work = {{0}};
      int64_t count = counts[round % 8];
      pool_parallel(pool)->run(pool_parallel(pool), count, hit, &work);
      for (int64_t i = 0; i < MOST_TASKS; i++) assert_int_equal(work.hits[i], i < count);
    }
    pool_close(pool);
  }
}

static void add(void *arg, int64_t index) { atomic_fetch_add((_Atomic int64_t *)arg, index); }

static void short_jobs_follow_each_other(void **state) {
  Scratch *scratch = *state;
  Failure failure = {0};
  Pool *pool = pool_open(scratch->arena, 3, SPIN_LONG, NULL, NULL, &failure);
  for (int round = 0; round < 20000; round++) {
    _Atomic int64_t sum = 0;
    pool_parallel(pool)->run(pool_parallel(pool), 4, add, &sum);
    assert_int_equal(atomic_load(&sum), 6);
  }
  pool_close(pool);
}

static void count_init(void *arg) { atomic_fetch_add((_Atomic int *)arg, 1); }

static void init_runs_in_every_new_thread(void **state) {
  Scratch *scratch = *state;
  Failure failure = {0};
  _Atomic int inits = 0;
  Pool *pool = pool_open(scratch->arena, 4, SPIN_SHORT, count_init, &inits, &failure);
  pool_close(pool); /* joins */
  assert_int_equal(atomic_load(&inits), 3);
}

static double cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void idle_threads_sleep(void **state) {
  Scratch *scratch = *state;
  Failure failure = {0};
  Pool *pool = pool_open(scratch->arena, 4, SPIN_LONG, NULL, NULL, &failure);
  _Atomic int64_t sum = 0;
  pool_parallel(pool)->run(pool_parallel(pool), 100, add, &sum);
  usleep(20000);
  double before = cpu_seconds();
  usleep(300000);
  assert_true(cpu_seconds() - before < 0.15);
  pool_close(pool);
}

static void serial_runs_in_order(void **state) {
  Scratch *scratch = *state;
  Work work = {{0}};
  Parallel *serial = parallel_serial(scratch->arena);
  serial->run(serial, 10, hit, &work);
  for (int i = 0; i < 10; i++) assert_int_equal(work.hits[i], 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(every_task_runs_once),       SCRATCH_TEST(short_jobs_follow_each_other),
      SCRATCH_TEST(init_runs_in_every_new_thread), SCRATCH_TEST(idle_threads_sleep),
      SCRATCH_TEST(serial_runs_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
