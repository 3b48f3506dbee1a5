/* Owns: which addresses are taken when, and the lowest or tightest gap among them for one more buffer. */
#ifndef FSDPC_PLANNER_MEMORY_GAPS_H
#define FSDPC_PLANNER_MEMORY_GAPS_H

#include "base/arena.h"

#include <stdint.h>

typedef struct Taken {
  uint64_t offset, end;
  int32_t first, last; /* instructions, both included */
} Taken;

/* Most buffers are brief. Windows overlap by half, so that what is no longer than half of one lies in one, and only what is taken
 * there must be looked at. */
enum { GAP_WINDOWS = 24 };

typedef struct Gaps {
  Taken *taken[GAP_WINDOWS + 1]; /* of each window, then of all: the first `sorted` by offset, the others as they came */
  uint32_t count[GAP_WINDOWS + 1], sorted[GAP_WINDOWS + 1];
  Taken *spare;
  int32_t windows;     /* in use: fewer where little is taken */
  int32_t first, step; /* window i is [first + i step, first + (i + 2) step) */
  uint64_t looked;     /* at so many entries since it was opened, or for as long */
} Gaps;

typedef enum { BEST_FIT, FIRST_FIT } Fit;

/* For at most `count` buffers. */
void gaps_open(Gaps *gaps, Arena *arena, uint32_t count);
/* Forgets what is taken; from now on all are of the instructions [first, end), and about `count`. */
void gaps_aim(Gaps *gaps, int32_t first, int32_t end, uint32_t count);
/* The offset, `base` at least, for `size` bytes from instruction `first` to `last`. */
uint64_t gaps_find(Gaps *gaps, uint64_t base, uint64_t size, int32_t first, int32_t last, Fit fit);
/* The highest one that ends at `top` or below; the lowest where none does. */
uint64_t gaps_find_last(Gaps *gaps, uint64_t base, uint64_t top, uint64_t size, int32_t first, int32_t last);
void gaps_take(Gaps *gaps, Taken entry);

#endif
