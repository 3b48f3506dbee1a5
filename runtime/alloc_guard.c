/* Owns: the allocation guard's wrappers. */
#include "runtime/alloc_guard.h"

#ifdef FSDPC_ALLOC_GUARD
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The one exception to "no globals": malloc has no argument to carry it. */
static _Atomic int guarded;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);

void guard_enter(void) { atomic_fetch_add(&guarded, 1); }
void guard_leave(void) { atomic_fetch_sub(&guarded, 1); }

static void check(const char *function) {
  if (atomic_load(&guarded) == 0) return;
  /* write, not stdio: stdio may allocate. */
  const char *parts[] = {"fsdpc: internal error: ", function, " was called inside a training step\n"};
  for (int i = 0; i < 3; i++)
    if (write(STDERR_FILENO, parts[i], strlen(parts[i])) < 0) break;
  abort();
}

void *__wrap_malloc(size_t size) {
  check("malloc");
  return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
  check("calloc");
  return __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) {
  check("realloc");
  return __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
  check("aligned_alloc");
  return __real_aligned_alloc(alignment, size);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size) {
  check("posix_memalign");
  return __real_posix_memalign(out, alignment, size);
}
#else
typedef int AllocGuardOff; /* a translation unit needs a declaration */
#endif
