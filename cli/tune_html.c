/* Owns: the plot of a sweep: memory against time a token, a colour a number of ranks, the front joined by a line; and the front
 * as a table. One self-contained file that needs no script. */
#include "cli/tune.h"

#include "planner/view/assets.h"
#include "planner/view/svg.h"

#include <math.h>

enum { LEFT = 80, TOP = 20, WIDTH = 1100, HEIGHT = 520, RIGHT = 30, BOTTOM = 50, HUES = 6 };
static const char *const hues[HUES] = {"#3f7fd0", "#d9743c", "#3d9970", "#7d62b3", "#c9504c", "#2f8f9d"};

typedef struct Plot {
  const Tune *t;
  Text *out;
  double least_ns, most_ns, most_bytes; /* of what fits; the axis of time is logarithmic */
  Words ranks;                          /* numbers that occur, as text */
} Plot;

static const char *ranks_text(const Plot *plot, uint32_t ranks) {
  return arena_printf(plot->t->cli->arena, "%u", ranks);
}

static int hue(const Plot *plot, uint32_t ranks) {
  for (uint32_t k = 0; k < plot->ranks.count; k++)
    if (!strcmp(plot->ranks.data[k], ranks_text(plot, ranks))) return (int)(k % HUES);
  return 0;
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

static void draw_axes(const Plot *plot) {
  char text[32];
  Text *out = plot->out;
  double step = svg_step(plot->most_bytes, 8, true);
  for (double bytes = 0; bytes < plot->most_bytes; bytes += step) {
    svg_line(out, LEFT, y_of(plot, bytes), WIDTH - RIGHT, y_of(plot, bytes), "var(--line)", "");
    svg_text(out, LEFT - 8, y_of(plot, bytes) + 4, 12, "end", "var(--soft)", "", text_bytes(text, (uint64_t)bytes));
  }
  for (int k = 0; k <= 6; k++) {
    double ns = plot->least_ns * pow(plot->most_ns / plot->least_ns, k / 6.0);
    svg_text(out, x_of(plot, ns), HEIGHT - BOTTOM + 20, 12, "middle", "var(--soft)", "", text_time(text, ns));
  }
  svg_text(out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10, 13, "middle", "var(--ink)", "", "time a token, of the whole job (left is faster)");
  svg_text(out, LEFT + 8, TOP + 12, 13, "start", "var(--ink)", "", "memory of a rank");
}

static const char *cost_text(const Plot *plot, const TunePoint *point) {
  return plot->t->priced ? arena_printf(plot->t->cli->arena, ", %.3f USD a million tokens", point->usd_per_million) : "";
}

static void draw_point(const Plot *plot, uint32_t p, bool front) {
  const TunePoint *point = &plot->t->points[p];
  char time[32], bytes[32];
  text_printf(plot->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"%s><title>", x_of(plot, point->ns_per_token),
              y_of(plot, (double)point->arena_bytes), front ? 6 : 4, hues[hue(plot, point->ranks)],
              front ? " stroke=\"var(--ink)\" stroke-width=\"1.5\"" : " opacity=\"0.3\"");
  svg_escaped(plot->out, arena_printf(plot->t->cli->arena, "%u ranks, %s a step, %s%s; %s, micro-batch %llu x %llu, wrap %s, checkpoint %s",
                                      point->ranks, text_time(time, (double)point->step_ns), text_bytes(bytes, point->arena_bytes), cost_text(plot, point),
                                      point->strategy, (unsigned long long)point->micro_batch, (unsigned long long)point->accumulation,
                                      point->wrap, point->checkpoint));
  text_printf(plot->out, "</title></circle>\n");
}

/* The front is sorted by ranks and time: a line a number of ranks. */
static void draw_front(const Plot *plot) {
  const Tune *t = plot->t;
  for (uint32_t k = 1; k < t->front.count; k++) {
    const TunePoint *a = &t->points[t->front.data[k - 1]], *b = &t->points[t->front.data[k]];
    if (a->ranks != b->ranks) continue;
    svg_line(plot->out, x_of(plot, a->ns_per_token), y_of(plot, (double)a->arena_bytes), x_of(plot, b->ns_per_token),
             y_of(plot, (double)b->arena_bytes), hues[hue(plot, a->ranks)], " stroke-width=\"1.5\"");
  }
  for (uint32_t k = 0; k < t->front.count; k++) draw_point(plot, t->front.data[k], true);
}

static void cell(const Plot *plot, const char *text, bool number) {
  text_printf(plot->out, number ? "<td class=\"n\">" : "<td>");
  svg_escaped(plot->out, text);
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
    text_printf(plot->out, "<tr><td class=\"n\"><i class=\"key\" style=\"background:%s\"></i>%u", hues[hue(plot, point->ranks)], point->ranks);
    cell(plot, text_time(buffer, (double)point->step_ns), true);
    cell(plot, text_count(buffer, 1e9 / point->ns_per_token), true);
    cell(plot, text_bytes(buffer, point->arena_bytes), true);
    if (t->priced) cell(plot, arena_printf(arena, "%.3f", point->usd_per_million), true);
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
  text_printf(plot->out, ": plans compared</title>\n<style>\n%sfigure.plot { background: var(--raised); }\n@media (min-width: 1140px) { figure.plot svg { width: 100%%; } }</style></head><body><header><h1>", asset_report_css);
  svg_escaped(plot->out, plot->t->graphs[0]->name);
  text_printf(plot->out, "</h1><p class=\"soft\">%u plans compared by fsdpc tune; %u are on the front: nothing is better in time, memory%s and ranks at once. "
                         "Point at one to see what it is.</p></header>\n<main>\n",
              plot->t->count, plot->t->front.count, plot->t->priced ? ", cost" : "");
}

void tune_html(const Tune *t, Text *out) {
  Plot plot = {.t = t, .out = out};
  head(&plot);
  find_range(&plot);
  if (t->front.count) {
    text_printf(out, "<div id=\"legend\">");
    for (uint32_t k = 0; k < plot.ranks.count; k++)
      text_printf(out, "<span><i class=\"key\" style=\"background:%s\"></i>%s rank%s</span>", hues[k % HUES], plot.ranks.data[k],
                  strcmp(plot.ranks.data[k], "1") ? "s" : "");
    text_printf(out, "</div>\n<figure class=\"plot\"><svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n", WIDTH,
                HEIGHT, WIDTH, HEIGHT);
    draw_axes(&plot);
    for (uint32_t p = 0; p < t->count; p++)
      if (t->points[p].state == TUNE_FITS && t->same_as[p] == PLAN_NONE) draw_point(&plot, p, false);
    draw_front(&plot);
    text_printf(out, "</svg></figure>\n");
  }
  table(&plot);
  neighbours(&plot);
  text_printf(out, "</main></body></html>\n");
}
