/* Owns: the text form of a plan. plan -> text -> plan is the identity, and so is text -> plan -> text for text that
 * plan_write made. Line based, '#' starts a comment; described in docs/plan-format.md. */
#ifndef FSDPC_PLANNER_PLAN_PLAN_TEXT_H
#define FSDPC_PLANNER_PLAN_PLAN_TEXT_H

#include "base/diag.h"
#include "base/text.h"
#include "planner/plan/plan.h"

void plan_write(Text *out, const Plan *plan);
/* Reads untrusted text. Syntax, ids in range, sizes below 2^PLAN_MAX_BYTES_LOG2; NULL and diagnostics otherwise.
 * Whether the plan is *right* is the verifier's business. */
Plan *plan_read(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path);
/* FNV-1a of the text, what ranks agree on at start. */
uint64_t plan_hash(const Plan *plan);
/* True when the file's first line says that it is a plan. */
bool plan_is_plan_file(const char *path);

#endif
