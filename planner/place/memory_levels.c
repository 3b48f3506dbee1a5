/* Owns: placing a segment's buffers one upon the other, by backtracking. Any way of placing them can be pushed down until each buffer
 * lies at the bottom or on one that is live at the same time. So buffers are placed in the order of their offsets, each where it
 * comes to lie upon those that are placed already (Moffitt, MiniMalloc, ASPLOS 2023). A branch ends where
 *
 *   - what is left to place at some instruction does not fit between the level, below which nothing more is placed, and the goal
 *   - a buffer would leave room below it for another one that could lie there
 *
 * Which buffer is tried first decides how soon one finds a way. Those that are live where branches ended gain weight, and after
 * so many nodes all begins anew, the heaviest first (Boussemart et al., Boosting systematic search by weighting constraints, ECAI 2004). */
#include "planner/place/memory_levels.h"

#include "base/checked.h"

/* Nodes of one run for each buffer, and runs: of 83 segments that best fit did not place, of 35 to 1,322 buffers of six models, these placed 57, and ten
 * times as many nodes 62. With more buffers each node takes long. */
enum { NODES_A_BUFFER = 2, RUNS = 12, MOST_BLOCKS = 2000 };
/* Of the effort that is left. */
enum { EFFORT_SHARE = 12 };
/* What a buffer's weight gains where a branch ends at an instruction it is live at, or with itself. */
static const double BUMP = 0.1, OWN_BUMP = 0.4;

typedef struct Block {
  PlanBuf *buf;
  uint64_t size, floor; /* floor: the end of the highest that is placed and live at the same time */
  int32_t first, last;  /* moments */
  uint32_t before, after; /* places of those that are left */
  double weight;
} Block;

typedef struct Raised {
  uint32_t place;
  uint64_t floor;
} Raised;

/* Moments are the instructions at which some buffer begins to live: any two that are live together are at one of them. Blocks are in the order
 * in which they are tried; place `count` is the head and the end of the list of those that are left. */
typedef struct Levels {
  Arena *arena;
  Block *blocks, *spare;
  uint64_t *offsets;  /* by place; of those that are placed */
  uint32_t count, left;
  uint64_t *waiting;  /* by moment: bytes that are left to place */
  int32_t moments;
  uint64_t room;      /* above the base, below the goal */
  uint64_t nodes, spent; /* nodes: left to this run; spent: entries looked at */
  VEC(Raised) raised; /* floors to go back to */
} Levels;

typedef enum { IMPOSSIBLE, PLACED, GIVEN_UP } Outcome;

/* --- the list of those that are left ----------------------------------------------------------------------------------------------- */

static void leave(Levels *l, uint32_t place) {
  l->blocks[l->blocks[place].before].after = l->blocks[place].after;
  l->blocks[l->blocks[place].after].before = l->blocks[place].before;
  l->left--;
}

static void come_back(Levels *l, uint32_t place) {
  l->blocks[l->blocks[place].before].after = place;
  l->blocks[l->blocks[place].after].before = place;
  l->left++;
}

/* --- one branch -------------------------------------------------------------------------------------------------------------------- */

static void blame(Levels *l, int32_t moment) {
  for (uint32_t k = l->blocks[l->count].after; k != l->count; k = l->blocks[k].after)
    if (l->blocks[k].first <= moment && l->blocks[k].last >= moment) l->blocks[k].weight += BUMP;
}

/* Where those that are left can be placed next. */
typedef struct Reach {
  uint64_t low, end; /* the lowest floor; the lowest end, from which on anything would leave room for that one */
} Reach;

