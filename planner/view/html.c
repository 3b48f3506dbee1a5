/* Owns: the page of the report: head, words, tables. The schedule is drawn twice: by timeline.c for readers without
 * JavaScript, and by report/report.js, which replaces that. */
#include "planner/view/html.h"

#include "planner/view/assets.h"
#include "planner/view/explain.h"
#include "planner/view/reasons.h"
#include "planner/view/svg.h"
#include "planner/view/view.h"

static const char *ms(const Report *r, uint64_t ns) {
  char buffer[32];
  return ns ? arena_strdup(r->f->arena, text_time(buffer, (double)ns)) : "&ndash;";
}

static const char *size(const Report *r, uint64_t bytes) {
  char buffer[32];
  return bytes ? arena_strdup(r->f->arena, text_bytes(buffer, bytes)) : "&ndash;";
}

static const char *number(const Report *r, double value) {
  char buffer[32];
  return arena_strdup(r->f->arena, text_count(buffer, value));
}

static void escaped(const Report *r, const char *text) {
  svg_escaped(r->out, text);
}

/* --- head ---------------------------------------------------------------------------------------------- */

static void card(const Report *r, const char *label, const char *value, const char *note) {
  text_printf(r->out, "<div class=\"card\"><span>%s</span><b>%s</b><small>%s</small></div>\n", label, value, note);
}

static void cards(const Report *r) {
  const Plan *plan = r->f->plan;
  const SimResult *sim = r->f->sim;
  Arena *arena = r->f->arena;
  double exposed = sim->step_ns ? 100 * (double)sim->exposed_comm_ns / (double)sim->step_ns : 0,
         gap = plan->summary.lower_bound_ns && sim->step_ns > plan->summary.lower_bound_ns ? 100 * ((double)sim->step_ns / (double)plan->summary.lower_bound_ns - 1) : 0,
         used = plan->summary.budget_bytes ? 100 * (double)plan->arena_bytes / (double)plan->summary.budget_bytes : 0;
  text_printf(r->out, "<section class=\"cards\">\n");
  card(r, "step, predicted", ms(r, sim->step_ns), plan->summary.lower_bound_ns ? arena_printf(arena, "%.1f %% above the lower bound", gap) : "");
  if (r->measured)
    card(r, "step, measured", ms(r, r->measured->sim->step_ns),
         arena_printf(arena, "%.2f of the prediction", (double)r->measured->sim->step_ns / (double)sim->step_ns));
  card(r, "exposed communication", ms(r, sim->exposed_comm_ns), arena_printf(arena, "%.1f %% of the step", exposed));
  card(r, "memory", size(r, plan->arena_bytes),
       arena_printf(arena, "%s%s", plan->summary.budget_bytes ? arena_printf(arena, "%.0f %% of %s", used, size(r, plan->summary.budget_bytes)) : "no budget",
                    r->f->beside.parts ? arena_printf(arena, ", and %s beside it", size(r, r->f->beside.bytes)) : ""));
  card(r, "units", arena_printf(arena, "%u", plan->units.count), arena_printf(arena, "%s parameters", number(r, (double)plan->param_numel)));
  card(r, "ranks", arena_printf(arena, "%u", plan->world.ranks),
       arena_printf(arena, "%u shard%s &times; %u replica%s", plan->world.shard, text_plural(plan->world.shard), plan->world.replicas,
                    text_plural(plan->world.replicas)));
  card(r, "micro-batch", arena_printf(arena, "%llu &times; %llu", (unsigned long long)plan->world.micro_batch, (unsigned long long)plan->world.accumulation),
       "samples a rank &times; accumulated");
  text_printf(r->out, "</section>\n");
}

/* --- words --------------------------------------------------------------------------------------------- */

