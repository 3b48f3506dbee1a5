/* Owns: turning decisions into a plan: instructions, buffers with lifetimes, costs; then addresses; then events. */
#ifndef FSDPC_PLANNER_EMIT_H
#define FSDPC_PLANNER_EMIT_H

#include "planner/schedule.h"

typedef struct EmitInput {
  const Program *program;
  const Decisions *decisions;
  const Cluster *cluster;
  const Skeleton *skeleton;
  const Skeleton *prefill; /* inference with caches: of the program that fills them, several rows at a time; else NULL */
  const PlanSpan *spans; /* by graph op; paths are in `paths` */
  const char *const *span_paths; /* by graph op */
} EmitInput;

/* emit.c. provides: instrs in order with ns, buffers with first and last, persistent buffers, max_live_bytes.
 * Neither addresses nor events yet. */
Plan *emit_plan(Arena *arena, const EmitInput *input);
/* memory.c. requires: lifetimes. provides: offsets, arena_bytes; stops trying once they are at most `goal`. effort: what may be
 * spent on hard cases beyond the quick ways; less what was. */
void memory_place(Plan *plan, uint64_t goal, uint64_t *effort);
/* events.c. requires: offsets. provides: waits, records. paced: gathers also wait for the compute that they are issued after. */
void events_insert(Arena *arena, Plan *plan, const InstrSpec *specs, bool paced);

#endif
