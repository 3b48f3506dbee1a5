/* Owns: the lines of instructions of a plan's text. */
#include "planner/plan/instr.h"
#include "planner/plan/reader.h"

#include <ctype.h>

static void read_operand(Reader *r, PlanOperand *operand) {
  scan_blanks(&r->scan);
  operand->add = scan_accept(&r->scan, "+=");
  bool arrow = r->scan.end - r->scan.at >= 2 && r->scan.at[1] == '>';
  operand->buf =
      !arrow && scan_accept(&r->scan, "-") ? PLAN_NONE : scan_id(&r->scan, 'b', r->bufs, "buffers");
  if (operand->buf == PLAN_NONE) return;
  if (scan_accept(&r->scan, "+")) operand->offset = scan_number(&r->scan, READER_SIZE_MOST);
  if (scan_accept(&r->scan, ":")) operand->ld = (uint32_t)scan_number(&r->scan, UINT32_MAX);
}

static void read_operands(Reader *r, const InstrSpec *spec) {
  int arrow = instr_arrow(spec);
  for (int k = 0; k < spec->operand_count && !r->scan.failed; k++) {
    scan_blanks(&r->scan);
    if (k == arrow) scan_expect(&r->scan, "->");
    read_operand(r, vec_add(r->arena, &r->plan->operands));
  }
}

/* The index of an attribute: ints first, then reals. `guess` is tried first. */
static int find_attribute(const InstrSpec *spec, Word word, int guess) {
  for (int tries = 0, n = spec->int_count + spec->real_count; tries < n; tries++, guess = (guess + 1) % n)
    if (word_is(word, guess < spec->int_count ? spec->ints[guess] : spec->reals[guess - spec->int_count]))
      return guess;
  return -1;
}

static void unknown_attribute(Reader *r, const InstrSpec *spec, Word word) {
  const char *names[INSTR_MAX_INTS + INSTR_MAX_REALS];
  uint32_t count = 0;
  for (int i = 0; i < spec->int_count; i++) names[count++] = spec->ints[i];
  for (int i = 0; i < spec->real_count; i++) names[count++] = spec->reals[i];
  scan_unknown(&r->scan, word, arena_printf(r->scan.arena, "an attribute of %s", spec->name), names, count);
}

/* The first that is missing and cannot be left out, or -1. */
static int missing_attribute(const InstrSpec *spec, uint32_t seen) {
  for (int k = 0; k < spec->int_count + spec->real_count; k++)
    if (!(seen >> k & 1) && (k >= spec->int_count || spec->like[k] == k)) return k;
  return -1;
}

static void expect_attribute(Reader *r, const InstrSpec *spec, uint32_t seen) {
  int k = missing_attribute(spec, seen);
  scan_expect(&r->scan, k < 0 ? "}" : k < spec->int_count ? spec->ints[k] : spec->reals[k - spec->int_count]);
}

/* What is left out may come last, so this is asked before each attribute. */
static bool ends_early(Reader *r, const InstrSpec *spec, uint32_t seen) {
  scan_blanks(&r->scan);
  return r->scan.at < r->scan.end && *r->scan.at == '}' && missing_attribute(spec, seen) < 0;
}

static void read_attribute(Reader *r, const InstrSpec *spec, const PlanInstr *instr, uint32_t *seen,
                           int guess) {
  Word word = scan_word(&r->scan);
  int k = find_attribute(spec, word, guess);
  if (k < 0) {
    if (word.length)
      unknown_attribute(r, spec, word);
    else
      expect_attribute(r, spec, *seen);
    return;
  }
  if (*seen >> k & 1)
    scan_error(&r->scan, word.at, word.at + word.length, "attribute %s stands twice",
               scan_quote(&r->scan, word));
  *seen |= 1u << k;
  scan_expect(&r->scan, "=");
  if (k < spec->int_count)
    r->plan->ints.data[instr->ints + (uint32_t)k] = scan_integer(&r->scan);
  else
    r->plan->reals.data[instr->reals + (uint32_t)(k - spec->int_count)] = scan_real(&r->scan);
}

