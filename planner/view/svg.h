/* Owns: nothing; what the files that draw the timeline share. */
#ifndef FSDPC_PLANNER_VIEW_SVG_H
#define FSDPC_PLANNER_VIEW_SVG_H

#include "base/text.h"
#include "planner/plan/plan.h"
#include "planner/plan/sim.h"

/* Pixels; the picture is PAGE_WIDTH wide and as high as it needs. */
enum { PAGE_WIDTH = 1120, PLOT_LEFT = 84, PLOT_RIGHT = 1100, MEMORY_HEIGHT = 220 };

#define INK        "#1f2933"
#define INK_SOFT   "#5f6b7a"
#define GRID       "#e4e8ee"
#define BUDGET_INK "#c0392b"

typedef struct Timeline {
  Arena *scratch;
  Text *out;
  const Plan *plan;
  const SimResult *sim;
  uint64_t begin_ns[8], shift_ns[8]; /* of segments: where they are drawn; simulated less drawn time */
  uint64_t total_ns;                 /* drawn */
  double y;                          /* where the next part begins */
  size_t digits;                     /* of the largest number of a block */
} Timeline;

static inline double timeline_x(const Timeline *t, uint64_t drawn_ns) {
  return PLOT_LEFT + (double)(PLOT_RIGHT - PLOT_LEFT) * ((double)drawn_ns / (double)t->total_ns);
}

void svg_rect(Text *out, double x, double y, double width, double height, const char *fill, const char *more);
void svg_line(Text *out, double x1, double y1, double x2, double y2, const char *stroke, const char *more);
/* anchor: start, middle, end. The text is escaped. */
void svg_text(Text *out, double x, double y, double size, const char *anchor, const char *fill,
              const char *more, const char *text);
/* Text inside an element, of HTML and of Graphviz' labels too. */
void svg_escaped(Text *out, const char *text);
/* Estimated: the font is not known. */
double svg_text_width(const char *text, double size);
/* The longest tail of a dotted name's whole parts that fits at size 11, or NULL. Of a run of parameters ("h.3.mlp.c_proj+20") what
 * remains tells where it begins: "h.3.." or "3..". */
const char *svg_fit(Arena *arena, const char *name, double width);

/* A coloured square and its name at *x, wrapped to the next line behind the right edge. */
void svg_legend(Text *out, double *x, double *y, const char *fill, const char *text);

/* The smallest of 1, 2, 5 x 10^k (binary: powers of two) that cuts `range` into at most `most` steps. */
double svg_step(double range, int most, bool binary);

/* Where segments meet, all queues join: a dotted line from top to bottom. */
void timeline_joins(Timeline *t, double top, double bottom);
/* memory.c: the curve below the lanes; advances t->y. */
void timeline_memory(Timeline *t);

#endif
