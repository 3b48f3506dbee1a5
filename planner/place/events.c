/* Owns: the fewest events that order everything that must be ordered across queues, and those that pace gathers.
 *
 * requires: instructions in list order, addresses. provides: waits and records.
 * Dependencies: a read after a write, a write after a read or write of the same buffer, and the first access of a
 * buffer after every access of whatever lay at its addresses. Queues are FIFO and join between segments, so only the
 * latest access of each queue matters. A wait that another wait of the same instruction, or an earlier one of the same
 * queue, already implies is left out: each queue carries a vector clock of what it has seen of the others.
 *
 * Where communication slows compute, when it runs matters: the search issues gathers beside reductions, so that both slow compute at
 * once. A gather then starts no earlier than the compute that it is issued after, even if its addresses are free. */
#include "planner/place/place.h"

typedef struct Region {
  uint64_t begin, end;
  int32_t buf;
} Region;

typedef VEC(Region) Regions; /* disjoint, by address */

typedef struct Ordering {
  Arena *arena;
  Plan *plan;
  const InstrSpec *specs;
  uint32_t queues; /* in use, numbered densely */
  uint32_t queue_of[STREAM_COUNT];
  int32_t *read, *write; /* [buf * queues + q]: the last instruction of queue q that does so, PLAN_NONE */
  int32_t *seen;         /* [instr * queues + q]: the last one of queue q that is known to have finished when it has, itself included */
  int32_t now[STREAM_COUNT][STREAM_COUNT]; /* so by queue, after its last instruction */
  Regions regions[2]; /* of the device, of the host: what changes on the device leaves the host's where it lies */
  bool *placed;   /* by buffer: its region is in the map */
  bool paced;
} Ordering;

static void number_queues(Ordering *o) {
  const Plan *plan = o->plan;
  bool used[STREAM_COUNT] = {false};
  uint32_t number[STREAM_COUNT];
  for (uint32_t i = 0; i < plan->instrs.count; i++) used[plan->queue[plan->instrs.data[i].stream]] = true;
  for (int q = 0; q < STREAM_COUNT; q++) number[q] = used[q] ? o->queues++ : 0;
  for (int s = 0; s < STREAM_COUNT; s++) o->queue_of[s] = number[plan->queue[s]];
}

static void join_all(Ordering *o, int32_t before) {
  for (uint32_t q = 0; q < o->queues; q++)
    for (uint32_t r = 0; r < o->queues; r++) o->now[q][r] = before;
}

/* last: by queue. */
static void need(const Ordering *o, int32_t *needed, const int32_t *last) {
  for (uint32_t q = 0; q < o->queues; q++)
    if (last[q] > needed[q]) needed[q] = last[q];
}

static int32_t *by_queue(const Ordering *o, int32_t *all, int32_t of) { return &all[(size_t)of * o->queues]; }

