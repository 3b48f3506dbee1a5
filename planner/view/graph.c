/* Owns: the drawing of the model as a layer graph: layers are clustered by unit and coloured by what becomes of their
 * results. Units that are alike and follow each other are one cluster, and layers that differ in nothing but block
 * numbers are one node, so that 126 blocks are as easy to read as three. One micro-batch is drawn: the others run the same. */
#include "planner/view/facts.h"
#include "planner/view/svg.h"
#include "planner/view/view.h"

#include <stdlib.h>

typedef enum { FATE_DROPPED, FATE_KEPT, FATE_RECOMPUTED, FATE_SOME, FATE_AWAY, FATE_SOME_AWAY, FATE_COUNT } Fate;
static const char *const fate_fills[FATE_COUNT] = {"#ffffff", "#f7dfa5", "#d9c8ef", "#f3d3cf", "#74c3d6", "#b9e3ec"};
static const char *const fate_names[FATE_COUNT] = {"not needed later", "result kept for backward", "computed again in backward",
                                                    "computed again in some blocks",
                                                    "kept in host memory for backward", "kept in host memory in some blocks"};

typedef struct Group {
  int32_t first, last; /* units */
  uint32_t count;
} Group;

typedef struct Node {
  const char *pattern; /* "h.*.mlp.c_fc" */
  int32_t group;       /* or PLAN_NONE */
  uint32_t count;      /* layers */
  uint32_t recomputed, away; /* of them: run again; in host memory */
  const char *op, *name; /* of the first layer */
  Fate fate;
} Node;

typedef struct Edge {
  int32_t from, to;
} Edge;

typedef struct Drawing {
  Arena *arena;
  Text *out;
  const Plan *plan;
  const PlanSegment *micro; /* whose layers are drawn */
  Facts *f;
  int32_t *group_of; /* by unit */
  int32_t *node_of;  /* by instruction of `micro`, PLAN_NONE: not drawn */
  bool *stored;      /* by buffer: forward takes it to host memory */
  VEC(Group) groups;
  VEC(Node) nodes;
  VEC(Edge) edges;
} Drawing;

/* --- what is drawn ------------------------------------------------------------------------------------- */

/* Patterns of units that repeat (a block's two halves, say) are a group for each of their places. */
static void find_groups(Drawing *d) {
  UnitOrder order = {d->plan, units_by_use(d->f)};
  uint32_t count = d->plan->units.count;
  d->group_of = ARENA_ARRAY(d->arena, int32_t, count);
  for (uint32_t i = 0; i < count;) {
    Repeat repeat = find_unit_repeat(&order, i);
    for (uint32_t place = 0; place < repeat.period; place++) {
      Group group = {order.units[i + place], order.units[i + place + (repeat.count - 1) * repeat.period], repeat.count};
      for (uint32_t k = 0; k < repeat.count; k++) d->group_of[order.units[i + place + k * repeat.period]] = (int32_t)d->groups.count;
      vec_push(d->arena, &d->groups, group);
    }
    i += repeat.period * repeat.count;
  }
}

static bool is_layer(const PlanInstr *instr) {
  if (instr->stream != STREAM_COMPUTE) return false;
  return instr->phase == PHASE_FORWARD || instr_is_loss(instr->op);
}

static int32_t find_node(const Drawing *d, const char *pattern, int32_t group) {
  for (uint32_t n = d->nodes.count; n-- > 0;)
    if (d->nodes.data[n].group == group && !strcmp(d->nodes.data[n].pattern, pattern)) return (int32_t)n;
  return PLAN_NONE;
}

/* Layers with results that a recomputation writes again, by name. */
static bool is_recomputed(const Drawing *d, StrId name) {
  for (int32_t i = d->micro->first; i < d->micro->end; i++)
    if (d->plan->instrs.data[i].phase == PHASE_RECOMPUTE && d->plan->instrs.data[i].name == name) return true;
  return false;
}

static bool is_kept(const Drawing *d, int32_t i, int32_t turn) {
  const PlanInstr *instr = &d->plan->instrs.data[i];
  const InstrSpec *spec = &d->f->specs[instr->op];
  for (int k = 0; k < spec->operand_count; k++) {
    int32_t buf = plan_operand(d->plan, instr, k)->buf;
    bool written = spec->operands[k].mode == MODE_WRITE || spec->operands[k].mode == MODE_ADD;
    if (buf != PLAN_NONE && written && d->plan->bufs.data[buf].class == BUF_ACTIVATION && d->plan->bufs.data[buf].last > turn)
      return true;
  }
  return false;
}

