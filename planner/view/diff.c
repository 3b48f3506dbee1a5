/* Owns: see diff.h. */
#include "planner/view/diff.h"

#include <stdio.h>

typedef struct Sides {
  Text *out;
  const Facts *a, *b;
  const PlanDiff *diff;
  const ExplainStyle *style;
} Sides;

uint64_t unit_ns(const UnitFact *u) {
  return u->compute_ns + u->recompute_ns + u->update_ns + u->gather_ns + u->reduce_ns + u->replicate_ns;
}

/* --- what differs -------------------------------------------------------------------------------------- */

static bool differs(uint64_t a, uint64_t b) {
  uint64_t more = a > b ? a : b, less = a > b ? b : a;
  return (more - less) * 100 > more;
}

static bool same_params(const Plan *x, const PlanUnit *a, const Plan *y, const PlanUnit *b) {
  if (a->param_count != b->param_count) return false;
  for (int32_t p = 0; p < a->param_count; p++)
    if (strcmp(plan_str(x, x->params.data[a->first_param + p].name), plan_str(y, y->params.data[b->first_param + p].name)))
      return false;
  return true;
}

static bool unit_changed(const Facts *fa, int32_t a, const Facts *fb, int32_t b) {
  const PlanUnit *x = &fa->plan->units.data[a], *y = &fb->plan->units.data[b];
  const UnitFact *u = &fa->units[a], *v = &fb->units[b];
  return !same_params(fa->plan, x, fb->plan, y) || x->numel != y->numel || x->shard != y->shard || x->reshard != y->reshard ||
         u->gathers != v->gathers || u->reduces != v->reduces || u->replicates != v->replicates ||
         u->gather_bytes != v->gather_bytes || u->reduce_bytes != v->reduce_bytes || !u->recompute_ns != !v->recompute_ns ||
         differs(unit_ns(u), unit_ns(v));
}

static int32_t find_unit(const Plan *plan, const char *name) {
  for (uint32_t u = 0; u < plan->units.count; u++)
    if (!strcmp(plan_str(plan, plan->units.data[u].name), name)) return (int32_t)u;
  return PLAN_NONE;
}

static const char *name_of(const Facts *f, int32_t unit) {
  return plan_str(f->plan, f->plan->units.data[unit].name);
}

static bool text_changed(const Facts *a, StrId x, const Facts *b, StrId y) {
  return strcmp(plan_str(a->plan, x), plan_str(b->plan, y)) != 0;
}

static bool head_changed(const Facts *a, const Facts *b) {
  const PlanWorld *w = &a->plan->world, *v = &b->plan->world;
  const PlanSummary *s = &a->plan->summary, *t = &b->plan->summary;
  return w->ranks != v->ranks || w->shard != v->shard || w->micro_batch != v->micro_batch ||
         w->accumulation != v->accumulation || w->ranks_per_node != v->ranks_per_node || s->prefetch != t->prefetch ||
         s->budget_bytes != t->budget_bytes || text_changed(a, s->strategy, b, t->strategy) ||
         text_changed(a, s->wrap, b, t->wrap) || text_changed(a, s->checkpoint, b, t->checkpoint) ||
         text_changed(a, a->plan->model, b, b->plan->model) || text_changed(a, a->plan->cluster, b, b->plan->cluster) ||
         a->plan->arena_bytes != b->plan->arena_bytes || a->plan->instrs.count != b->plan->instrs.count;
}

static void add_row(Arena *arena, PlanDiff *diff, DiffRow row) {
  vec_push(arena, &diff->rows, row);
  *(row.mark == '+' ? &diff->added : row.mark == '-' ? &diff->removed : row.mark == '~' ? &diff->changed : &diff->same) += 1;
}

PlanDiff diff_plans(Arena *arena, const Facts *a, const Facts *b) {
  PlanDiff diff = {.settings_changed = head_changed(a, b)};
  const int32_t *order_a = units_by_use(a), *order_b = units_by_use(b);
  uint32_t at = 0, count_a = a->plan->units.count;
  for (uint32_t i = 0; i < b->plan->units.count; i++) {
    int32_t v = order_b[i], u = find_unit(a->plan, name_of(b, v));
    /* Removed units stand before the first unit that outlived them. */
    for (; u != PLAN_NONE && at < count_a && order_a[at] != u && find_unit(b->plan, name_of(a, order_a[at])) == PLAN_NONE; at++)
      add_row(arena, &diff, (DiffRow){'-', order_a[at], PLAN_NONE});
    if (u != PLAN_NONE && at < count_a && order_a[at] == u) at++;
    add_row(arena, &diff, (DiffRow){u == PLAN_NONE ? '+' : unit_changed(a, u, b, v) ? '~' : '=', u, v});
  }
  for (; at < count_a; at++)
    if (find_unit(b->plan, name_of(a, order_a[at])) == PLAN_NONE) add_row(arena, &diff, (DiffRow){'-', order_a[at], PLAN_NONE});
  return diff;
}

