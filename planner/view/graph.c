/* Owns: the drawing of the units. Order is that of first use; neighbours that are alike in everything but
 * their name are one node, so that 126 blocks are as easy to read as three. */
#include "planner/view/view.h"

#include <stdlib.h>

typedef struct UnitFacts {
  int32_t unit, first_use;                     /* list position */
  uint32_t gathers, reduces, replicates;       /* in the whole list: once a repetition of their segments */
  uint64_t gather_ns, reduce_ns, replicate_ns; /* of one */
  DType dtype;                                 /* as gathered */
} UnitFacts;

static int int_index(const InstrSpec *spec, const char *name) {
  for (int i = 0; i < spec->int_count; i++)
    if (!strcmp(spec->ints[i], name)) return i;
  return -1;
}

static void collect_collective(UnitFacts *facts, const Plan *plan, const PlanInstr *instr,
                               const InstrSpec *spec) {
  int k = int_index(spec, "unit");
  if (k < 0) return;
  UnitFacts *f = &facts[plan_int(plan, instr, k)];
  if (instr->op == INSTR_ALLGATHER) {
    f->gathers++;
    f->gather_ns = instr->ns;
    f->dtype = plan->bufs.data[plan_operand(plan, instr, 1)->buf].dtype;
  } else if (instr->op == INSTR_REDUCE_SCATTER) {
    f->reduces++;
    f->reduce_ns = instr->ns;
  } else if (instr->op == INSTR_ALLREDUCE) {
    f->replicates++;
    f->replicate_ns = instr->ns;
  }
}

static UnitFacts *collect(Arena *scratch, const Plan *plan) {
  const InstrSpec *specs = instr_specs(scratch);
  UnitFacts *facts = ARENA_ARRAY(scratch, UnitFacts, plan->units.count);
  for (uint32_t u = 0; u < plan->units.count; u++)
    facts[u] = (UnitFacts){.unit = (int32_t)u, .first_use = INT32_MAX, .dtype = plan->recipe.compute};
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    collect_collective(facts, plan, instr, &specs[instr->op]);
    if (instr->stream != STREAM_COMPUTE || instr->phase == PHASE_BEGIN) continue;
    for (int k = 0; k < specs[instr->op].operand_count; k++) {
      int32_t buf = plan_operand(plan, instr, k)->buf,
              unit = buf == PLAN_NONE ? PLAN_NONE : plan->bufs.data[buf].unit;
      if (unit != PLAN_NONE && facts[unit].first_use == INT32_MAX) facts[unit].first_use = (int32_t)i;
    }
  }
  return facts;
}

static int by_first_use(const void *a, const void *b) {
  const UnitFacts *x = a, *y = b;
  if (x->first_use != y->first_use) return x->first_use < y->first_use ? -1 : 1;
  return (x->unit > y->unit) - (x->unit < y->unit);
}

static bool alike(const Plan *plan, const UnitFacts *a, const UnitFacts *b) {
  const PlanUnit *x = &plan->units.data[a->unit], *y = &plan->units.data[b->unit];
  return x->numel == y->numel && x->param_count == y->param_count && x->shard == y->shard &&
         x->reshard == y->reshard && a->gathers == b->gathers && a->reduces == b->reduces &&
         a->replicates == b->replicates && a->gather_ns == b->gather_ns && a->reduce_ns == b->reduce_ns &&
         a->replicate_ns == b->replicate_ns;
}

/* --- text -------------------------------------------------------------------------------------------- */

/* Inside an HTML-like label. */
static void add_html(Text *out, const char *text) {
  for (; *text; text++) {
    if (*text == '<')
      text_add(out, "&lt;", 4);
    else if (*text == '>')
      text_add(out, "&gt;", 4);
    else if (*text == '&')
      text_add(out, "&amp;", 5);
    else if (*text == '"')
      text_add(out, "&quot;", 6);
    else
      text_add(out, (unsigned char)*text < 0x20 ? " " : text, 1);
  }
}

static void add_names(Text *out, const Plan *plan, const UnitFacts *first, uint32_t count) {
  text_printf(out, "<b>");
  add_html(out, plan_str(plan, plan->units.data[first->unit].name));
  if (count > 1) {
    text_printf(out, " \xe2\x80\xa6 ");
    add_html(out, plan_str(plan, plan->units.data[first[count - 1].unit].name));
    text_printf(out, "</b>  \xc3\x97 %u", count);
  } else {
    text_printf(out, "</b>");
  }
}

#define ROW_BEGIN "<tr><td align=\"left\"><font point-size=\"10\" color=\"#4a5563\">"
#define ROW_END   "</font></td></tr>"

