/* Owns: items.h. Room is kept in a tree over slots: range add and range maximum in O(log n). */
#include "planner/search/items.h"

#include "base/sort.h"

#include <math.h>
#include <string.h>

/* --- listing --------------------------------------------------------------------------------------------------------- */

typedef struct Span2 {
  int32_t last_forward, first_backward;
} Span2;

static bool reads(OperandMode mode) { return mode == MODE_READ || mode == MODE_UPDATE; }

static Span2 *find_spans(Arena *arena, const Program *program) {
  Span2 *spans = ARENA_ARRAY(arena, Span2, program->values.count);
  for (uint32_t v = 0; v < program->values.count; v++) spans[v] = (Span2){PLAN_NONE, PLAN_NONE};
  for (int32_t i = 0; i < (int32_t)program->ops.count; i++) {
    const ProgramOp *op = &program->ops.data[i];
    for (int32_t k = 0; k < op->ref_count; k++) {
      if (op->refs[k].value < 0) continue;
      Span2 *span = &spans[op->refs[k].value];
      if (i < program->turn)
        span->last_forward = i;
      else if (span->first_backward < 0 && reads(program->specs[op->op].operands[k].mode))
        span->first_backward = i;
    }
  }
  return spans;
}

/* By op: how many forward operators read its results. */
static int32_t *count_readers(Arena *arena, const Program *program) {
  int32_t *readers = ARENA_ARRAY(arena, int32_t, program->ops.count);
  for (int32_t i = 0; i < program->turn; i++) {
    const ProgramOp *op = &program->ops.data[i];
    for (int32_t k = 0; k < op->ref_count; k++) {
      int32_t v = op->refs[k].value;
      if (v >= 0 && program->values.data[v].producer >= 0 && program->values.data[v].producer != i)
        readers[program->values.data[v].producer]++;
    }
  }
  return readers;
}

/* Time of running op again, its inputs being there but for those that backward never asks for. readers: count only
 * inputs that nobody else reads. */
static uint64_t chain_ns(const Program *program, const bool *needed, const bool *recompute, const int32_t *readers,
                         int32_t index) {
  const ProgramOp *op = &program->ops.data[index];
  uint64_t ns = op->ns;
  for (int32_t k = 0; k < op->ref_count; k++) {
    if (op->refs[k].value < 0 || !reads(program->specs[op->op].operands[k].mode)) continue;
    const Value *value = &program->values.data[op->refs[k].value];
    if (value->kind != VALUE_ACTIVATION || needed[value->producer] || !recompute[value->producer]) continue;
    if (readers && readers[value->producer] > 1) continue;
    ns += chain_ns(program, needed, recompute, readers, value->producer);
  }
  return ns;
}

static int32_t reverse_bits(uint32_t value) {
  uint32_t out = 0;
  for (int i = 0; i < 20; i++) out |= ((value >> i) & 1) << (19 - i);
  return (int32_t)out;
}

/* A result that the policy keeps, but not where. */
static Item held_item(const Program *program, const Span2 *spans, int32_t op) {
  int32_t v = program->flow.moved[op];
  return (Item){.first = spans[v].last_forward, .last = spans[v].first_backward, .bytes = program->flow.value_bytes[v], .held = true};
}

/* That of an operator, by number; PLAN_NONE: it has none. */
static int32_t item_of(const Items *items, int32_t op) {
  for (uint32_t i = items->count; i-- > 0 && items->data[i].op >= op;)
    if (items->data[i].op == op) return (int32_t)i;
  return PLAN_NONE;
}

static void remove_item(Items *items, int32_t at) {
  items->count--;
  memmove(items->data + at, items->data + at + 1, (items->count - (uint32_t)at) * sizeof *items->data);
}

/* Where backward reads only what an op makes beside its main result, such as a norm's statistics, and only `item` reads that result: who keeps
 * the former and runs `item` again keeps the latter too, and could instead keep `item`'s own result, no larger, and run neither again. So
 * both are one item. */
static void join_feeder(const Program *program, const Span2 *spans, const int32_t *readers, Items *items, Item *item) {
  const ProgramOp *op = &program->ops.data[item->op];
  for (int32_t k = 0; k < op->ref_count; k++) {
    int32_t v = op->refs[k].value;
    if (v < 0 || spans[v].first_backward >= 0 || !reads(program->specs[op->op].operands[k].mode)) continue;
    int32_t producer = program->values.data[v].producer;
    if (producer < 0 || readers[producer] > 1 || program->flow.value_bytes[v] < item->bytes) continue;
    int32_t at = item_of(items, producer);
    if (at < 0 || items->data[at].held || items->data[at].feeder >= 0) continue;
    const Item feeder = items->data[at];
    item->feeder = producer;
    item->bytes += feeder.bytes;
    item->ns += feeder.ns;
    item->least_ns += feeder.least_ns;
    remove_item(items, at);
    return;
  }
}

