/* Owns: the grid that executor_search.c tries: the values of each decision, and what a point of it sets. */
#ifndef FSDPC_PLANNER_EXECUTOR_GRID_H
#define FSDPC_PLANNER_EXECUTOR_GRID_H

#include "planner/executor/executor_search.h"

enum { AXIS_VALUES_MAX = 64 };

typedef struct AxisValue {
  const char *text;
  int64_t value; /* what it means is the axis's own */
} AxisValue;

typedef struct Axis {
  AxisValue values[AXIS_VALUES_MAX];
  uint32_t count; /* 1: pinned */
} Axis;

typedef struct Grid {
  Arena *arena;
  const Graph *graph;
  const PlanSettings *asked;
  ExecutorWorld world; /* ranks and nodes; the rest is the point's */
  uint64_t samples;    /* of a step, 0: one micro-batch a rank, whatever it is */
  const char **blocks; /* [block_count] names in order */
  uint32_t block_count;
  Axis axes[AXIS_COUNT];
  /* Rules by value, made once: settings of points share them. */
  struct { CheckpointRule *data; uint32_t count; } again[AXIS_VALUES_MAX];
  struct { UnitRule *data; uint32_t count; } units[AXIS_VALUES_MAX][2]; /* and with the last one kept gathered */
} Grid;

typedef struct GridPoint {
  uint32_t at[AXIS_COUNT]; /* index of each axis's value */
} GridPoint;

/* False with diagnostics. */
bool grid_open(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, Grid *out);
/* False when the point is no policy of its own: it repeats another, or its groups do not divide. */
bool grid_point(const Grid *grid, const GridPoint *point, PlanSettings *settings, ExecutorWorld *world);
/* Whether that axis makes no difference beside the point's other values, as reducing each micro-batch where there is one. */
bool grid_idle(const Grid *grid, const GridPoint *point, const ExecutorWorld *world, ExecutorAxis axis);

#endif
