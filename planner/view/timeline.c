/* Owns: the drawing of one step: title, which unit computes, a lane per stream that does something, the memory curve,
 * one axis of time.
 *
 * Repeated segments are drawn once, so drawn time is shorter than the step; the strip above the lanes says
 * how often. Instructions of one layer and phase that follow each other closely are one block: a deep model
 * then draws in a few hundred rectangles, and a label stands wherever it fits. */
#include "planner/view/facts.h"
#include "planner/view/owner.h"
#include "planner/view/svg.h"
#include "planner/view/view.h"

#include <ctype.h>
#include <math.h>

enum { LANE_HEIGHT = 34, LANE_GAP = 9, STRIP_HEIGHT = 20, UNIT_HEIGHT = 28 };
static const double block_gap_px = 0.4; /* closer ones look like one */

/* Two shades that take turns, so that neighbours can be told apart. */
static const char *const phase_fills[PHASE_COUNT][2] = {[PHASE_BEGIN] = {"#8795a8", "#9fabbb"},
                                                        [PHASE_FORWARD] = {"#3f7fd0", "#629ae0"},
                                                        [PHASE_BACKWARD] = {"#d9743c", "#e8925f"},
                                                        [PHASE_RECOMPUTE] = {"#c9a227", "#dbb94a"},
                                                        [PHASE_UPDATE] = {"#7d62b3", "#9880c6"}};
static const char *const stream_fills[STREAM_COUNT][2] = {[STREAM_GATHER] = {"#3d9970", "#5fb38c"},
                                                          [STREAM_REDUCE] = {"#c9504c", "#dc716d"},
                                                          [STREAM_REPLICATE] = {"#b3558f", "#c97aaa"},
                                                          [STREAM_COPY_IN] = {"#2f8f9d", "#54a9b5"},
                                                          [STREAM_COPY_OUT] = {"#56789a", "#7a98b6"}};

static const char *const unit_fills[UNIT_HUES] = {"#cfe0f8", "#d3eeda", "#f8dcc6", "#e3d4f4", "#f9e9ae", "#c9e9ec", "#f5cbdb", "#d9e0e8"};

/* --- labels ------------------------------------------------------------------------------------------- */

/* Digits of the last block's number: blocks are numbered where all numbers fit, in a smaller size before none. */
static size_t widest_number(const Timeline *t) {
  size_t widest = 0;
  for (uint32_t i = 0; i < t->plan->instrs.count; i++) {
    const char *name = plan_str(t->plan, t->plan->instrs.data[i].name);
    for (size_t length; *name; name += length + (name[length] == '.')) {
      length = strcspn(name, ".");
      if (strspn(name, "0123456789") == length && length > widest) widest = length;
    }
  }
  return widest;
}

/* In the middle of x and its width. */
static void draw_label(Timeline *t, const char *layer, double x, double width, double y, const char *ink) {
  const char *label = svg_fit(t->scratch, layer, width), *tail = strrchr(layer, '.');
  const char *number = tail ? tail + 1 : layer;
  double size = 11;
  if (*number && !number[strspn(number, "0123456789")] && (!label || label == number)) {
    const char *widest = "9999999" + (t->digits < 7 ? 7 - t->digits : 0);
    if (svg_text_width(widest, size) + 6 > width) size = 9;
    label = svg_text_width(widest, size) + 2 <= width ? number : NULL;
  }
  if (label) svg_text(t->out, x + width / 2, y, size, "middle", ink, "", label);
}

/* --- units -------------------------------------------------------------------------------------------- */

static void draw_unit(Timeline *t, int32_t unit, uint64_t begin, uint64_t end) {
  double x = timeline_x(t, begin), width = timeline_x(t, end) - x;
  if (unit == PLAN_NONE || width <= 0) return;
  svg_rect(t->out, x, t->y, width > 1 ? width - 0.5 : width, STRIP_HEIGHT, unit_fills[unit_hue(t->plan, unit)], "");
  draw_label(t, plan_str(t->plan, t->plan->units.data[unit].name), x, width, t->y + 14, INK);
}

