/* Owns: the memory curve. A buffer counts from the start of the first instruction that touches it to the end
 * of the last: what the step really holds at that moment, and never more than the arena. */
#include "planner/view/svg.h"

#include <math.h>
#include <stdlib.h>

enum { COLUMNS = PLOT_RIGHT - PLOT_LEFT };

static const char *const fills[BUF_CLASS_COUNT] = {
    [BUF_PARAM] = "#31598c",      [BUF_GRAD] = "#5d83b5",     [BUF_OPTIM] = "#94b1d6",
    [BUF_SCALAR] = "#c5d3e6",     [BUF_GATHERED] = "#4fa37c", [BUF_GRADFULL] = "#e0815f",
    [BUF_ACTIVATION] = "#f0c26b", [BUF_INPUT] = "#b79ac8",    [BUF_WORKSPACE] = "#b8c0ca"};

typedef struct Change {
  uint64_t ns; /* drawn time */
  BufClass class;
  int64_t bytes;
} Change;

typedef struct Column {
  uint64_t by_class[BUF_CLASS_COUNT], total; /* at its fullest moment */
} Column;

typedef struct Curve {
  Column columns[COLUMNS];
  uint64_t peak, peak_ns;
  double base_bytes, top_bytes, y, height; /* of the plot */
} Curve;

/* --- lifetimes --------------------------------------------------------------------------------------- */

typedef struct Life {
  uint64_t begin, end;
  bool used;
} Life;

static void touch(Life *life, uint64_t begin, uint64_t end) {
  if (!life->used || begin < life->begin) life->begin = begin;
  if (!life->used || end > life->end) life->end = end;
  life->used = true;
}

static Life *find_lives(const Timeline *t) {
  const Plan *plan = t->plan;
  const InstrSpec *specs = instr_specs(t->scratch);
  Life *lives = ARENA_ARRAY(t->scratch, Life, plan->bufs.count);
  for (uint32_t s = 0; s < plan->segments.count; s++)
    for (int32_t i = plan->segments.data[s].first; i < plan->segments.data[s].end; i++) {
      const PlanInstr *instr = &plan->instrs.data[i];
      SimSpan span = t->sim->spans[i];
      for (int k = 0; k < specs[instr->op].operand_count; k++) {
        int32_t buf = plan_operand(plan, instr, k)->buf;
        if (buf != PLAN_NONE) touch(&lives[buf], span.start - t->shift_ns[s], span.end - t->shift_ns[s]);
      }
    }
  for (uint32_t b = 0; b < plan->bufs.count; b++)
    if (plan->bufs.data[b].persistent) lives[b] = (Life){0, t->total_ns, true};
  return lives;
}

/* Deaths before births at the same moment: one buffer may take over the memory of another. */
static int by_time(const void *a, const void *b) {
  const Change *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
  return (x->bytes > 0) - (y->bytes > 0);
}

static Change *find_changes(const Timeline *t, size_t *count) {
  Life *lives = find_lives(t);
  Change *changes = ARENA_ARRAY(t->scratch, Change, 2 * (size_t)t->plan->bufs.count);
  *count = 0;
  for (uint32_t b = 0; b < t->plan->bufs.count; b++) {
    const PlanBuf *buf = &t->plan->bufs.data[b];
    if (!lives[b].used) continue;
    changes[(*count)++] = (Change){lives[b].begin, buf->class, (int64_t)buf->bytes};
    if (lives[b].end < t->total_ns)
      changes[(*count)++] = (Change){lives[b].end, buf->class, -(int64_t)buf->bytes};
  }
  qsort(changes, *count, sizeof *changes, by_time);
  return changes;
}

/* --- the curve --------------------------------------------------------------------------------------- */

static int column_of(const Timeline *t, uint64_t ns) {
  int column = (int)((double)ns / (double)t->total_ns * COLUMNS);
  return column < COLUMNS ? column : COLUMNS - 1;
}

/* The state `now` holds over columns [from, to]. */
static void fill(Curve *curve, const Column *now, int from, int to) {
  for (int c = from; c <= to; c++)
    if (now->total >= curve->columns[c].total) curve->columns[c] = *now;
}

