/* Owns: the plot of a sweep: memory against time a token, a colour a number of ranks (or a cluster, where only clusters differ), a
 * shape a cluster, the front joined by a line; and the front as a table. One self-contained file that needs no script. */
#include "cli/tune.h"

#include "planner/view/assets.h"
#include "planner/view/svg.h"

#include <math.h>

enum { LEFT = 80, TOP = 36, WIDTH = 1100, HEIGHT = 536, RIGHT = 30, BOTTOM = 50, HUES = 6, SHAPES = 5 };
static const char *const hues[HUES] = {"#3f7fd0", "#d9743c", "#3d9970", "#7d62b3", "#c9504c", "#2f8f9d"};
/* Around the origin, of radius 1; NULL: a circle. */
static const char *const shapes[SHAPES] = {NULL, "M-.9-.9H.9V.9H-.9Z", "M0-1.3L1.3 0 0 1.3-1.3 0Z", "M0-1.2L1.15.85H-1.15Z", "M0 1.2L1.15-.85H-1.15Z"};

typedef struct Plot {
  const Tune *t;
  Text *out;
  double least_ns, most_ns, most_bytes; /* of what fits; the axis of time is logarithmic */
  Words ranks;                          /* numbers that occur, as text */
} Plot;

static const char *ranks_text(const Plot *plot, uint32_t ranks) {
  return arena_printf(plot->t->cli->arena, "%u", ranks);
}

static uint32_t rank_index(const Plot *plot, uint32_t ranks) {
  uint32_t k = 0;
  while (k + 1 < plot->ranks.count && strcmp(plot->ranks.data[k], ranks_text(plot, ranks))) k++;
  return k;
}

static uint32_t cluster_count(const Plot *plot) {
  return plot->t->dims[0].values.count;
}

/* Points count clusters fastest. */
static uint32_t cluster_index(const Plot *plot, uint32_t p) {
  return p % cluster_count(plot);
}

static const char *fill_of(const Plot *plot, uint32_t p) {
  return hues[(plot->ranks.count > 1 ? rank_index(plot, plot->t->points[p].ranks) : cluster_index(plot, p)) % HUES];
}

static void draw_mark(const Plot *plot, uint32_t p, double x, double y, double radius, const char *more) {
  const char *shape = shapes[cluster_index(plot, p) % SHAPES];
  if (!shape)
    text_printf(plot->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"%s>", x, y, radius, fill_of(plot, p), more);
  else
    text_printf(plot->out, "<path d=\"%s\" transform=\"translate(%.1f %.1f) scale(%g)\" vector-effect=\"non-scaling-stroke\" fill=\"%s\"%s>", shape, x, y,
                radius, fill_of(plot, p), more);
}

static void end_mark(const Plot *plot, uint32_t p) {
  text_printf(plot->out, shapes[cluster_index(plot, p) % SHAPES] ? "</path>" : "</circle>");
}

static void find_range(Plot *plot) {
  plot->least_ns = INFINITY;
  for (uint32_t p = 0; p < plot->t->count; p++) {
    const TunePoint *point = &plot->t->points[p];
    if (point->state != TUNE_FITS) continue;
    plot->least_ns = fmin(plot->least_ns, point->ns_per_token);
    plot->most_ns = fmax(plot->most_ns, point->ns_per_token);
    plot->most_bytes = fmax(plot->most_bytes, (double)point->arena_bytes);
    bool known = false;
    for (uint32_t k = 0; k < plot->ranks.count; k++) known |= !strcmp(plot->ranks.data[k], ranks_text(plot, point->ranks));
    if (!known) vec_push(plot->t->cli->arena, &plot->ranks, ranks_text(plot, point->ranks));
  }
  plot->least_ns /= 1.05;
  plot->most_ns *= 1.05;
  plot->most_bytes *= 1.05;
}

static double x_of(const Plot *plot, double ns) {
  return LEFT + (WIDTH - LEFT - RIGHT) * log(ns / plot->least_ns) / log(plot->most_ns / plot->least_ns);
}