void items_list(Arena *arena, const Program *program, const Pin *pins, bool movable, bool *recompute, Items *out, Items *again) {
  Arena *scratch = arena_new();
  const Span2 *spans = find_spans(scratch, program);
  const int32_t *readers = count_readers(scratch, program);
  bool *needed = ARENA_ARRAY(scratch, bool, program->ops.count);
  for (uint32_t v = 0; v < program->values.count; v++) {
    const Value *value = &program->values.data[v];
    if (value->kind == VALUE_ACTIVATION && value->producer >= 0 && spans[v].first_backward >= 0) needed[value->producer] = true;
  }
  for (int32_t i = 0; i < program->turn; i++)
    if (pins[i] == PIN_NONE) recompute[i] = true;
  uint32_t number = 0;
  int32_t block = PLAN_NONE, start = 0;
  for (int32_t i = 0; i < program->turn; i++) {
    int32_t own = program->block[program->ops.data[i].graph_op];
    if (own != block) {
      block = own;
      start = i;
      number++;
    }
    bool moves = movable && program->flow.moved[i] >= 0, pinned = pins[i] == PIN_EXACT;
    if (!needed[i] || (pinned && !recompute[i]) || (pins[i] == PIN_KEPT && !moves)) continue;
    Item item = {.first = INT32_MAX, .last = PLAN_NONE};
    if (pins[i] == PIN_KEPT) item = held_item(program, spans, i);
    item.op = i;
    item.feeder = PLAN_NONE;
    item.unit = PLAN_NONE;
    item.class = own >= 0 ? i - start : -1 - i;
    item.rank = reverse_bits(number);
    item.away_ns = moves ? program->flow.moved_ns[i] : 0;
    if (item.held) {
      vec_push(arena, out, item);
      continue;
    }
    const ProgramOp *op = &program->ops.data[i];
    for (int32_t k = 0; k < op->ref_count; k++) {
      int32_t v = op->refs[k].value;
      if (v < 0 || program->specs[op->op].operands[k].mode != MODE_WRITE || spans[v].first_backward < 0) continue;
      item.bytes += program->flow.value_bytes[v];
      if (spans[v].last_forward < item.first) item.first = spans[v].last_forward;
      if (spans[v].first_backward > item.last) item.last = spans[v].first_backward;
    }
    item.ns = chain_ns(program, needed, recompute, NULL, i);
    item.least_ns = chain_ns(program, needed, recompute, readers, i);
    if (!pinned) join_feeder(program, spans, readers, out, &item);
    vec_push(arena, pinned ? again : out, item);
  }
  arena_free(scratch);
}

/* --- room ------------------------------------------------------------------------------------------------------------ */

typedef struct Room {
  int32_t size;        /* power of two */
  int64_t *most, *add; /* heap order: maximum of a node's slots, and what is added to all of them */
  int32_t *at;         /* a slot that has the maximum */
} Room;

static void room_update(Room *room, int32_t node) {
  int32_t larger = room->most[2 * node] >= room->most[2 * node + 1] ? 2 * node : 2 * node + 1;
  room->most[node] = room->most[larger] + room->add[node];
  room->at[node] = room->at[larger];
}

static void room_build(Arena *arena, Room *room, const int64_t *live, int32_t slots) {
  for (room->size = 1; room->size < slots; room->size *= 2) continue;
  room->most = ARENA_ARRAY(arena, int64_t, 2 * (size_t)room->size);
  room->add = ARENA_ARRAY(arena, int64_t, 2 * (size_t)room->size);
  room->at = ARENA_ARRAY(arena, int32_t, 2 * (size_t)room->size);
  for (int32_t i = 0; i < room->size; i++) room->at[room->size + i] = i;
  for (int32_t i = 0; i < slots; i++) room->most[room->size + i] = live[i];
  for (int32_t i = room->size - 1; i > 0; i--) room_update(room, i);
}

/* The largest of slots [first, end), and where: INT64_MIN when the node has none of them. */
static int64_t room_most(const Room *room, int32_t node, int32_t low, int32_t high, int32_t first, int32_t end, int32_t *at) {
  if (first >= high || end <= low) return INT64_MIN;
  if (first <= low && high <= end) {
    *at = room->at[node];
    return room->most[node];
  }
  int32_t middle = (low + high) / 2, other = 0;
  int64_t a = room_most(room, 2 * node, low, middle, first, end, at), b = room_most(room, 2 * node + 1, middle, high, first, end, &other);
  if (b > a) *at = other;
  int64_t most = a > b ? a : b;
  return most == INT64_MIN ? most : most + room->add[node];
}