static void find_curve(const Timeline *t, Curve *curve) {
  size_t count;
  Change *changes = find_changes(t, &count);
  Column now = {{0}, 0};
  for (size_t i = 0; i < count; i++) {
    now.by_class[changes[i].class] += (uint64_t)changes[i].bytes;
    now.total += (uint64_t)changes[i].bytes;
    uint64_t until = i + 1 < count ? changes[i + 1].ns : t->total_ns;
    if (until == changes[i].ns && i + 1 < count) continue; /* holds for no time */
    fill(curve, &now, column_of(t, changes[i].ns), column_of(t, until));
    if (now.total > curve->peak) {
      curve->peak = now.total;
      curve->peak_ns = changes[i].ns;
    }
  }
}

static double y_of(const Curve *curve, double bytes) {
  double share = (bytes - curve->base_bytes) / (curve->top_bytes - curve->base_bytes);
  return curve->y + curve->height * (1 - (share > 0 ? share : 0));
}

static uint64_t stack(const Column *column, int class) {
  uint64_t sum = 0;
  for (int c = 0; c <= class; c++) sum += column->by_class[c];
  return sum;
}

/* One class: its upper edge left to right, the edge of the class below back. Only columns where something
 * changes. */
static void draw_class(Timeline *t, const Curve *curve, int class) {
  bool any = false;
  for (int c = 0; c < COLUMNS; c++) any |= curve->columns[c].by_class[class] > 0;
  if (!any) return;
  text_printf(t->out, "<path fill=\"%s\" d=\"M%d %.1f", fills[class], PLOT_LEFT,
              y_of(curve, (double)stack(&curve->columns[0], class)));
  for (int c = 1; c < COLUMNS; c++) {
    double y = y_of(curve, (double)stack(&curve->columns[c], class)),
           before = y_of(curve, (double)stack(&curve->columns[c - 1], class));
    if (fabs(y - before) > 0.04) text_printf(t->out, "H%dV%.1f", PLOT_LEFT + c, y);
  }
  text_printf(t->out, "H%dV%.1f", PLOT_RIGHT,
              y_of(curve, (double)stack(&curve->columns[COLUMNS - 1], class - 1)));
  for (int c = COLUMNS - 1; c > 0; c--) {
    double y = y_of(curve, (double)stack(&curve->columns[c - 1], class - 1)),
           after = y_of(curve, (double)stack(&curve->columns[c], class - 1));
    if (fabs(y - after) > 0.04) text_printf(t->out, "H%dV%.1f", PLOT_LEFT + c, y);
  }
  text_printf(t->out, "H%dZ\"><title>%s</title></path>\n", PLOT_LEFT, buf_class_name((BufClass) class));
}

static void draw_scale(Timeline *t, const Curve *curve) {
  double step = svg_step(curve->top_bytes - curve->base_bytes, 6, true);
  for (double bytes = curve->base_bytes; bytes <= curve->top_bytes; bytes += step) {
    char label[32];
    double y = y_of(curve, bytes);
    svg_line(t->out, PLOT_LEFT, y, PLOT_RIGHT, y, GRID, "");
    svg_text(t->out, PLOT_LEFT - 8, y + 4, 11, "end", INK_SOFT, "", text_bytes(label, (uint64_t)bytes));
  }
}

/* A limit far above the curve would flatten it, and is not drawn. */
static bool is_near(const Curve *curve, uint64_t limit) {
  return limit >= curve->peak && (double)limit < 1.5 * (double)curve->peak;
}

/* The budget's label stands left, the arena's right: the lines may lie on each other. */
static void draw_limits(Timeline *t, const Curve *curve) {
  uint64_t arena = t->plan->arena_bytes, budget = t->plan->summary.budget_bytes;
  char label[32];
  if (is_near(curve, arena)) {
    double y = y_of(curve, (double)arena);
    svg_line(t->out, PLOT_LEFT, y, PLOT_RIGHT, y, INK_SOFT, "");
    double above = y - y_of(curve, (double)budget); /* where the budget's line is */
    bool below = is_near(curve, budget) && above > 2 && above < 20;
    svg_text(t->out, PLOT_RIGHT - 6, y + (below ? 14 : -5), 12, "end", INK_SOFT, " class=\"halo\"",
             arena_printf(t->scratch, "arena %s", text_bytes(label, arena)));
  }
  if (is_near(curve, budget)) {
    double y = y_of(curve, (double)budget);
    const char *dashed = " stroke-width=\"1.4\" stroke-dasharray=\"7 4\"";
    svg_line(t->out, PLOT_LEFT, y, PLOT_RIGHT, y, BUDGET_INK, dashed);
    svg_text(t->out, PLOT_LEFT + 6, y - 5, 12, "start", BUDGET_INK, " class=\"halo\"",
             arena_printf(t->scratch, "budget %s", text_bytes(label, budget)));
  }
}

