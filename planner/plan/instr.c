/* Owns: instr.def as data: the rows, and the little parser of their operand strings. A malformed row is our
 * bug. */
#include "planner/plan/instr.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Row {
  const char *name;
  StreamId stream;
  const char *operands, *ints, *reals, *meaning;
} Row;

static const Row rows[INSTR_COUNT] = {
#define INSTR(id, name, stream, operands, ints, reals, meaning)                                              \
  {#name, STREAM_##stream, operands, ints, reals, meaning},
#include "planner/plan/instr.def"
#undef INSTR
};

/* Copies a name of letters, digits and '_' from *at into out[size], or says why not. */
static const char *parse_name(const char **at, char *out, size_t size) {
  size_t length = 0;
  while (isalnum((unsigned char)(*at)[length]) || (*at)[length] == '_') length++;
  if (!length) return "a name is missing";
  if (length >= size) return "a name is too long";
  memcpy(out, *at, length);
  out[length] = 0;
  *at += length;
  return NULL;
}

static int find_int(const InstrSpec *spec, const char *name) {
  for (int i = 0; i < spec->int_count; i++)
    if (!strcmp(spec->ints[i], name)) return i;
  return -1;
}

/* After the name of an int: nothing, or = and an int before it. */
static const char *parse_like(InstrSpec *spec, const char **at) {
  char name[16];
  spec->like[spec->int_count] = spec->int_count;
  if (**at != '=') return NULL;
  ++*at;
  const char *why = parse_name(at, name, sizeof name);
  if (why) return why;
  spec->like[spec->int_count] = find_int(spec, name);
  return spec->like[spec->int_count] < 0 ? "no int of that name comes before" : NULL;
}

/* ints: the row whose ints these are; NULL: they are reals. */
static const char *parse_attributes(const char *text, char (*names)[16], int limit, int *count, InstrSpec *ints) {
  for (*count = 0;; (*count)++) {
    text += strspn(text, " ");
    if (!*text) return NULL;
    if (*count == limit) return "there are too many attributes";
    const char *why = parse_name(&text, names[*count], sizeof names[0]);
    if (!why && ints) why = parse_like(ints, &text);
    if (why) return why;
    if (*text && *text != ' ') return "attributes are separated by blanks";
  }
}

static const char *parse_factor(const InstrSpec *spec, const char **at, DimFactor *out) {
  char name[16];
  const char *why = parse_name(at, name, sizeof name);
  if (why) return why;
  if (isdigit((unsigned char)name[0])) {
    char *end;
    *out = (DimFactor){FACTOR_LITERAL, strtoll(name, &end, 10)};
    return *end || out->value <= 0 ? "a literal factor is not a positive number" : NULL;
  }
  int index = find_int(spec, name);
  if (index < 0 && strcmp(name, "F")) return "a factor is neither an int of this row, nor F, nor a number";
  *out = index < 0 ? (DimFactor){FACTOR_F, 0} : (DimFactor){FACTOR_INT, index};
  return NULL;
}

static const char *parse_product(const InstrSpec *spec, const char **at, DimFactor *out, int *count) {
  for (*count = 0;;) {
    if (*count == DIM_MAX_FACTORS) return "a product has too many factors";
    const char *why = parse_factor(spec, at, &out[*count]);
    if (why) return why;
    ++*count;
    if (**at != '*') return NULL;
    ++*at;
  }
}

/* [ROWS,COLS] or [COLS] */
static const char *parse_dims(const InstrSpec *spec, const char **at, OperandSpec *out) {
  if (*(*at)++ != '[') return "'[' is missing";
  const char *why = parse_product(spec, at, out->cols, &out->cols_count);
  if (why) return why;
  if (**at == ',') {
    memcpy(out->rows, out->cols, sizeof out->rows);
    out->rows_count = out->cols_count;
    ++*at;
    why = parse_product(spec, at, out->cols, &out->cols_count);
    if (why) return why;
  }
  return *(*at)++ == ']' ? NULL : "']' is missing";
}

static const char *parse_type(const char **at, OperandSpec *out) {
  out->dtype = OPERAND_FLOAT;
  if (**at != '/') return NULL;
  ++*at;
  char name[8];
  const char *why = parse_name(at, name, sizeof name);
  if (why) return why;
  if (!strcmp(name, "f")) return NULL;
  out->dtype = strcmp(name, "any") ? dtype_find(name) : OPERAND_ANY;
  return out->dtype == -1 ? "there is no such type" : NULL;
}

/* MODE:NAME[ROWS,COLS]/TYPE? */
static const char *parse_operand(const InstrSpec *spec, const char **at, OperandSpec *out) {
  static const char modes[] = "rwua"; /* in the order of OperandMode */
  const char *mode = **at ? strchr(modes, **at) : NULL;
  if (!mode || (*at)[1] != ':') return "an operand does not start with r:, w:, u: or a:";
  out->mode = (OperandMode)(mode - modes);
  *at += 2;
  const char *why = parse_name(at, out->name, sizeof out->name);
  if (!why) why = parse_dims(spec, at, out);
  if (!why) why = parse_type(at, out);
  if (why) return why;
  out->optional = **at == '?';
  *at += out->optional;
  return **at && **at != ' ' ? "operands are separated by blanks" : NULL;
}

const char *instr_parse_row(InstrSpec *spec, const char *operands, const char *ints, const char *reals) {
  const char *why = parse_attributes(ints, spec->ints, INSTR_MAX_INTS, &spec->int_count, spec);
  if (!why) why = parse_attributes(reals, spec->reals, INSTR_MAX_REALS, &spec->real_count, NULL);
  for (spec->operand_count = 0; !why; spec->operand_count++) {
    operands += strspn(operands, " ");
    if (!*operands) return NULL;
    if (spec->operand_count == INSTR_MAX_OPERANDS) return "there are too many operands";
    why = parse_operand(spec, &operands, &spec->operands[spec->operand_count]);
  }
  return why;
}

const InstrSpec *instr_specs(Arena *arena) {
  InstrSpec *specs = ARENA_ARRAY(arena, InstrSpec, INSTR_COUNT);
  for (int i = 0; i < INSTR_COUNT; i++) {
    specs[i].name = rows[i].name;
    specs[i].stream = rows[i].stream;
    specs[i].meaning = rows[i].meaning;
    const char *why = instr_parse_row(&specs[i], rows[i].operands, rows[i].ints, rows[i].reals);
    if (!why) continue;
    fprintf(stderr, "fsdpc: internal error: instr.def, row %s: %s\n", rows[i].name, why);
    abort();
  }
  return specs;
}

int instr_arrow(const InstrSpec *spec) {
  int k = spec->operand_count;
  while (k > 0 && spec->operands[k - 1].mode != MODE_READ) k--;
  return k;
}
