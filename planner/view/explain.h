/* Owns: a plan in words and tables, for a terminal. */
#ifndef FSDPC_PLANNER_VIEW_EXPLAIN_H
#define FSDPC_PLANNER_VIEW_EXPLAIN_H

#include "planner/view/facts.h"

typedef struct ExplainStyle {
  bool costs; /* false: no times, so that the text changes only when the plan does */
  bool color;
  int width; /* columns of the terminal */
} ExplainStyle;

/* The tree of segments, passes and units; the peak; where the time goes. */
void view_explain(Text *out, const Facts *facts, const ExplainStyle *style);

/* measured.c: what a run took beside what was predicted, facts of one plan. */
void view_measured(Text *out, const Facts *predicted, const Facts *measured, const ExplainStyle *style);

/* What `--why` is about: a unit, a parameter (then its unit), a layer's result, or a module: parameters and results. */
typedef struct Subject {
  int32_t unit, param; /* PLAN_NONE where it is not one */
  const char *tensor;  /* name of a layer whose result is meant, or NULL */
  const char *module;  /* name of a module, or NULL */
  int32_t first_param, end_param; /* of a module: all of its own lie between, maybe with others */
  int32_t own_params;             /* how many those are */
  bool backward_only;           /* a loss: its instruction computes it with its gradient */
  bool saved, away, recomputed; /* of results, of a module's any: kept on the device until backward, or in host memory; run again there */
  uint64_t bytes;      /* of those results' buffers */
} Subject;

/* False when the plan knows no such name; *meant is the nearest one that it knows, or NULL. */
bool view_subject(Facts *facts, const char *name, Subject *out, const char **meant);
/* What the plan decided about it, when it moves, what it holds and costs. */
void view_why(Text *out, Facts *facts, const Subject *subject, const ExplainStyle *style);

#endif
