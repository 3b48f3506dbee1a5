/* Owns: memory_order.h. */
#include "planner/place/memory_order.h"

#include "base/checked.h"
#include "planner/place/memory_keys.h"

/* --- orders -------------------------------------------------------------------------------------------- */

static bool is_unit_sized(const PlanBuf *buf) {
  return buf->class == BUF_GATHERED || buf->class == BUF_GRADFULL;
}

/* The few large buffers that come and go lie together; saved tensors stack above them. */
static uint64_t class_then_lifetime(const PlanBuf *buf) { return is_unit_sized(buf) ? 0 : longest(buf); }

static uint64_t lifetime_then_class(const PlanBuf *buf) { return is_unit_sized(buf) ? UINT64_MAX : longest(buf) - 1; }

/* The large ones as they come, which lets them take turns in the same places. */
static uint64_t turns_then_area(const PlanBuf *buf) { return is_unit_sized(buf) ? (uint64_t)buf->first : largest_area(buf); }

/* Of those that are alike the largest first, then the first. */
static const BufKey orders[] = {largest, class_then_lifetime, longest, largest_area, lifetime_then_class};

/* With many buffers the last two never won. */
enum { MANY_BUFFERS = 3000, ORDERS_OF_MANY = 3 };

/* Which of the unit-sized hang from the goal: those of unlike sizes that take turns in pairs leave the middle
 * to the others where every second one does. */
typedef enum { NONE_HANGS, SECONDS_HANG, ALL_HANG } Hanging;

/* Where blame begins. */
typedef struct Blame {
  BufKey order;
  Hanging hanging;
} Blame;

static const Blame blames[] = {{turns_then_area, ALL_HANG}, {largest, SECONDS_HANG},
                               {longest, SECONDS_HANG},     {largest_area, ALL_HANG},
                               {largest, NONE_HANGS},       {turns_then_area, NONE_HANGS},
                               {longest, ALL_HANG}};
enum { BLAMES = sizeof blames / sizeof *blames };
/* Rounds in all, and without coming nearer: nine in ten of the ways that reach the goal never go so many. */
enum { MOST_ROUNDS = 150, PATIENCE = 30 };
/* A way that still ends this far above the goal after so many rounds hardly ever reaches it. */
enum { EARLY_ROUNDS = 12 };
static const double OUT_OF_REACH = 1.05;

/* --- one placing --------------------------------------------------------------------------------------- */

void placing_open(Arena *arena, Placing *p, uint32_t most, uint64_t base, uint64_t goal) {
  *p = (Placing){.all = ARENA_ARRAY(arena, PlanBuf *, most),
                 .base = base,
                 .goal = goal,
                 .bytes = UINT64_MAX,
                 .offsets = ARENA_ARRAY(arena, uint64_t, most)};
}

void placing_prepare(Arena *arena, Placing *p, uint32_t most, Gaps *gaps) {
  p->pieces = ARENA_ARRAY(arena, Piece, most);
  p->spare = ARENA_ARRAY(arena, Piece, most);
  p->sorted = ARENA_ARRAY(arena, Keyed, most);
  p->sorted_spare = ARENA_ARRAY(arena, Keyed, most);
  p->fixed = ARENA_ARRAY(arena, Taken, most);
  p->gaps = gaps;
}

void placing_aim(Placing *p, int32_t first, int32_t last) {
  p->count = p->fixed_count = 0;
  p->first = first;
  p->last = last;
  p->bytes = UINT64_MAX;
}

void placing_add(Placing *p, PlanBuf *buf) {
  p->all[p->count++] = buf;
}

uint64_t placed_end(const PlanBuf *buf) {
  return buf->offset + round_up(buf->bytes, PLAN_ALIGN_BYTES);
}

static Taken taken_by(const Placing *p, const PlanBuf *buf) {
  return (Taken){buf->offset, placed_end(buf), buf->first > p->first ? buf->first : p->first,
                 buf->last < p->last ? buf->last : p->last};
}

void placing_fix(Placing *p, const PlanBuf *buf) {
  p->fixed[p->fixed_count++] = taken_by(p, buf);
}

bool placing_done(const Placing *p) {
  return p->bytes <= p->goal;
}

uint64_t placing_end(const Placing *p) {
  uint64_t end = p->base;
  for (uint32_t i = 0; i < p->count; i++)
    if (placed_end(p->all[i]) > end) end = placed_end(p->all[i]);
  return end;
}

uint32_t placing_above(const Placing *p) {
  uint32_t above = 0;
  for (uint32_t i = 0; i < p->count; i++) above += placed_end(p->all[i]) > p->goal;
  return above;
}

void placing_keep(Placing *p, uint64_t bytes) {
  if (bytes >= p->bytes) return;
  p->bytes = bytes;
  for (uint32_t i = 0; i < p->count; i++) p->offsets[i] = p->all[i]->offset;
}