static void read_attributes(Reader *r, const InstrSpec *spec, const PlanInstr *instr) {
  int count = spec->int_count + spec->real_count;
  uint32_t seen = 0;
  for (int i = 0; i < spec->int_count; i++) vec_push(r->arena, &r->plan->ints, 0);
  for (int i = 0; i < spec->real_count; i++) vec_push(r->arena, &r->plan->reals, 0);
  if (!count) return;
  scan_blanks(&r->scan);
  scan_expect(&r->scan, "{");
  for (int i = 0; i < count && !r->scan.failed && !ends_early(r, spec, seen); i++) read_attribute(r, spec, instr, &seen, i);
  int64_t *ints = r->plan->ints.data + instr->ints;
  for (int k = 0; k < spec->int_count; k++)
    if (!(seen >> k & 1)) ints[k] = ints[spec->like[k]];
  scan_blanks(&r->scan);
  scan_expect(&r->scan, "}");
}

static void read_waits(Reader *r, PlanInstr *instr) {
  do {
    vec_push(r->arena, &r->plan->waits, scan_id(&r->scan, 'e', r->plan->event_count, "events"));
    instr->wait_count++;
    scan_blanks(&r->scan);
  } while (!r->scan.failed && r->scan.end - r->scan.at >= 2 && r->scan.at[0] == 'e' &&
           isdigit((unsigned char)r->scan.at[1]));
}

/* "path":9:9, or 9:9 in the plan's own source. */
static void read_position(Reader *r, PlanInstr *instr) {
  scan_blanks(&r->scan);
  instr->span.path = r->plan->source_path;
  if (r->scan.at < r->scan.end && *r->scan.at == '"') {
    instr->span.path = reader_path(r);
    scan_expect(&r->scan, ":");
  }
  instr->span.line = (uint32_t)scan_number(&r->scan, UINT32_MAX);
  scan_expect(&r->scan, ":");
  instr->span.column = (uint32_t)scan_number(&r->scan, UINT32_MAX);
}

enum { CLAUSE_WAIT, CLAUSE_RECORD, CLAUSE_NS, CLAUSE_FLOPS, CLAUSE_BYTES, CLAUSE_FOR, CLAUSE_AT };

static void read_clause(Reader *r, PlanInstr *instr, uint32_t *seen) {
  static const char *const names[] = {"wait", "record", "ns", "flops", "bytes", "for", "at", NULL};
  scan_blanks(&r->scan);
  const char *begin = r->scan.at;
  uint32_t clause = scan_name(&r->scan, names, "a clause of an instruction");
  if (*seen >> clause & 1)
    scan_error(&r->scan, begin, r->scan.at, "clause \"%s\" stands twice", names[clause]);
  *seen |= 1u << clause;
  if (r->scan.failed) return;
  switch (clause) {
  case CLAUSE_WAIT:
    read_waits(r, instr);
    break;
  case CLAUSE_RECORD:
    instr->record = scan_id(&r->scan, 'e', r->plan->event_count, "events");
    break;
  case CLAUSE_NS:
    instr->ns = scan_number(&r->scan, UINT64_MAX);
    break;
  case CLAUSE_FLOPS:
    instr->flops = scan_number(&r->scan, UINT64_MAX);
    break;
  case CLAUSE_BYTES:
    instr->bytes = scan_number(&r->scan, UINT64_MAX);
    break;
  case CLAUSE_FOR:
    instr->name = reader_text(r);
    break;
  default:
    read_position(r, instr);
  }
}

void reader_instr(Reader *r, const char *begin) {
  Plan *plan = r->plan;
  PlanInstr instr = {.operands = plan->operands.count,
                     .ints = plan->ints.count,
                     .reals = plan->reals.count,
                     .waits = plan->waits.count,
                     .record = PLAN_NONE};
  uint32_t seen = 0;
  r->scan.at = begin; /* before the id */
  reader_own_id(r, 'i', r->instrs, plan->instrs.count);
  if (!plan->segments.count)
    scan_error(&r->scan, begin, r->scan.at, "the instruction stands before the first segment");
  instr.stream = (StreamId)scan_name(&r->scan, stream_names, "a stream");
  instr.phase = (Phase)scan_name(&r->scan, phase_names, "a phase");
  instr.op = (InstrOp)scan_name(&r->scan, r->op_names, "an instruction");
  read_operands(r, &r->specs[instr.op]);
  read_attributes(r, &r->specs[instr.op], &instr);
  while (!scan_at_end(&r->scan)) read_clause(r, &instr, &seen);
  vec_push(r->arena, &plan->instrs, instr);
  if (plan->segments.count) plan->segments.data[plan->segments.count - 1].end = (int32_t)plan->instrs.count;
}