static void find_stored(Drawing *d) {
  d->stored = ARENA_ARRAY(d->arena, bool, d->plan->bufs.count);
  for (int32_t i = d->micro->first; i < d->micro->end; i++) {
    const PlanInstr *instr = &d->plan->instrs.data[i];
    if (instr->op == INSTR_STORE && instr->phase == PHASE_FORWARD) d->stored[plan_operand(d->plan, instr, 0)->buf] = true;
  }
}

static bool is_away(const Drawing *d, const PlanInstr *instr) {
  for (int k = 0; k < d->f->specs[instr->op].operand_count; k++) {
    int32_t buf = plan_operand(d->plan, instr, k)->buf;
    if (buf != PLAN_NONE && d->stored[buf] && d->f->specs[instr->op].operands[k].mode == MODE_WRITE) return true;
  }
  return false;
}

static Fate fate_of(const Node *node, bool kept) {
  if (node->recomputed) return node->recomputed == node->count ? FATE_RECOMPUTED : FATE_SOME;
  if (node->away) return node->away == node->count ? FATE_AWAY : FATE_SOME_AWAY;
  return kept ? FATE_KEPT : node->fate;
}

static int32_t turn_of(const Drawing *d) {
  for (int32_t i = d->micro->first; i < d->micro->end; i++)
    if (d->plan->instrs.data[i].stream == STREAM_COMPUTE && d->plan->instrs.data[i].phase == PHASE_BACKWARD) return i;
  return INT32_MAX;
}

static void find_nodes(Drawing *d) {
  int32_t turn = turn_of(d);
  find_stored(d);
  d->node_of = ARENA_ARRAY(d->arena, int32_t, d->plan->instrs.count);
  for (int32_t i = d->micro->first; i < d->micro->end; i++) {
    const PlanInstr *instr = &d->plan->instrs.data[i];
    d->node_of[i] = PLAN_NONE;
    if (!is_layer(instr)) continue;
    const char *name = plan_str(d->plan, instr->name), *pattern = name_pattern(d->arena, name);
    int32_t unit = d->f->unit_of[i], group = unit == PLAN_NONE ? PLAN_NONE : d->group_of[unit], n = find_node(d, pattern, group);
    if (n == PLAN_NONE) {
      Node node = {.pattern = pattern, .group = group, .op = d->f->specs[instr->op].name, .name = name};
      vec_push(d->arena, &d->nodes, node);
      n = (int32_t)d->nodes.count - 1;
    }
    Node *node = &d->nodes.data[n];
    node->count++;
    node->recomputed += is_recomputed(d, instr->name);
    node->away += is_away(d, instr);
    node->fate = fate_of(node, is_kept(d, i, turn));
    d->node_of[i] = n;
  }
}

static void add_edge(Drawing *d, int32_t from, int32_t to) {
  for (uint32_t e = 0; e < d->edges.count; e++)
    if (d->edges.data[e].from == from && d->edges.data[e].to == to) return;
  vec_push(d->arena, &d->edges, ((Edge){from, to}));
}

/* From the layer that wrote a buffer last to each other that reads it, the same layer of the next block included. */
static void find_edges(Drawing *d) {
  int32_t *writer = ARENA_ARRAY(d->arena, int32_t, d->plan->bufs.count);
  for (uint32_t b = 0; b < d->plan->bufs.count; b++) writer[b] = PLAN_NONE;
  for (int32_t i = d->micro->first; i < d->micro->end; i++) {
    const PlanInstr *instr = &d->plan->instrs.data[i];
    const InstrSpec *spec = &d->f->specs[instr->op];
    for (int k = 0; d->node_of[i] != PLAN_NONE && k < spec->operand_count; k++) {
      const PlanOperand *operand = plan_operand(d->plan, instr, k);
      if (operand->buf == PLAN_NONE || d->plan->bufs.data[operand->buf].class != BUF_ACTIVATION) continue;
      bool reads = spec->operands[k].mode == MODE_READ || spec->operands[k].mode == MODE_UPDATE || operand->add;
      int32_t from = writer[operand->buf];
      if (reads && from != PLAN_NONE && d->plan->instrs.data[from].name != instr->name) add_edge(d, d->node_of[from], d->node_of[i]);
      if (spec->operands[k].mode != MODE_READ) writer[operand->buf] = i;
    }
  }
}

/* --- text ---------------------------------------------------------------------------------------------- */

/* One line of a cluster's text. */
static void add_line(const Drawing *d, const char *line) {
  text_printf(d->out, "<tr><td align=\"left\"><font point-size=\"10\" color=\"#4a5563\">%s&#160;&#160;</font></td></tr>", line);
}

