/* Owns: the report: a plan as one self-contained HTML file. */
#ifndef FSDPC_PLANNER_VIEW_HTML_H
#define FSDPC_PLANNER_VIEW_HTML_H

#include "planner/view/facts.h"

/* No network, no other file. Without JavaScript: a drawing and tables; with it, a schedule that can be zoomed. measured:
 * spans of a real step on a clock that begins at 0, segments as long as they were, or NULL. */
void view_html(Text *out, const Plan *plan, const SimResult *sim, const SimResult *measured, Beside beside);

/* --- for the files of the report ------------------------------------------------------------------------- */

typedef struct Report {
  Text *out;
  Facts *f, *measured; /* measured: or NULL */
} Report;

/* html_data.c: the object that report.js reads. */
void html_data(const Report *report);
/* html_tree.c: modules, their parameters and units as nested <details>. */
void html_tree(const Report *report);

#endif
