/* Owns: rules overlap, liveness, gather-before-use, read-before-write, no-event-path and reuse: every buffer's birth and
 * every access of it, in list order, against what came before it.
 *
 * Per buffer and queue only the last read and the last write are kept, with the range that all of them
 * touched: what comes after the last one comes after all. Two accesses of one buffer conflict when these
 * ranges meet, one writes, and they are on different queues. Of a dead buffer nothing is kept but when its memory
 * is ready for the next, so that what is looked at stays small. */
#include "planner/plan/check.h"

typedef struct Use {
  int32_t after; /* list position + 1 of the last one, 0: none */
  uint64_t begin, end;
} Use;

enum { READ, WRITE, KINDS };

typedef struct Accesses {
  Check *check;
  CoveragePool pool;
  Coverage *written; /* by buffer */
  int32_t *slot;     /* by buffer: its place in `uses` + 1 while it lives, else 0 */
  VEC(Use) uses;     /* [(slot * queues + q) * KINDS + kind] */
  VEC(int32_t) spare; /* slots of the dead */
  int32_t *ready; /* [buf * queues + q]: list position + 1 of the last use of the memory's earlier owners, once the buffer
                     is dead also of its own */
  IntervalMap held;  /* address -> the persistent buffer that has it */
  uint64_t held_end; /* none of them reaches beyond */
  IntervalMap owner; /* address -> the buffer that had it last, in this segment, persistent ones aside */
  int32_t segment;
} Accesses;

/* One operand's access. */
typedef struct Access {
  int32_t instr, buf;
  const char *name;
  Region region;
  Use *uses;            /* of the living buffer, [queue * KINDS + kind] */
  const int32_t *clock; /* of the instruction, by queue */
  int queue;            /* its own */
} Access;

/* [queue * KINDS + kind], of a buffer that lives. */
static Use *uses_of(const Accesses *all, int32_t buf) {
  return &all->uses.data[((size_t)all->slot[buf] - 1) * (size_t)all->check->queues * KINDS];
}
/* By queue. */
static int32_t *ready(const Accesses *all, int32_t buf) { return &all->ready[(size_t)buf * (size_t)all->check->queues]; }
static const char *op_name(const Check *check, int32_t instr) {
  return check->specs[check->plan->instrs.data[instr].op].name;
}

/* --- a buffer's birth and death ---------------------------------------------------------------------- */

static void take_slot(Accesses *all, int32_t b) {
  uint32_t size = (uint32_t)all->check->queues * KINDS;
  if (all->spare.count) {
    all->slot[b] = all->spare.data[--all->spare.count];
    memset(uses_of(all, b), 0, size * sizeof(Use));
    return;
  }
  for (uint32_t i = 0; i < size; i++) vec_add(all->pool.intervals.arena, &all->uses);
  all->slot[b] = (int32_t)(all->uses.count / size);
}

/* Raises last[], by queue: list position + 1 of the last use of the buffer's memory, by itself or by earlier owners. */
static void raise_to_last_use(const Accesses *all, int32_t b, int32_t *last) {
  const int32_t *before = ready(all, b);
  const Use *uses = all->slot[b] ? uses_of(all, b) : NULL;
  for (int q = 0; q < all->check->queues; q++) {
    if (before[q] > last[q]) last[q] = before[q];
    for (int kind = 0; uses && kind < KINDS; kind++)
      if (uses[q * KINDS + kind].after > last[q]) last[q] = uses[q * KINDS + kind].after;
  }
}

static void die(Accesses *all, int32_t b) {
  raise_to_last_use(all, b, ready(all, b));
  vec_push(all->pool.intervals.arena, &all->spare, all->slot[b]);
  all->slot[b] = 0;
  coverage_drop(&all->pool, &all->written[b]);
}

static Interval addresses(const Accesses *all, int32_t b) {
  const PlanBuf *buf = check_buf(all->check, b);
  uint64_t begin = plan_address(all->check->plan, buf);
  return (Interval){begin, begin + buf->bytes, b};
}

/* Both live when b is born. */
static void report_overlap(Accesses *all, int32_t b, const Interval *other) {
  uint64_t begin = addresses(all, b).begin;
  int32_t first = check_buf(all->check, b)->first;
  violate(all->check, VERIFY_OVERLAP, first, b, "b%d \"%s\" and b%d \"%s\" share addresses from %llu while both live at i%d", b,
          check_buf_name(all->check, b), other->value, check_buf_name(all->check, other->value),
          (unsigned long long)(other->begin > begin ? other->begin : begin), first);
}

static void check_held(Accesses *all, const Interval *mine) {
  if (mine->begin >= all->held_end) return;
  const Interval *held = intervals_after(&all->pool.intervals, all->held, mine->begin);
  if (held && held->begin < mine->end) report_overlap(all, mine->value, held);
}

static void hold(Accesses *all, int32_t b) {
  Interval mine = addresses(all, b);
  check_held(all, &mine);
  intervals_set(&all->pool.intervals, &all->held, mine.begin, mine.end, b);
  if (mine.end > all->held_end) all->held_end = mine.end;
}

