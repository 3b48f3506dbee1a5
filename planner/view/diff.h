/* Owns: what differs between two plans, unit by unit. */
#ifndef FSDPC_PLANNER_VIEW_DIFF_H
#define FSDPC_PLANNER_VIEW_DIFF_H

#include "planner/view/explain.h"

typedef struct DiffRow {
  char mark;             /* '+' only after, '-' only before, '~' changed, '=' the same */
  int32_t before, after; /* units, PLAN_NONE where there is none */
} DiffRow;

typedef struct PlanDiff {
  VEC(DiffRow) rows; /* in the order of first use after; removed units at their place before */
  uint32_t added, removed, changed, same;
  bool settings_changed; /* something of the plan's head */
} PlanDiff;

/* Units are the same when they have one name. Times count as changed beyond one part in a hundred. */
PlanDiff diff_plans(Arena *arena, const Facts *before, const Facts *after);
/* Nothing differs that a run would notice. */
static inline bool diff_is_empty(const PlanDiff *diff) {
  return !diff->settings_changed && !diff->added && !diff->removed && !diff->changed;
}
void view_diff(Text *out, const Facts *before, const Facts *after, const PlanDiff *diff, const ExplainStyle *style);

/* Time of a step that belongs to a unit: compute, recompute, update and its collectives, overlapped or not. */
uint64_t unit_ns(const UnitFact *unit);

#endif