/* --- words --------------------------------------------------------------------------------------------- */

static const char *color(const Sides *s, char mark) {
  if (!s->style->color) return "";
  return mark == '+' ? "\033[32m" : mark == '-' ? "\033[31m" : mark == '~' ? "\033[33m" : "\033[0m";
}

static const char *size(const Sides *s, uint64_t bytes) {
  char buffer[32];
  return bytes ? arena_strdup(s->b->arena, text_bytes(buffer, bytes)) : "-";
}

static const char *ms(const Sides *s, uint64_t ns) {
  char buffer[32];
  return ns ? arena_strdup(s->b->arena, text_time(buffer, (double)ns)) : "-";
}

static const char *change_of_size(const Sides *s, uint64_t a, uint64_t b) {
  return a == b ? size(s, a)
                : arena_printf(s->b->arena, "%s -> %s (%s%s)", size(s, a), size(s, b), b > a ? "+" : "-",
                               size(s, b > a ? b - a : a - b));
}

static const char *change_of_time(const Sides *s, uint64_t a, uint64_t b) {
  return a == b ? ms(s, a)
                : arena_printf(s->b->arena, "%s -> %s (%s%s)", ms(s, a), ms(s, b), b > a ? "+" : "-",
                               ms(s, b > a ? b - a : a - b));
}

static void head_line(const Sides *s, const char *key, const char *a, const char *b) {
  if (strcmp(a, b)) text_printf(s->out, "  %-12s %s -> %s\n", key, a, b);
}

/* A cluster that is written into a model file has no name. */
static const char *named(const Plan *plan, StrId text) {
  return *plan_str(plan, text) ? plan_str(plan, text) : "(no name)";
}

static void head_text(const Sides *s, const char *key, StrId a, StrId b) {
  head_line(s, key, named(s->a->plan, a), named(s->b->plan, b));
}

static const char *batch(const Facts *f) {
  return arena_printf(f->arena, "%llu x %llu", (unsigned long long)f->plan->world.micro_batch,
                      (unsigned long long)f->plan->world.accumulation);
}

static const char *world(const Facts *f) {
  const PlanWorld *w = &f->plan->world;
  return arena_printf(f->arena, "%u = %u shard%s x %u replica%s, %u a node", w->ranks, w->shard, text_plural(w->shard), w->replicas,
                      text_plural(w->replicas), w->ranks_per_node);
}

static const char *whole(const Facts *f, uint64_t value) {
  return arena_printf(f->arena, "%llu", (unsigned long long)value);
}

static const char *cadence(const Facts *f, StreamId stream) {
  const char *text = plan_cadence(f->plan, stream);
  return text ? text : "never";
}

static void print_head(const Sides *s) {
  const Plan *a = s->a->plan, *b = s->b->plan;
  char x[32], y[32];
  head_text(s, "model", a->model, b->model);
  head_text(s, "cluster", a->cluster, b->cluster);
  head_line(s, "ranks", world(s->a), world(s->b));
  head_line(s, "micro-batch", batch(s->a), batch(s->b));
  head_text(s, "strategy", a->summary.strategy, b->summary.strategy);
  head_text(s, "wrap", a->summary.wrap, b->summary.wrap);
  head_text(s, "checkpoint", a->summary.checkpoint, b->summary.checkpoint);
  head_line(s, "prefetch", whole(s->a, a->summary.prefetch), whole(s->b, b->summary.prefetch));
  head_line(s, "gather", cadence(s->a, STREAM_GATHER), cadence(s->b, STREAM_GATHER));
  head_line(s, "reduce", cadence(s->a, STREAM_REDUCE), cadence(s->b, STREAM_REDUCE));
  head_line(s, "precision", dtype_name(a->recipe.compute), dtype_name(b->recipe.compute));
  head_line(s, "budget", text_bytes(x, a->summary.budget_bytes), text_bytes(y, b->summary.budget_bytes));
  head_line(s, "host memory", text_bytes(x, a->host_bytes), text_bytes(y, b->host_bytes));
  head_line(s, "instructions", whole(s->a, a->instrs.count), whole(s->b, b->instrs.count));
}

/* Rows that say the same of units that are alike on both sides. */
static bool rows_alike(const Sides *s, const DiffRow *x, const DiffRow *y) {
  bool after = x->after == PLAN_NONE || y->after == PLAN_NONE ? x->after == y->after : units_alike(s->b->plan, x->after, y->after);
  if (x->mark != y->mark || !after || (x->before == PLAN_NONE) != (y->before == PLAN_NONE)) return false;
  if (x->before == PLAN_NONE) return true;
  if (!units_alike(s->a->plan, x->before, y->before)) return false;
  return x->after == PLAN_NONE || (!s->b->units[x->after].recompute_ns == !s->b->units[y->after].recompute_ns &&
                                   !s->a->units[x->before].recompute_ns == !s->a->units[y->before].recompute_ns);
}

