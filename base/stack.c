/* Owns: see stack.h. A first thread's stack grows up to the limit as it is when it grows; other threads have the size that the limit
 * had when the process began, unless told otherwise. */
#include "base/stack.h"

#include "base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

/* Kernels lay out tiles on the stack: 16-bit products 1.05 MiB, by -fstack-usage. The rest is for libraries under and above them. */
enum { STACK_BYTES = 2 << 20 };

static bool raise_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES) return true;
  struct rlimit raised = {STACK_BYTES, limit.rlim_max < STACK_BYTES ? STACK_BYTES : limit.rlim_max};
  if (setrlimit(RLIMIT_STACK, &raised) == 0) return true;
  char least[32], given[32];
  fprintf(stderr, "fsdpc: error: a thread needs %s of stack, and the limit is %s; raise it (ulimit -s %d)\n",
          text_bytes(least, STACK_BYTES), text_bytes(given, limit.rlim_max), STACK_BYTES >> 10);
  return false;
}

static void raise_default(void) {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (pthread_getattr_default_np(&attributes) != 0) return; /* no memory: threads will say so */
  if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < STACK_BYTES &&
      pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0)
    (void)pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

bool stack_ensure(void) {
  raise_default();
  return raise_limit();
}