/* The buffer may be used once every use of what lay at its addresses has finished; then the addresses are its
 * own. */
static void inherit(Accesses *all, int32_t b) {
  const Interval mine = addresses(all, b);
  const IntervalPool *pool = &all->pool.intervals;
  check_held(all, &mine);
  const Interval *old = intervals_after(pool, all->owner, mine.begin);
  while (old && old->begin < mine.end) {
    if (all->slot[old->value]) report_overlap(all, b, old);
    raise_to_last_use(all, old->value, ready(all, b));
    old = old->end < mine.end ? intervals_after(pool, all->owner, old->end) : NULL;
  }
  intervals_set(&all->pool.intervals, &all->owner, mine.begin, mine.end, b);
}

static void check_one_segment(Accesses *all, int32_t b) {
  const PlanBuf *buf = check_buf(all->check, b);
  if (buf->last >= all->check->plan->segments.data[all->segment].end)
    violate(all->check, VERIFY_LIVENESS, PLAN_NONE, b,
            "b%d \"%s\" lives i%d..i%d, beyond the segment it begins in", b, check_buf_name(all->check, b),
            buf->first, buf->last);
}

static void give_birth(Accesses *all, int32_t position) {
  const Lives *lives = &all->check->lives;
  for (int32_t b = lives->born[position]; b; b = lives->next_born[b - 1]) {
    take_slot(all, b - 1);
    if (check_buf(all->check, b - 1)->persistent) continue;
    inherit(all, b - 1);
    check_one_segment(all, b - 1);
  }
}

static void bury(Accesses *all, int32_t position) {
  const Lives *lives = &all->check->lives;
  for (int32_t b = lives->dead[position]; b; b = lives->next_dead[b - 1]) die(all, b - 1);
}

/* --- one access -------------------------------------------------------------------------------------- */

static bool is_live(Accesses *all, const Access *access) {
  if (all->slot[access->buf]) return true;
  const PlanBuf *buf = check_buf(all->check, access->buf);
  violate(all->check, VERIFY_LIVENESS, access->instr, access->buf,
          "%s uses b%d \"%s\", which lives i%d..i%d", access->name, access->buf,
          check_buf_name(all->check, access->buf), buf->first, buf->last);
  return false;
}

static void check_reuse(Accesses *all, const Access *access) {
  const int32_t *after = ready(all, access->buf);
  for (int q = 0; q < all->check->queues; q++) {
    if (after[q] <= access->clock[q]) continue;
    violate(all->check, VERIFY_REUSE, access->instr, access->buf,
            "%s uses b%d \"%s\" without waiting for i%d %s, which still uses what lay at its address",
            access->name, access->buf, check_buf_name(all->check, access->buf), after[q] - 1,
            op_name(all->check, after[q] - 1));
    return;
  }
}

static void report_race(Accesses *all, const Access *access, int queue, int kind, int own_kind) {
  Check *check = all->check;
  int32_t other = access->uses[queue * KINDS + kind].after - 1;
  bool gather = check->plan->instrs.data[other].op == INSTR_ALLGATHER && kind == WRITE && own_kind == READ;
  violate(check, gather ? VERIFY_GATHER_BEFORE_USE : VERIFY_NO_EVENT_PATH, access->instr, access->buf,
          "%s %s b%d \"%s\", which i%d %s %s on another queue; no event orders them", access->name,
          own_kind == WRITE ? "writes" : "reads", access->buf, check_buf_name(check, access->buf), other,
          op_name(check, other), kind == WRITE ? "writes" : "reads");
}

static bool meets(const Access *access, const Use *other) {
  return other->begin < region_end(&access->region) && access->region.begin < other->end;
}

/* A read conflicts with writes, a write with both, where these are not ordered before it. */
static void check_races(Accesses *all, const Access *access, int own_kind) {
  for (int q = 0; q < all->check->queues; q++)
    for (int kind = own_kind == WRITE ? READ : WRITE; kind < KINDS && q != access->queue; kind++) {
      const Use *other = &access->uses[q * KINDS + kind];
      if (other->after <= access->clock[q] || !meets(access, other)) continue;
      report_race(all, access, q, kind, own_kind);
      return;
    }
}

static void remember(const Access *access, int kind) {
  Use *mine = &access->uses[access->queue * KINDS + kind];
  uint64_t begin = access->region.begin, end = region_end(&access->region);
  if (!mine->after || begin < mine->begin) mine->begin = begin;
  if (!mine->after || end > mine->end) mine->end = end;
  mine->after = access->instr + 1;
}

/* --- initialised? ------------------------------------------------------------------------------------ */

