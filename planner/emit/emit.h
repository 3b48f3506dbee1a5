/* Owns: turning decisions into a plan: instructions, buffers with lifetimes, costs. Addresses and events are place.h's. */
#ifndef FSDPC_PLANNER_EMIT_H
#define FSDPC_PLANNER_EMIT_H

#include "planner/schedule/schedule.h"

typedef struct EmitInput {
  const Program *program;
  const Decisions *decisions;
  const Cluster *cluster;
  const Skeleton *skeleton;
  const Skeleton *prefill; /* inference with caches: of the program that fills them, several rows at a time; else NULL */
  const PlanSpan *spans; /* by graph op; paths are in span_paths */
  const char *const *span_paths; /* by graph op */
} EmitInput;

/* emit.c. provides: instrs in order with ns, buffers with first and last, persistent buffers, max_live_bytes.
 * Neither addresses nor events yet. */
Plan *emit_plan(Arena *arena, const EmitInput *input);

#endif