/* False where some block does not fit upon what is below it, or nothing can be placed at the level or above. */
static bool look(Levels *l, uint64_t level, Reach *reach) {
  *reach = (Reach){UINT64_MAX, UINT64_MAX};
  l->spent += l->left;
  for (uint32_t k = l->blocks[l->count].after; k != l->count; k = l->blocks[k].after) {
    Block *block = &l->blocks[k];
    const uint64_t end = block->floor + block->size;
    if (end > l->room) {
      block->weight += OWN_BUMP;
      return false;
    }
    if (block->floor < level) continue;
    if (end < reach->end) reach->end = end;
    if (block->floor < reach->low) reach->low = block->floor;
  }
  return reach->low != UINT64_MAX;
}

/* Whether all that is left fits above `low`. */
static bool all_fit(Levels *l, uint64_t low) {
  uint64_t most = 0;
  l->spent += (uint64_t)l->moments / 2;
  for (int32_t m = 0; m < l->moments; m++) most = l->waiting[m] > most ? l->waiting[m] : most;
  if (low + most <= l->room) return true;
  for (int32_t m = 0; m < l->moments; m++)
    if (low + l->waiting[m] > l->room) {
      blame(l, m);
      break;
    }
  return false;
}

/* Whether what is left fits above it. */
static bool leaves_room(const Levels *l, const Block *block) {
  for (int32_t m = block->first; m <= block->last; m++)
    if (block->floor + l->waiting[m] > l->room) return false;
  return true;
}

static void put(Levels *l, uint32_t place) {
  const Block *block = &l->blocks[place];
  const uint64_t end = block->floor + block->size;
  l->offsets[place] = block->floor;
  leave(l, place);
  for (int32_t m = block->first; m <= block->last; m++) l->waiting[m] -= block->size;
  for (uint32_t k = l->blocks[l->count].after; k != l->count; k = l->blocks[k].after) {
    Block *other = &l->blocks[k];
    if (other->first > block->last || other->last < block->first || other->floor >= end) continue;
    vec_push(l->arena, &l->raised, ((Raised){k, other->floor}));
    other->floor = end;
  }
  l->spent += l->left;
}

static void take_back(Levels *l, uint32_t place, uint32_t raised) {
  const Block *block = &l->blocks[place];
  for (; l->raised.count > raised; l->raised.count--) l->blocks[l->raised.data[l->raised.count - 1].place].floor = l->raised.data[l->raised.count - 1].floor;
  for (int32_t m = block->first; m <= block->last; m++) l->waiting[m] += block->size;
  come_back(l, place);
}

static bool are_alike(const Block *a, const Block *b) {
  return a->floor == b->floor && a->size == b->size && a->first == b->first && a->last == b->last;
}

/* What is left, at `level` or above; at the level itself only places from `next` on, since others have been tried. */
static Outcome rise(Levels *l, uint64_t level, uint32_t next) {
  Reach reach;
  if (!l->left) return PLACED;
  if (!l->nodes) return GIVEN_UP;
  l->nodes--;
  if (!look(l, level, &reach) || !all_fit(l, reach.low)) return IMPOSSIBLE;
  const Block *tried = NULL;
  for (uint32_t k = l->blocks[l->count].after; k != l->count; k = l->blocks[k].after) {
    const Block *block = &l->blocks[k];
    if (block->floor < level || block->floor >= reach.end || (block->floor == level && k < next)) continue;
    if ((tried && are_alike(block, tried)) || !leaves_room(l, block)) continue;
    const uint32_t raised = l->raised.count;
    put(l, k);
    const Outcome outcome = rise(l, block->floor, k + 1);
    if (outcome != IMPOSSIBLE) return outcome;
    take_back(l, k, raised);
    tried = block;
  }
  return IMPOSSIBLE;
}

/* --- runs -------------------------------------------------------------------------------------------------------------------------- */

/* What comes first of blocks that weigh the same: by turns, largest area, size, ... first. */
static double rank_of(const Block *block, int run) {
  const double size = (double)block->size * block->weight, length = block->buf->last - block->buf->first + 1;
  switch (run % 5) {
  case 0: return size * length;
  case 1: return size;
  case 2: return length * block->weight;
  case 3: return size * length * length;
  default: return size * size * length;
  }
}