static void add_collectives(Text *out, const UnitFacts *facts) {
  char time[32];
  if (facts->gathers)
    text_printf(out, ROW_BEGIN "gather %s%s" ROW_END, text_time(time, (double)facts->gather_ns),
                facts->gathers > 1 ? ", again for backward" : "");
  if (facts->reduces)
    text_printf(out, ROW_BEGIN "reduce %s" ROW_END, text_time(time, (double)facts->reduce_ns));
  if (facts->replicates)
    text_printf(out, ROW_BEGIN "replicate %s" ROW_END, text_time(time, (double)facts->replicate_ns));
}

static void add_node(Text *out, const Plan *plan, const UnitFacts *facts, uint32_t count, uint32_t node) {
  const PlanUnit *unit = &plan->units.data[facts->unit];
  char numel[32], full[32], shard[32];
  text_bytes(full, unit->shard * plan->world.shard * dtype_bytes(facts->dtype));
  text_bytes(shard, unit->shard * dtype_bytes(facts->dtype));
  text_printf(out,
              "  n%u [fillcolor=\"%s\" label=<<table border=\"0\" cellborder=\"0\" cellspacing=\"0\" "
              "cellpadding=\"1\"><tr><td align=\"left\">",
              node, unit->reshard ? "#e8f0fb" : "#e7f5ec");
  add_names(out, plan, facts, count);
  text_printf(out, "</td></tr>" ROW_BEGIN "%s in %d tensor%s" ROW_END, text_count(numel, (double)unit->numel),
              unit->param_count, unit->param_count == 1 ? "" : "s");
  if (plan->world.shard > 1)
    text_printf(out, ROW_BEGIN "%s gathered, %s a shard" ROW_END, full, shard);
  else
    text_printf(out, ROW_BEGIN "%s" ROW_END, full);
  add_collectives(out, facts);
  if (plan->world.shard > 1)
    text_printf(out, ROW_BEGIN "%s" ROW_END,
                unit->reshard ? "released after forward" : "kept until backward");
  text_printf(out, "</table>>]\n");
}

static void add_quoted(Text *out, const char *text) {
  text_printf(out, "\"");
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') text_add(out, "\\", 1);
    text_add(out, (unsigned char)*text < 0x20 ? " " : text, 1);
  }
  text_printf(out, "\"");
}

static void add_head(Text *out, Arena *scratch, const Plan *plan) {
  char params[32];
  text_count(params, (double)plan->param_numel);
  text_printf(out, "digraph units {\n  rankdir=LR bgcolor=white labelloc=t labeljust=l nodesep=0.3 "
                   "ranksep=0.45 fontname=\"Helvetica\" fontsize=15\n  label=");
  add_quoted(out, arena_printf(scratch, "%s: %s parameters, %u units, %u rank%s, shard %u",
                               plan_str(plan, plan->model), params, plan->units.count, plan->world.ranks,
                               plan->world.ranks == 1 ? "" : "s", plan->world.shard));
  text_printf(
      out,
      "\n  node [shape=box style=\"filled,rounded\" color=\"#9fb0c6\" fontname=\"Helvetica\" fontsize=13 "
      "margin=\"0.12,0.08\"]\n"
      "  edge [color=\"#5f6b7a\" arrowsize=0.7 fontname=\"Helvetica\" fontsize=10 fontcolor=\"#5f6b7a\"]\n");
}

void view_units_dot(Text *out, const Plan *plan) {
  Arena *scratch = arena_new();
  UnitFacts *facts = collect(scratch, plan);
  uint32_t nodes = 0;
  qsort(facts, plan->units.count, sizeof *facts, by_first_use);
  add_head(out, scratch, plan);
  for (uint32_t u = 0, run; u < plan->units.count; u += run) {
    for (run = 1; u + run < plan->units.count && alike(plan, &facts[u], &facts[u + run]); run++) {
    }
    add_node(out, plan, &facts[u], run, nodes);
    if (nodes) text_printf(out, "  n%u -> n%u\n", nodes - 1, nodes);
    nodes++;
  }
  if (plan->training && nodes) { /* the gradient's way back, without a say in the layout */
    text_printf(out, "  loss [shape=ellipse fillcolor=\"#fdf1e3\" label=\"loss\"]\n  n%u -> loss\n",
                nodes - 1);
    text_printf(out, "  loss -> n%u [style=dashed color=\"#d9743c\" constraint=false]\n", nodes - 1);
    for (uint32_t n = nodes - 1; n > 0; n--)
      text_printf(out, "  n%u -> n%u [style=dashed color=\"#d9743c\" constraint=false]\n", n, n - 1);
  }
  text_printf(out, "}\n");
  arena_free(scratch);
}
