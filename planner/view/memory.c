/* Owns: the drawing of the memory curve. */
#include "planner/view/curve.h"
#include "planner/view/svg.h"

#include <math.h>

enum { COLUMNS = PLOT_RIGHT - PLOT_LEFT };

static const char *const fills[BUF_CLASS_COUNT] = {
    [BUF_PARAM] = "#31598c",      [BUF_GRAD] = "#5d83b5",     [BUF_OPTIM] = "#94b1d6",
    [BUF_SCALAR] = "#c5d3e6",     [BUF_GATHERED] = "#4fa37c", [BUF_GRADFULL] = "#e0815f",
    [BUF_ACTIVATION] = "#f0c26b", [BUF_INPUT] = "#b79ac8",    [BUF_WORKSPACE] = "#b8c0ca",
    [BUF_CACHE] = "#8a7fc4"};

typedef struct Column {
  uint64_t by_class[BUF_CLASS_COUNT], total; /* at its fullest moment */
} Column;

typedef struct Picture {
  Column columns[COLUMNS];
  uint64_t peak, peak_ns;
  double base_bytes, top_bytes, y, height; /* of the plot */
} Picture;

/* --- the curve --------------------------------------------------------------------------------------- */

static int column_of(const Timeline *t, uint64_t ns) {
  int column = (int)((double)ns / (double)t->total_ns * COLUMNS);
  return column < COLUMNS ? column : COLUMNS - 1;
}

/* The state `now` holds over columns [from, to]. */
static void fill(Picture *picture, const Column *now, int from, int to) {
  for (int c = from; c <= to; c++)
    if (now->total >= picture->columns[c].total) picture->columns[c] = *now;
}

static void add_segment(const Timeline *t, Picture *picture, uint32_t s) {
  const PlanSegment *segment = &t->plan->segments.data[s];
  Curve curve = memory_curve(t->scratch, t->plan, instr_specs(t->scratch), segment, t->sim->spans, t->begin_ns[s] + t->shift_ns[s]);
  for (uint32_t p = 0; p < curve.count; p++) {
    const CurvePoint *point = &curve.data[p];
    uint64_t begin = point->ns - t->shift_ns[s],
             end = p + 1 < curve.count ? curve.data[p + 1].ns - t->shift_ns[s] : t->begin_ns[s] + t->sim->segment_ns[s];
    Column now = {.total = point->total};
    memcpy(now.by_class, point->by_class, sizeof now.by_class);
    fill(picture, &now, column_of(t, begin), column_of(t, end));
    if (now.total <= picture->peak) continue;
    picture->peak = now.total;
    picture->peak_ns = begin;
  }
}

static void find_curve(const Timeline *t, Picture *picture) {
  for (uint32_t s = 0; s < t->plan->segments.count; s++) add_segment(t, picture, s);
}

static double y_of(const Picture *picture, double bytes) {
  double share = (bytes - picture->base_bytes) / (picture->top_bytes - picture->base_bytes);
  return picture->y + picture->height * (1 - (share > 0 ? share : 0));
}

static uint64_t stack(const Column *column, int class) {
  uint64_t sum = 0;
  for (int c = 0; c <= class; c++) sum += column->by_class[c];
  return sum;
}

static bool is_drawn(const Picture *picture, int class) {
  bool any = false;
  for (int c = 0; c < COLUMNS; c++) any |= picture->columns[c].by_class[class] > 0;
  return any;
}

/* One class: its upper edge left to right, the edge of the class below back. Only columns where something
 * changes. */
static void draw_class(Timeline *t, const Picture *picture, int class) {
  if (!is_drawn(picture, class)) return;
  text_printf(t->out, "<path fill=\"%s\" d=\"M%d %.1f", fills[class], PLOT_LEFT,
              y_of(picture, (double)stack(&picture->columns[0], class)));
  for (int c = 1; c < COLUMNS; c++) {
    double y = y_of(picture, (double)stack(&picture->columns[c], class)),
           before = y_of(picture, (double)stack(&picture->columns[c - 1], class));
    if (fabs(y - before) > 0.04) text_printf(t->out, "H%dV%.1f", PLOT_LEFT + c, y);
  }
  text_printf(t->out, "H%dV%.1f", PLOT_RIGHT,
              y_of(picture, (double)stack(&picture->columns[COLUMNS - 1], class - 1)));
  for (int c = COLUMNS - 1; c > 0; c--) {
    double y = y_of(picture, (double)stack(&picture->columns[c - 1], class - 1)),
           after = y_of(picture, (double)stack(&picture->columns[c], class - 1));
    if (fabs(y - after) > 0.04) text_printf(t->out, "H%dV%.1f", PLOT_LEFT + c, y);
  }
  text_printf(t->out, "H%dZ\"><title>%s</title></path>\n", PLOT_LEFT, buf_class_name((BufClass) class));
}

static void draw_scale(Timeline *t, const Picture *picture) {
  double step = svg_step(picture->top_bytes - picture->base_bytes, 6, true);
  for (double bytes = picture->base_bytes; bytes <= picture->top_bytes; bytes += step) {
    char label[32];
    double y = y_of(picture, bytes);
    svg_line(t->out, PLOT_LEFT, y, PLOT_RIGHT, y, GRID, "");
    svg_text(t->out, PLOT_LEFT - 8, y + 4, 11, "end", INK_SOFT, "", text_bytes(label, (uint64_t)bytes));
  }
}

/* A limit far above the curve would flatten it, and is not drawn. */
static bool is_near(const Picture *picture, uint64_t limit) {
  return limit >= picture->peak && (double)limit < 1.5 * (double)picture->peak;
}

