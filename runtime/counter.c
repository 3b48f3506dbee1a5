/* Owns: counters on Linux futexes. Shared futexes are used throughout: on private memory they cost a little more to
 * look up, and one implementation serves threads and processes. */
#include "runtime/counter.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wake(Counter *counter) {
  /* Ordered after the store of the value (both seq_cst): either the sleeper is seen here, or it sees the value. */
  if (atomic_load(&counter->sleepers) != 0)
    syscall(SYS_futex, &counter->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void counter_set(Counter *counter, uint32_t value) {
  atomic_store(&counter->value, value);
  wake(counter);
}

void counter_add(Counter *counter, uint32_t amount) {
  atomic_fetch_add(&counter->value, amount);
  wake(counter);
}

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

static bool stopped(const _Atomic uint32_t *stop) {
  return stop != NULL && atomic_load_explicit(stop, memory_order_acquire) != 0;
}

bool counter_wait(Counter *counter, uint32_t target, uint32_t spins, const _Atomic uint32_t *stop) {
  for (uint32_t i = 0; i < spins; i++) {
    if (counter_reached(counter, target)) return true;
    pause_core();
  }
  const struct timespec look = {.tv_nsec = COUNTER_LOOK_MS * 1000000L};
  bool reached = false;
  atomic_fetch_add(&counter->sleepers, 1);
  for (;;) {
    uint32_t value = atomic_load(&counter->value);
    reached = value - target < 0x80000000u;
    if (reached || stopped(stop)) break;
    syscall(SYS_futex, &counter->value, FUTEX_WAIT, value, &look, NULL, 0);
  }
  atomic_fetch_sub(&counter->sleepers, 1);
  return reached;
}
