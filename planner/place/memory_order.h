/* Owns: placing buffers one after the other, among others that stay where they are: by best fit in a few
 * orders, or by first fit, with what ends above the goal placed earlier, again and again: squeaky wheel
 * optimization (Joslin and Clements, JAIR 10, 1999). */
#ifndef FSDPC_PLANNER_MEMORY_ORDER_H
#define FSDPC_PLANNER_MEMORY_ORDER_H

#include "base/sort.h"
#include "planner/place/memory_gaps.h"
#include "planner/plan/plan.h"

typedef struct Piece {
  PlanBuf *buf;
  bool hangs; /* it takes the highest gap below the goal, not the lowest */
} Piece;

typedef struct Placing {
  PlanBuf **all; /* as they are listed */
  Piece *pieces; /* of all, in the order tried last; `spare` is room for the next one */
  Piece *spare;
  Keyed *sorted, *sorted_spare; /* while they are sorted */
  uint32_t count;
  Taken *fixed; /* what stays where it is */
  uint32_t fixed_count;
  int32_t first, last; /* instructions: what happens before or after is left out */
  uint64_t base, goal; /* addresses; multiples of PLAN_ALIGN_BYTES */
  uint64_t bytes;      /* where the best way ends; UINT64_MAX: none yet */
  uint64_t *offsets;   /* of all, by it */
  Gaps *gaps;
} Placing;

/* For at most `most` buffers, none yet. */
void placing_open(Arena *arena, Placing *placing, uint32_t most, uint64_t base, uint64_t goal);
/* Makes room for what follows but placing_add, placing_keep and placing_restore, which large segments do
 * without. gaps: for `most` too. */
void placing_prepare(Arena *arena, Placing *placing, uint32_t most, Gaps *gaps);
/* Forgets all buffers, and looks at instructions [first, last] from now on. */
void placing_aim(Placing *placing, int32_t first, int32_t last);
void placing_add(Placing *placing, PlanBuf *buf);
void placing_fix(Placing *placing, const PlanBuf *buf);
bool placing_done(const Placing *placing);
/* Where the last of all buffers ends; how many end above the goal. */
uint64_t placing_end(const Placing *placing);
uint32_t placing_above(const Placing *placing);
/* Makes [first, last] as many instructions more as hold about `count` buffers. */
void placing_widen(const Placing *placing, uint32_t count, int32_t *first, int32_t *last);
/* Keeps the offsets that buffers have now, which end at `bytes`, if that is the best yet; sets those of the
 * best. */
void placing_keep(Placing *placing, uint64_t bytes);
void placing_restore(const Placing *placing);
void placing_set(const Placing *placing, const uint64_t *offsets);

/* Each tries until the goal is reached, and keeps the best. At least one way is tried.
 * effort: entries of `gaps` that may be looked at. */
void place_by_orders(Placing *placing);
void place_by_blame(Placing *placing, uint64_t effort);
/* By first fit, those that live longest first. */
void place_once(Placing *placing);

uint64_t placed_end(const PlanBuf *buf);

static inline bool placing_meets(const PlanBuf *buf, int32_t first, int32_t last) { return buf->first <= last && buf->last >= first; }

#endif
