/* Owns: bump allocation with one lifetime. Everything a compile produces lives in one Arena and dies with it.
 *
 * No individual frees, no destructors. Memory is zeroed. Running out of host memory while compiling is fatal
 * with a message (exit 1): a compiler has nothing better to do. */
#ifndef FSDPC_BASE_ARENA_H
#define FSDPC_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *arena); /* NULL is allowed */

/* Forgets everything allocated, keeping the memory for the next round: for scratch that is filled again and again. */
void arena_reset(Arena *arena);

/* Moves everything from `from`, which ceases to exist, into `arena`. */
void arena_adopt(Arena *arena, Arena *from);

/* Zeroed, aligned to 16 bytes. size 0 gives a valid unique pointer. */
void *arena_alloc(Arena *arena, size_t size);
/* count * size with overflow check (fatal). */
void *arena_array(Arena *arena, size_t count, size_t size);
char *arena_strndup(Arena *arena, const char *text, size_t length);
char *arena_strdup(Arena *arena, const char *text);
/* "left.right" */
char *arena_join(Arena *arena, const char *left, const char *right);
char *arena_printf(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *arena, const char *format, va_list args);

#define ARENA_NEW(arena, T)          ((T *)arena_alloc((arena), sizeof(T)))
#define ARENA_ARRAY(arena, T, count) ((T *)arena_array((arena), (count), sizeof(T)))

#endif