static const char *row_name(const Sides *s, const DiffRow *row) {
  return row->after == PLAN_NONE ? name_of(s->a, row->before) : name_of(s->b, row->after);
}

static uint64_t sum_ns(const Facts *f, const DiffRow *rows, uint32_t count, bool after) {
  uint64_t ns = 0;
  for (uint32_t i = 0; i < count; i++) {
    int32_t unit = after ? rows[i].after : rows[i].before;
    if (unit != PLAN_NONE) ns += unit_ns(&f->units[unit]);
  }
  return ns;
}

/* What else changed about a unit, in words. */
static void print_details(const Sides *s, const DiffRow *row) {
  const PlanUnit *x = &s->a->plan->units.data[row->before], *y = &s->b->plan->units.data[row->after];
  const UnitFact *u = &s->a->units[row->before], *v = &s->b->units[row->after];
  if (x->reshard != y->reshard)
    text_printf(s->out, ", %s", y->reshard ? "now released after forward" : "now kept gathered until backward");
  bool was = plan_unit_frozen(s->a->plan, x), is = plan_unit_frozen(s->b->plan, y);
  if (was != is) text_printf(s->out, ", %s", is ? "now frozen" : "no longer frozen");
  if (u->gathers != v->gathers)
    text_printf(s->out, ", %llu -> %llu gathers", (unsigned long long)u->gathers, (unsigned long long)v->gathers);
  if (u->reduces != v->reduces)
    text_printf(s->out, ", %llu -> %llu reductions", (unsigned long long)u->reduces, (unsigned long long)v->reduces);
  if (x->param_count != y->param_count) text_printf(s->out, ", %d -> %d tensors", x->param_count, y->param_count);
  else if (!same_params(s->a->plan, x, s->b->plan, y)) text_printf(s->out, ", other tensors");
  if (!u->recompute_ns != !v->recompute_ns) text_printf(s->out, ", %s", v->recompute_ns ? "now recomputed" : "no longer recomputed");
}

static void print_rows(const Sides *s, const DiffRow *rows, uint32_t count) {
  const DiffRow *row = rows;
  const char *name = range_name(s->b->arena, row_name(s, row), row_name(s, &rows[count - 1]));
  uint64_t bytes_a = row->before == PLAN_NONE ? 0 : s->a->units[row->before].gather_bytes,
           bytes_b = row->after == PLAN_NONE ? 0 : s->b->units[row->after].gather_bytes;
  char times[24] = "";
  if (count > 1) snprintf(times, sizeof times, " x%u", count);
  text_printf(s->out, "%s%c %s%s%s: gathered %s", color(s, row->mark), row->mark, name, times, s->style->color ? "\033[0m" : "",
              row->mark == '~' ? change_of_size(s, bytes_a, bytes_b) : size(s, bytes_a + bytes_b));
  if (s->style->costs) {
    uint64_t ns_a = sum_ns(s->a, rows, count, false), ns_b = sum_ns(s->b, rows, count, true);
    text_printf(s->out, ", time %s", row->mark == '~' ? change_of_time(s, ns_a, ns_b) : ms(s, ns_a + ns_b));
  }
  if (row->mark == '~') print_details(s, row);
  text_printf(s->out, "\n");
}

static void print_memory(const Sides *s) {
  uint64_t a[BUF_CLASS_COUNT], b[BUF_CLASS_COUNT];
  int32_t at;
  plan_peak(s->a->plan, a, &at);
  plan_peak(s->b->plan, b, &at);
  for (int c = 0; c < BUF_CLASS_COUNT; c++)
    if (a[c] != b[c])
      text_printf(s->out, "%s~%s %s at the peak: %s\n", color(s, '~'), s->style->color ? "\033[0m" : "",
                  buf_class_name((BufClass)c), change_of_size(s, a[c], b[c]));
}

void view_diff(Text *out, const Facts *a, const Facts *b, const PlanDiff *diff, const ExplainStyle *style) {
  Sides s = {out, a, b, diff, style};
  print_head(&s);
  for (uint32_t i = 0, end; i < diff->rows.count; i = end) {
    for (end = i + 1; end < diff->rows.count && rows_alike(&s, &diff->rows.data[i], &diff->rows.data[end]); end++) {
    }
    if (diff->rows.data[i].mark != '=') print_rows(&s, &diff->rows.data[i], end - i);
  }
  print_memory(&s);
  text_printf(out, "Diff: %u added, %u removed, %u changed, %u the same; arena %s", diff->added, diff->removed, diff->changed,
              diff->same, change_of_size(&s, a->plan->arena_bytes, b->plan->arena_bytes));
  if (style->costs) text_printf(out, ", step %s", change_of_time(&s, a->sim->step_ns, b->sim->step_ns));
  text_printf(out, "\n");
}