static void policy(const Report *r) {
  const Plan *plan = r->f->plan;
  const PlanSummary *s = &plan->summary;
  Reasons reasons = reasons_of(r->f, true);
  text_printf(r->out, "<p><b>Why this policy.</b> Strategy <code>");
  escaped(r, plan_strategy(r->f->arena, plan));
  text_printf(r->out, "</code>, wrap <code>");
  escaped(r, plan_str(plan, s->wrap));
  text_printf(r->out, "</code>, checkpoint <code>");
  escaped(r, plan_str(plan, s->checkpoint));
  text_printf(r->out, "</code>%s.", plan->world.shard == 1 ? "" : arena_printf(r->f->arena, ", gathered %u unit%s ahead", s->prefetch, text_plural(s->prefetch)));
  for (uint32_t k = 0; k < reasons.count; k++) {
    text_printf(r->out, " ");
    escaped(r, reasons.data[k]);
  }
  text_printf(r->out, " <code>fsdpc explain FILE --why UNIT</code> says what each alternative would have cost.</p>\n");
}

static void how_to_read(const Report *r) {
  uint64_t by_class[BUF_CLASS_COUNT];
  int32_t at;
  plan_peak(r->f->plan, by_class, &at);
  const PlanInstr *peak = &r->f->plan->instrs.data[at];
  text_printf(r->out, "<p><b>How to read this.</b> A <i>unit</i> is a group of parameters that travel together: before its layers compute, its "
                      "shards are gathered from all ranks into one tensor; afterwards that is released or kept for backward, and gradients are "
                      "reduced back to shards. The top row below says which unit computes, each lane what a queue of the device does; "
                      "what stands above each other overlaps. Compute waits wherever its lane is empty while gather or reduce is busy: "
                      "that is exposed communication. Memory peaks at %s, in <code>%s ", size(r, r->f->live_bytes[at]), r->f->specs[peak->op].name);
  escaped(r, plan_str(r->f->plan, peak->name));
  text_printf(r->out, "</code> (%s), counted in the order of the plan's list, by which addresses are given; over time, as drawn, it can differ a "
                      "little.</p>\n",
              phase_name(peak->phase));
}

/* --- tables -------------------------------------------------------------------------------------------- */

static void bar(const Report *r, double share) {
  text_printf(r->out, "<td class=\"bar\"><i style=\"--share:%.3f\"></i><span>%.1f %%</span></td>", share / 100, share);
}

static void shares(const Report *r) {
  const Facts *f = r->f;
  text_printf(r->out, "<h2>Where the time goes</h2><div class=\"scroll\"><table><tr><th>part of the step<th class=\"n\">predicted%s<th>share</tr>\n",
              r->measured ? "<th class=\"n\">measured" : "");
  for (int s = 0; s < SHARE_COUNT; s++) {
    if (!f->share_ns[s] && !(r->measured && r->measured->share_ns[s])) continue;
    text_printf(r->out, "<tr><td>%s<td class=\"n\">%s", share_name((Share)s), ms(r, f->share_ns[s]));
    if (r->measured) text_printf(r->out, "<td class=\"n\">%s", ms(r, r->measured->share_ns[s]));
    bar(r, f->sim->step_ns ? 100 * (double)f->share_ns[s] / (double)f->sim->step_ns : 0);
    text_printf(r->out, "</tr>\n");
  }
  if (f->launch_ns) {
    text_printf(r->out, "<tr><td>launching (part of the above)<td class=\"n\">%s%s", ms(r, f->launch_ns), r->measured ? "<td>" : "");
    bar(r, 100 * (double)f->launch_ns / (double)f->sim->step_ns);
    text_printf(r->out, "</tr>\n");
  }
  text_printf(r->out, "</table></div>\n");
}

static void ceilings(const Report *r) {
  static const char *const names[] = {[WITHOUT_GATHER] = "gathers were free",   [WITHOUT_REDUCE] = "reductions were free",
                                      [WITHOUT_RECOMPUTE] = "nothing was recomputed", [WITHOUT_UPDATE] = "the optimizer was free",
                                      [WITHOUT_COMPUTE] = "computation was free", [WITHOUT_LAUNCH] = "launching was free"};
  text_printf(r->out, "<h2>Ceilings</h2><p class=\"soft\">The whole step simulated with one kind of work taking no time.</p>"
                      "<div class=\"scroll\"><table><tr><th>the step if<th class=\"n\">takes<th class=\"n\">speed-up</tr>\n");
  for (int w = WITHOUT_GATHER; w <= WITHOUT_LAUNCH; w++) {
    uint64_t ns = step_without(r->f->plan, (Without)w);
    if (ns == r->f->sim->step_ns) continue;
    text_printf(r->out, "<tr><td>%s<td class=\"n\">%s<td class=\"n\">%s&times;</tr>\n", names[w], ms(r, ns),
                speed_up(r->f->arena, r->f->sim->step_ns, ns));
  }
  text_printf(r->out, "</table></div>\n");
}

