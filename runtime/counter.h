/* Owns: the one way in which threads and ranks wait for each other: a counter that only grows, spun on briefly and then
 * slept on (futex). Lies in private or shared memory; all zero is its start.
 *
 * Values wrap around: "reached" means value - target < 2^31. A wait gives up when *stop is set; it looks again every
 * COUNTER_LOOK_MS even when nobody wakes it, so whoever sets `stop` needs to wake nobody. */
#ifndef FSDPC_RUNTIME_COUNTER_H
#define FSDPC_RUNTIME_COUNTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
  COUNTER_LOOK_MS = 50,
  SPIN_SHORT = 32,    /* about 1-2 us: cores are scarce */
  SPIN_LONG = 2000    /* about 50-100 us: every thread has a core of its own */
};

typedef struct Counter {
  _Atomic uint32_t value, sleepers;
} Counter;

/* Sequentially consistent, and so a release of everything written before. */
void counter_set(Counter *counter, uint32_t value);
void counter_add(Counter *counter, uint32_t amount);
static inline uint32_t counter_get(const Counter *counter) {
  return atomic_load_explicit(&counter->value, memory_order_acquire);
}
static inline bool counter_reached(const Counter *counter, uint32_t target) {
  return counter_get(counter) - target < 0x80000000u;
}
/* True when reached (acquires what was written before the matching set); false when stopped first. stop may be NULL. */
bool counter_wait(Counter *counter, uint32_t target, uint32_t spins, const _Atomic uint32_t *stop);

#endif