/* Between the parameters of a flat gradient lies padding that nobody writes and nobody looks at. */
static bool unit_is_written(const Accesses *all, const Access *access) {
  const Plan *plan = all->check->plan;
  const PlanBuf *buf = check_buf(all->check, access->buf);
  if ((buf->class != BUF_GRADFULL && buf->class != BUF_GRAD) || buf->unit == PLAN_NONE) return false;
  const PlanUnit *unit = &plan->units.data[buf->unit];
  if (buf->numel != unit->shard * plan->world.shard || access->region.cols != buf->numel) return false;
  for (int32_t p = unit->first_param; p < unit->first_param + unit->param_count; p++) {
    const PlanParam *param = &plan->params.data[p];
    uint64_t numel = 1;
    for (int d = 0; d < param->rank; d++) numel *= (uint64_t)param->dim[d];
    if (!coverage_has(&all->pool, &all->written[access->buf], region_make(param->offset, 1, numel, 0)))
      return false;
  }
  return true;
}

static void check_written(Accesses *all, const Access *access) {
  if (coverage_has(&all->pool, &all->written[access->buf], access->region) || unit_is_written(all, access))
    return;
  bool gathered = check_buf(all->check, access->buf)->class == BUF_GATHERED;
  violate(all->check, gathered ? VERIFY_GATHER_BEFORE_USE : VERIFY_READ_BEFORE_WRITE, access->instr,
          access->buf, "%s reads b%d \"%s\", %s", access->name, access->buf,
          check_buf_name(all->check, access->buf),
          gathered ? "which nothing has gathered" : "part of which nothing has written");
}

/* --- the list ---------------------------------------------------------------------------------------- */

/* Where units are sharded, a parameter buffer is a piece of a unit: only these may look at it. */
static void check_whole(Accesses *all, const Access *access) {
  InstrOp op = all->check->plan->instrs.data[access->instr].op;
  if (check_buf(all->check, access->buf)->class != BUF_PARAM || all->check->plan->world.shard == 1) return;
  if (op == INSTR_ALLGATHER || is_update(op) || is_transfer(op) || op == INSTR_ADAFACTOR_SUMS || op == INSTR_COPY) return;
  violate(all->check, VERIFY_GATHER_BEFORE_USE, access->instr, access->buf,
          "%s reads b%d \"%s\", which is one rank's shard", access->name, access->buf,
          check_buf_name(all->check, access->buf));
}

static void visit_operand(Accesses *all, int32_t i, int k, int kind) {
  const PlanInstr *instr = &all->check->plan->instrs.data[i];
  const OperandSpec *spec = &all->check->specs[instr->op].operands[k];
  const PlanOperand *operand = plan_operand(all->check->plan, instr, k);
  if (operand->buf == PLAN_NONE) return;
  if (kind == READ ? operand_overwrites(spec, operand) : spec->mode == MODE_READ) return;
  Check *check = all->check;
  Access access = {.instr = i, .buf = operand->buf, .name = spec->name};
  if (!is_live(all, &access)) return;
  access.region = operand_region(check, instr, k);
  access.uses = uses_of(all, operand->buf);
  access.clock = &check->clock[(size_t)i * (size_t)check->queues];
  access.queue = check->queue_of[instr->stream];
  check_reuse(all, &access);
  check_races(all, &access, kind);
  if (kind == READ) {
    check_whole(all, &access);
    check_written(all, &access);
  }
  remember(&access, kind);
  if (kind == WRITE) coverage_add(&all->pool, &all->written[operand->buf], access.region);
}

/* All reads of an instruction come before its writes. */
static void visit(Accesses *all, int32_t i) {
  int operands = all->check->specs[all->check->plan->instrs.data[i].op].operand_count;
  give_birth(all, i);
  for (int kind = 0; kind < KINDS; kind++)
    for (int k = 0; k < operands; k++) visit_operand(all, i, k, kind);
  bury(all, i);
}

static void init(Accesses *all, Arena *scratch, Check *check) {
  const Plan *plan = check->plan;
  size_t slots = (size_t)plan->bufs.count * (size_t)check->queues;
  *all = (Accesses){.check = check,
                    .pool = {.intervals = {.arena = scratch}},
                    .written = ARENA_ARRAY(scratch, Coverage, plan->bufs.count),
                    .slot = ARENA_ARRAY(scratch, int32_t, plan->bufs.count),
                    .ready = ARENA_ARRAY(scratch, int32_t, slots)};
  for (int32_t b = (int32_t)plan->bufs.count - 1; b >= 0; b--) {
    const PlanBuf *buf = check_buf(check, b);
    if (buf->persistent) hold(all, b);
    if (buf->persistent && (buf->class == BUF_PARAM || buf->class == BUF_OPTIM)) /* the runtime fills these */
      coverage_add(&all->pool, &all->written[b], region_make(0, 1, buf->numel, 0));
  }
}

void check_accesses(Check *check) {
  Arena *scratch = arena_new();
  Accesses all;
  init(&all, scratch, check);
  for (all.segment = 0; all.segment < (int32_t)check->plan->segments.count; all.segment++) {
    const PlanSegment *segment = &check->plan->segments.data[all.segment];
    intervals_drop(&all.pool.intervals, &all.owner);
    for (int32_t i = segment->first; i < segment->end; i++) visit(&all, i);
  }
  arena_free(scratch);
}