static void peak(const Report *r) {
  uint64_t by_class[BUF_CLASS_COUNT];
  int32_t at;
  plan_peak(r->f->plan, by_class, &at);
  LiveGroups groups = live_groups(r->f->arena, r->f->plan, at);
  text_printf(r->out, "<h2>Memory at the peak</h2><div class=\"scroll\"><table><tr><th>what<th class=\"n\">bytes<th>share</tr>\n");
  for (int c = 0; c < BUF_CLASS_COUNT; c++) {
    if (!by_class[c]) continue;
    text_printf(r->out, "<tr><td><i class=\"key c%d\"></i>%s<td class=\"n\">%s", c, buf_class_name((BufClass)c), size(r, by_class[c]));
    bar(r, 100 * (double)by_class[c] / (double)r->f->live_bytes[at]);
    text_printf(r->out, "</tr>\n");
  }
  text_printf(r->out, "</table></div><details open><summary>largest buffers there</summary><div class=\"scroll\"><table><tr><th>buffers<th>class<th class=\"n\">count<th class=\"n\">bytes</tr>\n");
  for (uint32_t g = 0; g < groups.count && g < 12; g++) {
    text_printf(r->out, "<tr><td class=\"long\">");
    escaped(r, groups.data[g].name);
    text_printf(r->out, "<td>%s<td class=\"n\">%u<td class=\"n\">%s</tr>\n", buf_class_name(groups.data[g].class), groups.data[g].count,
                size(r, groups.data[g].bytes));
  }
  text_printf(r->out, "</table></div></details>\n");
}

static void unit_row(const Report *r, int32_t u) {
  const Facts *f = r->f;
  const PlanUnit *unit = &f->plan->units.data[u];
  const UnitFact *fact = &f->units[u];
  text_printf(r->out, "<tr data-unit=\"%d\"><td><span class=\"unit h%d\" data-unit=\"%d\">", u, unit_hue(f->plan, u), u);
  escaped(r, plan_str(f->plan, unit->name));
  text_printf(r->out, "</span><td class=\"n\">%s<td class=\"n\">%d<td>%s<td class=\"n\">%s<td class=\"n\">%llu<td class=\"n\">%s<td class=\"n\">%s<td class=\"n\">%s<td class=\"n\">%s",
              number(r, (double)unit->numel), unit->param_count,
              f->plan->world.shard == 1 ? "whole" : unit->reshard ? "released" : "kept", size(r, fact->gather_bytes),
              (unsigned long long)fact->gathers, ms(r, fact->gather_ns), ms(r, fact->reduce_ns + fact->replicate_ns),
              ms(r, fact->compute_ns + fact->recompute_ns + fact->update_ns), ms(r, fact->exposed_ns));
  if (r->measured) {
    const UnitFact *m = &r->measured->units[u];
    text_printf(r->out, "<td class=\"n\">%s<td class=\"n\">%s", ms(r, m->compute_ns + m->recompute_ns + m->update_ns),
                ms(r, m->gather_ns + m->reduce_ns + m->replicate_ns));
  }
  text_printf(r->out, "</tr>\n");
}

static void units(const Report *r) {
  const int32_t *order = units_by_use(r->f);
  text_printf(r->out, "<h2>Units</h2><p class=\"soft\">In the order of their first use; times of a whole step. Point at one to see it in the schedule.</p>"
                      "<div class=\"scroll tall\"><table class=\"units\"><thead><tr><th>unit<th class=\"n\">elements<th class=\"n\">tensors<th>after forward<th class=\"n\">gathered"
                      "<th class=\"n\">gathers<th class=\"n\">gathering<th class=\"n\">reducing<th class=\"n\">computing<th class=\"n\">exposed%s</tr></thead><tbody>\n",
              r->measured ? "<th class=\"n\">computing, measured<th class=\"n\">communicating, measured" : "");
  for (uint32_t i = 0; i < r->f->plan->units.count; i++) unit_row(r, order[i]);
  text_printf(r->out, "</tbody></table></div>\n");
}