/* In the mean of a step: compute beside it slows one more than another. */
static double of_one(uint64_t ns, uint64_t count) {
  return (double)ns / (double)count;
}

static const char *gather_text(const Drawing *d, const PlanUnit *unit, const UnitFact *fact) {
  char full[32], time[32];
  return arena_printf(d->arena, "gather %s in %s, %s", text_bytes(full, fact->gather_bytes), text_time(time, of_one(fact->gather_ns, fact->gathers)),
                      fact->gathers_again ? "again for backward" : unit->reshard ? "for forward alone" : arena_printf(d->arena, "kept %s", gathered_until(d->plan)));
}

/* A node, since edges go around nodes but across the labels of clusters. It stands above the cluster's first layer. */
static void add_cluster_text(const Drawing *d, int32_t g) {
  const Plan *plan = d->plan;
  const Group *group = &d->groups.data[g];
  const PlanUnit *unit = &plan->units.data[group->first];
  const UnitFact *fact = &d->f->units[group->first];
  char numel[32], time[32];
  text_printf(d->out, "    t%d [shape=plain style=\"\" label=<<table border=\"0\" cellspacing=\"0\" cellpadding=\"0\">"
                      "<tr><td align=\"left\"><font point-size=\"14\"><b>", g);
  svg_escaped(d->out, range_name(d->arena, plan_str(plan, unit->name), plan_str(plan, plan->units.data[group->last].name)));
  if (group->count > 1) text_printf(d->out, " \xc3\x97 %u", group->count); /* in one run of text: viewers' fonts are wider than Graphviz expects */
  text_printf(d->out, "</b></font></td></tr>");
  add_line(d, arena_printf(d->arena, "%s elements in %d tensor%s%s%s", text_count(numel, (double)unit->numel), unit->param_count,
                           text_plural(unit->param_count), group->count > 1 ? ", each" : "", plan_unit_frozen(plan, unit) ? ", frozen" : ""));
  if (fact->gathers) add_line(d, gather_text(d, unit, fact));
  if (fact->reduces) add_line(d, arena_printf(d->arena, "reduce gradients in %s", text_time(time, of_one(fact->reduce_ns, fact->reduces))));
  if (fact->replicates) add_line(d, arena_printf(d->arena, "replicate in %s", text_time(time, of_one(fact->replicate_ns, fact->replicates))));
  text_printf(d->out, "</table>>]\n");
}

/* The node's name without what its cluster's name says: "mlp.c_fc" in h.0, in h.0 .. 11 and in h.0 (frozen). */
static const char *short_name(const Drawing *d, const Node *node, bool alone) {
  const char *name = alone ? node->name : node->pattern;
  if (node->group == PLAN_NONE) return name;
  const char *unit = plan_str(d->plan, d->plan->units.data[d->groups.data[node->group].first].name);
  unit = arena_printf(d->arena, "%.*s", (int)strcspn(unit, " "), unit);
  if (!alone) unit = name_pattern(d->arena, unit);
  size_t length = strlen(unit);
  return !strncmp(name, unit, length) && name[length] == '.' ? name + length + 1 : name;
}

static void add_node(const Drawing *d, uint32_t n) {
  const Node *node = &d->nodes.data[n];
  uint32_t blocks = node->group == PLAN_NONE ? 1 : d->groups.data[node->group].count;
  text_printf(d->out, "    n%u [fillcolor=\"%s\" label=<", n, fate_fills[node->fate]);
  svg_escaped(d->out, short_name(d, node, node->count == 1 && blocks == 1));
  if (node->count > blocks) text_printf(d->out, " \xc3\x97 %u", node->count);
  text_printf(d->out, "<br/><font point-size=\"9\" color=\"#5f6b7a\">");
  svg_escaped(d->out, node->op);
  text_printf(d->out, "</font>>]\n");
}

static void add_cluster(const Drawing *d, int32_t g) {
  const Group *group = &d->groups.data[g];
  bool reshard = d->plan->units.data[group->first].reshard, alone = d->plan->world.shard == 1;
  text_printf(d->out, "  subgraph cluster_%d {\n    style=\"rounded,filled\" color=\"%s\" fillcolor=\"%s\" label=\"\"\n", g,
              alone ? "#9fabbb" : reshard ? "#7fa6dc" : "#77b893", alone ? "#f3f5f8" : reshard ? "#e8f0fb" : "#e7f5ec");
  add_cluster_text(d, g);
  bool first = true;
  for (uint32_t n = 0; n < d->nodes.count; n++) {
    if (d->nodes.data[n].group != g) continue;
    add_node(d, n);
    if (first) text_printf(d->out, "    t%d -> n%u [style=invis]\n", g, n);
    first = false;
  }
  text_printf(d->out, "  }\n");
}

