/* Owns: cores.h. */
#include "base/cores.h"

#include <sched.h>
#include <stddef.h>
#include <unistd.h>

enum { FEW_CORES = 1024, MOST_CORES = 1 << 20 };

/* The kernel refuses a set that is smaller than its own. 0: it refused this one too. */
static uint32_t count_in_set_of(int cores) {
  const size_t bytes = CPU_ALLOC_SIZE(cores);
  cpu_set_t *set = CPU_ALLOC(cores);
  uint32_t count = set != NULL && sched_getaffinity(0, bytes, set) == 0 ? (uint32_t)CPU_COUNT_S(bytes, set) : 0;
  CPU_FREE(set);
  return count;
}

uint32_t cores_available(void) {
  for (int cores = FEW_CORES; cores <= MOST_CORES; cores *= 2) {
    const uint32_t count = count_in_set_of(cores);
    if (count) return count;
  }
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (uint32_t)online : 1;
}