/* --- the page ------------------------------------------------------------------------------------------ */

static void schedule(const Report *r) {
  text_printf(r->out, "<h2>Schedule and memory</h2>\n<div id=\"schedule\" hidden><div class=\"tools\"><button id=\"in\" title=\"zoom in\">+</button>"
                      "<button id=\"out\" title=\"zoom out\">&minus;</button><button id=\"all\">whole step</button>"
                      "<span class=\"soft\">wheel zooms, dragging moves, a click marks a unit%s</span></div>"
                      "<canvas id=\"canvas\" tabindex=\"0\" aria-label=\"schedule of one step and memory over time\"></canvas>"
                      "<div id=\"legend\"></div></div>\n<div id=\"tip\" hidden></div>\n<figure id=\"drawing\">\n",
              !r->measured ? "" : arena_printf(r->f->arena, "; thin rows: as measured, %s scaled to the %s predicted", ms(r, r->measured->sim->step_ns), ms(r, r->f->sim->step_ns)));
  view_timeline_svg(r->out, r->f->plan, r->f->sim);
  text_printf(r->out, "</figure>\n");
}

static void explanation(const Report *r) {
  Text text = {.arena = r->f->arena};
  view_explain(&text, r->f, &(ExplainStyle){.costs = true, .color = false, .width = 110});
  text_printf(r->out, "<details><summary>The same in words, as <code>fsdpc explain</code> prints it</summary><div class=\"scroll\"><pre>");
  for (char *line = text.data, *end; line && *line; line = end) { /* line by line: newlines are kept */
    end = strchr(line, '\n');
    if (end) *end++ = 0;
    escaped(r, line);
    text_printf(r->out, "\n");
    if (!end) break;
  }
  text_printf(r->out, "</pre></div></details>\n");
}

static void head(const Report *r) {
  text_printf(r->out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\"><title>");
  escaped(r, plan_str(r->f->plan, r->f->plan->model));
  text_printf(r->out, ": a training step</title>\n<style>\n%s</style></head><body>\n<header><h1>", asset_report_css);
  escaped(r, plan_str(r->f->plan, r->f->plan->model));
  text_printf(r->out, "</h1><p class=\"soft\">one training step as planned by fsdpc, from ");
  escaped(r, plan_str(r->f->plan, r->f->plan->source_path));
  if (*plan_str(r->f->plan, r->f->plan->cluster)) {
    text_printf(r->out, ", on ");
    escaped(r, plan_str(r->f->plan, r->f->plan->cluster));
  }
  text_printf(r->out, "</p></header>\n<main>\n");
}

void view_html(Text *out, const Plan *plan, const SimResult *sim, const SimResult *measured, Beside beside) {
  Arena *arena = arena_new();
  Report r = {out, facts_of(arena, plan, sim), measured ? facts_of(arena, plan, measured) : NULL};
  r.f->beside = beside;
  head(&r);
  cards(&r);
  how_to_read(&r);
  policy(&r);
  schedule(&r);
  text_printf(out, "<div class=\"columns\"><section>\n");
  shares(&r);
  ceilings(&r);
  text_printf(out, "</section><section>\n");
  peak(&r);
  text_printf(out, "</section></div>\n");
  units(&r);
  text_printf(out, "<h2>Wrap tree</h2><p class=\"soft\">Modules, parameters and the unit each travels in.</p>\n");
  html_tree(&r);
  explanation(&r);
  text_printf(out, "</main>\n<script type=\"application/json\" id=\"data\">");
  html_data(&r);
  text_printf(out, "</script>\n<script>\n%s</script>\n</body></html>\n", asset_report_js);
  arena_free(arena);
}
