/* Owns: which elements of a buffer were written. Buffers are written whole, in contiguous pieces, or through
 * views of some columns of their rows; views that together make up whole rows count as a contiguous piece. */
#ifndef FSDPC_PLANNER_PLAN_COVERAGE_H
#define FSDPC_PLANNER_PLAN_COVERAGE_H

#include "planner/plan/intervals.h"

/* rows x cols elements from `begin`, rows `ld` apart. Contiguous regions are given as one row. */
typedef struct Region {
  uint64_t begin, rows, cols, ld;
} Region;

Region region_make(uint64_t begin, uint64_t rows, uint64_t cols, uint64_t ld);
static inline uint64_t region_end(const Region *r) {
  return r->begin + (r->rows - 1) * r->ld + r->cols;
}
/* True when the two share an element; exact for views with equal ld, else by their extents. */
bool region_overlap(const Region *a, const Region *b);

/* The columns written so far in rows [first, first + rows) of a grid of `ld` columns. */
typedef struct ColumnSet {
  uint64_t ld, first, rows;
  IntervalMap columns;
  uint32_t next; /* index + 1 in CoveragePool.sets */
} ColumnSet;

typedef struct CoveragePool {
  IntervalPool intervals;
  VEC(ColumnSet) sets;
} CoveragePool;

typedef struct Coverage {
  IntervalMap whole; /* contiguous elements */
  uint32_t views;    /* index + 1 in CoveragePool.sets */
} Coverage;

void coverage_add(CoveragePool *pool, Coverage *coverage, Region region);
bool coverage_has(const CoveragePool *pool, const Coverage *coverage, Region region);
/* True when some element of the region is covered. */
bool coverage_touches(const CoveragePool *pool, const Coverage *coverage, Region region);
void coverage_drop(CoveragePool *pool, Coverage *coverage);

#endif
