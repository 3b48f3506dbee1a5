/* Owns: time that passes: a clock that nobody sets, from an arbitrary start. */
#ifndef FSDPC_BASE_CLOCK_H
#define FSDPC_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
static inline uint64_t clock_ms(void) { return clock_ns() / 1000000; }
static inline double clock_seconds(void) { return 1e-9 * (double)clock_ns(); }

#endif
