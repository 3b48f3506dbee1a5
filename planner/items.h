/* Owns: what memory can buy. Each forward operator whose result backward needs is an item: keep its bytes from forward to
 * backward, or pay its time again. Each unit is an item too: stay gathered, or gather again. All have the same lifetime
 * (forward of i to backward of i), so they compete for one budget.
 *
 * A chain's operators that backward does not need themselves are run again only where an item's recomputation passes
 * through them; their time is charged to that item. */
#ifndef FSDPC_PLANNER_ITEMS_H
#define FSDPC_PLANNER_ITEMS_H

#include "planner/decisions.h"

typedef struct Item {
  int32_t op;           /* forward op, or PLAN_NONE: a unit */
  int32_t unit;
  int32_t class;        /* ops at the same place of equal blocks, or units of equal size: moved together */
  int32_t rank;         /* tie order within a class: bit-reversed position, so that choices spread */
  int32_t first, last;  /* op slots between which keeping it costs memory */
  uint64_t bytes, ns;   /* of keeping; of running again, with what must run before it */
  uint64_t least_ns;    /* ns without what another item's recomputation may have run already: for bounds */
} Item;

typedef VEC(Item) Items;

/* pinned: by op, decided by the file or by a policy: no item. recompute[] receives the all-recompute start for the others. */
void items_list(Arena *arena, const Program *program, const bool *pinned, bool *recompute, Items *out);

/* Items by worth per byte, best first: what a ns of recomputation and of a repeated gather is worth. Those worth nothing are
 * left out. */
typedef struct Ranking {
  uint32_t *items, count;
} Ranking;

Ranking items_rank(Arena *arena, const Items *items, double compute_price, double gather_price);

/* From all-recompute, takes items in that order, each if its slots have room for it. live: bytes at each op slot with nothing
 * kept; room: bytes that slots may hold. */
void items_choose(const Items *items, const Ranking *ranking, uint64_t room, const int64_t *live, int32_t slots, bool *recompute,
                  bool *keep);

#endif
