/* Owns: the proof that a step allocates nothing. Between guard_enter and guard_leave any malloc, calloc, realloc,
 * aligned_alloc or posix_memalign called from this program's own objects aborts with a message, on any thread.
 * Only in builds with -DFSDPC_ALLOC_GUARD=ON (the linker wraps the five); otherwise both do nothing.
 * Libraries loaded at run time are not wrapped: what a BLAS allocates is its business. */
#ifndef FSDPC_RUNTIME_ALLOC_GUARD_H
#define FSDPC_RUNTIME_ALLOC_GUARD_H

#ifdef FSDPC_ALLOC_GUARD
void guard_enter(void);
void guard_leave(void);
#else
static inline void guard_enter(void) {}
static inline void guard_leave(void) {}
#endif

#endif