/* The budget's label stands left, the arena's right: the lines may lie on each other. */
static void draw_limits(Timeline *t, const Picture *picture) {
  uint64_t arena = t->plan->arena_bytes, budget = t->plan->summary.budget_bytes;
  char label[32];
  if (is_near(picture, arena)) {
    double y = y_of(picture, (double)arena);
    svg_line(t->out, PLOT_LEFT, y, PLOT_RIGHT, y, INK_SOFT, "");
    double above = y - y_of(picture, (double)budget); /* where the budget's line is */
    bool below = is_near(picture, budget) && above > 2 && above < 20;
    svg_text(t->out, PLOT_RIGHT - 6, y + (below ? 14 : -5), 12, "end", INK_SOFT, " class=\"halo\"",
             arena_printf(t->scratch, "arena %s", text_bytes(label, arena)));
  }
  if (is_near(picture, budget)) {
    double y = y_of(picture, (double)budget);
    const char *dashed = " stroke-width=\"1.4\" stroke-dasharray=\"7 4\"";
    svg_line(t->out, PLOT_LEFT, y, PLOT_RIGHT, y, BUDGET_INK, dashed);
    svg_text(t->out, PLOT_LEFT + 6, y - 5, 12, "start", BUDGET_INK, " class=\"halo\"",
             arena_printf(t->scratch, "budget %s", text_bytes(label, budget)));
  }
}

/* A label above the point would lie on the line. */
static bool line_is_above(const Picture *picture, uint64_t limit) {
  return is_near(picture, limit) && y_of(picture, (double)picture->peak) - y_of(picture, (double)limit) < 24;
}

/* Right of the point unless that is behind the edge, above it unless a limit's line is there. */
static void draw_peak(Timeline *t, const Picture *picture) {
  char label[32];
  double x = timeline_x(t, picture->peak_ns), y = y_of(picture, (double)picture->peak);
  bool left = x > PLOT_RIGHT - 160;
  bool below =
      line_is_above(picture, t->plan->summary.budget_bytes) || line_is_above(picture, t->plan->arena_bytes);
  text_printf(t->out,
              "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#ffffff\" stroke=\"" INK
              "\" stroke-width=\"1.8\"/>\n",
              x, y);
  svg_text(t->out, x + (left ? -9 : 9), y + (below ? 16 : -6), 12, left ? "end" : "start", INK,
           " font-weight=\"600\" class=\"halo\"",
           arena_printf(t->scratch, "peak %s", text_bytes(label, picture->peak)));
}

/* Without the underscores of the plan file. */
static const char *class_text(Timeline *t, BufClass class) {
  char *name = arena_strdup(t->scratch, buf_class_name(class));
  for (char *c = name; *c; c++)
    if (*c == '_') *c = ' ';
  return name;
}

/* What is drawn but not there at the peak is told by its colour too. */
static void draw_legend(Timeline *t, const Picture *picture) {
  double x = PLOT_LEFT, y = t->y;
  const Column *peak = &picture->columns[column_of(t, picture->peak_ns)];
  svg_text(t->out, PLOT_LEFT - 8, y, 11, "end", INK_SOFT, "", "at the peak");
  for (int c = 0; c < BUF_CLASS_COUNT; c++) {
    char label[32];
    if (!is_drawn(picture, c)) continue;
    const char *name =
        arena_printf(t->scratch, "%s %s", class_text(t, (BufClass)c), text_bytes(label, peak->by_class[c]));
    svg_legend(t->out, &x, &y, fills[c], name);
  }
  t->y = y + 12;
}

/* What persists may dwarf what moves: then the axis begins above zero, and says so. */
static void set_scale(const Timeline *t, Picture *picture) {
  uint64_t budget = t->plan->summary.budget_bytes, arena = t->plan->arena_bytes;
  double peak = (double)picture->peak, persistent = (double)t->plan->persistent_bytes, top = peak;
  if (is_near(picture, budget)) top = (double)budget;
  if (is_near(picture, arena) && (double)arena > top) top = (double)arena;
  if (persistent > 0.6 * peak) {
    double step = svg_step((top - persistent) * 1.5, 6, true);
    picture->base_bytes = floor((persistent - (top - persistent) / 3) / step) * step;
    if (picture->base_bytes < 0) picture->base_bytes = 0;
  }
  picture->top_bytes = top + 0.12 * (top - picture->base_bytes);
  if (picture->top_bytes < picture->base_bytes + 1) picture->top_bytes = picture->base_bytes + 1;
  picture->y = t->y;
  picture->height = MEMORY_HEIGHT;
}

static void draw_cut(Timeline *t, const Picture *picture) {
  if (picture->base_bytes <= 0) return;
  double y = picture->y + picture->height - 7;
  svg_text(t->out, PLOT_LEFT + 6, y, 11, "start", INK_SOFT, " class=\"halo\"", "the axis does not begin at zero");
}

void timeline_memory(Timeline *t) {
  Picture *picture = ARENA_NEW(t->scratch, Picture);
  find_curve(t, picture);
  set_scale(t, picture);
  draw_scale(t, picture);
  for (int c = BUF_CLASS_COUNT - 1; c >= 0; c--) draw_class(t, picture, c);
  draw_cut(t, picture);
  timeline_joins(t, picture->y, picture->y + picture->height);
  draw_limits(t, picture);
  draw_peak(t, picture);
  t->y += MEMORY_HEIGHT + 46; /* the time axis is drawn between */
  draw_legend(t, picture);
}
