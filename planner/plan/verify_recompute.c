/* Owns: rule recompute: what is run again makes what forward made. Every value has a number that stands for how it came about: by which
 * instruction, with which attributes, of which values, parameters and inputs. What runs again must write values whose numbers forward wrote in
 * the same segment. Numbers are hashes of 64 bits: an edit that is missed would have to collide. */
#include "planner/plan/check.h"

typedef struct Piece {
  Region region;
  uint64_t value;
  int32_t before; /* of the same buffer, or of the one it was copied from: index + 1, 0: none */
  uint32_t behind; /* how many there are before it */
} Piece;

/* A buffer written in more pieces than any of ours is looked at as one, so that a file cannot make this take long. */
enum { MOST_PIECES = 64 };

/* Open addressing; 0 is no number. */
typedef struct Seen {
  uint64_t *slots;
  size_t mask;
} Seen;

typedef struct Values {
  const Check *check;
  Arena *arena;
  VEC(Piece) pieces;
  int32_t *latest; /* by buffer: index + 1 of the piece written last, 0: none in this segment */
  Seen forward;    /* what forward has written in this segment */
} Values;

static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u; /* 2^64 over the golden ratio */
  return (hash ^ hash >> 29) + 1;
}

static bool find(const Seen *seen, uint64_t value, size_t *at) {
  for (*at = value & seen->mask; seen->slots[*at]; *at = (*at + 1) & seen->mask)
    if (seen->slots[*at] == value) return true;
  return false;
}

/* At most half of the slots are taken. */
static Seen seen_new(Arena *arena, size_t most) {
  size_t size = 2;
  while (size < 2 * most) size *= 2;
  return (Seen){ARENA_ARRAY(arena, uint64_t, size), size - 1};
}

/* --- what a buffer holds ------------------------------------------------------------------------------------------------------- */

static bool same_region(const Region *a, const Region *b) {
  return a->begin == b->begin && a->rows == b->rows && a->cols == b->cols && a->ld == b->ld;
}

static uint64_t mix_region(uint64_t hash, const Region *region, uint64_t from) {
  return mix(mix(mix(mix(hash, region->begin - from), region->rows), region->cols), region->ld);
}

/* A place of a unit is a parameter, whichever of its buffers that is read from; what else nothing has written yet is known by its buffer. */
static uint64_t value_from_outside(const Values *values, int32_t b, const Region *region) {
  const PlanBuf *buf = check_buf(values->check, b);
  const bool unit = buf->unit != PLAN_NONE;
  return mix_region(mix(unit ? 1 : 2, (uint64_t)(unit ? buf->unit : b)), region, 0);
}

/* Of several pieces in whatever order they were written. */
static uint64_t value_at(const Values *values, int32_t b, Region region) {
  uint64_t together = 0;
  for (int32_t at = values->latest[b]; at; at = values->pieces.data[at - 1].before) {
    const Piece *piece = &values->pieces.data[at - 1];
    if (same_region(&piece->region, &region)) return piece->value;
    if (region_overlap(&piece->region, &region)) together += mix_region(piece->value, &piece->region, region.begin);
  }
  return together ? mix_region(together, &region, region.begin) : value_from_outside(values, b, &region);
}

static void write_piece(Values *values, int32_t b, Region region, uint64_t value) {
  const Piece *before = values->latest[b] ? &values->pieces.data[values->latest[b] - 1] : NULL;
  Piece piece = {region, value, values->latest[b], before ? before->behind + 1 : 0};
  if (piece.behind >= MOST_PIECES) {
    const uint64_t numel = check_buf(values->check, b)->numel;
    piece = (Piece){region_make(0, 1, numel, numel), mix(mix_region(value, &region, 0), before->value), 0, 0};
  }
  vec_push(values->arena, &values->pieces, piece);
  values->latest[b] = (int32_t)values->pieces.count;
}

/* --- instructions ------------------------------------------------------------------------------------------------------------- */

/* By operation, attributes, and what it reads. */
static uint64_t number_of(const Values *values, const PlanInstr *instr) {
  const Check *check = values->check;
  const InstrSpec *spec = &check->specs[instr->op];
  uint64_t hash = mix(3, (uint64_t)instr->op);
  for (int k = 0; k < spec->int_count; k++) hash = mix(hash, (uint64_t)plan_int(check->plan, instr, k));
  for (int k = 0; k < spec->real_count; k++) {
    const double real = plan_real(check->plan, instr, k);
    uint64_t bits;
    memcpy(&bits, &real, sizeof bits);
    hash = mix(hash, bits);
  }
  for (int k = 0; k < spec->operand_count; k++) {
    const PlanOperand *operand = plan_operand(check->plan, instr, k);
    if (operand->buf == PLAN_NONE || operand_overwrites(&spec->operands[k], operand)) continue;
    hash = mix(mix(hash, (uint64_t)k), value_at(values, operand->buf, operand_region(check, instr, k)));
  }
  return hash;
}

/* Of forward it is noted; whether it is forward's, where it is run again. */
static bool note_result(Values *values, const PlanInstr *instr, uint64_t value) {
  size_t at;
  const bool seen = find(&values->forward, value, &at);
  if (instr->phase == PHASE_FORWARD && !seen) values->forward.slots[at] = value;
  return seen || instr->phase != PHASE_RECOMPUTE;
}

static void run_instr(Values *values, Check *check, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const InstrSpec *spec = &check->specs[instr->op];
  if (is_transfer(instr->op)) { /* what is copied stays what it was */
    values->latest[plan_operand(check->plan, instr, 1)->buf] = values->latest[plan_operand(check->plan, instr, 0)->buf];
    return;
  }
  const uint64_t number = number_of(values, instr);
  bool known = true;
  for (int k = 0; k < spec->operand_count; k++) {
    const PlanOperand *operand = plan_operand(check->plan, instr, k);
    if (spec->operands[k].mode == MODE_READ || operand->buf == PLAN_NONE || check_buf(check, operand->buf)->unit != PLAN_NONE) continue;
    const uint64_t value = mix(mix(number, (uint64_t)k), (uint64_t)check_buf(check, operand->buf)->dtype);
    known &= note_result(values, instr, value);
    write_piece(values, operand->buf, operand_region(check, instr, k), value);
  }
  if (!known)
    violate(check, VERIFY_RECOMPUTE, i, PLAN_NONE, "runs nothing of forward again: it differs in an attribute, a parameter, or a value that it reads");
}

static size_t count_results(const Check *check, const PlanSegment *segment) {
  size_t count = 0;
  for (int32_t i = segment->first; i < segment->end; i++) {
    const PlanInstr *instr = &check->plan->instrs.data[i];
    for (int k = 0; k < check->specs[instr->op].operand_count; k++)
      count += instr->phase == PHASE_FORWARD && check->specs[instr->op].operands[k].mode != MODE_READ;
  }
  return count;
}

static bool runs_again(const Plan *plan, const PlanSegment *segment) {
  for (int32_t i = segment->first; i < segment->end; i++)
    if (plan->instrs.data[i].phase == PHASE_RECOMPUTE) return true;
  return false;
}

void check_recompute(Check *check) {
  const Plan *plan = check->plan;
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    if (!runs_again(plan, segment)) continue;
    Arena *arena = arena_new();
    Values values = {.check = check, .arena = arena, .latest = ARENA_ARRAY(arena, int32_t, plan->bufs.count)};
    values.forward = seen_new(arena, count_results(check, segment));
    for (int32_t i = segment->first; i < segment->end; i++) run_instr(&values, check, i);
    arena_free(arena);
  }
}