/* A label above the point would lie on the line. */
static bool line_is_above(const Curve *curve, uint64_t limit) {
  return is_near(curve, limit) && y_of(curve, (double)curve->peak) - y_of(curve, (double)limit) < 24;
}

/* Right of the point unless that is behind the edge, above it unless a limit's line is there. */
static void draw_peak(Timeline *t, const Curve *curve) {
  char label[32];
  double x = timeline_x(t, curve->peak_ns), y = y_of(curve, (double)curve->peak);
  bool left = x > PLOT_RIGHT - 160;
  bool below =
      line_is_above(curve, t->plan->summary.budget_bytes) || line_is_above(curve, t->plan->arena_bytes);
  text_printf(t->out,
              "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#ffffff\" stroke=\"" INK
              "\" stroke-width=\"1.8\"/>\n",
              x, y);
  svg_text(t->out, x + (left ? -9 : 9), y + (below ? 16 : -6), 12, left ? "end" : "start", INK,
           " font-weight=\"600\" class=\"halo\"",
           arena_printf(t->scratch, "%s in use", text_bytes(label, curve->peak)));
}

/* Without the underscores of the plan file. */
static const char *class_text(Timeline *t, BufClass class) {
  char *name = arena_strdup(t->scratch, buf_class_name(class));
  for (char *c = name; *c; c++)
    if (*c == '_') *c = ' ';
  return name;
}

static void draw_legend(Timeline *t, const Curve *curve) {
  double x = PLOT_LEFT, y = t->y;
  const Column *peak = &curve->columns[column_of(t, curve->peak_ns)];
  svg_text(t->out, PLOT_LEFT - 8, y, 11, "end", INK_SOFT, "", "at the peak");
  for (int c = 0; c < BUF_CLASS_COUNT; c++) {
    char label[32];
    if (!peak->by_class[c]) continue;
    const char *name =
        arena_printf(t->scratch, "%s %s", class_text(t, (BufClass)c), text_bytes(label, peak->by_class[c]));
    svg_legend(t->out, &x, &y, fills[c], name);
  }
  t->y = y + 12;
}

/* What persists may dwarf what moves: then the axis begins above zero, and says so. */
static void set_scale(const Timeline *t, Curve *curve) {
  uint64_t budget = t->plan->summary.budget_bytes, arena = t->plan->arena_bytes;
  double peak = (double)curve->peak, persistent = (double)t->plan->persistent_bytes, top = peak;
  if (is_near(curve, budget)) top = (double)budget;
  if (is_near(curve, arena) && (double)arena > top) top = (double)arena;
  if (persistent > 0.6 * peak) {
    double step = svg_step((top - persistent) * 1.5, 6, true);
    curve->base_bytes = floor((persistent - (top - persistent) / 3) / step) * step;
    if (curve->base_bytes < 0) curve->base_bytes = 0;
  }
  curve->top_bytes = top + 0.12 * (top - curve->base_bytes);
  if (curve->top_bytes < curve->base_bytes + 1) curve->top_bytes = curve->base_bytes + 1;
  curve->y = t->y;
  curve->height = MEMORY_HEIGHT;
}

static void draw_cut(Timeline *t, const Curve *curve) {
  if (curve->base_bytes <= 0) return;
  double y = curve->y + curve->height - 7;
  svg_text(t->out, PLOT_LEFT + 6, y, 11, "start", "#ffffff", "", "the axis does not begin at zero");
}

void timeline_memory(Timeline *t) {
  Curve *curve = ARENA_NEW(t->scratch, Curve);
  find_curve(t, curve);
  set_scale(t, curve);
  draw_scale(t, curve);
  for (int c = BUF_CLASS_COUNT - 1; c >= 0; c--) draw_class(t, curve, c);
  draw_cut(t, curve);
  timeline_joins(t, curve->y, curve->y + curve->height);
  draw_limits(t, curve);
  draw_peak(t, curve);
  t->y += MEMORY_HEIGHT + 46; /* the time axis is drawn between */
  draw_legend(t, curve);
}