static double y_of(const Plot *plot, double bytes) {
  return TOP + (HEIGHT - TOP - BOTTOM) * (1 - bytes / plot->most_bytes);
}

typedef struct Ticks {
  double at[64];
  uint32_t count;
} Ticks;

static void add_tick(const Plot *plot, Ticks *ticks, double ns) {
  if (ns >= plot->least_ns && ns <= plot->most_ns && ticks->count < 64) ticks->at[ticks->count++] = ns;
}

/* Round numbers of each power of ten, as few as make four ticks; where all of them do not, equal steps. */
static Ticks time_ticks(const Plot *plot) {
  static const double digits[2][7] = {{1, 2, 5}, {1, 1.5, 2, 3, 4, 5, 7}};
  Ticks ticks;
  for (int set = 0; set < 2; set++) {
    ticks.count = 0;
    for (double ten = pow(10, floor(log10(plot->least_ns))); ten <= plot->most_ns; ten *= 10)
      for (int k = 0; k < 7 && digits[set][k] > 0; k++) add_tick(plot, &ticks, digits[set][k] * ten);
    if (ticks.count >= 4) return ticks;
  }
  double step = svg_step(plot->most_ns - plot->least_ns, 8, false);
  ticks.count = 0;
  for (double k = ceil(plot->least_ns / step); k * step <= plot->most_ns; k++) add_tick(plot, &ticks, k * step);
  return ticks;
}

/* "2.5 us": no more digits than a round number has. */
static const char *round_time(const Plot *plot, double ns) {
  static const char *const names[] = {"ns", "us", "ms", "s"};
  int unit = 0;
  while (unit < 3 && ns >= 1000 - 1e-6) ns /= 1000, unit++;
  return arena_printf(plot->t->cli->arena, "%.6g %s", ns, names[unit]);
}

static void draw_axes(const Plot *plot) {
  char text[32];
  Text *out = plot->out;
  double step = svg_step(plot->most_bytes, 8, true);
  for (double bytes = 0; bytes < plot->most_bytes; bytes += step) {
    svg_line(out, LEFT, y_of(plot, bytes), WIDTH - RIGHT, y_of(plot, bytes), "var(--line)", "");
    svg_text(out, LEFT - 8, y_of(plot, bytes) + 4, 12, "end", "var(--soft)", "", text_bytes(text, (uint64_t)bytes));
  }
  Ticks ticks = time_ticks(plot);
  for (uint32_t k = 0; k < ticks.count; k++) {
    double x = x_of(plot, ticks.at[k]);
    svg_line(out, x, TOP, x, HEIGHT - BOTTOM, "var(--line)", "");
    svg_text(out, x, HEIGHT - BOTTOM + 20, 12, "middle", "var(--soft)", "", round_time(plot, ticks.at[k]));
  }
  svg_text(out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10, 13, "middle", "var(--ink)", "", "time a token, of the whole job (log scale; left is faster)");
  svg_text(out, 14, 20, 13, "start", "var(--ink)", "", "memory of a rank");
}

static const char *cost_text(const Plot *plot, const TunePoint *point) {
  return plot->t->priced ? arena_printf(plot->t->cli->arena, ", %.3g USD a million tokens", point->usd_per_million) : "";
}

static void draw_point(const Plot *plot, uint32_t p, bool front) {
  const TunePoint *point = &plot->t->points[p];
  char time[32], bytes[32];
  draw_mark(plot, p, x_of(plot, point->ns_per_token), y_of(plot, (double)point->arena_bytes), front ? 6 : 4,
            front ? " stroke=\"var(--ink)\" stroke-width=\"1.5\"" : " opacity=\"0.3\"");
  text_printf(plot->out, "<title>");
  svg_escaped(plot->out, arena_printf(plot->t->cli->arena, "%u rank%s on %s, %s a step, %s%s; %s, micro-batch %llu x %llu, wrap %s, checkpoint %s",
                                      point->ranks, text_plural(point->ranks), tune_value(plot->t, p, 0), text_time(time, (double)point->step_ns),
                                      text_bytes(bytes, point->arena_bytes), cost_text(plot, point), point->strategy,
                                      (unsigned long long)point->micro_batch, (unsigned long long)point->accumulation, point->wrap, point->checkpoint));
  text_printf(plot->out, "</title>");
  end_mark(plot, p);
  text_printf(plot->out, "\n");
}

