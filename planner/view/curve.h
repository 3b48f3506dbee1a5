/* Owns: memory over time. A buffer counts from the start of the first instruction that touches it to the end of the last:
 * what the step really holds at that moment, and never more than the arena. */
#ifndef FSDPC_PLANNER_VIEW_CURVE_H
#define FSDPC_PLANNER_VIEW_CURVE_H

#include "planner/plan/plan.h"
#include "planner/plan/sim.h"

typedef struct CurvePoint {
  uint64_t ns; /* on the clock of the spans */
  uint64_t by_class[BUF_CLASS_COUNT], total; /* from then until the next point */
} CurvePoint;
typedef VEC(CurvePoint) Curve;

/* One repetition of one segment that begins at begin_ns; the first point is there. spans: by instruction. */
Curve memory_curve(Arena *arena, const Plan *plan, const InstrSpec *specs, const PlanSegment *segment, const SimSpan *spans,
                   uint64_t begin_ns);

#endif
