/* Owns: `explain`'s tree and tables. Neighbours that are alike are one row, so that 126 blocks read like three. */
#include "planner/view/explain.h"

#include "planner/view/reasons.h"

#include <stdio.h>

enum { NAME_LEAST = 16, NAME_MOST = 48, GROUPS_MOST = 10 };

#define BOLD  "\033[1m"
#define DIM   "\033[2m"
#define RED   "\033[31m"
#define PLAIN "\033[0m"

typedef struct Page {
  Text *out;
  const Facts *f;
  const ExplainStyle *style;
  int name_width;
} Page;

static const char *on(const Page *page, const char *code) {
  return page->style->color ? code : "";
}

static const char *ms(const Facts *f, uint64_t ns) {
  char buffer[32];
  return ns ? arena_strdup(f->arena, text_time(buffer, (double)ns)) : "-";
}

static const char *size(const Facts *f, uint64_t bytes) {
  char buffer[32];
  return bytes ? arena_strdup(f->arena, text_bytes(buffer, bytes)) : "-";
}

static const char *number(const Facts *f, double value) {
  char buffer[32];
  return arena_strdup(f->arena, text_count(buffer, value));
}

static void heading(const Page *page, const char *text) {
  text_printf(page->out, "\n%s%s%s\n", on(page, BOLD), text, on(page, PLAIN));
}

/* --- rows ---------------------------------------------------------------------------------------------- */

/* Rows of units that are used alike: every `stride`-th of passes[first ..], `count` in all. */
typedef struct Run {
  uint32_t first, stride, count;
} Run;

static bool rows_alike(const void *context, uint32_t first, uint32_t second) {
  const Facts *f = context;
  const PassFact *a = &f->passes.data[first], *b = &f->passes.data[second];
  return a->segment == b->segment && a->pass == b->pass && units_alike(f->plan, a->unit, b->unit) &&
         a->gather_bytes == b->gather_bytes && a->reduce_bytes == b->reduce_bytes;
}

static const char *unit_name(const Facts *f, int32_t unit) {
  return unit == PLAN_NONE ? "(no unit)" : plan_str(f->plan, f->plan->units.data[unit].name);
}

/* "h.0 .. 11", or what stands for instructions of no unit. */
static const char *run_name(const Facts *f, Run run) {
  uint32_t last = run.first + (run.count - 1) * run.stride;
  return range_name(f->arena, unit_name(f, f->passes.data[run.first].unit), unit_name(f, f->passes.data[last].unit));
}

/* Sums of times over the run, the most of live bytes, sizes of one. */
static PassFact run_sum(const Facts *f, Run run) {
  PassFact sum = f->passes.data[run.first];
  for (uint32_t k = 1; k < run.count; k++) {
    const PassFact *row = &f->passes.data[run.first + k * run.stride];
    sum.compute_ns += row->compute_ns;
    sum.recompute_ns += row->recompute_ns;
    sum.gather_ns += row->gather_ns;
    sum.reduce_ns += row->reduce_ns;
    sum.exposed_ns += row->exposed_ns;
    if (row->live_bytes > sum.live_bytes) sum.live_bytes = row->live_bytes;
  }
  return sum;
}

/* The tail that fits, after "..". */
static const char *cut(const Page *page, const char *name, int width) {
  int length = (int)strlen(name);
  return length <= width ? name : arena_printf(page->f->arena, "..%s", name + length - width + 2);
}

static void print_row(const Page *page, int depth, const char *name, uint32_t count, const PassFact *row, bool sizes) {
  char times[24] = "";
  if (count > 1) snprintf(times, sizeof times, " x%u", count);
  int width = page->name_width - 2 * depth - (int)strlen(times);
  const char *shown = cut(page, name, width > 4 ? width : 4);
  text_printf(page->out, "%*s%s%s%-*s%s", 2 * depth, "", depth < 2 ? on(page, BOLD) : "", shown,
              page->name_width - 2 * depth - (int)strlen(shown), times, on(page, PLAIN));
  if (page->style->costs) {
    bool bad = row->exposed_ns * 20 > row->compute_ns + row->recompute_ns && row->exposed_ns;
    text_printf(page->out, " %9s %9s %s%9s%s", ms(page->f, row->compute_ns), ms(page->f, row->recompute_ns),
                bad ? on(page, RED) : "", ms(page->f, row->exposed_ns), on(page, PLAIN));
  }
  if (sizes)
    text_printf(page->out, " %10s %10s %10s", size(page->f, row->live_bytes), size(page->f, row->gather_bytes),
                size(page->f, row->reduce_bytes));
  text_printf(page->out, "\n");
}

