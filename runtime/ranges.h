/* Owns: which elements of which parameters lie in a rank's shard. Position p of a shard group owns elements
 * [p shard, (p + 1) shard) of every unit's flat tensor; the gaps between parameters are padding, which nobody
 * updates. */
#ifndef FSDPC_RUNTIME_RANGES_H
#define FSDPC_RUNTIME_RANGES_H

#include "planner/plan/plan.h"

typedef struct ParamRange {
  int32_t param;
  uint64_t first; /* element of the parameter; a multiple of PLAN_ALIGN_ELEMENTS */
  uint64_t local; /* element of the shard */
  uint64_t count;
} ParamRange;

typedef struct UnitRanges {
  ParamRange *data;
  uint32_t count;
} UnitRanges;

/* One entry a unit. */
UnitRanges *unit_ranges(Arena *arena, const Plan *plan, uint32_t position);
uint64_t param_numel(const PlanParam *param);
/* FNV-1a of its name: what random values of a parameter are drawn by. */
uint64_t param_name_hash(const Plan *plan, const PlanParam *param);

#endif