/* The front is sorted by ranks and time: a line a number of ranks, through all clusters. */
static void draw_front(const Plot *plot) {
  const Tune *t = plot->t;
  for (uint32_t k = 1; k < t->front.count; k++) {
    uint32_t p = t->front.data[k - 1], q = t->front.data[k];
    const TunePoint *a = &t->points[p], *b = &t->points[q];
    const char *ink = fill_of(plot, p);
    if (a->ranks != b->ranks) continue;
    svg_line(plot->out, x_of(plot, a->ns_per_token), y_of(plot, (double)a->arena_bytes), x_of(plot, b->ns_per_token),
             y_of(plot, (double)b->arena_bytes), !strcmp(ink, fill_of(plot, q)) ? ink : "var(--soft)", " stroke-width=\"1.5\"");
  }
  for (uint32_t k = 0; k < t->front.count; k++) draw_point(plot, t->front.data[k], true);
}

static void cell(const Plot *plot, const char *text, bool number) {
  text_printf(plot->out, number ? "<td class=\"n\">" : "<td>");
  svg_escaped(plot->out, text);
}

/* The mark of a point's ranks and cluster, for a line of text. */
static void draw_key(const Plot *plot, uint32_t p) {
  text_printf(plot->out, "<svg class=\"mark\" viewBox=\"-7 -7 14 14\" width=\"14\" height=\"14\">");
  draw_mark(plot, p, 0, 0, 5, "");
  end_mark(plot, p);
  text_printf(plot->out, "</svg> ");
}

static void table(const Plot *plot) {
  const Tune *t = plot->t;
  Arena *arena = t->cli->arena;
  text_printf(plot->out, "<h2>The front</h2><div class=\"scroll\"><table><tr><th class=\"n\">ranks<th class=\"n\">step<th class=\"n\">tokens/s"
                         "<th class=\"n\">memory%s<th>strategy<th class=\"n\">micro-batch<th>wrap<th>checkpoint<th class=\"n\">prefetch<th>cluster</tr>\n",
              t->priced ? "<th class=\"n\">USD a million tokens" : "");
  for (uint32_t k = 0; k < t->front.count; k++) {
    const TunePoint *point = &t->points[t->front.data[k]];
    char buffer[32];
    text_printf(plot->out, "<tr><td class=\"n\">");
    draw_key(plot, t->front.data[k]);
    text_printf(plot->out, "%u", point->ranks);
    cell(plot, text_time(buffer, (double)point->step_ns), true);
    cell(plot, text_count(buffer, 1e9 / point->ns_per_token), true);
    cell(plot, text_bytes(buffer, point->arena_bytes), true);
    if (t->priced) cell(plot, arena_printf(arena, "%.3g", point->usd_per_million), true);
    cell(plot, point->strategy, false);
    cell(plot, arena_printf(arena, "%llu x %llu", (unsigned long long)point->micro_batch, (unsigned long long)point->accumulation), true);
    cell(plot, point->wrap, false);
    cell(plot, point->checkpoint, false);
    cell(plot, arena_printf(arena, "%u", point->prefetch), true);
    cell(plot, tune_value(t, t->front.data[k], 0), false);
    text_printf(plot->out, "</tr>\n");
  }
  text_printf(plot->out, "</table></div>\n");
}

/* No earlier point has the same ranks on the same cluster. */
static bool is_new(const Plot *plot, uint32_t p) {
  const Tune *t = plot->t;
  for (uint32_t q = 0; q < p; q++)
    if (t->points[q].state == TUNE_FITS && t->points[q].ranks == t->points[p].ranks && cluster_index(plot, q) == cluster_index(plot, p)) return false;
  return true;
}