static uint32_t first_region_after(const Regions *regions, uint64_t begin) {
  uint32_t low = 0, high = regions->count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (regions->data[middle].end <= begin)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Replaces regions [from, to) by `count` new ones. */
static void splice(Arena *arena, Regions *regions, uint32_t from, uint32_t to, const Region *with, uint32_t count) {
  uint32_t tail = regions->count - to;
  vec_reserve(arena, regions, from + count + tail);
  memmove(regions->data + from + count, regions->data + to, tail * sizeof(Region));
  memcpy(regions->data + from, with, count * sizeof(Region));
  regions->count = from + count + tail;
}

/* The buffer takes over its addresses: every access of earlier owners must come first. */
static void take_over(Ordering *o, int32_t b, int32_t needed[STREAM_COUNT]) {
  const PlanBuf *buf = &o->plan->bufs.data[b];
  Regions *regions = &o->regions[buf->host];
  uint64_t begin = buf->offset, end = begin + buf->bytes;
  uint32_t from = first_region_after(regions, begin), to = from, count = 0;
  Region pieces[3];
  while (to < regions->count && regions->data[to].begin < end) {
    const Region *old = &regions->data[to];
    need(o, needed, by_queue(o, o->read, old->buf));
    need(o, needed, by_queue(o, o->write, old->buf));
    to++;
  }
  if (to > from && regions->data[from].begin < begin)
    pieces[count++] = (Region){regions->data[from].begin, begin, regions->data[from].buf};
  pieces[count++] = (Region){begin, end, b};
  if (to > from && regions->data[to - 1].end > end)
    pieces[count++] = (Region){end, regions->data[to - 1].end, regions->data[to - 1].buf};
  splice(o->arena, regions, from, to, pieces, count);
}

static void collect(Ordering *o, const PlanInstr *instr, int32_t needed[STREAM_COUNT]) {
  for (int k = 0; k < o->specs[instr->op].operand_count; k++) {
    int32_t b = plan_operand(o->plan, instr, k)->buf;
    if (b < 0) continue;
    if (!o->placed[b] && !o->plan->bufs.data[b].persistent && o->plan->bufs.data[b].bytes) {
      take_over(o, b, needed);
      o->placed[b] = true;
    }
    need(o, needed, by_queue(o, o->write, b));
    if (o->specs[instr->op].operands[k].mode != MODE_READ) need(o, needed, by_queue(o, o->read, b));
  }
}

/* True when waiting for `other` makes waiting for `event` needless. */
static bool implied(const Ordering *o, int32_t event, uint32_t queue, int32_t other) {
  return by_queue(o, o->seen, other)[queue] >= event;
}

static void add_waits(Ordering *o, PlanInstr *instr, uint32_t queue, int32_t needed[STREAM_COUNT]) {
  for (uint32_t q = 0; q < o->queues; q++)
    if (q == queue || needed[q] <= o->now[queue][q]) needed[q] = PLAN_NONE;
  for (uint32_t q = 0; q < o->queues; q++)
    for (uint32_t r = 0; r < o->queues && needed[q] >= 0; r++)
      if (r != q && needed[r] >= 0 && implied(o, needed[q], q, needed[r])) needed[q] = PLAN_NONE;
  instr->waits = o->plan->waits.count;
  for (uint32_t q = 0; q < o->queues; q++) {
    if (needed[q] < 0) continue;
    PlanInstr *source = &o->plan->instrs.data[needed[q]];
    if (source->record < 0) source->record = (int32_t)o->plan->event_count++;
    vec_push(o->arena, &o->plan->waits, source->record);
    instr->wait_count++;
    need(o, o->now[queue], by_queue(o, o->seen, needed[q]));
  }
}

static void note_access(Ordering *o, int32_t index, uint32_t queue) {
  const PlanInstr *instr = &o->plan->instrs.data[index];
  for (int k = 0; k < o->specs[instr->op].operand_count; k++) {
    int32_t b = plan_operand(o->plan, instr, k)->buf;
    if (b < 0) continue;
    bool reads = o->specs[instr->op].operands[k].mode == MODE_READ;
    by_queue(o, reads ? o->read : o->write, b)[queue] = index;
  }
}

static void pace(const Ordering *o, const PlanInstr *instr, int32_t computes, int32_t needed[STREAM_COUNT]) {
  int32_t *compute = &needed[o->queue_of[STREAM_COMPUTE]];
  if (instr->op == INSTR_ALLGATHER && o->paced && computes > *compute) *compute = computes;
}

static void order_segment(Ordering *o, const PlanSegment *segment) {
  int32_t computes = PLAN_NONE; /* the last one */
  join_all(o, segment->first - 1);
  o->regions[0].count = o->regions[1].count = 0;
  for (int32_t i = segment->first; i < segment->end; i++) {
    PlanInstr *instr = &o->plan->instrs.data[i];
    uint32_t queue = o->queue_of[instr->stream];
    int32_t needed[STREAM_COUNT];
    for (uint32_t q = 0; q < o->queues; q++) needed[q] = PLAN_NONE;
    collect(o, instr, needed);
    pace(o, instr, computes, needed);
    add_waits(o, instr, queue, needed);
    o->now[queue][queue] = i;
    memcpy(by_queue(o, o->seen, i), o->now[queue], o->queues * sizeof *o->seen);
    note_access(o, i, queue);
    if (instr->stream == STREAM_COMPUTE) computes = i;
  }
}

void events_insert(Arena *arena, Plan *plan, const InstrSpec *specs, bool paced) {
  Arena *scratch = arena_new();
  Ordering o = {.arena = scratch, .plan = plan, .specs = specs, .paced = paced};
  number_queues(&o);
  const size_t uses = (size_t)plan->bufs.count * o.queues;
  o.read = ARENA_ARRAY(scratch, int32_t, uses);
  o.write = ARENA_ARRAY(scratch, int32_t, uses);
  for (size_t u = 0; u < uses; u++) o.read[u] = o.write[u] = PLAN_NONE;
  o.seen = ARENA_ARRAY(scratch, int32_t, (size_t)plan->instrs.count * o.queues);
  o.placed = ARENA_ARRAY(scratch, bool, plan->bufs.count);
  plan->waits.count = plan->event_count = 0;
  plan->waits.data = NULL;
  plan->waits.capacity = 0;
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    plan->instrs.data[i].record = PLAN_NONE;
    plan->instrs.data[i].wait_count = 0;
  }
  o.arena = arena; /* waits belong to the plan; regions may as well */
  for (uint32_t s = 0; s < plan->segments.count; s++) order_segment(&o, &plan->segments.data[s]);
  arena_free(scratch);
}