/* A strip above the lanes: whose layers compute, from the first to the last of a run. */
static void draw_units(Timeline *t) {
  const int32_t *owner = owners_of(t->scratch, t->plan, instr_specs(t->scratch));
  svg_text(t->out, PLOT_LEFT - 10, t->y + 14, 13, "end", INK, "", "unit");
  for (uint32_t s = 0; s < t->plan->segments.count; s++) {
    int32_t unit = PLAN_NONE;
    uint64_t begin = 0, end = 0;
    for (int32_t i = t->plan->segments.data[s].first; i < t->plan->segments.data[s].end; i++) {
      if (t->plan->instrs.data[i].stream != STREAM_COMPUTE || !t->plan->instrs.data[i].ns) continue;
      if (owner[i] != unit) {
        draw_unit(t, unit, begin, end);
        begin = t->sim->spans[i].start - t->shift_ns[s];
        unit = owner[i];
      }
      end = t->sim->spans[i].end - t->shift_ns[s];
    }
    draw_unit(t, unit, begin, end);
  }
  t->y += UNIT_HEIGHT;
}

/* --- blocks ------------------------------------------------------------------------------------------ */

typedef struct Block {
  uint64_t begin, end; /* drawn ns */
  const char *layer;   /* "" when several share the block */
  Phase phase;
  uint32_t instrs, number; /* number: of the layer in its lane, for the shade */
} Block;

/* "h.3" of "h.3.mlp.c_fc": up to the first part that is a number; else the first part. */
static const char *layer_of(const Timeline *t, const char *name) {
  const char *first_end = NULL;
  for (const char *part = name; *part;) {
    size_t length = strcspn(part, ".");
    bool number = length > 0 && strspn(part, "0123456789") == length;
    if (number) return arena_strndup(t->scratch, name, (size_t)(part - name) + length);
    if (!first_end) first_end = part + length;
    part += length + (part[length] == '.');
  }
  return first_end ? arena_strndup(t->scratch, name, (size_t)(first_end - name)) : "";
}

static void draw_block(Timeline *t, const Block *block, StreamId stream) {
  double x = timeline_x(t, block->begin), width = timeline_x(t, block->end) - x;
  const char *const *fills = stream == STREAM_COMPUTE ? phase_fills[block->phase] : stream_fills[stream];
  char time[32];
  if (block->end == block->begin) return;
  if (width < 0.3) width = 0.3;
  text_printf(t->out, "<g><title>");
  svg_escaped(t->out, block->layer);
  text_printf(t->out, " %s, %u instruction%s, %s</title>", phase_name(block->phase), block->instrs,
              text_plural(block->instrs), text_time(time, (double)(block->end - block->begin)));
  svg_rect(t->out, x, t->y, width, LANE_HEIGHT, fills[block->number % 2], width > 5 ? " rx=\"2\"" : "");
  draw_label(t, block->layer, x, width, t->y + LANE_HEIGHT / 2.0 + 4, "#ffffff");
  text_printf(t->out, "</g>\n");
}

/* The instruction continues the block: the same layer and phase, or both too small to be seen apart. */
static bool continues(const Timeline *t, const Block *block, const char *layer, Phase phase, uint64_t begin,
                      uint64_t end) {
  if (!block->instrs || block->phase != phase) return false;
  if (timeline_x(t, begin) - timeline_x(t, block->end) > block_gap_px) return false;
  if (!strcmp(block->layer, layer)) return true;
  return timeline_x(t, end) - timeline_x(t, block->begin) < 2 * block_gap_px;
}

static void draw_segment_lane(Timeline *t, StreamId stream, uint32_t segment) {
  const PlanSegment *range = &t->plan->segments.data[segment];
  Block block = {0};
  for (int32_t i = range->first; i < range->end; i++) {
    const PlanInstr *instr = &t->plan->instrs.data[i];
    if (instr->stream != stream || !instr->ns) continue;
    uint64_t begin = t->sim->spans[i].start - t->shift_ns[segment],
             end = t->sim->spans[i].end - t->shift_ns[segment];
    const char *name = plan_str(t->plan, instr->name),
               *layer = stream == STREAM_COMPUTE ? layer_of(t, name) : name;
    if (continues(t, &block, layer, instr->phase, begin, end)) {
      if (strcmp(block.layer, layer)) block.layer = "";
      block.end = end;
      block.instrs++;
      continue;
    }
    uint32_t number = block.number + (strcmp(block.instrs ? block.layer : "", layer) != 0);
    if (block.instrs) draw_block(t, &block, stream);
    block = (Block){begin, end, layer, instr->phase, 1, number};
  }
  if (block.instrs) draw_block(t, &block, stream);
}