static bool policy_is_used(const Drawing *d, bool reshard) {
  for (uint32_t u = 0; u < d->plan->units.count; u++)
    if (d->plan->units.data[u].reshard == reshard) return true;
  return false;
}

/* Labels of these edges would lie on others, and on the borders of clusters. */
static bool goes_on(const Drawing *d) {
  for (uint32_t e = 0; e < d->edges.count; e++)
    if (d->edges.data[e].from >= d->edges.data[e].to) return true;
  return false;
}

static void add_legend(const Drawing *d) {
  bool used[FATE_COUNT] = {false};
  for (uint32_t n = 0; n < d->nodes.count; n++) used[d->nodes.data[n].fate] = true;
  text_printf(d->out, "  legend [shape=plain style=\"\" label=<<table border=\"0\" cellspacing=\"4\" cellpadding=\"3\">");
  for (int reshard = 1; reshard >= 0 && d->plan->world.shard > 1; reshard--)
    if (policy_is_used(d, reshard))
      text_printf(d->out, "<tr><td bgcolor=\"%s\" border=\"1\">  </td><td align=\"left\">unit %s</td></tr>",
                  reshard ? "#e8f0fb" : "#e7f5ec", reshard ? "released after forward" : arena_printf(d->arena, "kept gathered %s", gathered_until(d->plan)));
  for (int fate = 0; fate < FATE_COUNT; fate++)
    if (used[fate])
      text_printf(d->out, "<tr><td bgcolor=\"%s\" border=\"1\">  </td><td align=\"left\">%s</td></tr>", fate_fills[fate],
                  fate_names[fate]);
  if (goes_on(d)) text_printf(d->out, "<tr><td><font color=\"#5f6b7a\"><b>- - &gt;</b></font></td><td align=\"left\">into the next block</td></tr>");
  text_printf(d->out, "</table>>]\n");
}

static void add_head(const Drawing *d) {
  char params[32];
  text_printf(d->out, "digraph units {\n  rankdir=TB bgcolor=white labelloc=t labeljust=l nodesep=0.25 ranksep=0.3 newrank=true "
                      "fontname=\"Arial,sans-serif\" fontsize=15\n  label=<<b>");
  svg_escaped(d->out, plan_str(d->plan, d->plan->model));
  text_printf(d->out, "</b>: %s parameters in %u unit%s, %u rank%s<br align=\"left\"/><font point-size=\"11\" color=\"#4a5563\">%s</font>"
                      "<br align=\"left\"/>>\n",
              text_count(params, (double)d->plan->param_numel), d->plan->units.count, text_plural(d->plan->units.count),
              d->plan->world.ranks, text_plural(d->plan->world.ranks),
              d->plan->world.shard == 1 ? "A box is a unit: its gradients are reduced together. Every rank holds it whole."
                                        : "A box is a unit: its parameters lie sharded over the ranks and are gathered"
                                          "<br align=\"left\"/>before its first layer computes; its gradients are reduced after its last.");
  text_printf(d->out, "  node [shape=box style=\"filled,rounded\" color=\"#9fb0c6\" fontname=\"Arial,sans-serif\" fontsize=11 "
                      "margin=\"0.10,0.04\" height=0.3]\n"
                      "  edge [color=\"#5f6b7a\" arrowsize=0.6 fontname=\"Arial,sans-serif\" fontsize=10 fontcolor=\"#5f6b7a\"]\n");
}

static void add_edges(const Drawing *d) {
  for (uint32_t e = 0; e < d->edges.count; e++) {
    const Edge *edge = &d->edges.data[e];
    const char *back = edge->from >= edge->to ? " [style=dashed constraint=false]" : "";
    text_printf(d->out, "  n%d -> n%d%s\n", edge->from, edge->to, back);
  }
}

void view_units_dot(Text *out, const Plan *plan, const SimResult *sim) {
  Arena *scratch = arena_new();
  Drawing d = {.arena = scratch, .out = out, .plan = plan, .micro = plan_first_micro(plan), .f = facts_of(scratch, plan, sim)};
  find_groups(&d);
  find_nodes(&d);
  find_edges(&d);
  add_head(&d);
  for (uint32_t g = 0; g < d.groups.count; g++) add_cluster(&d, (int32_t)g);
  for (uint32_t n = 0; n < d.nodes.count; n++)
    if (d.nodes.data[n].group == PLAN_NONE) add_node(&d, n);
  add_edges(&d);
  add_legend(&d);
  text_printf(out, "}\n");
  arena_free(scratch);
}
