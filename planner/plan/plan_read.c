/* Owns: text -> plan. The file is untrusted: every id is checked against the number of lines of its kind,
 * which a first pass counts, every size against its limit, and each line reports at most one error. One pass,
 * linear in the file. Changes together with plan_write.c, fields.c and docs/plan-format.md. */
#include "planner/plan/fields.h"
#include "planner/plan/instr.h"
#include "planner/plan/plan_text.h"
#include "planner/plan/scan.h"
#include "base/checked.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>

enum { ERRORS_MOST = DIAG_LIMIT };
static const uint64_t size_most = UINT64_C(1) << PLAN_MAX_BYTES_LOG2;
static const size_t file_most = (size_t)1 << 30;
static const char magic[] = "fsdpc-plan";

typedef struct Reader {
  Scan scan;
  Arena *arena; /* of the plan */
  Plan *plan;
  const InstrSpec *specs;
  const char *op_names[INSTR_COUNT + 1];
  uint32_t inputs, units, params, bufs, instrs; /* lines in the file */
  uint32_t headers;                             /* bit per line of header_lines */
  bool checked_headers, misnumbered, ended;
} Reader;

/* --- values and fields ------------------------------------------------------------------------------- */

static StrId read_text(Reader *r) {
  const char *text = scan_quoted(&r->scan);
  return r->scan.failed ? 0 : plan_intern(r->arena, r->plan, text);
}

/* An id, or - for none. */
static int32_t read_optional(Reader *r, char letter, uint32_t count, const char *what) {
  scan_blanks(&r->scan);
  return scan_accept(&r->scan, "-") ? PLAN_NONE : scan_id(&r->scan, letter, count, what);
}

static void store32(void *at, uint32_t value) {
  memcpy(at, &value, sizeof value);
}
static void store64(void *at, uint64_t value) {
  memcpy(at, &value, sizeof value);
}

static void read_value(Reader *r, const Field *field, void *base) {
  static const char *const flags[] = {"no", "yes", NULL};
  void *at = (char *)base + field->offset;
  double real;
  switch (field->kind) {
  case FIELD_U32:
    store32(at, (uint32_t)scan_number(&r->scan, UINT32_MAX));
    break;
  case FIELD_U64:
    store64(at, scan_number(&r->scan, UINT64_MAX));
    break;
  case FIELD_SIZE:
    store64(at, scan_number(&r->scan, size_most));
    break;
  case FIELD_HEX:
    store64(at, scan_hex(&r->scan, UINT64_MAX));
    break;
  case FIELD_BOOL:
    *(bool *)at = scan_name(&r->scan, flags, "\"yes\" or \"no\"") != 0;
    break;
  case FIELD_TEXT:
    store32(at, read_text(r));
    break;
  case FIELD_ENUM:
    store32(at, scan_name(&r->scan, field->names, "a value of this key"));
    break;
  case FIELD_BUF:
    store32(at, (uint32_t)read_optional(r, 'b', r->bufs, "buffers"));
    break;
  case FIELD_UNIT:
    store32(at, (uint32_t)read_optional(r, 'u', r->units, "units"));
    break;
  case FIELD_PARAM: /* a unit without parameters may begin behind the last */
    store32(at, (uint32_t)scan_id(&r->scan, 'p', r->params + 1, "parameters"));
    break;
  case FIELD_REAL:
    real = scan_real(&r->scan);
    memcpy(at, &real, sizeof real);
    break;
  }
}

static void unknown_key(Reader *r, Word word, const LineSpec *line) {
  const char *keys[LINE_MAX_FIELDS];
  uint32_t count = 0;
  for (int i = 0, n = field_count(line); i < n; i++)
    if (*line->fields[i].key) keys[count++] = line->fields[i].key;
  scan_unknown(&r->scan, word, arena_printf(r->scan.arena, "a key of line \"%s\"", line->keyword), keys,
               count);
}

/* The index of the key that stands here, or -1; `guess` is tried first. */
static int read_key(Reader *r, const LineSpec *line, int count, int guess) {
  Word word = scan_word(&r->scan);
  if (word_is(word, line->fields[guess].key)) return guess;
  for (int i = 0; i < count; i++)
    if (*line->fields[i].key && word_is(word, line->fields[i].key)) return i;
  if (word.length)
    unknown_key(r, word, line);
  else
    scan_expect(&r->scan, line->fields[guess].key);
  return -1;
}

static int next_missing(uint32_t seen, int count) {
  int i = 0;
  while (i < count && seen >> i & 1) i++;
  return i;
}