static bool lane_is_empty(const Timeline *t, StreamId stream) {
  for (uint32_t i = 0; i < t->plan->instrs.count; i++)
    if (t->plan->instrs.data[i].stream == stream && t->plan->instrs.data[i].ns) return false;
  return true;
}

static void draw_lanes(Timeline *t) {
  static const char *const names[STREAM_COUNT] = {"compute",   "gather",  "reduce",
                                                  "replicate", "copy in", "copy out"};
  for (int s = 0; s < STREAM_COUNT; s++) {
    if (lane_is_empty(t, (StreamId)s)) continue;
    svg_rect(t->out, PLOT_LEFT, t->y, PLOT_RIGHT - PLOT_LEFT, LANE_HEIGHT, "#f3f5f8", " rx=\"3\"");
    svg_text(t->out, PLOT_LEFT - 10, t->y + LANE_HEIGHT / 2.0 + 4, 13, "end", INK, "", names[s]);
    for (uint32_t segment = 0; segment < t->plan->segments.count; segment++)
      draw_segment_lane(t, (StreamId)s, segment);
    t->y += LANE_HEIGHT + LANE_GAP;
  }
}

/* As drawn: streams that slow each other are longer than their instructions say. */
static uint64_t phase_ns(const Timeline *t, Phase phase) {
  uint64_t ns = 0;
  for (uint32_t s = 0; s < t->plan->segments.count; s++) {
    const PlanSegment *segment = &t->plan->segments.data[s];
    for (int32_t i = segment->first; i < segment->end; i++) {
      const PlanInstr *instr = &t->plan->instrs.data[i];
      if (instr->stream == STREAM_COMPUTE && instr->phase == phase) ns += (t->sim->spans[i].end - t->sim->spans[i].start) * segment->count;
    }
  }
  return ns;
}

static void draw_phase_legend(Timeline *t) {
  double x = PLOT_LEFT, y = t->y + 14;
  svg_text(t->out, PLOT_LEFT - 10, y, 11, "end", INK_SOFT, "", "in a step");
  for (int p = 0; p < PHASE_COUNT; p++) {
    char time[32];
    uint64_t ns = phase_ns(t, (Phase)p);
    if (ns) svg_legend(t->out, &x, &y, phase_fills[p][0], arena_printf(t->scratch, "%s %s", phase_name((Phase)p), text_time(time, (double)ns)));
  }
  t->y = y + 22;
}

/* --- title, segments, axis --------------------------------------------------------------------------- */

enum { TITLE_LEFT = 24, TITLE_LINE = 21, TITLE_LETTERS = 60, HEAD_MOST = 4 };

/* What the head says, one after the other; NULL: does not apply. */
typedef struct Head {
  const char *text[HEAD_MOST];
} Head;

static Head world_head(const Timeline *t) {
  const PlanWorld *world = &t->plan->world;
  char params[32];
  const char *groups = world->replicas > 1 ? arena_printf(t->scratch, " = %u shard%s \xc3\x97 %u replicas",
                                                          world->shard, text_plural(world->shard), world->replicas)
                                           : "";
  return (Head){{arena_printf(t->scratch, "%s parameters in %u unit%s", text_count(params, (double)t->plan->param_numel), t->plan->units.count,
                               text_plural(t->plan->units.count)),
                  arena_printf(t->scratch, "%u rank%s%s", world->ranks, text_plural(world->ranks), groups),
                  arena_printf(t->scratch, "micro-batch %llu \xc3\x97 %llu", (unsigned long long)world->micro_batch,
                               (unsigned long long)world->accumulation),
                  arena_printf(t->scratch, "%s, wrap %s, checkpoint %s", plan_strategy(t->scratch, t->plan),
                               plan_str(t->plan, t->plan->summary.wrap), plan_str(t->plan, t->plan->summary.checkpoint))}};
}

