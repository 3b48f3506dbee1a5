/* Owns: plan -> text. Numbers are formatted by hand where there are many: a plan of 300,000 instructions is
 * written in well under a second. Changes together with read_*.c, fields.c and docs/plan-format.md. */
#include "base/hash.h"
#include "planner/plan/fields.h"
#include "planner/plan/instr.h"
#include "planner/plan/plan_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void put(Text *out, const char *text) {
  text_add(out, text, strlen(text));
}

static void put_u64(Text *out, uint64_t value) {
  char digits[20];
  size_t at = sizeof digits;
  do digits[--at] = (char)('0' + value % 10);
  while (value /= 10);
  text_add(out, digits + at, sizeof digits - at);
}

static void put_i64(Text *out, int64_t value) {
  if (value < 0) put(out, "-");
  put_u64(out, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

/* The shortest of %.15g, %.16g and %.17g that reads back as the same double. */
static void put_real(Text *out, double value) {
  char digits[32];
  for (int precision = 15; precision <= 17; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (precision == 17 || strtod(digits, NULL) == value) break;
  }
  put(out, digits);
}

static void put_quoted(Text *out, const char *text) {
  put(out, "\"");
  for (const char *c = text; *c; c++) {
    if (*c == '"' || *c == '\\')
      text_add(out, (char[]){'\\', *c}, 2);
    else if ((unsigned char)*c < 0x20 || *c == 0x7f)
      text_printf(out, "\\x%02x", (unsigned char)*c);
    else
      text_add(out, c, 1);
  }
  put(out, "\"");
}

static void put_id(Text *out, const char *letter, int32_t id) {
  if (id == PLAN_NONE) {
    put(out, "-");
  } else {
    put(out, letter);
    put_i64(out, id);
  }
}

/* --- lines of fields --------------------------------------------------------------------------------- */

static void put_value(Text *out, const Plan *plan, const Field *field, const void *base) {
  const char *at = (const char *)base + field->offset;
  uint64_t wide = 0;
  uint32_t narrow = 0;
  double real;
  bool flag;
  switch (field->kind) {
  case FIELD_U64:
  case FIELD_SIZE:
    memcpy(&wide, at, sizeof wide);
    put_u64(out, wide);
    break;
  case FIELD_HEX:
    memcpy(&wide, at, sizeof wide);
    text_printf(out, "0x%016" PRIx64, wide);
    break;
  case FIELD_REAL:
    memcpy(&real, at, sizeof real);
    put_real(out, real);
    break;
  case FIELD_BOOL:
    memcpy(&flag, at, sizeof flag);
    put(out, flag ? "yes" : "no");
    break;
  case FIELD_U32:
    memcpy(&narrow, at, sizeof narrow);
    put_u64(out, narrow);
    break;
  case FIELD_TEXT:
  case FIELD_PATH:
    memcpy(&narrow, at, sizeof narrow);
    put_quoted(out, plan_str(plan, narrow));
    break;
  case FIELD_ENUM:
    memcpy(&narrow, at, sizeof narrow);
    put(out, field->names[narrow]);
    break;
  case FIELD_BUF:
    memcpy(&narrow, at, sizeof narrow);
    put_id(out, "b", (int32_t)narrow);
    break;
  case FIELD_PARAM:
    memcpy(&narrow, at, sizeof narrow);
    put_id(out, "p", (int32_t)narrow);
    break;
  case FIELD_UNIT:
    memcpy(&narrow, at, sizeof narrow);
    put_id(out, "u", (int32_t)narrow);
    break;
  }
}

static void put_fields(Text *out, const Plan *plan, const LineSpec *line, const void *base) {
  for (int i = 0, n = field_count(line); i < n; i++) {
    put(out, " ");
    put(out, line->fields[i].key);
    if (*line->fields[i].key) put(out, " ");
    put_value(out, plan, &line->fields[i], base);
  }
}

static void put_header(Text *out, const Plan *plan) {
  text_printf(out, "fsdpc-plan %d\n", PLAN_VERSION);
  for (int i = 0; i < HEADER_LINES; i++) {
    if (!header_applies(plan, i)) continue;
    put(out, header_lines[i].keyword);
    put_fields(out, plan, &header_lines[i], plan);
    put(out, "\n");
  }
}

static void put_inputs(Text *out, const Plan *plan) {
  for (uint32_t i = 0; i < plan->inputs.count; i++) {
    text_printf(out, "input n%u", i);
    put_fields(out, plan, &input_line, &plan->inputs.data[i]);
    put(out, "\n");
  }
}

static void put_units(Text *out, const Plan *plan) {
  for (uint32_t i = 0; i < plan->units.count; i++) {
    text_printf(out, "unit u%u", i);
    put_fields(out, plan, &unit_line, &plan->units.data[i]);
    put(out, "\n");
  }
}

static void put_params(Text *out, const Plan *plan) {
  for (uint32_t i = 0; i < plan->params.count; i++) {
    const PlanParam *param = &plan->params.data[i];
    text_printf(out, "param p%u", i);
    put_fields(out, plan, &param_line, param);
    put(out, " init ");
    put(out, init_names[param->init.kind]);
    put(out, " ");
    put_real(out, param->init.a);
    put(out, " shape [");
    for (int d = 0; d < param->rank; d++) {
      if (d) put(out, ",");
      put_i64(out, param->dim[d]);
    }
    put(out, "]\n");
  }
}

/* --- buffers and instructions ------------------------------------------------------------------------ */

static void put_buf(Text *out, const Plan *plan, uint32_t index) {
  const PlanBuf *buf = &plan->bufs.data[index];
  put(out, "buf ");
  put_id(out, "b", (int32_t)index);
  put(out, " ");
  put_quoted(out, plan_str(plan, buf->name));
  put(out, " ");
  put(out, buf_class_name(buf->class));
  put(out, " ");
  put(out, dtype_name(buf->dtype));
  put(out, " ");
  put_u64(out, buf->numel);
  text_printf(out, " @ 0x%" PRIx64, buf->offset);
  if (buf->host) put(out, " host");
  if (buf->persistent) {
    put(out, " persistent");
  } else {
    put(out, " live ");
    put_id(out, "i", buf->first);
    put(out, "..");
    put_id(out, "i", buf->last);
  }
  if (buf->unit != PLAN_NONE) {
    put(out, " unit ");
    put_id(out, "u", buf->unit);
  }
  put(out, "\n");
}

/* b7, b7+768, b7+768:2304, += before it when the instruction adds into it. */
static void put_operand(Text *out, const PlanOperand *operand) {
  if (operand->add) put(out, "+=");
  put_id(out, "b", operand->buf);
  if (operand->buf == PLAN_NONE) return;
  if (operand->offset) {
    put(out, "+");
    put_u64(out, operand->offset);
  }
  if (operand->ld) {
    put(out, ":");
    put_u64(out, operand->ld);
  }
}

static void put_attributes(Text *out, const Plan *plan, const InstrSpec *spec, const PlanInstr *instr) {
  if (spec->int_count + spec->real_count == 0) return;
  const char *before = " {";
  for (int i = 0; i < spec->int_count; i++, before = " ") {
    if (spec->like[i] != i && plan_int(plan, instr, i) == plan_int(plan, instr, spec->like[i])) continue;
    put(out, before);
    put(out, spec->ints[i]);
    put(out, "=");
    put_i64(out, plan_int(plan, instr, i));
  }
  for (int i = 0; i < spec->real_count; i++, before = " ") {
    put(out, before);
    put(out, spec->reals[i]);
    put(out, "=");
    put_real(out, plan_real(plan, instr, i));
  }
  put(out, "}");
}

static void put_events(Text *out, const Plan *plan, const PlanInstr *instr) {
  if (instr->wait_count) put(out, " wait");
  for (uint32_t i = 0; i < instr->wait_count; i++) {
    put(out, " ");
    put_id(out, "e", plan->waits.data[instr->waits + i]);
  }
  if (instr->record == PLAN_NONE) return;
  put(out, " record ");
  put_id(out, "e", instr->record);
}

static void put_number(Text *out, const char *key, uint64_t value) {
  if (!value) return;
  put(out, key);
  put_u64(out, value);
}

/* for "layer" at 9:9, with the path before the position when it is not the plan's own source. */
static void put_origin(Text *out, const Plan *plan, const PlanInstr *instr) {
  if (instr->name) {
    put(out, " for ");
    put_quoted(out, plan_str(plan, instr->name));
  }
  if (!instr->span.path) return;
  put(out, " at ");
  if (strcmp(plan_str(plan, instr->span.path), plan_str(plan, plan->source_path))) {
    put_quoted(out, plan_str(plan, instr->span.path));
    put(out, ":");
  }
  put_u64(out, instr->span.line);
  put(out, ":");
  put_u64(out, instr->span.column);
}

static void put_instr(Text *out, const Plan *plan, const InstrSpec *specs, uint32_t index) {
  const PlanInstr *instr = &plan->instrs.data[index];
  const InstrSpec *spec = &specs[instr->op];
  int arrow = instr_arrow(spec);
  put(out, "  ");
  put_id(out, "i", (int32_t)index);
  put(out, " ");
  put(out, stream_name(instr->stream));
  put(out, " ");
  put(out, phase_name(instr->phase));
  put(out, " ");
  put(out, spec->name);
  for (int k = 0; k < spec->operand_count; k++) {
    put(out, k == arrow ? " -> " : " ");
    put_operand(out, plan_operand(plan, instr, k));
  }
  put_attributes(out, plan, spec, instr);
  put_events(out, plan, instr);
  put_number(out, " ns ", instr->ns);
  put_number(out, " flops ", instr->flops);
  put_number(out, " bytes ", instr->bytes);
  put_origin(out, plan, instr);
  put(out, "\n");
}

static void put_segment(Text *out, const Plan *plan, const InstrSpec *specs, const PlanSegment *segment) {
  put(out, "segment ");
  put_quoted(out, plan_str(plan, segment->name));
  put(out, " x ");
  put_u64(out, segment->count);
  put(out, "\n");
  for (int32_t i = segment->first; i < segment->end; i++) put_instr(out, plan, specs, (uint32_t)i);
}

void plan_write(Text *out, const Plan *plan) {
  const InstrSpec *specs = instr_specs(out->arena);
  put_header(out, plan);
  put_inputs(out, plan);
  put_units(out, plan);
  put_params(out, plan);
  for (uint32_t i = 0; i < plan->bufs.count; i++) put_buf(out, plan, i);
  for (uint32_t i = 0; i < plan->segments.count; i++) put_segment(out, plan, specs, &plan->segments.data[i]);
  put(out, "end\n");
}

uint64_t plan_hash(const Plan *plan) {
  Arena *scratch = arena_new();
  Text text = {.arena = scratch};
  plan_write(&text, plan);
  uint64_t hash = hash_bytes(HASH_START, text.data, text.length);
  arena_free(scratch);
  return hash;
}