static void room_add(Room *room, int32_t node, int32_t low, int32_t high, int32_t first, int32_t end, int64_t bytes) {
  if (first >= high || end <= low) return;
  if (first <= low && high <= end) {
    room->most[node] += bytes;
    room->add[node] += bytes;
    return;
  }
  int32_t middle = (low + high) / 2;
  room_add(room, 2 * node, low, middle, first, end, bytes);
  room_add(room, 2 * node + 1, middle, high, first, end, bytes);
  room_update(room, node);
}

/* --- choosing ---------------------------------------------------------------------------------------------------------- */

/* Keys that put the first one first: of a ranking, and of moves, whose rank is when they are wanted back. */
static uint64_t most_worth(const void *ranked) { return sort_largest_first(((const Ranked *)ranked)->worth); }
static uint64_t least_worth(const void *ranked) { return ~most_worth(ranked); }
static uint64_t least_rank(const void *ranked) { return (uint64_t)((const Ranked *)ranked)->rank; }
static uint64_t latest(const void *ranked) { return ~least_rank(ranked); }
static uint64_t by_item(const void *ranked) { return ((const Ranked *)ranked)->item; }

static void sort_ranked(Ranked *ranked, uint32_t count, const SortKey *keys, uint32_t key_count) {
  sort_elements(ranked, sizeof *ranked, count, keys, key_count);
}

static bool comes_first(const Ranked *x, const Ranked *y) {
  if (x->worth != y->worth) return x->worth > y->worth;
  return x->rank != y->rank ? x->rank < y->rank : x->item < y->item;
}

/* A ns of each worth `price`; their numbers begin with `first`. */
static Ranks rank_from(Arena *arena, const Items *items, uint32_t first, double price) {
  static const SortKey keys[] = {least_rank, most_worth};
  Ranks out = {ARENA_ARRAY(arena, Ranked, items->count), 0};
  for (uint32_t i = 0; i < items->count; i++) {
    const Item *item = &items->data[i];
    double worth = price * (double)item->ns / (double)(item->bytes ? item->bytes : 1);
    if (worth > 0 && !item->held) out.data[out.count++] = (Ranked){worth, item->rank, first + i};
  }
  sort_ranked(out.data, out.count, keys, 2);
  return out;
}

Ranks items_rank_operators(Arena *arena, const Items *operators) { return rank_from(arena, operators, 0, 1); }

Ranking items_rank(Arena *arena, const AllItems *items, const Ranks *operators, double gather_price) {
  Arena *scratch = arena_new();
  Ranks units = rank_from(scratch, &items->units, items->operators.count, gather_price);
  Ranking out = {ARENA_ARRAY(arena, uint32_t, operators->count + units.count), 0};
  for (uint32_t i = 0, u = 0; i < operators->count || u < units.count;) {
    bool unit = i == operators->count || (u < units.count && comes_first(&units.data[u], &operators->data[i]));
    out.items[out.count++] = unit ? units.data[u++].item : operators->data[i++].item;
  }
  arena_free(scratch);
  return out;
}

/* The most worthwhile that may be moved, ranked by when they are wanted back, for as long as the link or `kept` bytes hold them. */
static uint32_t list_moves(const AllItems *items, const Moves *moves, Ranked *out) {
  static const SortKey keys[] = {latest, most_worth};
  uint64_t link_ns = moves->link_ns, kept = moves->kept;
  uint32_t count = 0, taken = 0;
  for (uint32_t i = 0; i < items->count; i++) {
    const Item *item = item_at(items, i);
    if (!item->away_ns) continue;
    double worth = item->held ? (moves->held_first ? INFINITY : 0) : (double)item->ns / (double)item->bytes;
    out[count++] = (Ranked){worth, item->last, i};
  }
  sort_ranked(out, count, keys, 2);
  for (uint32_t i = 0; i < count; i++) {
    const Item *item = item_at(items, out[i].item);
    if (item->away_ns <= link_ns) link_ns -= item->away_ns;
    else if (item->bytes <= kept) kept -= item->bytes;
    else continue;
    out[taken++] = out[i];
  }
  return taken;
}

