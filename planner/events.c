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
#include "planner/emit.h"

typedef struct Access {
  int32_t read[STREAM_COUNT], write[STREAM_COUNT]; /* by queue: last instruction, PLAN_NONE */
} Access;

typedef struct Clock {
  int32_t seen[STREAM_COUNT]; /* by queue: last instruction known to have finished */
} Clock;

typedef struct Region {
  uint64_t begin, end;
  int32_t buf;
} Region;

typedef VEC(Region) Regions; /* disjoint, by address */

typedef struct Ordering {
  Arena *arena;
  Plan *plan;
  const InstrSpec *specs;
  Access *access; /* by buffer */
  Clock *at;      /* by instruction: what was known when it ran, itself included */
  Clock queue[STREAM_COUNT];
  Regions regions[2]; /* of the device, of the host: what changes on the device leaves the host's where it lies */
  bool *placed;   /* by buffer: its region is in the map */
  bool paced;
} Ordering;

static void join_all(Ordering *o, int32_t before) {
  for (int q = 0; q < STREAM_COUNT; q++)
    for (int r = 0; r < STREAM_COUNT; r++) o->queue[q].seen[r] = before;
}

static void need(int32_t needed[STREAM_COUNT], const int32_t *last) {
  for (int q = 0; q < STREAM_COUNT; q++)
    if (last[q] > needed[q]) needed[q] = last[q];
}

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
    need(needed, o->access[old->buf].read);
    need(needed, o->access[old->buf].write);
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
    need(needed, o->access[b].write);
    if (o->specs[instr->op].operands[k].mode != MODE_READ) need(needed, o->access[b].read);
  }
}

/* True when waiting for `other` makes waiting for `event` needless. */
static bool implied(const Ordering *o, int32_t event, int queue, int32_t other) {
  return o->at[other].seen[queue] >= event;
}

static void add_waits(Ordering *o, PlanInstr *instr, uint32_t queue, int32_t needed[STREAM_COUNT]) {
  for (int q = 0; q < STREAM_COUNT; q++)
    if (q == (int)queue || needed[q] <= o->queue[queue].seen[q]) needed[q] = PLAN_NONE;
  for (int q = 0; q < STREAM_COUNT; q++)
    for (int r = 0; r < STREAM_COUNT && needed[q] >= 0; r++)
      if (r != q && needed[r] >= 0 && implied(o, needed[q], q, needed[r])) needed[q] = PLAN_NONE;
  instr->waits = o->plan->waits.count;
  for (int q = 0; q < STREAM_COUNT; q++) {
    if (needed[q] < 0) continue;
    PlanInstr *source = &o->plan->instrs.data[needed[q]];
    if (source->record < 0) source->record = (int32_t)o->plan->event_count++;
    vec_push(o->arena, &o->plan->waits, source->record);
    instr->wait_count++;
    need(o->queue[queue].seen, o->at[needed[q]].seen);
  }
}

static void note_access(Ordering *o, int32_t index, uint32_t queue) {
  const PlanInstr *instr = &o->plan->instrs.data[index];
  for (int k = 0; k < o->specs[instr->op].operand_count; k++) {
    int32_t b = plan_operand(o->plan, instr, k)->buf;
    if (b < 0) continue;
    OperandMode mode = o->specs[instr->op].operands[k].mode;
    if (mode == MODE_READ)
      o->access[b].read[queue] = index;
    else
      o->access[b].write[queue] = index;
  }
}

static void pace(const Ordering *o, const PlanInstr *instr, int32_t computes, int32_t needed[STREAM_COUNT]) {
  int32_t *compute = &needed[o->plan->queue[STREAM_COMPUTE]];
  if (instr->op == INSTR_ALLGATHER && o->paced && computes > *compute) *compute = computes;
}

static void order_segment(Ordering *o, const PlanSegment *segment) {
  int32_t computes = PLAN_NONE; /* the last one */
  join_all(o, segment->first - 1);
  o->regions[0].count = o->regions[1].count = 0;
  for (int32_t i = segment->first; i < segment->end; i++) {
    PlanInstr *instr = &o->plan->instrs.data[i];
    uint32_t queue = o->plan->queue[instr->stream];
    int32_t needed[STREAM_COUNT];
    for (int q = 0; q < STREAM_COUNT; q++) needed[q] = PLAN_NONE;
    collect(o, instr, needed);
    pace(o, instr, computes, needed);
    add_waits(o, instr, queue, needed);
    o->queue[queue].seen[queue] = i;
    o->at[i] = o->queue[queue];
    note_access(o, i, queue);
    if (instr->stream == STREAM_COMPUTE) computes = i;
  }
}

void events_insert(Arena *arena, Plan *plan, const InstrSpec *specs, bool paced) {
  Arena *scratch = arena_new();
  Ordering o = {.arena = scratch, .plan = plan, .specs = specs, .paced = paced};
  o.access = ARENA_ARRAY(scratch, Access, plan->bufs.count);
  o.at = ARENA_ARRAY(scratch, Clock, plan->instrs.count);
  o.placed = ARENA_ARRAY(scratch, bool, plan->bufs.count);
  for (uint32_t b = 0; b < plan->bufs.count; b++)
    for (int q = 0; q < STREAM_COUNT; q++) o.access[b].read[q] = o.access[b].write[q] = PLAN_NONE;
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
