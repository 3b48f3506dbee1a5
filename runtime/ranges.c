/* Owns: intersecting parameters with shards. */
#include "runtime/ranges.h"

#include "base/hash.h"

#include <string.h>

uint64_t param_numel(const PlanParam *param) {
  uint64_t numel = 1;
  for (int32_t i = 0; i < param->rank; i++) numel *= (uint64_t)param->dim[i];
  return numel;
}

uint64_t param_name_hash(const Plan *plan, const PlanParam *param) {
  const char *name = plan_str(plan, param->name);
  return hash_bytes(HASH_START, name, strlen(name));
}

static UnitRanges ranges_of(Arena *arena, const Plan *plan, const PlanUnit *unit, uint32_t position) {
  UnitRanges ranges = {.data = ARENA_ARRAY(arena, ParamRange, (size_t)unit->param_count)};
  uint64_t begin = position * unit->shard, end = begin + unit->shard;
  for (int32_t i = unit->first_param; i < unit->first_param + unit->param_count; i++) {
    const PlanParam *param = &plan->params.data[i];
    uint64_t low = param->offset, high = low + param_numel(param);
    if (low < begin) low = begin;
    if (high > end) high = end;
    if (low < high)
      ranges.data[ranges.count++] = (ParamRange){i, low - param->offset, low - begin, high - low};
  }
  return ranges;
}

UnitRanges *unit_ranges(Arena *arena, const Plan *plan, uint32_t position) {
  UnitRanges *ranges = ARENA_ARRAY(arena, UnitRanges, plan->units.count);
  for (uint32_t u = 0; u < plan->units.count; u++)
    ranges[u] = ranges_of(arena, plan, &plan->units.data[u], position);
  return ranges;
}
