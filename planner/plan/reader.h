/* Owns: reading a plan under way, and what the files that do it share. plan_read.c has the lines, read_tables.c those of keys and
 * values, read_instr.c the instructions. They change together with plan_write.c, fields.c and docs/plan-format.md. */
#ifndef FSDPC_PLANNER_PLAN_READER_H
#define FSDPC_PLANNER_PLAN_READER_H

#include "planner/plan/fields.h"
#include "planner/plan/scan.h"

#define READER_SIZE_MOST (UINT64_C(1) << PLAN_MAX_BYTES_LOG2)

typedef struct Reader {
  Scan scan;
  Arena *arena; /* of the plan */
  Plan *plan;
  const InstrSpec *specs;
  const char *op_names[INSTR_COUNT + 1];
  uint32_t inputs, units, params, bufs, instrs; /* lines in the file */
  uint32_t headers;                             /* bit per line of header_lines */
  bool checked_headers, misnumbered, ended;
  bool whole; /* a line "end" is in the file */
} Reader;

/* --- read_tables.c: each reads the rest of its line, after the keyword; tables get a row ------------------------- */

StrId reader_text(Reader *r);
StrId reader_path(Reader *r); /* which may hold anything */
/* Ids are written for the reader's eye; they count lines. */
void reader_own_id(Reader *r, char letter, uint32_t lines, uint32_t own);
/* Each key once, in any order. What follows the last is left to the caller. */
void reader_fields(Reader *r, const LineSpec *line, void *base);
void reader_input(Reader *r);
void reader_unit(Reader *r);
void reader_param(Reader *r);
void reader_buf(Reader *r);
void reader_segment(Reader *r);

/* --- read_instr.c ------------------------------------------------------------------------------------------------- */

/* begin: where the line's id stands. */
void reader_instr(Reader *r, const char *begin);

#endif