/* Each key once, in any order. What follows the last is left to the caller. */
static void read_fields(Reader *r, const LineSpec *line, void *base) {
  int count = field_count(line);
  uint32_t seen = 0;
  for (int guess; (guess = next_missing(seen, count)) < count && !r->scan.failed;) {
    const char *begin = r->scan.at;
    int key = guess;
    if (*line->fields[guess].key) key = read_key(r, line, count, guess);
    if (key < 0) return;
    if (seen >> key & 1)
      scan_error(&r->scan, begin, r->scan.at, "key \"%s\" stands twice", line->fields[key].key);
    seen |= 1u << key;
    read_value(r, &line->fields[key], base);
  }
}

/* --- tables ------------------------------------------------------------------------------------------ */

/* Ids are written for the reader's eye; they count lines. */
static void read_own_id(Reader *r, char letter, uint32_t lines, uint32_t own) {
  scan_blanks(&r->scan);
  const char *begin = r->scan.at;
  int32_t id = scan_id(&r->scan, letter, lines, "of them");
  if (r->scan.failed || r->misnumbered || (uint32_t)id == own) return;
  r->misnumbered = true; /* said once: all that follow are off by as much */
  scan_error(&r->scan, begin, r->scan.at, "expected %c%u, saw %c%d: lines of a kind are numbered in order",
             letter, own, letter, id);
}

static void read_input(Reader *r) {
  PlanInput *input = vec_add(r->arena, &r->plan->inputs);
  read_own_id(r, 'n', r->inputs, r->plan->inputs.count - 1);
  read_fields(r, &input_line, input);
}

static void read_unit(Reader *r) {
  PlanUnit *unit = vec_add(r->arena, &r->plan->units);
  read_own_id(r, 'u', r->units, r->plan->units.count - 1);
  read_fields(r, &unit_line, unit);
}

static void read_param(Reader *r) {
  PlanParam *param = vec_add(r->arena, &r->plan->params);
  read_own_id(r, 'p', r->params, r->plan->params.count - 1);
  read_fields(r, &param_line, param);
  scan_blanks(&r->scan);
  scan_expect(&r->scan, "init");
  param->init.kind = (InitKind)scan_name(&r->scan, init_names, "an initial value");
  param->init.a = scan_real(&r->scan);
  scan_blanks(&r->scan);
  scan_expect(&r->scan, "shape");
  scan_blanks(&r->scan);
  scan_expect(&r->scan, "[");
  if (scan_accept(&r->scan, "]")) return;
  do {
    if (param->rank == PLAN_MAX_RANK)
      scan_error(&r->scan, r->scan.at - 1, r->scan.at, "a shape has at most %d dimensions", PLAN_MAX_RANK);
    else
      param->dim[param->rank++] = (int64_t)scan_number(&r->scan, size_most);
  } while (scan_accept(&r->scan, ","));
  scan_expect(&r->scan, "]");
}

static void read_life(Reader *r, PlanBuf *buf) {
  scan_blanks(&r->scan);
  if (scan_accept(&r->scan, "persistent")) {
    buf->persistent = true;
    buf->last = (int32_t)r->instrs - 1;
    return;
  }
  scan_expect(&r->scan, "live");
  buf->first = scan_id(&r->scan, 'i', r->instrs, "instructions");
  scan_expect(&r->scan, "..");
  buf->last = scan_id(&r->scan, 'i', r->instrs, "instructions");
}

static void read_buf(Reader *r) {
  PlanBuf *buf = vec_add(r->arena, &r->plan->bufs);
  read_own_id(r, 'b', r->bufs, r->plan->bufs.count - 1);
  buf->name = read_text(r);
  buf->class = (BufClass)scan_name(&r->scan, class_names, "a class of buffers");
  buf->dtype = (DType)scan_name(&r->scan, dtype_names, "a dtype");
  scan_blanks(&r->scan);
  const char *begin = r->scan.at;
  buf->numel = scan_number(&r->scan, size_most);
  buf->bytes = buf->numel * dtype_bytes(buf->dtype); /* at most 2^53 */
  if (buf->bytes > size_most)
    scan_error(&r->scan, begin, r->scan.at, "the buffer has more than 2^%d bytes", PLAN_MAX_BYTES_LOG2);
  scan_blanks(&r->scan);
  scan_expect(&r->scan, "@");
  buf->offset = scan_hex(&r->scan, size_most);
  scan_blanks(&r->scan);
  buf->host = scan_accept(&r->scan, "host");
  read_life(r, buf);
  scan_blanks(&r->scan);
  buf->unit = scan_accept(&r->scan, "unit") ? scan_id(&r->scan, 'u', r->units, "units") : PLAN_NONE;
}

static void read_segment(Reader *r) {
  PlanSegment *segment = vec_add(r->arena, &r->plan->segments);
  segment->first = segment->end = (int32_t)r->plan->instrs.count;
  segment->name = read_text(r);
  scan_blanks(&r->scan);
  scan_expect(&r->scan, "x");
  segment->count = scan_number(&r->scan, size_most);
}