static Head memory_head(const Timeline *t) {
  char size[32];
  uint64_t budget = t->plan->summary.budget_bytes, host = t->plan->host_bytes;
  double share = t->sim->step_ns ? 100.0 * (double)t->sim->exposed_comm_ns / (double)t->sim->step_ns : 0;
  return (Head){{arena_printf(t->scratch, "arena %s", text_bytes(size, t->plan->arena_bytes)),
                  budget ? arena_printf(t->scratch, "budget %s", text_bytes(size, budget)) : NULL,
                  host ? arena_printf(t->scratch, "host memory %s", text_bytes(size, host)) : NULL,
                  t->plan->world.ranks == 1 ? NULL
                                            : arena_printf(t->scratch, "communication exposed for %s (%.*f %%)", text_time(size, (double)t->sim->exposed_comm_ns),
                                                           share < 9.95 ? 1 : 0, share)}};
}

static void draw_line(Timeline *t, const char *text) {
  svg_text(t->out, TITLE_LEFT, t->y, 13.5, "start", INK_SOFT, " xml:space=\"preserve\"", text);
  t->y += TITLE_LINE;
}

/* On as many lines as it takes. */
static void draw_head(Timeline *t, Head head) {
  const char *line = NULL;
  for (int i = 0; i < HEAD_MOST; i++) {
    if (!head.text[i]) continue;
    const char *longer = line ? arena_printf(t->scratch, "%s   \xc2\xb7   %s", line, head.text[i]) : head.text[i];
    bool fits = svg_text_width(longer, 12) <= PLOT_RIGHT - TITLE_LEFT; /* blanks and points are narrow */
    if (line && !fits) draw_line(t, line);
    line = fits ? longer : head.text[i];
  }
  draw_line(t, line);
}

static const char *bound_text(const Timeline *t) {
  const PlanSummary *summary = &t->plan->summary;
  char bound[32];
  if (!summary->lower_bound_ns) return "";
  return arena_printf(t->scratch, "bound by %s: no plan with units of the sizes tried takes less than %s", plan_str(t->plan, summary->bound_by),
                      text_time(bound, (double)summary->lower_bound_ns));
}

/* As many letters as can be read at the size that is left for them. */
static const char *title_name(const Timeline *t) {
  const char *name = plan_str(t->plan, t->plan->model), *end = name;
  for (int letters = 0; *end && letters < TITLE_LETTERS; letters++) end += text_utf8_length(end) ? text_utf8_length(end) : 1;
  return *end ? arena_printf(t->scratch, "%.*s\u2026", (int)(end - name), name) : name;
}

static void draw_title(Timeline *t) {
  char time[32];
  const char *model = title_name(t);
  double room = PLOT_RIGHT - TITLE_LEFT - 200;    /* beside the time of a step */
  double width = 1.9 * svg_text_width(model, 24); /* of letters that are all as wide as W in bold */
  double size = fmin(24, 24 * room / width);
  svg_text(t->out, TITLE_LEFT, 40, size, "start", INK, " font-weight=\"700\"", model);
  svg_text(t->out, PLOT_RIGHT, 40, 22, "end", INK, " font-weight=\"600\"",
           arena_printf(t->scratch, "%s a step", text_time(time, (double)t->sim->step_ns)));
  t->y = 64;
  draw_head(t, world_head(t));
  draw_head(t, memory_head(t));
  svg_text(t->out, TITLE_LEFT, t->y, 13.5, "start", INK_SOFT, "", bound_text(t));
  t->y += 20;
}

/* The longest text that fits: how often a segment runs says more than how long it takes. NULL: none does. */
static const char *segment_label(const Timeline *t, uint32_t s, double width) {
  const PlanSegment *segment = &t->plan->segments.data[s];
  char time[32];
  text_time(time, (double)t->sim->segment_ns[s]);
  const char *name = plan_str(t->plan, segment->name), *often = name;
  if (segment->count > 1) often = arena_printf(t->scratch, "%s \xc3\x97 %llu", name, (unsigned long long)segment->count);
  const char *labels[] = {arena_printf(t->scratch, "%s, %s%s", often, time, segment->count > 1 ? " each" : ""), often, name};
  for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
    if (svg_text_width(labels[i], 12) + 8 < width) return labels[i];
  return NULL;
}

