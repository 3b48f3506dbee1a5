/* Owns: a step as Chrome trace JSON, which Perfetto and chrome://tracing read: a process a rank, a lane a stream, a counter
 * a class of memory, flows from a gather to its first use and from a gradient to its reduction, kineto's arguments
 * on collectives. Slices of one lane nest or follow each other.
 *
 * The writer takes spans (start and end by instruction) and does not care whether they were predicted or measured:
 *
 *   Trace *trace = trace_begin(arena, text, plan, 0);
 *   trace_process(trace, rank, "rank 3 (measured)");
 *   for each repetition of each segment: trace_segment(trace, segment, 1, spans, begin, end, shift);
 *   trace_end(trace);
 *
 * Several processes, and several steps of one process, may follow each other. */
#ifndef FSDPC_PLANNER_VIEW_TRACE_H
#define FSDPC_PLANNER_VIEW_TRACE_H

#include "base/text.h"
#include "planner/plan/plan.h"
#include "planner/plan/sim.h"

typedef struct Trace Trace;

enum { TRACE_INSTRS_MOST = 20000 }; /* of a predicted step that is written with every repetition */

/* Text goes to out as it is written. rank: for distributedInfo. */
Trace *trace_begin(Arena *arena, Text *out, const Plan *plan, uint32_t rank);
/* What follows belongs to process `pid`; names its lanes. rank: whose groups the collectives name. */
void trace_process(Trace *trace, uint32_t pid, uint32_t rank, const char *name);
/* One repetition of segment s that lasts from begin to end on the clock of the spans; its events are written `shift` ns
 * earlier. stands_for: repetitions that this one stands for, 1 where each is written. Instructions without
 * duration are left out. */
void trace_segment(Trace *trace, uint32_t s, uint64_t stands_for, const SimSpan *spans, uint64_t begin, uint64_t end,
                   uint64_t shift);
void trace_end(Trace *trace);

/* The predicted step as a whole: every repetition where that is at most TRACE_INSTRS_MOST instructions, else each segment once,
 * with what follows moved up. All ranks do the same, so one process stands for them. */
void view_trace(Text *out, const Plan *plan, const SimResult *sim);
/* The same into an open trace, as process `pid`. */
void trace_predicted(Trace *trace, uint32_t pid, const SimResult *sim);

#endif
