/* Owns: lines of keys and values of a plan's text: the header, and the rows of its tables. */
#include "planner/plan/reader.h"

/* --- values and fields ------------------------------------------------------------------------------- */

StrId reader_path(Reader *r) {
  const char *text = scan_quoted(&r->scan);
  return r->scan.failed ? 0 : plan_intern(r->arena, r->plan, text);
}

/* Names of a model hold no control characters, and those of a plan are printed as they stand. */
StrId reader_text(Reader *r) {
  scan_blanks(&r->scan);
  const char *begin = r->scan.at;
  StrId text = reader_path(r);
  for (const char *c = plan_str(r->plan, text); *c; c++)
    if ((*(const unsigned char *)c < 0x20 && *c != '\t') || *c == 0x7f)
      scan_error(&r->scan, begin, r->scan.at, "a name cannot hold the control character 0x%02x", (unsigned)*c);
  return text;
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
    store64(at, scan_number(&r->scan, READER_SIZE_MOST));
    break;
  case FIELD_HEX:
    store64(at, scan_hex(&r->scan, UINT64_MAX));
    break;
  case FIELD_BOOL:
    *(bool *)at = scan_name(&r->scan, flags, "\"yes\" or \"no\"") != 0;
    break;
  case FIELD_TEXT:
    store32(at, reader_text(r));
    break;
  case FIELD_PATH:
    store32(at, reader_path(r));
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

void reader_fields(Reader *r, const LineSpec *line, void *base) {
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

void reader_own_id(Reader *r, char letter, uint32_t lines, uint32_t own) {
  scan_blanks(&r->scan);
  const char *begin = r->scan.at;
  int32_t id = scan_id(&r->scan, letter, lines, "of them");
  if (r->scan.failed || r->misnumbered || (uint32_t)id == own) return;
  r->misnumbered = true; /* said once: all that follow are off by as much */
  scan_error(&r->scan, begin, r->scan.at, "expected %c%u, saw %c%d: lines of a kind are numbered in order",
             letter, own, letter, id);
}

void reader_input(Reader *r) {
  PlanInput *input = vec_add(r->arena, &r->plan->inputs);
  reader_own_id(r, 'n', r->inputs, r->plan->inputs.count - 1);
  reader_fields(r, &input_line, input);
}

void reader_unit(Reader *r) {
  PlanUnit *unit = vec_add(r->arena, &r->plan->units);
  reader_own_id(r, 'u', r->units, r->plan->units.count - 1);
  reader_fields(r, &unit_line, unit);
}

void reader_param(Reader *r) {
  PlanParam *param = vec_add(r->arena, &r->plan->params);
  reader_own_id(r, 'p', r->params, r->plan->params.count - 1);
  reader_fields(r, &param_line, param);
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
      param->dim[param->rank++] = (int64_t)scan_number(&r->scan, READER_SIZE_MOST);
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

void reader_buf(Reader *r) {
  PlanBuf *buf = vec_add(r->arena, &r->plan->bufs);
  reader_own_id(r, 'b', r->bufs, r->plan->bufs.count - 1);
  buf->name = reader_text(r);
  buf->class = (BufClass)scan_name(&r->scan, class_names, "a class of buffers");
  buf->dtype = (DType)scan_name(&r->scan, dtype_names, "a dtype");
  scan_blanks(&r->scan);
  const char *begin = r->scan.at;
  buf->numel = scan_number(&r->scan, READER_SIZE_MOST);
  buf->bytes = buf->numel * dtype_bytes(buf->dtype); /* at most 2^53 */
  if (buf->bytes > READER_SIZE_MOST)
    scan_error(&r->scan, begin, r->scan.at, "the buffer has more than 2^%d bytes", PLAN_MAX_BYTES_LOG2);
  scan_blanks(&r->scan);
  scan_expect(&r->scan, "@");
  buf->offset = scan_hex(&r->scan, READER_SIZE_MOST);
  scan_blanks(&r->scan);
  buf->host = scan_accept(&r->scan, "host");
  read_life(r, buf);
  scan_blanks(&r->scan);
  buf->unit = scan_accept(&r->scan, "unit") ? scan_id(&r->scan, 'u', r->units, "units") : PLAN_NONE;
}

void reader_segment(Reader *r) {
  PlanSegment *segment = vec_add(r->arena, &r->plan->segments);
  segment->first = segment->end = (int32_t)r->plan->instrs.count;
  segment->name = reader_text(r);
  scan_blanks(&r->scan);
  scan_expect(&r->scan, "x");
  segment->count = scan_number(&r->scan, READER_SIZE_MOST);
}