static void order_moves(const AllItems *items, const Moves *moves, Ranked *ranked, uint32_t count) {
  static const SortKey by_latest[] = {latest}, spread[] = {by_item, least_rank, least_worth};
  if (moves->order == MOVE_LATEST) sort_ranked(ranked, count, by_latest, 1);
  if (moves->order != MOVE_SPREAD) return;
  for (uint32_t i = 0; i < count; i++) {
    const Item *item = item_at(items, ranked[i].item);
    ranked[i].rank = item->rank;
    if (item->held) ranked[i].worth = moves->held_first ? 0 : INFINITY;
  }
  sort_ranked(ranked, count, spread, 3);
}

void items_move(Arena *arena, const AllItems *items, Moves moves, bool *recompute, bool *away) {
  Ranked *ranked = ARENA_ARRAY(arena, Ranked, items->count);
  uint32_t count = list_moves(items, &moves, ranked);
  order_moves(items, &moves, ranked, count);
  for (uint32_t i = 0; i < count; i++) {
    const Item *item = item_at(items, ranked[i].item);
    if (item->away_ns > moves.link_ns || item->bytes > moves.room) continue;
    moves.link_ns -= item->away_ns;
    moves.room -= item->bytes;
    away[item->op] = true;
    item_set_again(item, false, recompute);
  }
}

/* Slots fill up while items are taken. Until the fullest one could be full, whichever that is, nothing needs to be looked up;
 * afterwards nearly all items meet the slot that last turned one away. */
typedef struct Filling {
  Arena *arena;
  int64_t *live; /* by slot; before the room is built: differences */
  int32_t slots;
  int64_t limit, most; /* most: no slot holds more */
  Room room;           /* size 0: not built yet */
  int32_t full;        /* a slot that turned an item away */
  int64_t full_bytes;
} Filling;

static int64_t largest(const int64_t *live, int32_t slots) {
  int64_t most = 0;
  for (int32_t i = 0; i < slots; i++)
    if (live[i] > most) most = live[i];
  return most;
}

static void look_up_from_now_on(Filling *f, const int64_t *live) {
  int64_t sum = 0;
  for (int32_t i = 0; i < f->slots; i++) {
    sum += f->live[i];
    f->live[i] = live[i] + sum;
  }
  room_build(f->arena, &f->room, f->live, f->slots);
  f->full = PLAN_NONE;
}

static bool holds(const Filling *f, int32_t slot, int32_t first, int32_t end) { return f->room.size && slot >= first && slot < end; }

/* Whether slots [first, end) have room for that much more. */
static bool has_room(Filling *f, const int64_t *live, int32_t first, int32_t end, int64_t bytes) {
  if (!f->room.size && f->most + bytes <= f->limit) return true;
  if (!f->room.size) look_up_from_now_on(f, live);
  if (holds(f, f->full, first, end) && f->full_bytes + bytes > f->limit) return false;
  int32_t at = PLAN_NONE;
  int64_t most = room_most(&f->room, 1, 0, f->room.size, first, end, &at);
  if (most + bytes <= f->limit) return true;
  f->full = at;
  f->full_bytes = most;
  return false;
}

static void fill(Filling *f, int32_t first, int32_t end, int64_t bytes) {
  if (end <= first) return;
  if (f->room.size) {
    room_add(&f->room, 1, 0, f->room.size, first, end, bytes);
    if (holds(f, f->full, first, end)) f->full_bytes += bytes;
  } else {
    f->live[first] += bytes;
    f->live[end] -= bytes;
    if (bytes > 0) f->most += bytes;
  }
}

void items_choose(const AllItems *items, const Ranking *ranking, uint64_t limit, const Live *live, int32_t slots, const bool *away, bool *recompute,
                  bool *keep) {
  Filling f = {.arena = arena_new(), .slots = slots, .limit = (int64_t)limit, .most = largest(live->bytes, slots)};
  f.live = ARENA_ARRAY(f.arena, int64_t, (size_t)slots + 1);
  for (uint32_t i = 0; i < items->count; i++) {
    const Item *item = item_at(items, i);
    if (item->held && away[item->op] != live->away[item->op])
      fill(&f, item->first + 1, item->last, away[item->op] ? -(int64_t)item->bytes : (int64_t)item->bytes);
  }
  for (uint32_t i = 0; i < ranking->count; i++) {
    const Item *item = item_at(items, ranking->items[i]);
    if (item->op >= 0 && away[item->op]) continue;
    int32_t first = item->first + 1, end = item->last;
    if (end > first && !has_room(&f, live->bytes, first, end, (int64_t)item->bytes)) continue;
    fill(&f, first, end, (int64_t)item->bytes);
    if (item->op >= 0)
      item_set_again(item, false, recompute);
    else
      keep[item->unit] = true;
  }
  arena_free(f.arena);
}
