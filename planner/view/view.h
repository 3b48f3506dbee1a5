/* Owns: pictures of a plan, for people. Readers of a const plan: they decide nothing and check nothing (the
 * plan is verified). Output is text in out's arena, the same for the same plan. */
#ifndef FSDPC_PLANNER_VIEW_VIEW_H
#define FSDPC_PLANNER_VIEW_VIEW_H

#include "base/text.h"
#include "planner/plan/plan.h"
#include "planner/plan/sim.h"

/* An SVG: what each stream does when, and what memory holds meanwhile. Repeated segments are drawn once. */
void view_timeline_svg(Text *out, const Plan *plan, const SimResult *sim);

/* A Graphviz digraph of the layers, clustered by unit; runs of alike units are one cluster. */
void view_units_dot(Text *out, const Plan *plan, const SimResult *sim);

#endif