void placing_set(const Placing *p, const uint64_t *offsets) {
  for (uint32_t i = 0; i < p->count; i++) p->all[i]->offset = offsets[i];
}

void placing_restore(const Placing *p) { placing_set(p, p->offsets); }

void placing_widen(const Placing *p, uint32_t count, int32_t *first, int32_t *last) {
  int32_t length = p->last - p->first,
          margin = p->count > count ? (int32_t)((double)length * count / p->count / 2) + 1 : length;
  *first = *first - p->first > margin ? *first - margin : p->first;
  *last = p->last - *last > margin ? *last + margin : p->last;
}

/* Where the pieces end in this order; offsets are set. UINT64_MAX: at `limit` or above. */
static uint64_t place_listed(Placing *p, uint64_t limit, Fit fit) {
  uint64_t most = p->base;
  gaps_aim(p->gaps, p->first, p->last + 1, p->count + p->fixed_count);
  for (uint32_t i = 0; i < p->fixed_count; i++) gaps_take(p->gaps, p->fixed[i]);
  for (uint32_t i = 0; i < p->count; i++) {
    PlanBuf *buf = p->pieces[i].buf;
    uint64_t size = round_up(buf->bytes, PLAN_ALIGN_BYTES);
    Taken at = taken_by(p, buf);
    buf->offset = p->pieces[i].hangs ? gaps_find_last(p->gaps, p->base, p->goal, size, at.first, at.last)
                                     : gaps_find(p->gaps, p->base, size, at.first, at.last, fit);
    at.offset = buf->offset;
    at.end = placed_end(buf);
    gaps_take(p->gaps, at);
    if (at.end > most) most = at.end;
    if (most >= limit) return UINT64_MAX;
  }
  return most;
}

static void sort_by(Placing *p, BufKey key) {
  for (uint32_t i = 0; i < p->count; i++) p->sorted[i].key = key(p->all[p->sorted[i].id]);
  sort_by_key(p->sorted, p->sorted_spare, p->count);
}

static void sort_pieces(Placing *p, BufKey order) {
  for (uint32_t i = 0; i < p->count; i++) p->sorted[i].id = (int32_t)i;
  sort_by(p, first_born);
  sort_by(p, largest);
  sort_by(p, order);
  for (uint32_t i = 0; i < p->count; i++) p->pieces[i] = (Piece){p->all[p->sorted[i].id], false};
}

void place_once(Placing *p) {
  sort_pieces(p, longest);
  placing_keep(p, place_listed(p, UINT64_MAX, FIRST_FIT));
}

void place_by_orders(Placing *p) {
  uint32_t all = p->count > MANY_BUFFERS ? ORDERS_OF_MANY : sizeof orders / sizeof *orders;
  for (uint32_t i = 0; i < all && !placing_done(p); i++) {
    sort_pieces(p, orders[i]);
    placing_keep(p, place_listed(p, p->bytes, BEST_FIT));
  }
}

/* --- blame --------------------------------------------------------------------------------------------- */

/* Those that end above the goal; they and the others keep their order. */
static void put_first(Placing *p) {
  Piece *pieces = p->pieces;
  uint32_t at = 0;
  for (int calm = 0; calm <= 1; calm++)
    for (uint32_t i = 0; i < p->count; i++)
      if ((placed_end(pieces[i].buf) <= p->goal) == calm) p->spare[at++] = pieces[i];
  p->pieces = p->spare;
  p->spare = pieces;
}

static void hang(Placing *p, Hanging hanging) {
  bool second = false;
  for (uint32_t i = 0; i < p->count; i++) {
    if (!is_unit_sized(p->pieces[i].buf)) continue;
    p->pieces[i].hangs = hanging == ALL_HANG || (hanging == SECONDS_HANG && second);
    second = !second;
  }
}

static void blame(Placing *p, const Blame *way, uint64_t until) {
  uint64_t least = UINT64_MAX;
  sort_pieces(p, way->order);
  hang(p, way->hanging);
  for (int r = 0, found = 0; r < MOST_ROUNDS && r - found <= PATIENCE && !placing_done(p); r++) {
    if (r >= EARLY_ROUNDS && (double)least > OUT_OF_REACH * (double)p->goal) break;
    if (r && p->gaps->looked >= until) break;
    if (r) put_first(p);
    uint64_t bytes = place_listed(p, UINT64_MAX, FIRST_FIT);
    if (bytes < least) {
      least = bytes;
      found = r;
    }
    placing_keep(p, bytes);
  }
}

void place_by_blame(Placing *p, uint64_t effort) {
  uint64_t until = p->gaps->looked + effort;
  for (uint32_t i = 0; i < BLAMES && !placing_done(p) && (i == 0 || p->gaps->looked < until); i++)
    blame(p, &blames[i], until);
}