/* A strip with the name of each segment and how often it runs. */
static void draw_segments(Timeline *t) {
  for (uint32_t s = 0; s < t->plan->segments.count; s++) {
    double x = timeline_x(t, t->begin_ns[s]), width = timeline_x(t, t->begin_ns[s] + t->sim->segment_ns[s]) - x;
    svg_rect(t->out, x + 0.5, t->y, width > 1 ? width - 1 : width, STRIP_HEIGHT, s % 2 ? "#dfe6ef" : "#ebeff5", " rx=\"3\"");
    const char *label = segment_label(t, s, width);
    if (label) svg_text(t->out, x + width / 2, t->y + 14, 12, "middle", INK, "", label);
  }
  t->y += 28;
}

typedef struct TimeUnit {
  const char *name;
  double ns;
} TimeUnit;

/* As text_time chooses it. */
static TimeUnit time_unit(uint64_t total_ns) {
  return total_ns < 1000000 ? (TimeUnit){"us", 1e3} : total_ns < 1000000000 ? (TimeUnit){"ms", 1e6} : (TimeUnit){"s", 1e9};
}

/* Lines behind everything else, over the lanes and over the memory curve; figures below. */
static void draw_grid(Timeline *t, const double bands[2][2]) {
  TimeUnit unit = time_unit(t->total_ns);
  double step = svg_step((double)t->total_ns / unit.ns, 10, false);
  for (double at = 0; at * unit.ns <= (double)t->total_ns; at += step) {
    double x = timeline_x(t, (uint64_t)(at * unit.ns));
    for (int band = 0; band < 2; band++) svg_line(t->out, x, bands[band][0], x, bands[band][1], GRID, "");
    const char *label = arena_printf(t->scratch, at == 0 ? "%g %s" : "%g", at, unit.name);
    svg_text(t->out, x, bands[1][1] + 19, 11, "middle", INK_SOFT, "", label);
  }
}

static Timeline start(Arena *scratch, Text *out, const Plan *plan, const SimResult *sim) {
  Timeline t = {.scratch = scratch, .out = out, .plan = plan, .sim = sim};
  uint64_t simulated = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    t.begin_ns[s] = t.total_ns;
    t.shift_ns[s] = simulated - t.total_ns;
    t.total_ns += sim->segment_ns[s];
    simulated += sim->segment_ns[s] * plan->segments.data[s].count;
  }
  if (!t.total_ns) t.total_ns = 1;
  t.digits = widest_number(&t);
  return t;
}

static int lane_count(const Timeline *t) {
  int count = 0;
  for (int s = 0; s < STREAM_COUNT; s++) count += !lane_is_empty(t, (StreamId)s);
  return count;
}

void view_timeline_svg(Text *out, const Plan *plan, const SimResult *sim) {
  Arena *scratch = arena_new();
  Text body = {.arena = scratch};
  Timeline t = start(scratch, &body, plan, sim);
  draw_title(&t);
  draw_segments(&t);
  double top = t.y, bottom = top + UNIT_HEIGHT + lane_count(&t) * (LANE_HEIGHT + LANE_GAP), memory_top = bottom + 44;
  draw_grid(&t, (const double[2][2]){{top, bottom}, {memory_top, memory_top + MEMORY_HEIGHT}});
  draw_units(&t);
  draw_lanes(&t);
  timeline_joins(&t, top, bottom);
  draw_phase_legend(&t);
  t.y = memory_top;
  timeline_memory(&t);
  text_printf(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\" "
      "font-family=\"Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
      "<style>.halo{paint-order:stroke;stroke:#ffffff;stroke-width:3px;stroke-linejoin:round}</style>\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      PAGE_WIDTH, t.y + 12, PAGE_WIDTH, t.y + 12);
  text_add(out, body.data, body.length);
  text_printf(out, "</svg>\n");
  arena_free(scratch);
}