/* --- instructions ------------------------------------------------------------------------------------ */

static void read_operand(Reader *r, PlanOperand *operand) {
  scan_blanks(&r->scan);
  operand->add = scan_accept(&r->scan, "+=");
  bool arrow = r->scan.end - r->scan.at >= 2 && r->scan.at[1] == '>';
  operand->buf =
      !arrow && scan_accept(&r->scan, "-") ? PLAN_NONE : scan_id(&r->scan, 'b', r->bufs, "buffers");
  if (operand->buf == PLAN_NONE) return;
  if (scan_accept(&r->scan, "+")) operand->offset = scan_number(&r->scan, size_most);
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

static void read_attribute(Reader *r, const InstrSpec *spec, const PlanInstr *instr, uint32_t *seen,
                           int guess) {
  Word word = scan_word(&r->scan);
  int k = find_attribute(spec, word, guess);
  if (k < 0) {
    if (word.length)
      unknown_attribute(r, spec, word);
    else
      scan_expect(&r->scan,
                  guess < spec->int_count ? spec->ints[guess] : spec->reals[guess - spec->int_count]);
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
  for (int i = 0; i < count && !r->scan.failed; i++) read_attribute(r, spec, instr, &seen, i);
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
    instr->span.path = read_text(r);
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
    instr->name = read_text(r);
    break;
  default:
    read_position(r, instr);
  }
}

static void read_instr(Reader *r, const char *begin) {
  Plan *plan = r->plan;
  PlanInstr instr = {.operands = plan->operands.count,
                     .ints = plan->ints.count,
                     .reals = plan->reals.count,
                     .waits = plan->waits.count,
                     .record = PLAN_NONE};
  uint32_t seen = 0;
  r->scan.at = begin; /* before the id */
  read_own_id(r, 'i', r->instrs, plan->instrs.count);
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

/* --- lines ------------------------------------------------------------------------------------------- */

static int find_header(Word word) {
  for (int i = 0; i < HEADER_LINES; i++)
    if (word_is(word, header_lines[i].keyword)) return i;
  return -1;
}

static void read_header(Reader *r, Word word, int header) {
  if (r->headers >> header & 1)
    scan_error(&r->scan, word.at, word.at + word.length, "line \"%s\" stands twice",
               header_lines[header].keyword);
  r->headers |= 1u << header;
  read_fields(r, &header_lines[header], r->plan);
  if (header == LINE_EVENTS && r->plan->event_count > r->instrs)
    scan_error(&r->scan, word.at, r->scan.at, "%u events, but only %u instructions to record them",
               r->plan->event_count, r->instrs);
}

/* Ids of events, and positions without a path, need what the header says. */
static void require_headers(Reader *r, Word word) {
  for (int i = 0; i < HEADER_LINES && !r->checked_headers; i++)
    if (!(r->headers >> i & 1) && header_applies(r->plan, i))
      scan_error(&r->scan, word.at, word.at + word.length, "line \"%s\" is missing before this one",
                 header_lines[i].keyword);
  r->checked_headers = true;
}

static bool is_instr(Word word) {
  return word.length >= 2 && word.at[0] == 'i' && isdigit((unsigned char)word.at[1]);
}

static void unknown_line(Reader *r, Word word) {
  const char *names[HEADER_LINES + 6] = {"input", "unit", "param", "buf", "segment", "end"};
  for (int i = 0; i < HEADER_LINES; i++) names[6 + i] = header_lines[i].keyword;
  scan_unknown(&r->scan, word, "a kind of line", names, HEADER_LINES + 6);
}

static void read_end(Reader *r) {
  r->ended = true;
}

static const struct {
  const char *keyword;
  void (*read)(Reader *);
} tables[] = {{"buf", read_buf},     {"param", read_param},     {"unit", read_unit},
              {"input", read_input}, {"segment", read_segment}, {"end", read_end}};

static void read_table_line(Reader *r, Word word) {
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
    if (!word_is(word, tables[i].keyword)) continue;
    require_headers(r, word);
    tables[i].read(r);
    return;
  }
  if (!word.length) word.length = r->scan.at < r->scan.end; /* a character that begins no word */
  unknown_line(r, word);
}

static void read_line(Reader *r) {
  scan_blanks(&r->scan);
  const char *begin = r->scan.at;
  Word word = scan_word(&r->scan);
  int header = find_header(word);
  if (r->ended) {
    scan_error(&r->scan, begin, r->scan.end, "the plan has ended before this line");
  } else if (header >= 0) {
    read_header(r, word, header);
  } else if (is_instr(word)) {
    require_headers(r, word);
    read_instr(r, begin);
  } else {
    read_table_line(r, word);
  }
  scan_finish(&r->scan);
}

/* Where the line that begins at `at` ends: its newline, or the end of the file. */
static const char *line_end(const char *at, const char *end) {
  const char *newline = memchr(at, '\n', (size_t)(end - at));
  return newline ? newline : end;
}

/* Leaves out the comment, which a '#' outside of quotes begins, and blanks before it. */
static const char *content_end(const char *at, const char *end) {
  if (memchr(at, '#', (size_t)(end - at))) {
    bool quoted = false;
    for (const char *c = at; c < end; c++) {
      if (*c == '"') quoted = !quoted;
      if (quoted && *c == '\\') c++;
      if (*c == '#' && !quoted) end = c;
    }
  }
  while (end > at && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) end--;
  return end;
}

static void count_line(Reader *r, const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  Word word = {at, 0};
  while (at + word.length < end && word.length < 8 && isalnum((unsigned char)at[word.length])) word.length++;
  if (is_instr(word))
    r->instrs++;
  else if (word_is(word, "buf"))
    r->bufs++;
  else if (word_is(word, "param"))
    r->params++;
  else if (word_is(word, "unit"))
    r->units++;
  else if (word_is(word, "input"))
    r->inputs++;
}

/* "fsdpc-plan 1" */
static bool read_first_line(Reader *r) {
  Word word = scan_word(&r->scan);
  if (!word_is(word, magic)) {
    scan_error(&r->scan, word.at, word.at + word.length, "this is no plan: a plan begins with \"%s %d\"",
               magic, PLAN_VERSION);
    return false;
  }
  scan_blanks(&r->scan);
  const char *begin = r->scan.at;
  uint64_t version = scan_number(&r->scan, UINT32_MAX);
  if (version != PLAN_VERSION)
    scan_error(&r->scan, begin, r->scan.at, "plans of version %llu are not understood, only %d",
               (unsigned long long)version, PLAN_VERSION);
  scan_finish(&r->scan);
  return !r->scan.failed;
}

static void set_line(Reader *r, const char *at, const char *end) {
  r->scan.at = at;
  r->scan.end = content_end(at, end);
  r->scan.failed = false;
}

/* Behind a byte order mark, which editors may put there. */
static const char *after_mark(const char *text) {
  return strncmp(text, "\xef\xbb\xbf", 3) ? text : text + 3;
}

static void read_lines(Reader *r, const SourceFile *file) {
  const char *begin_text = after_mark(file->text), *end = file->text + file->length, *at = line_end(begin_text, end);
  for (const char *c = begin_text; c < end; c = line_end(c, end) + 1) count_line(r, c, line_end(c, end));
  set_line(r, begin_text, at);
  if (!read_first_line(r)) return;
  while (at < end && r->scan.sink->errors < ERRORS_MOST) {
    const char *begin = at + 1;
    at = line_end(begin, end);
    set_line(r, begin, at);
    if (r->scan.at < r->scan.end) read_line(r);
  }
  if (r->scan.sink->errors) return;
  set_line(r, end, end);
  if (!r->ended) scan_error(&r->scan, end, end, "the plan ends without a line \"end\": it is not complete");
}

static Plan *read_source(Arena *arena, const SourceSet *sources, DiagSink *sink, int32_t file) {
  Arena *scratch = arena_new();
  const SourceFile *source = &sources->files.data[file];
  Reader r = {.scan = {.arena = scratch, .sink = sink, .file = file, .text = source->text},
              .arena = arena,
              .plan = plan_new(arena),
              .specs = instr_specs(scratch)};
  for (int i = 0; i < INSTR_COUNT; i++) r.op_names[i] = r.specs[i].name;
  uint32_t before = sink->errors;
  read_lines(&r, source);
  arena_free(scratch);
  return sink->errors == before ? r.plan : NULL;
}

Plan *plan_read(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path) {
  const char *why;
  int32_t file = source_read_most(sources, path, file_most, &why);
  if (file >= 0) return read_source(arena, sources, sink, file);
  diag_error(sink, SPAN_NONE, "cannot read plan \"%s\": %s", path, why);
  return NULL;
}

bool plan_is_plan_file(const char *path) {
  char text[sizeof magic + 4] = "";
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would wait for its writer */
  FILE *in = fd < 0 ? NULL : fdopen(fd, "rb");
  if (!in) return false;
  text[fread(text, 1, sizeof text - 1, in)] = 0;
  const char *start = after_mark(text);
  bool is = !strncmp(start, magic, sizeof magic - 1) && start[sizeof magic - 1] == ' ';
  fclose(in);
  return is;
}