/* --- the tree ------------------------------------------------------------------------------------------ */

static int widest_name(const Facts *f) {
  int width = NAME_LEAST;
  for (uint32_t i = 0; i < f->passes.count;) {
    Repeat repeat = find_repeat(i, f->passes.count, rows_alike, f);
    for (uint32_t place = 0; place < repeat.period; place++) {
      int length = (int)strlen(run_name(f, (Run){i + place, repeat.period, repeat.count})) + 4 + (repeat.count > 1 ? 5 : 0);
      if (length > width) width = length;
    }
    i += repeat.period * repeat.count;
  }
  return width;
}

static void find_width(Page *page) {
  int columns = page->style->costs ? 63 : 33, room = page->style->width - columns;
  page->name_width = widest_name(page->f);
  if (page->name_width > NAME_MOST) page->name_width = NAME_MOST;
  if (page->name_width > room) page->name_width = room > NAME_LEAST ? room : NAME_LEAST;
}

static void print_columns(const Page *page) {
  text_printf(page->out, "%s%-*s", on(page, DIM), page->name_width, "");
  if (page->style->costs) text_printf(page->out, " %9s %9s %9s", "compute", "recompute", "exposed");
  text_printf(page->out, " %10s %10s %10s%s\n", "live", "gather", "reduce", on(page, PLAIN));
}

static void print_run(const Page *page, Run run) {
  PassFact sum = run_sum(page->f, run);
  if (!sum.live_bytes && !sum.gather_ns && !sum.reduce_ns) return; /* copies of inputs */
  print_row(page, 2, run_name(page->f, run), run.count, &sum, true);
}

/* One pass of one segment: its total, then its units. Returns where the next begins. */
static uint32_t print_pass(const Page *page, uint32_t first) {
  const Facts *f = page->f;
  const PassFact *head = &f->passes.data[first];
  uint32_t end = first;
  while (end < f->passes.count && f->passes.data[end].segment == head->segment && f->passes.data[end].pass == head->pass)
    end++;
  PassFact sum = run_sum(f, (Run){first, 1, end - first});
  sum.gather_bytes = sum.reduce_bytes = 0;
  print_row(page, 1, pass_name(head->pass), 1, &sum, true);
  for (uint32_t i = first; i < end;) {
    Repeat repeat = find_repeat(i, end, rows_alike, f);
    for (uint32_t place = 0; place < repeat.period; place++) print_run(page, (Run){i + place, repeat.period, repeat.count});
    i += repeat.period * repeat.count;
  }
  return end;
}

static void print_segment(const Page *page, int32_t s, uint32_t *row) {
  const Facts *f = page->f;
  const PlanSegment *segment = &f->plan->segments.data[s];
  text_printf(page->out, "%s%s", on(page, BOLD), plan_str(f->plan, segment->name));
  if (segment->count > 1) text_printf(page->out, " x%llu", (unsigned long long)segment->count);
  text_printf(page->out, "%s", on(page, PLAIN));
  if (page->style->costs && segment->count > 1)
    text_printf(page->out, "  %s each, %s in all", ms(f, f->sim->segment_ns[s]),
                ms(f, f->sim->segment_ns[s] * segment->count));
  else if (page->style->costs)
    text_printf(page->out, "  %s", ms(f, f->sim->segment_ns[s]));
  text_printf(page->out, "\n");
  while (*row < f->passes.count && f->passes.data[*row].segment == s) *row = print_pass(page, *row);
}

static void print_tree(const Page *page) {
  uint32_t row = 0;
  heading(page, "Step: segments, passes, units in the order they are used");
  print_columns(page);
  for (uint32_t s = 0; s < page->f->plan->segments.count; s++) print_segment(page, (int32_t)s, &row);
  text_printf(page->out, "%s", on(page, DIM));
  text_wrap(page->out, "live: most memory in use while the unit computes. gather, reduce: bytes of one unit's full tensor", 0, page->style->width);
  text_printf(page->out, "%s\n", on(page, PLAIN));
}

/* --- head, units --------------------------------------------------------------------------------------- */

static void print_reason(const Page *page, const char *text) {
  text_printf(page->out, "  ");
  text_wrap(page->out, text, 2, page->style->width);
  text_printf(page->out, "\n");
}