static void legend(const Plot *plot) {
  text_printf(plot->out, "<div id=\"legend\">");
  for (uint32_t p = 0; p < plot->t->count; p++) {
    uint32_t ranks = plot->t->points[p].ranks;
    if (plot->t->points[p].state != TUNE_FITS || !is_new(plot, p)) continue;
    text_printf(plot->out, "<span>");
    draw_key(plot, p);
    text_printf(plot->out, "%u rank%s", ranks, text_plural(ranks));
    if (cluster_count(plot) > 1) {
      text_printf(plot->out, " on ");
      svg_escaped(plot->out, tune_value(plot->t, p, 0));
    }
    text_printf(plot->out, "</span>");
  }
  text_printf(plot->out, "</div>\n");
}

/* Of the fastest of each number of ranks: what one other choice would have brought. */
static void neighbours(const Plot *plot) {
  const Tune *t = plot->t;
  text_printf(plot->out, "<h2>Why their neighbours lost</h2><p class=\"soft\">Around the fastest plan of each number of ranks, one choice at a time.</p>"
                         "<div class=\"scroll\"><table><tr><th class=\"n\">ranks<th>other choice</tr>\n");
  for (uint32_t k = 0; k < t->front.count; k++) {
    uint32_t p = t->front.data[k];
    if (k && t->points[t->front.data[k - 1]].ranks == t->points[p].ranks) continue;
    for (int d = 0; d < TUNE_DIMS; d++)
      for (uint32_t v = 0; v < t->dims[d].values.count; v++) {
        uint32_t neighbour = tune_neighbour(t, p, d, v);
        const char *why = neighbour == p ? NULL : tune_why_lost(t, p, neighbour, d);
        if (!why) continue;
        text_printf(plot->out, "<tr><td class=\"n\">%u", t->points[p].ranks);
        cell(plot, why, false);
        text_printf(plot->out, "</tr>\n");
      }
  }
  text_printf(plot->out, "</table></div>\n");
}

static void head(const Plot *plot) {
  text_printf(plot->out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                         "<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\"><title>");
  svg_escaped(plot->out, plot->t->graphs[0]->name);
  text_printf(plot->out, ": plans compared</title>\n<style>\n%sfigure.plot { background: var(--raised); }\nsvg.mark { vertical-align: -2px; }\n@media (min-width: 1140px) { figure.plot svg { width: 100%%; } }</style></head><body><header><h1>", asset_report_css);
  svg_escaped(plot->out, plot->t->graphs[0]->name);
  text_printf(plot->out, "</h1><p class=\"soft\">%u plan%s compared by fsdpc tune; ", plot->t->count, text_plural(plot->t->count));
  if (plot->t->front.count)
    text_printf(plot->out, "%u %s on the front: nothing is better in time, memory%s and ranks at once. Point at one to see what it is.",
                plot->t->front.count, plot->t->front.count == 1 ? "is" : "are", plot->t->priced ? ", cost" : "");
  else text_printf(plot->out, "none fits.");
  text_printf(plot->out, "</p></header>\n<main>\n");
}

void tune_html(const Tune *t, Text *out) {
  Plot plot = {.t = t, .out = out};
  head(&plot);
  find_range(&plot);
  if (t->front.count) {
    legend(&plot);
    text_printf(out, "<figure class=\"plot\"><svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n", WIDTH,
                HEIGHT, WIDTH, HEIGHT);
    draw_axes(&plot);
    for (uint32_t p = 0; p < t->count; p++)
      if (t->points[p].state == TUNE_FITS && t->same_as[p] == PLAN_NONE) draw_point(&plot, p, false);
    draw_front(&plot);
    text_printf(out, "</svg></figure>\n");
    table(&plot);
    neighbours(&plot);
  }
  text_printf(out, "</main></body></html>\n");
}
