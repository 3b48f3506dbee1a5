/* Owns: blocks of an Arena, chained newest first. What is larger than a block has one of its own, which can therefore grow.
 * Blocks of the usual size are zeroed as they are handed out: most of the many short-lived arenas of a search fill little of one. */
#include "base/arena.h"
#include "base/vec.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCK_BYTES = 1 << 16, ALIGNMENT = 16, LARGE_PAGE = 1 << 21, AHEAD = 2 * LARGE_PAGE };

typedef struct Block {
  struct Block *next, **link; /* link: what points here */
  size_t used, size;
  bool clean; /* what is not used is zero */
  _Alignas(ALIGNMENT) char data[];
} Block;

struct Arena {
  Block *head;
  bool merged; /* reset: large things share the one block with others */
};

static void out_of_memory(size_t size) {
  fprintf(stderr, "fsdpc: error: out of host memory (asked for %zu bytes); end other programs, or raise the limit (ulimit -v)\n", size);
  exit(1); /* as for files: the machine's fault, not ours */
}

Arena *arena_new(void) {
  Arena *arena = calloc(1, sizeof *arena);
  if (!arena) out_of_memory(sizeof *arena);
  return arena;
}

/* Plans of thousands of layers take hundreds of megabytes once, and a fault for each small page of them: a sixth of all time. What the block
 * shares its first page with counts in, and what lies behind it, where the heap will grow. No more than a hint, which may fail. */
static void prefer_large_pages(const Block *block, size_t bytes) {
#ifdef MADV_HUGEPAGE
  const uintptr_t begin = (uintptr_t)block & ~(uintptr_t)(LARGE_PAGE - 1), end = (uintptr_t)block + bytes;
  (void)madvise((void *)begin, end - begin + AHEAD, MADV_HUGEPAGE);
#else
  (void)block, (void)bytes;
#endif
}

static void attach(Block *block, Block *next, Block **link) {
  block->next = next;
  block->link = link;
  *link = block;
  if (next) next->link = &block->next;
}

static Block *add_block(Arena *arena, size_t size);

void arena_free(Arena *arena) {
  if (!arena) return;
  for (Block *block = arena->head, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  free(arena);
}

void arena_reset(Arena *arena) {
  size_t total = 0;
  for (Block *block = arena->head; block; block = block->next) total += block->size;
  if (arena->head && !arena->head->next) { /* one block: go on with it */
    arena->head->used = 0;
    arena->head->clean = false;
    return;
  }
  Arena old = *arena;
  arena->head = NULL;
  while (old.head) {
    Block *next = old.head->next;
    free(old.head);
    old.head = next;
  }
  if (total) add_block(arena, total);
  arena->merged = true;
}

/* What takes a block of its own goes behind the head, which small things go on filling. */
static Block *add_block(Arena *arena, size_t size) {
  size_t bytes = size > BLOCK_BYTES ? size : BLOCK_BYTES;
  bool large = size > BLOCK_BYTES; /* fresh pages, which are zero: the C library need not touch them */
  Block *block = large ? calloc(1, sizeof *block + bytes) : malloc(sizeof *block + bytes), **link = &arena->head;
  if (!block) out_of_memory(size);
  prefer_large_pages(block, bytes);
  if (large && arena->head) link = &arena->head->next;
  block->used = 0;
  block->size = bytes;
  block->clean = large;
  attach(block, *link, link);
  return block;
}

void arena_adopt(Arena *arena, Arena *from) {
  Block **last = &arena->head;
  while (*last) last = &(*last)->next;
  if (from->head) attach(from->head, from->head->next, last);
  arena->merged |= from->merged;
  free(from);
}

void *arena_alloc(Arena *arena, size_t size) {
  if (size > SIZE_MAX / 2) out_of_memory(size);
  size_t rounded = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  if (!rounded) rounded = ALIGNMENT;
  Block *block = arena->head;
  bool alone = rounded > BLOCK_BYTES && !arena->merged;
  if (!block || alone || block->size - block->used < rounded) block = add_block(arena, rounded);
  void *p = block->data + block->used;
  block->used += rounded;
  return block->clean ? p : memset(p, 0, rounded);
}

void *arena_array(Arena *arena, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) out_of_memory(SIZE_MAX);
  return arena_alloc(arena, bytes);
}

char *arena_strndup(Arena *arena, const char *text, size_t length) {
  char *copy = arena_alloc(arena, length + 1);
  memcpy(copy, text, length);
  return copy;
}

char *arena_strdup(Arena *arena, const char *text) {
  return arena_strndup(arena, text, strlen(text));
}

char *arena_join(Arena *arena, const char *left, const char *right) {
  size_t before = strlen(left), after = strlen(right);
  char *text = arena_alloc(arena, before + after + 2);
  memcpy(text, left, before);
  text[before] = '.';
  memcpy(text + before + 1, right, after);
  return text;
}

char *arena_vprintf(Arena *arena, const char *format, va_list args) {
  char brief[256]; /* as nearly all are: printing is what takes long, so that it is done once */
  va_list again;
  va_copy(again, args);
  size_t length = (size_t)vsnprintf(brief, sizeof brief, format, args);
  char *text = arena_alloc(arena, length + 1);
  if (length < sizeof brief)
    memcpy(text, brief, length);
  else
    vsnprintf(text, length + 1, format, again);
  va_end(again);
  return text;
}

char *arena_printf(Arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = arena_vprintf(arena, format, args);
  va_end(args);
  return text;
}

/* The block that holds nothing but the array, or NULL. */
static Block *own_block(const Arena *arena, void *data, size_t bytes) {
  if (arena->merged || bytes <= BLOCK_BYTES) return NULL;
  return (Block *)((char *)data - offsetof(Block, data));
}

/* Large arrays move as the C library can move them, mostly without a copy, and leave nothing behind. */
static void *grow_block(Block *block, size_t bytes) {
  Block *grown = realloc(block, sizeof *block + bytes);
  if (!grown) out_of_memory(bytes);
  prefer_large_pages(grown, bytes);
  grown->size = grown->used = bytes;
  attach(grown, grown->next, grown->link);
  return grown->data;
}

void *vec_reserve_(Arena *arena, void *data, uint32_t count, uint32_t *capacity, size_t size, uint32_t least) {
  if (least <= *capacity) return data;
  if (*capacity > UINT32_MAX / 2) out_of_memory(SIZE_MAX);
  uint32_t grown = *capacity ? *capacity * 2 : 8;
  if (grown < least) grown = least;
  Block *own = own_block(arena, data, *capacity * size);
  *capacity = grown;
  if (own) return grow_block(own, grown * size);
  void *copy = arena_array(arena, grown, size);
  if (count) memcpy(copy, data, count * size);
  return copy;
}