static void print_head(const Page *page) {
  const Plan *plan = page->f->plan;
  const PlanWorld *world = &plan->world;
  text_printf(page->out, "%s%s%s: %s parameters in %u unit%s, %u rank%s (shard %u x replicas %u)", on(page, BOLD),
              plan_str(plan, plan->model), on(page, PLAIN), number(page->f, (double)plan->param_numel), plan->units.count, text_plural(plan->units.count),
              world->ranks, text_plural(world->ranks), world->shard, world->replicas);
  if (*plan_str(plan, plan->cluster)) text_printf(page->out, " on %s", plan_str(plan, plan->cluster));
  text_printf(page->out, "\nmicro-batch %llu x %llu, strategy %s, wrap %s, checkpoint %s, prefetch %u\n",
              (unsigned long long)world->micro_batch, (unsigned long long)world->accumulation,
              plan_strategy(page->f->arena, plan), plan_str(plan, plan->summary.wrap),
              plan_str(plan, plan->summary.checkpoint), plan->summary.prefetch);
  if (!page->style->costs) return;
  const SimResult *sim = page->f->sim;
  text_printf(page->out, "step %s", ms(page->f, sim->step_ns));
  if (plan->overlap.compute_spread > 0 || plan->overlap.comm_spread > 0)
    text_printf(page->out, " (%s to %s)", ms(page->f, sim->fast_ns), ms(page->f, sim->slow_ns));
  if (sim->exposed_comm_ns) text_printf(page->out, ", of which %s of communication is exposed\n", ms(page->f, sim->exposed_comm_ns));
  else text_printf(page->out, ", no communication is exposed\n");
}

static void print_reasons(const Page *page) {
  Reasons reasons = reasons_of(page->f, page->style->costs);
  heading(page, "Why");
  for (uint32_t k = 0; k < reasons.count; k++) print_reason(page, reasons.data[k]);
}

static const char *policy(const Facts *f, int32_t u) {
  if (f->plan->world.shard == 1) return "whole on every rank";
  if (!f->units[u].gathers) return "never gathered";
  if (f->units[u].gathers_again) return "released after forward, gathered again";
  return f->plan->units.data[u].reshard ? "gathered for forward alone" : arena_printf(f->arena, "stays gathered %s", gathered_until(f->plan));
}

static void print_unit(const Page *page, int32_t first, int32_t last, uint32_t count) {
  const Facts *f = page->f;
  const PlanUnit *unit = &f->plan->units.data[first];
  char times[24] = "";
  if (count > 1) snprintf(times, sizeof times, " x%u", count);
  int room = page->name_width - 2 - (int)strlen(times);
  const char *name = cut(page, range_name(f->arena, unit_name(f, first), unit_name(f, last)), room);
  text_printf(page->out, "  %s%-*s %9s elements, %d tensor%s; %s%s\n", name, page->name_width - 2 - (int)strlen(name), times,
              number(f, (double)unit->numel), unit->param_count, text_plural(unit->param_count),
              plan_unit_frozen(f->plan, unit) ? "frozen, " : "", policy(f, first));
}

static void print_units(const Page *page) {
  UnitOrder order = {page->f->plan, units_by_use(page->f)};
  heading(page, "Units");
  for (uint32_t i = 0; i < page->f->plan->units.count;) {
    Repeat repeat = find_unit_repeat(&order, i);
    for (uint32_t place = i; place < i + repeat.period; place++)
      print_unit(page, order.units[place], order.units[place + (repeat.count - 1) * repeat.period], repeat.count);
    i += repeat.period * repeat.count;
  }
}

/* --- the peak ------------------------------------------------------------------------------------------ */

static void print_parts(const Page *page, const char *name, uint64_t bytes, const char *parts) {
  text_printf(page->out, "  %-16s %10s  ", name, size(page->f, bytes));
  text_wrap(page->out, parts, 31, page->style->width);
  text_printf(page->out, "\n");
}

