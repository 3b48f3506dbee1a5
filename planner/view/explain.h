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

/* What `--why` is about: a unit, a parameter (then its unit), or a layer's result. */
typedef struct Subject {
  int32_t unit, param; /* PLAN_NONE where it is not one */
  const char *tensor;  /* name of a layer whose result is meant, or NULL */
  bool saved, away, recomputed; /* kept on the device until backward, or in host memory; run again there */
  uint64_t bytes;      /* of that result's buffers */
} Subject;

/* False when the plan knows no such name; *meant is the nearest one that it knows, or NULL. */
bool view_subject(Facts *facts, const char *name, Subject *out, const char **meant);
/* What the plan decided about it, when it moves, what it holds and costs. */
void view_why(Text *out, Facts *facts, const Subject *subject, const ExplainStyle *style);

#endif
