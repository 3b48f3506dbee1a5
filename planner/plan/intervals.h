/* Owns: maps from disjoint half-open ranges of numbers to values. Many small maps share one pool: a map is
 * the index of its root (0: empty). Treaps with priorities from a fixed sequence, so that no input makes them
 * deep on purpose and equal inputs give equal shapes. Every operation is O(log n) plus what it returns or
 * removes. */
#ifndef FSDPC_PLANNER_PLAN_INTERVALS_H
#define FSDPC_PLANNER_PLAN_INTERVALS_H

#include "base/vec.h"
#include <stdbool.h>

typedef struct Interval {
  uint64_t begin, end;
  int32_t value;
} Interval;

typedef struct IntervalNode {
  Interval interval;
  uint32_t priority, left, right;
} IntervalNode;

typedef struct IntervalPool {
  Arena *arena; /* borrowed */
  VEC(IntervalNode) nodes;
  uint32_t free; /* list through `left` */
  uint32_t seed;
} IntervalPool;

typedef uint32_t IntervalMap;

/* Maps [begin, end) to value, whatever was there. Neighbours are not merged. begin < end. */
void intervals_set(IntervalPool *pool, IntervalMap *map, uint64_t begin, uint64_t end, int32_t value);
/* Adds [begin, end) to a map used as a set: neighbours and overlaps become one interval of value 0. */
void intervals_add(IntervalPool *pool, IntervalMap *map, uint64_t begin, uint64_t end);
/* The first interval that ends after `from`, or NULL. Valid until the next change of any map of the pool. */
const Interval *intervals_after(const IntervalPool *pool, IntervalMap map, uint64_t from);
/* True when [begin, end) lies in one interval; on sets kept by intervals_add that is: when all of it is
 * covered. */
bool intervals_cover(const IntervalPool *pool, IntervalMap map, uint64_t begin, uint64_t end);
bool intervals_touch(const IntervalPool *pool, IntervalMap map, uint64_t begin, uint64_t end);
void intervals_drop(IntervalPool *pool, IntervalMap *map);

#endif