static void print_peak(const Page *page) {
  const Facts *f = page->f;
  uint64_t by_class[BUF_CLASS_COUNT];
  int32_t at;
  plan_peak(f->plan, by_class, &at);
  const PlanInstr *instr = &f->plan->instrs.data[at];
  heading(page, arena_printf(f->arena, "Peak: %s live at i%d, %s of %s (%s)", size(f, f->live_bytes[at]), at,
                             f->specs[instr->op].name, plan_str(f->plan, instr->name), phase_name(instr->phase)));
  for (int c = 0; c < BUF_CLASS_COUNT; c++)
    if (by_class[c])
      text_printf(page->out, "  %-16s %10s  %5.1f %%\n", buf_class_name((BufClass)c), size(f, by_class[c]),
                  100 * (double)by_class[c] / (double)f->live_bytes[at]);
  text_printf(page->out, "  %-16s %10s", "arena", size(f, f->plan->arena_bytes));
  if (f->plan->summary.budget_bytes) text_printf(page->out, "  of a budget of %s", size(f, f->plan->summary.budget_bytes));
  text_printf(page->out, "\n");
  if (f->beside.parts) print_parts(page, "beside the arena", f->beside.bytes, f->beside.parts);
  if (f->plan->host_bytes) print_parts(page, "host memory", f->plan->host_bytes, plan_host_text(f->arena, f->plan));
  text_printf(page->out, "  largest there:\n");
  LiveGroups groups = live_groups(f->arena, f->plan, at);
  for (uint32_t g = 0; g < groups.count && g < GROUPS_MOST; g++) {
    const LiveGroup *group = &groups.data[g];
    text_printf(page->out, "    %10s  %-15s %s", size(f, group->bytes), buf_class_name(group->class), group->name);
    if (group->count > 1 && group->least == group->most) text_printf(page->out, "  %u x %s", group->count, size(f, group->most));
    if (group->least < group->most) text_printf(page->out, "  %u of %s to %s", group->count, size(f, group->least), size(f, group->most));
    text_printf(page->out, "\n");
  }
}

/* --- where time goes ----------------------------------------------------------------------------------- */

static void print_shares(const Page *page) {
  const Facts *f = page->f;
  heading(page, arena_printf(f->arena, "Where the time goes (%s a step)", ms(f, f->sim->step_ns)));
  for (int s = 0; s < SHARE_COUNT; s++)
    if (f->share_ns[s])
      text_printf(page->out, "  %-18s %10s  %5.1f %%\n", share_name((Share)s), ms(f, f->share_ns[s]),
                  100 * (double)f->share_ns[s] / (double)f->sim->step_ns);
}

static void print_launching(const Page *page) {
  const Facts *f = page->f;
  if (!f->launch_ns) return;
  text_printf(page->out, "  %-18s %10s  %5.1f %%  part of the above: %u launches of %s\n", "launching", ms(f, f->launch_ns),
              100 * (double)f->launch_ns / (double)f->sim->step_ns, f->launches, ms(f, f->plan->summary.launch_ns));
}

static void print_ceilings(const Page *page) {
  static const struct {
    Without what;
    const char *text;
  } rows[] = {{WITHOUT_GATHER, "gathers were free"},       {WITHOUT_REDUCE, "reductions were free"},
              {WITHOUT_RECOMPUTE, "nothing was recomputed"}, {WITHOUT_LAUNCH, "launching was free"},
              {WITHOUT_UPDATE, "the optimizer was free"}, {WITHOUT_COMPUTE, "computation was free"}};
  const Facts *f = page->f;
  heading(page, "Ceilings: the step if");
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    if (rows[r].what == WITHOUT_RECOMPUTE && !f->share_ns[SHARE_RECOMPUTE]) continue;
    if (rows[r].what == WITHOUT_GATHER && f->plan->world.shard == 1) continue;
    if (rows[r].what == WITHOUT_REDUCE && f->plan->world.ranks == 1) continue;
    if (rows[r].what == WITHOUT_LAUNCH && !f->plan->summary.launch_ns) continue;
    uint64_t ns = step_without(f->plan, rows[r].what);
    text_printf(page->out, "  %-24s %10s  %sx as fast\n", rows[r].text, ms(f, ns), speed_up(f->arena, f->sim->step_ns, ns));
  }
  if (f->plan->summary.lower_bound_ns)
    text_printf(page->out, "  %-24s %10s  bound by %s\n", "(lower bound)",
                ms(f, f->plan->summary.lower_bound_ns), plan_str(f->plan, f->plan->summary.bound_by));
}

void view_explain(Text *out, const Facts *facts, const ExplainStyle *style) {
  Page page = {.out = out, .f = facts, .style = style};
  find_width(&page);
  print_head(&page);
  print_reasons(&page);
  print_units(&page);
  print_tree(&page);
  print_peak(&page);
  if (!style->costs) return;
  print_shares(&page);
  print_launching(&page);
  print_ceilings(&page);
}