static void start_run(Levels *l, Placing *p, int run) {
  for (uint32_t i = 0; i < l->count; i++) p->sorted[i] = (Keyed){sort_largest_first(rank_of(&l->blocks[i], run)), (int32_t)i};
  sort_by_key(p->sorted, p->sorted_spare, l->count);
  Block *blocks = l->spare;
  memset(l->waiting, 0, (size_t)l->moments * sizeof *l->waiting);
  for (uint32_t i = 0; i < l->count; i++) {
    blocks[i] = l->blocks[p->sorted[i].id];
    blocks[i].floor = 0;
    for (int32_t m = blocks[i].first; m <= blocks[i].last; m++) l->waiting[m] += blocks[i].size;
  }
  for (uint32_t i = 0; i <= l->count; i++) {
    blocks[i].before = i ? i - 1 : l->count;
    blocks[i].after = i < l->count ? i + 1 : 0;
  }
  l->spare = l->blocks;
  l->blocks = blocks;
  l->left = l->count;
  l->raised.count = 0;
  l->nodes = (uint64_t)NODES_A_BUFFER * l->count;
}

/* By instruction: how many moments there are before it. */
static int32_t *find_moments(Arena *scratch, const Placing *p) {
  const int32_t length = p->last - p->first + 1;
  int32_t *moments = ARENA_ARRAY(scratch, int32_t, (size_t)length + 1);
  for (uint32_t i = 0; i < p->count; i++) moments[(p->all[i]->first > p->first ? p->all[i]->first - p->first : 0) + 1] = 1;
  for (int32_t i = 0; i < length; i++) moments[i + 1] += moments[i];
  return moments;
}

static void list_blocks(Arena *scratch, const Placing *p, Levels *l) {
  const int32_t *moments = find_moments(scratch, p);
  *l = (Levels){.arena = scratch,
                .blocks = ARENA_ARRAY(scratch, Block, (size_t)p->count + 1),
                .spare = ARENA_ARRAY(scratch, Block, (size_t)p->count + 1),
                .offsets = ARENA_ARRAY(scratch, uint64_t, p->count),
                .moments = moments[p->last - p->first + 1],
                .room = p->goal - p->base};
  l->waiting = ARENA_ARRAY(scratch, uint64_t, (size_t)l->moments);
  for (uint32_t i = 0; i < p->count; i++) {
    PlanBuf *buf = p->all[i];
    buf->offset = p->base;
    if (!buf->bytes) continue;
    l->blocks[l->count++] = (Block){.buf = buf,
                                    .size = round_up(buf->bytes, PLAN_ALIGN_BYTES),
                                    .first = moments[buf->first > p->first ? buf->first - p->first : 0],
                                    .last = moments[(buf->last < p->last ? buf->last : p->last) - p->first + 1] - 1,
                                    .weight = 1};
  }
}

static void keep_levels(const Levels *l, Placing *p) {
  uint64_t end = p->base;
  for (uint32_t k = 0; k < l->count; k++) {
    l->blocks[k].buf->offset = p->base + l->offsets[k];
    if (placed_end(l->blocks[k].buf) > end) end = placed_end(l->blocks[k].buf);
  }
  placing_keep(p, end);
}

void memory_levels(Placing *p, uint64_t *effort) {
  if (p->count > MOST_BLOCKS || p->goal <= p->base) return;
  Arena *scratch = arena_new();
  Levels l;
  Outcome outcome = GIVEN_UP;
  list_blocks(scratch, p, &l);
  for (int run = 0; run < RUNS && outcome == GIVEN_UP && l.spent < *effort / EFFORT_SHARE; run++) {
    start_run(&l, p, run);
    outcome = rise(&l, 0, 0);
  }
  if (outcome == PLACED) keep_levels(&l, p);
  *effort -= l.spent < *effort ? l.spent : *effort;
  arena_free(scratch);
}
