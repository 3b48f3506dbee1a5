/* Owns: nothing; the inside of instr.c that the text form and its unit test need. */
#ifndef FSDPC_PLANNER_PLAN_INSTR_H
#define FSDPC_PLANNER_PLAN_INSTR_H

#include "planner/plan/plan.h"

/* Fills the operands and attributes of `spec` from the strings of one row of instr.def. NULL, or what is
 * wrong. */
const char *instr_parse_row(InstrSpec *spec, const char *operands, const char *ints, const char *reals);
/* In text an arrow stands before the operands at the end that are written; this is the first of them. */
int instr_arrow(const InstrSpec *spec);

#endif
