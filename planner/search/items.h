/* Owns: what memory can buy. Each forward operator whose result backward needs is an item: keep its bytes from forward to
 * backward, pay its time again, or where the device has a host link pay for the way to the host and back. Each unit is an item too: stay gathered, or gather again. All have the same lifetime
 * (forward of i to backward of i), so they compete for one budget.
 *
 * A chain's operators that backward does not need themselves are run again only where an item's recomputation passes
 * through them; their time is charged to that item. */
#ifndef FSDPC_PLANNER_ITEMS_H
#define FSDPC_PLANNER_ITEMS_H

#include "planner/program/decisions.h"

typedef struct Item {
  int32_t op;           /* forward op, or PLAN_NONE: a unit */
  int32_t feeder;       /* the op that is run again where this one is, and only there; PLAN_NONE: there is none */
  int32_t unit;
  int32_t class;        /* ops at the same place of equal blocks, or units of equal size: moved together */
  int32_t rank;         /* tie order within a class: bit-reversed position, so that choices spread */
  int32_t first, last;  /* op slots between which keeping it costs memory */
  uint64_t bytes, ns;   /* of keeping; of running again, with what must run before it */
  uint64_t least_ns;    /* ns without what another item's recomputation may have run already, or is charged with: for bounds */
  uint64_t away_ns;     /* of moving it to the host, one way; 0: cannot be */
  bool held;            /* it is never run again: kept or away */
} Item;

typedef VEC(Item) Items;

/* Operators, which all groupings of a micro-batch share, then units. */
typedef struct AllItems {
  Items operators, units;
  uint32_t count; /* of both */
} AllItems;

static inline const Item *item_at(const AllItems *items, uint32_t i) {
  const uint32_t operators = items->operators.count;
  return i < operators ? &items->operators.data[i] : &items->units.data[i - operators];
}

/* Of what leaves where the operator's item is away, which may be one of several results that `bytes` counts; 0: none can. */
static inline uint64_t item_moved_bytes(const Flow *flow, const Item *item) { return item->away_ns ? flow->value_bytes[flow->moved[item->op]] : 0; }

/* Of an operator's item: recompute is by op. */
static inline void item_set_again(const Item *item, bool again, bool *recompute) {
  recompute[item->op] = again;
  if (item->feeder >= 0) recompute[item->feeder] = again;
}

/* pins: by op. recompute[] receives the all-recompute start for those that are free. movable: results may go to the host.
 * again: those that would be items, but are pinned to be run again. */
void items_list(Arena *arena, const Program *program, const Pin *pins, bool movable, bool *recompute, Items *out, Items *again);

/* An item's place in a ranking: by worth, ties by Item.rank, then by number. */
typedef struct Ranked {
  double worth; /* ns per byte */
  int32_t rank;
  uint32_t item;
} Ranked;

typedef struct Ranks {
  Ranked *data; /* best first */
  uint32_t count;
} Ranks;

typedef struct Ranking {
  uint32_t *items, count;
} Ranking;

/* Operators by worth per byte, best first. Those worth nothing, or held, are left out. */
Ranks items_rank_operators(Arena *arena, const Items *operators);
/* With units, a ns of a repeated gather worth gather_price of one of recomputation. */
Ranking items_rank(Arena *arena, const AllItems *items, const Ranks *operators, double gather_price);

/* In which order items are moved. */
typedef enum {
  MOVE_WORTH,  /* those worth most a byte: the device holds what it can of the others */
  MOVE_LATEST, /* of those that are not run again, those that are wanted back last: the link carries least when both passes meet */
  MOVE_SPREAD, /* of these, those worth least: all over the model, so that the link is busy all the time */
} MoveOrder;

/* What is moved to the host: for `link_ns` each way and `room` bytes there. */
typedef struct Moves {
  MoveOrder order;
  bool held_first; /* what is never run again first or last */
  uint64_t link_ns, room;
  uint64_t kept; /* device bytes for what is not run again either; not for MOVE_WORTH */
} Moves;

void items_move(Arena *arena, const AllItems *items, Moves moves, bool *recompute, bool *away);

/* Bytes at each op slot with nothing kept but what is held, and which of that is not there but in host memory, by op. */
typedef struct Live {
  const int64_t *bytes;
  const bool *away;
} Live;

/* From all-recompute, takes items in that order, each if it is not away and its slots have room for it. room: bytes that slots may hold. */
void items_choose(const AllItems *items, const Ranking *ranking, uint64_t room, const Live *live, int32_t slots, const bool *away, bool *recompute,
                  bool *keep);

#endif
