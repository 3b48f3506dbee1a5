/* Owns: the lines of a plan file that are lists of "key value", one table for the writer and the reader, so
 * that what one writes the other reads. */
#ifndef FSDPC_PLANNER_PLAN_FIELDS_H
#define FSDPC_PLANNER_PLAN_FIELDS_H

#include "planner/plan/plan.h"

typedef enum {
  FIELD_U32,
  FIELD_U64,
  FIELD_SIZE,  /* uint64_t or int64_t that counts elements or bytes: at most 2^PLAN_MAX_BYTES_LOG2 */
  FIELD_HEX,   /* uint64_t */
  FIELD_REAL,  /* double, finite */
  FIELD_BOOL,  /* yes, no */
  FIELD_TEXT,  /* StrId: a name, without control characters */
  FIELD_PATH,  /* StrId: any */
  FIELD_ENUM,  /* one of names[] */
  FIELD_BUF,   /* int32_t: b7, or - for PLAN_NONE */
  FIELD_PARAM, /* int32_t: p7 */
  FIELD_UNIT   /* int32_t: u7, or - */
} FieldKind;

typedef struct Field {
  const char *key; /* "" in first place: the value follows the keyword at once */
  FieldKind kind;
  size_t offset; /* in the struct that the line describes */
  const char *const *names;
} Field;

enum { LINE_MAX_FIELDS = 20 };

typedef struct LineSpec {
  const char *keyword;
  Field fields[LINE_MAX_FIELDS]; /* ends where key is NULL */
} LineSpec;

/* Lines that describe the Plan itself; each stands once, before the first of another kind. LINE_ADAFACTOR stands only
 * where that is the recipe's optimizer, LINE_MASTER where parameters are not kept in f32, LINE_DEVICE where the plan is for
 * GPUs, LINE_HOST where something is offloaded. */
enum {
  LINE_MODEL,
  LINE_SOURCE,
  LINE_WORLD,
  LINE_RECIPE,
  LINE_ADAFACTOR,
  LINE_MASTER,
  LINE_SUMMARY,
  LINE_DEVICE,
  LINE_MEMORY,
  LINE_HOST,
  LINE_QUEUES,
  LINE_OVERLAP,
  LINE_RESULTS,
  LINE_EVENTS,
  HEADER_LINES
};
extern const LineSpec header_lines[HEADER_LINES];
extern const LineSpec input_line, unit_line, param_line; /* of PlanInput, PlanUnit, PlanParam */

/* By InitKind, DType, StreamId, Phase and BufClass; NULL at the end, as all lists of names. */
extern const char *const init_names[], *const dtype_names[], *const stream_names[], *const phase_names[],
                                                                                        *const class_names[];

/* The line belongs into this plan. */
static inline bool header_applies(const Plan *plan, int line) {
  if (line == LINE_MASTER) return plan->recipe.master != DTYPE_F32;
  if (line == LINE_DEVICE) return plan->summary.device != PLAN_DEVICE_CPU;
  if (line == LINE_HOST) return plan->host_bytes != 0;
  return line != LINE_ADAFACTOR || plan->recipe.optimizer == OPTIMIZER_ADAFACTOR;
}
int field_count(const LineSpec *line);

#endif
