/* Owns: coverage by rows and columns. A view whose columns wrap around the end of a grid row is remembered by
 * nobody: a later read of it then counts as unwritten, which is the safe side. */
#include "planner/plan/coverage.h"

enum { VIEW_LIMIT = 16 }; /* kinds of view remembered per buffer, so that junk cannot make this slow */

Region region_make(uint64_t begin, uint64_t rows, uint64_t cols, uint64_t ld) {
  if (ld == 0 || ld == cols || rows == 1) return (Region){begin, 1, rows * cols, rows * cols};
  return (Region){begin, rows, cols, ld};
}

static uint64_t column(const Region *r) {
  return r->begin % r->ld;
}
static bool wraps(const Region *r) {
  return column(r) + r->cols > r->ld;
}

bool region_overlap(const Region *a, const Region *b) {
  if (a->begin >= region_end(b) || b->begin >= region_end(a)) return false;
  if (a->rows == 1 || b->rows == 1 || a->ld != b->ld || wraps(a) || wraps(b)) return true;
  return column(a) < column(b) + b->cols && column(b) < column(a) + a->cols;
}

static ColumnSet *find_view(const CoveragePool *pool, const Coverage *coverage, const Region *r, int *count) {
  uint64_t first = r->begin / r->ld;
  *count = 0;
  for (uint32_t at = coverage->views; at; at = pool->sets.data[at - 1].next, ++*count) {
    ColumnSet *set = &pool->sets.data[at - 1];
    if (set->ld == r->ld && set->first <= first && first + r->rows <= set->first + set->rows) return set;
  }
  return NULL;
}

static void add_view(CoveragePool *pool, Coverage *coverage, const Region *r) {
  int count;
  ColumnSet *set = find_view(pool, coverage, r, &count);
  if (set && set->rows != r->rows) return; /* fewer rows than the set knows: forgotten, on the safe side */
  if (!set) {
    if (count >= VIEW_LIMIT) return;
    set = vec_add(pool->intervals.arena, &pool->sets);
    *set = (ColumnSet){r->ld, r->begin / r->ld, r->rows, 0, coverage->views};
    coverage->views = pool->sets.count;
  }
  intervals_add(&pool->intervals, &set->columns, column(r), column(r) + r->cols);
  if (intervals_cover(&pool->intervals, set->columns, 0, set->ld))
    intervals_add(&pool->intervals, &coverage->whole, set->first * set->ld,
                  (set->first + set->rows) * set->ld);
}

void coverage_add(CoveragePool *pool, Coverage *coverage, Region region) {
  if (region.rows == 1)
    intervals_add(&pool->intervals, &coverage->whole, region.begin, region.begin + region.cols);
  else if (!wraps(&region))
    add_view(pool, coverage, &region);
}

bool coverage_has(const CoveragePool *pool, const Coverage *coverage, Region region) {
  if (intervals_cover(&pool->intervals, coverage->whole, region.begin, region_end(&region))) return true;
  if (region.rows == 1 || wraps(&region)) return false;
  int count;
  const ColumnSet *set = find_view(pool, coverage, &region, &count);
  return set &&
         intervals_cover(&pool->intervals, set->columns, column(&region), column(&region) + region.cols);
}

bool coverage_touches(const CoveragePool *pool, const Coverage *coverage, Region region) {
  if (intervals_touch(&pool->intervals, coverage->whole, region.begin, region_end(&region))) return true;
  for (uint32_t at = coverage->views; at; at = pool->sets.data[at - 1].next) {
    const ColumnSet *set = &pool->sets.data[at - 1];
    uint64_t begin = set->first * set->ld, end = begin + set->rows * set->ld;
    if (region.begin >= end || begin >= region_end(&region)) continue;
    if (region.rows == 1 || region.ld != set->ld || wraps(&region)) return true;
    if (intervals_touch(&pool->intervals, set->columns, column(&region), column(&region) + region.cols))
      return true;
  }
  return false;
}

void coverage_drop(CoveragePool *pool, Coverage *coverage) {
  intervals_drop(&pool->intervals, &coverage->whole);
  for (uint32_t at = coverage->views; at; at = pool->sets.data[at - 1].next)
    intervals_drop(&pool->intervals, &pool->sets.data[at - 1].columns);
  coverage->views = 0;
}
